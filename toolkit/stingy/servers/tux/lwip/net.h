/* tux's network in its own address space: lwIP under the names of the kernel's calls. tux and libstingy are compiled
 * with -Drecv=net_recv and so on (calls.mk); their source is the same for both stacks. What is not a connection of
 * lwIP's goes to the kernel. One thread, one listener. */
#ifndef TUX_NET_H
#define TUX_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The address is lwIP's, on the device that the environment names: TUX_DEVICE. */
int net_bind(int fd, const struct sockaddr *address, socklen_t length);
int net_listen(int fd, int backlog);
int net_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
ssize_t net_recv(int fd, void *buffer, size_t bytes, int flags);
ssize_t net_send(int fd, const void *buffer, size_t bytes, int flags);
ssize_t net_sendfile(int fd, int file, off_t *at, size_t bytes);
int net_shutdown(int fd, int how);
int net_close(int fd);
int net_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
/* Also takes packets in, sends what was queued, and runs lwIP's timers. */
int net_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms);

/* bodies.c: the bytes of small files, which lwIP sends from where they lie, as the kernel's sendfile does. NULL: the
 * file is too large, or cannot be read. The bytes stay as they were when the file was first sent, until its descriptor
 * is closed: tux opens a file anew that has changed. */
struct body {
    char *bytes;
    size_t size;
    unsigned users; /* connections with bytes that are not acknowledged yet */
    bool is_open;
    struct body *next; /* of those that have ended */
};
struct body *net_body(int file);
void net_release_body(struct body *body);
/* The descriptor is about to be closed. */
void net_forget_body(int file);
/* Frees those that nobody needs any more; no packet may wait in wire.c. */
void net_free_bodies(void);
enum { NET_FIRST = 1024 }; /* connections have this number and the next ones; descriptors are smaller (RLIMIT_NOFILE) */

/* wire.c: packets from and to a device. False with errno, and `what` says which step. */
bool wire_open(const char *device, uint32_t address, const char **what);
/* Hands at most `most` packets that have come to lwIP. */
void wire_receive(unsigned most);
/* Sends what lwIP has given out since. */
void wire_flush(void);
/* Until a packet has come or the time is over; false with errno EINTR after a signal. */
bool wire_wait(int timeout_ms);

#endif
