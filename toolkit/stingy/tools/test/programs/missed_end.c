// A doubt reports an end of a request that the analysis does not see: here it comes out of a file.
#include <stdio.h>
#include <sys/socket.h>

enum state { READING = 1, SENDING, FREE };

struct conn { enum state state; int fd; char buffer[500]; };

static struct conn conns[64];

static void handle_read(struct conn *c)
{
	if (recv(c->fd, c->buffer, sizeof c->buffer, 0) > 0)
		c->state = SENDING;
}

static void handle_send(struct conn *c)
{
	int next = 0;
	send(c->fd, c->buffer, sizeof c->buffer, 0);
	fread(&next, sizeof next, 1, stdin);
	c->state = next;
}

int main(void)
{
	for (;;) {
		conns[0].fd = accept(0, 0, 0);
		conns[0].state = READING;
		for (int i = 0; i < 64; i++)
			switch (conns[i].state) {
			case READING: handle_read(&conns[i]); break;
			case SENDING: handle_send(&conns[i]); break;
			case FREE: break;
			}
	}
}
