/* select and pselect (fs/select.c: core_sys_select, do_select). */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS_MAX = 256 };
enum { SCAN_FAILED = -1, SCAN_EBADF = -2 };
enum { SET_IN, SET_OUT, SET_EX };

typedef uint64_t __attribute__((may_alias)) word_t;

/* The caller's sets as words, up to the last one that has a bit. n may be far above the kernel's table, as with
 * getdtablesize(). The kernel does not touch memory beyond its table, which may not belong to the set. */
struct sets {
    int n, words;
    word_t *set[3];   /* NULL if not given */
    word_t last_mask; /* bits of the last word that are below n */
};

static inline word_t load(const struct sets *s, int which, int word) {
    if (s->set[which] == NULL)
        return 0;
    word_t bits = *(const volatile word_t *)&s->set[which][word];
    return word == s->words - 1 ? bits & s->last_mask : bits;
}

static word_t any(const struct sets *s, int word) {
    return load(s, SET_IN, word) | load(s, SET_OUT, word) | load(s, SET_EX, word);
}

static uint64_t count_selecting(const struct sets *s) {
    uint64_t count = 0;
    for (int word = 0; word < s->words; word++)
        count += (uint64_t)__builtin_popcountll(any(s, word));
    return count;
}

/* The last word is kept if it has bits beyond n, because the kernel clears them. */
static void leave_out_empty_words(struct sets *s) {
    word_t mask = s->last_mask;
    int words = s->words;
    s->last_mask = UINT64_MAX;
    while (s->words > 0 && any(s, s->words - 1) == 0)
        s->words--;
    if (s->words == words)
        s->last_mask = mask;
}

static void set_result(struct sp_thread *t, const struct sets *s, int which, int fd, int *ready) {
    uint64_t bit = UINT64_C(1) << (fd % SP_WORD), *word = &t->result[which * s->words + fd / SP_WORD];
    if ((load(s, which, fd / SP_WORD) & bit) == 0 || (*word & bit) != 0)
        return;
    *word |= bit;
    ++*ready;
}

static void set_results(struct sp_thread *t, const struct sets *s, int fd, unsigned got, int *ready) {
    /* The bits beyond n in the last word are no candidates (see load). */
    if (fd / SP_WORD >= s->words)
        return;
    if (got & (SP_SET_IN | POLLNVAL))
        set_result(t, s, SET_IN, fd, ready);
    if (got & (SP_SET_OUT | POLLNVAL))
        set_result(t, s, SET_OUT, fd, ready);
    if (got & (SP_SET_EX | POLLNVAL))
        set_result(t, s, SET_EX, fd, ready);
}

/* Handles one candidate. A descriptor that is closed when the call begins fails the call (the kernel decides,
 * because it ignores bits beyond its table). One that is closed during the call is reported in all its sets, like
 * the kernel does when it looks again. */
static int scan_one(struct sp_call *c, const struct sets *s, int fd, bool is_first, int *bad) {
    struct sp_thread *t = c->t;
    int word = fd / SP_WORD;
    uint64_t bit = UINT64_C(1) << (fd % SP_WORD);
    uint64_t in = load(s, SET_IN, word) & bit, out = load(s, SET_OUT, word) & bit, ex = load(s, SET_EX, word) & bit;
    unsigned events = (in ? SP_BITS_READ : 0) | (out ? SP_BITS_WRITE : 0) | (ex ? SP_BITS_PRI : 0);
    sp_note_work(c);
    enum sp_verdict verdict = sp_watch(t, fd, events);
    if (verdict == SP_BAD_FD && !is_first) {
        set_results(t, s, fd, POLLNVAL, bad);
        return 0;
    }
    if (verdict == SP_BROKEN)
        t->must_rebuild = 1;
    if (verdict == SP_BAD_FD && sp_is_ours(fd)) /* the kernel would find it open */
        return SCAN_EBADF;
    if (verdict == SP_BAD_FD || verdict == SP_BROKEN)
        return SCAN_FAILED;
    if (verdict == SP_WATCHED &&
        ((in & ~t->quiet_in[word]) | (out & ~t->quiet_out[word]) | (ex & ~t->quiet_ex[word])) == 0)
        return 0;
    int i = ++t->examine_count;
    t->examine[i] = (struct pollfd){.fd = fd, .events = (short)events};
    t->examine_generation[i] = atomic_load(&sp_generation[fd]);
    return 0;
}

/* Fills the list of descriptors to examine; returns the number of results so far. */
static int scan(struct sp_call *c, const struct sets *s, bool is_first) {
    struct sp_thread *t = c->t;
    int bad = 0;
    t->examine_count = 0;
    memset(t->result, 0, (size_t)s->words * 3 * sizeof *t->result);
    for (int word = 0; word < s->words; word++) {
        uint64_t candidates = (load(s, SET_IN, word) & ~t->quiet_in[word]) |
                              (load(s, SET_OUT, word) & ~t->quiet_out[word]) |
                              (load(s, SET_EX, word) & ~t->quiet_ex[word]);
        while (candidates != 0) {
            int fd = word * SP_WORD + __builtin_ctzll(candidates);
            candidates &= candidates - 1;
            int verdict = scan_one(c, s, fd, is_first, &bad);
            if (verdict != 0)
                return verdict;
        }
    }
    return bad;
}

/* Returns the results so far, or SCAN_FAILED if only the kernel can answer: a descriptor was closed without
 * notice, or one that cannot be watched is ready in a way that select does not report, which ppoll cannot ignore. */
static int collect(struct sp_thread *t, const struct sets *s, int ready, bool is_first) {
    bool is_stuck = false;
    for (int i = 1; i <= t->examine_count; i++) {
        int fd = t->examine[i].fd, before = ready;
        unsigned got = (unsigned short)t->examine[i].revents;
        if (got == 0)
            continue;
        if ((got & POLLNVAL) && is_first)
            return SCAN_FAILED;
        set_results(t, s, fd, got, &ready);
        if (ready == before && (atomic_load(&t->interested[fd]) & SP_UNWATCHABLE))
            is_stuck = true;
    }
    for (int i = 0; i < t->hinted_count; i++)
        set_results(t, s, t->hinted[i], t->hint[t->hinted[i]], &ready);
    return ready == 0 && is_stuck ? SCAN_FAILED : ready;
}

static int finish_in_kernel(struct sp_call *c, const struct sets *s) {
    struct timespec left = sp_deadline_left(&c->deadline);
    return sp_real.pselect(s->n, (fd_set *)s->set[0], (fd_set *)s->set[1], (fd_set *)s->set[2],
                           c->deadline.is_infinite ? NULL : &left, c->mask);
}

/* Results are only written now, because a failing call leaves the caller's sets unchanged. */
static int report(struct sp_thread *t, const struct sets *s, int ready) {
    for (int which = 0; which < 3; which++)
        if (s->set[which] != NULL)
            memcpy(s->set[which], &t->result[which * s->words], (size_t)s->words * sizeof(word_t));
    return ready;
}

static int run(struct sp_call *c, const struct sets *s) {
    struct sp_thread *t = c->t;
    bool is_first = true, was_last_look = false;
    if (!t->has_bitmaps)
        sp_build_bitmaps(t);
    if (sp_watchdog_is_due(t) && sp_watchdog_at_entry(c) < 0)
        return finish_in_kernel(c, s);
    for (;; is_first = false) {
        sp_take_stale(t);
        int ready = scan(c, s, is_first);
        if (ready == SCAN_EBADF) {
            errno = EBADF;
            return -1;
        }
        if (ready == SCAN_FAILED)
            return finish_in_kernel(c, s);
        enum sp_wait wait = sp_wait(c, ready > 0);
        if (wait == SP_LOST_CONTROL)
            return finish_in_kernel(c, s);
        if (wait == SP_FAILED)
            return -1;
        ready = collect(t, s, ready, is_first);
        if (ready == SCAN_FAILED || !sp_in_control(c))
            return finish_in_kernel(c, s);
        if (ready > 0)
            return report(t, s, ready);
        if (wait == SP_TIMED_OUT) {
            if (was_last_look || atomic_load(&t->stale_any) == 0)
                return report(t, s, 0);
            was_last_look = true;
        } else if (wait == SP_SLICE_OVER) {
            if (sp_watchdog(t) < 0)
                return finish_in_kernel(c, s);
        } else {
            sp_blame_spurious(t);
            if (c->deadline.is_zero && c->given == NULL)
                return report(t, s, 0);
            if (++c->rounds > ROUNDS_MAX)
                return finish_in_kernel(c, s);
        }
    }
}

static int run_counted(struct sp_call *c, const struct sets *s, uint64_t selecting) {
    struct sp_thread *t = c->t;
    uint64_t examined = t->counts.examined, changes = t->counts.added + t->counts.modified;
    int result = run(c, s);
    if (sp_in_control(c)) {
        SP_COUNT(t, calls, 1);
        SP_COUNT(t, selecting, selecting);
        sp_account(t, selecting, t->counts.examined - examined, t->counts.added + t->counts.modified - changes);
    }
    return result;
}

int sp_select(int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *timeout, const sigset_t *mask) {
    if (n <= sp_options.min_set)
        return sp_pass_small();
    if (atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed))
        return sp_pass_other();
    struct sets s = {.n = n, .words = (n - 1) / SP_WORD + 1, .set = {(word_t *)in, (word_t *)out, (word_t *)ex}};
    s.last_mask = n % SP_WORD != 0 ? (UINT64_C(1) << (n % SP_WORD)) - 1 : UINT64_MAX;
    size_t bytes = (size_t)s.words * sizeof(word_t);
    if (n >= SP_FD_LIMIT ||
        (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)) ||
        (in != NULL && !sp_memory_is_writable(in, bytes)) || (out != NULL && !sp_memory_is_writable(out, bytes)) ||
        (ex != NULL && !sp_memory_is_writable(ex, bytes)) ||
        (n > FD_SETSIZE && !sp_memory_can_check && !sp_table_reaches(n)))
        return sp_pass_other();
    leave_out_empty_words(&s);
    uint64_t selecting = count_selecting(&s);
    if (selecting <= (uint64_t)sp_options.min_set)
        return sp_pass_small();
    struct sp_thread *t = sp_own();
    if (t == NULL)
        return sp_pass_without_state();
    if (!t->is_busy && sp_should_pass(t, selecting))
        return SP_PASS_JUDGED;
    pthread_testcancel(); /* done here, before signals are blocked */
    struct sp_call c;
    if (!sp_enter(&c, t, timeout, mask, __builtin_frame_address(0)))
        return sp_pass_other();
    int result = s.words * SP_WORD <= t->capacity ? run_counted(&c, &s, selecting) : sp_pass_other();
    sp_leave(&c);
    return result;
}
