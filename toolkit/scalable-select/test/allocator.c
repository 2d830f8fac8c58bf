/* An allocator that makes system calls while it holds its lock, as jemalloc does when it starts.
 * Its first call comes before any constructor has run, including the library's. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static _Alignas(64) char memory[1 << 20];
static size_t used;
static bool is_held, has_failed;

static void start(void) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
    has_failed |= fd < 0 || syscall(SYS_dup2, fd, fd) != fd || syscall(SYS_close, fd) != 0;
    errno = 0;
    has_failed |= syscall(SYS_close, fd) != -1 || errno != EBADF;
    fd = open("/dev/null", O_RDONLY);
    has_failed |= fd < 0 || prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) < 0 || close(fd) != 0;
}

void *malloc(size_t bytes) {
    if (is_held) { /* a lock that is never released */
        has_failed = true;
        return NULL;
    }
    is_held = true;
    if (used == 0)
        start();
    char *block = memory + used;
    used += (bytes + 63) & ~(size_t)63;
    is_held = false;
    return used <= sizeof memory ? block : NULL;
}

void free(void *block) {
    (void)block;
}

void *calloc(size_t count, size_t bytes) {
    return malloc(count * bytes); /* memory is never reused, so it is zero */
}

/* The old size is unknown. Bytes copied beyond it are unused and in valid memory, because the
 * new block comes later. */
void *realloc(void *block, size_t bytes) {
    char *fresh = malloc(bytes);
    if (block != NULL && fresh != NULL)
        memmove(fresh, block, bytes);
    return fresh;
}

static void first(void) {
    void *volatile block = malloc(1);
    free(block);
}
__attribute__((section(".preinit_array"), used)) static void (*before_all)(void) = first;

static void an_allocator_may_make_system_calls_with_its_lock_held(void) {
    CHECK(used != 0);
    CHECK(!has_failed);
}

int main(void) {
    RUN(an_allocator_may_make_system_calls_with_its_lock_held);
    return check_end();
}
