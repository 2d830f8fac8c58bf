/* The reports written when the program ends: STINGY_STATS=stderr|FILE and STINGY_PROFILE=FILE, at exit and on the
 * signals that end a program which does not handle them. */
#define _GNU_SOURCE
#include "slab.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opened at start, when the program may still write there. `identity` shows whether the descriptor still belongs
 * to the report, because a server that closes all descriptors at start gives the number to a client. */
struct report {
    const char *name;
    int fd;
    struct stat identity;
    char path[PATH_MAX]; /* absolute path; empty: standard error */
    _Atomic bool is_on;
    /* Number of blocks in the report that was written last, shared with children: of processes with one file the
     * busiest one's report stays. */
    _Atomic uint64_t *blocks_written;
};
static struct report stats = {.name = "STINGY_STATS"}, profile = {.name = "STINGY_PROFILE"};
static _Atomic bool is_ending;
static pid_t pid; /* the process that may write: a child of vfork shares its parent's memory, and must not */

static bool open_report(struct report *report) {
    const char *path = getenv(report->name);
    if (!path || !*path)
        return false;
    report->path[0] = 0;
    report->fd = STDERR_FILENO;
    if (strcmp(path, "stderr") != 0) {
        size_t used = 0;
        if (path[0] != '/' && getcwd(report->path, sizeof report->path - 1)) {
            used = strlen(report->path);
            report->path[used++] = '/';
        }
        errno = ENAMETOOLONG;
        report->fd = -1;
        if (used + strlen(path) < sizeof report->path) {
            strcpy(report->path + used, path);
            report->fd = open(report->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        }
        if (report->fd < 0)
            fprintf(stderr, "stingy: cannot write %s=%s: %s\n", report->name, path, strerror(errno));
    }
    if (report->fd < 0 || fstat(report->fd, &report->identity) != 0)
        return false;
    void *shared =
        mmap(NULL, sizeof *report->blocks_written, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    report->blocks_written = shared;
    atomic_store(&report->is_on, true);
    return true;
}

/* Returns the descriptor to which the report can be written now, or -1 if none is still ours. */
static int descriptor(const struct report *report) {
    struct stat now;
    if (fstat(report->fd, &now) == 0 && now.st_dev == report->identity.st_dev && now.st_ino == report->identity.st_ino)
        return report->fd;
    return report->path[0] ? open(report->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
}

/* Calls only async-signal-safe functions. */
static void end_report(struct report *report, uint64_t blocks, void (*put)(struct text *)) {
    if (!atomic_exchange(&report->is_on, false))
        return;
    struct text text = {.fd = descriptor(report)};
    if (text.fd < 0)
        return;
    /* All processes of a server may end at once. A process that was stopped while it had the lock does not block
     * the others. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool is_mine = !report->path[0];
    for (int tries = 0; !is_mine && tries < 200; tries++) {
        is_mine = fcntl(text.fd, F_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
        if (!is_mine)
            poll(NULL, 0, 5);
    }
    if (is_mine && blocks >= atomic_load(report->blocks_written)) {
        atomic_store(report->blocks_written, blocks);
        if (report->path[0] && lseek(text.fd, 0, SEEK_SET) == 0)
            (void)!ftruncate(text.fd, 0); /* a device has no length */
        put(&text);
        text_flush(&text);
    }
    /* Releases the lock, too. */
    if (report->path[0])
        close(text.fd);
}

static uint64_t blocks_given(void) {
    struct stingy_stats all;
    stingy_stats(&all);
    return all.allocations;
}

void ends_write(void) {
    if (atomic_load(&stats.is_on))
        end_report(&stats, blocks_given(), stats_put);
    ends_write_profile();
}

void ends_write_profile(void) {
    if (atomic_load(&profile.is_on)) {
        atomic_store(&profile_is_on, false);
        end_report(&profile, profile_blocks(), profile_put);
    }
}

static void at_exit(void) {
    if (getpid() == pid)
        ends_write();
}

/* Ends the program as it would have ended without this library: by this signal. */
static void at_signal(int number) {
    int error = errno;
    if (getpid() == pid) {
        if (atomic_exchange(&is_ending, true))
            return; /* another thread is writing */
        ends_write();
    }
    struct sigaction end = {.sa_handler = SIG_DFL};
    sigaction(number, &end, NULL);
    raise(number);
    errno = error;
}

void ends_start(void) {
    static bool is_registered;
    bool has_stats = open_report(&stats), has_profile = open_report(&profile) && profile_start();
    if ((!has_stats && !has_profile) || is_registered)
        return;
    is_registered = true;
    pid = getpid();
    atexit(at_exit);
    /* An ignored signal stays ignored, and a handler that a server installs later replaces ours. */
    static const int signals[] = {SIGTERM, SIGINT};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction old, ours = {.sa_handler = at_signal};
        if (sigaction(signals[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &ours, NULL);
    }
}

void ends_in_child(void) {
    pid = getpid();
}
