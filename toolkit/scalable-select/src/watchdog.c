/* The watchdog examines every descriptor that is believed quiet once per period. It bounds the effect of events
 * that the library did not see (a close by a direct system call, by io_uring, or within the C library): a
 * readiness is reported up to one period late, but never lost. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

bool sp_watchdog_is_due(const struct sp_thread *t) {
    return sp_options.watchdog_ms != 0 &&
           sp_now_coarse_ns() - t->watched_ns > (uint64_t)sp_options.watchdog_ms * 1000000;
}

static int gone(struct sp_thread *t) {
    t->must_rebuild = 1;
    return -1;
}

static int list_quiet(struct sp_thread *t) {
    int count = 0;
    for (int fd = 0; fd < t->fd_end; fd++) {
        uint8_t interest = atomic_load_explicit(&t->interested[fd], memory_order_relaxed);
        if (t->quiet[fd] != 0 && (interest & SP_REGISTERED))
            t->examine[++count] = (struct pollfd){.fd = fd, .events = (short)(t->quiet[fd] & ~SP_BITS_ALWAYS)};
    }
    return count;
}

static bool is_stale(const struct sp_thread *t, int fd) {
    return (atomic_load(&t->stale[fd / SP_WORD]) >> (fd % SP_WORD) & 1) != 0;
}

/* Keeps the entries that are ready for a bit that is believed quiet, although all hints are in. */
static int keep_suspects(struct sp_thread *t, int count) {
    int kept = 0;
    for (int i = 1; i <= count; i++) {
        struct pollfd p = t->examine[i];
        if (p.revents == 0 || is_stale(t, p.fd))
            continue;
        if ((p.revents & POLLNVAL) || ((unsigned short)p.revents & t->quiet[p.fd]) != 0)
            t->examine[++kept] = p;
    }
    return kept;
}

int sp_watchdog(struct sp_thread *t) {
    static const struct timespec now = {0, 0}, moment = {0, 1000000};
    t->watched_ns = sp_now_coarse_ns();
    SP_COUNT(t, watchdog_runs, 1);
    sp_refresh_limit();
    sp_clear_hints(t);
    sp_take_stale(t);
    if (sp_harvest(t) < 0)
        return gone(t);
    int count = list_quiet(t);
    /* A file becomes ready a moment before its waiters are woken, so look again before counting a hint as lost. */
    for (int look = 0; look < 2 && count > 0; look++) {
        struct pollfd epoll = {.fd = atomic_load(&t->epfd), .events = POLLIN};
        if (look > 0)
            sp_real.ppoll(&epoll, 1, &moment, NULL);
        if (sp_real.ppoll(&t->examine[1], (nfds_t)count, &now, NULL) <= 0)
            return 0;
        if (sp_harvest(t) < 0)
            return gone(t);
        count = keep_suspects(t, count);
    }
    for (int i = 1; i <= count; i++) {
        int fd = t->examine[i].fd;
        if (t->examine[i].revents & POLLNVAL) {
            sp_unwatch(t, fd);
            atomic_fetch_add_explicit(&sp_missed_closes, 1, memory_order_relaxed);
            continue;
        }
        sp_real.syscall(SYS_epoll_ctl, atomic_load(&t->epfd), EPOLL_CTL_DEL, fd, NULL);
        sp_unwatch(t, fd);
        atomic_store(&t->interested[fd], SP_UNWATCHABLE);
        SP_COUNT(t, lost, 1);
    }
    sp_clear_hints(t);
    return count;
}
