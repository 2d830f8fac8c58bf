/* The gate; see stingy/gate.h. */
#define _GNU_SOURCE
#include "by_fd.h"

#include <errno.h>
#include <stdlib.h>
#include <stingy/gate.h>
#include <sys/socket.h>
#include <unistd.h>

/* An EVICTED connection waits, too, but either holds no room or cannot be moved, so it is not evicted again. */
enum state { NONE, IDLE, READY, WAITING, EVICTED, BUSY, STATES };
enum { NOBODY = -1, ACCEPTS_AT_ONCE = 256, RETRY_MS = 100, ALL_EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };

/* A connection, at the index of its descriptor. Lists are in order of `since`, so the first entry is due next. */
struct record {
    uint64_t since_ms;
    int32_t next, previous;
    uint8_t state;
    bool has_news;  /* an edge came and is not handled yet */
    bool is_closed; /* the peer has closed; epoll reports that only once */
};
_Static_assert(sizeof(struct record) == 24, "as small as the header says");

struct list {
    int32_t first, last;
    uint32_t count;
};

struct stingy_gate {
    struct stingy_gate_config config;
    struct record *records;
    uint32_t size;
    struct list lists[STATES];
    struct stingy_gate_stats stats;
    uint64_t retry_ms;   /* accept failed for lack of descriptors or memory: retry not before this time */
    uint64_t patient_ms; /* from then on the disarmed listener no longer waits for room */
    bool is_listening;
};

static void list_remove(struct stingy_gate *gate, int fd) {
    struct record *record = &gate->records[fd];
    struct list *list = &gate->lists[record->state];
    if (record->previous == NOBODY)
        list->first = record->next;
    else
        gate->records[record->previous].next = record->next;
    if (record->next == NOBODY)
        list->last = record->previous;
    else
        gate->records[record->next].previous = record->previous;
    list->count--;
}

static void list_append(struct stingy_gate *gate, int fd) {
    struct record *record = &gate->records[fd];
    struct list *list = &gate->lists[record->state];
    record->previous = list->last;
    record->next = NOBODY;
    if (list->last == NOBODY)
        list->first = fd;
    else
        gate->records[list->last].next = fd;
    list->last = fd;
    list->count++;
}

static void becomes(struct stingy_gate *gate, int fd, enum state state, uint64_t now_ms) {
    struct record *record = &gate->records[fd];
    if (record->state != NONE)
        list_remove(gate, fd);
    record->state = (uint8_t)state;
    record->since_ms = now_ms;
    if (state != NONE)
        list_append(gate, fd);
}

static struct record *known(const struct stingy_gate *gate, int fd) {
    return fd >= 0 && (uint32_t)fd < gate->size && gate->records[fd].state != NONE ? &gate->records[fd] : NULL;
}

static uint32_t connections(const struct stingy_gate *gate) {
    return gate->lists[IDLE].count + gate->lists[READY].count + gate->lists[WAITING].count +
           gate->lists[EVICTED].count + gate->lists[BUSY].count;
}

/* A disarmed listener is removed from epoll: an unhandled level would wake the loop again and again. */
static void listen_or_not(struct stingy_gate *gate, bool is_listening, uint64_t now_ms) {
    if (gate->config.listener < 0 || gate->is_listening == is_listening)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = gate->config.listener};
    if (epoll_ctl(gate->config.epoll, is_listening ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, gate->config.listener, &event) != 0)
        return;
    gate->is_listening = is_listening;
    gate->patient_ms = now_ms + gate->config.patience_ms;
    gate->stats.disarmed += !is_listening;
}

struct stingy_gate *stingy_gate_new(const struct stingy_gate_config *config) {
    if (!config || !config->room || !config->bind || !config->wake || !config->expire) {
        errno = EINVAL;
        return NULL;
    }
    struct stingy_gate *gate = calloc(1, sizeof *gate);
    if (!gate)
        return NULL;
    gate->config = *config;
    uint32_t *defaults[] = {&gate->config.most_connections, &gate->config.resume_room, &gate->config.grace_ms,
                            &gate->config.patience_ms,      &gate->config.idle_ms,     &gate->config.waiting_ms};
    static const uint32_t values[] = {1000000, 1, 20, 200, 15000, 15000};
    for (unsigned i = 0; i < sizeof values / sizeof *values; i++)
        if (*defaults[i] == 0)
            *defaults[i] = values[i];
    for (unsigned s = 0; s < STATES; s++)
        gate->lists[s] = (struct list){NOBODY, NOBODY, 0};
    listen_or_not(gate, true, 0);
    if (config->listener >= 0 && !gate->is_listening) {
        int why = errno;
        free(gate);
        errno = why;
        return NULL;
    }
    return gate;
}

void stingy_gate_delete(struct stingy_gate *gate) {
    if (!gate)
        return;
    listen_or_not(gate, false, 0);
    free(gate->records);
    free(gate);
}

bool stingy_gate_adopt(struct stingy_gate *gate, int fd, uint64_t now_ms) {
    if (fd < 0 || connections(gate) >= gate->config.most_connections)
        return false;
    struct record *records = with_place_for(gate->records, &gate->size, (uint32_t)fd, sizeof *records);
    if (!records)
        return false;
    gate->records = records;
    struct epoll_event event = {.events = ALL_EVENTS, .data.fd = fd};
    if (gate->records[fd].state != NONE || epoll_ctl(gate->config.epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return false;
    gate->records[fd].has_news = gate->records[fd].is_closed = false;
    becomes(gate, fd, IDLE, now_ms);
    return true;
}

/* Out of descriptors or memory: connections stay in the backlog. A listener in epoll would wake the loop at once,
 * in vain. */
static void accept_failed(struct stingy_gate *gate, uint64_t now_ms) {
    gate->stats.accept_failures++;
    gate->retry_ms = now_ms + RETRY_MS;
    listen_or_not(gate, false, now_ms);
}

static void accept_some(struct stingy_gate *gate, uint64_t now_ms) {
    for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
        if (connections(gate) >= gate->config.most_connections) {
            listen_or_not(gate, false, now_ms);
            return;
        }
        int fd = accept4(gate->config.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                accept_failed(gate, now_ms);
            return;
        }
        if (!stingy_gate_adopt(gate, fd, now_ms)) {
            close(fd);
            accept_failed(gate, now_ms);
            return;
        }
        gate->stats.accepted++;
    }
}

bool stingy_gate_event(struct stingy_gate *gate, const struct epoll_event *event, uint64_t now_ms) {
    int fd = event->data.fd;
    if (fd == gate->config.listener && fd >= 0) {
        accept_some(gate, now_ms);
        return true;
    }
    struct record *record = known(gate, fd);
    if (!record)
        return false;
    bool is_input = event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    bool is_end = event->events & (EPOLLRDHUP | EPOLLHUP);
    record->is_closed |= is_end;
    switch (record->state) {
    case IDLE:
        if (is_input)
            becomes(gate, fd, READY, now_ms);
        break;
    case WAITING:
    case EVICTED:
        becomes(gate, fd, BUSY, now_ms);
        /* This edge's bytes are read first, so the end must still be handled. */
        record->has_news = is_end;
        gate->config.wake(gate->config.context, fd);
        break;
    default:
        record->has_news = true;
    }
    return true;
}

static void bind_first(struct stingy_gate *gate, uint64_t now_ms) {
    int fd = gate->lists[READY].first;
    becomes(gate, fd, BUSY, now_ms);
    gate->records[fd].has_news = gate->records[fd].is_closed;
    gate->stats.bound++;
    if (!gate->config.bind(gate->config.context, fd)) {
        stingy_gate_forget(gate, fd);
        close(fd);
    }
}

static bool is_due(const struct stingy_gate *gate, enum state state, uint32_t after_ms, uint64_t now_ms) {
    int fd = gate->lists[state].first;
    return fd != NOBODY && gate->records[fd].since_ms + after_ms <= now_ms;
}

static void expire_due(struct stingy_gate *gate, uint64_t now_ms) {
    const struct {
        enum state state;
        uint32_t after_ms;
    } kinds[] = {{IDLE, gate->config.idle_ms}, {WAITING, gate->config.waiting_ms}, {EVICTED, gate->config.waiting_ms}};
    for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++)
        while (is_due(gate, kinds[k].state, kinds[k].after_ms, now_ms)) {
            int fd = gate->lists[kinds[k].state].first;
            gate->stats.expired++;
            gate->config.expire(gate->config.context, fd, kinds[k].state == IDLE);
            if (gate->lists[kinds[k].state].first == fd)
                becomes(gate, fd, kinds[k].state, now_ms);
        }
}

/* Takes room from the client that has been slow for the longest time. The client's timeout restarts. */
static bool evict_one(struct stingy_gate *gate, uint64_t now_ms) {
    bool is_moved = false;
    while (!is_moved && gate->config.evict && is_due(gate, WAITING, gate->config.grace_ms, now_ms)) {
        int fd = gate->lists[WAITING].first;
        is_moved = gate->config.evict(gate->config.context, fd);
        becomes(gate, fd, EVICTED, now_ms);
        gate->stats.evicted += is_moved;
    }
    return is_moved;
}

void stingy_gate_admit(struct stingy_gate *gate, uint64_t now_ms) {
    expire_due(gate, now_ms);
    while (gate->lists[READY].count > 0) {
        /* So many requests fit whatever they do, because nothing else runs meanwhile. */
        uint32_t fits = gate->config.room(gate->config.context);
        if (fits > 0) {
            while (fits-- > 0 && gate->lists[READY].count > 0)
                bind_first(gate, now_ms);
            continue;
        }
        if (evict_one(gate, now_ms))
            continue;
        if (!is_due(gate, READY, gate->config.patience_ms, now_ms))
            break;
        gate->stats.bound_without_room++;
        bind_first(gate, now_ms);
    }
    uint32_t room = gate->config.room(gate->config.context);
    if (gate->lists[READY].count > 0 && room == 0)
        listen_or_not(gate, false, now_ms);
    else if (gate->lists[READY].count == 0 && (room >= gate->config.resume_room || now_ms >= gate->patient_ms) &&
             now_ms >= gate->retry_ms && connections(gate) < gate->config.most_connections)
        listen_or_not(gate, true, now_ms);
}

static void sooner(uint64_t due_ms, uint64_t now_ms, int *timeout_ms) {
    uint64_t left_ms = due_ms > now_ms ? due_ms - now_ms : 0;
    if (*timeout_ms < 0 || left_ms < (uint64_t)*timeout_ms)
        *timeout_ms = (int)left_ms;
}

static void first_due(const struct stingy_gate *gate, enum state state, uint32_t after_ms, uint64_t now_ms,
                      int *timeout_ms) {
    int fd = gate->lists[state].first;
    if (fd != NOBODY)
        sooner(gate->records[fd].since_ms + after_ms, now_ms, timeout_ms);
}

int stingy_gate_timeout_ms(const struct stingy_gate *gate, uint64_t now_ms) {
    int timeout_ms = -1;
    first_due(gate, IDLE, gate->config.idle_ms, now_ms, &timeout_ms);
    first_due(gate, WAITING, gate->config.waiting_ms, now_ms, &timeout_ms);
    first_due(gate, EVICTED, gate->config.waiting_ms, now_ms, &timeout_ms);
    /* A past retry time waits for something else, so it is no reason to wake up. */
    if (!gate->is_listening && gate->retry_ms > now_ms)
        sooner(gate->retry_ms, now_ms, &timeout_ms);
    if (!gate->is_listening && gate->patient_ms > now_ms)
        sooner(gate->patient_ms, now_ms, &timeout_ms);
    if (gate->lists[READY].count > 0) {
        if (gate->config.room(gate->config.context) > 0)
            return 0;
        first_due(gate, READY, gate->config.patience_ms, now_ms, &timeout_ms);
        if (gate->config.evict)
            first_due(gate, WAITING, gate->config.grace_ms, now_ms, &timeout_ms);
    }
    return timeout_ms;
}

bool stingy_gate_wait(struct stingy_gate *gate, int fd, uint64_t now_ms) {
    struct record *record = known(gate, fd);
    if (!record)
        return false;
    if (record->has_news) {
        record->has_news = false;
        return false;
    }
    becomes(gate, fd, WAITING, now_ms);
    return true;
}

void stingy_gate_park(struct stingy_gate *gate, int fd, bool has_more, uint64_t now_ms) {
    struct record *record = known(gate, fd);
    if (!record)
        return;
    bool is_ready = has_more || record->has_news || record->is_closed;
    record->has_news = false;
    becomes(gate, fd, is_ready ? READY : IDLE, now_ms);
}

void stingy_gate_forget(struct stingy_gate *gate, int fd) {
    if (!known(gate, fd))
        return;
    becomes(gate, fd, NONE, 0);
    gate->retry_ms = 0;
    epoll_ctl(gate->config.epoll, EPOLL_CTL_DEL, fd, NULL);
}

int stingy_gate_after(const struct stingy_gate *gate, int fd) {
    for (fd++; (uint32_t)fd < gate->size; fd++)
        if (known(gate, fd))
            return fd;
    return NOBODY;
}

struct stingy_gate_stats stingy_gate_stats(const struct stingy_gate *gate) {
    struct stingy_gate_stats stats = gate->stats;
    stats.idle = gate->lists[IDLE].count, stats.ready = gate->lists[READY].count;
    stats.busy = gate->lists[BUSY].count, stats.waiting = gate->lists[WAITING].count + gate->lists[EVICTED].count;
    stats.is_listening = gate->is_listening;
    return stats;
}
