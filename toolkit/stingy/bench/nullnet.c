/* A kernel without cost, for tux, lighttpd and their Stingy versions: a preload library that
 * replaces the listener, connections, epoll and clients within the server's process. The
 * remaining time is the server's, on this machine's caches.
 *
 * NULLNET_CONNECTIONS connections send NULLNET_REQUESTS requests in total. In each epoll_wait a
 * quarter of the connections without a request send one, in random order, as many as the caller
 * takes. At the end it prints a line and ends the process. The first fifth of the requests is
 * not counted.
 *
 * It emulates the calls that the two use for a small file: listen, accept4, epoll_ctl,
 * epoll_wait, close; recv, send, sendfile (tux); read, pread, writev, getsockopt (lighttpd,
 * which sends a small file from memory). One thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 1000, MOST = 16000, BODY = 1024 };
static const char REQUEST[] =
    "GET /1k.bin HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";

static struct connection {
    epoll_data_t data;
    bool is_asking; /* a request waits to be read */
    bool is_busy;   /* a request is not answered yet */
} connections[MOST];
static unsigned order[MOST], accepted, total;
static int listener = -1, out = 1;
static bool is_listening;
static epoll_data_t listener_data;
static long wanted, answered, polls;
static double begin_s;
static uint64_t seed = 88172645463325252;

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static unsigned below(unsigned bound) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 11) % bound;
}

static struct connection *mine(int fd) {
    return fd >= FIRST && fd < FIRST + (int)total ? &connections[fd - FIRST] : NULL;
}

__attribute__((constructor)) static void start(void) {
    const char *c = getenv("NULLNET_CONNECTIONS"), *r = getenv("NULLNET_REQUESTS");
    total = c ? (unsigned)atoi(c) : 10;
    wanted = r ? atol(r) : 100000;
    if (total == 0 || total > MOST)
        exit(2);
    for (unsigned i = 0; i < total; i++)
        order[i] = i;
    /* lighttpd redirects its standard output. */
    out = fcntl(1, F_DUPFD_CLOEXEC, FIRST - 1);
}

int listen(int fd, int backlog) {
    (void)backlog;
    listener = fd;
    return 0;
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    (void)fd, (void)flags;
    if (accepted == total) {
        errno = EAGAIN;
        return -1;
    }
    if (address && *length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in client = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)(FIRST + accepted)),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        memcpy(address, &client, sizeof client);
        *length = sizeof client;
    }
    return FIRST + (int)accepted++;
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    (void)epoll;
    if (fd == listener) {
        is_listening = operation != EPOLL_CTL_DEL;
        if (event)
            listener_data = event->data;
    } else if (mine(fd) && event) {
        mine(fd)->data = event->data;
    }
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    (void)epoll, (void)timeout;
    int count = 0;
    polls++;
    if (is_listening && accepted < total) {
        events[0] = (struct epoll_event){EPOLLIN, listener_data};
        return 1;
    }
    unsigned asks = total / 4 + 1;
    for (unsigned i = 0; i < asks && count < most; i++) {
        /* Picks the next one in random order by exchanging it with a later one. */
        unsigned j = i + below(total - i), k = order[j];
        order[j] = order[i], order[i] = k;
        /* A request that was not read is reported again, as level-triggered epoll does. */
        if (k >= accepted || (connections[k].is_busy && !connections[k].is_asking))
            continue;
        connections[k].is_asking = connections[k].is_busy = true;
        events[count++] = (struct epoll_event){EPOLLIN, connections[k].data};
    }
    return count;
}

static ssize_t heard(struct connection *c, void *buffer, size_t bytes) {
    if (!c->is_asking || bytes < sizeof REQUEST - 1) {
        errno = EAGAIN;
        return -1;
    }
    c->is_asking = false;
    memcpy(buffer, REQUEST, sizeof REQUEST - 1);
    return sizeof REQUEST - 1;
}

static void has_answer(struct connection *c) {
    c->is_busy = false;
    if (++answered == wanted / 5)
        begin_s = cpu_s();
    if (answered == wanted) {
        dprintf(out, "connections=%u requests=%ld ns=%.1f polls=%ld\n", total, wanted - wanted / 5,
                (cpu_s() - begin_s) * 1e9 / (double)(wanted - wanted / 5), polls);
        _exit(0);
    }
}

/* The next library's function of that name, for calls that are not emulated. */
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

ssize_t recv(int fd, void *buffer, size_t bytes, int flags) {
    REAL(recv);
    return mine(fd) ? heard(mine(fd), buffer, bytes) : real(fd, buffer, bytes, flags);
}

ssize_t read(int fd, void *buffer, size_t bytes) {
    REAL(read);
    return mine(fd) ? heard(mine(fd), buffer, bytes) : real(fd, buffer, bytes);
}

ssize_t send(int fd, const void *buffer, size_t bytes, int flags) {
    REAL(send);
    return mine(fd) ? (ssize_t)bytes : real(fd, buffer, bytes, flags);
}

ssize_t sendfile(int fd, int file, off_t *offset, size_t bytes) {
    (void)file;
    *offset += (off_t)bytes;
    has_answer(mine(fd));
    return (ssize_t)bytes;
}

/* Receives the answer: head and body together. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    ssize_t bytes = 0;
    if (!mine(fd))
        return real(fd, parts, count);
    for (int i = 0; i < count; i++)
        bytes += (ssize_t)parts[i].iov_len;
    has_answer(mine(fd));
    return bytes;
}

/* Once there are connections, reads of a file get the emulated file's bytes; earlier reads (the configuration) are
   real. */
static bool plays_file(size_t bytes) {
    return accepted > 0 && bytes == BODY;
}

ssize_t pread(int fd, void *buffer, size_t bytes, off_t at) {
    REAL(pread);
    return plays_file(bytes) ? memset(buffer, 'x', bytes), (ssize_t)bytes : real(fd, buffer, bytes, at);
}

ssize_t pread64(int fd, void *buffer, size_t bytes, off64_t at) {
    REAL(pread64);
    return plays_file(bytes) ? memset(buffer, 'x', bytes), (ssize_t)bytes : real(fd, buffer, bytes, at);
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict bytes) {
    REAL(getsockopt);
    if (!mine(fd))
        return real(fd, level, name, value, bytes);
    memset(value, 0, *bytes);
    *(int *)value = 1; /* TCP_NODELAY, the only option that is read */
    return 0;
}

int close(int fd) {
    REAL(close);
    return mine(fd) ? 0 : real(fd);
}
