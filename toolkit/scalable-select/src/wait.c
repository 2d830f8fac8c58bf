/* One call from entry to exit: deadline, signals, and the sleep.
 *
 * Signals. The kernel's select and poll end with EINTR when a handler runs during the call. Here a call may wake
 * for a useless hint or for the watchdog, and sleep again, so that a handler that ran in between would go
 * unnoticed. So all signals are blocked from the first sleep to the end of the call, and the caller's mask is in
 * force exactly while ppoll sleeps; and from where a call begins to register many descriptors, which takes as long
 * as a sleep. A handler that runs before that might as well have run before the call. The sleep is ppoll, not
 * epoll_wait, since epoll_wait ends with EINTR after SIGSTOP and SIGCONT where select and poll go on.
 *
 * Cancellation. A thread that is cancelled in ppoll leaves its state busy, as a longjmp out of a handler does: the
 * program's cleanup handlers get the kernel's own calls, and the thread's end releases the state. The call
 * registers no cleanup handler itself: after a longjmp the C library would run it in a frame that is gone. So a
 * cancellation in the microseconds between blocking signals and ppoll runs them with signals blocked. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
enum { FAILURES_MAX = 32 };
#define SECONDS_MAX INT64_C(4000000000) /* longer timeouts count as this: 126 years */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t sp_now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t sp_now_coarse_ns(void) {
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

void sp_deadline_start(struct sp_deadline *d, const struct timespec *timeout) {
    d->is_infinite = timeout == NULL;
    d->is_zero = timeout != NULL && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
    d->end_ns = 0;
    if (timeout != NULL && !d->is_zero) {
        int64_t seconds = timeout->tv_sec > SECONDS_MAX ? SECONDS_MAX : timeout->tv_sec;
        d->end_ns = sp_now_ns() + (uint64_t)seconds * NS_PER_S + (uint64_t)timeout->tv_nsec;
    }
}

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static uint64_t left_ns(const struct sp_deadline *d) {
    if (d->is_zero)
        return 0;
    uint64_t now = sp_now_ns();
    return now < d->end_ns ? d->end_ns - now : 0;
}

struct timespec sp_deadline_left(const struct sp_deadline *d) {
    return timespec_of(left_ns(d));
}

/* A handler that calls poll finds its thread busy and must not touch the state. A call after a handler that left
 * by longjmp also finds it busy, but from a frame that is not below the abandoned one. That state has no owner any
 * more, and may be incomplete. */
static bool is_abandoned(const struct sp_thread *t, const char *frame) {
    stack_t stack;
    if (frame < t->frame)
        return false;
    return sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) == 0;
}

bool sp_enter(struct sp_call *c, struct sp_thread *t, const struct timespec *timeout, const sigset_t *mask,
              char *frame) {
    c->t = NULL;
    c->has_blocked = false;
    if (t->is_busy) {
        if (!is_abandoned(t, frame))
            return false;
        t->must_rebuild = 1;
    }
    t->is_busy = 1;
    atomic_store(&t->is_in_call, 1); /* before the stale marks are taken */
    t->frame = frame;
    c->t = t;
    c->ticket = ++t->ticket;
    c->given = c->mask = mask;
    c->rounds = 0;
    c->has_slept = false;
    c->first_serial = t->next_serial;
    sp_deadline_start(&c->deadline, timeout);
    if (t->must_rebuild) {
        sp_block_signals_for_long(c);
        sp_drop_epoll(t);
        SP_COUNT(t, rebuilds, 1);
    }
    if (sp_epoll_ready(t) != 0) {
        sp_leave(c);
        return false;
    }
    return true;
}

/* Blocks all signals except those that a fault of the caller raises, which would kill without
 * their handler if blocked. */
void sp_block_signals(struct sp_call *c) {
    sigset_t all;
    if (c->has_blocked)
        return;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGFPE);
    sigemptyset(&c->saved);
    sp_real.syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &c->saved, _NSIG / 8);
    c->has_blocked = true;
    if (c->given == NULL)
        c->mask = &c->saved;
}

void sp_leave(struct sp_call *c) {
    int saved = errno;
    if (c->t != NULL && sp_in_control(c)) {
        sp_clear_hints(c->t);
        if (c->t->must_drop)
            sp_drop_epoll(c->t);
        c->t->must_drop = false;
        atomic_store_explicit(&c->t->is_in_call, 0, memory_order_release);
        c->t->is_busy = 0;
    }
    c->t = NULL;
    if (c->has_blocked)
        sp_real.syscall(SYS_rt_sigprocmask, SIG_SETMASK, &c->saved, NULL, _NSIG / 8);
    c->has_blocked = false;
    errno = saved;
}

/* False if another call took over the state, which is_abandoned misjudged (stacks switched in a signal handler);
 * in a child that a handler forked during the call; and after a handler in which the thread left the descriptor
 * table. */
bool sp_in_control(const struct sp_call *c) {
    return c->t->ticket == c->ticket;
}

/* Time to sleep; sets *is_last if the deadline is then reached. NULL means without limit. */
static const struct timespec *slice(const struct sp_call *c, struct timespec *time, bool *is_last) {
    const struct sp_deadline *d = &c->deadline;
    uint64_t limit_ns = sp_options.watchdog_ms != 0 ? (uint64_t)sp_options.watchdog_ms * 1000000 : UINT64_MAX;
    *is_last = true;
    if (d->is_infinite && limit_ns == UINT64_MAX)
        return NULL;
    uint64_t ns = d->is_infinite ? UINT64_MAX : left_ns(d);
    if (ns > limit_ns) {
        ns = limit_ns;
        *is_last = false;
    }
    *time = timespec_of(ns);
    return time;
}

/* The epoll instance is useless, because it is gone or a filter refuses the calls. A new one is created for the
 * next call. If that happens repeatedly, this process is left to the kernel. */
static enum sp_wait lose(struct sp_thread *t) {
    t->must_rebuild = 1;
    if (++t->failures >= FAILURES_MAX)
        atomic_store(&sp_is_sandboxed, 1);
    return SP_LOST_CONTROL;
}

/* Examines the candidates and reads the hints, sleeping until there is one of either. With must_not_sleep there is
 * already a result, so signals do not count. SP_FAILED leaves errno EINTR; after SP_LOST_CONTROL only the kernel's
 * call can finish. */
enum sp_wait sp_wait(struct sp_call *c, bool must_not_sleep) {
    struct sp_thread *t = c->t;
    bool is_zero = must_not_sleep || c->deadline.is_zero;
    sp_clear_hints(t);
    if (t->examine_count == 0 && (is_zero ? must_not_sleep || c->given == NULL : t->expects_hints)) {
        int hints = sp_harvest(t);
        if (hints < 0)
            return lose(t);
        t->expects_hints = hints > 0;
        if (hints > 0 || is_zero)
            return hints > 0 || must_not_sleep ? SP_WOKEN : SP_TIMED_OUT;
    }
    if (!is_zero && !c->has_slept) {
        sp_block_signals(c);
        c->has_slept = true;
        /* A handler that ran since the scan, or another thread, may have closed an examined descriptor, so look
           again. */
        if (!sp_in_control(c))
            return SP_LOST_CONTROL;
        if (atomic_load(&t->stale_any) != 0)
            return SP_WOKEN;
    }
    struct timespec time = {0, 0};
    bool is_last = true;
    const struct timespec *limit = is_zero ? &time : slice(c, &time, &is_last);
    t->examine[0] = (struct pollfd){.fd = atomic_load_explicit(&t->epfd, memory_order_relaxed), .events = POLLIN};
    SP_COUNT(t, examined, t->examine_count);
    int ready = sp_real.ppoll(t->examine, (nfds_t)t->examine_count + 1, limit, must_not_sleep ? NULL : c->mask);
    /* The handler may also have forked (and this is the child), or have left the table. */
    if (ready < 0 && errno == EINTR && !must_not_sleep)
        return SP_FAILED;
    if (!sp_in_control(c))
        return SP_LOST_CONTROL;
    if (ready < 0) {
        if (errno != EINTR)
            return lose(t);
        for (int i = 0; i <= t->examine_count; i++)
            t->examine[i].revents = 0;
        return SP_WOKEN;
    }
    sp_learn(t);
    if (t->examine[0].revents & ~POLLIN)
        return lose(t);
    if (t->examine[0].revents != 0) {
        int hints = sp_harvest(t);
        if (hints < 0)
            return lose(t);
        /* Several hints at once mean that the thread is behind, so that the next call will hardly sleep. */
        t->expects_hints = hints > 1;
    }
    if (ready > 0)
        return SP_WOKEN;
    return is_last ? SP_TIMED_OUT : SP_SLICE_OVER;
}
