/* The INTERESTED set: the descriptors that a thread has registered with its epoll instance, and those that it
   knows to be quiet. */
#define _GNU_SOURCE
#include "array.h"
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned sp_group_bits(unsigned groups) {
    return (groups & SP_READ ? SP_BITS_READ : 0) | (groups & SP_PRI ? SP_BITS_PRI : 0) |
           (groups & SP_RDHUP ? SP_BITS_RDHUP : 0) | (groups & SP_WRITE ? SP_BITS_WRITE : 0) | SP_BITS_ALWAYS;
}

static void put_bit(uint64_t *bitmap, int fd, bool value) {
    uint64_t bit = UINT64_C(1) << (fd % SP_WORD);
    bitmap[fd / SP_WORD] = value ? bitmap[fd / SP_WORD] | bit : bitmap[fd / SP_WORD] & ~bit;
}

static void put_bitmaps(struct sp_thread *t, int fd, unsigned bits) {
    put_bit(t->quiet_in, fd, (bits & SP_SET_IN) == SP_SET_IN);
    put_bit(t->quiet_out, fd, (bits & SP_SET_OUT) == SP_SET_OUT);
    put_bit(t->quiet_ex, fd, (bits & SP_SET_EX) == SP_SET_EX);
}

void sp_set_quiet(struct sp_thread *t, int fd, unsigned bits) {
    if (t->quiet[fd] & ~bits)
        sp_array_doubt(t, fd);
    t->quiet[fd] = (uint16_t)bits;
    if (t->has_bitmaps)
        put_bitmaps(t, fd, bits);
}

void sp_build_bitmaps(struct sp_thread *t) {
    for (int fd = 0; fd < t->fd_end; fd++)
        put_bitmaps(t, fd, t->quiet[fd]);
    t->has_bitmaps = true;
}

void sp_unwatch(struct sp_thread *t, int fd) {
    sp_set_quiet(t, fd, 0);
    t->unwanted[fd] = 0;
    atomic_store(&t->interested[fd], 0);
}

static long control(struct sp_thread *t, int operation, int fd, unsigned groups, uint32_t serial) {
    struct epoll_event event = {
        .events = EPOLLET | sp_group_bits(groups),
        .data.u64 = (uint64_t)serial << 32 | (uint32_t)fd,
    };
    return sp_real.syscall(SYS_epoll_ctl, atomic_load_explicit(&t->epfd, memory_order_relaxed), operation, fd, &event);
}

/* The link in /proc gives the name of an anonymous inode, such as "[eventfd]". Returns 1 if it has this name, 0 if
 * not, and -1 if /proc does not tell. */
static int has_link(int fd, const char *kind) {
    char link[40] = "/proc/thread-self/fd/", name[40];
    int at = 21, digits = 1;
    for (int rest = fd / 10; rest > 0; rest /= 10)
        digits++;
    for (int i = digits - 1, rest = fd; i >= 0; i--, rest /= 10)
        link[at + i] = (char)('0' + rest % 10);
    link[at + digits] = '\0';
    long length = sp_real.syscall(SYS_readlinkat, AT_FDCWD, link, name, sizeof name - 1);
    if (length <= 0)
        return -1;
    name[length] = '\0';
    return strncmp(name, "anon_inode:", 11) == 0 && strcmp(name + 11, kind) == 0;
}

bool sp_is_anonymous(int fd, const char *kind) {
    struct stat status;
    int saved = errno;
    bool is_it = fd >= 0 && fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0 && has_link(fd, kind) != 0;
    errno = saved;
    return is_it;
}

/* Only files whose poll is a plain function of their state are watched. Some files change what poll reports by being
 * polled (perf events, /proc/mounts, pressure triggers), some report depending on who asks (signalfd): taking a hint
 * while the program did not ask would consume the program's. The watched kinds are those of which programs have
 * thousands. Of sockets these are the families of the Internet and AF_UNIX: others send by being polled (AF_XDP), or
 * become ready without a wake-up when an option is set (AF_VSOCK). 0 yes, 1 no, -1 no such file. */
static int refuses_watch(int fd) {
    struct stat status;
    int family;
    socklen_t length = sizeof family;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) == 0)
        return family != AF_INET && family != AF_INET6 && family != AF_UNIX;
    if (errno == EBADF || fstat(fd, &status) != 0)
        return errno == EBADF ? -1 : 1;
    switch (status.st_mode & S_IFMT) {
    case S_IFIFO:
        return 0;
    case 0: /* anonymous inodes have no type */
        return has_link(fd, "[eventfd]") != 1 && has_link(fd, "[timerfd]") != 1;
    default:
        return 1;
    }
}

static unsigned groups_for(unsigned wanted) {
    unsigned groups = wanted & SP_BITS_WRITE ? SP_WRITE : 0;
    /* One registration serves select's first and third set and poll's read side. */
    if (wanted & (SP_BITS_READ | SP_BITS_PRI | SP_BITS_RDHUP))
        groups |= SP_READ | SP_PRI | SP_RDHUP;
    return groups;
}

static bool covers(unsigned groups, unsigned wanted) {
    return (wanted & SP_BITS_ALL & ~sp_group_bits(groups)) == 0;
}

/* Registers fd for the wanted poll bits if it is not registered yet. A registration reports the current state as a
 * hint, so its bits count as quiet from then on (invariant I). */
enum sp_verdict sp_watch(struct sp_thread *t, int fd, unsigned wanted) {
    unsigned have = atomic_load_explicit(&t->interested[fd], memory_order_relaxed);
    if (have & SP_UNWATCHABLE)
        return SP_EXAMINE_ALWAYS;
    if ((have & SP_REGISTERED) && covers(have & SP_GROUPS, wanted))
        return SP_WATCHED;
    if (atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed)) /* since the start of the call */
        return SP_BROKEN;
    if (fd >= t->fd_end)
        t->fd_end = fd + 1;
    if (!(have & SP_REGISTERED)) {
        if (sp_is_ours(fd))
            return SP_BAD_FD;
        int refuses = refuses_watch(fd);
        if (refuses < 0)
            return SP_BAD_FD;
        if (refuses > 0) {
            /* Marked before any generation is read, so that a forgetter that runs now sees the mark. */
            atomic_store(&t->interested[fd], SP_UNWATCHABLE);
            SP_COUNT(t, unwatchable, 1);
            return SP_EXAMINE_ALWAYS;
        }
    }
    /* A second request for more bits of the read side takes all of them, and so does a first one. Only narrowing
     * (below) leaves fewer. */
    unsigned groups = (have & SP_GROUPS) | groups_for(wanted & ~sp_group_bits(have & SP_GROUPS));
    atomic_store(&t->interested[fd], (uint8_t)(groups | SP_REGISTERED));
    uint32_t generation = atomic_load(&sp_generation[fd]);
    uint32_t serial = ++t->next_serial;
    int operation = have & SP_REGISTERED ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    for (int attempt = 0;; attempt++) {
        if (control(t, operation, fd, groups, serial) == 0)
            break;
        int error = errno;
        if (attempt < 3 && error == EEXIST) {
            operation = EPOLL_CTL_MOD;
            continue;
        }
        if (attempt < 3 && error == ENOENT) {
            operation = EPOLL_CTL_ADD;
            continue;
        }
        sp_unwatch(t, fd);
        if (error == EBADF && sp_real.syscall(SYS_fcntl, fd, F_GETFD) < 0)
            return SP_BAD_FD;
        if (!sp_is_anonymous(atomic_load(&t->epfd), "[eventpoll]"))
            return SP_BROKEN;
        /* EPERM, ELOOP, ENOSPC (max_user_watches), ENOMEM */
        atomic_store(&t->interested[fd], SP_UNWATCHABLE);
        SP_COUNT(t, unwatchable, 1);
        return SP_EXAMINE_ALWAYS;
    }
    if (operation == EPOLL_CTL_ADD)
        SP_COUNT(t, added, 1);
    else
        SP_COUNT(t, modified, 1);
    t->serial[fd] = serial;
    sp_set_quiet(t, fd, t->quiet[fd] | sp_group_bits(groups));
    if (atomic_load(&sp_generation[fd]) != generation) {
        sp_set_quiet(t, fd, 0); /* the forgetter's mark is set or about to be set */
        SP_COUNT(t, conflicts, 1);
    }
    return SP_WATCHED;
}

/* Hints for these bits keep waking a call that does not want them, so stop requesting them until they are wanted.
 * HUP and ERR are reported as long as fd is registered. */
void sp_narrow(struct sp_thread *t, int fd, unsigned bits) {
    unsigned have = atomic_load_explicit(&t->interested[fd], memory_order_relaxed), drop = 0;
    drop |= bits & SP_BITS_READ ? SP_READ : 0;
    drop |= bits & SP_BITS_PRI ? SP_PRI : 0;
    drop |= bits & SP_BITS_RDHUP ? SP_RDHUP : 0;
    drop |= bits & SP_BITS_WRITE ? SP_WRITE : 0;
    unsigned groups = have & SP_GROUPS & ~drop;
    if (!(have & SP_REGISTERED) || groups == (have & SP_GROUPS) ||
        atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed))
        return;
    /* The order matters: the quiet bits must be cleared before the hints on which they depend. */
    sp_set_quiet(t, fd, t->quiet[fd] & sp_group_bits(groups));
    atomic_store(&t->interested[fd], (uint8_t)(groups | SP_REGISTERED));
    uint32_t serial = ++t->next_serial;
    if (control(t, EPOLL_CTL_MOD, fd, groups, serial) == 0) {
        t->serial[fd] = serial;
        SP_COUNT(t, modified, 1);
    } else {
        sp_unwatch(t, fd);
    }
}
