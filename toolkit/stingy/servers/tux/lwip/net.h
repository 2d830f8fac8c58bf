/* tux's network in its own address space: lwIP behind the kernel's call names. tux and libstingy are compiled with
 * -Drecv=net_recv and so on (calls.mk); their source is the same for both stacks. Calls on other descriptors go to
 * the kernel. One thread, one listener. */
#ifndef TUX_NET_H
#define TUX_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Sets lwIP's address, on the device named by the environment variable TUX_DEVICE. */
int net_bind(int fd, const struct sockaddr *address, socklen_t length);
int net_listen(int fd, int backlog);
int net_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
ssize_t net_recv(int fd, void *buffer, size_t bytes, int flags);
ssize_t net_send(int fd, const void *buffer, size_t bytes, int flags);
ssize_t net_sendfile(int fd, int file, off_t *at, size_t bytes);
int net_shutdown(int fd, int how);
int net_close(int fd);
int net_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
/* Also receives packets, sends queued ones, and runs lwIP's timers. */
int net_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms);

/* bodies.c: the bytes of small files, which lwIP sends from their place, like the kernel's sendfile. NULL: the
 * file is too large, or cannot be read. The bytes stay as they were when the file was first sent, until its
 * descriptor is closed: tux reopens a file that has changed. */
struct body {
    char *bytes;
    size_t size;
    unsigned users; /* number of connections with unacknowledged bytes */
    bool is_open;
    struct body *next; /* next one in the list of ended bodies */
};
struct body *net_body(int file);
void net_release_body(struct body *body);
/* Call this before closing the descriptor. */
void net_forget_body(int file);
/* Frees the unused ones; no packet may wait in wire.c. */
void net_free_bodies(void);
enum {
    NET_FIRST = 1024
}; /* connections have this number and the following ones; descriptors are smaller (RLIMIT_NOFILE) */

/* wire.c: packets from and to a device. Returns false with errno, and the failed step in `what`. */
bool wire_open(const char *device, uint32_t address, const char **what);
/* Passes at most `most` received packets to lwIP. */
void wire_receive(unsigned most);
/* Sends the packets that lwIP has produced since. */
void wire_flush(void);
/* Waits until a packet has arrived or the time is over. Returns false with errno EINTR after a
 * signal. */
bool wire_wait(int timeout_ms);

#endif
