// States are macros and the field is an int; a setter stores them; allocation by a macro with a type argument.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NEW(type, count) ((type *)malloc(sizeof(type) * (count)))

#define CONN_READING 1
#define CONN_SENDING 2
#define CONN_PAUSING 3
#define CONN_LINGERING 4

typedef struct {
	char *encoded_url;
	int keep;
} http_conn;

typedef struct {
	int conn_state;
	http_conn *hc;
	int fd, wakeup;
} connecttab;

static connecttab connects[128];
static int terminate;

static void set_state(connecttab *c, int state)
{
	c->conn_state = state;
}

static void handle_read(connecttab *c)
{
	c->hc->encoded_url = strdup("/");
	if (recv(c->fd, c->hc->encoded_url, 1, 0) < 0)
		set_state(c, CONN_LINGERING);
	else
		set_state(c, CONN_SENDING);
}

static void handle_send(connecttab *c)
{
	if (send(c->fd, "x", 1, 0) < 0) {
		c->wakeup = 1;
		set_state(c, CONN_PAUSING);
		return;
	}
	set_state(c, CONN_LINGERING);
}

static void wakeup_connection(connecttab *c)
{
	if (c->conn_state == CONN_PAUSING)
		set_state(c, CONN_SENDING);
}

static void handle_linger(connecttab *c)
{
	free(c->hc->encoded_url);
	free(c->hc);
	c->hc = 0;
}

static void handle_newconnect(int fd)
{
	connecttab *c = &connects[fd & 127];
	c->fd = fd;
	c->hc = NEW(http_conn, 1);
	set_state(c, CONN_READING);
}

int main(int argc, char **argv)
{
	(void)argv;
	while (!terminate) {
		handle_newconnect(accept(argc, 0, 0));
		for (int i = 0; i < 128; i++) {
			connecttab *c = &connects[i];
			if (c->wakeup)
				wakeup_connection(c);
			switch (c->conn_state) {
			case CONN_READING: handle_read(c); break;
			case CONN_SENDING: handle_send(c); break;
			case CONN_LINGERING: handle_linger(c); break;
			}
		}
	}
	return 0;
}
