// Request structures with unions, unnamed members, bit fields and padding.
#include <stdlib.h>
#include <string.h>

enum kind { PING, STORE, FLUSH };

typedef struct {
	char flag;
	enum kind kind;
	char tag;
	union {
		struct { char *key; size_t length; } store;
		struct { long when; } flush;
	} u;
	struct { short x, y; };
	unsigned quiet : 1, noreply : 1;
	double seldom[16];
} command;

static void store(command *c)
{
	c->u.store.key = malloc(c->u.store.length);
	c->x = 3;
	c->kind = FLUSH;
}

void command_run(command *c)
{
	switch (c->kind) {
	case PING: c->flag = 1; c->kind = STORE; break;
	case STORE: store(c); break;
	case FLUSH:
		free(c->u.store.key);
		c->quiet = 1;
		c->kind = STORE;
		break;
	}
}

command *command_new(void)
{
	command *c = malloc(sizeof *c);
	memset(c->seldom, 0, sizeof c->seldom);
	c->kind = PING;
	return c;
}
