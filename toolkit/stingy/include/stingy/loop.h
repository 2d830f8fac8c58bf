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

/* Part of the server's request; stages get its `task`. Only the loop uses its fields, except `fd`. */
struct stingy_request {
    struct stingy_task task; /* must be the first field */
    int fd;
    uint32_t next_stage; /* of a waiting request */
};

/* Admission regardless of room: every connection that has sent something gets a request. */
#define STINGY_NO_STAGE UINT32_MAX

struct stingy_loop_config {
    int listener;                      /* must be non-blocking */
    const struct stingy_stage *stages; /* in the order of execution */
    unsigned stage_count, first_stage; /* the stage in which a request begins */
    void *context;
    /* Makes a request for a connection, which is non-blocking. NULL: no memory; the loop closes the connection. */
    struct stingy_request *(*begin)(void *context, int fd);
    /* Frees a request's memory. The loop closes the connection. */
    void (*end)(void *context, struct stingy_request *request);
    /* Moves a request that waits for its client out of the slab (stingy_evict). Returns its new place, or NULL if
     * it cannot be moved. May be NULL itself. */
    struct stingy_request *(*move)(void *context, struct stingy_request *request);
    /* Handles an event of a descriptor that the server has added to stingy_loop_epoll. May be NULL. */
    void (*event)(void *context, const struct epoll_event *event);
    /* Called once per turn, after polling epoll and before stages run; at least twice a second. May be NULL. */
    void (*turn)(void *context, uint64_t now_ms);
    /* The generated stingy_room; NULL: always room. */
    uint32_t (*room)(unsigned stage);
    uint32_t
        admission_stage; /* requests are admitted while this stage has room: the stage in which `begin` allocates */
    /* From this number on, no more requests are admitted; 0: as many as the slab has room for. This is no hard
     * limit: slow clients must not keep the others out, so a connection that has been ready for 200 ms gets a
     * request regardless of room (stingy/gate.h). The hard limit is most_connections. */
    uint32_t most_requests;
    uint32_t most_connections;    /* default (0): 1,000,000 */
    uint32_t resume_room;         /* the listener is watched again when this many requests fit; default (0): 1 */
    uint32_t idle_ms, waiting_ms; /* timeout of a connection between requests, and of a request that waits for its
                                     client; default (0): 15,000 */
    size_t request_offset;        /* offset of stingy_request in the server's request */
    size_t prefetch_bytes;        /* bytes of the server's request to prefetch, from its beginning; 0: none */
};

struct stingy_loop;

/* Returns NULL with errno on failure. */
struct stingy_loop *stingy_loop_new(const struct stingy_loop_config *config);
/* Ends all requests and closes all connections, but not the listener. */
void stingy_loop_delete(struct stingy_loop *loop);
/* Serves until `is_ended`, which it checks at least twice a second and after each signal. Runs on the part of the
 * slab that the map reserves for the stack, if any. */
void stingy_loop_run(struct stingy_loop *loop, const volatile sig_atomic_t *is_ended);

/* A stage ends with one of these calls. Afterwards the request belongs to the loop. */
void stingy_loop_go(struct stingy_loop *loop, struct stingy_request *request, unsigned stage);
void stingy_loop_wait(struct stingy_loop *loop, struct stingy_request *request, unsigned stage);
/* `has_more`: unread bytes of the connection's next request may be there. */
void stingy_loop_next(struct stingy_loop *loop, struct stingy_request *request, bool has_more);
void stingy_loop_close(struct stingy_loop *loop, struct stingy_request *request);

/* Milliseconds of CLOCK_MONOTONIC, read once per turn. */
uint64_t stingy_loop_now_ms(const struct stingy_loop *loop);
/* The epoll descriptor, for the server's own descriptors; their events have data.fd. */
int stingy_loop_epoll(const struct stingy_loop *loop);
/* The number of requests in flight. */
uint32_t stingy_loop_requests(const struct stingy_loop *loop);
struct stingy_gate_stats stingy_loop_gate_stats(const struct stingy_loop *loop);
struct stingy_sched_stats stingy_loop_sched_stats(const struct stingy_loop *loop);

#endif
