/* tux, rescheduled: replaces src/loop.c by stingy/loop.h. This is the step that the paper does by hand (section 4.5).
 *
 *   src/loop.c                                  here
 *   a request structure for each connection     one for each admitted request; idle connections are records of the
 *                                               gate
 *   accept everything                           accept everything while there is room
 *   every request's next atom, in turn          batches of one stage
 *   epoll by level, timeouts by list            epoll by edge, timeouts by the gate
 *
 * STINGY_ADMIT=N in the environment admits at most N requests at a time, whatever room there is; 0: no limit except
 * memory.
 */
#include "stingy_gen.h"
#include "tux.h"

#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t tux_is_ended;

static struct stingy_loop *loop_of(const struct tux_request *req) {
    return req->thread->scheduler;
}

static struct tux_request *request_of(struct stingy_task *task) {
    return (struct tux_request *)((char *)task - offsetof(struct tux_request, loop.task));
}

#define ATOMS(DO)            \
    DO(parse_request)        \
    DO(http_lookup_vhost)    \
    DO(http_process_message) \
    DO(http_dirlist_head)    \
    DO(list_directory)       \
    DO(http_dirlist_tail) DO(http_send_header) DO(http_send_body) DO(flush_request) DO(linger_request)
#define STAGE(atom)                                                   \
    static void run_##atom(struct stingy_task *task, void *context) { \
        (void)context;                                                \
        atom(request_of(task));                                       \
    }
ATOMS(STAGE)
#define NAMED(atom) [STINGY_STAGE_##atom] = {#atom, run_##atom},
static const struct stingy_stage stages[STINGY_STAGES] = {ATOMS(NAMED)};
#define NUMBERED(atom) {atom, STINGY_STAGE_##atom},
static const struct {
    tux_atom *atom;
    unsigned stage;
} numbers[] = {ATOMS(NUMBERED)};

static unsigned stage_of(tux_atom *atom) {
    unsigned i = 0;
    while (numbers[i].atom != atom)
        i++;
    return numbers[i].stage;
}

void add_tux_atom(struct tux_request *req, tux_atom *atom) {
    stingy_loop_go(loop_of(req), &req->loop, stage_of(atom));
}

void tux_wait(struct tux_request *req, enum tux_wait wait, tux_atom *atom) {
    (void)wait;
    stingy_loop_wait(loop_of(req), &req->loop, stage_of(atom));
}

void tux_next_request(struct tux_request *req) {
    if (req->input_used > 0)
        add_tux_atom(req, parse_request);
    else
        stingy_loop_next(loop_of(req), &req->loop, req->is_full_read);
}

void tux_close(struct tux_request *req) {
    stingy_loop_close(loop_of(req), &req->loop);
}

static struct stingy_request *begin(void *thread, int fd) {
    struct tux_request *req = tux_new_request(thread, fd);
    return req ? &req->loop : NULL;
}

static void end(void *thread, struct stingy_request *request) {
    (void)thread;
    tux_free_request(request_of(&request->task));
}

static void turn(void *thread, uint64_t now_ms) {
    ((struct tux_thread *)thread)->now_ms = now_ms;
}

static struct stingy_request *move(void *thread, struct stingy_request *request) {
    (void)thread;
    struct tux_request *req = request_of(&request->task), *moved;
    if (!stingy_is_in_cache_slab(req))
        return NULL;
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
    return moved ? &moved->loop : NULL;
}

int event_loop(struct tux_thread *thread) {
    const char *admit = getenv("STINGY_ADMIT"), *prefetch = getenv("STINGY_PREFETCH");
    uint32_t most = admit ? (uint32_t)strtoul(admit, NULL, 10) : 0;
    struct stingy_loop_config config = {
        .listener = thread->listener,
        .stages = stages,
        .stage_count = STINGY_STAGES,
        .first_stage = STINGY_STAGE_parse_request,
        .context = thread,
        .begin = begin,
        .end = end,
        .move = move,
        .turn = turn,
        .room = stingy_room,
        .admission_stage = admit && most == 0 ? STINGY_NO_STAGE : STINGY_STAGE_accept_requests,
        .most_requests = most,
        .most_connections = thread->options->connections,
        .resume_room = STINGY_REQUESTS / 4 + 1,
        .idle_ms = thread->options->timeout_s * 1000,
        .waiting_ms = thread->options->timeout_s * 1000,
        .request_offset = offsetof(struct tux_request, loop),
        .prefetch_bytes = prefetch && *prefetch == '0' ? 0 : sizeof(struct tux_request)};
    thread->scheduler = stingy_loop_new(&config);
    if (!thread->scheduler)
        return -1;
    stingy_loop_run(thread->scheduler, &tux_is_ended);
    stingy_loop_delete(thread->scheduler);
    thread->scheduler = NULL;
    return 0;
}
