// A function that the C library calls back, one that the event loop calls, and an unknown one.
#include <stdlib.h>
#include <string.h>

enum { LISTING, SENDING };

struct request { int state; char **names; size_t count; char *page; };

void event_set(void *event, int fd, short what, void (*callback)(int, short, void *), void *argument);
void on_idle(void (*callback)(struct request *));

static int compare(const void *a, const void *b)
{
	char left[300], right[300];
	strcpy(left, *(char *const *)a);
	strcpy(right, *(char *const *)b);
	return strcmp(left, right);
}

static void idle(struct request *r) { free(r->page); r->page = NULL; }

static void step(struct request *r)
{
	switch (r->state) {
	case LISTING:
		qsort(r->names, r->count, sizeof *r->names, compare);
		r->page = malloc(8192);
		r->state = SENDING;
		break;
	case SENDING:
		on_idle(idle);
		r->state = LISTING;
		break;
	}
}

static void event_handler(int fd, short what, void *argument)
{
	(void)fd, (void)what;
	step(argument);
}

void watch(void *event, struct request *r)
{
	event_set(event, 0, 1, event_handler, r);
}
