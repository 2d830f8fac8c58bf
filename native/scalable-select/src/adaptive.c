/* Is it worth it? The kernel's cost of a call grows with the set, ours with what must be examined and registered. When
 * most of a set is hot, or every call brings new descriptors, the kernel's own call is cheaper: then it is used for a
 * while, longer each time, with a few calls of ours in between to see whether that has changed. */
#include "sp.h"

/* Nanoseconds, from bench/call_cost on one machine; only their ratios matter, and those move little. */
enum {
	KERNEL_CALL = 900, KERNEL_EACH = 32,
	OUR_CALL = 2100, OUR_EACH = 3, OUR_EXAMINED = 180, OUR_CHANGE = 1500
};
enum {
	PROBES = 8,            /* calls of ours before a judgement, of which the first ones do not count */
	SETTLING = 2,
	SKIP_FIRST = 32, SKIP_MAX = 2048,
	SKIP_CLOSES = 512      /* before so long a pause the epoll instance is given up: it costs at every wake-up */
};

/* True if this call should be the kernel's. A set of quite another size is another matter: it is tried at once. */
bool sp_should_pass(struct sp_thread *t, uint64_t selecting)
{
	if (t->skip == 0)
		return false;
	if (selecting > t->skip_selecting * 3 / 2 || selecting < t->skip_selecting / 2) {
		t->skip = t->backoff = t->probes = 0;
		t->gain_ns = 0;
		return false;
	}
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
	if (t->probes++ < SETTLING)
		return;
	t->gain_ns += (kernel - ours - t->gain_ns) / 4;
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
