/* Implements the calls that tux and libstingy make for a connection, over lwIP. Errors and the events of epoll,
 * level-triggered or edge-triggered, equal the kernel's. A connection has a number above every descriptor of the
 * process (RLIMIT_NOFILE). */
#define _GNU_SOURCE
#include "connections.h"

#include <errno.h>
#include <lwip/etharp.h>
#include <lwip/priv/tcp_priv.h>
#include <lwip/sys.h>
#include <lwip/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in own;
static int listener = -1;
static bool is_listening;
static epoll_data_t listener_data;
static unsigned receive_most = UINT32_MAX; /* packets to receive before the server runs */
static uint64_t tick_ms;
static unsigned ticks;

enum { FILE_PIECE = 16384 };

int net_bind(int fd, const struct sockaddr *address, socklen_t length) {
    const char *most = getenv("TUX_RECEIVE"), *what;
    struct rlimit files;
    (void)fd;
    if (listener >= 0 || address->sa_family != AF_INET || length < sizeof own) {
        errno = listener >= 0 ? EADDRINUSE : EAFNOSUPPORT;
        return -1;
    }
    memcpy(&own, address, sizeof own);
    receive_most = most ? (unsigned)strtoul(most, NULL, 10) : receive_most;
    /* No descriptor may have a connection's number. */
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = NET_FIRST;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        return -1;
    if (wire_open(getenv("TUX_DEVICE"), own.sin_addr.s_addr, &what))
        return 0;
    int why = errno;
    fprintf(stderr, "tux: %s %s\n", what, getenv("TUX_DEVICE") ? getenv("TUX_DEVICE") : "");
    errno = why;
    return -1;
}

int net_listen(int fd, int backlog) {
    ip_addr_t address = IPADDR4_INIT(own.sin_addr.s_addr);
    struct tcp_pcb *pcb = tcp_new(), *listening = NULL;
    (void)backlog;
    if (pcb && tcp_bind(pcb, &address, ntohs(own.sin_port)) == ERR_OK)
        listening = tcp_listen(pcb);
    if (!listening) {
        errno = ENOMEM;
        return -1;
    }
    net_connections_begin(listening);
    listener = fd;
    return 0;
}

int net_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    (void)fd, (void)address, (void)length, (void)flags;
    struct connection *c = net_take_first(&net_arrived);
    if (!c) {
        errno = EAGAIN;
        return -1;
    }
    c->is_listed = false;
    c->is_open = true;
    return net_number(c);
}

static ssize_t fails(int why) {
    errno = why;
    return -1;
}

ssize_t net_recv(int fd, void *buffer, size_t bytes, int flags) {
    struct connection *c = net_connection(fd);
    (void)flags;
    if (!c)
        return recv(fd, buffer, bytes, flags);
    if (!c->input)
        return c->has_failed ? fails(ECONNRESET) : c->has_ended || !c->pcb ? 0 : fails(EAGAIN);
    u16_t got = 0, most = bytes < UINT16_MAX ? (u16_t)bytes : UINT16_MAX;
    while (c->input && got < most) {
        u16_t now = pbuf_copy_partial(c->input, (char *)buffer + got,
                                      (u16_t)LWIP_MIN(most - got, c->input->len - c->input_at), c->input_at);
        got += now;
        c->input_at += now;
        if (c->input_at < c->input->len)
            continue;
        /* The first pbuf has been read. Its successors keep the reference that it had to them. */
        struct pbuf *rest = c->input->next;
        if (rest)
            pbuf_ref(rest);
        pbuf_free(c->input);
        c->input = rest;
        c->input_at = 0;
    }
    if (c->pcb)
        tcp_recved(c->pcb, got);
    return got;
}

static ssize_t write_out(struct connection *c, const void *buffer, size_t bytes, int flags, u8_t copy) {
    if (!c->pcb)
        return fails(c->has_failed ? ECONNRESET : EPIPE);
    u16_t room = tcp_sndbuf(c->pcb), now = bytes < room ? (u16_t)bytes : room;
    u8_t how = copy | (flags & MSG_MORE ? TCP_WRITE_FLAG_MORE : 0);
    err_t error = now ? tcp_write(c->pcb, buffer, now, how) : ERR_MEM;
    if (error != ERR_OK || !(flags & MSG_MORE) || now < bytes)
        tcp_output(c->pcb);
    if (error == ERR_OK)
        return now;
    c->wants_room = error == ERR_MEM;
    return fails(error == ERR_MEM ? EAGAIN : EPIPE);
}

ssize_t net_send(int fd, const void *buffer, size_t bytes, int flags) {
    struct connection *c = net_connection(fd);
    return c ? write_out(c, buffer, bytes, flags, TCP_WRITE_FLAG_COPY) : send(fd, buffer, bytes, flags);
}

/* A connection refers to one body at a time; another one is copied until this one is acknowledged. */
static ssize_t send_body(struct connection *c, struct body *body, off_t *at, size_t bytes) {
    if (*at < 0 || (size_t)*at >= body->size)
        return 0;
    size_t left = body->size - (size_t)*at;
    bool is_own = !c->body || c->body == body;
    ssize_t sent = write_out(c, body->bytes + *at, LWIP_MIN(bytes, left), 0, is_own ? 0 : TCP_WRITE_FLAG_COPY);
    if (sent <= 0)
        return sent;
    *at += sent;
    if (!c->body) {
        c->body = body;
        body->users++;
    }
    return sent;
}

ssize_t net_sendfile(int fd, int file, off_t *at, size_t bytes) {
    static char piece[FILE_PIECE];
    struct connection *c = net_connection(fd);
    size_t sent = 0;
    if (!c)
        return sendfile(fd, file, at, bytes);
    struct body *body = net_body(file);
    if (body)
        return send_body(c, body, at, bytes);
    while (sent < bytes) {
        size_t room = c->pcb ? LWIP_MIN(tcp_sndbuf(c->pcb), sizeof piece) : sizeof piece;
        ssize_t got = pread(file, piece, LWIP_MIN(bytes - sent, room ? room : 1), *at);
        if (got <= 0)
            return sent ? (ssize_t)sent : got;
        ssize_t now = net_send(fd, piece, (size_t)got, sent + (size_t)got < bytes ? MSG_MORE : 0);
        if (now < 0)
            return sent ? (ssize_t)sent : now;
        sent += (size_t)now;
        *at += now;
    }
    return (ssize_t)sent;
}

int net_shutdown(int fd, int how) {
    struct connection *c = net_connection(fd);
    if (!c)
        return shutdown(fd, how);
    if (c->pcb && tcp_shutdown(c->pcb, how != SHUT_WR, how != SHUT_RD) != ERR_OK)
        return (int)fails(ENOTCONN);
    return 0;
}

int net_close(int fd) {
    struct connection *c = net_connection(fd);
    if (!c) {
        net_forget_body(fd);
        return close(fd);
    }
    struct tcp_pcb *pcb = c->pcb;
    c->is_open = false;
    if (c->input)
        pbuf_free(c->input);
    c->input = NULL;
    if (!pcb) {
        net_recycle(c);
        return 0;
    }
    tcp_arg(pcb, NULL);
    /* If unread input is left, lwIP resets the connection, like the kernel. pcb_ends recycles it, now or when the
     * client has ended, too. */
    if (tcp_close(pcb) != ERR_OK)
        tcp_abort(pcb);
    return 0;
}

static uint32_t state_of(const struct connection *c) {
    uint32_t state = c->input || c->has_ended || c->has_failed ? EPOLLIN : 0;
    state |= c->has_ended ? EPOLLRDHUP : 0;
    state |= c->has_failed ? EPOLLERR | EPOLLHUP : 0;
    return state | (c->wants_room ? 0 : EPOLLOUT);
}

int net_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    struct connection *c = net_connection(fd);
    if (fd == listener) {
        is_listening = operation != EPOLL_CTL_DEL;
        if (event)
            listener_data = event->data;
        return 0;
    }
    if (!c)
        return epoll_ctl(epoll, operation, fd, event);
    c->events = operation == EPOLL_CTL_DEL ? 0 : event->events | EPOLLERR | EPOLLHUP;
    if (operation == EPOLL_CTL_DEL)
        return 0;
    c->data = event->data;
    if (state_of(c) & c->events)
        net_has_news(c);
    return 0;
}

/* Reports at most as many events as there were at the beginning: level-triggered connections that were reported
   are checked again the next time. */
static int report(struct epoll_event *events, int most) {
    int count = 0;
    if (is_listening && net_arrived.first != NOBODY)
        events[count++] = (struct epoll_event){EPOLLIN, listener_data};
    int last = NET_FIRST + net_news.last;
    for (struct connection *c = NULL;
         count < most && (!c || net_number(c) != last) && (c = net_take_first(&net_news));) {
        uint32_t now = c->is_open ? state_of(c) & c->events : 0;
        c->is_listed = false;
        if (now) {
            events[count++] = (struct epoll_event){now, c->data};
            if (!(c->events & EPOLLET))
                net_has_news(c);
        } else {
            net_recycle(c);
        }
    }
    return count;
}

static uint64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

u32_t sys_now(void) {
    return (u32_t)clock_ms();
}

static void run_timers(uint64_t now_ms) {
    if (now_ms < tick_ms)
        return;
    tick_ms = now_ms + TCP_TMR_INTERVAL;
    tcp_tmr();
    if (++ticks % (ARP_TMR_INTERVAL / TCP_TMR_INTERVAL) == 0)
        etharp_tmr();
}

int net_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms) {
    uint64_t begin_ms = clock_ms(), now_ms = begin_ms;
    (void)epoll;
    for (;;) {
        wire_receive(receive_most);
        run_timers(now_ms);
        wire_flush();
        net_free_bodies();
        int count = report(events, most);
        uint64_t past_ms = now_ms - begin_ms;
        if (count > 0 || timeout_ms == 0 || (timeout_ms > 0 && past_ms >= (uint64_t)timeout_ms))
            return count;
        uint64_t wait_ms = tick_ms - now_ms;
        if (timeout_ms > 0 && (uint64_t)timeout_ms - past_ms < wait_ms)
            wait_ms = (uint64_t)timeout_ms - past_ms;
        if (!wire_wait((int)wait_ms))
            return -1;
        now_ms = clock_ms();
    }
}
