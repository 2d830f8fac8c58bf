// Allocation through wrappers: their callers are the sites.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARSE, REPLY };

struct job { int state; char *name; char *copy; unsigned char *field; unsigned short count; };

static void *xmalloc(size_t size)
{
	void *p = malloc(size);
	if (p == NULL) {
		fprintf(stderr, "no memory\n");
		exit(1);
	}
	return p;
}

static char *xstrdup(const char *text)
{
	size_t length = strlen(text) + 1;
	char *copy = xmalloc(length);
	return memcpy(copy, text, length);
}

static void xfree(void *p)
{
	if (p)
		free(p);
}

static void step(struct job *j, const char *line)
{
	switch (j->state) {
	case PARSE:
		j->name = xmalloc(64);
		j->copy = xstrdup(line);
		j->field = xmalloc(j->count * 8u);
		j->state = REPLY;
		break;
	case REPLY:
		xfree(j->name);
		xfree(j->copy);
		xfree(j->field);
		j->state = PARSE;
		break;
	}
}

int main(int argc, char **argv)
{
	struct job *j = xmalloc(sizeof *j);
	j->state = PARSE;
	while (argc)
		step(j, argv[0]);
}
