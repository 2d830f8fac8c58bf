/* A preload library with a clock that runs a hundred times slower, for servers under cachegrind, which runs them about
 * fifty times slower: work that a server does once a second (checking all connections for timeouts) remains as rare
 * relative to its requests. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SLOWER = 100, CLOCKS = 16, NS = 1000000000 };

int clock_gettime(clockid_t clock, struct timespec *out) {
    static struct timespec begin[CLOCKS];
    struct timespec now;
    if (syscall(SYS_clock_gettime, clock, &now) != 0)
        return -1;
    *out = now;
    /* CPU time must stay true because it is used for measuring. */
    if (clock < 0 || clock >= CLOCKS || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return 0;
    if (begin[clock].tv_sec == 0)
        begin[clock] = now;
    int64_t past_ns = ((now.tv_sec - begin[clock].tv_sec) * (int64_t)NS + now.tv_nsec - begin[clock].tv_nsec) / SLOWER +
                      begin[clock].tv_nsec;
    *out = (struct timespec){begin[clock].tv_sec + past_ns / NS, past_ns % NS};
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}
