// States of an enumeration, one switch: the simplest server.
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum state { READ_REQUEST, SEND_HEADER, SEND_BODY, DONE };

struct conn {
	int fd;
	enum state state;
	char *request;
	size_t length;
	char *header;
	size_t sent;
	char log_line[200];
	short status;
};

static struct conn *conns[64];

static void accept_conn(int listener)
{
	int fd = accept(listener, NULL, NULL);
	if (fd < 0 || fd >= 64)
		return;
	struct conn *c = malloc(sizeof(struct conn));
	memset(c, 0, sizeof *c);
	c->fd = fd;
	c->state = READ_REQUEST;
	conns[fd] = c;
}

static void read_request(struct conn *c)
{
	char buffer[1024];
	ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
	if (n <= 0) {
		c->status = 400;
		c->state = DONE;
		return;
	}
	c->request = malloc((size_t)n + 1);
	memcpy(c->request, buffer, (size_t)n);
	c->length = (size_t)n;
	c->state = SEND_HEADER;
}

static void send_header(struct conn *c)
{
	c->header = malloc(512);
	strcpy(c->header, "HTTP/1.0 200 OK\r\n\r\n");
	c->sent += (size_t)send(c->fd, c->header, strlen(c->header), 0);
	c->state = SEND_BODY;
}

static void send_body(struct conn *c)
{
	free(c->header);
	c->header = NULL;
	c->sent += (size_t)send(c->fd, c->request, c->length, 0);
	c->state = DONE;
}

static void close_conn(struct conn *c)
{
	conns[c->fd] = NULL;
	close(c->fd);
	if (c->header != NULL)
		free(c->header);
	if (c->request)
		free(c->request);
	free(c);
}

static void handle(struct conn *c)
{
	switch (c->state) {
	case READ_REQUEST:
		read_request(c);
		break;
	case SEND_HEADER:
		send_header(c);
		break;
	case SEND_BODY:
		send_body(c);
		break;
	case DONE:
		close_conn(c);
		break;
	}
}

int main(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	listen(listener, 64);
	for (;;) {
		struct pollfd set = {listener, POLLIN, 0};
		poll(&set, 1, 10);
		if (set.revents)
			accept_conn(listener);
		for (int i = 0; i < 64; i++)
			if (conns[i])
				handle(conns[i]);
	}
}
