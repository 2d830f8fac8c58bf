/* realloc is called through a pointer: objects that it may resize there stay with malloc. */
#include <stdlib.h>

enum step { READ, GROW, DONE };
struct conn { enum step step; char *text; };
static void *(*resize)(void *, size_t) = realloc;

static void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->text = malloc(80);
		c->step = GROW;
		break;
	case GROW:
		c->text = resize(c->text, 200);
		c->step = DONE;
		break;
	case DONE:
		free(c->text);
		free(c);
	}
}

void accept_conn(void)
{
	struct conn *c = calloc(1, sizeof *c);
	if (c)
		drive(c);
}
