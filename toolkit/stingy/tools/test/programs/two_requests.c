// Two kinds of requests with stages of one numbering, named by configuration.
#include <stdlib.h>

typedef struct { char peer[64]; } session;
typedef struct { int state; session *session; char *body; } http_request;
typedef struct { int done; char *query; } dns_request;

enum { HTTP_READ, HTTP_WRITE };

static dns_request *dns_new(void)
{
	dns_request *d = malloc(sizeof *d);
	d->query = malloc(512);
	return d;
}

static void dns_finish(dns_request *d)
{
	free(d->query);
	free(d);
}

static void http_step(http_request *r)
{
	switch (r->state) {
	case HTTP_READ:
		r->session = malloc(sizeof(session));
		r->body = malloc(1000);
		dns_finish(dns_new());
		r->state = HTTP_WRITE;
		break;
	case HTTP_WRITE:
		free(r->session);
		free(r->body);
		free(r);
		break;
	}
}

http_request *http_new(void)
{
	http_request *r = malloc(sizeof *r);
	r->state = HTTP_READ;
	return r;
}

int main(void)
{
	for (;;)
		http_step(http_new());
}
