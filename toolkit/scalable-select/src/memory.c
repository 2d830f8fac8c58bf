/* The kernel returns EFAULT for memory that the caller may not use, where the library would
 * crash. So the kernel is first asked to make the pages of a new array writable, as its own
 * copying would. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { RANGES = 4 };
static _Thread_local struct {
    uintptr_t start, end;
} checked[RANGES] __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned checked_next __attribute__((tls_model("initial-exec")));
static uintptr_t page = 4096;
bool sp_memory_can_check;

static bool populate(uintptr_t start, uintptr_t end) {
    int saved = errno;
    bool is_good = sp_real.syscall(SYS_madvise, start, end - start, MADV_POPULATE_WRITE) == 0;
    errno = saved;
    return is_good;
}

void sp_memory_start(void) {
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t here = (uintptr_t)&page & ~(page - 1);
    sp_memory_can_check = populate(here, here + page); /* Linux 5.14 and later */
}

bool sp_memory_is_writable(const void *memory, size_t bytes) {
    uintptr_t start = (uintptr_t)memory, end = start + bytes;
    if (start == 0 || end < start || end > UINTPTR_MAX - page)
        return false;
    for (int i = 0; i < RANGES; i++)
        if (start >= checked[i].start && end <= checked[i].end)
            return true;
    start &= ~(page - 1);
    end = (end + page - 1) & ~(page - 1);
    if (sp_memory_can_check && !populate(start, end))
        return false;
    unsigned at = checked_next++ % RANGES;
    checked[at].start = start;
    checked[at].end = end;
    return true;
}
