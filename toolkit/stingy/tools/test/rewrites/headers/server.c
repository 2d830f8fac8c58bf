/* All headers are under conditions, after the headers that they need; a list is included in an array. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define SERVER "server"
#ifdef __linux__
#include <stdlib.h> /* malloc,
                       free */
#include <string.h>
#else
#include "other.h"
#endif
#define FIRST "{"

static const char *const names[] = {
	FIRST,
#include "list.def"
};
static const int count =
#include "list.def"
	+ 1;

enum step { READ, WRITE };
struct conn { enum step step; char *text; };

static void drive(struct conn *c)
{
	switch (c->step) {
	case READ:
		c->text = malloc(10);
		c->step = WRITE;
		break;
	case WRITE:
		free(c->text);
		free(c);
		break;
	}
}

void accept_conn(void)
{
	struct conn *c = malloc(sizeof *c);
	if (c && strverscmp(names[0] + count, SERVER)) {
		c->step = READ;
		drive(c);
	}
}
