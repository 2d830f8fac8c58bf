/* Decides when the kernel's call is cheaper. The kernel's cost of a call grows with the set, and the library's
 * with the descriptors to examine and register. When most of a set is hot, or every call brings new descriptors,
 * the kernel's call is cheaper.
 *
 * The first calls of a thread are the kernel's: the number of descriptors that they report shows how many the
 * library would have to examine, before anything is registered. A set that proves hot stays with the kernel as
 * long as it is hot. Sets that bring new descriptors with every call show only in calls of the library: then the
 * kernel is used for a while, longer each time, with a few calls of the library in between to see whether the sets
 * have changed. */
#include "sp.h"

/* Nanoseconds from bench/call_cost on one machine. Only their ratios matter, which vary little. */
enum { KERNEL_CALL = 900, KERNEL_EACH = 32, OUR_CALL = 2100, OUR_EACH = 3, OUR_EXAMINED = 180, OUR_CHANGE = 1500 };
enum {
    LOOKS = 2,  /* kernel calls before the first scaled one */
    PROBES = 8, /* scaled calls before a judgement, of which the first ones do not count */
    SETTLING = 2,
    SKIP_FIRST = 32,
    SKIP_MAX = 2048,
    SKIP_CLOSES = 512 /* before such a long pause the epoll instance is closed, because it costs at every wake-up */
};

static int64_t gain_ns(uint64_t selecting, uint64_t examined, uint64_t changes) {
    int64_t kernel = KERNEL_CALL + KERNEL_EACH * (int64_t)selecting;
    int64_t ours =
        OUR_CALL + OUR_EACH * (int64_t)selecting + OUR_EXAMINED * (int64_t)examined + OUR_CHANGE * (int64_t)changes;
    return kernel - ours;
}

static bool is_for_kernel(const struct sp_thread *t) {
    return t->looks < LOOKS || t->kernel_gain_ns < 0;
}

/* True if the kernel should make this call. */
bool sp_should_pass(struct sp_thread *t, uint64_t selecting) {
    if (t->skip == 0 && (!sp_options.is_adaptive || !is_for_kernel(t)))
        return false;
    /* A set whose size differs much from the judged one is tried at once. */
    if (t->skip_selecting != 0 && (selecting > t->skip_selecting * 3 / 2 || selecting < t->skip_selecting / 2)) {
        t->skip = t->backoff = t->probes = 0;
        t->skip_selecting = 0;
        t->looks = LOOKS;
        t->gain_ns = t->kernel_gain_ns = 0;
        return false;
    }
    if (t->skip > 0)
        t->skip--;
    else if (t->looks > LOOKS && atomic_load_explicit(&t->epfd, memory_order_relaxed) >= 0)
        t->must_drop =
            true; /* after the kernel's call, because closing takes long and a signal must then end the call */
    t->asked = selecting;
    SP_COUNT(t, passed_hot, 1);
    return true;
}

/* The kernel has answered a call instead. A ready descriptor is examined in the call that reports it, in the next
 * one after it was served, or in both. */
void sp_account_passed(int ready) {
    struct sp_thread *t = sp_current();
    if (t == NULL || t->is_busy)
        return;
    if (t->must_drop) {
        t->is_busy = 1; /* a signal handler that polls must not enter */
        sp_drop_epoll(t);
        t->must_drop = false;
        t->is_busy = 0;
    }
    if (!sp_options.is_adaptive || ready < 0)
        return;
    int64_t gain = gain_ns(t->asked, (uint64_t)ready, 0);
    t->kernel_gain_ns = t->looks == 0 ? gain : t->kernel_gain_ns + (gain - t->kernel_gain_ns) / 4;
    t->looks += t->looks <= LOOKS;
    t->skip_selecting = t->asked;
}

void sp_account(struct sp_thread *t, uint64_t selecting, uint64_t examined, uint64_t changes) {
    if (!sp_options.is_adaptive)
        return;
    /* The first calls after a pause register all descriptors once, which does not predict the next calls. */
    if (t->probes++ < SETTLING)
        return;
    t->gain_ns += (gain_ns(selecting, examined, changes) - t->gain_ns) / 4;
    if (t->probes < PROBES)
        return;
    if (t->gain_ns >= 0) {
        t->probes = PROBES;
        t->backoff = 0;
        return;
    }
    t->backoff = t->backoff == 0 ? SKIP_FIRST : t->backoff >= SKIP_MAX ? SKIP_MAX : t->backoff * 2;
    t->skip = t->backoff;
    t->skip_selecting = selecting;
    t->probes = 0;
    t->gain_ns = 0;
    if (t->backoff >= SKIP_CLOSES)
        t->must_drop = 1;
}
