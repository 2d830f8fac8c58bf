/* poll and ppoll (fs/select.c: do_sys_poll). */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS_MAX = 256 }; /* wake-ups in one call that led to nothing, before the kernel finishes it */
enum { SCAN_FAILED = -1 };

/* The array is the caller's, and other threads may write it: every entry is read once, as one word. */
typedef uint64_t __attribute__((may_alias, aligned(4))) entry_t;
_Static_assert(sizeof(struct pollfd) == sizeof(entry_t), "an entry is one word");

static inline struct pollfd entry(const struct pollfd *p)
{
	entry_t word = *(const volatile entry_t *)p;
	struct pollfd copy;
	memcpy(&copy, &word, sizeof copy);
	return copy;
}

static inline unsigned wanted_of(struct pollfd p)
{
	return (unsigned short)p.events | SP_BITS_ALWAYS;
}

static void examine(struct sp_thread *t, struct pollfd p, int index)
{
	int i = ++t->examine_count;
	t->examine[i] = (struct pollfd){.fd = p.fd, .events = p.events};
	t->examine_index[i] = index;
	t->examine_generation[i] = atomic_load(&sp_generation[p.fd]);
}

/* Fills the list of descriptors to examine; returns how many entries are POLLNVAL. Bits that this library does not
 * know are never quiet, so their descriptors are examined in every call. */
static int scan(struct sp_thread *t, struct pollfd *fds, nfds_t count)
{
	const uint16_t *quiet = t->quiet;
	unsigned capacity = (unsigned)t->capacity;
	int bad = 0;
	t->examine_count = 0;
	for (nfds_t i = 0; i < count; i++) {
		struct pollfd p = entry(&fds[i]);
		/* The one test that nearly all entries of a cold set take: quiet, and nothing left in revents. */
		if (__builtin_expect((unsigned)p.fd < capacity && ((wanted_of(p) & ~quiet[p.fd]) | (unsigned)p.revents) == 0, 1))
			continue;
		if (p.revents != 0)
			fds[i].revents = 0;
		if (p.fd < 0)
			continue;
		if ((unsigned)p.fd >= capacity)
			return SCAN_FAILED;
		unsigned wanted = wanted_of(p);
		if ((wanted & ~quiet[p.fd]) == 0)
			continue;
		switch (sp_watch(t, p.fd, wanted)) {
		case SP_WATCHED:
			if ((wanted & ~quiet[p.fd]) != 0)
				examine(t, p, (int)i);
			break;
		case SP_EXAMINE_ALWAYS:
			examine(t, p, (int)i);
			break;
		case SP_BAD_FD:
			fds[i].revents = POLLNVAL;
			bad++;
			break;
		case SP_BROKEN:
			t->must_rebuild = 1;
			return SCAN_FAILED;
		}
	}
	return bad;
}

/* Writes revents from the examination and the hints; returns how many entries have some. */
static int collect(struct sp_thread *t, struct pollfd *fds, nfds_t count, int bad)
{
	int ready = bad;
	for (int i = 1; i <= t->examine_count; i++)
		if (t->examine[i].revents != 0) {
			fds[t->examine_index[i]].revents = t->examine[i].revents;
			ready++;
		}
	if (t->hinted_count == 0)
		return ready;
	const uint16_t *hint = t->hint;
	unsigned capacity = (unsigned)t->capacity;
	for (nfds_t i = 0; i < count; i++) {
		struct pollfd p = entry(&fds[i]);
		if (__builtin_expect((unsigned)p.fd >= capacity || hint[p.fd] == 0, 1))
			continue;
		unsigned got = hint[p.fd] & wanted_of(p), before = (unsigned short)p.revents;
		if (got == 0 || (before & POLLNVAL))
			continue;
		ready += before == 0;
		fds[i].revents = (short)(before | got);
	}
	return ready;
}

/* The kernel's own call with what is left of the timeout. */
static int finish_in_kernel(struct sp_call *c, struct pollfd *fds, nfds_t count)
{
	struct timespec left = sp_deadline_left(&c->deadline);
	return sp_real.ppoll(fds, count, c->deadline.is_infinite ? NULL : &left, c->mask);
}

static int run(struct sp_call *c, struct pollfd *fds, nfds_t count)
{
	struct sp_thread *t = c->t;
	bool was_last_look = false;
	if (sp_watchdog_is_due(t) && sp_watchdog(t) < 0)
		return finish_in_kernel(c, fds, count);
	for (;;) {
		sp_take_stale(t);
		int bad = scan(t, fds, count);
		if (bad == SCAN_FAILED)
			return finish_in_kernel(c, fds, count);
		enum sp_wait wait = sp_wait(c, bad > 0);
		if (wait == SP_LOST_CONTROL)
			return finish_in_kernel(c, fds, count);
		if (wait == SP_FAILED)
			return -1;
		int ready = collect(t, fds, count, bad);
		if (ready > 0)
			return ready;
		if (wait == SP_TIMED_OUT) {
			/* The kernel looks at every descriptor once more when time is up, and sees which were closed. */
			if (was_last_look || atomic_load(&t->stale_any) == 0)
				return 0;
			was_last_look = true;
		} else if (wait == SP_SLICE_OVER) {
			if (sp_watchdog(t) < 0)
				return finish_in_kernel(c, fds, count);
		} else {
			sp_blame_spurious(t);
			if (c->deadline.is_zero && c->given == NULL)
				return 0;
			if (++c->rounds > ROUNDS_MAX)
				return finish_in_kernel(c, fds, count);
		}
	}
}

static __attribute__((noinline)) int run_counted(struct sp_call *c, struct pollfd *fds, nfds_t count)
{
	struct sp_thread *t = c->t;
	uint64_t examined = t->counts.examined, changes = t->counts.added + t->counts.modified;
	int result = run(c, fds, count);
	if (sp_in_control(c)) {
		SP_COUNT(t, calls, 1);
		SP_COUNT(t, selecting, count);
		sp_account(t, count, t->counts.examined - examined, t->counts.added + t->counts.modified - changes);
	}
	return result;
}

static void cancelled(void *call)
{
	sp_leave(call);
}

/* ppoll is a point of cancellation: a thread that ends there must leave the call first. In a frame of its own, since
 * the cleanup is a setjmp. */
static __attribute__((noinline)) int run_cancellable(struct sp_call *c, struct pollfd *fds, nfds_t count)
{
	int result;
	pthread_cleanup_push(cancelled, c);
	result = run_counted(c, fds, count);
	pthread_cleanup_pop(0);
	return result;
}

int sp_poll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	if (count <= (nfds_t)sp_options.min_set || atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed))
		return sp_pass_small();
	/* Invalid arguments are the kernel's to judge. */
	if (count > (nfds_t)sp_descriptor_limit() || count >= SP_FD_LIMIT || (timeout != NULL &&
			(timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000)) ||
			!sp_memory_is_writable(fds, count * sizeof *fds))
		return sp_pass_other();
	struct sp_call c;
	if (!sp_enter(&c, count, timeout, mask, __builtin_frame_address(0)))
		return SP_PASS;
	int result = count <= (nfds_t)c.t->capacity ? run_cancellable(&c, fds, count) : SP_PASS;
	sp_leave(&c);
	return result;
}
