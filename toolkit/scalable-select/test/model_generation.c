/* Checks the protocol of sp.h between the thread that learns (owner), threads that close or
 * create (forgetters) and the kernel, in every order of its steps, by depth-first search over
 * all states. Each step is one atomic action, because the C code's are sequentially consistent.
 *
 * There is one descriptor number. The old file is open there. Forgetter B closes it. Forgetter D
 * then opens the new file under the same number, through a function that may be interposed. The
 * new file becomes ready at some moment. The event is lost if all forgetters are done, the owner
 * is between two calls, and it believes a ready bit quiet, without a pending hint or a stale
 * mark. Each variant omits one rule, and the search must then find a loss, so that the test can
 * fail.
 *
 * With owner_sleeps, the owner's calls sleep until an event wakes them. The event is also lost
 * if the owner sleeps on although a file is ready, or was ready (e.g. by a shutdown) before its
 * number was closed. The stranger shares this memory and the epoll instance, but closes the
 * number in its own descriptor table. */
#define _GNU_SOURCE
#include "check.h"

#include <stdint.h>

enum { NONE, OLD, NEW };

struct rules {
    bool no_mark_after_close, no_mark_at_all, no_generation, removes_after_close, learns_after_harvest, creation_unseen,
        old_file_survives;
    bool owner_sleeps, close_fails, no_wake_after_failure, has_stranger, stranger_touches;
    bool closes_ready, no_wake_before_close, no_wake_after_close;
};

struct world {
    uint8_t file; /* the file that is open at the number */
    uint8_t is_ready[3], has_item[3], has_hint[3];
    uint8_t generation, interested, stale, quiet;
    uint8_t registered_file; /* the file of the last registration, whose serial is valid */
    uint8_t owner, owner_generation, owner_saw_ready, calls;
    uint8_t b, b_interested, d, d_interested, e[3];
    uint8_t has_closed, must_wake;
    uint8_t is_kicked, stranger, stranger_interested;
};

enum { CALLS = 3, TABLE = 1 << 23, ASLEEP = 20, CLOSER_END = 11, CREATOR_END = 4, STRANGER_END = 5 };
static struct world table[TABLE];
static uint8_t used[TABLE];
static long states;
static bool lost;

static bool visit(const struct world *w) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *w; i++)
        hash = (hash ^ ((const uint8_t *)w)[i]) * 1099511628211u;
    for (size_t at = hash % TABLE;; at = (at + 1) % TABLE) {
        if (!used[at]) {
            used[at] = 1;
            table[at] = *w;
            states++;
            return true;
        }
        if (memcmp(&table[at], w, sizeof *w) == 0)
            return false;
    }
}

/* One step of the owner; false if it has none left. */
static bool step_owner(struct world *w, const struct rules *r) {
    switch (w->owner) {
    case 0: /* between calls */
        if (w->calls == CALLS)
            return false;
        w->calls++;
        w->owner = 1;
        return true;
    case 1: /* take the stale mark */
        if (w->stale) {
            w->stale = w->quiet = w->interested = 0;
        }
        w->owner = w->quiet ? 8 : w->interested ? 5 : 2;
        return true;
    case 2:
        w->interested = 1;
        w->owner = 3;
        return true;
    case 3:
        w->owner_generation = w->generation;
        w->owner = 4;
        return true;
    case 4: /* EPOLL_CTL_ADD, which reports the current state */
        if (w->file == NONE) {
            w->interested = 0;
            w->owner = 0;
            return true;
        }
        w->has_item[w->file] = 1;
        w->registered_file = w->file;
        w->has_hint[w->file] |= w->is_ready[w->file];
        w->owner = 14;
        return true;
    case 14:
        w->quiet = 1;
        if (!r->no_generation && w->owner_generation != w->generation)
            w->quiet = 0;
        w->owner = w->quiet ? 8 : 5;
        return true;
    case 5: /* a candidate */
        w->owner_generation = w->generation;
        w->owner = 6;
        return true;
    case 6: /* ppoll */
        w->owner_saw_ready = w->file == NONE ? 2 : w->is_ready[w->file];
        w->owner = r->learns_after_harvest ? 18 : 7;
        return true;
    case 7: /* learn */
        if (w->owner_saw_ready == 2) {
            w->interested = w->quiet = 0;
        } else {
            w->quiet = !w->owner_saw_ready;
        }
        w->owner = 9;
        return true;
    case 9:
        if (!r->no_generation && w->owner_generation != w->generation)
            w->quiet = 0;
        w->owner = r->learns_after_harvest ? 0 : 8;
        return true;
    case 8:
    case 18: /* epoll_wait: drops hints of a file whose registration is not the last */
        for (int file = OLD; file <= NEW; file++) {
            if (w->has_hint[file] && file == w->registered_file && w->interested)
                w->quiet = 0;
            w->has_hint[file] = 0;
        }
        w->owner = w->owner == 18 ? 7 : r->owner_sleeps && w->quiet ? ASLEEP : 0;
        return true;
    case ASLEEP:
        if (w->has_hint[OLD] || w->has_hint[NEW])
            w->owner = 8;
        else if (w->is_kicked)
            w->owner = 1;
        else
            return false;
        w->is_kicked = 0;
        return true;
    }
    return false;
}

static bool step_closer(struct world *w, const struct rules *r) {
    switch (w->b) {
    case 0:
        w->generation++;
        break;
    case 1:
        w->b_interested = w->interested;
        break;
    case 2:
        w->must_wake = w->b_interested && w->is_ready[OLD] && !r->no_wake_before_close;
        if (w->b_interested && !r->removes_after_close)
            w->has_item[w->file] = w->has_hint[w->file] = 0;
        break;
    case 3:
        if (w->b_interested && !r->no_mark_at_all)
            w->stale = 1;
        break;
    case 4:
        if (w->must_wake && w->owner != 0)
            w->is_kicked = 1;
        w->must_wake = 0;
        break;
    case 5:
        if (r->close_fails)
            break;
        w->file = NONE;
        w->has_closed = 1;
        if (!r->old_file_survives)
            w->has_item[OLD] = w->has_hint[OLD] = 0;
        break;
    case 6:
        w->generation++;
        break;
    case 7:
        w->b_interested = w->interested;
        break;
    case 8:
        if (r->removes_after_close && w->b_interested && w->file != NONE)
            w->has_item[w->file] = w->has_hint[w->file] = 0;
        break;
    case 9:
        w->must_wake =
            w->b_interested && (r->close_fails ? !r->no_wake_after_failure : !w->stale && !r->no_wake_after_close);
        if (w->b_interested && !r->no_mark_at_all && !r->no_mark_after_close && !r->removes_after_close)
            w->stale = 1;
        break;
    case 10:
        if (w->must_wake && w->owner != 0)
            w->is_kicked = 1;
        w->must_wake = 0;
        break;
    default:
        return false;
    }
    w->b++;
    return true;
}

static bool step_stranger(struct world *w, const struct rules *r) {
    switch (w->stranger) {
    case 0:
    case 4:
        w->generation++;
        break;
    case 1:
        w->stranger_interested = w->interested && r->stranger_touches;
        break;
    case 2:
        if (w->stranger_interested)
            w->has_item[w->file] = w->has_hint[w->file] = 0;
        break;
    case 3:
        if (w->stranger_interested)
            w->stale = 1;
        break;
    default:
        return false;
    }
    w->stranger++;
    return true;
}

static bool step_creator(struct world *w, const struct rules *r) {
    switch (w->d) {
    case 0:
        if (!w->has_closed)
            return false;
        w->file = NEW;
        if (r->creation_unseen)
            w->d = 3;
        break;
    case 1:
        w->generation++;
        break;
    case 2:
        w->d_interested = w->interested;
        break;
    case 3:
        if (!r->creation_unseen && w->d_interested && !r->no_mark_at_all)
            w->stale = 1;
        break;
    default:
        return false;
    }
    w->d++;
    return true;
}

/* A file becomes ready, the program drains it, and it becomes ready again. Readiness reaches the
 * epoll instance if the file has an item there. The old file does not change after its close,
 * unless it is open elsewhere. */
static bool step_event(struct world *w, const struct rules *r, int which) {
    if (w->e[which] == 3 || (which == NEW ? w->file != NEW : w->file != OLD && !r->old_file_survives))
        return false;
    w->e[which]++;
    w->is_ready[which] = w->e[which] != 2;
    if (w->is_ready[which])
        w->has_hint[which] |= w->has_item[which];
    return true;
}

static void explore(const struct world *w, const struct rules *r) {
    if (!visit(w))
        return;
    bool is_over = w->b == CLOSER_END && w->d == CREATOR_END && w->stranger == STRANGER_END;
    bool is_missed = is_over && w->file != NONE && w->quiet && w->is_ready[w->file] && !w->has_hint[w->file];
    if (is_missed && (w->owner == 0 ? !w->stale : w->owner == ASLEEP && !w->is_kicked && w->file == OLD))
        lost = true;
    bool sleeps_on = w->owner == ASLEEP && !w->is_kicked && !w->has_hint[OLD] && !w->has_hint[NEW];
    if (r->closes_ready && is_over && sleeps_on && w->file == NONE)
        lost = true;
    struct world next;
    next = *w;
    if (step_owner(&next, r))
        explore(&next, r);
    next = *w;
    if (step_closer(&next, r))
        explore(&next, r);
    next = *w;
    if (step_creator(&next, r))
        explore(&next, r);
    next = *w;
    if (step_stranger(&next, r))
        explore(&next, r);
    for (int file = OLD; file <= NEW; file++) {
        next = *w;
        if (step_event(&next, r, file))
            explore(&next, r);
    }
}

static bool loses(struct rules r) {
    struct world w;
    memset(&w, 0, sizeof w);
    memset(used, 0, sizeof used);
    states = 0;
    lost = false;
    w.file = OLD;
    w.b = r.has_stranger ? CLOSER_END : 0;
    w.d = r.has_stranger || r.close_fails || r.closes_ready ? CREATOR_END : 0;
    if (r.closes_ready) {
        w.is_ready[OLD] = 1;
        w.e[OLD] = 3;
    }
    w.stranger = r.has_stranger ? 0 : STRANGER_END;
    explore(&w, &r);
    printf("  %ld states: %s\n", states, lost ? "a readiness can be lost" : "nothing can be lost");
    return lost;
}

static void no_order_of_steps_loses_a_readiness(void) {
    CHECK(!loses((struct rules){0}));
    CHECK(!loses((struct rules){.old_file_survives = true}));
}

static void creation_by_a_function_that_is_not_interposed_loses_nothing(void) {
    CHECK(!loses((struct rules){.creation_unseen = true}));
    CHECK(!loses((struct rules){.creation_unseen = true, .old_file_survives = true}));
}

static void without_marks_a_readiness_is_lost(void) {
    CHECK(loses((struct rules){.no_mark_at_all = true}));
    CHECK(loses((struct rules){.no_mark_after_close = true, .creation_unseen = true}));
}

static void leaving_the_epoll_instance_after_the_close_loses_a_readiness(void) {
    CHECK(loses((struct rules){.removes_after_close = true, .creation_unseen = true}));
}

static void learning_after_the_hints_came_in_loses_a_readiness(void) {
    CHECK(loses((struct rules){.learns_after_harvest = true}));
}

static void stranger_to_the_table_that_touches_the_state_loses_a_readiness(void) {
    CHECK(!loses((struct rules){.owner_sleeps = true, .has_stranger = true}));
    CHECK(loses((struct rules){.owner_sleeps = true, .has_stranger = true, .stranger_touches = true}));
}

static void close_that_fails_wakes_the_sleepers(void) {
    CHECK(!loses((struct rules){.owner_sleeps = true, .close_fails = true}));
    CHECK(loses((struct rules){.owner_sleeps = true, .close_fails = true, .no_wake_after_failure = true}));
}

static void close_of_a_ready_descriptor_wakes_the_sleepers(void) {
    CHECK(!loses((struct rules){.owner_sleeps = true, .closes_ready = true}));
    CHECK(loses((struct rules){.owner_sleeps = true, .closes_ready = true, .no_wake_before_close = true}));
    CHECK(loses((struct rules){.owner_sleeps = true, .closes_ready = true, .no_wake_after_close = true}));
}

static void generation_and_mark_each_cover_for_part_of_the_other(void) {
    printf("  without the generation: ");
    bool without = loses((struct rules){.no_generation = true, .creation_unseen = true});
    printf("  so the generation is %s\n",
           without ? "needed" : "a second line of defence: it drops what was learned within the same call");
    printf("  with the generation but no mark after the close: ");
    CHECK(loses((struct rules){.no_mark_after_close = true, .creation_unseen = true}));
}

int main(void) {
    RUN(no_order_of_steps_loses_a_readiness);
    RUN(creation_by_a_function_that_is_not_interposed_loses_nothing);
    RUN(without_marks_a_readiness_is_lost);
    RUN(leaving_the_epoll_instance_after_the_close_loses_a_readiness);
    RUN(learning_after_the_hints_came_in_loses_a_readiness);
    RUN(generation_and_mark_each_cover_for_part_of_the_other);
    RUN(stranger_to_the_table_that_touches_the_state_loses_a_readiness);
    RUN(close_that_fails_wakes_the_sleepers);
    RUN(close_of_a_ready_descriptor_wakes_the_sleepers);
    return check_end();
}
