/* The stage scheduler; see stingy/sched.h. */
#include <errno.h>
#include <stdlib.h>
#include <stingy/runtime.h>
#include <stingy/sched.h>

/* A ring of pointers, not a list through the requests: looking ahead does not access waiting requests. `head` and
 * `tail` only grow; entry i is at i & (capacity - 1); a cancelled entry is NULL. */
struct queue {
    struct stingy_task **ring;
    uint32_t capacity, head, tail;
    uint32_t waiting; /* entries that are not NULL */
    uint32_t age;     /* number of elections that passed it over */
};

struct stingy_sched {
    struct stingy_sched_config config;
    uint64_t queued; /* stages with a waiting request */
    uint32_t waiting;
    struct stingy_sched_stats stats;
    struct queue queues[];
};

enum { RING_BEGIN = 64, LINE = 64 };

struct stingy_sched *stingy_sched_new(const struct stingy_sched_config *config) {
    if (!config || config->stage_count == 0 || config->stage_count > STINGY_MAX_STAGES) {
        errno = EINVAL;
        return NULL;
    }
    struct stingy_sched *sched = calloc(1, sizeof *sched + config->stage_count * sizeof(struct queue));
    if (!sched)
        return NULL;
    sched->config = *config;
    struct stingy_sched_config *c = &sched->config;
    if (c->batch == 0)
        c->batch = 64;
    if (c->spill_batch == 0)
        c->spill_batch = 8;
    if (c->max_age == 0)
        c->max_age = 4 * c->stage_count;
    if (c->prefetch_ahead == 0)
        c->prefetch_ahead = 2;
    return sched;
}

void stingy_sched_delete(struct stingy_sched *sched) {
    if (!sched)
        return;
    for (unsigned s = 0; s < sched->config.stage_count; s++)
        free(sched->queues[s].ring);
    free(sched);
}

static struct stingy_task **entry(struct queue *queue, uint32_t position) {
    return &queue->ring[position & (queue->capacity - 1)];
}

static bool grow(struct queue *queue) {
    struct queue larger = *queue;
    larger.capacity = queue->capacity ? queue->capacity * 2 : RING_BEGIN;
    if (larger.capacity > UINT32_MAX / 4 || !(larger.ring = malloc(larger.capacity * sizeof *larger.ring)))
        return false;
    for (uint32_t i = queue->head; i != queue->tail; i++)
        *entry(&larger, i) = *entry(queue, i);
    free(queue->ring);
    *queue = larger;
    return true;
}

bool stingy_sched_add(struct stingy_sched *sched, unsigned stage, struct stingy_task *task) {
    if (stage >= sched->config.stage_count || task->position != STINGY_NOT_QUEUED)
        return false;
    struct queue *queue = &sched->queues[stage];
    /* A position is never STINGY_NOT_QUEUED: the number before a wrap is skipped. */
    if (queue->tail == STINGY_NOT_QUEUED) {
        if (queue->tail - queue->head == queue->capacity && !grow(queue))
            return false;
        *entry(queue, queue->tail++) = NULL;
    }
    if (queue->tail - queue->head == queue->capacity && !grow(queue))
        return false;
    task->stage = stage;
    task->position = queue->tail;
    *entry(queue, queue->tail++) = task;
    queue->waiting++;
    sched->waiting++;
    sched->queued |= UINT64_C(1) << stage;
    return true;
}

static void leaves(struct stingy_sched *sched, struct queue *queue, struct stingy_task *task) {
    *entry(queue, task->position) = NULL;
    task->position = STINGY_NOT_QUEUED;
    sched->waiting--;
    if (--queue->waiting == 0) {
        sched->queued &= ~(UINT64_C(1) << task->stage);
        queue->head = queue->tail;
        queue->age = 0;
    }
}

void stingy_sched_cancel(struct stingy_sched *sched, struct stingy_task *task) {
    if (task->position != STINGY_NOT_QUEUED)
        leaves(sched, &sched->queues[task->stage], task);
}

void stingy_sched_moved(struct stingy_sched *sched, struct stingy_task *task) {
    if (task->position != STINGY_NOT_QUEUED)
        *entry(&sched->queues[task->stage], task->position) = task;
}

uint32_t stingy_sched_waiting(const struct stingy_sched *sched) {
    return sched->waiting;
}

struct stingy_sched_stats stingy_sched_stats(const struct stingy_sched *sched) {
    return sched->stats;
}

enum class { WITHOUT_ROOM, MEDIUM, FULL, AGED };

struct choice {
    enum class class;
    uint32_t rank; /* rank within the class; the highest wins */
    unsigned stage;
    uint32_t batch;
};

/* The rank of a stage. Among full stages and among those without room the latest wins, because it frees memory
   soonest. */
static struct choice consider(struct stingy_sched *sched, unsigned stage) {
    const struct stingy_sched_config *c = &sched->config;
    struct queue *queue = &sched->queues[stage];
    uint32_t room = c->room ? c->room(stage) : UINT32_MAX;
    uint32_t limit = room < c->batch ? room : c->batch;
    struct choice choice = {MEDIUM, (c->stage_count - stage) + queue->age, stage, limit};
    if (room == 0)
        choice = (struct choice){WITHOUT_ROOM, stage, stage, c->spill_batch};
    else if (queue->waiting >= limit)
        choice = (struct choice){FULL, stage, stage, limit};
    if (queue->age >= c->max_age) {
        choice.class = AGED;
        choice.rank = queue->age;
    }
    if (choice.batch > queue->waiting)
        choice.batch = queue->waiting;
    return choice;
}

static struct choice elect(struct stingy_sched *sched) {
    struct choice best = {WITHOUT_ROOM, 0, STINGY_MAX_STAGES, 0};
    for (uint64_t left = sched->queued; left; left &= left - 1) {
        struct choice next = consider(sched, (unsigned)__builtin_ctzll(left));
        if (best.stage == STINGY_MAX_STAGES || next.class > best.class ||
            (next.class == best.class && next.rank > best.rank))
            best = next;
    }
    for (uint64_t left = sched->queued; left; left &= left - 1)
        sched->queues[__builtin_ctzll(left)].age++;
    sched->queues[best.stage].age = 0;
    uint64_t *counts[] = {&sched->stats.without_room, &sched->stats.medium, &sched->stats.full, &sched->stats.aged};
    ++*counts[best.class];
    sched->stats.elections++;
    return best;
}

static void prefetch(const struct stingy_sched *sched, struct queue *queue, uint32_t position) {
    if (sched->config.prefetch_bytes == 0 || (int32_t)(queue->tail - position) <= 0)
        return;
    struct stingy_task *task = *entry(queue, position);
    if (!task)
        return;
    const char *request = (const char *)task - sched->config.task_offset;
    for (size_t at = 0; at < sched->config.prefetch_bytes; at += LINE)
        __builtin_prefetch(request + at, 1);
}

uint32_t stingy_sched_run(struct stingy_sched *sched) {
    if (sched->queued == 0)
        return 0;
    struct choice choice = elect(sched);
    struct queue *queue = &sched->queues[choice.stage];
    const struct stingy_stage *stage = &sched->config.stages[choice.stage];
    uint32_t end = queue->tail, ran = 0;
    for (uint32_t i = 0; i < sched->config.prefetch_ahead && i < choice.batch; i++)
        prefetch(sched, queue, queue->head + i);
    /* A request queued here meanwhile waits for the next batch. */
    while (ran < choice.batch && queue->waiting > 0 && (int32_t)(end - queue->head) > 0) {
        struct stingy_task *task = *entry(queue, queue->head);
        prefetch(sched, queue, queue->head + sched->config.prefetch_ahead);
        queue->head++;
        if (!task)
            continue;
        leaves(sched, queue, task);
        stage->run(task, sched->config.context);
        ran++;
    }
    sched->stats.requests += ran;
    return ran;
}
