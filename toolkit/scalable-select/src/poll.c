/* poll and ppoll (fs/select.c: do_sys_poll). */
#define _GNU_SOURCE
#include "array.h"
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS_MAX = 256 }; /* wake-ups in one call without a result, before the kernel finishes the call */
enum { SCAN_FAILED = -1 };

static inline unsigned wanted_of(struct pollfd p) {
    return (unsigned short)p.events | SP_BITS_ALWAYS;
}

static void examine(struct sp_thread *t, struct pollfd p, int index) {
    int i = ++t->examine_count;
    t->examine[i] = (struct pollfd){.fd = p.fd, .events = p.events};
    t->examine_index[i] = index;
    t->examine_generation[i] = atomic_load(&sp_generation[p.fd]);
}

/* Handles one entry that differs from the remembered one. */
static int scan_one(struct sp_call *c, struct pollfd *fds, size_t i, struct pollfd p) {
    struct sp_thread *t = c->t;
    if (p.revents != 0)
        fds[i].revents = p.revents = 0;
    if (p.fd >= 0 && p.fd >= t->capacity)
        return SCAN_FAILED;
    unsigned wanted = wanted_of(p);
    bool is_quiet = p.fd < 0 || (wanted & ~t->quiet[p.fd]) == 0, is_bad = false;
    if (!is_quiet) {
        sp_note_work(c);
        switch (sp_watch(t, p.fd, wanted)) {
        case SP_WATCHED:
            is_quiet = (wanted & ~t->quiet[p.fd]) == 0;
            if (!is_quiet)
                examine(t, p, (int)i);
            break;
        case SP_EXAMINE_ALWAYS:
            examine(t, p, (int)i);
            break;
        case SP_BAD_FD:
            fds[i].revents = POLLNVAL;
            is_bad = true;
            break;
        case SP_BROKEN:
            t->must_rebuild = 1;
            return SCAN_FAILED;
        }
    }
    sp_array_remember(t, i, p, is_quiet);
    return is_bad;
}

/* Fills the list of descriptors to examine; returns the number of POLLNVAL entries. Unknown bits are never quiet,
 * so their descriptors are examined in every call. */
static int scan(struct sp_call *c, struct pollfd *fds, nfds_t count) {
    struct sp_thread *t = c->t;
    size_t known = t->remembered_count < count ? t->remembered_count : count;
    int bad = 0;
    t->examine_count = 0;
    t->has_duplicates = false;
    for (size_t i = 0; i < count;) {
        if (i + SP_ARRAY_BLOCK <= known) {
            i = sp_array_differs(fds, t->remembered, i, known);
            if (i == count)
                break;
        }
        size_t end = i + SP_ARRAY_BLOCK < count ? i + SP_ARRAY_BLOCK : count;
        for (; i < end; i++) {
            uint64_t word = sp_entry_word(&fds[i]);
            if (i < known && word == t->remembered[i])
                continue;
            int verdict = scan_one(c, fds, i, sp_entry_of(word));
            if (verdict < 0)
                return verdict;
            bad += verdict;
        }
    }
    return bad;
}

/* Writes the revents of entry i from its hints; returns how many more entries have revents. */
static int collect_hint(const struct sp_thread *t, struct pollfd *fds, size_t i) {
    struct pollfd p = sp_entry_of(sp_entry_word(&fds[i]));
    if ((unsigned)p.fd >= (unsigned)t->capacity || t->hint[p.fd] == 0)
        return 0;
    unsigned got = t->hint[p.fd] & wanted_of(p), before = (unsigned short)p.revents;
    if (got == 0 || (before & POLLNVAL))
        return 0;
    fds[i].revents = (short)(before | got);
    return before == 0;
}

/* Writes revents from the examination and the hints; returns how many entries have some. */
static int collect(struct sp_thread *t, struct pollfd *fds, nfds_t count, int bad) {
    int ready = bad;
    for (int i = 1; i <= t->examine_count; i++)
        if (t->examine[i].revents != 0) {
            fds[t->examine_index[i]].revents = t->examine[i].revents;
            ready++;
        }
    if (t->hinted_count != 0 && t->has_duplicates) {
        for (nfds_t i = 0; i < count; i++)
            ready += collect_hint(t, fds, i);
        return ready;
    }
    for (int h = 0; h < t->hinted_count; h++) {
        int fd = t->hinted[h];
        uint32_t at = t->place[fd];
        if (at < count && fds[at].fd == fd)
            ready += collect_hint(t, fds, at);
    }
    return ready;
}

/* Makes the kernel's call with the remaining timeout. */
static int finish_in_kernel(struct sp_call *c, struct pollfd *fds, nfds_t count) {
    struct timespec left = sp_deadline_left(&c->deadline);
    return sp_real.ppoll(fds, count, c->deadline.is_infinite ? NULL : &left, c->mask);
}

static int run(struct sp_call *c, struct pollfd *fds, nfds_t count) {
    struct sp_thread *t = c->t;
    bool was_last_look = false;
    if (sp_watchdog_is_due(t) && sp_watchdog_at_entry(c) < 0)
        return finish_in_kernel(c, fds, count);
    for (;;) {
        sp_take_stale(t);
        int bad = scan(c, fds, count);
        if (bad == SCAN_FAILED)
            return finish_in_kernel(c, fds, count);
        enum sp_wait wait = sp_wait(c, bad > 0);
        if (wait == SP_LOST_CONTROL)
            return finish_in_kernel(c, fds, count);
        if (wait == SP_FAILED)
            return -1;
        int ready = collect(t, fds, count, bad);
        if (ready > 0)
            return ready;
        if (!sp_in_control(c))
            return finish_in_kernel(c, fds, count);
        if (wait == SP_TIMED_OUT) {
            /* The kernel checks every descriptor once more when the time is up, so it finds
             * closed ones. */
            if (was_last_look || atomic_load(&t->stale_any) == 0)
                return 0;
            was_last_look = true;
        } else if (wait == SP_SLICE_OVER) {
            if (sp_watchdog(t) < 0)
                return finish_in_kernel(c, fds, count);
        } else {
            sp_blame_spurious(t);
            if (c->deadline.is_zero && c->given == NULL)
                return 0;
            if (++c->rounds > ROUNDS_MAX)
                return finish_in_kernel(c, fds, count);
        }
    }
}

static int run_counted(struct sp_call *c, struct pollfd *fds, nfds_t count) {
    struct sp_thread *t = c->t;
    uint64_t examined = t->counts.examined, changes = t->counts.added + t->counts.modified;
    int result = run(c, fds, count);
    if (sp_in_control(c)) {
        SP_COUNT(t, calls, 1);
        SP_COUNT(t, selecting, count);
        sp_account(t, count, t->counts.examined - examined, t->counts.added + t->counts.modified - changes);
    }
    return result;
}

int sp_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    if (atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed))
        return sp_pass_other();
    struct sp_thread *t = sp_own();
    if (t == NULL)
        return sp_pass_without_state();
    if (!t->is_busy && sp_should_pass(t, count))
        return SP_PASS_JUDGED;
    if (count > (nfds_t)sp_descriptor_limit()) /* another process may have raised it (prlimit) */
        sp_refresh_limit();
    /* Invalid arguments are left to the kernel. */
    if (count > (nfds_t)sp_descriptor_limit() || count >= SP_FD_LIMIT ||
        (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)) ||
        !sp_memory_is_writable(fds, count * sizeof *fds))
        return sp_pass_other();
    pthread_testcancel(); /* done here, before signals are blocked */
    struct sp_call c;
    if (!sp_enter(&c, t, timeout, mask, __builtin_frame_address(0)))
        return sp_pass_other();
    int result = count <= (nfds_t)t->capacity ? run_counted(&c, fds, count) : sp_pass_other();
    sp_leave(&c);
    return result;
}
