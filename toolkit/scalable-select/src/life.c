/* A descriptor number gets another file: the forgetter's part of the protocol of sp.h. It uses no locks and no
 * memory from malloc, because close may be called in a signal handler. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <asm/sockios.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic uint32_t *sp_generation;

void sp_life_start(void) {
    void *memory = mmap(NULL, SP_FD_LIMIT * sizeof *sp_generation, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    sp_generation = memory != MAP_FAILED ? memory : NULL;
}

/* True if the descriptor was not marked before. */
static bool mark_stale(struct sp_thread *t, int fd) {
    int word = fd / SP_WORD;
    uint64_t bit = UINT64_C(1) << (fd % SP_WORD);
    /* Runs from the bit up to the flag. The owner takes them in the other order, so it misses
     * none. */
    uint64_t before = atomic_fetch_or(&t->stale[word], bit);
    atomic_fetch_or(&t->stale_summary[word / SP_WORD], UINT64_C(1) << (word % SP_WORD));
    atomic_store(&t->stale_any, 1);
    return (before & bit) == 0;
}

/* Another thread may sleep in a call that names fd, already woken for an event (such as a shutdown) but not yet
 * looking. Removing the item also removes the event for which it was woken, and the thread would sleep on. The
 * kernel's own call would find the descriptor ready or closed. So closing a ready descriptor wakes its sleepers to
 * look again. */
static bool is_ready(int fd) {
    struct pollfd p = {.fd = fd, .events = SP_BITS_READ | SP_BITS_WRITE | SP_BITS_PRI | SP_BITS_RDHUP};
    struct timespec now = {0, 0};
    return sp_real.syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0;
}

static void kick(struct sp_thread *t) {
    int fd = sp_kick_descriptor();
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = SP_KICK};
    if (fd >= 0 && sp_real.syscall(SYS_epoll_ctl, atomic_load(&t->epfd), EPOLL_CTL_MOD, fd, &event) != 0)
        sp_real.syscall(SYS_epoll_ctl, atomic_load(&t->epfd), EPOLL_CTL_ADD, fd, &event);
}

enum event { CLOSING, CLOSED, CREATED, FAILED };

static void forget(int fd, enum event event) {
    int used = atomic_load_explicit(&sp_slots_used, memory_order_acquire);
    if (used == 0 || fd < 0 || fd >= SP_FD_LIMIT)
        return;
    atomic_fetch_add(&sp_generation[fd], 1); /* harmless where it does not matter */
    bool is_at_home = false;
    for (int i = 0; i < used; i++) {
        struct sp_thread *t = sp_slot(i);
        if (t == NULL || fd >= t->capacity)
            continue;
        uint8_t interest = atomic_load(&t->interested[fd]);
        if (interest == 0)
            continue;
        if (!is_at_home && !(is_at_home = sp_is_at_home()))
            return;
        bool is_sandboxed = atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed);
        bool must_look_again =
            !is_sandboxed && !sp_is_own(t) && (event == FAILED || (event == CLOSING && is_ready(fd)));
        /* Only before the close. Afterwards the number may already belong to another file that the owner has just
         * registered, whose hints this would remove. */
        if (event == CLOSING && (interest & SP_REGISTERED) != 0 && !is_sandboxed) {
            sp_real.syscall(SYS_epoll_ctl, atomic_load(&t->epfd), EPOLL_CTL_DEL, fd, NULL);
            atomic_fetch_add_explicit(&sp_removed, 1, memory_order_relaxed);
        }
        bool is_new = mark_stale(t, fd);
        if (is_new && event == CREATED)
            atomic_fetch_add_explicit(&sp_missed_closes, 1, memory_order_relaxed);
        /* The owner has taken the mark from before the close, so it may have registered the descriptor again
         * before the close. The event for which it was woken is then lost a second time. */
        if (is_new && event != CLOSING)
            must_look_again = !is_sandboxed && !sp_is_own(t);
        /* After the mark: an owner that enters its call later takes the mark first. */
        if (must_look_again && atomic_load(&t->is_in_call))
            kick(t);
    }
}

void sp_forget_closing(int fd) {
    int saved = errno;
    forget(fd, CLOSING);
    errno = saved;
}

void sp_forget_closed(int fd) {
    int saved = errno;
    forget(fd, CLOSED);
    errno = saved;
}

void sp_forget_created(int fd) {
    int saved = errno;
    forget(fd, CREATED);
    errno = saved;
}

void sp_forget_failed(int fd) {
    int saved = errno;
    forget(fd, FAILED);
    errno = saved;
}

/* Also forgets the socket's other numbers. Most programs set these options on new connections,
 * where they change nothing yet. So all numbers are walked only for sockets with a waiting
 * urgent byte or error. */
void sp_forget_readiness(int fd, int option) {
    if (atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed))
        return;
    int saved = errno, is_at_mark = 0;
    struct pollfd p = {.fd = fd};
    struct timespec now = {0, 0};
    struct stat file, other;
    bool has_changed = option == SO_OOBINLINE ? ioctl(fd, SIOCATMARK, &is_at_mark) == 0 && is_at_mark != 0
                                              : sp_real.syscall(SYS_ppoll, &p, 1, &now, NULL, 0) > 0;
    if (has_changed && sp_is_at_home() && fstat(fd, &file) == 0)
        for (int i = 0, used = atomic_load(&sp_slots_used); i < used; i++) {
            struct sp_thread *t = sp_slot(i);
            for (int number = 0; t != NULL && number < t->capacity; number++)
                if (atomic_load_explicit(&t->interested[number], memory_order_relaxed) != 0 &&
                    fstat(number, &other) == 0 && other.st_ino == file.st_ino && other.st_dev == file.st_dev)
                    forget(number, CLOSED);
        }
    errno = saved;
}

/* For close_range: forgets every number in which a thread may be interested, because one that is
 * not yet in its sets may be about to enter them. */
void sp_forget_range(unsigned first, unsigned last, bool is_closed) {
    unsigned end = 0;
    for (int i = 0, used = atomic_load(&sp_slots_used); i < used; i++) {
        struct sp_thread *t = sp_slot(i);
        if (t != NULL && (unsigned)t->capacity > end)
            end = (unsigned)t->capacity;
    }
    int saved = errno;
    for (unsigned fd = first; fd <= last && fd < end; fd++)
        forget((int)fd, is_closed ? CLOSED : CLOSING);
    errno = saved;
}

/* The owner drops its knowledge of the marked descriptors. */
void sp_take_stale(struct sp_thread *t) {
    if (atomic_load_explicit(&t->stale_any, memory_order_relaxed) == 0 || atomic_exchange(&t->stale_any, 0) == 0)
        return;
    int summaries = t->capacity / (SP_WORD * SP_WORD);
    for (int s = 0; s < summaries; s++) {
        if (atomic_load_explicit(&t->stale_summary[s], memory_order_relaxed) == 0)
            continue;
        uint64_t words = atomic_exchange(&t->stale_summary[s], 0);
        while (words != 0) {
            int word = s * SP_WORD + __builtin_ctzll(words);
            words &= words - 1;
            uint64_t bits = atomic_exchange(&t->stale[word], 0);
            while (bits != 0) {
                int fd = word * SP_WORD + __builtin_ctzll(bits);
                bits &= bits - 1;
                sp_unwatch(t, fd);
            }
        }
    }
}
