/* The array of a thread's last poll, remembered: most programs pass the same one again, so comparing whole cache lines
 * replaces looking at every entry.
 *
 *   (R) remembered[i], for i below remembered_count, is one of
 *         an entry {fd >= 0, events, 0} whose wanted bits are all quiet, with place[fd] == i
 *         an entry {fd < 0, events, 0}, to which poll answers nothing
 *
 * so an entry of the caller's that equals remembered[i] needs neither to be examined nor to be written. A descriptor
 * that loses quiet bits, or that the array names a second time, is remembered as {~fd, 0, 0}: not the number of a
 * descriptor, and still consistent with (R). A descriptor that the caller's array names once is at place[fd] after the
 * scan. */
#ifndef SP_ARRAY_H
#define SP_ARRAY_H

#include "sp.h"

#include <string.h>

/* The array belongs to the caller, and other threads may write it, so every entry is read once as one word. */
typedef uint64_t __attribute__((may_alias, aligned(4))) sp_entry;
_Static_assert(sizeof(struct pollfd) == sizeof(sp_entry), "an entry is one word");

static inline uint64_t sp_entry_word(const struct pollfd *p) {
    return *(const volatile sp_entry *)p;
}

static inline struct pollfd sp_entry_of(uint64_t word) {
    struct pollfd p;
    memcpy(&p, &word, sizeof p);
    return p;
}

static inline uint64_t sp_word_of(struct pollfd p) {
    uint64_t word;
    memcpy(&word, &p, sizeof word);
    return word;
}

static inline uint64_t sp_doubtful(int fd) {
    return sp_word_of((struct pollfd){.fd = ~fd});
}

static inline void sp_array_doubt(struct sp_thread *t, int fd) {
    uint32_t at = t->place[fd];
    if (at < t->remembered_count && sp_entry_of(t->remembered[at]).fd == fd)
        t->remembered[at] = sp_doubtful(fd);
}

void sp_array_start(void);

/* The first block of SP_ARRAY_BLOCK entries at or after `from` and below `end` that differs somewhere; `from` is a
 * multiple of the block. The caller must compare the entries from the answer up to the next block one by one.
 * Returns `end` if all agree. */
enum { SP_ARRAY_BLOCK = 16 };
extern size_t (*sp_array_differs)(const struct pollfd *fds, const uint64_t *remembered, size_t from, size_t end);

/* Remembers the entry p, without its revents, as the i-th. */
void sp_array_remember(struct sp_thread *t, size_t i, struct pollfd p, bool is_quiet);

#endif
