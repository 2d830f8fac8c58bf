/* The lowest possible cost of a library that replaces poll: a preload library that reads only
 * the address and length of the caller's array, and writes only results. It is WRONG in general
 * (it does not see an entry that changes in place) but right for the keep-alive points of run.
 * Its extra cost over native epoll is the program's work on its array, which no library can
 * remove. Sets up to 63 go to the kernel.
 *
 * FLOOR_STATS names a file; at exit, "calls array_walks" is appended to it. Few walks mean that
 * the floor was measured. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { SMALL = 63, NUMBERS = 1 << 20, EVENTS = 512 };

static _Thread_local struct {
    int epoll, ready_count;
    struct pollfd *fds;
    nfds_t count;
    unsigned *place;
    unsigned char *is_registered;
    unsigned ready[EVENTS];
} own;
static unsigned long calls, walks;

static void walk(struct pollfd *fds, nfds_t count) {
    walks++;
    for (nfds_t i = 0; i < count; i++) {
        int fd = fds[i].fd;
        fds[i].revents = 0;
        if (fd < 0 || fd >= NUMBERS)
            continue;
        own.place[fd] = (unsigned)i;
        struct epoll_event event = {.events = (unsigned short)fds[i].events, .data.fd = fd};
        if (epoll_ctl(own.epoll, own.is_registered[fd] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
            epoll_ctl(own.epoll, EPOLL_CTL_ADD, fd, &event);
        own.is_registered[fd] = 1;
    }
    own.fds = fds;
    own.count = count;
    own.ready_count = 0;
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    static int (*kernel)(struct pollfd *, nfds_t, int);
    if (kernel == NULL)
        *(void **)&kernel = dlsym(RTLD_NEXT, "poll");
    if (count <= SMALL)
        return kernel(fds, count, timeout);
    if (own.place == NULL) {
        own.epoll = epoll_create1(EPOLL_CLOEXEC);
        own.place = calloc(NUMBERS, sizeof *own.place);
        own.is_registered = calloc(NUMBERS, 1);
    }
    calls++;
    if (fds != own.fds || count != own.count)
        walk(fds, count);
    struct epoll_event event[EVENTS];
    for (;;) {
        for (int i = 0; i < own.ready_count; i++)
            fds[own.ready[i]].revents = 0;
        own.ready_count = 0;
        int got = epoll_wait(own.epoll, event, EVENTS, timeout), elsewhere = 0;
        for (int i = 0; i < got; i++) {
            unsigned at = own.place[event[i].data.fd];
            if (fds[at].fd == event[i].data.fd) {
                fds[at].revents = (short)event[i].events;
                own.ready[own.ready_count++] = at;
            } else { /* no longer in the array, or moved: the walk registers it again */
                epoll_ctl(own.epoll, EPOLL_CTL_DEL, event[i].data.fd, NULL);
                elsewhere = 1;
            }
        }
        if (got <= 0 || own.ready_count > 0)
            return got < 0 ? got : own.ready_count;
        if (elsewhere) /* the array has changed in place */
            walk(fds, count);
    }
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t bytes);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t bytes) {
    if (bytes / sizeof *fds < count)
        abort();
    return poll(fds, count, timeout);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FLOOR_STATS");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd >= 0) {
        dprintf(fd, "{\"calls\":%lu,\"array_walks\":%lu}\n", calls, walks);
        close(fd);
    }
}
