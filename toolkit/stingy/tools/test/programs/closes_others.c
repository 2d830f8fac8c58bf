// Every stage may close other connections than its own, which does not end its own.
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum state { HEADER, BODY, REPLY, CLOSING };

struct conn;
struct server { struct conn *oldest; int count; };
struct conn { enum state state; int fd; time_t seen; char *buffer; struct conn *next; struct server *server; char pad[800]; };

static struct conn *all;

static void conn_free(struct conn *c)
{
	for (struct conn **at = &all; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	free(c->buffer);
	close(c->fd);
	free(c);
}

static struct conn *find_idle(void)
{
	for (struct conn *c = all; c; c = c->next)
		if (c->seen < time(NULL) - 60)
			return c;
	return NULL;
}

// Finds it by a search.
static void make_room(void)
{
	struct conn *idle = find_idle();
	if (idle == NULL)
		return;
	conn_free(idle);
}

// Finds it by a loop.
static void expire(void)
{
	struct conn *c = all;
	do {
		struct conn *next = c->next;
		conn_free(c);
		c = next;
	} while (c);
}

// Finds it by data that all connections share.
static void drop_oldest(struct conn *c)
{
	conn_free(c->server->oldest);
}

static void header(struct conn *c)
{
	make_room();
	c->buffer = malloc(4096);
	c->state = recv(c->fd, c->buffer, 4096, 0) > 0 ? BODY : CLOSING;
}

static void body(struct conn *c)
{
	expire();
	c->state = REPLY;
}

static void reply(struct conn *c)
{
	drop_oldest(c);
	send(c->fd, c->buffer, 4096, 0);
	c->state = CLOSING;
}

void handle(struct conn *c)
{
	switch (c->state) {
	case HEADER:
		header(c);
		break;
	case BODY:
		body(c);
		break;
	case REPLY:
		reply(c);
		break;
	case CLOSING:
		conn_free(c);
		break;
	}
}

void accepted(struct server *server, int fd)
{
	struct conn *c = malloc(sizeof *c);
	c->fd = fd;
	c->next = all;
	c->server = server;
	c->state = HEADER;
	all = c;
}

int main(void)
{
	struct server *server = calloc(1, sizeof *server);
	for (;;) {
		accepted(server, accept(0, 0, 0));
		for (struct conn *c = all; c; c = c->next)
			handle(c);
	}
}
