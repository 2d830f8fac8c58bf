/* The fastest possible HTTP server: one thread, one recv and one send for each request. It never sleeps, so a
 * client never pays for waking it up, and a client's CPU time is only its own and the kernel's.
 *
 * sink PORT CPU: serves 128 bytes on 127.0.0.1:PORT, pinned to CPU. Closes after "Connection: close", and after
 * HTTP/1.0 without "Connection: keep-alive" (ab). A request must arrive in one piece and be shorter than 4 KiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BODY = 128, BATCH = 512, REQUEST = 4096 };

static char keep[1024], last[1024];
static size_t keep_len, last_len;

static size_t make(char *out, size_t room, const char *connection) {
    char body[BODY + 1];
    memset(body, 'x', BODY);
    body[BODY] = 0;
    int n =
        snprintf(out, room,
                 "HTTP/1.1 200 OK\r\nServer: sink\r\nDate: Sat, 21 Nov 2026 18:55:42 GMT\r\n"
                 "Content-Type: text/plain\r\nContent-Length: %d\r\nLast-Modified: Sat, 21 Nov 2026 18:55:40 GMT\r\n"
                 "Connection: %s\r\nETag: \"6b01e92c-80\"\r\nAccept-Ranges: bytes\r\n\r\n%s",
                 BODY, connection, body);
    if (n < 0 || (size_t)n >= room)
        abort();
    return (size_t)n;
}

/* Whether the request asks for the connection to be closed, or is HTTP/1.0 and does not ask to keep it. */
static int wants_close(const char *request, size_t len) {
    if (memmem(request, len, "onnection: close", 16))
        return 1;
    return memmem(request, len, " HTTP/1.0\r\n", 11) && !memmem(request, len, "eep-", 4);
}

static void serve(int fd) {
    char request[REQUEST];
    ssize_t got = recv(fd, request, sizeof request, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        close(fd);
        return;
    }
    int closing = wants_close(request, (size_t)got);
    const char *at = request, *end = request + got;
    while ((at = memmem(at, (size_t)(end - at), "\r\n\r\n", 4)) != NULL) {
        at += 4;
        if (send(fd, closing ? last : keep, closing ? last_len : keep_len, MSG_NOSIGNAL) < 0)
            break;
    }
    if (closing)
        close(fd);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: sink PORT CPU\n");
        return 2;
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(argv[2]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus))
        perror("sink: cannot be pinned");
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    keep_len = make(keep, sizeof keep, "keep-alive");
    last_len = make(last, sizeof last, "close");
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((unsigned short)atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
        perror("sink: cannot listen");
        return 1;
    }
    int epoll = epoll_create1(0);
    struct epoll_event events[BATCH], event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, BATCH, 0);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd != listener) {
                serve(fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                event.events = EPOLLIN | EPOLLET;
                event.data.fd = fd;
                if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
                    close(fd);
            }
        }
    }
}
