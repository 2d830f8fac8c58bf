#include "memory.h"

enum step { READ, WRITE };
struct conn { enum step step; char *name; struct part *part; };
struct part { int sum; char text[90]; };

void drive(struct conn *c, const char *line)
{
	switch (c->step) {
	case READ:
		c->name = get_text(line, 40);
		c->part = NEW(struct part);
		c->step = WRITE;
		break;
	case WRITE:
		put(c->name);
		put(c->part);
		put(c);
		break;
	}
}

void accept_conn(const char *line)
{
	struct conn *c = NEW(struct conn);
	c->step = READ;
	drive(c, line);
}
