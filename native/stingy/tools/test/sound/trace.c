/* A preload library that measures what memwalk bounds: how deep each thread's stack got, and the largest request at each
 * place that allocates. Writes lines `stack BYTES` and `alloc ADDRESS BYTES` to TRACE_FILE when the program ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAINTED (256 * 1024)
#define MARK 0xA5
#define PLACES 4096
#define THREADS 64

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static struct { _Atomic uintptr_t at; _Atomic size_t most; } places[PLACES];
static struct { _Atomic(unsigned char *) top; } threads[THREADS];
static atomic_uint thread_count;

static void note(void *at, size_t bytes)
{
	for (unsigned i = ((uintptr_t)at >> 2) % PLACES, tried = 0; tried < PLACES; i = (i + 1) % PLACES, tried++) {
		uintptr_t none = 0;
		if (atomic_compare_exchange_strong(&places[i].at, &none, (uintptr_t)at) || none == (uintptr_t)at) {
			size_t old = atomic_load(&places[i].most);
			while (old < bytes && !atomic_compare_exchange_weak(&places[i].most, &old, bytes))
				;
			return;
		}
	}
}

void *malloc(size_t bytes) { note(__builtin_return_address(0), bytes); return __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { note(__builtin_return_address(0), n * bytes); return __libc_calloc(n, bytes); }
void *realloc(void *old, size_t bytes) { note(__builtin_return_address(0), bytes); return __libc_realloc(old, bytes); }

struct start { void *(*function)(void *); void *argument; };

/* Everything below this frame is painted; what the thread wrote there stays. */
__attribute__((noinline)) static void paint(unsigned char *top)
{
	for (unsigned char *p = top - PAINTED; p < top - 512; p++)
		*(volatile unsigned char *)p = MARK;
}

static void *run(void *given)
{
	struct start start = *(struct start *)given;
	unsigned char *top = __builtin_frame_address(0);
	free(given);
	paint(top);
	unsigned mine = atomic_fetch_add(&thread_count, 1);
	if (mine < THREADS)
		atomic_store(&threads[mine].top, top);
	return start.function(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	struct start *start = __libc_malloc(sizeof *start);
	*start = (struct start){function, argument};
	return real(thread, attributes, run, start);
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("TRACE_FILE");
	FILE *out = path ? fopen(path, "w") : NULL;
	if (!out)
		return;
	for (unsigned i = 0; i < THREADS; i++) {
		unsigned char *top = atomic_load(&threads[i].top);
		if (!top)
			continue;
		unsigned char *p = top - PAINTED;
		while (p < top - 512 && *p == MARK)
			p++;
		fprintf(out, "stack %zu\n", (size_t)(top - p));
	}
	for (unsigned i = 0; i < PLACES; i++)
		if (places[i].at)
			fprintf(out, "alloc %lx %zu\n", (unsigned long)places[i].at, (size_t)places[i].most);
	fclose(out);
}
