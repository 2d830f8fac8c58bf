// No switch: a chain of ifs over the state, each of which may change it.
#include <stdlib.h>
#include <sys/socket.h>

#define STATE_READ_HEADER 0
#define STATE_PARSE_HEADER 1
#define STATE_WRITE_HEADER 2
#define STATE_WRITE_BODY 3
#define STATE_CLOSE 4

struct request {
	int state;
	int fd;
	char hreq[4096];
	char *body;
	struct request *next;
};

static struct request *requests;

static void parse(struct request *r)
{
	r->state = r->hreq[0] == 'G' ? STATE_WRITE_HEADER : STATE_CLOSE;
}

static void write_request(struct request *r)
{
	if (r->state == STATE_WRITE_HEADER) {
		r->body = malloc(1 << 13);
		r->state = STATE_WRITE_BODY;
	} else if (r->state == STATE_WRITE_BODY) {
		send(r->fd, r->body, 1 << 13, 0);
		free(r->body);
		r->state = STATE_CLOSE;
	}
}

static void mainloop(void)
{
	for (;;) {
		int fd = accept(0, 0, 0);
		if (fd >= 0) {
			struct request *new = malloc(sizeof(struct request));
			new->fd = fd;
			new->state = STATE_READ_HEADER;
			new->next = requests;
			requests = new;
		}
		for (struct request *r = requests; r; r = r->next) {
			if (r->state == STATE_READ_HEADER && recv(r->fd, r->hreq, sizeof r->hreq, 0) > 0)
				r->state = STATE_PARSE_HEADER;
			if (r->state == STATE_PARSE_HEADER)
				parse(r);
			if (r->state == STATE_WRITE_HEADER || r->state == STATE_WRITE_BODY)
				write_request(r);
			if (r->state == STATE_CLOSE) {
				requests = r->next;
				free(r);
				break;
			}
		}
	}
}

int main(void)
{
	mainloop();
	return 0;
}
