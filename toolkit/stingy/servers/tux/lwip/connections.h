/* The connections of lwIP, as the calls see them; sockets.c makes the calls, connections.c hears of lwIP's events. */
#ifndef TUX_CONNECTIONS_H
#define TUX_CONNECTIONS_H

#include "net.h"

#include <lwip/tcp.h>

enum { CONNECTIONS = 16384, NOBODY = -1 };

/* One line of the cache: all that a packet or a call needs beside the PCB. */
struct connection {
    _Alignas(64) struct tcp_pcb *pcb; /* NULL: lwIP has freed it */
    struct pbuf *input;               /* come and not yet read */
    epoll_data_t data;
    uint32_t events; /* that epoll is to report */
    uint32_t remote; /* as it lies in the packet */
    uint16_t remote_port;
    uint16_t input_at; /* of the first pbuf, so many bytes have been read */
    int32_t hash_next, list_next;
    bool is_open, is_listed; /* the server has it; it is in the list of news, or waits to be accepted */
    bool has_ended, has_failed, wants_room;
    struct body *body; /* lwIP may still send bytes of it */
};
_Static_assert(sizeof(struct connection) == 64, "as small as said");

struct list {
    int32_t first, last;
};

/* Chained by list_next: those that wait to be accepted, and those of which epoll may have something to report. */
extern struct list net_arrived, net_news;

void net_append(struct list *list, struct connection *c);
struct connection *net_take_first(struct list *list);
/* The open connection of that number; NULL: there is none. */
struct connection *net_connection(int fd);
int net_number(const struct connection *c);

/* lwIP makes a connection of each SYN that comes for this one. */
void net_connections_begin(struct tcp_pcb *listening);
/* Puts it into net_news, unless it is there. */
void net_has_news(struct connection *c);
/* To be called when the server or a list has left it. */
void net_recycle(struct connection *c);

#endif
