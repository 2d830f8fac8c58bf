/* A text that passes through a pipe, so its allocation is unknown where it is freed. That call accepts any block. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum step { READ, LOG, DONE };
struct conn { enum step step; char *text; int pipe[2]; };

/* A wrapper that frees more than its argument. */
static void close_conn(void *closed)
{
	struct conn *c = closed;
	free(c->text);
	free(c);
}

static char *received(int pipe)
{
	char *text;
	return read(pipe, &text, sizeof text) == sizeof text ? text : NULL;
}

static void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->text = malloc(80);
		c->step = LOG;
		break;
	case LOG:
		if (write(c->pipe[1], &c->text, sizeof c->text) == sizeof c->text)
			c->text = NULL;
		c->step = DONE;
		break;
	case DONE: {
		char *text = received(c->pipe[0]), *longer = realloc(received(c->pipe[0]), 100);
		free(text);
		free(longer);
		close_conn(c);
	}
	}
}

void accept_conn(void)
{
	struct conn *c = calloc(1, sizeof *c);
	if (c && pipe(c->pipe) == 0)
		drive(c);
}
