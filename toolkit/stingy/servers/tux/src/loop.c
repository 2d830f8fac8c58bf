/* The event loop, as in TUX (its event_loop): new connections first, then every request's next atom, then again. */
#define _GNU_SOURCE
#include "tux.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 1024, ACCEPTS = 1024 };
volatile sig_atomic_t tux_is_ended;

void add_tux_atom(struct tux_request *req, tux_atom *atom) {
    struct tux_thread *thread = req->thread;
    req->atom = atom;
    if (req->is_queued)
        return;
    req->is_queued = true;
    req->work_next = NULL;
    if (thread->work_last)
        thread->work_last->work_next = req;
    else
        thread->work_first = req;
    thread->work_last = req;
}

static void tux_schedule_atom(struct tux_request *req, tux_atom *atom) {
    atom(req);
}

static void leave_idle(struct tux_request *req) {
    struct tux_thread *thread = req->thread;
    if (!req->is_waiting)
        return;
    req->is_waiting = false;
    if (req->idle_previous)
        req->idle_previous->idle_next = req->idle_next;
    else
        thread->idle_first = req->idle_next;
    if (req->idle_next)
        req->idle_next->idle_previous = req->idle_previous;
    else
        thread->idle_last = req->idle_previous;
}

static void watch(struct tux_request *req, bool is_output) {
    struct epoll_event event = {.events = is_output ? EPOLLOUT : EPOLLIN, .data.ptr = req};
    if (req->is_watched_for_output != is_output && epoll_ctl(req->thread->epoll, EPOLL_CTL_MOD, req->fd, &event) == 0)
        req->is_watched_for_output = is_output;
}

/* The list begins with the request that has waited for the longest time. */
void tux_wait(struct tux_request *req, enum tux_wait wait, tux_atom *atom) {
    struct tux_thread *thread = req->thread;
    req->atom = atom;
    watch(req, wait == TUX_OUTPUT);
    req->is_waiting = true;
    req->since_ms = thread->now_ms;
    req->idle_next = NULL;
    req->idle_previous = thread->idle_last;
    if (thread->idle_last)
        thread->idle_last->idle_next = req;
    else
        thread->idle_first = req;
    thread->idle_last = req;
}

void tux_next_request(struct tux_request *req) {
    /* The next request may have arrived already (pipelining). */
    if (req->input_used > 0)
        add_tux_atom(req, parse_request);
    else
        tux_wait(req, TUX_INPUT, parse_request);
}

void tux_close(struct tux_request *req) {
    leave_idle(req);
    req->thread->connections--;
    close(req->fd);
    tux_free_request(req);
}

static void listen_or_not(struct tux_thread *thread, bool is_listening) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (thread->is_listening != is_listening &&
        epoll_ctl(thread->epoll, is_listening ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, thread->listener, &event) == 0)
        thread->is_listening = is_listening;
}

static void accept_requests(struct tux_thread *thread) {
    for (unsigned i = 0; i < ACCEPTS && thread->connections < thread->options->connections; i++) {
        int fd = accept4(thread->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN)
                listen_or_not(thread, false);
            return;
        }
        struct tux_request *req = tux_new_request(thread, fd);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = req};
        if (!req || epoll_ctl(thread->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
            if (req)
                tux_free_request(req);
            close(fd);
            return;
        }
        thread->connections++;
        tux_wait(req, TUX_INPUT, parse_request);
    }
    if (thread->connections >= thread->options->connections)
        listen_or_not(thread, false);
}

static void close_the_slow(struct tux_thread *thread) {
    uint64_t timeout_ms = thread->options->timeout_s * UINT64_C(1000);
    /* A request that has just been woken runs first. */
    while (thread->idle_first && !thread->idle_first->is_queued &&
           thread->idle_first->since_ms + timeout_ms <= thread->now_ms)
        tux_close(thread->idle_first);
}

int event_loop(struct tux_thread *thread) {
    struct epoll_event events[EVENTS];
    listen_or_not(thread, true);
    while (!tux_is_ended) {
        int count = epoll_wait(thread->epoll, events, EVENTS, thread->work_first ? 0 : 500);
        thread->now_ms = tux_now_ms();
        for (int i = 0; i < count; i++)
            if (!events[i].data.ptr)
                accept_requests(thread);
        for (int i = 0; i < count; i++) {
            struct tux_request *req = events[i].data.ptr;
            if (req && !req->is_queued && req->is_waiting)
                add_tux_atom(req, req->atom);
        }
        /* Runs the queued atoms; those that these queue run after the next poll of the network. */
        struct tux_request *last = thread->work_last, *req = NULL;
        while (last && req != last && (req = thread->work_first)) {
            bool is_last = req == last;
            thread->work_first = req->work_next;
            if (!thread->work_first)
                thread->work_last = NULL;
            req->is_queued = false;
            leave_idle(req);
            tux_schedule_atom(req, req->atom);
            if (is_last)
                break;
        }
        close_the_slow(thread);
        if (thread->connections < thread->options->connections)
            listen_or_not(thread, true);
    }
    while (thread->work_first) {
        struct tux_request *req = thread->work_first;
        thread->work_first = req->work_next;
        tux_close(req);
    }
    while (thread->idle_first)
        tux_close(thread->idle_first);
    return 0;
}
