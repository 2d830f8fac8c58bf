/* Is it worth it? The kernel's cost of a call grows with the set, ours with what must be examined and registered. When
 * most of a set is hot, or every call brings new descriptors, the kernel's own call is cheaper: then it is used for a
 * while, longer each time, with a few calls of ours in between to see whether that has changed. */
#include "sp.h"

/* Nanoseconds, from bench/call_cost on one machine; only their ratios matter, and those move little. */
enum {
	KERNEL_CALL = 250, KERNEL_EACH = 28,
	OUR_CALL = 950, OUR_EACH = 2, OUR_EXAMINED = 34, OUR_CHANGE = 1500
};
enum {
	PROBES = 16,           /* calls of ours before a judgement */
	SKIP_FIRST = 64, SKIP_MAX = 16384,
	SKIP_CLOSES = 1024     /* before so long a pause the epoll instance is given up: it costs at every wake-up */
};

/* True if this call should be the kernel's. */
bool sp_should_pass(struct sp_thread *t)
{
	if (t->skip == 0)
		return false;
	t->skip--;
	SP_COUNT(t, passed_hot, 1);
	return true;
}

void sp_account(struct sp_thread *t, uint64_t selecting, uint64_t examined, uint64_t changes)
{
	if (!sp_options.is_adaptive)
		return;
	int64_t kernel = KERNEL_CALL + KERNEL_EACH * (int64_t)selecting;
	int64_t ours = OUR_CALL + OUR_EACH * (int64_t)selecting + OUR_EXAMINED * (int64_t)examined + OUR_CHANGE * (int64_t)changes;
	/* The first calls after a pause register everything once: that says nothing about the calls to come. */
	if (t->probes++ < PROBES / 4)
		return;
	t->gain_ns += (kernel - ours - t->gain_ns) / 8;
	if (t->probes < PROBES)
		return;
	if (t->gain_ns >= 0) {
		t->probes = PROBES;
		t->backoff = 0;
		return;
	}
	t->backoff = t->backoff == 0 ? SKIP_FIRST : t->backoff >= SKIP_MAX ? SKIP_MAX : t->backoff * 2;
	t->skip = t->backoff;
	t->probes = 0;
	t->gain_ns = 0;
	if (t->backoff >= SKIP_CLOSES)
		t->must_drop = 1;
}
