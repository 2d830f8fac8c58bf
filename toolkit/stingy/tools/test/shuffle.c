/* Returns blocks in a shuffled order, so that the order of addresses differs between runs and
 * code that depends on it fails. LD_PRELOAD; SHUFFLE is the seed. The memory is glibc's. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { classes = 80, kept = 64, step = 16 };

extern void *__libc_malloc(size_t size);

static void *waiting[classes][kept];
static uint64_t state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size) {
    size_t class = (size + step - 1) / step;
    if (class >= classes)
        return __libc_malloc(size);
    void *fresh = __libc_malloc(class * step + step);
    pthread_mutex_lock(&lock);
    if (state == 0) {
        const char *seed = getenv("SHUFFLE");
        state = 88172645463325252u + (seed != NULL ? strtoull(seed, NULL, 10) : 0);
    }
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    void **slot = &waiting[class][state % kept], *old = *slot;
    if (old != NULL)
        *slot = fresh;
    else if (fresh != NULL && (*slot = __libc_malloc(class * step + step)) == NULL)
        old = fresh;
    pthread_mutex_unlock(&lock);
    return old != NULL ? old : fresh;
}
