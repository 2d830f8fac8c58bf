/* Interposes the functions that give a descriptor number another file. Each follows the forgetter's protocol of
 * sp.h: forget and leave the epoll instances, close, and forget again; or create, and forget. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

static inline bool is_active(void) {
    return __builtin_expect(atomic_load_explicit(&sp_slots_used, memory_order_acquire) != 0, 0);
}

static int absent(void) {
    errno = ENOSYS;
    return -1;
}

static inline int created(int fd) {
    if (fd >= 0 && is_active())
        sp_forget_created(fd);
    return fd;
}

static inline int created_pair(int result, const int *pair) {
    if (result == 0 && is_active()) {
        sp_forget_created(pair[0]);
        sp_forget_created(pair[1]);
    }
    return result;
}

static FILE *created_file(FILE *file) {
    if (file != NULL && is_active())
        created(fileno_unlocked(file));
    return file;
}

/* --- closing */

SP_EXPORT int close(int fd) {
    SP_STARTED();
    if (!is_active())
        return sp_real.close(fd);
    /* Programs that close every number do not mean the library's descriptors, which they cannot know. */
    if (sp_is_ours(fd)) {
        errno = EBADF;
        return -1;
    }
    sp_forget_closing(fd);
    int result = sp_real.close(fd);
    sp_forget_closed(fd);
    return result;
}

SP_EXPORT int __close(int fd);
SP_EXPORT int __close(int fd) {
    return close(fd);
}

SP_EXPORT int fclose(FILE *file) {
    SP_STARTED();
    int fd = is_active() && file != NULL ? fileno_unlocked(file) : -1;
    if (fd < 0)
        return sp_real.fclose(file);
    sp_forget_closing(fd);
    int result = sp_real.fclose(file);
    sp_forget_closed(fd);
    return result;
}

SP_EXPORT int pclose(FILE *file) {
    SP_STARTED();
    int fd = is_active() && file != NULL ? fileno_unlocked(file) : -1;
    if (fd < 0)
        return sp_real.pclose(file);
    sp_forget_closing(fd);
    int result = sp_real.pclose(file);
    sp_forget_closed(fd);
    return result;
}

#define REOPEN(name)                                                       \
    SP_EXPORT FILE *name(const char *path, const char *mode, FILE *file) { \
        SP_STARTED();                                                      \
        int fd = is_active() && file != NULL ? fileno_unlocked(file) : -1; \
        if (fd < 0)                                                        \
            return created_file(sp_real.name(path, mode, file));           \
        sp_forget_closing(fd);                                             \
        FILE *result = sp_real.name(path, mode, file);                     \
        sp_forget_closed(fd);                                              \
        return created_file(result);                                       \
    }
REOPEN(freopen)
REOPEN(freopen64)

/* Closes the range except the library's descriptors. */
SP_EXPORT int close_range(unsigned first, unsigned last, int flags) {
    SP_STARTED();
    if (sp_real.close_range == NULL)
        sp_find_late();
    if (sp_real.close_range == NULL)
        return absent();
    if (first > last || (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)) != 0)
        return sp_real.close_range(first, last, flags);
    if ((flags & CLOSE_RANGE_UNSHARE) != 0 && sp_table_leave()) {
        int result = sp_real.close_range(first, last, flags);
        if (result != 0)
            sp_table_stay();
        return result;
    }
    if (!is_active() || (flags & CLOSE_RANGE_CLOEXEC) != 0 || !sp_is_at_home())
        return sp_real.close_range(first, last, flags);
    /* Older kernels lack the call and some filters refuse it. A descriptor that then stays open is not forgotten. */
    if (sp_real.close_range(~0U, ~0U, 0) != 0)
        return -1;
    sp_forget_range(first, last, false);
    int result = 0;
    unsigned from = first;
    for (unsigned ours; (ours = sp_next_ours(from)) < SP_FD_LIMIT && ours <= last && result == 0; from = ours + 1) {
        if (ours == from)
            continue;
        result = sp_real.close_range(from, ours - 1, flags);
        flags = 0; /* unshared by now */
    }
    if (result == 0 && from <= last)
        result = sp_real.close_range(from, last, flags);
    sp_forget_range(first, last, true);
    return result;
}

SP_EXPORT void closefrom(int first) {
    SP_STARTED();
    if (sp_real.closefrom == NULL)
        sp_find_late();
    if ((!is_active() || !sp_is_at_home()) && sp_real.closefrom != NULL) {
        sp_real.closefrom(first);
        return;
    }
    if (first < 0)
        first = 0;
    if (close_range((unsigned)first, ~0U, 0) != 0)
        for (int fd = first, end = sp_status_number("\nFDSize:"); fd < end; fd++)
            close(fd);
}

/* --- copying */

static int copy_onto(int from, int to, int flags, bool has_flags) {
    if (!is_active() || from == to)
        return has_flags ? sp_real.dup3(from, to, flags) : sp_real.dup2(from, to);
    if (sp_is_ours(from)) {
        errno = EBADF;
        return -1;
    }
    /* A source that is not open closes nothing. Other failures are repaired afterwards. */
    bool is_open = sp_is_sandboxed || sp_real.fcntl(from, F_GETFD) >= 0;
    if (is_open && sp_is_ours(to))
        sp_move_epoll_off(to);
    if (is_open)
        sp_forget_closing(to);
    int result = has_flags ? sp_real.dup3(from, to, flags) : sp_real.dup2(from, to);
    if (is_open)
        result < 0 ? sp_forget_failed(to) : sp_forget_closed(to);
    return result;
}

SP_EXPORT int dup(int fd) {
    SP_STARTED();
    return created(sp_real.dup(fd));
}

SP_EXPORT int dup2(int from, int to) {
    SP_STARTED();
    return copy_onto(from, to, 0, false);
}

SP_EXPORT int __dup2(int from, int to);
SP_EXPORT int __dup2(int from, int to) {
    return dup2(from, to);
}

SP_EXPORT int dup3(int from, int to, int flags) {
    SP_STARTED();
    return copy_onto(from, to, flags, true);
}

#define FCNTL(name, real_name)                                 \
    SP_EXPORT int name(int fd, int command, ...) {             \
        SP_STARTED();                                          \
        va_list list;                                          \
        va_start(list, command);                               \
        void *argument = va_arg(list, void *);                 \
        va_end(list);                                          \
        int result = sp_real.real_name(fd, command, argument); \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)  \
            created(result);                                   \
        return result;                                         \
    }
SP_EXPORT int __fcntl(int fd, int command, ...);
FCNTL(fcntl, fcntl)
FCNTL(fcntl64, fcntl64)
FCNTL(__fcntl, fcntl)

/* --- creating */

SP_EXPORT int accept(int fd, struct sockaddr *address, socklen_t *length) {
    SP_STARTED();
    return created(sp_real.accept(fd, address, length));
}

SP_EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    SP_STARTED();
    return created(sp_real.accept4(fd, address, length, flags));
}

SP_EXPORT int socket(int domain, int type, int protocol) {
    SP_STARTED();
    return created(sp_real.socket(domain, type, protocol));
}

SP_EXPORT int socketpair(int domain, int type, int protocol, int pair[2]) {
    SP_STARTED();
    return created_pair(sp_real.socketpair(domain, type, protocol, pair), pair);
}

SP_EXPORT int pipe(int pair[2]) {
    SP_STARTED();
    return created_pair(sp_real.pipe(pair), pair);
}

SP_EXPORT int __pipe(int pair[2]);
SP_EXPORT int __pipe(int pair[2]) {
    return pipe(pair);
}

SP_EXPORT int pipe2(int pair[2], int flags) {
    SP_STARTED();
    return created_pair(sp_real.pipe2(pair, flags), pair);
}

SP_EXPORT FILE *popen(const char *command, const char *mode) {
    SP_STARTED();
    return created_file(sp_real.popen(command, mode));
}

SP_EXPORT FILE *fopen(const char *path, const char *mode) {
    SP_STARTED();
    return created_file(sp_real.fopen(path, mode));
}

SP_EXPORT FILE *fopen64(const char *path, const char *mode) {
    SP_STARTED();
    return created_file(sp_real.fopen64(path, mode));
}

#define OPEN(name, real_name)                                              \
    SP_EXPORT int name(const char *path, int flags, ...) {                 \
        SP_STARTED();                                                      \
        va_list list;                                                      \
        va_start(list, flags);                                             \
        mode_t mode = __OPEN_NEEDS_MODE(flags) ? va_arg(list, mode_t) : 0; \
        va_end(list);                                                      \
        return created(sp_real.real_name(path, flags, mode));              \
    }
SP_EXPORT int __open(const char *path, int flags, ...);
SP_EXPORT int __open64(const char *path, int flags, ...);
OPEN(open, open)
OPEN(__open, open)
OPEN(open64, open64)
OPEN(__open64, open64)

#define OPENAT(name)                                                       \
    SP_EXPORT int name(int directory, const char *path, int flags, ...) {  \
        SP_STARTED();                                                      \
        va_list list;                                                      \
        va_start(list, flags);                                             \
        mode_t mode = __OPEN_NEEDS_MODE(flags) ? va_arg(list, mode_t) : 0; \
        va_end(list);                                                      \
        return created(sp_real.name(directory, path, flags, mode));        \
    }
OPENAT(openat)
OPENAT(openat64)

/* The fortified forms, which check that no mode is missing. */
#define OPEN_2(name)                                  \
    SP_EXPORT int name(const char *path, int flags);  \
    SP_EXPORT int name(const char *path, int flags) { \
        SP_STARTED();                                 \
        return created(sp_real.name(path, flags));    \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                               \
    SP_EXPORT int name(int directory, const char *path, int flags);  \
    SP_EXPORT int name(int directory, const char *path, int flags) { \
        SP_STARTED();                                                \
        return created(sp_real.name(directory, path, flags));        \
    }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

SP_EXPORT int posix_openpt(int flags) {
    SP_STARTED();
    return created(sp_real.posix_openpt(flags));
}

struct termios;
struct winsize;
SP_EXPORT int openpty(int *master, int *slave, char *name, const struct termios *terminal, const struct winsize *size);
SP_EXPORT int openpty(int *master, int *slave, char *name, const struct termios *terminal, const struct winsize *size) {
    SP_STARTED();
    if (sp_real.openpty == NULL)
        sp_find_late();
    if (sp_real.openpty == NULL)
        return absent();
    int result = sp_real.openpty(master, slave, name, terminal, size);
    if (result == 0) {
        created(*master);
        created(*slave);
    }
    return result;
}

SP_EXPORT int eventfd(unsigned value, int flags) {
    SP_STARTED();
    return created(sp_real.eventfd(value, flags));
}

SP_EXPORT int timerfd_create(clockid_t clock, int flags) {
    SP_STARTED();
    return created(sp_real.timerfd_create(clock, flags));
}

SP_EXPORT int signalfd(int fd, const sigset_t *mask, int flags) {
    SP_STARTED();
    int result = sp_real.signalfd(fd, mask, flags);
    return fd == -1 ? created(result) : result;
}

SP_EXPORT int inotify_init(void) {
    SP_STARTED();
    return created(sp_real.inotify_init());
}

SP_EXPORT int inotify_init1(int flags) {
    SP_STARTED();
    return created(sp_real.inotify_init1(flags));
}

SP_EXPORT int epoll_create(int size) {
    SP_STARTED();
    return created(sp_real.epoll_create(size));
}

SP_EXPORT int epoll_create1(int flags) {
    SP_STARTED();
    return created(sp_real.epoll_create1(flags));
}

/* --- options by which a socket becomes ready without a wake-up: its next examination starts again. The kernel's
 * own sleepers are not woken either. */

SP_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    SP_STARTED();
    int result = sp_real.setsockopt(fd, level, name, value, length);
    if (result == 0 && level == SOL_SOCKET && (name == SO_OOBINLINE || name == SO_SELECT_ERR_QUEUE) && is_active())
        sp_forget_readiness(fd, name);
    return result;
}

/* --- receiving from another process (SCM_RIGHTS), also with MSG_PEEK */

static void received(const struct msghdr *message) {
    if (!is_active() || message->msg_control == NULL)
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL;
         c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)message, c)) {
        /* SCM_PIDFD (4) also carries one descriptor */
        if (c->cmsg_level != SOL_SOCKET || (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != 4) ||
            c->cmsg_len < CMSG_LEN(0))
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            created(fd);
        }
    }
}

SP_EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    SP_STARTED();
    ssize_t result = sp_real.recvmsg(fd, message, flags);
    if (result >= 0)
        received(message);
    return result;
}

SP_EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout) {
    SP_STARTED();
    int result = sp_real.recvmmsg(fd, messages, count, flags, timeout);
    for (int i = 0; i < result; i++)
        received(&messages[i].msg_hdr);
    return result;
}
