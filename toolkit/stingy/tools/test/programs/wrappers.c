// The actions of a wrapper besides allocating: it ends the program, fills with zeros, multiplies, raises a size of 0, counts.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARSE, REPLY };

struct job { int state; char *dies, *zero, *many, *raised, *counted, *printed, *aligned, *resized; };

static size_t in_use;

static void die(void)
{
	fprintf(stderr, "no memory\n");
	exit(1);
}

static void *dying(size_t size)
{
	void *p = malloc(size);
	if (!p)
		die();
	return p;
}

static void *zeroing(size_t size)
{
	void *p = malloc(size);
	if (p == NULL)
		return NULL;
	memset(p, 0, size);
	return p;
}

static void *many(size_t number, size_t size)
{
	size_t bytes;
	if (__builtin_mul_overflow(number, size, &bytes))
		die();
	return dying(number * size);
}

static void *raising(size_t size)
{
	if (size == 0)
		size = 1;
	return dying(size);
}

static void *counting(size_t size)
{
	in_use += size;
	return malloc(size);
}

static void *resizing(void *old, size_t size)
{
	void *p = realloc(old, size);
	if (p == NULL)
		die();
	return p;
}

static void printing(char **into, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (vasprintf(into, format, arguments) < 0)
		die();
	va_end(arguments);
}

static int aligning(void **into, size_t size)
{
	return posix_memalign(into, 64, size);
}

static void freeing(void *p)
{
	if (p)
		free(p);
}

void step(struct job *j)
{
	switch (j->state) {
	case PARSE:
		j->dies = dying(64);
		j->zero = zeroing(128);
		j->many = many(4, 48);
		j->raised = raising(32);
		j->counted = counting(96);
		j->resized = resizing(j->resized, 80);
		printing(&j->printed, "%p", (void *)j);
		aligning((void **)&j->aligned, 256);
		j->state = REPLY;
		break;
	case REPLY:
		freeing(j->dies);
		freeing(j->zero);
		freeing(j->many);
		freeing(j->raised);
		freeing(j->counted);
		freeing(j->resized);
		free(j->printed);
		free(j->aligned);
		j->state = PARSE;
		break;
	}
}
