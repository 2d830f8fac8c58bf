/* The loop; see stingy/loop.h. */
#define _GNU_SOURCE
#include "by_fd.h"

#include <errno.h>
#include <stdlib.h>
#include <stingy/loop.h>
#include <stingy/runtime.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 1024, ELECTIONS_A_TURN = 256, LONGEST_WAIT_MS = 500 };

struct stingy_loop {
    struct stingy_loop_config config;
    int epoll;
    struct stingy_gate *gate;
    struct stingy_sched *sched;
    struct stingy_request **request_of; /* indexed by descriptor; NULL: the connection has no request */
    uint32_t size, requests;
    uint64_t now_ms;
    const volatile sig_atomic_t *is_ended;
    int next_event, event_count; /* events of this turn that are not handled yet */
    struct epoll_event events[EVENTS];
};

static uint64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t admits(void *context) {
    const struct stingy_loop *loop = context;
    const struct stingy_loop_config *config = &loop->config;
    uint32_t room =
        config->room && config->admission_stage != STINGY_NO_STAGE ? config->room(config->admission_stage) : UINT32_MAX;
    uint32_t most = config->most_requests == 0               ? UINT32_MAX
                    : config->most_requests > loop->requests ? config->most_requests - loop->requests
                                                             : 0;
    return room < most ? room : most;
}

static bool has_place(struct stingy_loop *loop, uint32_t fd) {
    struct stingy_request **table = with_place_for(loop->request_of, &loop->size, fd, sizeof *table);
    if (table)
        loop->request_of = table;
    return table != NULL;
}

static bool bind_request(void *context, int fd) {
    struct stingy_loop *loop = context;
    struct stingy_request *request =
        has_place(loop, (uint32_t)fd) ? loop->config.begin(loop->config.context, fd) : NULL;
    if (!request)
        return false;
    stingy_task_init(&request->task);
    request->fd = fd;
    loop->request_of[fd] = request;
    loop->requests++;
    if (stingy_sched_add(loop->sched, loop->config.first_stage, &request->task))
        return true;
    loop->request_of[fd] = NULL;
    loop->requests--;
    loop->config.end(loop->config.context, request);
    return false;
}

static void wake(void *context, int fd) {
    struct stingy_loop *loop = context;
    struct stingy_request *request = loop->request_of[fd];
    stingy_loop_go(loop, request, request->next_stage);
}

static void close_connection(struct stingy_loop *loop, int fd) {
    stingy_gate_forget(loop->gate, fd);
    close(fd);
    /* The next connection may get this number. */
    for (int i = loop->next_event; i < loop->event_count; i++)
        if (loop->events[i].data.fd == fd)
            loop->events[i].events = 0;
}

static void expire(void *context, int fd, bool was_idle) {
    struct stingy_loop *loop = context;
    if (was_idle)
        close_connection(loop, fd);
    else
        stingy_loop_close(loop, loop->request_of[fd]);
}

/* The request waits, so it is in no queue, and only request_of points to it. If requests are counted, moving one
 * makes no room. */
static bool evict(void *context, int fd) {
    struct stingy_loop *loop = context;
    if (loop->config.most_requests != 0 && loop->requests >= loop->config.most_requests)
        return false;
    struct stingy_request *moved = loop->config.move(loop->config.context, loop->request_of[fd]);
    if (moved)
        loop->request_of[fd] = moved;
    return moved != NULL;
}

struct stingy_loop *stingy_loop_new(const struct stingy_loop_config *config) {
    if (!config || !config->begin || !config->end || config->first_stage >= config->stage_count) {
        errno = EINVAL;
        return NULL;
    }
    struct stingy_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return NULL;
    loop->config = *config;
    loop->now_ms = clock_ms();
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->sched = stingy_sched_new(&(struct stingy_sched_config){.stages = config->stages,
                                                                 .stage_count = config->stage_count,
                                                                 .context = config->context,
                                                                 .room = config->room,
                                                                 .task_offset = config->request_offset,
                                                                 .prefetch_bytes = config->prefetch_bytes});
    if (loop->epoll >= 0 && loop->sched)
        loop->gate = stingy_gate_new(&(struct stingy_gate_config){.epoll = loop->epoll,
                                                                  .listener = config->listener,
                                                                  .context = loop,
                                                                  .room = admits,
                                                                  .bind = bind_request,
                                                                  .wake = wake,
                                                                  .expire = expire,
                                                                  .evict = config->move ? evict : NULL,
                                                                  .most_connections = config->most_connections,
                                                                  .resume_room = config->resume_room,
                                                                  .idle_ms = config->idle_ms,
                                                                  .waiting_ms = config->waiting_ms});
    if (loop->gate)
        return loop;
    int why = errno;
    stingy_loop_delete(loop);
    errno = why;
    return NULL;
}

void stingy_loop_delete(struct stingy_loop *loop) {
    if (!loop)
        return;
    for (uint32_t fd = 0; fd < loop->size; fd++)
        if (loop->request_of[fd])
            stingy_loop_close(loop, loop->request_of[fd]);
    for (int fd = -1; loop->gate && (fd = stingy_gate_after(loop->gate, fd)) >= 0;)
        close_connection(loop, fd);
    stingy_gate_delete(loop->gate);
    stingy_sched_delete(loop->sched);
    if (loop->epoll >= 0)
        close(loop->epoll);
    free(loop->request_of);
    free(loop);
}

static void turn(struct stingy_loop *loop) {
    int timeout_ms = stingy_sched_waiting(loop->sched) ? 0 : stingy_gate_timeout_ms(loop->gate, loop->now_ms);
    if (timeout_ms < 0 || timeout_ms > LONGEST_WAIT_MS)
        timeout_ms = LONGEST_WAIT_MS;
    loop->event_count = epoll_wait(loop->epoll, loop->events, EVENTS, timeout_ms);
    loop->next_event = 0;
    loop->now_ms = clock_ms();
    if (loop->config.turn)
        loop->config.turn(loop->config.context, loop->now_ms);
    while (loop->next_event < loop->event_count) {
        const struct epoll_event *event = &loop->events[loop->next_event++];
        if (event->events != 0 && !stingy_gate_event(loop->gate, event, loop->now_ms) && loop->config.event)
            loop->config.event(loop->config.context, event);
    }
    stingy_gate_admit(loop->gate, loop->now_ms);
    /* A finished request makes room for the next one at once; the network is polled after some elections. */
    for (unsigned i = 0; i < ELECTIONS_A_TURN && stingy_sched_run(loop->sched) > 0; i++)
        stingy_gate_admit(loop->gate, loop->now_ms);
}

static void serve(void *context) {
    struct stingy_loop *loop = context;
    while (!*loop->is_ended)
        turn(loop);
}

void stingy_loop_run(struct stingy_loop *loop, const volatile sig_atomic_t *is_ended) {
    loop->is_ended = is_ended;
    stingy_call_on_stack(serve, loop);
}

/* Frees the request but keeps its connection. */
static void unbind(struct stingy_loop *loop, struct stingy_request *request) {
    stingy_sched_cancel(loop->sched, &request->task);
    loop->request_of[request->fd] = NULL;
    loop->requests--;
    loop->config.end(loop->config.context, request);
}

void stingy_loop_go(struct stingy_loop *loop, struct stingy_request *request, unsigned stage) {
    if (!stingy_sched_add(loop->sched, stage, &request->task))
        stingy_loop_close(loop, request);
}

void stingy_loop_wait(struct stingy_loop *loop, struct stingy_request *request, unsigned stage) {
    request->next_stage = stage;
    if (!stingy_gate_wait(loop->gate, request->fd, loop->now_ms))
        stingy_loop_go(loop, request, stage);
}

void stingy_loop_next(struct stingy_loop *loop, struct stingy_request *request, bool has_more) {
    int fd = request->fd;
    unbind(loop, request);
    stingy_gate_park(loop->gate, fd, has_more, loop->now_ms);
}

void stingy_loop_close(struct stingy_loop *loop, struct stingy_request *request) {
    int fd = request->fd;
    unbind(loop, request);
    close_connection(loop, fd);
}

uint64_t stingy_loop_now_ms(const struct stingy_loop *loop) {
    return loop->now_ms;
}

int stingy_loop_epoll(const struct stingy_loop *loop) {
    return loop->epoll;
}

uint32_t stingy_loop_requests(const struct stingy_loop *loop) {
    return loop->requests;
}

struct stingy_gate_stats stingy_loop_gate_stats(const struct stingy_loop *loop) {
    return stingy_gate_stats(loop->gate);
}

struct stingy_sched_stats stingy_loop_sched_stats(const struct stingy_loop *loop) {
    return stingy_sched_stats(loop->sched);
}
