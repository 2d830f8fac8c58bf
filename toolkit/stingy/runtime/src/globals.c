/* Puts the program's section of globals on huge pages in place: the program's code contains its addresses. */
#define _GNU_SOURCE
#include "slab.h"

#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* Takes only free addresses; an older kernel treats the flag as a hint. */
static bool reserve(char *from, const char *to) {
    size_t bytes = (size_t)(to - from);
    if (bytes == 0)
        return true;
    void *got = mmap(from, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == from)
        return true;
    if (got != MAP_FAILED)
        munmap(got, bytes);
    return false;
}

/* Byte by byte, including the gaps between variables: AddressSanitizer's redzones there are not an error here. */
__attribute__((no_sanitize("address"))) static void copy(volatile char *to, const volatile char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
}

/* New memory with the same contents replaces the pages around the section at once (mremap): a reader sees either the
 * old or the new pages. A write by another thread in between would be lost; stingygen's code calls this before main. */
static bool replace(char *from, size_t bytes, const struct stingy_map *map) {
    size_t used = (size_t)(map->globals_end - map->globals);
    char *reserved = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return false;
    char *fresh = (char *)(((uintptr_t)reserved + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE),
         *inside = fresh + (map->globals - from);
    bool is_done = mprotect(fresh, bytes, PROT_READ | PROT_WRITE) == 0 && madvise(fresh, bytes, MADV_HUGEPAGE) == 0;
    if (is_done) {
        copy(inside, map->globals, used);
        /* If it fails, the kernel may already have removed the old pages. */
        if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, from) != from) {
            if (mmap(from, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != from)
                stingy_die("cannot be moved to huge pages: no memory", STINGY_ANY, map->globals);
            copy(map->globals, inside, used);
            munmap(fresh, bytes);
        }
    } else {
        munmap(fresh, bytes);
    }
    /* Not in one piece: the memory between them may be in use by now. */
    if (fresh > reserved)
        munmap(reserved, (size_t)(fresh - reserved));
    munmap(fresh + bytes, (size_t)(reserved + HUGE_PAGE - fresh));
    return is_done;
}

void globals_place(const struct stingy_map *map) {
    static bool is_done; /* protected by the world's lock */
    char *from = map->globals - (uintptr_t)map->globals % HUGE_PAGE,
         *to = map->globals_end + (HUGE_PAGE - (uintptr_t)map->globals_end % HUGE_PAGE) % HUGE_PAGE;
    char *end = map->globals_end + (4096 - (uintptr_t)map->globals_end % 4096) % 4096;
    if (is_done || !reserve(from, map->globals))
        return;
    if (reserve(end, to)) {
        is_done = replace(from, (size_t)(to - from), map);
        if (is_done)
            return;
        if (end < to)
            munmap(end, (size_t)(to - end));
    }
    if (from < map->globals)
        munmap(from, (size_t)(map->globals - from));
}
