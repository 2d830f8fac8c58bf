/* Differential fuzzing: compares every answer of select, pselect, poll and ppoll with that of
 * the direct system call, for random descriptors of all kinds in random states. Usage:
 * differential SEED COMPARISONS
 *
 * Between comparisons, descriptors are made, used, copied and closed: by this thread, by another
 * one while this one sleeps, by forked children, and by tasks that share the memory but not the
 * descriptor table. Half of the sets are mostly quiet, like a server's.
 *
 * Runs under the library with every call forced through it. A difference is checked again after
 * a moment, because the kernel delivers on the loopback asynchronously; a lost hint stays lost.
 * With the watchdog off, a blocking call that misses its event never returns, and the alarm ends
 * the run. */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { HELD_MAX = 160, FD_MAX = 4096, WORDS = FD_MAX / 64 };

static int held[HELD_MAX], held_count;
static uint64_t state;
static struct sockaddr_in listener_address;
static int listener;
static long comparisons, mismatches, ready_total, blocked, strangers;
static pid_t children[12]; /* for pidfds; reaped at the end, so that no number is reused */
static int child_count;
static pid_t forked; /* in a child that compares for itself */

static unsigned pick(unsigned n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 20) % n;
}

static void hold(int fd) {
    if (fd < 0)
        return;
    if (fd >= FD_MAX || held_count >= HELD_MAX) {
        close(fd);
        return;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    held[held_count++] = fd;
}

static void hold_pair(int result, const int *pair) {
    if (result != 0)
        return;
    hold(pair[0]);
    hold(pair[1]);
}

/* The sanitizers' start-up code crashes with an interposed syscall(2), so in their builds the
 * library does not see direct calls. */
#ifdef UNDER_SANITIZER
#define SEES_DIRECT_CALLS 0
#else
#define SEES_DIRECT_CALLS 1
#endif

static void let_go(int i) {
    switch (pick(4)) {
    case 0:
        close_range((unsigned)held[i], (unsigned)held[i], 0);
        break;
    case 1:
        if (SEES_DIRECT_CALLS)
            syscall(SYS_close, held[i]);
        else
            close(held[i]);
        break;
    default:
        close(held[i]);
    }
    held[i] = held[--held_count];
}

static int connect_to_listener(int type) {
    int fd = socket(AF_INET, type | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&listener_address, sizeof listener_address) < 0 && errno != EINPROGRESS)
        errno = 0;
    return fd;
}

static void udp_pair(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(to, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(to, (struct sockaddr *)&a, &length) == 0 &&
        connect(from, (struct sockaddr *)&a, length) == 0) {
        hold(from);
        hold(to);
        return;
    }
    close(from);
    close(to);
}

static void received_pair(void) {
    /* a pipe received over a socket (SCM_RIGHTS) */
    int channel[2], pipe_ends[2], got[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
        return;
    if (pipe(pipe_ends) != 0)
        goto end;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof pipe_ends)];
    } control;
    memset(&control, 0, sizeof control);
    char byte = 1;
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof pipe_ends);
    memcpy(CMSG_DATA(c), pipe_ends, sizeof pipe_ends);
    if (sendmsg(channel[0], &message, 0) == 1) {
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        message.msg_controllen = sizeof control;
        struct mmsghdr several = {.msg_hdr = message};
        if (pick(2) ? recvmsg(channel[1], &message, 0) == 1 : recvmmsg(channel[1], &several, 1, 0, NULL) == 1) {
            memcpy(got, CMSG_DATA((struct cmsghdr *)(void *)&control), sizeof got);
            hold_pair(0, got);
        }
    } else {
        close(pipe_ends[0]);
        close(pipe_ends[1]);
    }
end:
    close(channel[0]);
    close(channel[1]);
}

static void pidfd(void) {
    if (child_count < 12 && forked == 0) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGTERM, SIG_DFL);
            for (;;)
                pause();
        }
        if (child > 0)
            children[child_count++] = child;
    }
    if (child_count > 0)
        hold((int)syscall(SYS_pidfd_open, children[pick((unsigned)child_count)], 0));
}

/* A datagram socket that keeps errors in a queue, connected to an address without a listener. */
static void refused_datagrams(void) {
    struct sockaddr_in nobody = {
        .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&nobody, sizeof nobody) == 0)
        send(fd, "x", 1, MSG_DONTWAIT);
    hold(fd);
}

static void create(void) {
    int pair[2];
    switch (pick(22)) {
    case 20:
        pidfd();
        break;
    case 21:
        refused_datagrams();
        break;
    case 0:
    case 1:
        hold_pair(pipe(pair), pair);
        break;
    case 2:
    case 3:
        hold_pair(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), pair);
        break;
    case 4:
        hold_pair(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), pair);
        break;
    case 5:
        hold_pair(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), pair);
        break;
    case 6:
    case 7:
    case 8:
        hold(connect_to_listener(SOCK_STREAM));
        break;
    case 9:
    case 10:
    case 11:
        hold(accept(listener, NULL, NULL));
        break;
    case 12:
        hold(eventfd(pick(2), EFD_NONBLOCK));
        break;
    case 13: {
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        struct itimerspec when = {.it_value = {.tv_sec = pick(2) ? 1000 : 0, .tv_nsec = 1}};
        timerfd_settime(fd, 0, &when, NULL);
        hold(fd);
        break;
    }
    case 14:
        udp_pair();
        break;
    case 15: {
        static const char *const paths[] = {"/dev/null", "/etc/passwd", "/dev/zero", "/proc/self/mounts", "/"};
        hold(open(paths[pick(5)], O_RDONLY | O_NONBLOCK));
        break;
    }
    case 16: {
        int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
        if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0)
            slave = open(ptsname(master), O_RDWR | O_NOCTTY);
        hold(master);
        hold(slave);
        break;
    }
    case 17: { /* nested epoll with a watched descriptor */
        int fd = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        if (fd >= 0 && held_count > 0)
            epoll_ctl(fd, EPOLL_CTL_ADD, held[pick((unsigned)held_count)], &event);
        hold(fd);
        break;
    }
    case 18:
        if (pick(2)) {
            sigset_t none;
            sigemptyset(&none);
            sigaddset(&none, SIGUSR2); /* blocked, and sometimes raised */
            hold(signalfd(-1, &none, 0));
        } else {
            hold(inotify_init1(0));
        }
        break;
    case 19:
        if (pick(2))
            received_pair();
        else
            hold(socket(AF_INET, SOCK_STREAM, 0)); /* never connected */
        break;
    }
}

static void swap(int i, int j) {
    int kept = dup(held[i]);
    if (kept >= 0 && dup2(held[j], held[i]) >= 0)
        dup2(kept, held[j]);
    close(kept);
}

static void copy(int i) {
    int j = (int)pick((unsigned)held_count);
    switch (pick(8)) {
    case 5:
        if (i != j && held[i] != listener && held[j] != listener)
            swap(i, j);
        break;
    case 6: /* fails because the number is not open */
        if (dup2(FD_MAX - 7, held[j]) >= 0 || dup3(FD_MAX - 7, held[j], O_CLOEXEC) >= 0)
            mismatches++;
        break;
    case 7:
        if (dup3(held[i], held[j], 0x77) >= 0)
            mismatches++;
        break;
    case 0:
        hold(dup(held[i]));
        break;
    case 1:
        hold(fcntl(held[i], F_DUPFD, (int)(100 + pick(FD_MAX - 200))));
        break;
    case 2:
        if (j != i && held[j] != listener)
            dup2(held[i], held[j]);
        break;
    case 3:
        if (j != i && held[j] != listener)
            (void)(SEES_DIRECT_CALLS ? (int)syscall(SYS_dup3, held[i], held[j], 0) : dup3(held[i], held[j], 0));
        break;
    case 4:
        hold(fcntl(held[i], F_DUPFD_CLOEXEC, (int)(1000 + pick(100))));
        break;
    }
}

static void use(int i) {
    static char buffer[70000];
    int fd = held[i], on = (int)pick(2), some = 1 + (int)pick(20);
    switch (pick(13)) {
    case 8:
    case 9: /* the library does not see these in another process */
        if (forked == 0)
            setsockopt(fd, SOL_SOCKET, pick(2) ? SO_OOBINLINE : SO_SELECT_ERR_QUEUE, &on, sizeof on);
        break;
    case 10:
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &some, sizeof some);
        break;
    case 11:
        if (recv(fd, buffer, 100, (on ? MSG_ERRQUEUE : MSG_OOB) | MSG_DONTWAIT) < 0)
            errno = 0;
        break;
    case 12:
        if (pick(40) == 0 && child_count > 0)
            kill(children[pick((unsigned)child_count)], SIGTERM);
        else if (pick(40) == 0)
            kill(getpid(), SIGUSR2);
        break;
    case 0:
    case 1:
        if (write(fd, buffer, pick(3) ? 1 + pick(8) : sizeof buffer) < 0)
            errno = 0;
        break;
    case 2:
        for (int k = 0; k < 200 && write(fd, buffer, 60000) > 0; k++) {
        }
        break;
    case 3:
        if (read(fd, buffer, 1 + pick(9)) < 0)
            errno = 0;
        break;
    case 4:
    case 5:
        for (int k = 0; k < 400 && read(fd, buffer, sizeof buffer) > 0; k++) {
        }
        break;
    case 6:
        if (pick(4) == 0 && fd != listener)
            shutdown(fd, (int)pick(3));
        break;
    case 7:
        send(fd, "x", 1, MSG_OOB | MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    }
}

/* --- tasks that share the memory and not the descriptor table, and other threads */

static void meddle(void) {
    for (unsigned n = 1 + pick(20); n > 0; n--) {
        int fd = held[pick((unsigned)held_count)];
        struct pollfd set[70];
        switch (pick(6)) {
        case 0:
            close(fd);
            break;
        case 1:
            dup2(fd, held[pick((unsigned)held_count)]);
            break;
        case 2:
            dup2(fd, (int)(3 + pick(FD_MAX - 20)));
            break;
        case 3:
            for (int i = 0; i < 70; i++)
                set[i] = (struct pollfd){held[i % held_count], POLLIN, 0};
            poll(set, 70, 0);
            break;
        case 4:
            close_range((unsigned)fd, (unsigned)fd + pick(300), 0);
            break;
        case 5:
            if (write(fd, "x", 1) < 0)
                errno = 0;
            break;
        }
    }
}

#ifndef UNDER_SANITIZER
static int meddling(void *unused) {
    (void)unused;
    meddle();
    return 0;
}

static void *meddling_apart(void *how) {
    if (how == NULL ? unshare(CLONE_FILES) == 0 : close_range(FD_MAX, ~0U, 2 /* CLOSE_RANGE_UNSHARE */) == 0)
        meddle();
    return NULL;
}

static void let_a_stranger_meddle(void) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    pid_t child = -1;
    pthread_t thread;
    int how = (int)pick(12);
    strangers++;
    if (how < 5) {
        child = vfork();
        if (child == 0) {
            meddle();
            _exit(0);
        }
    } else if (how < 8) {
        child = clone(meddling, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    } else if (how < 10) {
        posix_spawn_file_actions_t actions;
        char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, listener, held[pick((unsigned)held_count)]);
        posix_spawn_file_actions_addclosefrom_np(&actions, 3);
        if (posix_spawn(&child, "/bin/true", &actions, NULL, argv, envp) != 0)
            child = -1;
        posix_spawn_file_actions_destroy(&actions);
    } else if (pthread_create(&thread, NULL, meddling_apart, how == 10 ? NULL : &state) == 0) {
        pthread_join(thread, NULL);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}
#else
static void let_a_stranger_meddle(void) {}
#endif

static long compare_once(void);

/* A child must not touch its parent's epoll instance, and must not confuse the parent. */
static void fork_and_compare(void) {
    pid_t child = fork();
    if (child == 0) {
        long before = mismatches;
        forked = getpid();
        for (int k = 0; k < 5; k++) {
            compare_once();
            if (held_count > 1)
                use((int)(1 + pick((unsigned)held_count - 1)));
            if (held_count > 40)
                let_go((int)(1 + pick((unsigned)held_count - 1)));
        }
        _exit(mismatches != before);
    }
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && status != 0) {
        printf("  mismatch in a forked child\n");
        mismatches++;
    }
}

static short random_events(void) {
    static const short events[] = {POLLIN,
                                   POLLOUT,
                                   POLLIN | POLLOUT,
                                   POLLIN | POLLPRI | POLLRDHUP,
                                   0,
                                   POLLRDNORM,
                                   POLLPRI,
                                   POLLIN | POLLOUT | POLLRDHUP | POLLPRI,
                                   POLLWRBAND,
                                   POLLRDBAND | POLLRDHUP,
                                   POLLNVAL | POLLIN,
                                   0x400 | POLLOUT};
    return events[pick(sizeof events / sizeof *events)];
}

static int ask(struct pollfd *fds, nfds_t count, int timeout_ms) {
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    sigset_t mask;
    sigemptyset(&mask);
    switch (pick(3)) {
    case 0:
        return ppoll(fds, count, &timeout, NULL);
    case 1:
        return ppoll(fds, count, &timeout, &mask);
    default:
        return poll(fds, count, timeout_ms);
    }
}

/* Mostly quiet sets, like a server's, test the remembered state; random ones test the requests. */
static bool is_wanted(int fd, short events, bool is_mostly_quiet) {
    struct pollfd one = {fd, events, 0};
    return !is_mostly_quiet || pick(40) == 0 || syscall(SYS_poll, &one, 1, 0) == 0;
}

/* Prints all facts about a descriptor whose answer differs. */
static void explain(int fd, int which) {
    char path[40], name[64] = "";
    struct pollfd all = {fd, 0x7fff, 0};
    int inlined = -1, selects_errors = -1, type = -1, domain = -1;
    socklen_t length = sizeof(int);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof name - 1) < 0)
        strcpy(name, "not open");
    getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &inlined, &length);
    getsockopt(fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, &selects_errors, &length);
    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
    syscall(SYS_poll, &all, 1, 0);
    printf("  set %d: fd %d, %s, domain %d, type %d, kernel's bits %x, SO_OOBINLINE %d, SO_SELECT_ERR_QUEUE %d\n",
           which, fd, name, domain, type, (unsigned)(unsigned short)all.revents, inlined, selects_errors);
}

static void compare_poll(void) {
    static struct pollfd asked[HELD_MAX + 8], kernel[HELD_MAX + 8], ours[HELD_MAX + 8];
    nfds_t count = 0;
    bool only_reads = pick(2), is_mostly_quiet = pick(2);
    for (int i = 0; i < held_count; i++) {
        short events = only_reads ? POLLIN : random_events();
        if (pick(4) && is_wanted(held[i], events, is_mostly_quiet))
            asked[count++] = (struct pollfd){held[i], events, 7};
    }
    if (count != 0 && pick(5) == 0) {
        asked[count] = asked[pick((unsigned)count)];
        asked[count++].events = random_events();
    }
    if (pick(10) == 0)
        asked[count++] = (struct pollfd){-1 - (int)pick(9), POLLIN, 7};
    if (pick(50) == 0)
        /* Probably not open; the library's own are at 2^n - 1. */
        asked[count++] = (struct pollfd){FD_MAX - 5, POLLIN, 7};
    for (int attempt = 0; attempt < 3; attempt++) {
        memcpy(kernel, asked, sizeof asked);
        memcpy(ours, asked, sizeof asked);
        int by_kernel = (int)syscall(SYS_poll, kernel, count, 0);
        int by_us = ask(ours, count, by_kernel > 0 && pick(8) == 0 ? 50 : 0);
        if (by_kernel == by_us && memcmp(kernel, ours, count * sizeof *ours) == 0) {
            ready_total += by_kernel > 0 ? by_kernel : 0;
            comparisons++;
            return;
        }
        usleep(300);
    }
    comparisons++;
    if (mismatches++ < 10)
        for (nfds_t i = 0; i < count; i++)
            if (kernel[i].revents != ours[i].revents) {
                printf("  poll: fd %d events %x: kernel %x, library %x\n", ours[i].fd,
                       (unsigned)(unsigned short)ours[i].events, (unsigned)(unsigned short)kernel[i].revents,
                       (unsigned)(unsigned short)ours[i].revents);
                explain(ours[i].fd, -1);
            }
}

struct wide_sets {
    uint64_t set[3][WORDS];
};

static int kernel_select(int n, struct wide_sets *s) {
    struct timeval zero = {0, 0};
    return (int)syscall(SYS_select, n, s->set[0], s->set[1], s->set[2], &zero);
}

static int library_select(int n, struct wide_sets *s, long us) {
    struct timeval time = {0, us};
    struct timespec also = {0, us * 1000};
    sigset_t mask;
    sigemptyset(&mask);
    fd_set *in = (fd_set *)(void *)s->set[0], *out = (fd_set *)(void *)s->set[1], *ex = (fd_set *)(void *)s->set[2];
    switch (pick(3)) {
    case 0:
        return pselect(n, in, out, ex, &also, NULL);
    case 1:
        return pselect(n, in, out, ex, &also, &mask);
    default:
        return select(n, in, out, ex, &time);
    }
}

static void compare_select(void) {
    static struct wide_sets asked, kernel, ours;
    static const short meant[3] = {POLLIN, POLLOUT, POLLPRI};
    int n = 0, sets = pick(2) ? 1 : 3;
    bool is_mostly_quiet = pick(2);
    memset(&asked, 0, sizeof asked);
    for (int i = 0; i < held_count; i++)
        for (int which = 0; which < sets; which++)
            if (pick(3) == 0 && is_wanted(held[i], meant[which], is_mostly_quiet)) {
                asked.set[which][held[i] / 64] |= UINT64_C(1) << (held[i] % 64);
                n = held[i] >= n ? held[i] + 1 : n;
            }
    if (pick(20) == 0 && n > 3)
        n -= (int)pick(3); /* bits beyond n */
    if (pick(50) == 0)
        asked.set[0][pick(WORDS)] |= UINT64_C(1) << pick(63); /* probably not open */
    if (pick(20) == 0)
        n = FD_MAX;
    int by_kernel = 0, by_us = 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        kernel = ours = asked;
        by_kernel = kernel_select(n, &kernel);
        int kernel_errno = by_kernel < 0 ? errno : 0;
        by_us = library_select(n, &ours, by_kernel > 0 && pick(8) == 0 ? 50000 : 0);
        int our_errno = by_us < 0 ? errno : 0;
        if (by_kernel == by_us && kernel_errno == our_errno && memcmp(&kernel, &ours, sizeof ours) == 0) {
            ready_total += by_kernel > 0 ? by_kernel : 0;
            comparisons++;
            return;
        }
        usleep(300);
    }
    comparisons++;
    if (mismatches++ < 10) {
        printf("  select: kernel %d, library %d, n %d\n", by_kernel, by_us, n);
        for (int fd = 0; fd < n; fd++)
            for (int which = 0; which < sets; which++)
                if ((kernel.set[which][fd / 64] ^ ours.set[which][fd / 64]) >> (fd % 64) & 1)
                    explain(fd, which);
    }
}

static long compare_once(void) {
    compare_poll();
    compare_select();
    return mismatches;
}

/* --- blocking: another thread makes something ready while this one sleeps without limit */

static sem_t go;
static int trigger_reader;
static _Atomic int trigger_fd = -1, trigger_meddles;

static void *triggering(void *unused) {
    (void)unused;
    for (;;) {
        while (sem_wait(&go) != 0) {
        }
        int fd = trigger_fd;
        if (fd == -2)
            return NULL;
        if (state & 1)
            sched_yield();
        if (trigger_meddles) {
            usleep(100);
            let_a_stranger_meddle();
            dup2(FD_MAX - 7, trigger_reader);
        }
        uint64_t one = 1;
        if (write(fd, &one, sizeof one) < 0)
            printf("  trigger: %s\n", strerror(errno));
        trigger_fd = -1;
    }
}

static void block_and_wake(void) {
    /* All descriptors that are not ready for the wanted events, and one pair that will be ready. */
    static struct pollfd set[HELD_MAX + 8], after[HELD_MAX + 8];
    int pair[2];
    switch (pick(3)) {
    case 0:
        if (pipe(pair) != 0)
            return;
        break;
    case 1:
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            return;
        break;
    default:
        pair[0] = eventfd(0, 0);
        pair[1] = pair[0] >= 0 ? dup(pair[0]) : -1;
    }
    if (pair[0] < 0 || pair[1] < 0)
        return;
    nfds_t count = 0;
    for (int i = 0; i < held_count; i++)
        if (pick(2))
            set[count++] = (struct pollfd){held[i], random_events() & ~POLLNVAL, 0};
    syscall(SYS_poll, set, count, 0);
    nfds_t quiet = 0;
    for (nfds_t i = 0; i < count; i++)
        if (set[i].revents == 0)
            set[quiet++] = set[i];
    set[quiet++] = (struct pollfd){pair[0], POLLIN, 0};
    bool is_select = pick(2), warms_up = pick(2);
    static struct wide_sets sets;
    memset(&sets, 0, sizeof sets);
    int n = 0;
    for (nfds_t i = 0; i < quiet; i++)
        for (int which = 0; which < 3; which++) {
            static const short meaning[] = {POLLIN, POLLOUT, POLLPRI};
            if (set[i].events & meaning[which] && set[i].fd < FD_MAX) {
                sets.set[which][set[i].fd / 64] |= UINT64_C(1) << (set[i].fd % 64);
                n = set[i].fd >= n ? set[i].fd + 1 : n;
            }
        }
    if (warms_up) { /* half of the time, the library knows it before the sleep */
        static struct wide_sets copy;
        copy = sets;
        is_select ? library_select(n, &copy, 0) : poll(set, quiet, 0);
    }
    trigger_fd = pair[1];
    trigger_reader = pair[0];
    trigger_meddles = pick(3) == 0;
    sem_post(&go);
    int result = is_select ? select(n, (fd_set *)(void *)sets.set[0], (fd_set *)(void *)sets.set[1],
                                    (fd_set *)(void *)sets.set[2], NULL)
                           : poll(set, quiet, -1);
    while (trigger_fd != -1)
        sched_yield();
    memcpy(after, set, sizeof set);
    syscall(SYS_poll, after, quiet, 0);
    comparisons++;
    blocked++;
    bool is_wrong = result <= 0;
    for (nfds_t i = 0; i < quiet && !is_wrong && !is_select; i++)
        is_wrong = (set[i].revents & ~after[i].revents) != 0;
    if (is_wrong && mismatches++ < 10)
        printf("  blocking %s: result %d\n", is_select ? "select" : "poll", result);
    close(pair[0]);
    close(pair[1]);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, check_hung);
    long wanted = atol(argv[2]);
    state = (uint64_t)atol(argv[1]) * 7919 + 12345;
    sigset_t raised;
    sigemptyset(&raised);
    sigaddset(&raised, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &raised, NULL);
    signal(SIGUSR2, SIG_IGN); /* from here on a mask may let it in */
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listener_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof listener_address;
    if (bind(listener, (struct sockaddr *)&listener_address, sizeof listener_address) != 0 ||
        listen(listener, 50) != 0 || getsockname(listener, (struct sockaddr *)&listener_address, &length) != 0)
        return 2;
    hold(listener);
    pthread_t trigger;
    sem_init(&go, 0, 0);
    if (pthread_create(&trigger, NULL, triggering, NULL) != 0)
        return 2;
    for (long step = 0; comparisons < wanted && mismatches < 20; step++) {
        int i = held_count > 1 ? (int)(1 + pick((unsigned)held_count - 1)) : 0;
        if (step % 64 == 0)
            /* From the last progress, not for the whole run, because the machine may be slow. */
            alarm(CHECK_HANG_S);
        switch (pick(12)) {
        case 0:
        case 1:
        case 2:
            create();
            break;
        case 3:
        case 4:
            if (i && held_count > 60 - (int)pick(50))
                let_go(i);
            break;
        case 5:
            if (i && pick(2) == 0)
                copy(i);
            break;
        case 6:
            if (pick(300) == 0)
                fork_and_compare();
            else if (pick(8) == 0)
                block_and_wake();
            else if (pick(4) == 0)
                let_a_stranger_meddle();
            break;
        default:
            if (i)
                use(i);
        }
        compare_once();
    }
    trigger_fd = -2;
    sem_post(&go);
    pthread_join(trigger, NULL);
    for (int i = 0; i < child_count; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    printf("seed %s: %ld comparisons (%ld blocking), %ld strangers, %ld ready, %ld mismatches\n", argv[1], comparisons,
           blocked, strangers, ready_total, mismatches);
    return mismatches != 0;
}
