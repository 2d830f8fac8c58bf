/* Load driver for toolkit/scalable-select/bench: closed loop, or a fixed rate with response times from the intended
 * send.
 *
 *   drive PORT CONNECTIONS SECONDS RATE_PER_SEC keep|close REQUEST
 *
 * RATE_PER_SEC 0: each connection sends its next request as soon as it has its answer. All answers must have the size
 * of the first one (keep), or end with the connection (close). REQUEST may contain the escapes \r and \n. Prints:
 * requests seconds errors mean_us p50_us p99_us max_us */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 4096, SAMPLES_MAX = 4 << 20 };

struct connection {
    int fd;
    size_t got;
    uint64_t intended_ns;
    int is_busy;
};

static struct connection connections[CONNECTIONS_MAX];
static char request[4096];
static size_t request_bytes, response_bytes;
static int port, count, epoll_fd, closes;
static float *samples_us;
static size_t sample_count;
static long errors;
static unsigned source;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int dial(int is_blocking) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    /* Each use takes a new source address, because closed connections keep their ports for a minute. */
    source++;
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7f010001u + source / 200 % 200 * 256 + source % 200)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (closes)
        bind(fd, (struct sockaddr *)&from, sizeof from);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    if (!is_blocking)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void measure_response(void) {
    char buffer[65536];
    int fd = dial(1);
    struct timeval limit = {0, 200000};
    if (fd < 0 || write(fd, request, request_bytes) != (ssize_t)request_bytes)
        exit(3);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){60, 0}, sizeof limit);
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0; response_bytes += (size_t)n)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    close(fd);
    if (response_bytes == 0)
        exit(3);
}

static void send_request(struct connection *c, uint64_t intended_ns) {
    if (c->fd < 0 && (c->fd = dial(0)) >= 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
    }
    c->intended_ns = intended_ns;
    c->got = 0;
    c->is_busy = 1;
    if (c->fd < 0 || write(c->fd, request, request_bytes) != (ssize_t)request_bytes) {
        errors++;
        c->is_busy = 0;
    }
}

/* True if the answer is complete. */
static int receive(struct connection *c) {
    char buffer[65536];
    ssize_t n = read(c->fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n > 0)
        c->got += (size_t)n;
    int is_done = closes ? n <= 0 && c->got > 0 : c->got >= response_bytes;
    if (n <= 0) {
        close(c->fd);
        c->fd = -1;
        if (!is_done) {
            errors++;
            c->is_busy = 0;
        }
    }
    if (!is_done)
        return 0;
    c->is_busy = 0;
    if (sample_count < SAMPLES_MAX)
        samples_us[sample_count++] = (float)(now_ns() - c->intended_ns) / 1000;
    return 1;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 7)
        return 2;
    port = atoi(argv[1]);
    count = atoi(argv[2]);
    double seconds = atof(argv[3]), rate = atof(argv[4]);
    closes = strcmp(argv[5], "close") == 0;
    for (const char *p = argv[6]; *p && request_bytes < sizeof request; p++) {
        if (*p == '\\' && p[1])
            request[request_bytes++] = *++p == 'r' ? '\r' : *p == 'n' ? '\n' : *p;
        else
            request[request_bytes++] = *p;
    }
    if (count < 1 || count > CONNECTIONS_MAX)
        return 2;
    samples_us = malloc(SAMPLES_MAX * sizeof *samples_us);
    measure_response();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count; i++)
        connections[i].fd = -1;
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    double interval_ns = rate > 0 ? 1e9 / rate : 0, next = (double)start;
    int turn = 0;
    for (int i = 0; i < count && rate == 0; i++)
        send_request(&connections[i], now_ns());
    for (uint64_t now; (now = now_ns()) < end;) {
        /* Due requests go to idle connections. If none is idle they wait, and the waiting counts as response time. */
        while (rate > 0 && next <= (double)now) {
            int tried = 0;
            while (tried < count && connections[turn].is_busy) {
                turn = (turn + 1) % count;
                tried++;
            }
            if (tried == count)
                break;
            send_request(&connections[turn], (uint64_t)next);
            turn = (turn + 1) % count;
            next += interval_ns;
        }
        struct epoll_event events[256];
        int n = epoll_wait(epoll_fd, events, 256, rate > 0 ? 0 : 100);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->fd >= 0 && (receive(c) || (!c->is_busy && rate == 0)) && rate == 0)
                send_request(c, now_ns());
        }
    }
    double elapsed = (double)(now_ns() - start) / 1e9, sum = 0;
    qsort(samples_us, sample_count, sizeof *samples_us, ascending);
    for (size_t i = 0; i < sample_count; i++)
        sum += (double)samples_us[i];
    if (sample_count == 0)
        return 4;
    printf("%zu %.4f %ld %.1f %.1f %.1f %.1f\n", sample_count, elapsed, errors, sum / (double)sample_count,
           (double)samples_us[sample_count / 2], (double)samples_us[sample_count * 99 / 100],
           (double)samples_us[sample_count - 1]);
    return 0;
}
