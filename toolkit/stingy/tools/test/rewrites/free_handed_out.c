/* free is passed to functions from outside: the objects passed with it stay with malloc. */
#include <stdlib.h>

enum { A, B };
struct reply;
struct reply *reply_new(void);
void reply_add(struct reply *reply, char *body, void (*done)(void *));
struct request { int state; char *body, *line; struct reply *reply; };

void run(struct request *r)
{
	switch (r->state) {
	case A:
		r->line = malloc(64);
		r->body = malloc(1000);
		r->state = B;
		break;
	case B:
		reply_add(r->reply, r->body, free);
		free(r->line);
		free(r);
		break;
	}
}

struct request *make(void)
{
	struct request *r = malloc(sizeof *r);
	r->reply = reply_new();
	r->state = A;
	return r;
}
