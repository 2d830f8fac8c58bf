/* io_uring in place of epoll, for tux on stingy/loop.h: a preload library, the experiment after which the loop got no
 * second engine (toolkit/stingy/bench/runs/2026-11-27-stingy-engine). URING says how much of it is used:
 *
 *     poll       multishot accept and multishot poll: a completion says that a connection can be read
 *     receive    multishot accept and multishot receive: the bytes come with the completion, in provided buffers, out
 *                of which recv copies them without a system call
 *
 * Requests to the kernel go with the next wait, all in one call; without news the wait is no call at all. It is no
 * general emulation: what is watched by edge is a connection, what is watched by level is a listener, and one thread of
 * the process waits. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A request of the benchmark has 110 bytes: with 256 a buffer holds it, and all buffers are 1 MiB. */
enum { ENTRIES = 4096, COMPLETIONS = 16384, BUFFERS = 4096, BUFFER_BYTES = 256, DESCRIPTORS = 1 << 16, NONE = 0xffff };
enum kind { ACCEPT, POLL, RECEIVE, OUTPUT, CANCEL };

/* A connection, at the index of its descriptor. The generation distinguishes it from the one before it. */
static struct connection {
    uint32_t generation;
    bool is_watched, is_starved;
    uint16_t first, last; /* buffers that have come and are not read */
    int ending;           /* 1: the other side has ended; below 0: the error */
} connections[DESCRIPTORS];

static struct buffer {
    uint16_t next, at, used;
} buffers[BUFFERS];

static struct {
    int fd, listener; /* fd: its number among the registered ones, once it is registered */
    bool is_receiving, is_listening;
    unsigned *sq_head, *sq_tail, *sq_flags, *cq_head, *cq_tail;
    unsigned tail; /* of the requests that are written, submitted or not */
    struct io_uring_sqe *requests;
    struct io_uring_cqe *completions;
    struct io_uring_buf_ring *given;
    char *bytes;
    int accepted[COMPLETIONS]; /* descriptors, or errors below 0 */
    unsigned accepted_first, accepted_end;
    int starved[DESCRIPTORS]; /* connections whose data found no buffer */
    unsigned starved_count;
} ring = {.fd = -1, .listener = -1};

static void must(bool is_well, const char *what) {
    if (is_well)
        return;
    perror(what);
    _exit(70);
}

static void give(unsigned i) {
    struct io_uring_buf *place = &ring.given->bufs[ring.given->tail & (BUFFERS - 1)];
    place->addr = (uintptr_t)ring.bytes + (size_t)i * BUFFER_BYTES;
    place->len = BUFFER_BYTES;
    place->bid = (uint16_t)i;
    __atomic_store_n(&ring.given->tail, (uint16_t)(ring.given->tail + 1), __ATOMIC_RELEASE);
}

static void *anonymous(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    must(at != MAP_FAILED, "uring: mmap");
    return at;
}

static void make_buffers(void) {
    ring.given = anonymous(BUFFERS * sizeof(struct io_uring_buf));
    ring.bytes = anonymous((size_t)BUFFERS * BUFFER_BYTES);
    struct io_uring_buf_reg where = {.ring_addr = (uintptr_t)ring.given, .ring_entries = BUFFERS};
    must(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_PBUF_RING, &where, 1) == 0, "uring: buffers");
    for (unsigned i = 0; i < BUFFERS; i++)
        give(i);
}

static void start(void) {
    const char *mode = getenv("URING");
    must(mode && (strcmp(mode, "poll") == 0 || strcmp(mode, "receive") == 0), "uring: URING=poll or receive");
    ring.is_receiving = mode[0] == 'r';
    struct io_uring_params of = {.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER |
                                          IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
                                 .cq_entries = COMPLETIONS};
    ring.fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &of);
    must(ring.fd >= 0, "uring: io_uring_setup");
    size_t bytes = of.cq_off.cqes + of.cq_entries * sizeof(struct io_uring_cqe),
           array_end = of.sq_off.array + of.sq_entries * sizeof(unsigned);
    bytes = bytes > array_end ? bytes : array_end;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
    ring.requests = mmap(NULL, of.sq_entries * sizeof *ring.requests, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                         ring.fd, IORING_OFF_SQES);
    must(at != MAP_FAILED && (void *)ring.requests != MAP_FAILED, "uring: mmap");
    ring.sq_head = (unsigned *)(at + of.sq_off.head), ring.sq_tail = (unsigned *)(at + of.sq_off.tail);
    ring.sq_flags = (unsigned *)(at + of.sq_off.flags);
    ring.cq_head = (unsigned *)(at + of.cq_off.head), ring.cq_tail = (unsigned *)(at + of.cq_off.tail);
    ring.completions = (struct io_uring_cqe *)(at + of.cq_off.cqes);
    for (unsigned i = 0; i < of.sq_entries; i++)
        ((unsigned *)(at + of.sq_off.array))[i] = i;
    if (ring.is_receiving)
        make_buffers();
    /* A registered ring need not be looked up and held in each call. */
    struct io_uring_rsrc_update update = {.offset = UINT32_MAX, .data = (uint64_t)ring.fd};
    must(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_RING_FDS, &update, 1) == 1, "uring: registration");
    ring.fd = (int)update.offset;
}

/* Submits what is written, and waits for a completion for so long; below 0: for ever. */
static void enter(int timeout_ms) {
    struct __kernel_timespec time = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    struct io_uring_getevents_arg argument = {.ts = timeout_ms > 0 ? (uintptr_t)&time : 0};
    unsigned written = ring.tail - *ring.sq_head;
    __atomic_store_n(ring.sq_tail, ring.tail, __ATOMIC_RELEASE);
    long done = syscall(SYS_io_uring_enter, ring.fd, written, timeout_ms != 0,
                        IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG | IORING_ENTER_REGISTERED_RING, &argument,
                        sizeof argument);
    must(done >= 0 || errno == ETIME || errno == EINTR || errno == EAGAIN || errno == EBUSY, "uring: io_uring_enter");
}

static struct io_uring_sqe *request(enum kind kind, int fd, uint32_t generation) {
    while (ring.tail - __atomic_load_n(ring.sq_head, __ATOMIC_ACQUIRE) >= ENTRIES)
        enter(0);
    struct io_uring_sqe *sqe = &ring.requests[ring.tail++ & (ENTRIES - 1)];
    *sqe = (struct io_uring_sqe){
        .fd = fd, .user_data = (uint64_t)kind << 56 | (uint64_t)(generation & 0xffffff) << 32 | (uint32_t)fd};
    return sqe;
}

static void watch(int fd) {
    struct io_uring_sqe *sqe = request(ring.is_receiving ? RECEIVE : POLL, fd, connections[fd].generation);
    if (ring.is_receiving) {
        sqe->opcode = IORING_OP_RECV;
        sqe->ioprio = IORING_RECV_MULTISHOT;
        sqe->flags = IOSQE_BUFFER_SELECT;
    } else {
        sqe->opcode = IORING_OP_POLL_ADD;
        sqe->len = IORING_POLL_ADD_MULTI;
        sqe->poll32_events = POLLIN | POLLOUT | POLLRDHUP;
    }
}

static void cancel(enum kind kind, int fd, uint32_t generation) {
    uint64_t whose = request(kind, fd, generation)->user_data;
    struct io_uring_sqe *sqe = &ring.requests[(ring.tail - 1) & (ENTRIES - 1)];
    *sqe = (struct io_uring_sqe){
        .opcode = IORING_OP_ASYNC_CANCEL, .fd = -1, .addr = whose, .user_data = (uint64_t)CANCEL << 56};
}

static void listen_or_not(int fd, bool is_listening) {
    ring.listener = fd;
    ring.is_listening = is_listening;
    if (!is_listening) {
        cancel(ACCEPT, fd, 0);
        return;
    }
    struct io_uring_sqe *sqe = request(ACCEPT, fd, 0);
    sqe->opcode = IORING_OP_ACCEPT;
    sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    sqe->accept_flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
}

static void forget(int fd) {
    struct connection *c = &connections[fd];
    cancel(ring.is_receiving ? RECEIVE : POLL, fd, c->generation++);
    for (uint16_t i = c->first, next; i != NONE; i = next) {
        next = buffers[i].next;
        give(i);
    }
    c->is_watched = c->is_starved = false;
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    (void)epoll;
    if (ring.fd < 0)
        start();
    if (fd >= DESCRIPTORS) {
        errno = ENOSPC;
        return -1;
    }
    if (operation == EPOLL_CTL_DEL && fd == ring.listener)
        listen_or_not(fd, false);
    else if (operation == EPOLL_CTL_DEL)
        forget(fd);
    else if (!(event->events & EPOLLET))
        listen_or_not(fd, true);
    else {
        connections[fd] = (struct connection){connections[fd].generation, true, false, NONE, NONE, 0};
        watch(fd);
    }
    return 0;
}

/* Takes the buffer of a completion. */
static void received(struct connection *c, uint16_t i, int bytes) {
    buffers[i] = (struct buffer){NONE, 0, (uint16_t)bytes};
    if (c->first == NONE)
        c->first = i;
    else
        buffers[c->last].next = i;
    c->last = i;
}

/* The events of a completion; 0: none that the loop must know. */
static uint32_t events_of(const struct io_uring_cqe *cqe) {
    int fd = (int)(uint32_t)cqe->user_data, kind = (int)(cqe->user_data >> 56), result = cqe->res;
    bool is_over = !(cqe->flags & IORING_CQE_F_MORE);
    if (kind == CANCEL)
        return 0;
    if (kind == ACCEPT) {
        if (result != -ECANCELED)
            ring.accepted[ring.accepted_end++ % COMPLETIONS] = result;
        if (is_over && ring.is_listening && result != -ECANCELED)
            listen_or_not(fd, true);
        return 0; /* see epoll_wait */
    }
    struct connection *c = &connections[fd];
    if (!c->is_watched || (c->generation & 0xffffff) != (cqe->user_data >> 32 & 0xffffff)) {
        if (cqe->flags & IORING_CQE_F_BUFFER)
            give(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
        return 0;
    }
    if (kind == OUTPUT)
        return EPOLLOUT;
    if (kind == POLL) {
        if (is_over && result != -ECANCELED)
            watch(fd);
        return result > 0 ? (uint32_t)result : result == -ECANCELED ? 0 : EPOLLIN | EPOLLERR;
    }
    if (result > 0) {
        received(c, (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT), result);
        if (is_over)
            watch(fd);
        return EPOLLIN;
    }
    if (result == -ENOBUFS) {
        c->is_starved = true;
        ring.starved[ring.starved_count++ % DESCRIPTORS] = fd;
        return 0;
    }
    c->ending = result == 0 ? 1 : result;
    return EPOLLIN | EPOLLRDHUP;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms) {
    (void)epoll;
    int count = 0;
    bool has_accepted = ring.is_listening && ring.accepted_first != ring.accepted_end;
    unsigned head = *ring.cq_head;
    while (ring.starved_count > 0) {
        int fd = ring.starved[--ring.starved_count];
        if (connections[fd].is_starved) {
            connections[fd].is_starved = false;
            watch(fd);
        }
    }
    if (has_accepted || head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE))
        timeout_ms = 0;
    if (timeout_ms != 0 || ring.tail != *ring.sq_head ||
        (__atomic_load_n(ring.sq_flags, __ATOMIC_RELAXED) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
        enter(timeout_ms);
    unsigned tail = __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE);
    for (; head != tail && count < most - 1; head++) {
        const struct io_uring_cqe *cqe = &ring.completions[head & (COMPLETIONS - 1)];
        uint32_t told = events_of(cqe);
        if (told)
            events[count++] = (struct epoll_event){told, {.fd = (int)(uint32_t)cqe->user_data}};
    }
    __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    if (ring.is_listening && ring.accepted_first != ring.accepted_end)
        events[count++] = (struct epoll_event){EPOLLIN, {.fd = ring.listener}};
    return count;
}

int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    if (fd != ring.listener)
        return (int)syscall(SYS_accept4, fd, address, bytes, flags);
    int accepted =
        ring.accepted_first == ring.accepted_end ? -EAGAIN : ring.accepted[ring.accepted_first++ % COMPLETIONS];
    if (accepted >= 0)
        return accepted;
    errno = -accepted;
    return -1;
}

ssize_t recv(int fd, void *to, size_t bytes, int flags) {
    struct connection *c = &connections[fd];
    if (!ring.is_receiving || fd >= DESCRIPTORS || !c->is_watched)
        return syscall(SYS_recvfrom, fd, to, bytes, flags, NULL, NULL);
    size_t got = 0;
    while (c->first != NONE && got < bytes) {
        struct buffer *buffer = &buffers[c->first];
        size_t left = (size_t)(buffer->used - buffer->at), some = left < bytes - got ? left : bytes - got;
        memcpy((char *)to + got, ring.bytes + (size_t)c->first * BUFFER_BYTES + buffer->at, some);
        got += some;
        buffer->at += (uint16_t)some;
        if (some == left) {
            give(c->first);
            c->first = buffer->next;
        }
    }
    if (got > 0 || c->ending == 1)
        return (ssize_t)got;
    errno = c->ending ? -c->ending : EAGAIN;
    return -1;
}

/* Multishot receive does not tell when the client can receive more: that is asked for when it is waited for. */
static void sent(int fd, ssize_t result) {
    if (result >= 0 || errno != EAGAIN || !ring.is_receiving || fd >= DESCRIPTORS || !connections[fd].is_watched)
        return;
    struct io_uring_sqe *sqe = request(OUTPUT, fd, connections[fd].generation);
    sqe->opcode = IORING_OP_POLL_ADD;
    sqe->poll32_events = POLLOUT;
    errno = EAGAIN;
}

ssize_t send(int fd, const void *from, size_t bytes, int flags) {
    ssize_t result = syscall(SYS_sendto, fd, from, bytes, flags, NULL, 0);
    sent(fd, result);
    return result;
}

ssize_t sendfile(int fd, int file, off_t *at, size_t bytes) {
    ssize_t result = syscall(SYS_sendfile, fd, file, at, bytes);
    sent(fd, result);
    return result;
}
