/* At exit, when a signal ends the process, or before it installs a seccomp filter, writes the library's counts as one
 * line of JSON. SCALABLE_SELECT_STATS names the place: "stderr", "fd:N" (a descriptor the process was started with), or
 * the absolute path of a file to append to. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic uint64_t sp_missed_closes, sp_removed;

/* Calls that are passed on before the thread has counters. They are spread over cache lines by thread, and counted
 * only if there will be a report. */
enum { STRIPES = 32 };
static struct {
    _Alignas(64) _Atomic uint64_t small, other;
} passed[STRIPES];
bool sp_has_report;
static char path[4096];
static int number = -1;
static struct stat identity; /* file of `number` at the start of the process */
static pid_t reporter;

static unsigned stripe(void) {
    return (unsigned)((uintptr_t)__builtin_thread_pointer() >> 12) % STRIPES;
}

int sp_count_small(void) {
    atomic_fetch_add_explicit(&passed[stripe()].small, 1, memory_order_relaxed);
    return SP_PASS;
}

int sp_pass_other(void) {
    if (__builtin_expect(sp_has_report, 0))
        atomic_fetch_add_explicit(&passed[stripe()].other, 1, memory_order_relaxed);
    return SP_PASS;
}

int sp_pass_without_state(void) {
    return __builtin_expect(sp_has_report, 0) && !sp_is_other_process() ? sp_pass_other() : SP_PASS;
}

/* The counts of a thread are already wiped in the child. */
void sp_stats_fork_child(void) {
    memset(passed, 0, sizeof passed);
    atomic_store(&sp_missed_closes, 0);
    atomic_store(&sp_removed, 0);
}

static void add(const struct sp_counts *from, void *context) {
    uint64_t *into = context;
    const uint64_t *each = (const uint64_t *)(const void *)from;
    for (size_t i = 0; i < sizeof *from / sizeof *each; i++)
        into[i] += each[i];
}

struct sp_counts sp_stats_sum(void) {
    struct sp_counts sum = {0};
    sp_each_thread_counts(add, &sum);
    for (int i = 0; i < STRIPES; i++) {
        sum.passed_small += atomic_load(&passed[i].small);
        sum.passed_other += atomic_load(&passed[i].other);
    }
    sum.missed_closes += atomic_load(&sp_missed_closes);
    sum.removed += atomic_load(&sp_removed);
    return sum;
}

/* A server may have closed this descriptor and use the number for a client. Then no report is written. */
static int same_descriptor(void) {
    struct stat now;
    if (number < 0 || fstat(number, &now) != 0 || now.st_dev != identity.st_dev || now.st_ino != identity.st_ino ||
        (now.st_mode & S_IFMT) != (identity.st_mode & S_IFMT))
        return -1;
    return number;
}

/* Only a regular file, not through a link, and not one that others can write. */
static int open_file(void) {
    int fd = (int)sp_real.syscall(SYS_openat, AT_FDCWD, path,
                                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat status;
    if (fd < 0)
        return -1;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return fd;
    sp_real.syscall(SYS_close, fd);
    return -1;
}

/* Uses only integers, because it may run in a signal handler. */
static int describe(char *text, size_t size) {
    struct sp_counts c = sp_stats_sum();
    uint64_t calls = c.calls != 0 ? c.calls : 1;
    uint64_t tenths = (10 * c.selecting + calls / 2) / calls, hundredths = (100 * c.examined + calls / 2) / calls;
    return snprintf(text, size,
                    "{\"pid\":%d,\"calls\":%" PRIu64 ",\"passed_small\":%" PRIu64 ",\"passed_hot\":%" PRIu64
                    ",\"passed_other\":%" PRIu64 ",\"mean_set\":%" PRIu64 ".%" PRIu64 ",\"mean_examined\":%" PRIu64
                    ".%02" PRIu64 ",\"hints\":%" PRIu64 ",\"spurious\":%" PRIu64 ",\"added\":%" PRIu64
                    ",\"modified\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"unwatchable\":%" PRIu64 ",\"lost\":%" PRIu64
                    ",\"missed_closes\":%" PRIu64 ",\"conflicts\":%" PRIu64 ",\"zombies\":%" PRIu64
                    ",\"rebuilds\":%" PRIu64 ",\"watchdog_runs\":%" PRIu64 "}\n",
                    (int)getpid(), c.calls, c.passed_small, c.passed_hot, c.passed_other, tenths / 10, tenths % 10,
                    hundredths / 100, hundredths % 100, c.hints, c.spurious, c.added, c.modified, c.removed,
                    c.unwatchable, c.lost, c.missed_closes, c.conflicts, c.zombies, c.rebuilds, c.watchdog_runs);
}

__attribute__((destructor)) void sp_stats_report(void) {
    char text[1024];
    if (!sp_has_report)
        return;
    sp_has_report = false;
    /* A forked child that made no calls writes nothing. */
    struct sp_counts sum = sp_stats_sum();
    if (getpid() != reporter && sum.calls + sum.passed_hot == 0)
        return;
    int length = describe(text, sizeof text);
    int fd = path[0] != '\0' ? open_file() : same_descriptor();
    if (fd < 0 || length <= 0 || (size_t)length >= sizeof text)
        return;
    ssize_t written = write(fd, text, (size_t)length); /* one write, so that lines of several processes do not mix */
    (void)written;
    if (path[0] != '\0')
        sp_real.syscall(SYS_close, fd);
}

/* Signals that end servers. The program does not see the handler: interpose_process.c reports that there is none,
 * and it is removed when the process dies of the signal. */
static const int ends[] = {SIGTERM, SIGINT, SIGHUP};

static void report_and_die(int by) {
    if (!sp_is_other_process())
        sp_stats_report();
    sp_real.syscall(SYS_tgkill, getpid(), sp_real.syscall(SYS_gettid), by);
}

bool sp_is_our_handler(void (*handler)(int)) {
    return handler == report_and_die;
}

static void replace_handlers(bool (*is_replaced)(void (*)(int)), const struct sigaction *by) {
    struct sigaction now;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sp_real.sigaction(ends[i], NULL, &now) == 0 && is_replaced(now.sa_handler))
            sp_real.sigaction(ends[i], by, NULL);
}

static bool is_default(void (*handler)(int)) {
    return handler == SIG_DFL;
}

void sp_stats_leave_signals(void) {
    if (sp_has_report)
        replace_handlers(sp_is_our_handler, &(struct sigaction){.sa_handler = SIG_DFL});
}

void sp_stats_start(void) {
    const char *where = secure_getenv("SCALABLE_SELECT_STATS");
    if (where == NULL || *where == '\0')
        return;
    if (strcmp(where, "stderr") == 0) {
        number = STDERR_FILENO;
    } else if (strncmp(where, "fd:", 3) == 0) {
        char *end;
        long value = strtol(where + 3, &end, 10);
        number = end != where + 3 && *end == '\0' && value >= 0 && value < SP_FD_LIMIT ? (int)value : -1;
    } else if (where[0] == '/' && strlen(where) < sizeof path) {
        strcpy(path, where);
    }
    if (number >= 0 && fstat(number, &identity) != 0)
        number = -1;
    reporter = getpid();
    sp_has_report = number >= 0 || path[0] != '\0';
    if (sp_has_report && reporter != 1) /* the first process of a container does not die of these */
        replace_handlers(is_default,
                         &(struct sigaction){.sa_handler = report_and_die, .sa_flags = SA_RESETHAND | SA_NODEFER});
}
