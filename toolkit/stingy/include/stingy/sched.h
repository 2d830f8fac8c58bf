/* The stage scheduler: runs a server's requests in batches, stage by stage, so that a batch finds its code and its
 * memory in the cache. After Bhatia, Consel and Lawall (2006), section 4.5.2:
 *
 * 1. stages whose waiting requests fill a batch or all the room there is (*full*): no more can join them
 *   2. the others that have room, earlier stages before later ones (weights), as their batches may still grow
 * 3. stages without room: their allocations spill
 *
 * Beyond the paper: a stage ages while others are elected, and one that was passed over `max_age` times is next
 * whatever its class, so no stage starves: every waiting stage is elected within max_age + stages elections. The memory
 * of the next requests in the batch is prefetched.
 *
 * Electing costs O(stages), queueing and running a request O(1). One scheduler belongs to one thread.
 */
#ifndef STINGY_SCHED_H
#define STINGY_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STINGY_MAX_STAGES = 64 };
#define STINGY_NOT_QUEUED UINT32_MAX

/* Part of the server's request. Zero it and pass it to stingy_task_init before use. */
struct stingy_task {
    uint32_t stage;
    uint32_t position; /* position in the stage's queue, counted since its beginning; or STINGY_NOT_QUEUED */
};

struct stingy_stage {
    const char *name;
    /* Runs the stage for one request. It may queue this request or others, at any stage, cancel others, or free its own
     * request. */
    void (*run)(struct stingy_task *task, void *context);
};

struct stingy_sched_config {
    const struct stingy_stage *stages; /* in the order of execution */
    unsigned stage_count;              /* maximum: STINGY_MAX_STAGES */
    void *context;                     /* passed to run */
    /* Returns how many more requests fit at this stage: the generated stingy_room(). NULL: always room. */
    uint32_t (*room)(unsigned stage);
    uint32_t batch;          /* maximum number of requests per election; default (0): 64 */
    uint32_t spill_batch;    /* the same if there is no room; default (0): 8 */
    uint32_t max_age;        /* default (0): 4 times the number of stages */
    size_t task_offset;      /* offset of the task in its request: offsetof(struct request, task) */
    size_t prefetch_bytes;   /* bytes of a request to prefetch, from its beginning; 0: none */
    uint32_t prefetch_ahead; /* prefetches this many requests ahead; default (0): 2 */
};

struct stingy_sched;

/* Returns NULL with errno EINVAL or ENOMEM on failure. */
struct stingy_sched *stingy_sched_new(const struct stingy_sched_config *config);
void stingy_sched_delete(struct stingy_sched *sched);

static inline void stingy_task_init(struct stingy_task *task) {
    task->stage = 0;
    task->position = STINGY_NOT_QUEUED;
}

/* Queues a request at a stage, behind the waiting ones. Returns false if there is no memory (nothing changed), or
   it is queued already. */
bool stingy_sched_add(struct stingy_sched *sched, unsigned stage, struct stingy_task *task);
/* Removes a request from its queue, if it is in one. */
void stingy_sched_cancel(struct stingy_sched *sched, struct stingy_task *task);
/* Call this after a request has moved in memory: updates its queue. */
void stingy_sched_moved(struct stingy_sched *sched, struct stingy_task *task);

/* Elects a stage and runs one batch of it. Returns how many requests ran; 0 if none waits. */
uint32_t stingy_sched_run(struct stingy_sched *sched);
/* Returns the number of waiting requests. */
uint32_t stingy_sched_waiting(const struct stingy_sched *sched);

struct stingy_sched_stats {
    uint64_t elections, requests, full, medium, without_room, aged;
};
struct stingy_sched_stats stingy_sched_stats(const struct stingy_sched *sched);

#endif
