/* Makes stock servers use edge-triggered instead of level-triggered epoll: a preload library. A
 * server that gets one small request at a time reads it whole, so it misses no bytes. The kernel
 * then does not check a connection again after its request has been read. This shows the
 * kernel's part of a rescheduled server's gain, without that of the cache and of batches.
 * Listeners stay level-triggered. */
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
