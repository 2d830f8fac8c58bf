/* Interposes select and poll. Timeouts are normalised as in the GNU C library (select.c, poll.c). */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

#define US_PER_S 1000000
#define NS_PER_S 1000000000L

SP_EXPORT int __poll(struct pollfd *fds, nfds_t count, int timeout_ms);
SP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes);
SP_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
                          size_t bytes);
SP_EXPORT int __select(int n, fd_set *in, fd_set *out, fd_set *ex, struct timeval *timeout);
extern void __chk_fail(void) __attribute__((noreturn, weak)); /* only in the GNU C library, like its callers */

/* The call's result, from the library or from the kernel if the call is passed on. */
#define PASSED(result, call) ((result) == SP_PASS ? (call) : (result) == SP_PASS_JUDGED ? judged(call) : (result))

static int judged(int result) {
    int saved = errno;
    sp_account_passed(result);
    errno = saved;
    return result;
}

/* Most sets are small. For them the library only costs a comparison and a jump. */
static inline bool is_small(uint64_t count) {
    if (__builtin_expect(count > (uint64_t)sp_options.min_set, 0))
        return false;
    sp_pass_small();
    return true;
}

SP_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    SP_STARTED();
    if (is_small(count))
        return sp_real.poll(fds, count, timeout_ms);
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    int result = sp_poll(fds, count, timeout_ms >= 0 ? &timeout : NULL, NULL);
    return PASSED(result, sp_real.poll(fds, count, timeout_ms));
}

SP_EXPORT int __poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    return poll(fds, count, timeout_ms);
}

SP_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes) {
    if (bytes / sizeof *fds < count)
        __chk_fail();
    return poll(fds, count, timeout_ms);
}

SP_EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    SP_STARTED();
    if (is_small(count))
        return sp_real.ppoll(fds, count, timeout, mask);
    int result = sp_poll(fds, count, timeout, mask);
    return PASSED(result, sp_real.ppoll(fds, count, timeout, mask));
}

SP_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
                          size_t bytes) {
    if (bytes / sizeof *fds < count)
        __chk_fail();
    return ppoll(fds, count, timeout, mask);
}

static bool has_sticky_timeouts(void) {
    static _Atomic int known; /* 0 not asked, 1 no, 2 yes */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        long personality = sp_real.syscall(SYS_personality, 0xffffffffUL);
        answer = personality >= 0 && (personality & STICKY_TIMEOUTS) != 0 ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

/* Linux writes the remaining time into the caller's timeval. */
static void subtract_elapsed(struct timespec *timeout, uint64_t elapsed_ns) {
    timeout->tv_sec -= (time_t)(elapsed_ns / (uint64_t)NS_PER_S);
    timeout->tv_nsec -= (long)(elapsed_ns % (uint64_t)NS_PER_S);
    if (timeout->tv_nsec < 0) {
        timeout->tv_sec--;
        timeout->tv_nsec += NS_PER_S;
    }
    if (timeout->tv_sec < 0)
        *timeout = (struct timespec){0, 0};
}

SP_EXPORT int select(int n, fd_set *in, fd_set *out, fd_set *ex, struct timeval *timeout) {
    SP_STARTED();
    /* Arguments that select's own prologue refuses, or that overflow in it, are left to select,
       and so is a set that is certainly small. */
    if (n <= sp_options.min_set || (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_sec > INT32_MAX ||
                                                        timeout->tv_usec < 0 || timeout->tv_usec > INT32_MAX))) {
        sp_pass_small();
        return sp_real.select(n, in, out, ex, timeout);
    }
    if (timeout == NULL) {
        int result = sp_select(n, in, out, ex, NULL, NULL);
        return PASSED(result, sp_real.select(n, in, out, ex, NULL));
    }
    struct timespec time = {.tv_sec = timeout->tv_sec + timeout->tv_usec / US_PER_S,
                            .tv_nsec = timeout->tv_usec % US_PER_S * 1000};
    bool is_zero = time.tv_sec == 0 && time.tv_nsec == 0;
    uint64_t start_ns = is_zero ? 0 : sp_now_ns();
    int result = sp_select(n, in, out, ex, &time, NULL);
    if (result == SP_PASS || result == SP_PASS_JUDGED)
        return PASSED(result, sp_real.select(n, in, out, ex, timeout));
    if (!is_zero && !has_sticky_timeouts()) {
        int saved = errno;
        subtract_elapsed(&time, sp_now_ns() - start_ns);
        errno = saved;
    }
    timeout->tv_sec = time.tv_sec;
    timeout->tv_usec = time.tv_nsec / 1000;
    return result;
}

SP_EXPORT int __select(int n, fd_set *in, fd_set *out, fd_set *ex, struct timeval *timeout) {
    return select(n, in, out, ex, timeout);
}

SP_EXPORT int pselect(int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *timeout,
                      const sigset_t *mask) {
    SP_STARTED();
    int result = sp_select(n, in, out, ex, timeout, mask);
    return PASSED(result, sp_real.pselect(n, in, out, ex, timeout, mask));
}
