/* Epoll by edge in place of by level, for stock servers: a preload library. A server that is asked for one small
 * request at a time reads it whole, so it misses nothing. With it the kernel does not look at a connection once more
 * after its request has been read. This shows which part of a rescheduled server's gain is the kernel's, and not the
 * cache's or batch's. Listeners stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    static int (*real)(int, int, int, struct epoll_event *);
    struct epoll_event edge;
    int is_listening = 0, type = 0;
    socklen_t bytes = sizeof is_listening, type_bytes = sizeof type;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_ctl");
    if (event && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &bytes) == 0 && !is_listening &&
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_STREAM) {
        edge = *event;
        edge.events |= EPOLLET;
        event = &edge;
    }
    return real(epoll, operation, fd, event);
}
