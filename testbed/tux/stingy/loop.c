/* tux, rescheduled: replaces src/loop.c. This is the step that the paper does by hand (section 4.5).
 *
 *   src/loop.c                                  here
 *   a request structure for each connection     one for each admitted request; idle connections are records of the
 *                                               gate
 *   accept everything                           accept everything while there is room
 *   every request's next atom, in turn          batches of one stage: stingy_sched
 *   epoll by level, timeouts by list            epoll by edge, timeouts by the gate
 *
 * STINGY_ADMIT=N in the environment admits at most N requests at a time, whatever room there is; 0: no limit except
 * memory.
 */
#define _GNU_SOURCE
#include "stingy_gen.h"
#include "tux.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <stingy/gate.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { EVENTS = 1024, ELECTIONS_A_TURN = 256 };
volatile sig_atomic_t tux_is_ended;

/* The target of tux_thread.scheduler. */
struct stages {
    struct stingy_sched *sched;
    struct stingy_gate *gate;
    struct tux_request **request_of; /* by descriptor; NULL: the connection is cold */
    uint32_t descriptors, bound, admit;
    bool is_limited_by_room;
};

static struct stages *stages_of(const struct tux_thread *thread) {
    return thread->scheduler;
}

#define STAGE(atom)                                                                      \
    static void run_##atom(struct stingy_task *task, void *context) {                    \
        (void)context;                                                                   \
        atom((struct tux_request *)((char *)task - offsetof(struct tux_request, task))); \
    }
STAGE(parse_request)
STAGE(http_lookup_vhost)
STAGE(http_process_message)
STAGE(http_dirlist_head)
STAGE(list_directory)
STAGE(http_dirlist_tail)
STAGE(http_send_header)
STAGE(http_send_body)
STAGE(flush_request)
STAGE(linger_request)

#define NAMED(atom) [STINGY_STAGE_##atom] = {#atom, run_##atom}
static const struct stingy_stage table[STINGY_STAGES] = {
    NAMED(parse_request),  NAMED(http_lookup_vhost), NAMED(http_process_message), NAMED(http_dirlist_head),
    NAMED(list_directory), NAMED(http_dirlist_tail), NAMED(http_send_header),     NAMED(http_send_body),
    NAMED(flush_request),  NAMED(linger_request),
};

#define NUMBERED(atom) {atom, STINGY_STAGE_##atom}
static const struct {
    tux_atom *atom;
    unsigned stage;
} numbers[] = {
    NUMBERED(parse_request),     NUMBERED(http_lookup_vhost), NUMBERED(http_process_message),
    NUMBERED(http_send_header),  NUMBERED(http_send_body),    NUMBERED(flush_request),
    NUMBERED(http_dirlist_head), NUMBERED(list_directory),    NUMBERED(http_dirlist_tail),
    NUMBERED(linger_request),
};

void add_tux_atom(struct tux_request *req, tux_atom *atom) {
    unsigned i = 0;
    while (numbers[i].atom != atom)
        i++;
    req->atom = atom;
    if (!stingy_sched_add(stages_of(req->thread)->sched, numbers[i].stage, &req->task))
        tux_close(req);
}

void tux_wait(struct tux_request *req, enum tux_wait wait, tux_atom *atom) {
    (void)wait;
    req->atom = atom;
    if (!stingy_gate_wait(stages_of(req->thread)->gate, req->fd, req->thread->now_ms))
        add_tux_atom(req, atom);
}

static void unbind(struct tux_request *req) {
    struct stages *stages = stages_of(req->thread);
    stingy_sched_cancel(stages->sched, &req->task);
    stages->request_of[req->fd] = NULL;
    stages->bound--;
    tux_free_request(req);
}

void tux_next_request(struct tux_request *req) {
    struct tux_thread *thread = req->thread;
    int fd = req->fd;
    bool has_more = req->is_full_read;
    if (req->input_used > 0) {
        add_tux_atom(req, parse_request);
        return;
    }
    unbind(req);
    stingy_gate_park(stages_of(thread)->gate, fd, has_more, thread->now_ms);
}

static void close_connection(struct tux_thread *thread, int fd) {
    stingy_gate_forget(stages_of(thread)->gate, fd);
    close(fd);
}

void tux_close(struct tux_request *req) {
    struct tux_thread *thread = req->thread;
    int fd = req->fd;
    unbind(req);
    close_connection(thread, fd);
}

static uint32_t room(void *thread) {
    const struct stages *stages = stages_of(thread);
    uint32_t slots = stages->is_limited_by_room ? stingy_room(STINGY_STAGE_accept_requests) : UINT32_MAX;
    uint32_t admitted = stages->admit == 0              ? UINT32_MAX
                        : stages->admit > stages->bound ? stages->admit - stages->bound
                                                        : 0;
    return slots < admitted ? slots : admitted;
}

static bool bind_request(void *thread, int fd) {
    struct stages *stages = stages_of(thread);
    struct tux_request *req = (uint32_t)fd < stages->descriptors ? tux_new_request(thread, fd) : NULL;
    if (!req)
        return false;
    stingy_task_init(&req->task);
    stages->request_of[fd] = req;
    stages->bound++;
    add_tux_atom(req, parse_request);
    return true;
}

static void wake(void *thread, int fd) {
    struct tux_request *req = stages_of(thread)->request_of[fd];
    add_tux_atom(req, req->atom);
}

static void expire(void *thread, int fd, bool was_idle) {
    if (was_idle)
        close_connection(thread, fd);
    else
        tux_close(stages_of(thread)->request_of[fd]);
}

/* Moves all memory of a waiting request. It is in no queue, and only request_of points to it. */
static bool evict(void *thread, int fd) {
    struct stages *stages = stages_of(thread);
    struct tux_request *req = stages->request_of[fd], *moved;
    if (!stingy_is_in_cache_slab(req))
        return false;
#define MOVE(member, bytes)                                                                                     \
    do {                                                                                                        \
        void *block = req->member ? stingy_evict(STINGY_OBJ_tux_request_##member, req->member, (bytes)) : NULL; \
        if (block)                                                                                              \
            req->member = block;                                                                                \
    } while (0)
    MOVE(input, req->input_size);
    MOVE(target, strlen(req->target) + 1);
    MOVE(host, strlen(req->host) + 1);
    MOVE(path, strlen(req->path) + 1);
    MOVE(none_match, strlen(req->none_match) + 1);
    MOVE(location, strlen(req->location) + 1);
    MOVE(header, req->header_used);
    MOVE(body, req->body_size);
#undef MOVE
    moved = stingy_evict(STINGY_OBJ_tux_request, req, sizeof *req);
    if (!moved)
        return false;
    stages->request_of[fd] = moved;
    return true;
}

static bool start(struct tux_thread *thread, struct stages *stages) {
    const char *admit = getenv("STINGY_ADMIT"), *prefetch = getenv("STINGY_PREFETCH");
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    thread->scheduler = stages;
    stages->descriptors = (uint32_t)(limit.rlim_cur < 1 << 20 ? limit.rlim_cur : 1 << 20);
    stages->request_of = calloc(stages->descriptors, sizeof *stages->request_of);
    stages->admit = admit ? (uint32_t)strtoul(admit, NULL, 10) : 0;
    stages->is_limited_by_room = !admit || stages->admit > 0;
    stages->sched = stingy_sched_new(
        &(struct stingy_sched_config){.stages = table,
                                      .stage_count = STINGY_STAGES,
                                      .context = thread,
                                      .room = stingy_room,
                                      .task_offset = offsetof(struct tux_request, task),
                                      .prefetch_bytes = prefetch && *prefetch == '0' ? 0 : sizeof(struct tux_request)});
    stages->gate = stingy_gate_new(&(struct stingy_gate_config){.epoll = thread->epoll,
                                                                .listener = thread->listener,
                                                                .context = thread,
                                                                .room = room,
                                                                .bind = bind_request,
                                                                .wake = wake,
                                                                .expire = expire,
                                                                .evict = evict,
                                                                .most_connections = thread->options->connections,
                                                                .resume_room = STINGY_REQUESTS / 4 + 1,
                                                                .idle_ms = thread->options->timeout_s * 1000,
                                                                .waiting_ms = thread->options->timeout_s * 1000});
    return stages->request_of && stages->sched && stages->gate;
}

static void end(struct tux_thread *thread, struct stages *stages) {
    for (uint32_t fd = 0; stages->request_of && fd < stages->descriptors; fd++)
        if (stages->request_of[fd])
            tux_close(stages->request_of[fd]);
    stingy_gate_delete(stages->gate);
    stingy_sched_delete(stages->sched);
    free(stages->request_of);
    thread->scheduler = NULL;
}

static void serve(struct tux_thread *thread, bool *is_started) {
    struct epoll_event events[EVENTS];
    struct stages stages = {0};
    *is_started = start(thread, &stages);
    while (*is_started && !tux_is_ended) {
        int timeout_ms = stingy_sched_waiting(stages.sched) ? 0 : stingy_gate_timeout_ms(stages.gate, thread->now_ms);
        int count = epoll_wait(thread->epoll, events, EVENTS, timeout_ms < 0 || timeout_ms > 500 ? 500 : timeout_ms);
        thread->now_ms = tux_now_ms();
        for (int i = 0; i < count; i++)
            stingy_gate_event(stages.gate, &events[i], thread->now_ms);
        stingy_gate_admit(stages.gate, thread->now_ms);
        /* A finished request makes room for the next at once; the network is polled after some elections. */
        for (unsigned i = 0; i < ELECTIONS_A_TURN && stingy_sched_run(stages.sched) > 0; i++)
            stingy_gate_admit(stages.gate, thread->now_ms);
    }
    end(thread, &stages);
}

struct turn {
    struct tux_thread *thread;
    bool is_started;
};

static void serve_turn(void *turn) {
    serve(((struct turn *)turn)->thread, &((struct turn *)turn)->is_started);
}

/* On the part of the cache slab that the map keeps for the stack (stingygen --stack), else on the thread's stack. */
int event_loop(struct tux_thread *thread) {
    struct turn turn = {.thread = thread};
    stingy_call_on_stack(serve_turn, &turn);
    return turn.is_started ? 0 : -1;
}
