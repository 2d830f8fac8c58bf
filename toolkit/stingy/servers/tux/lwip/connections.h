/* The connections of lwIP: sockets.c implements the calls, connections.c handles lwIP's events. */
#ifndef TUX_CONNECTIONS_H
#define TUX_CONNECTIONS_H

#include "net.h"

#include <lwip/tcp.h>

enum { CONNECTIONS = 16384, NOBODY = -1 };

/* One cache line with everything that a packet or a call needs besides the PCB. */
struct connection {
    _Alignas(64) struct tcp_pcb *pcb; /* NULL: lwIP has freed it */
    struct pbuf *input;               /* received and not yet read */
    epoll_data_t data;
    uint32_t events; /* events that epoll is to report */
    uint32_t remote; /* in network byte order, as in the packet */
    uint16_t remote_port;
    uint16_t input_at; /* number of bytes of the first pbuf that have been read */
    int32_t hash_next, list_next;
    bool is_open, is_listed; /* whether the server has it; whether it is in the list of news or waits to be accepted */
    bool has_ended, has_failed, wants_room;
    struct body *body; /* lwIP may still send bytes of this body */
};
_Static_assert(sizeof(struct connection) == 64, "as small as said");

struct list {
    int32_t first, last;
};

/* Lists chained by list_next: connections that wait to be accepted, and connections that epoll may have to report. */
extern struct list net_arrived, net_news;

void net_append(struct list *list, struct connection *c);
struct connection *net_take_first(struct list *list);
/* Returns the open connection of that number, or NULL. */
struct connection *net_connection(int fd);
int net_number(const struct connection *c);

/* Makes lwIP create a connection for each SYN to this listener. */
void net_connections_begin(struct tcp_pcb *listening);
/* Adds the connection to net_news, unless it is there. */
void net_has_news(struct connection *c);
/* Call this when the server or a list no longer uses the connection. */
void net_recycle(struct connection *c);

#endif
