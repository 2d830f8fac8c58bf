// A setter macro, a bounded size, a buffer that only one stage has, and one that is passed on.
#include <stdlib.h>
#include <sys/socket.h>

enum conn_state { WAITING_HEADER, WAITING_BODY, WRITING };
#define SET_STATE(c, s) ((c)->state = (s))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

typedef struct conn { enum conn_state state; int fd; size_t left; char *head, *chunk; } conn;

static void header(conn *c)
{
	c->head = (char *)malloc(MIN(c->left, 4096));
	if (recv(c->fd, c->head, 1, 0) < 0)
		SET_STATE(c, WRITING);
	else
		SET_STATE(c, WAITING_BODY);
}

static void body(conn *c)
{
	char *scratch = malloc(1024);
	recv(c->fd, scratch, 1024, 0);
	unsigned char length = (unsigned char)scratch[0];
	free(scratch);
	c->chunk = malloc(length + 2u);
	SET_STATE(c, WRITING);
}

void drive(conn *c)
{
	for (;;) {
		switch (c->state) {
		case WAITING_HEADER:
			header(c);
			continue;
		case WAITING_BODY:
			body(c);
			/* fall through */
		case WRITING:
			send(c->fd, c->head, 1, 0);
			free(c->head);
			c->head = NULL;
			if (c->chunk)
				free(c->chunk);
			c->chunk = NULL;
			SET_STATE(c, WAITING_HEADER);
			return;
		}
	}
}

conn *conn_new(int fd)
{
	conn *c = calloc(sizeof(conn), 1);
	c->fd = fd;
	SET_STATE(c, WAITING_HEADER);
	return c;
}
