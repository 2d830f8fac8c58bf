/* A preload library that measures what memwalk bounds: the depth of each thread's stack, and the
 * largest request at each place that allocates. Writes lines `stack BYTES` and `alloc ADDRESS
 * BYTES` to TRACE_FILE when the program ends.
 *
 * The first thread's stack is measured from the first epoll_wait on, after the start-up, and
 * from its very beginning, so it includes main's part. With TRACE_CALLERS=1, the caller of an
 * allocating function is also recorded (a server's own allocator); the program then needs frame
 * pointers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define PAINTED (256 * 1024)
#define MARK 0xA5
#define PLACES 4096
#define THREADS 64

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static struct {
    _Atomic uintptr_t at;
    _Atomic size_t most;
} places[PLACES];
static struct {
    _Atomic(unsigned char *) top;
    _Atomic size_t deepest;
} threads[THREADS]; /* the deepest one of an ended thread */
static atomic_uint thread_count;
static unsigned char *first_top;
static uintptr_t program_begin, program_end;
static bool has_callers;
extern void *__libc_stack_end;

static int see_program(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size, (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            program_begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            program_end = program_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the program itself comes first */
}

__attribute__((constructor)) static void begin(void) {
    dl_iterate_phdr(see_program, NULL);
    has_callers = getenv("TRACE_CALLERS") != NULL;
}

static void note(void *at, size_t bytes) {
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

#define NOTE(bytes)                                                     \
    do {                                                                \
        note(__builtin_return_address(0), (bytes));                     \
        uintptr_t from = (uintptr_t)__builtin_return_address(0);        \
        if (has_callers && from >= program_begin && from < program_end) \
            note(__builtin_return_address(1), (bytes));                 \
    } while (0)
void *malloc(size_t bytes) {
    NOTE(bytes);
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
    NOTE(n * bytes);
    return __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes) {
    NOTE(bytes);
    return __libc_realloc(old, bytes);
}

struct start {
    void *(*function)(void *);
    void *argument;
};

/* Paints all memory below this frame; bytes that the thread writes there stay. */
__attribute__((noinline)) static void paint(unsigned char *top) {
    for (unsigned char *p = top - PAINTED; p < top - 512; p++)
        *(volatile unsigned char *)p = MARK;
}

static size_t depth(const unsigned char *top) {
    const unsigned char *p = top - PAINTED;
    while (p < top - 512 && *p == MARK)
        p++;
    return (size_t)(top - p);
}

static void *run(void *given) {
    struct start start = *(struct start *)given;
    unsigned char *top = __builtin_frame_address(0);
    free(given);
    paint(top);
    unsigned mine = atomic_fetch_add(&thread_count, 1);
    if (mine < THREADS)
        atomic_store(&threads[mine].top, top);
    void *result = start.function(start.argument);
    /* The C library gives the stack's pages back. */
    if (mine < THREADS) {
        atomic_store(&threads[mine].deepest, depth(top));
        atomic_store(&threads[mine].top, NULL);
    }
    return result;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms) {
    static int (*real)(int, struct epoll_event *, int, int);
    static atomic_flag is_painted = ATOMIC_FLAG_INIT;
    char here;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    /* The first thread's stack: no other thread has frames there. */
    bool is_first = &here < (char *)__libc_stack_end && (char *)__libc_stack_end - &here < 4 << 20;
    if (is_first && !atomic_flag_test_and_set(&is_painted)) {
        first_top = __builtin_frame_address(0);
        paint(first_top);
    }
    return real(epoll, events, most, timeout_ms);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = __libc_malloc(sizeof *start);
    *start = (struct start){function, argument};
    return real(thread, attributes, run, start);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("TRACE_FILE");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (!out)
        return;
    for (unsigned i = 0; i < THREADS; i++) {
        const unsigned char *top = atomic_load(&threads[i].top);
        size_t deepest = top ? depth(top) : atomic_load(&threads[i].deepest);
        if (deepest)
            fprintf(out, "stack %zu\n", deepest);
    }
    if (first_top)
        fprintf(out, "stack %zu\n", (size_t)((unsigned char *)__libc_stack_end - first_top) + depth(first_top));
    for (unsigned i = 0; i < PLACES; i++)
        if (places[i].at)
            fprintf(out, "alloc %lx %zu\n", (unsigned long)places[i].at, (size_t)places[i].most);
    fclose(out);
}
