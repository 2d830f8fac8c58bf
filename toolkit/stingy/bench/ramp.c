/* An open loop whose rate rises until the server fails: the load at failure.
 *
 * Requests are due at equal intervals, independent of the server (as with httperf, which Bhatia, Consel and Lawall
 * used), on the connection that has been idle the longest; one request at a time on a connection. Without an idle
 * connection a request waits here, and its response time counts from its due time. CALLS = 0: CONNECTIONS connections
 * are kept. CALLS > 0: each CALLS-th request is due on a new connection, which carries CALLS requests one after another
 * and is then reset; at most CONNECTIONS are open.
 *
 * A step is a span of constant rate. It fails as in docs/zones.md: less than 98 % of its offered load was answered
 * in it, more than 1 in 1,000 failed, or the 99th percentile of the response time is over 100 ms. A step is void and is
 * repeated if this client stood still for more than 4 ms ("client"), if the server waited longer than that for its CPU
 * ("cpu"), or if it failed while a tenth of the server's CPU was unused ("idle": the host took it, or something else
 * delays the server; if nearly all steps are of this kind, the limit is not the CPU).
 *
 *   search   rate * 1.3 after each step that held, until one fails
 *   rise     from 0.8 of that: rate * 1.02, until 3 steps in a row fail; the load at failure is the last rate that
 *            held before them
 *   fall     with the unanswered requests: rate * 0.98, until as many are answered as are due in 2 steps in a row: the
 *            load at recovery. It is below the load at failure if a server with many requests in flight takes longer
 *            for each.
 *   over     0.3 s at 1.5 times the load at failure: the rate that is still served
 *
 * Rise and fall are repeated from 0.95 of the highest so far until two rises in a row end there, at most 5 times. A
 * disturbance ends a rise early, never late, so the highest counts.
 *
 * Prints a line for each step. Client and server need separate CPUs.
 *
 * usage: ramp [ADDRESS:]PORT PID PATH CONNECTIONS CALLS FIRST_PER_SEC STEP_MS MOST_SECONDS */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "usage.h"

enum {
    MOST = 16384,
    PENDING = 1 << 20,
    BUCKETS = 512,
    SENDS_A_TURN = 32,
    EVENTS = 64,
    FAILED_IN_A_ROW = 3,
    RECOVERED_IN_A_ROW = 2,
    PASSES = 5
};
static const int64_t STILL_NS = 4000000, LATE_NS = 100000000;
static const double STILL_MS = 4, USED = 0.9, SEARCH = 1.3, RISE = 1.02, FALL = 0.98, BACK = 0.8, AGAIN = 0.95,
                    AGREE = 0.97, OVER = 1.5, GOOD = 0.98, WRONG = 0.001;

static struct connection {
    int fd, left; /* remaining calls */
    bool is_connected;
    long got;
    int64_t due_ns;
} connections[MOST];
/* `idle` is a ring: the connection that has been idle the longest is first. If connections are not kept: free slots. */
static int idle[MOST], epoll, calls;
static unsigned idle_first, idle_count, kept;
static int64_t *pending; /* a ring of requests that are due but not sent */
static unsigned pending_first, pending_count;
static long answer_bytes; /* length of the head and body of each answer; known from the first one */
static char request[512];
static struct sockaddr_in address;

static struct step {
    double per_sec;
    long due, answered, wrong, most_under_way, no_connection;
    int64_t begin_ns, end_ns, still_ns, worst_ns;
    long response[BUCKETS]; /* histogram in eighths of a doubling */
} step;
static long under_way;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(1);
}

static unsigned bucket(int64_t ns) {
    if (ns < 8)
        return 0;
    int top = 63 - __builtin_clzll((uint64_t)ns);
    return (unsigned)(top * 8 + (int)((ns >> (top - 3)) & 7));
}

/* The upper limit of the bucket with the 99th percentile. */
static int64_t p99_ns(void) {
    long left = step.answered / 100;
    for (unsigned b = BUCKETS; b-- > 0;)
        if ((left -= step.response[b]) < 0)
            return (int64_t)(8 + b % 8 + 1) << (b / 8 > 3 ? b / 8 - 3 : 0);
    return 0;
}

static void put_idle(int i) {
    idle[(idle_first + idle_count++) % MOST] = i;
}

static void lost(int i) {
    close(connections[i].fd);
    connections[i].fd = -1;
    step.wrong++;
    under_way--;
}

static void watch(int i, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)i};
    if (epoll_ctl(epoll, how, connections[i].fd, &event) != 0)
        fail("epoll_ctl");
}

/* On the loopback a connection is usually established when connect() returns. */
static void open_connection(int i) {
    int one = 1;
    struct linger linger = {1, 0};
    struct connection *c = &connections[i];
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        fail("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS)
        fail("connect");
    c->is_connected = false;
}

static bool send_request(int i) {
    struct connection *c = &connections[i];
    ssize_t bytes = (ssize_t)strlen(request);
    c->got = 0;
    if (send(c->fd, request, (size_t)bytes, MSG_NOSIGNAL) == bytes) {
        c->is_connected = true;
        return true;
    }
    return false;
}

static void issue(int64_t due_ns) {
    int i = idle[idle_first];
    struct connection *c = &connections[i];
    idle_first = (idle_first + 1) % MOST, idle_count--;
    c->due_ns = due_ns;
    under_way++;
    if (calls > 0) {
        c->left = calls;
        open_connection(i);
        bool is_sent = send_request(i);
        watch(i, is_sent ? EPOLLIN : EPOLLOUT, EPOLL_CTL_ADD);
    } else if (c->fd < 0 || !send_request(i)) {
        /* A kept connection that the server has closed is reopened for a later request. */
        if (c->fd >= 0)
            close(c->fd);
        open_connection(i);
        watch(i, EPOLLOUT, EPOLL_CTL_ADD);
    }
    if (under_way > step.most_under_way)
        step.most_under_way = under_way;
}

static void answered(int i, int64_t now) {
    struct connection *c = &connections[i];
    int64_t took_ns = now - c->due_ns;
    step.answered++;
    step.response[bucket(took_ns)]++;
    if (took_ns > step.worst_ns)
        step.worst_ns = took_ns;
    if (calls > 0 && --c->left > 0) {
        /* This connection's next call is due as soon as the answer has arrived. */
        c->due_ns = now;
        step.due++;
        if (!send_request(i)) {
            lost(i);
            put_idle(i);
        }
        return;
    }
    under_way--;
    if (calls > 0) {
        close(c->fd);
        c->fd = -1;
    }
    put_idle(i);
}

static void ready(int i, uint32_t events, int64_t now) {
    static char buffer[65536];
    struct connection *c = &connections[i];
    if (!c->is_connected) {
        if (events & (EPOLLERR | EPOLLHUP) || !send_request(i)) {
            lost(i);
            put_idle(i);
            return;
        }
        watch(i, EPOLLIN, EPOLL_CTL_MOD);
        return;
    }
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (c->got == 0 && answer_bytes == 0 && got > 0) {
        char *end = memmem(buffer, (size_t)got, "\r\n\r\n", 4),
             *length = memmem(buffer, (size_t)got, "Content-Length:", 15);
        if (!end || !length || memcmp(buffer, "HTTP/1.1 200", 12) != 0)
            exit((fprintf(stderr, "ramp: the first answer has no length or another status than 200\n"), 1));
        answer_bytes = end + 4 - buffer + atol(length + 15);
    }
    c->got += got > 0 ? got : 0;
    if (got <= 0 || c->got > answer_bytes || (c->got == got && got >= 12 && memcmp(buffer, "HTTP/1.1 200", 12) != 0)) {
        lost(i);
        put_idle(i);
    } else if (c->got == answer_bytes) {
        answered(i, now);
    }
}

/* Opens the kept connections, with at most 256 unanswered; each sends one request, so that the server accepts it. */
static void open_kept(void) {
    struct epoll_event events[EVENTS];
    unsigned opened = 0;
    while (step.answered + step.wrong < (long)kept) {
        for (; opened < kept && opened - (unsigned)(step.answered + step.wrong) < 256; opened++) {
            under_way++;
            open_connection((int)opened);
            watch((int)opened, EPOLLOUT, EPOLL_CTL_ADD);
        }
        int n = epoll_wait(epoll, events, EVENTS, 10000);
        if (n <= 0)
            exit((fprintf(stderr, "ramp: no answer within 10 s to the first requests\n"), 1));
        for (int e = 0; e < n; e++)
            ready((int)events[e].data.u32, events[e].events, now_ns());
    }
    if (step.wrong > 0)
        exit((fprintf(stderr, "ramp: %ld of the first requests failed\n", step.wrong), 1));
}

/* Drives one step. */
static void drive(double per_sec, double seconds) {
    struct epoll_event events[EVENTS];
    int64_t now = now_ns(), before = now, end = now + (int64_t)(seconds * 1e9),
            between = (int64_t)(1e9 * (calls > 0 ? calls : 1) / per_sec), due = now + between;
    step = (struct step){.per_sec = per_sec, .begin_ns = now, .most_under_way = under_way};
    while ((now = now_ns()) < end) {
        if (now - before > step.still_ns)
            step.still_ns = now - before;
        before = now;
        for (; due <= now; due += between) {
            step.due++;
            if (pending_count < PENDING)
                pending[(pending_first + pending_count++) % PENDING] = due;
            else
                step.wrong++;
        }
        for (int sends = 0; pending_count > 0 && idle_count > 0 && sends < SENDS_A_TURN; sends++, pending_count--) {
            issue(pending[pending_first]);
            pending_first = (pending_first + 1) % PENDING;
        }
        step.no_connection += pending_count > 0 && idle_count == 0;
        int n = epoll_wait(epoll, events, EVENTS, 0);
        now = now_ns();
        for (int e = 0; e < n; e++)
            ready((int)events[e].data.u32, events[e].events, now);
    }
    step.end_ns = now = now_ns();
    if (now - before > step.still_ns)
        step.still_ns = now - before;
}

static int schedstat;

/* Drives one step and prints it. Returns 1 if it held, 0 if it failed, -1 if it is void. */
static int try(const char *phase, double per_sec, double seconds) {
    struct usage before, after;
    if (!read_schedstat(schedstat, &before))
        exit((fprintf(stderr, "ramp: the server has ended\n"), 1));
    drive(per_sec, seconds);
    if (!read_schedstat(schedstat, &after))
        exit((fprintf(stderr, "ramp: the server has ended\n"), 1));
    double took_s = (double)(step.end_ns - step.begin_ns) / 1e9;
    double busy = (double)(after.run_ns - before.run_ns) / 1e9 / took_s,
           waited_ms = (double)(after.waited_ns - before.waited_ns) / 1e6;
    bool has_failed = (double)step.answered < GOOD * per_sec * took_s ||
                      (double)step.wrong > WRONG * (double)step.due || p99_ns() > LATE_NS;
    const char *why = step.still_ns > STILL_NS    ? "client"
                      : waited_ms > STILL_MS      ? "cpu"
                      : has_failed && busy < USED ? "idle"
                                                  : NULL;
    printf("%s,%.0f,%s,%.4f,%ld,%ld,%ld,%.0f,%.0f,%ld,%u,%.3f,%.3f,%.3f\n", phase, per_sec,
           why          ? why
           : has_failed ? "failed"
                        : "held",
           took_s, step.due, step.answered, step.wrong, (double)p99_ns() / 1e3, (double)step.worst_ns / 1e3,
           step.most_under_way, pending_count, busy, waited_ms, (double)step.still_ns / 1e6);
    return why ? -1 : !has_failed;
}

/* Lets the server finish its requests. */
static void rest(bool is_needed) {
    if (!is_needed)
        return;
    struct epoll_event events[EVENTS];
    int64_t until = now_ns() + INT64_C(2000000000);
    pending_count = 0;
    while (under_way > 0 && now_ns() < until) {
        int n = epoll_wait(epoll, events, EVENTS, 10);
        for (int e = 0; e < n; e++) {
            connections[events[e].data.u32].left = 0;
            ready((int)events[e].data.u32, events[e].events, now_ns());
        }
    }
}

/* Returns the highest rate that held. */
static double rise(int pass, double begin, double step_s, int64_t until) {
    char name[16];
    double held = 0, rate = begin;
    snprintf(name, sizeof name, "rise%d", pass);
    for (int failed = 0; failed < FAILED_IN_A_ROW && now_ns() < until;) {
        int verdict = try(name, rate, step_s);
        rest(verdict < 0);
        if (verdict < 0)
            continue;
        failed = verdict ? 0 : failed + 1;
        if (verdict)
            held = rate;
        rate *= RISE;
        /* The first rate failed: begin lower. */
        if (failed == FAILED_IN_A_ROW && held == 0) {
            failed = 0;
            rate = begin *= BACK;
            rest(true);
        }
    }
    return held > 0 ? held : begin;
}

static void fall(int pass, double rate, double step_s, int64_t until) {
    char name[16];
    snprintf(name, sizeof name, "fall%d", pass);
    for (int recovered = 0; recovered < RECOVERED_IN_A_ROW && now_ns() < until;) {
        int verdict = try(name, rate, step_s);
        if (verdict < 0)
            continue;
        recovered = (double)step.answered >= rate * step_s ? recovered + 1 : 0;
        rate *= recovered ? 1 : FALL;
    }
}

int main(int argc, char **argv) {
    if (argc != 9)
        return fprintf(stderr,
                       "usage: ramp [ADDRESS:]PORT PID PATH CONNECTIONS CALLS FIRST_PER_SEC STEP_MS MOST_SECONDS\n"),
               2;
    char path[64];
    address = server_at(argv[1]);
    snprintf(path, sizeof path, "/proc/%d/schedstat", atoi(argv[2]));
    if ((schedstat = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        fail(path);
    snprintf(request, sizeof request,
             "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
             argv[3]);
    unsigned most = (unsigned)atoi(argv[4]);
    calls = atoi(argv[5]);
    if (most == 0 || most > MOST)
        return fprintf(stderr, "ramp: 1 to %d connections\n", MOST), 2;
    double step_s = atof(argv[7]) / 1e3;
    int64_t until = now_ns() + (int64_t)(atof(argv[8]) * 1e9);
    kept = calls > 0 ? 0 : most;
    pending = calloc(PENDING, sizeof *pending);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < MOST; i++)
        connections[i].fd = -1;
    if (calls > 0)
        for (unsigned i = 0; i < most; i++)
            put_idle((int)i);
    else
        open_kept();
    printf("phase,per_sec,verdict,seconds,due,answered,wrong,p99_us,worst_us,most_under_way,waiting_at_the_end,server_"
           "busy,server_waited_ms,client_still_ms\n");
    double rate = atof(argv[6]), held = 0; /* the highest */
    for (int verdict; (verdict = try("search", rate, step_s)) != 0 && now_ns() < until;) {
        rest(verdict < 0);
        rate *= verdict > 0 ? SEARCH : 1;
    }
    for (int pass = 1, agree = 0; pass <= PASSES && agree < 2 && now_ns() < until; pass++) {
        rest(true);
        double reached = rise(pass, held > 0 ? held * AGAIN : rate * BACK, step_s, until);
        /* A rise well above all earlier ones resets the number of agreeing rises. */
        agree = reached * AGREE > held ? 1 : reached >= held * AGREE ? agree + 1 : agree;
        held = reached > held ? reached : held;
        fall(pass, held, step_s, until);
    }
    for (int verdict = -1; verdict < 0 && now_ns() < until;) {
        rest(true);
        verdict = try("over", held * OVER, 0.3);
    }
    /* The printed lines show the progress. */
    return 0;
}
