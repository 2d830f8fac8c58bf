/* free is called through a pointer: objects that it may free there stay with malloc, the others are rewritten. */
#include <stdlib.h>

enum { A, B };
struct request { int state; char *text; void (*release)(void *); };

void run(struct request *r)
{
	switch (r->state) {
	case A: r->text = malloc(10); r->release = free; r->state = B; break;
	case B: r->release(r->text); free(r); break;
	}
}

struct request *make(void)
{
	struct request *r = malloc(sizeof *r);
	r->state = A;
	return r;
}
