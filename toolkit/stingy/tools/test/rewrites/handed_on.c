/* The address of free is given away, and the configuration says that no request is freed through it. */
#include <stdlib.h>

enum step { READ, WRITE };
struct conn { enum step step; struct name *name; };
struct name { char text[40]; };

void (*release)(void *) = free;

void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->name = malloc(sizeof(struct name));
		c->step = WRITE;
		break;
	case WRITE:
		free(c->name);
		free(c);
		break;
	}
}

void accept_conn(void)
{
	struct conn *c = malloc(sizeof(struct conn));
	if (!c)
		return;
	c->step = READ;
	drive(c);
}
