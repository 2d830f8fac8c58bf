// A growing buffer: one object with several sites and a size that the input determines, and a table that doubles.
#include <stdlib.h>
#include <sys/socket.h>

enum { READ, DONE };

struct header { const char *name, *value; };

struct conn { int state, fd; char *buffer; size_t size, used; struct header *headers; unsigned header_space; };

static void grow(struct conn *c, size_t wanted)
{
	if (wanted <= c->size)
		return;
	c->buffer = realloc(c->buffer, wanted);
	c->size = wanted;
}

void conn_run(struct conn *c)
{
	switch (c->state) {
	case READ:
		if (c->buffer == NULL) {
			c->buffer = malloc(c->size = 200);
			c->headers = malloc(8 * sizeof(struct header));
		}
		grow(c, c->used + 1000);
		c->used += (size_t)recv(c->fd, c->buffer + c->used, 1000, 0);
		c->header_space *= 2;
		c->headers = realloc(c->headers, c->header_space * sizeof *c->headers);
		c->state = DONE;
		break;
	case DONE:
		free(c->buffer);
		free(c->headers);
		c->buffer = NULL;
		c->state = READ;
		break;
	}
}
