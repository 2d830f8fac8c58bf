/* Tests the stage scheduler: the paper's order, ageing, cancelling, and random servers. */
#define _GNU_SOURCE
#include "check.h"
#include "maps.h"

#include <stingy/sched.h>

enum { TASKS = 300, STAGES = 5 };
struct request {
    char name[40];
    struct stingy_task task;
    bool is_done;
    unsigned runs;
};
static struct request requests[TASKS];
static struct stingy_sched *sched;
static uint32_t rooms[STAGES];
static unsigned order[10000], ran, election_of[10000], election;
static void (*then)(struct request *request, unsigned stage);

static uint32_t room(unsigned stage) {
    return rooms[stage];
}

static struct request *request_of(struct stingy_task *task) {
    return (struct request *)((char *)task - offsetof(struct request, task));
}

static void note(struct stingy_task *task, unsigned stage) {
    struct request *request = request_of(task);
    CHECK(task->position == STINGY_NOT_QUEUED);
    request->runs++;
    if (ran < 10000) {
        election_of[ran] = election;
        order[ran++] = stage;
    }
    if (then)
        then(request, stage);
}

static void run0(struct stingy_task *t, void *c) {
    (void)c;
    note(t, 0);
}
static void run1(struct stingy_task *t, void *c) {
    (void)c;
    note(t, 1);
}
static void run2(struct stingy_task *t, void *c) {
    (void)c;
    note(t, 2);
}
static void run3(struct stingy_task *t, void *c) {
    (void)c;
    note(t, 3);
}
static void run4(struct stingy_task *t, void *c) {
    (void)c;
    note(t, 4);
}
static const struct stingy_stage stages[STAGES] = {
    {"parse", run0}, {"lookup", run1}, {"header", run2}, {"body", run3}, {"flush", run4}};

static void start(uint32_t batch, uint32_t max_age) {
    struct stingy_sched_config config = {.stages = stages,
                                         .stage_count = STAGES,
                                         .room = room,
                                         .batch = batch,
                                         .max_age = max_age,
                                         .task_offset = offsetof(struct request, task),
                                         .prefetch_bytes = sizeof(struct request)};
    sched = stingy_sched_new(&config);
    CHECK(sched != NULL);
    for (unsigned i = 0; i < TASKS; i++) {
        requests[i].runs = 0, requests[i].is_done = false;
        stingy_task_init(&requests[i].task);
    }
    for (unsigned s = 0; s < STAGES; s++)
        rooms[s] = 1000;
    ran = election = 0;
    then = NULL;
}

static void add(unsigned from, unsigned count, unsigned stage) {
    for (unsigned i = from; i < from + count; i++)
        CHECK(stingy_sched_add(sched, stage, &requests[i].task));
}

static uint32_t run(void) {
    election++;
    return stingy_sched_run(sched);
}

static void a_batch_is_of_one_stage_and_in_order_of_arrival(void) {
    start(8, 0);
    add(0, 5, 2);
    add(5, 3, 1);
    CHECK_EQ(run(), 3);
    CHECK_EQ(run(), 5);
    CHECK_EQ(run(), 0);
    CHECK_EQ(order[0], 1);
    CHECK_EQ(order[7], 2);
    stingy_sched_delete(sched);
}

static void full_batches_go_first_then_earlier_stages_then_those_without_room(void) {
    start(4, 100);
    rooms[1] = 0;
    rooms[3] = 2;
    add(0, 2, 0);  /* medium, early */
    add(10, 2, 1); /* no room */
    add(20, 2, 2); /* medium, later */
    add(30, 2, 3); /* uses all its room: full */
    add(40, 4, 4); /* a whole batch: full, and frees memory sooner */
    unsigned expected[] = {4, 3, 0, 2, 1};
    for (unsigned i = 0; i < 5; i++) {
        unsigned before = ran;
        CHECK(run() > 0);
        CHECK_EQ(order[before], expected[i]);
    }
    struct stingy_sched_stats stats = stingy_sched_stats(sched);
    CHECK_EQ(stats.full, 2);
    CHECK_EQ(stats.medium, 2);
    CHECK_EQ(stats.without_room, 1);
    stingy_sched_delete(sched);
}

static void a_batch_is_never_larger_than_the_room(void) {
    start(64, 0);
    rooms[0] = 7;
    add(0, 20, 0);
    CHECK_EQ(run(), 7);
    rooms[0] = 0;
    CHECK_EQ(run(), 8);
    CHECK_EQ(run(), 5);
    stingy_sched_delete(sched);
}

static void again(struct request *request, unsigned stage) {
    CHECK(stingy_sched_add(sched, stage, &request->task));
}

static void who_is_queued_during_a_batch_waits_for_the_next(void) {
    start(64, 0);
    then = again;
    add(0, 10, 0);
    CHECK_EQ(run(), 10);
    CHECK_EQ(stingy_sched_waiting(sched), 10);
    stingy_sched_delete(sched);
}

/* Stage 0 is always full and refills itself, and stage 4 has no room. Stage 4 must still run. */
static void a_stage_that_is_passed_over_too_often_runs_whatever_its_class(void) {
    enum { MAX_AGE = 12 };
    start(8, MAX_AGE);
    then = again;
    rooms[4] = 0;
    add(0, 20, 0);
    add(50, 1, 4);
    add(60, 1, 2);
    for (unsigned i = 0; i < 400; i++)
        run();
    unsigned last[STAGES] = {0};
    for (unsigned i = 0; i < ran; i++) {
        unsigned s = order[i];
        CHECK(election_of[i] - last[s] <= MAX_AGE + STAGES);
        last[s] = election_of[i];
    }
    CHECK(requests[50].runs > 10 && requests[60].runs > 10);
    CHECK(stingy_sched_stats(sched).aged > 0);
    stingy_sched_delete(sched);
}

static void wrong_use_is_refused(void) {
    start(8, 0);
    CHECK(!stingy_sched_add(sched, STAGES, &requests[0].task));
    CHECK(stingy_sched_add(sched, 1, &requests[0].task));
    CHECK(!stingy_sched_add(sched, 1, &requests[0].task));
    stingy_sched_delete(sched);
    CHECK(stingy_sched_new(NULL) == NULL && errno == EINVAL);
    struct stingy_sched_config none = {.stages = stages, .stage_count = 65};
    CHECK(stingy_sched_new(&none) == NULL && errno == EINVAL);
    stingy_sched_delete(NULL);
}

static uint64_t seed = 4711;
static unsigned cancelled;
static void at_random(struct request *request, unsigned stage) {
    if (stage + 1 < STAGES && random_below(&seed, 10))
        CHECK(stingy_sched_add(sched, stage + random_below(&seed, 2), &request->task));
    else
        request->is_done = true;
    struct request *other = &requests[random_below(&seed, TASKS)];
    if (random_below(&seed, 8) == 0 && other->task.position != STINGY_NOT_QUEUED) {
        stingy_sched_cancel(sched, &other->task);
        CHECK(other->task.position == STINGY_NOT_QUEUED);
        other->is_done = true;
        cancelled++;
    }
    for (unsigned s = 0; s < STAGES; s++)
        rooms[s] = random_below(&seed, 4) ? random_below(&seed, 50) : 0;
}

/* Random servers: every request runs to its end or is cancelled, none runs twice at a time, and
 * the sum is always right. */
static void every_request_runs_to_its_end(void) {
    for (unsigned round = 0; round < 200; round++) {
        start(1 + random_below(&seed, 20), 0);
        then = at_random;
        unsigned added = 0, left;
        do {
            if (added < TASKS && random_below(&seed, 2)) {
                unsigned more = 1 + random_below(&seed, TASKS - added);
                add(added, more, 0);
                added += more;
            }
            run();
            left = 0;
            for (unsigned i = 0; i < added; i++)
                left += !requests[i].is_done;
            CHECK_EQ(stingy_sched_waiting(sched), left);
        } while (added < TASKS || left);
        CHECK_EQ(run(), 0);
        stingy_sched_delete(sched);
    }
    CHECK(cancelled > 100);
}

static void a_request_that_moved_is_found(void) {
    start(8, 0);
    add(0, 3, 1);
    requests[9] = requests[1];
    stingy_sched_moved(sched, &requests[9].task);
    requests[1].runs = 1000;
    CHECK_EQ(run(), 3);
    CHECK_EQ(requests[9].runs, 1);
    CHECK_EQ(requests[1].runs, 1000);
    stingy_sched_delete(sched);
}

int main(void) {
    RUN(a_batch_is_of_one_stage_and_in_order_of_arrival);
    RUN(full_batches_go_first_then_earlier_stages_then_those_without_room);
    RUN(a_batch_is_never_larger_than_the_room);
    RUN(who_is_queued_during_a_batch_waits_for_the_next);
    RUN(a_stage_that_is_passed_over_too_often_runs_whatever_its_class);
    RUN(wrong_use_is_refused);
    RUN(every_request_runs_to_its_end);
    RUN(a_request_that_moved_is_found);
    return check_end();
}
