/* The server: one epoll thread, which answers each request at the law's time. */
#define _GNU_SOURCE
#include "truth.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODY = 128, HEAD = 4096, MAX_FD = 65536, EVENTS = 64 };

struct connection {
    uint32_t generation; /* distinguishes its requests from those of an earlier connection with the same number */
    int is_waiting;      /* waits for an answer; later requests stay in `head` */
    int64_t due_ns;      /* due time of its last answer; 0 before the first */
    size_t held;
    char head[HEAD];
};

static struct connection *connections[MAX_FD];
static uint32_t generations;
static int64_t open_connections;
static struct queue waiting;
static enum kind kind;
static char answer[512];
static size_t answer_bytes;

/* Counts of served requests, by this program's clocks. */
static struct {
    int64_t requests, first_ns, last_ns;
    /* Time from when an answer is due to the next request of its connection, if that one finds a free worker: the
     * time that client, path and late wake-ups add to D in a closed loop. A rest longer than D has another reason
     * and is not counted.
     */
    int64_t away, away_ns;
} served;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "truth: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t client_of(int fd) {
    return (uint64_t)connections[fd]->generation << 32 | (uint32_t)fd;
}

static int is_here(uint64_t client) {
    int fd = (int)(uint32_t)client;
    return connections[fd] && client_of(fd) == client;
}

static void drop(int fd) {
    free(connections[fd]);
    connections[fd] = NULL;
    close(fd);
    open_connections--;
}

/* THREAD: works until this thread has used CPU time D since the end of the last work. So a request costs D in
 * total, with its share of reading, sending and waiting. */
static void work(void) {
    static int64_t until_ns;
    int64_t spent_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    /* The next requests do not compensate a single cost above D, such as that of a thousand new
     * connections. */
    until_ns = until_ns + waiting.law.of.time_ns > spent_ns ? until_ns + waiting.law.of.time_ns : spent_ns;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until_ns)
        ;
}

static void take_request(int fd);

static void send_answer(int fd, int64_t due_ns) {
    connections[fd]->is_waiting = 0;
    connections[fd]->due_ns = due_ns;
    if (!served.requests++)
        served.first_ns = now_ns();
    served.last_ns = now_ns();
    if (send(fd, answer, answer_bytes, MSG_NOSIGNAL) != (ssize_t)answer_bytes)
        drop(fd);
    else
        take_request(fd);
}

static void count_away(const struct connection *connection, int64_t arrived_ns) {
    int64_t away_ns = arrived_ns - connection->due_ns;
    int is_at_once = !waiting.count && law_free_ns(&waiting.law) <= arrived_ns;
    if (connection->due_ns && is_at_once && away_ns < waiting.law.of.time_ns) {
        served.away++;
        served.away_ns += away_ns;
    }
}

/* Takes up the next complete request of a connection, unless one is in progress. */
static void take_request(int fd) {
    struct connection *connection = connections[fd];
    char *end = connection->is_waiting ? NULL : memmem(connection->head, connection->held, "\r\n\r\n", 4);
    if (!end) {
        if (connection->held == HEAD)
            drop(fd);
        return;
    }
    size_t used = (size_t)(end + 4 - connection->head);
    memmove(connection->head, connection->head + used, connection->held - used);
    connection->held -= used;
    connection->is_waiting = 1;
    if (kind == THREAD) {
        work();
        send_answer(fd, 0);
    } else {
        int64_t arrived_ns = now_ns();
        count_away(connection, arrived_ns);
        queue_arrive(&waiting, client_of(fd), arrived_ns, open_connections);
    }
}

static void read_from(int fd) {
    struct connection *connection = connections[fd];
    ssize_t got = read(fd, connection->head + connection->held, HEAD - connection->held);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        drop(fd);
        return;
    }
    connection->held += (size_t)got;
    take_request(fd);
}

static void accept_all(int listener, int set) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
        if (fd >= MAX_FD) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connections[fd] = calloc(1, sizeof *connections[fd]);
        if (!connections[fd])
            die("memory for a connection");
        connections[fd]->generation = ++generations;
        open_connections++;
        if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
            drop(fd);
    }
}

static void answer_due(void) {
    struct request due;
    while (queue_take(&waiting, now_ns(), &due))
        if (is_here(due.client))
            send_answer((int)(uint32_t)due.client, due.ns);
}

/* Time of the next action, to the nanosecond; NULL if only requests can cause one. */
static const struct timespec *until_next(struct timespec *time) {
    int64_t next_ns = queue_next_ns(&waiting), left_ns;
    if (next_ns == INT64_MAX)
        return NULL;
    left_ns = next_ns - now_ns();
    left_ns = left_ns > 0 ? left_ns : 0;
    *time = (struct timespec){left_ns / 1000000000, left_ns % 1000000000};
    return time;
}

static int listen_at(const char *address, int port) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        die("socket");
    if (inet_pton(AF_INET, address, &here.sin_addr) != 1) {
        fprintf(stderr, "truth: --address %s is not an IPv4 address\n", address);
        exit(2);
    }
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 4096))
        die("cannot listen");
    return listener;
}

static void prepare(const struct options *options) {
    struct rlimit limit;
    kind = options->of.kind;
    waiting.law = law_new(options->of);
    waiting.is_here = is_here;
    answer_bytes = (size_t)snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(answer + answer_bytes, 'x', BODY);
    answer_bytes += BODY;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        die("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        die("setrlimit");
    /* Answers leave when they are due, without the default timer slack of 50 us. */
    prctl(PR_SET_TIMERSLACK, 1);
}

/* A descriptor that becomes readable with the signal that ends the server. */
static int ending(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

static void watch(int set, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
        die("epoll");
}

void serve(const struct options *options) {
    struct epoll_event events[EVENTS];
    prepare(options);
    int listener = listen_at(options->address, options->port), set = epoll_create1(EPOLL_CLOEXEC), over = ending();
    int is_over = 0;
    watch(set, listener);
    watch(set, over);
    while (!is_over) {
        struct timespec left;
        int count = epoll_pwait2(set, events, EVENTS, until_next(&left), NULL);
        if (count < 0 && errno != EINTR)
            die("epoll_pwait2");
        for (int at = 0; at < count; at++) {
            int fd = events[at].data.fd;
            if (fd == over)
                is_over = 1;
            else if (fd == listener)
                accept_all(listener, set);
            else if (events[at].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
                drop(fd);
            else
                read_from(fd);
        }
        answer_due();
    }
    if (options->is_counted)
        printf("{\"served\": %lld, \"span_ns\": %lld, \"cpu_ns\": %lld, \"away\": %lld, \"away_ns\": %lld}\n",
               (long long)served.requests, (long long)(served.last_ns - served.first_ns),
               (long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID), (long long)served.away, (long long)served.away_ns);
    for (int fd = 0; fd < MAX_FD; fd++)
        if (connections[fd])
            drop(fd);
    queue_free(&waiting);
}
