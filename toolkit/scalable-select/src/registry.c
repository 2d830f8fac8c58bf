/* The threads that call select or poll, and their epoll instances.
 *
 * All data is in mappings that are wiped in a fork's child (MADV_WIPEONFORK), because a child shares its parent's
 * epoll instances and must never touch one. Zero means "no thread has an instance". A thread's mapping is never
 * unmapped but reused, so that a hook in another thread may read it at any time without a lock. */
#define _GNU_SOURCE
#include "lowest_free.h"
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GRAIN (SP_WORD * SP_WORD)     /* capacities are multiples of this: whole words of stale_summary */
#define RETRY_NS UINT64_C(1000000000) /* after a failure to get an epoll instance */

/* The limit on descriptors belongs to the program. The library always takes a few for epoll instances; more of
 * them use at most a quarter of the limit, and leave an eighth free. */
enum { FEW_INSTANCES = 16, INSTANCES_PART = 4, FREE_PART = 8 };

struct registry {
    int is_made;
    pthread_mutex_t lock;
    _Atomic(struct sp_thread *) slot[SP_THREADS_MAX]; /* set once; stays after the thread, for the next one */
    struct sp_counts ended;                           /* of threads that have ended */
    uint64_t failed_ns;
    _Atomic int instances;     /* epoll instances that are open */
    _Atomic int table_size;    /* the kernel's table has at least this many numbers */
    _Atomic int kick;          /* number of the descriptor that wakes sleepers, plus 1 */
    uint64_t slots_memory[64]; /* lowest_free of SP_THREADS_MAX numbers */
};

_Atomic int sp_slots_used;
_Atomic int sp_is_sandboxed;
static struct registry *registry;
static _Atomic int descriptor_limit = 1024;
static pthread_key_t at_thread_end;
static bool is_usable;
static _Thread_local struct sp_thread *own __attribute__((tls_model("initial-exec")));

/* Numbers (plus 1) of the epoll instances, in memory that a child inherits, so that it can close them
   (sp_fork_child). */
enum { KICK = SP_THREADS_MAX };
static _Atomic int inherited[SP_THREADS_MAX + 1];
static _Thread_local bool forks_at_home __attribute__((tls_model("initial-exec")));
static _Thread_local int forks_in_call __attribute__((tls_model("initial-exec"))); /* capacity; 0 outside a call */

/* In a child that was forked without the handlers (clone) these values are its parent's. */
static void forget_parent(void) {
    for (int i = 0; i <= KICK; i++)
        atomic_store_explicit(&inherited[i], 0, memory_order_relaxed);
}

static struct lowest_free *slots(void) {
    return (struct lowest_free *)(void *)registry->slots_memory;
}

/* A signal handler of this thread may call poll, and must not find the lock taken. */
static void lock(sigset_t *saved) {
    sigset_t all;
    sigfillset(&all);
    sp_real.syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, saved, _NSIG / 8);
    pthread_mutex_lock(&registry->lock);
    if (!registry->is_made) {
        forget_parent();
        atomic_store(&sp_slots_used, 0);
        lowest_free_init(registry->slots_memory, sizeof registry->slots_memory, SP_THREADS_MAX);
        registry->is_made = 1;
    }
}

static void unlock(const sigset_t *saved) {
    pthread_mutex_unlock(&registry->lock);
    sp_real.syscall(SYS_rt_sigprocmask, SIG_SETMASK, saved, NULL, _NSIG / 8);
}

void *sp_map_wiped_on_fork(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, bytes, MADV_WIPEONFORK) == 0)
        return memory;
    munmap(memory, bytes);
    return NULL;
}

void sp_refresh_limit(void) {
    struct rlimit limit;
    if (!atomic_load(&sp_is_sandboxed) && sp_real.syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) == 0)
        atomic_store(&descriptor_limit, limit.rlim_cur > INT32_MAX ? INT32_MAX : (int)limit.rlim_cur);
}

int sp_descriptor_limit(void) {
    return atomic_load_explicit(&descriptor_limit, memory_order_relaxed);
}

static int wanted_capacity(void) {
    int limit = sp_descriptor_limit();
    if (limit >= SP_FD_LIMIT)
        return SP_FD_LIMIT;
    return limit < GRAIN ? GRAIN : (limit + GRAIN - 1) / GRAIN * GRAIN;
}

/* Hands out arrays from one mapping, each on its own cache line. With base NULL it only adds up the sizes. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *c, size_t bytes) {
    size_t at = (c->used + 63) & ~(size_t)63;
    c->used = at + bytes;
    return c->base != NULL ? c->base + at : NULL;
}

static size_t lay_out(struct sp_thread *t, char *base, size_t capacity) {
    struct carver c = {base, sizeof *t};
    size_t words = capacity / SP_WORD * sizeof(uint64_t);
    t->quiet = carve(&c, capacity * sizeof *t->quiet);
    t->hint = carve(&c, capacity * sizeof *t->hint);
    t->serial = carve(&c, capacity * sizeof *t->serial);
    t->unwanted = carve(&c, capacity);
    t->interested = carve(&c, capacity);
    t->hinted = carve(&c, capacity * sizeof *t->hinted);
    t->quiet_in = carve(&c, words);
    t->quiet_out = carve(&c, words);
    t->quiet_ex = carve(&c, words);
    t->result = carve(&c, 3 * words);
    t->remembered = carve(&c, capacity * sizeof *t->remembered);
    t->place = carve(&c, capacity * sizeof *t->place);
    t->stale = carve(&c, words);
    t->stale_summary = carve(&c, words / SP_WORD);
    t->examine = carve(&c, (capacity + 1) * sizeof *t->examine);
    t->examine_index = carve(&c, (capacity + 1) * sizeof *t->examine_index);
    t->examine_generation = carve(&c, (capacity + 1) * sizeof *t->examine_generation);
    t->capacity = (int)capacity;
    return c.used;
}

static struct sp_thread *make_thread(int capacity) {
    struct sp_thread measure;
    size_t bytes = lay_out(&measure, NULL, (size_t)capacity);
    struct sp_thread *t = sp_map_wiped_on_fork(bytes);
    if (t != NULL)
        lay_out(t, (char *)t, (size_t)capacity);
    return t;
}

/* Reading it opens a descriptor for a moment, directly, without the library's hooks. */
int sp_status_number(const char *name) {
    char text[2048];
    long fd = sp_real.syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    long got = sp_real.syscall(SYS_read, fd, text, sizeof text - 1);
    sp_real.syscall(SYS_close, fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *field = strstr(text, name);
    return field != NULL ? atoi(field + strlen(name)) : 0;
}

/* A table only grows. */
bool sp_table_reaches(int n) {
    if (registry == NULL)
        return false;
    if (n > atomic_load(&registry->table_size))
        atomic_store(&registry->table_size, sp_status_number("\nFDSize:"));
    return n <= atomic_load(&registry->table_size);
}

/* An epoll instance takes a descriptor number. The highest free one that does not enlarge the kernel's table
 * leaves the low numbers to the program, and does not change behaviour that depends on the table's size (select
 * ignores bits beyond it). */
static int move_high(long fd) {
    int top = sp_status_number("\nFDSize:");
    if (top > sp_descriptor_limit())
        top = sp_descriptor_limit();
    for (int number = top - 1; number > (int)fd && number > top - SP_WORD; number--) {
        if (sp_real.syscall(SYS_fcntl, number, F_GETFD) >= 0)
            continue;
        long moved = sp_real.syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, number);
        if (moved >= 0) {
            sp_real.syscall(SYS_close, fd);
            fd = moved;
        }
        break;
    }
    return (int)fd;
}

/* The lowest free number shows how many the program has, because most of the library's are above it. */
static int open_epoll(int others) {
    long fd = sp_real.syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
    int limit = sp_descriptor_limit();
    if (fd >= 0 && others >= FEW_INSTANCES && fd + others > limit - limit / FREE_PART) {
        sp_real.syscall(SYS_close, fd);
        fd = -1;
    }
    return fd < 0 ? -1 : move_high(fd);
}

/* A hidden descriptor may have been closed without notice, so its number may now belong to the program. */
static bool is_still(int fd, const char *kind) {
    return atomic_load(&sp_is_sandboxed) || sp_is_anonymous(fd, kind);
}

int sp_kick_descriptor(void) {
    int known = atomic_load(&registry->kick);
    if (known != 0 && is_still(known - 1, "[eventfd]"))
        return known - 1;
    long fd = sp_real.syscall(SYS_eventfd2, 1, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -1;
    fd = move_high(fd);
    if (!atomic_compare_exchange_strong(&registry->kick, &known, (int)fd + 1)) {
        sp_real.syscall(SYS_close, fd);
        return known - 1;
    }
    atomic_store(&inherited[KICK], (int)fd + 1);
    return (int)fd;
}

bool sp_is_own(const struct sp_thread *t) {
    return t == own;
}

int sp_epoll_ready(struct sp_thread *t) {
    if (atomic_load_explicit(&t->epfd, memory_order_relaxed) >= 0)
        return 0;
    uint64_t now = sp_now_coarse_ns();
    uint64_t failed = __atomic_load_n(&registry->failed_ns, __ATOMIC_RELAXED);
    if (failed != 0 && now - failed < RETRY_NS)
        return -1;
    int others = atomic_fetch_add(&registry->instances, 1);
    bool is_allowed = others < FEW_INSTANCES || others < sp_descriptor_limit() / INSTANCES_PART;
    int fd = is_allowed ? open_epoll(others) : -1;
    if (fd < 0)
        atomic_fetch_sub(&registry->instances, 1);
    if (!is_allowed)
        return -1;
    if (fd < 0) {
        __atomic_store_n(&registry->failed_ns, now, __ATOMIC_RELAXED);
        return -1;
    }
    atomic_store(&t->epfd, fd);
    atomic_store(&inherited[t->slot], fd + 1);
    t->watched_ns = now;
    return 0;
}

void sp_drop_epoll(struct sp_thread *t) {
    int fd = atomic_exchange(&t->epfd, -1);
    if (fd >= 0)
        atomic_fetch_sub(&registry->instances, 1);
    atomic_store(&inherited[t->slot], 0);
    for (int i = 0; i < t->fd_end; i++)
        atomic_store_explicit(&t->interested[i], 0, memory_order_relaxed);
    size_t end = (size_t)t->fd_end, words = (end + SP_WORD - 1) / SP_WORD * sizeof(uint64_t);
    memset(t->quiet, 0, end * sizeof *t->quiet);
    memset(t->hint, 0, end * sizeof *t->hint);
    memset(t->unwanted, 0, end);
    memset(t->quiet_in, 0, words);
    memset(t->quiet_out, 0, words);
    memset(t->quiet_ex, 0, words);
    t->fd_end = t->hinted_count = t->zombies = 0;
    t->remembered_count = 0;
    t->must_rebuild = 0;
    if (fd >= 0 && !atomic_load(&sp_is_sandboxed) && sp_is_anonymous(fd, "[eventpoll]"))
        sp_real.syscall(SYS_close, fd);
}

static void fold(struct sp_counts *into, const struct sp_counts *from) {
    /* sp_counts consists of uint64_t only; the owner stores its counters one by one. */
    uint64_t *a = (uint64_t *)(void *)into;
    const uint64_t *b = (const uint64_t *)(const void *)from;
    for (size_t i = 0; i < sizeof *into / sizeof *a; i++)
        a[i] += __atomic_load_n(&b[i], __ATOMIC_RELAXED);
}

static void release(struct sp_thread *t) {
    if (!atomic_load(&t->is_live))
        return;
    sigset_t saved;
    lock(&saved);
    sp_drop_epoll(t);
    fold(&registry->ended, &t->counts);
    memset(&t->counts, 0, sizeof t->counts);
    t->is_busy = 0;
    atomic_store(&t->is_in_call, 0);
    t->skip = t->backoff = t->probes = t->looks = 0;
    t->gain_ns = t->kernel_gain_ns = 0;
    t->failures = 0;
    atomic_store(&t->is_live, 0);
    lowest_free_give(slots(), (size_t)t->slot);
    unlock(&saved);
    if (own == t)
        own = NULL;
}

/* The key's value may belong to another thread by now, after a fork or after its owner left the table. */
static void end_thread(void *thread) {
    struct sp_thread *t = thread;
    int task = atomic_load(&t->task);
    if (t == own && (task == 0 || atomic_load(&sp_is_sandboxed) || task == (int)sp_real.syscall(SYS_gettid)))
        release(t);
}

/* The calling thread is about to leave the table. A call of the same thread that a signal handler interrupted
 * finds here that it has lost control, and leaves the rest of the state alone. */
void sp_release_own(void) {
    struct sp_thread *t = own;
    if (t == NULL || !atomic_load(&t->is_live))
        return;
    if (!t->is_busy) {
        release(t);
        return;
    }
    t->ticket++;
    atomic_store(&t->task, 0);
    sp_drop_epoll(t);
}

static struct sp_thread *acquire(int task) {
    sigset_t saved;
    lock(&saved);
    struct sp_thread *t = NULL;
    size_t slot = lowest_free_take(slots());
    if (slot != LOWEST_FREE_NONE) {
        t = atomic_load(&registry->slot[slot]);
        /* A smaller mapping is left behind, because a hook may be reading it. Capacities only grow, so these are
           few. */
        if (t == NULL || t->capacity < wanted_capacity())
            t = make_thread(wanted_capacity());
        if (t == NULL) {
            lowest_free_give(slots(), slot);
        } else {
            t->slot = (int)slot;
            atomic_store(&t->epfd, -1);
            atomic_store(&t->task, task);
            atomic_store(&registry->slot[slot], t);
            atomic_store(&t->is_live, 1);
            if (atomic_load(&sp_slots_used) <= (int)slot)
                atomic_store(&sp_slots_used, (int)slot + 1);
        }
    }
    unlock(&saved);
    return t;
}

/* A child of vfork finds its parent's `own`. It may only use the kernel's call. */
struct sp_thread *sp_own(void) {
    struct sp_thread *t = own;
    if (__builtin_expect(atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed), 0))
        return NULL;
    bool is_live = t != NULL && atomic_load_explicit(&t->is_live, memory_order_relaxed);
    if (__builtin_expect(is_live && t->capacity >= wanted_capacity() && !sp_may_be_child(), 1))
        return t;
    int task = (int)sp_real.syscall(SYS_gettid);
    bool is_mine = is_live && atomic_load_explicit(&t->task, memory_order_relaxed) == task;
    if (is_mine)
        sp_has_vforked = 0; /* the parent is back */
    if (is_mine && t->capacity >= wanted_capacity())
        return t;
    if (!is_usable || sp_options.is_off || (is_live && (!is_mine || t->is_busy)) || !sp_may_own())
        return NULL;
    if (is_live)
        release(t); /* too small since the program raised its limit */
    t = own = acquire(task);
    if (t != NULL)
        pthread_setspecific(at_thread_end, t);
    return t;
}

struct sp_thread *sp_current(void) {
    return own;
}

struct sp_thread *sp_slot(int slot) {
    struct sp_thread *t = atomic_load_explicit(&registry->slot[slot], memory_order_acquire);
    return t != NULL && atomic_load(&t->is_live) ? t : NULL;
}

static bool has_our_number(int fd, const char **kind) {
    *kind = "[eventfd]";
    if (fd >= 0 && atomic_load_explicit(&registry->kick, memory_order_relaxed) == fd + 1)
        return true;
    *kind = "[eventpoll]";
    for (int i = 0, n = atomic_load(&sp_slots_used); i < n; i++) {
        struct sp_thread *t = sp_slot(i);
        if (t != NULL && atomic_load_explicit(&t->epfd, memory_order_relaxed) == fd)
            return true;
    }
    return false;
}

bool sp_is_ours(int fd) {
    const char *kind;
    return has_our_number(fd, &kind) && sp_is_at_home() && is_still(fd, kind);
}

unsigned sp_next_ours(unsigned from) {
    for (;; from++) {
        unsigned kick = (unsigned)atomic_load(&registry->kick) - 1; /* UINT_MAX if there is none */
        unsigned lowest = kick >= from ? kick : UINT_MAX;
        for (int i = 0, n = atomic_load(&sp_slots_used); i < n; i++) {
            struct sp_thread *t = sp_slot(i);
            int fd = t != NULL ? atomic_load_explicit(&t->epfd, memory_order_relaxed) : -1;
            if (fd >= 0 && (unsigned)fd >= from && (unsigned)fd < lowest)
                lowest = (unsigned)fd;
        }
        if (lowest == UINT_MAX || is_still((int)lowest, lowest == kick ? "[eventfd]" : "[eventpoll]"))
            return lowest;
        from = lowest;
    }
}

bool sp_move_epoll_off(int fd) {
    int kick = fd + 1;
    if (atomic_compare_exchange_strong(&registry->kick, &kick, 0)) { /* recreated when needed */
        atomic_store(&inherited[KICK], 0);
        return true;
    }
    for (int i = 0, n = atomic_load(&sp_slots_used); i < n; i++) {
        struct sp_thread *t = sp_slot(i);
        int expected = fd;
        if (t == NULL || atomic_load(&t->epfd) != fd)
            continue;
        long moved = sp_real.syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd);
        if (moved < 0)
            moved = sp_real.syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
        if (moved < 0)
            return false;
        if (!atomic_compare_exchange_strong(&t->epfd, &expected, (int)moved))
            sp_real.syscall(SYS_close, moved);
        else
            atomic_store(&inherited[i], (int)moved + 1);
    }
    return true;
}

void sp_each_thread_counts(void (*visit)(const struct sp_counts *, void *), void *context) {
    if (registry == NULL)
        return;
    visit(&registry->ended, context);
    for (int i = 0, n = atomic_load(&sp_slots_used); i < n; i++) {
        struct sp_thread *t = sp_slot(i);
        if (t == NULL)
            continue;
        struct sp_counts copy = {0};
        fold(&copy, &t->counts);
        visit(&copy, context);
    }
}

void sp_fork_prepare(void) {
    if (!is_usable)
        return;
    if (!registry->is_made)
        forget_parent();
    forks_at_home = sp_is_at_home();
    forks_in_call = own != NULL && atomic_load(&own->is_live) && own->is_busy ? own->capacity : 0;
}

/* In a child of a thread that left the table these numbers belong to the program. */
static void close_inherited(int i, const char *kind) {
    int fd = atomic_exchange(&inherited[i], 0) - 1;
    if (fd >= 0 && forks_at_home && is_still(fd, kind))
        sp_real.syscall(SYS_close, fd);
}

void sp_fork_child(void) {
    if (!is_usable)
        return;
    for (int i = 0, used = atomic_load(&sp_slots_used); i < used; i++)
        close_inherited(i, "[eventpoll]");
    close_inherited(KICK, "[eventfd]");
    atomic_store(&sp_slots_used, 0);
    sp_stats_fork_child();
    /* A signal handler forked. The interrupted call continues here until it finds that it has lost control. */
    if (forks_in_call != 0) {
        lay_out(own, (char *)own, (size_t)forks_in_call);
        atomic_store(&own->epfd, -1);
    }
    own = NULL;
    if (!atomic_load(&sp_is_sandboxed))
        sp_table_start();
}

/* pthread_atfork without the part that is linked in. Another C library, into which a child's environment may load
 * this one, lacks this function. Then the call is skipped, and the program must still start. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern void *__dso_handle;

void sp_registry_start(void) {
    if (__register_atfork == NULL)
        return;
    sp_refresh_limit();
    registry = sp_map_wiped_on_fork(sizeof *registry);
    is_usable = registry != NULL && sp_generation != NULL && sp_table_start() &&
                lowest_free_bytes(SP_THREADS_MAX) <= sizeof registry->slots_memory &&
                pthread_key_create(&at_thread_end, end_thread) == 0 &&
                __register_atfork(sp_fork_prepare, NULL, sp_fork_child, __dso_handle) == 0;
}
