/* The gate: admits as many requests as there is room for, and keeps all other connections cold.
 *
 * A connection without a request in flight costs a record of 24 bytes, and the kernel's memory, but not a request
 * structure and its buffers:
 *
 *     accept -> IDLE --bytes came--> READY --room--> BUSY <-> WAITING (for the client)
 *                 ^                    ^                |
 *                 +------ park --------+----------------+--> forget, close
 *
 * When there is no room and connections are READY, the listener is taken out of epoll: it causes no wake-ups, so the
 * loop never spins, and new connections wait in the kernel's backlog. It is put back when no connection is READY and
 * `resume_room` is free, or has been off for `patience_ms`.
 *
 * Slow clients do not block the room: one that has kept its request WAITING for `grace_ms` is evicted when others are
 * READY and there is no room (the server moves its memory out of the slab, stingy_evict). Where that is not possible, a
 * connection that has been READY for `patience_ms` is bound although its allocations spill.
 *
 * All descriptors are watched edge-triggered, once for their life. The loop:
 *
 *     for (;;) {
 *         n = epoll_wait(epoll, events, MAX, sched waits ? 0 : stingy_gate_timeout_ms(gate, now_ms));
 *         for each event: stingy_gate_event(gate, &event, now_ms);      accepts, READY, wake
 *         stingy_gate_admit(gate, now_ms);                              bind, evict, expire
 *         while (stingy_sched_run(sched) > 0 && the loop's turn lasts)
 *             stingy_gate_admit(gate, now_ms);
 *     }
 *
 * Edge-triggered means: a server reads until it gets less than it asked for, or EAGAIN, before it waits or parks; if
 * not, it parks with `has_more`. One gate belongs to one thread. */
#ifndef STINGY_GATE_H
#define STINGY_GATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct stingy_gate_config {
    int epoll, listener; /* the listener does not block; -1: none, connections come by stingy_gate_adopt */
    void *context;
    /* Returns how many more requests fit now. */
    uint32_t (*room)(void *context);
    /* Gives the connection a request and queues it. Returns false to make the gate close the connection. */
    bool (*bind)(void *context, int fd);
    /* Called when an event came for a connection that was WAITING; it is BUSY again. */
    void (*wake)(void *context, int fd);
    /* Called when a connection has timed out (`was_idle`: between requests). The server must call
       stingy_gate_forget and close it. */
    void (*expire)(void *context, int fd, bool was_idle);
    /* Moves the memory of a WAITING connection's request out of the slab. Returns false if it cannot. NULL: never. */
    bool (*evict)(void *context, int fd);
    uint32_t most_connections;    /* default (0): 1,000,000 */
    uint32_t resume_room;         /* default (0): 1 */
    uint32_t grace_ms;            /* default (0): 20 */
    uint32_t patience_ms;         /* default (0): 200 */
    uint32_t idle_ms, waiting_ms; /* when connections expire; default (0): 15,000 */
};

struct stingy_gate;

/* Creates a gate that watches the listener. Returns NULL with errno on failure. */
struct stingy_gate *stingy_gate_new(const struct stingy_gate_config *config);
/* Frees the gate, but closes no descriptor. */
void stingy_gate_delete(struct stingy_gate *gate);

/* Handles one event of epoll. Returns false if the descriptor belongs to another owner. Reads event->data.fd. */
bool stingy_gate_event(struct stingy_gate *gate, const struct epoll_event *event, uint64_t now_ms);
/* Takes over a connection that was accepted elsewhere. Returns false if there is no memory or the descriptor's
   number is too large. */
bool stingy_gate_adopt(struct stingy_gate *gate, int fd, uint64_t now_ms);
/* Binds READY connections while there is room; evicts and expires connections that are due. */
void stingy_gate_admit(struct stingy_gate *gate, uint64_t now_ms);
/* Returns the time until the next action is due, for epoll_wait; -1: none. */
int stingy_gate_timeout_ms(const struct stingy_gate *gate, uint64_t now_ms);

/* Tells the gate that the request of a BUSY connection waits for its client. Returns false if an
 * event has arrived since the last wait; then continue at once. */
bool stingy_gate_wait(struct stingy_gate *gate, int fd, uint64_t now_ms);
/* Tells the gate that the request is done and its memory freed; the connection remains. `has_more`: bytes of the
 * next request may be there. */
void stingy_gate_park(struct stingy_gate *gate, int fd, bool has_more, uint64_t now_ms);
/* Call this before the server closes a connection. Ignore those of its events that epoll_wait has already
 * returned: the next connection may have its number. */
void stingy_gate_forget(struct stingy_gate *gate, int fd);

/* Returns the smallest descriptor above `fd` whose connection the gate has, or -1. Starting from -1 enumerates
   all. */
int stingy_gate_after(const struct stingy_gate *gate, int fd);

struct stingy_gate_stats {
    uint64_t accepted, bound, bound_without_room, evicted, expired, disarmed, accept_failures;
    uint32_t idle, ready, busy, waiting; /* now */
    bool is_listening;
};
struct stingy_gate_stats stingy_gate_stats(const struct stingy_gate *gate);

#endif
