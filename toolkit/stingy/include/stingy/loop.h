/* The loop: epoll, gate and stage scheduler as one, for a server that is written as stages.
 *
 *     static void parse(struct stingy_task *task, void *context);    a stage: runs once, then says what follows
 *     ...
 *     struct stingy_loop *loop = stingy_loop_new(&(struct stingy_loop_config){
 *         .listener = listener, .stages = stages, .stage_count = 3, .begin = begin, .end = end, .room = stingy_room});
 *     stingy_loop_run(loop, &is_ended);
 *     stingy_loop_delete(loop);
 *
 * A connection without a request is a record of 24 bytes. When its bytes come and there is room, `begin` gives it a
 * request, which runs through the stages in batches, as stingy/sched.h says. A stage ends by one of
 *
 *     stingy_loop_go      on to another stage
 *     stingy_loop_wait    on to a stage when the client has sent more, or can receive more
 *     stingy_loop_next    answered: the request's memory is given back, the connection stays
 *     stingy_loop_close   the connection is closed
 *
 * Before it waits, or is done with input left, a stage reads until it gets less than it asked for, or EAGAIN:
 * descriptors are watched edge-triggered (stingy/gate.h). One loop belongs to one thread. */
#ifndef STINGY_LOOP_H
#define STINGY_LOOP_H

#include <signal.h>
#include <stingy/gate.h>
#include <stingy/sched.h>

/* Part of the server's request, whose `task` the stages get. The loop's own, but for `fd`. */
struct stingy_request {
    struct stingy_task task; /* first */
    int fd;
    uint32_t next_stage; /* of a request that waits */
};

/* Admission regardless of room: every connection that has sent something gets a request. */
#define STINGY_NO_STAGE UINT32_MAX

struct stingy_loop_config {
    int listener;                      /* does not block */
    const struct stingy_stage *stages; /* in the order of treatment */
    unsigned stage_count, first_stage; /* where a request begins */
    void *context;
    /* Makes a request for a connection, which does not block. NULL: no memory, the connection is closed. */
    struct stingy_request *(*begin)(void *context, int fd);
    /* Gives a request's memory back. The connection is the loop's to close. */
    void (*end)(void *context, struct stingy_request *request);
    /* Moves a request that waits for its client out of the slab (stingy_evict); where it lies then. NULL: it cannot be
     * moved. May be NULL itself. */
    struct stingy_request *(*move)(void *context, struct stingy_request *request);
    /* An event of a descriptor that the server has added to stingy_loop_epoll. May be NULL. */
    void (*event)(void *context, const struct epoll_event *event);
    /* Once a turn, after epoll was asked and before stages run; at least twice a second. May be NULL. */
    void (*turn)(void *context, uint64_t now_ms);
    /* The generated stingy_room; NULL: always room. */
    uint32_t (*room)(unsigned stage);
    uint32_t admission_stage; /* requests are admitted while it has room: the stage in which `begin` allocates */
    /* So many at once leave no room for others; 0: as many as the slab has room for. No hard limit: slow clients must
     * not keep the others out, so a connection that has been ready for 200 ms gets a request regardless of room
     * (stingy/gate.h). The hard limit is most_connections. */
    uint32_t most_requests;
    uint32_t most_connections; /* 0: 1,000,000 */
    uint32_t resume_room;      /* with so much room the listener is watched again; 0: 1 */
    uint32_t idle_ms,
        waiting_ms;        /* a connection between requests, and a request for its client, lasts so long; 0: 15,000 */
    size_t request_offset; /* of the stingy_request in the server's request */
    size_t prefetch_bytes; /* of the server's request, from its beginning; 0: none */
};

struct stingy_loop;

/* NULL with errno. */
struct stingy_loop *stingy_loop_new(const struct stingy_loop_config *config);
/* Ends all requests and closes all connections; not the listener. */
void stingy_loop_delete(struct stingy_loop *loop);
/* Serves until `is_ended`, which it looks at twice a second at least and after each signal. Runs on the part of the
 * slab that the map keeps for the stack, if any. */
void stingy_loop_run(struct stingy_loop *loop, const volatile sig_atomic_t *is_ended);

/* What a stage ends with. Afterwards the request is the loop's. */
void stingy_loop_go(struct stingy_loop *loop, struct stingy_request *request, unsigned stage);
void stingy_loop_wait(struct stingy_loop *loop, struct stingy_request *request, unsigned stage);
/* `has_more`: bytes of the connection's next request may be there unread. */
void stingy_loop_next(struct stingy_loop *loop, struct stingy_request *request, bool has_more);
void stingy_loop_close(struct stingy_loop *loop, struct stingy_request *request);

/* Milliseconds of CLOCK_MONOTONIC, read once a turn. */
uint64_t stingy_loop_now_ms(const struct stingy_loop *loop);
/* For the server's own descriptors; their events have data.fd. */
int stingy_loop_epoll(const struct stingy_loop *loop);
/* Requests under way. */
uint32_t stingy_loop_requests(const struct stingy_loop *loop);
struct stingy_gate_stats stingy_loop_gate_stats(const struct stingy_loop *loop);
struct stingy_sched_stats stingy_loop_sched_stats(const struct stingy_loop *loop);

#endif
