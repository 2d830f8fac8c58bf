// Blocks that the C library returns through an argument: its own, a resized one, and one next to malloc's.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ, REPLY };
struct conn { int state; FILE *in; char *line, *reply, *name, *body; size_t room; };

static int print(char **into, const char *name)
{
	return asprintf(into, "for %s", name);
}

static void step(struct conn *c)
{
	switch (c->state) {
	case READ:
		c->room = 80;
		c->line = malloc(c->room);
		if (getline(&c->line, &c->room, c->in) < 0)
			return;
		c->name = strdup(c->line);
		if (c->room > 100)
			c->reply = malloc(300);
		else if (print(&c->reply, c->name) < 0)
			return;
		c->reply = realloc(c->reply, 400);
		if (asprintf(&c->body, "%s", c->line) < 0)
			return;
		c->state = REPLY;
		break;
	case REPLY:
		fputs(c->reply, stdout);
		free(c->line);
		free(c->name);
		free(c->reply);
		free(c->body);
		c->state = READ;
		break;
	}
}

int main(void)
{
	struct conn *c = malloc(sizeof *c);
	c->state = READ;
	c->in = stdin;
	for (int i = 0; i < 4; i++)
		step(c);
	free(c);
}
