/* Blocks that pass by value in a structure, through an atomic variable, as a number, and among variable arguments. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

enum step { READ, SWAP, DONE };
struct text { size_t length; char *p; };
struct conn { enum step step; struct text text; char *line, *name, *page; };

static struct text take(struct conn *c)
{
	struct text t = {c->text.length, c->text.p};
	c->text.p = NULL;
	return t;
}

static void drop(struct text t)
{
	free(t.p);
}

static uintptr_t number(struct conn *c)
{
	return (uintptr_t)c->name;
}

static void drop_all(int count, ...)
{
	va_list list;
	va_start(list, count);
	for (int i = 0; i < count; i++)
		free(va_arg(list, char *));
	va_end(list);
}

static void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->text.p = malloc(80);
		c->line = malloc(90);
		c->name = malloc(100);
		c->page = malloc(110);
		c->step = SWAP;
		break;
	case SWAP: {
		struct text t = take(c);
		if (t.length)
			drop(t);
		else
			free(t.p);
		free(__atomic_exchange_n(&c->line, NULL, __ATOMIC_ACQ_REL));
		c->step = DONE;
		break;
	}
	case DONE:
		free((void *)number(c));
		drop_all(1, c->page);
		free(c);
	}
}

void accept_conn(void)
{
	struct conn *c = calloc(1, sizeof *c);
	if (c)
		drive(c);
}
