/* The server's own allocator ends the program without memory, and so does its replacement. */
#include <stdlib.h>

void *xcalloc(size_t count, size_t bytes);
void *x_stingy_calloc(unsigned object, size_t count, size_t bytes);

enum step { READ, WRITE };
struct conn { enum step step; char buffer[100]; };

void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->step = WRITE;
		break;
	case WRITE:
		free(c);
		break;
	}
}

void accept_conn(void)
{
	struct conn *c = xcalloc(1, sizeof(*c));
	c->step = READ;
	drive(c);
}
