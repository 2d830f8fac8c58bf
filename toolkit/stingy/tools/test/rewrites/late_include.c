/* A file that includes another header after its first function: new functions are declared before their use. */
#include <stdlib.h>

enum step { READ, WRITE };
struct conn { enum step step; char buffer[100]; };

struct conn *open_conn(void)
{
	return malloc(sizeof(struct conn));
}

#include <string.h>

void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		memset(c->buffer, 0, sizeof c->buffer);
		c->step = WRITE;
		break;
	case WRITE:
		free(c);
		break;
	}
}

void accept_conn(void)
{
	struct conn *c = open_conn();
	if (!c)
		return;
	c->step = READ;
	drive(c);
}
