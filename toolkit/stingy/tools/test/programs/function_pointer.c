// A stage is a function, stored in the connection.
#include <stdlib.h>
#include <sys/socket.h>

typedef struct connection connection;
typedef void (*handler)(connection *);

struct connection {
	handler next;
	int fd;
	char *body;
};

static void process(connection *c);
static void flush(connection *c);
static void finish(connection *c);

static void parse(connection *c)
{
	char line[256];
	if (recv(c->fd, line, sizeof line, 0) > 0)
		c->next = process;
	else
		c->next = finish;
}

static void process(connection *c)
{
	c->body = malloc(4096);
	c->next = flush;
}

static void flush(connection *c)
{
	send(c->fd, c->body, 4096, 0);
	free(c->body);
	c->next = finish;
}

static void finish(connection *c)
{
	free(c);
}

/* Has the same type, but is not a stage: only --sound treats it as one. */
static void report(connection *c) { (void)c; }
handler on_error = report;

static void welcome(int fd)
{
	connection *c = calloc(1, sizeof *c);
	c->fd = fd;
	c->next = parse;
	c->next(c);
}

int main(void)
{
	for (;;)
		welcome(accept(0, 0, 0));
}
