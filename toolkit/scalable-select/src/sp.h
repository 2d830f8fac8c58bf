/* Terms and structures of this library. The sets are those of Banga and Mogul (1998), section 4.1, kept for each
 * thread:
 *
 *   SELECTING   what this call of select or poll names
 *   INTERESTED  descriptors registered with the thread's epoll instance (edge triggered)
 *   HINTS       what that epoll instance reports: descriptors that may have become ready
 *   quiet       poll bits of a descriptor that are known to be NOT ready: the complement of the paper's READY, so that
 *               zeroed memory means "nothing is known" and a forgotten descriptor is always examined
 *
 * A call examines (asks the kernel about) only descriptors of SELECTING with a wanted bit that is not quiet. This is
 * correct because of the invariant:
 *
 *   (I) for every bit in quiet[fd]: the file open at fd is not ready for it, or a hint for fd is waiting in the
 *       thread's epoll instance, or fd is marked stale in this thread.
 *
 * A descriptor number gets another file when it is closed and allocated again, possibly by another thread while this
 * one is about to record what it learned of the old file. Rules (life.c; test/model_generation.c tries every order):
 *
 *   forgetter: generation[fd]++; if some thread is interested in fd, mark fd stale there
 *              (before the close, with EPOLL_CTL_DEL; again after it; again when a descriptor is created)
 *   learner:   interested[fd] set; g = generation[fd]; ask the kernel; record quiet;
 *              if generation[fd] != g, take quiet back
 *
 * with all accesses to generation and interested sequentially consistent: whichever comes first, the other sees it.
 *
 * Tasks that share this memory but not the descriptor table (table.c) are neither forgetters nor learners. */
#ifndef SP_H
#define SP_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#if !defined(__linux__) || !defined(__LP64__)
#error "scalable-select needs 64-bit Linux"
#endif

#define SP_FD_LIMIT (1 << 20) /* descriptors at or above this are always left to the kernel */
#define SP_THREADS_MAX 1024   /* threads with an epoll instance at one time; more are left to the kernel */
#define SP_EVENTS 256         /* hints taken by one epoll_wait */
#define SP_WORD 64
#define SP_KICK UINT64_MAX /* epoll data of the hint that only means: look again */

/* Poll bits by the group that is registered together. HUP and ERR are always reported, and belong to every group. */
#define SP_BITS_READ (POLLIN | POLLRDNORM | POLLRDBAND)
#define SP_BITS_PRI POLLPRI
#define SP_BITS_RDHUP 0x2000
#define SP_BITS_WRITE (POLLOUT | POLLWRNORM | POLLWRBAND)
#define SP_BITS_ALWAYS (POLLERR | POLLHUP)
#define SP_BITS_ALL (SP_BITS_READ | SP_BITS_PRI | SP_BITS_RDHUP | SP_BITS_WRITE | SP_BITS_ALWAYS)

/* Meaning of select's three sets in poll bits (fs/select.c: POLLIN_SET, POLLOUT_SET, POLLEX_SET). */
#define SP_SET_IN (SP_BITS_READ | POLLHUP | POLLERR)
#define SP_SET_OUT (SP_BITS_WRITE | POLLERR)
#define SP_SET_EX POLLPRI

/* interested[fd]: groups registered, and */
enum {
    SP_READ = 1,
    SP_PRI = 2,
    SP_RDHUP = 4,
    SP_WRITE = 8,
    SP_GROUPS = SP_READ | SP_PRI | SP_RDHUP | SP_WRITE,
    SP_REGISTERED = 0x40, /* an item for fd is in, or about to enter, the epoll instance */
    SP_UNWATCHABLE = 0x80 /* epoll cannot be trusted with this file, so it is examined in every call */
};

enum sp_verdict { SP_WATCHED, SP_EXAMINE_ALWAYS, SP_BAD_FD, SP_BROKEN };

struct sp_counts {
    uint64_t calls;                                  /* scaled */
    uint64_t passed_small, passed_hot, passed_other; /* handed to the kernel, and why */
    uint64_t selecting, examined, hints, spurious;
    uint64_t added, modified, removed, unwatchable;
    uint64_t lost, missed_closes, conflicts, zombies, rebuilds, watchdog_runs;
};

/* One for each thread that selects. Only its owner writes it, except the _Atomic members. The mapping is wiped in
 * a fork's child, so all zero must mean "no epoll instance, nothing known". */
struct sp_thread {
    _Atomic int is_live;
    _Atomic int epfd; /* valid while is_live */
    _Atomic int task; /* the owner's number (gettid); 0 if it has left the table */
    int slot;
    int capacity;              /* descriptors below this can be watched; a multiple of SP_WORD * SP_WORD */
    int fd_end;                /* all descriptors with knowledge are below this */
    _Atomic int is_in_call;    /* like is_busy, for other threads: see forget in life.c */
    volatile int is_busy;      /* inside a call, which a signal handler that selects must not enter */
    volatile uint64_t ticket;  /* number of the call that owns the state, see sp_enter */
    char *frame;               /* stack position of that call */
    volatile int must_rebuild; /* whether the thread's knowledge is unreliable */
    bool must_drop;            /* the epoll instance costs more than it saves for a while */
    bool has_bitmaps;          /* quiet_in, quiet_out, quiet_ex are kept (the thread has used select) */
    bool expects_hints;        /* the last look at the epoll instance before sleeping found hints */
    uint64_t watched_ns;       /* when the watchdog last ran */
    /* adaptive.c */
    int64_t gain_ns;        /* running estimate of the kernel's cost of a call minus ours, from our calls */
    int64_t kernel_gain_ns; /* the same estimate, from results of the kernel's calls */
    unsigned looks;         /* kernel calls since there was a reason to ask */
    unsigned skip, backoff, probes;
    uint64_t asked;          /* size of the set of the call that is passed on */
    uint64_t skip_selecting; /* size of the set when the kernel was found cheaper */
    int zombies, failures;

    uint16_t *quiet;   /* [capacity] */
    uint16_t *hint;    /* [capacity] bits reported in the current call */
    uint32_t *serial;  /* [capacity] number of the registration; a hint with another one does not belong to fd */
    uint8_t *unwanted; /* [capacity] successive hints that woke a call without a result */
    _Atomic uint8_t *interested; /* [capacity] */
    uint32_t next_serial;
    int *hinted; /* [capacity] descriptors with hint != 0 */
    int hinted_count;
    uint64_t *quiet_in, *quiet_out, *quiet_ex; /* [capacity / 64] bit set: the whole SP_SET_... is quiet */
    uint64_t *result;                          /* [3 * capacity / 64] */

    _Atomic uint64_t *stale;         /* [capacity / 64] marked by forgetters, taken by the owner */
    _Atomic uint64_t *stale_summary; /* [capacity / 4096] */
    _Atomic uint32_t stale_any;

    /* The array of the last poll, which is compared with the next one (array.h). */
    uint64_t *remembered; /* [capacity] */
    uint32_t *place;      /* [capacity] index of fd in it */
    uint32_t remembered_count;
    bool has_duplicates; /* whether the array of this call names a descriptor twice */

    struct pollfd *examine;       /* [1 + capacity]; 0 is the epoll instance */
    int *examine_index;           /* [1 + capacity] index in the caller's array */
    uint32_t *examine_generation; /* [1 + capacity] */
    int examine_count;

    struct epoll_event event[SP_EVENTS];
    struct sp_counts counts;
};

struct sp_options {
    int min_set;     /* sets of at most this many descriptors go to the kernel */
    int watchdog_ms; /* 0: no watchdog */
    bool is_adaptive;
    bool is_off;
    bool is_plain; /* compare without this processor's special instructions (for tests) */
};
extern struct sp_options sp_options;
void sp_options_read(void);

/* --- registry.c: threads and their epoll instances */
extern _Atomic int sp_slots_used;   /* 0 until a thread has had an epoll instance: the hooks' fast test */
extern _Atomic int sp_is_sandboxed; /* set by a seccomp filter: the library makes no calls besides the program's */
void sp_registry_start(void);
struct sp_thread *sp_slot(int slot);     /* NULL if the slot has no live thread */
struct sp_thread *sp_own(void);          /* the calling thread's, created if needed; NULL: leave it to the kernel */
void sp_drop_epoll(struct sp_thread *t); /* forgets all and closes the epoll instance, which is recreated when needed */
int sp_epoll_ready(struct sp_thread *t); /* 0, or -1 if there is none and none can be created now */
bool sp_is_ours(int fd);                 /* also in the calling task's table */
unsigned
sp_next_ours(unsigned from);    /* lowest of the library's descriptors that is >= from; UINT_MAX if there is none */
bool sp_move_epoll_off(int fd); /* the program wants this number; false if it could not be vacated */
bool sp_is_own(const struct sp_thread *t);
struct sp_thread *sp_current(void); /* what sp_own returned last */
void sp_release_own(void);
void sp_fork_prepare(void); /* around a fork */
void sp_fork_child(void);
void *sp_map_wiped_on_fork(size_t bytes);
int sp_status_number(const char *name); /* field of /proc/thread-self/status, by its line's beginning; 0 if missing */
int sp_kick_descriptor(
    void); /* an eventfd that is always readable, created when first needed; -1 if that is impossible */
bool sp_table_reaches(int n); /* the kernel's descriptor table has numbers up to n - 1 */
void sp_refresh_limit(void);
int sp_descriptor_limit(void); /* soft RLIMIT_NOFILE as last seen */
void sp_each_thread_counts(void (*visit)(const struct sp_counts *, void *), void *context);

/* --- table.c: who shares the descriptor table */
bool sp_table_start(void);
/* A task that runs on its parent's thread-local memory finds its parent's knowledge there. It was created by
 * vfork, which the parent marks in that memory until it is back, or by clone. The marks exist only on x86-64. */
extern _Thread_local char sp_has_vforked __attribute__((tls_model("initial-exec")));
extern int sp_has_cloned;
static inline bool sp_may_be_child(void) {
#ifdef __x86_64__
    return sp_has_vforked != 0 || __atomic_load_n(&sp_has_cloned, __ATOMIC_RELAXED) != 0;
#else
    return true;
#endif
}
bool sp_is_other_process(void); /* a child that shares the memory; its changes to itself do not affect this process */
bool sp_is_at_home(void);       /* the calling task may use the library's state of descriptors */
bool sp_may_own(void);          /* and may have separate state */
bool sp_table_leave(void);      /* before the thread gets a separate table: true if it has one to leave; if the call */
void sp_table_stay(void);       /* that was to do it then fails */

/* --- life.c: descriptors get another file */
extern _Atomic uint32_t *sp_generation; /* [SP_FD_LIMIT] */
void sp_life_start(void);
void sp_forget_closing(int fd); /* about to be closed; also leaves the epoll instances */
void sp_forget_closed(int fd);
void sp_forget_created(int fd);
void sp_forget_failed(int fd);                /* it was about to be closed, and was not */
void sp_forget_readiness(int fd, int option); /* a socket option that wakes no waiter was set */
void sp_forget_range(unsigned first, unsigned last, bool is_closed);
void sp_take_stale(struct sp_thread *t);

/* --- interest.c */
enum sp_verdict sp_watch(struct sp_thread *t, int fd, unsigned wanted);
void sp_unwatch(struct sp_thread *t, int fd);
void sp_narrow(struct sp_thread *t, int fd, unsigned bits);
void sp_set_quiet(struct sp_thread *t, int fd, unsigned bits);
void sp_build_bitmaps(struct sp_thread *t);
unsigned sp_group_bits(unsigned groups);
bool sp_is_anonymous(int fd, const char *kind); /* an anonymous inode of this kind, as far as /proc shows */

/* --- hints.c */
int sp_harvest(struct sp_thread *t); /* number of hints taken, or -1 if the epoll instance is gone */
void sp_learn(struct sp_thread *t);
void sp_clear_hints(struct sp_thread *t);
void sp_blame_spurious(struct sp_thread *t);

/* --- wait.c */
struct sp_deadline {
    bool is_infinite, is_zero;
    uint64_t end_ns;
};
struct sp_call {
    struct sp_thread *t;
    uint64_t ticket;
    struct sp_deadline deadline;
    const sigset_t *given; /* the caller's mask argument */
    const sigset_t *mask;  /* the mask during the sleep, or NULL for the thread's mask */
    bool has_blocked;      /* all signals are blocked and `saved` holds the thread's mask */
    sigset_t saved;
    bool has_slept;        /* or is about to */
    uint32_t first_serial; /* t->next_serial at the entry */
    unsigned rounds;
};
/* In one scan, before signals are blocked. */
#define SP_REGISTRATIONS_UNBLOCKED 8
#define SP_CANDIDATES_UNBLOCKED 256
enum sp_wait { SP_WOKEN, SP_TIMED_OUT, SP_SLICE_OVER, SP_FAILED, SP_LOST_CONTROL };
uint64_t sp_now_ns(void);
uint64_t sp_now_coarse_ns(void);
void sp_deadline_start(struct sp_deadline *d, const struct timespec *timeout);
struct timespec sp_deadline_left(const struct sp_deadline *d);
bool sp_enter(struct sp_call *c, struct sp_thread *t, const struct timespec *timeout, const sigset_t *mask,
              char *frame);
void sp_leave(struct sp_call *c);
void sp_block_signals(struct sp_call *c);
bool sp_in_control(const struct sp_call *c);
enum sp_wait sp_wait(struct sp_call *c, bool must_not_sleep);
/* Long work before the first sleep is done with signals blocked, because a handler that runs meanwhile must end
 * the call. */
static inline void sp_block_signals_for_long(struct sp_call *c) {
    if (!c->deadline.is_zero)
        sp_block_signals(c);
}
static inline void sp_note_work(struct sp_call *c) {
    if (c->t->next_serial - c->first_serial >= SP_REGISTRATIONS_UNBLOCKED ||
        c->t->examine_count >= SP_CANDIDATES_UNBLOCKED)
        sp_block_signals_for_long(c);
}

/* --- adaptive.c */
bool sp_should_pass(struct sp_thread *t, uint64_t selecting);
void sp_account_passed(int ready);
void sp_account(struct sp_thread *t, uint64_t selecting, uint64_t examined, uint64_t changes);

/* --- watchdog.c */
bool sp_watchdog_is_due(const struct sp_thread *t);
int sp_watchdog(struct sp_thread *t); /* lost hints found, or -1 if the epoll instance is gone */
static inline int sp_watchdog_at_entry(struct sp_call *c) {
    sp_block_signals_for_long(c);
    return sp_watchdog(c->t);
}

/* --- memory.c */
void sp_memory_start(void);
extern bool sp_memory_can_check; /* otherwise all memory counts as writable */
bool sp_memory_is_writable(const void *start, size_t bytes);

/* --- poll.c, select.c: SP_PASS means that nothing was touched; call the kernel with the same arguments. */
#define SP_PASS (-2)
#define SP_PASS_JUDGED (-3) /* the same; the kernel's answer goes to sp_account_passed */
int sp_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
int sp_select(int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *timeout, const sigset_t *mask);

/* --- stats.c */
void sp_stats_start(void);
void sp_stats_report(void); /* once per process */
void sp_stats_leave_signals(void);
bool sp_is_our_handler(void (*handler)(int));
struct sp_counts sp_stats_sum(void);
extern bool sp_has_report; /* the program wants a report of the calls that were passed on */
int sp_count_small(void);
int sp_pass_other(void);         /* counts the call and returns SP_PASS */
int sp_pass_without_state(void); /* the same, unless the task is another process in this memory */
void sp_stats_fork_child(void);
static inline int sp_pass_small(void) {
    return __builtin_expect(sp_has_report, 0) ? sp_count_small() : SP_PASS;
}
extern _Atomic uint64_t sp_missed_closes,
    sp_removed; /* written by forgetters, which may not write a thread's counters */

/* The thread's counters have one writer; readers (the report at exit) may be other threads. */
#define SP_COUNT(t, field, n) __atomic_store_n(&(t)->counts.field, (t)->counts.field + (uint64_t)(n), __ATOMIC_RELAXED)

#endif
