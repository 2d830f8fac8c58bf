/* Reads HINTS, and records the kernel's answers about the examined descriptors. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ZOMBIES_MAX = 64, /* hints of files that are gone, before the epoll instance is recreated */
    UNWANTED_MAX = 4, /* successive useless wake-ups by one descriptor, before it is narrowed */
    ROUNDS_MAX = SP_FD_LIMIT / SP_EVENTS
};

/* A hint from a file that is not the last one registered under its number. The old file lives on under another
 * number or in another process, and was closed here without notice. If no file is registered, the item of the
 * number can still be removed. */
static void take_zombie(struct sp_thread *t, int fd) {
    SP_COUNT(t, zombies, 1);
    if (fd < t->capacity && atomic_load(&t->interested[fd]) == 0 &&
        sp_real.syscall(SYS_epoll_ctl, atomic_load(&t->epfd), EPOLL_CTL_DEL, fd, NULL) == 0)
        return;
    if (++t->zombies > ZOMBIES_MAX)
        t->must_rebuild = 1;
}

static void take_hint(struct sp_thread *t, const struct epoll_event *event) {
    if (event->data.u64 == SP_KICK)
        return;
    int fd = (int)(uint32_t)event->data.u64;
    uint32_t serial = (uint32_t)(event->data.u64 >> 32);
    if (fd < 0 || fd >= t->capacity || t->serial[fd] != serial ||
        !(atomic_load_explicit(&t->interested[fd], memory_order_relaxed) & SP_REGISTERED)) {
        take_zombie(t, fd);
        return;
    }
    unsigned bits = event->events & SP_BITS_ALL;
    sp_set_quiet(t, fd, t->quiet[fd] & ~bits);
    if (t->hint[fd] == 0)
        t->hinted[t->hinted_count++] = fd;
    t->hint[fd] |= (uint16_t)bits;
}

/* All hints must come in before a descriptor may be reported as not ready. The kernel computes an event mask when
 * it hands it over, so the reports are as fresh as those of poll. */
int sp_harvest(struct sp_thread *t) {
    int total = 0;
    if (atomic_load_explicit(&sp_is_sandboxed,
                             memory_order_relaxed)) /* by another thread, while this one was sleeping */
        return -1;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        long n = sp_real.syscall(SYS_epoll_pwait, atomic_load_explicit(&t->epfd, memory_order_relaxed), t->event,
                                 SP_EVENTS, 0, NULL, _NSIG / 8);
        if (n < 0)
            return errno == EINTR ? total : -1;
        for (long i = 0; i < n; i++)
            take_hint(t, &t->event[i]);
        total += (int)n;
        if (n < SP_EVENTS)
            break;
    }
    SP_COUNT(t, hints, total);
    return total;
}

/* Must run before the harvest that follows the same wait, because a hint that is newer than the examination must
   win. */
void sp_learn(struct sp_thread *t) {
    for (int i = 1; i <= t->examine_count; i++) {
        const struct pollfd *seen = &t->examine[i];
        unsigned interest = atomic_load_explicit(&t->interested[seen->fd], memory_order_relaxed);
        if (!(interest & SP_REGISTERED))
            continue;
        unsigned got = (unsigned short)seen->revents, asked = (unsigned short)seen->events | SP_BITS_ALWAYS;
        if (got & POLLNVAL) {
            sp_unwatch(t, seen->fd);
            continue;
        }
        t->unwanted[seen->fd] = 0;
        sp_set_quiet(t, seen->fd, (t->quiet[seen->fd] | (asked & sp_group_bits(interest))) & ~got);
    }
    for (int i = 1; i <= t->examine_count; i++) {
        int fd = t->examine[i].fd;
        if (atomic_load(&sp_generation[fd]) == t->examine_generation[i])
            continue;
        sp_set_quiet(t, fd, 0);
        SP_COUNT(t, conflicts, 1);
    }
}

void sp_clear_hints(struct sp_thread *t) {
    for (int i = 0; i < t->hinted_count; i++)
        t->hint[t->hinted[i]] = 0;
    t->hinted_count = 0;
}

/* The hints of this wait gave no result: their descriptors are not in the set, or not for these bits. */
void sp_blame_spurious(struct sp_thread *t) {
    SP_COUNT(t, spurious, 1);
    for (int i = 0; i < t->hinted_count; i++) {
        int fd = t->hinted[i];
        if (++t->unwanted[fd] < UNWANTED_MAX)
            continue;
        t->unwanted[fd] = 0;
        sp_narrow(t, fd, t->hint[fd]);
    }
}
