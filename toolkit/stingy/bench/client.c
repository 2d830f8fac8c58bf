/* A closed loop: CONNECTIONS connections, each of which sends its next request as soon as it has its answer, until
 * REQUESTS answers have come. Prints one line: requests, errors, seconds from the first request.
 *
 * With PID and SECONDS these requests are the warm-up. A window of SECONDS follows, and the line has the figures of the
 * window: requests, errors, seconds, CPU time of the server with that PID (ns; user and system in clock ticks), the
 * time it waited for its CPU, and the client's CPU time.
 *
 * rounds: the next requests are sent when all connections have their answers, in a random order that is the same in
 * each run. Otherwise a server that is slower than its client (under cachegrind) would serve the same few connections
 * again and again.
 *
 * usage: client [ADDRESS:]PORT CONNECTIONS REQUESTS keep|rounds|close PATH [PID SECONDS] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "usage.h"

struct connection {
    int fd;
    bool is_connected;
    long got, expected; /* bytes of this answer; expected: -1 before its head is complete */
    char head[1024];
};

static struct sockaddr_in address;
static struct connection *connections;
static long count, wanted, sent, answered, errors;
static bool is_kept, has_rounds;
static long *order, answered_in_round;
static char request[1024];
static int epoll;

static double window_s;
static int server;

static double now_s(void) {
    return clock_s(CLOCK_MONOTONIC);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(long i, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)i};
    if (epoll_ctl(epoll, how, connections[i].fd, &event) != 0)
        fail("epoll_ctl");
}

static void open_connection(long i) {
    int one = 1;
    struct linger linger = {1, 0};
    int fd = connections[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* Avoids TIME_WAIT on this side, which would use up the ports. */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    connections[i].is_connected = false;
    if (fd < 0 || (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS))
        fail("connect");
    watch(i, EPOLLOUT, EPOLL_CTL_ADD);
}

static void send_request(long i) {
    struct connection *c = &connections[i];
    ssize_t bytes = (ssize_t)strlen(request);
    if (sent++ >= wanted && window_s == 0)
        return;
    c->got = 0;
    c->expected = -1;
    if (send(c->fd, request, (size_t)bytes, MSG_NOSIGNAL) != bytes)
        errors++;
}

static void send_round(void) {
    static uint64_t seed = 88172645463325252;
    answered_in_round = 0;
    for (long k = count - 1; k > 0; k--) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        long j = (long)(seed >> 11) % (k + 1), other = order[j];
        order[j] = order[k], order[k] = other;
    }
    for (long k = 0; k < count; k++)
        send_request(order[k]);
}

static void ended(long i, bool is_whole) {
    close(connections[i].fd);
    errors += !is_whole;
    if (answered + errors < wanted || window_s > 0)
        open_connection(i);
}

static void receive(long i) {
    static char buffer[65536];
    struct connection *c = &connections[i];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        ended(i, !is_kept && c->expected >= 0 && c->got >= c->expected);
        return;
    }
    if (c->expected < 0 && c->got < (long)sizeof c->head - 1) {
        long room = (long)sizeof c->head - 1 - c->got, copied = got < room ? got : room;
        memcpy(c->head + c->got, buffer, (size_t)copied);
        c->head[c->got + copied] = 0;
        char *end = strstr(c->head, "\r\n\r\n"), *length = strcasestr(c->head, "content-length:");
        if (end)
            c->expected = end + 4 - c->head + (length ? atol(length + 15) : 0);
    }
    bool was_whole = c->expected >= 0 && c->got >= c->expected;
    c->got += got;
    if (c->expected >= 0 && c->got >= c->expected && !was_whole) {
        answered++;
        if (has_rounds) {
            if (++answered_in_round == count)
                send_round();
        } else if (is_kept)
            send_request(i);
    }
}

/* Whether the run is over. */
static bool is_done(void) {
    static bool has_begun;
    static struct usage before;
    static double begin_s, client_s;
    static long answered_before, errors_before;
    struct usage after;
    if (answered + errors < wanted)
        return false;
    if (window_s == 0)
        return true;
    double now = now_s();
    if (!has_begun) {
        has_begun = read_usage(server, &before);
        if (!has_begun)
            exit((fprintf(stderr, "client: process %d cannot be read\n", server), 1));
        begin_s = now, client_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        answered_before = answered, errors_before = errors;
    } else if (now - begin_s >= window_s) {
        if (!read_usage(server, &after))
            exit((fprintf(stderr, "client: process %d has ended\n", server), 1));
        printf("requests=%ld errors=%ld seconds=%.4f server_ns=%lld waited_ns=%lld user_ticks=%ld system_ticks=%ld "
               "client_s=%.4f\n",
               answered - answered_before, errors - errors_before, now - begin_s, after.run_ns - before.run_ns,
               after.waited_ns - before.waited_ns, after.user_ticks - before.user_ticks,
               after.system_ticks - before.system_ticks, clock_s(CLOCK_PROCESS_CPUTIME_ID) - client_s);
        return true;
    }
    return false;
}

int main(int argc, char **argv) {
    if (argc != 6 && argc != 8)
        return fprintf(stderr,
                       "usage: client [ADDRESS:]PORT CONNECTIONS REQUESTS keep|rounds|close PATH [PID SECONDS]\n"),
               2;
    if (argc == 8) {
        server = atoi(argv[6]);
        window_s = atof(argv[7]);
    }
    address = server_at(argv[1]);
    count = atol(argv[2]);
    wanted = atol(argv[3]);
    has_rounds = strcmp(argv[4], "rounds") == 0;
    is_kept = has_rounds || strcmp(argv[4], "keep") == 0;
    snprintf(request, sizeof request,
             "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\nConnection: %s\r\n\r\n",
             argv[5], is_kept ? "keep-alive" : "close");
    connections = calloc((size_t)count, sizeof *connections);
    order = calloc((size_t)count, sizeof *order);
    for (long i = 0; i < count; i++)
        order[i] = i;
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[512];
    long connected = 0, opened = 0;
    double start = now_s();
    while (!is_done()) {
        /* All kept connections are opened before the first request, in groups, because the backlog is bounded. */
        while (opened < count && opened - connected < 256)
            open_connection(opened++);
        int n = epoll_wait(epoll, events, 512, window_s > 0 ? 5000 : 60000);
        if (n <= 0)
            return fprintf(stderr, "client: no answer for a long time, after %ld answers, %ld errors\n", answered,
                           errors),
                   1;
        for (int e = 0; e < n; e++) {
            long i = (long)events[e].data.u64;
            if (connections[i].is_connected) {
                receive(i);
                continue;
            }
            int error = 0;
            socklen_t length = sizeof error;
            getsockopt(connections[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
            if (error) {
                ended(i, false);
                continue;
            }
            connections[i].is_connected = true;
            watch(i, EPOLLIN, EPOLL_CTL_MOD);
            connected++;
            if (!is_kept || connected > count)
                send_request(i);
            else if (connected == count) {
                start = now_s();
                send_round();
            }
        }
    }
    if (window_s == 0)
        printf("requests=%ld errors=%ld seconds=%.4f\n", answered, errors, now_s() - start);
    return errors != 0;
}
