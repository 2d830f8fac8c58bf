/* The C library's functions that interpose_*.c replace. */
#ifndef SP_REAL_H
#define SP_REAL_H

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>

typedef void (*sp_handler)(int);

#define SP_REAL_FUNCTIONS(X)                                                                        \
    X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                           \
    X(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *)) \
    X(int, poll, (struct pollfd *, nfds_t, int))                                                    \
    X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))             \
    X(int, close, (int))                                                                            \
    X(int, fclose, (FILE *))                                                                        \
    X(int, pclose, (FILE *))                                                                        \
    X(FILE *, popen, (const char *, const char *))                                                  \
    X(FILE *, freopen, (const char *, const char *, FILE *))                                        \
    X(FILE *, freopen64, (const char *, const char *, FILE *))                                      \
    X(FILE *, fopen, (const char *, const char *))                                                  \
    X(FILE *, fopen64, (const char *, const char *))                                                \
    X(int, dup, (int))                                                                              \
    X(int, dup2, (int, int))                                                                        \
    X(int, dup3, (int, int, int))                                                                   \
    X(int, fcntl, (int, int, ...))                                                                  \
    X(int, fcntl64, (int, int, ...))                                                                \
    X(int, accept, (int, struct sockaddr *, socklen_t *))                                           \
    X(int, accept4, (int, struct sockaddr *, socklen_t *, int))                                     \
    X(int, socket, (int, int, int))                                                                 \
    X(int, socketpair, (int, int, int, int *))                                                      \
    X(int, pipe, (int *))                                                                           \
    X(int, pipe2, (int *, int))                                                                     \
    X(int, open, (const char *, int, ...))                                                          \
    X(int, open64, (const char *, int, ...))                                                        \
    X(int, openat, (int, const char *, int, ...))                                                   \
    X(int, openat64, (int, const char *, int, ...))                                                 \
    X(int, __open_2, (const char *, int))                                                           \
    X(int, __open64_2, (const char *, int))                                                         \
    X(int, __openat_2, (int, const char *, int))                                                    \
    X(int, __openat64_2, (int, const char *, int))                                                  \
    X(int, posix_openpt, (int))                                                                     \
    X(int, eventfd, (unsigned, int))                                                                \
    X(int, timerfd_create, (int, int))                                                              \
    X(int, signalfd, (int, const sigset_t *, int))                                                  \
    X(int, inotify_init, (void))                                                                    \
    X(int, inotify_init1, (int))                                                                    \
    X(int, epoll_create, (int))                                                                     \
    X(int, epoll_create1, (int))                                                                    \
    X(ssize_t, recvmsg, (int, struct msghdr *, int))                                                \
    X(int, recvmmsg, (int, struct mmsghdr *, unsigned, int, struct timespec *))                     \
    X(int, setrlimit, (__rlimit_resource_t, const struct rlimit *))                                 \
    X(int, setrlimit64, (__rlimit_resource_t, const struct rlimit64 *))                             \
    X(int, prlimit, (int, __rlimit_resource_t, const struct rlimit *, struct rlimit *))             \
    X(int, prlimit64, (int, __rlimit_resource_t, const struct rlimit64 *, struct rlimit64 *))       \
    X(int, prctl, (int, ...))                                                                       \
    X(int, unshare, (int))                                                                          \
    X(int, sigaction, (int, const struct sigaction *, struct sigaction *))                          \
    X(sp_handler, signal, (int, sp_handler))                                                        \
    X(int, setsockopt, (int, int, int, const void *, socklen_t))                                    \
    X(long, syscall, (long, ...))

/* Functions that may be missing, because they are newer than some C libraries or in another library. */
#define SP_LATE_FUNCTIONS(X)                                            \
    X(int, close_range, (unsigned, unsigned, int))                      \
    X(void, closefrom, (int))                                           \
    X(pid_t, _Fork, (void))                                             \
    X(int, openpty, (int *, int *, char *, const void *, const void *)) \
    X(int, seccomp_load, (void *))

struct sp_real {
#define X(type, name, arguments) type(*name) arguments;
    SP_REAL_FUNCTIONS(X)
    SP_LATE_FUNCTIONS(X)
#undef X
};
extern struct sp_real sp_real;

/* Idempotent. Called by the constructor, and by every interposed function that runs before it. It allocates
 * nothing, because an allocator may call these functions with its lock held. */
extern int sp_has_started;
void sp_start(void);
/* Called by the constructor, and by a late function that is still NULL. A missing one stays NULL. A lookup without
 * a result allocates. */
void sp_find_late(void);
#define SP_STARTED()                              \
    do {                                          \
        if (__builtin_expect(!sp_has_started, 0)) \
            sp_start();                           \
    } while (0)

#define SP_EXPORT __attribute__((visibility("default")))

#endif
