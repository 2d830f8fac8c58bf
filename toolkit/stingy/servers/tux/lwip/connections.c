/* Keeps the table of connections, by number and by the client's address, and handles lwIP's events for them. */
#define _GNU_SOURCE
#include "connections.h"

#include <lwip/priv/tcp_priv.h>
#include <string.h>

enum { BUCKET_BITS = 14 };

static struct connection connections[CONNECTIONS];
static int32_t buckets[1 << BUCKET_BITS];
static struct list unused = {NOBODY, NOBODY};
struct list net_arrived = {NOBODY, NOBODY}, net_news = {NOBODY, NOBODY};

void net_append(struct list *list, struct connection *c) {
    int32_t i = (int32_t)(c - connections);
    c->list_next = NOBODY;
    if (list->last == NOBODY)
        list->first = i;
    else
        connections[list->last].list_next = i;
    list->last = i;
}

struct connection *net_take_first(struct list *list) {
    if (list->first == NOBODY)
        return NULL;
    struct connection *c = &connections[list->first];
    list->first = c->list_next;
    if (list->first == NOBODY)
        list->last = NOBODY;
    return c;
}

int net_number(const struct connection *c) {
    return NET_FIRST + (int)(c - connections);
}

struct connection *net_connection(int fd) {
    return fd >= NET_FIRST && fd < NET_FIRST + CONNECTIONS && connections[fd - NET_FIRST].is_open
               ? &connections[fd - NET_FIRST]
               : NULL;
}

void net_recycle(struct connection *c) {
    if (!c->is_open && !c->pcb && !c->is_listed)
        net_append(&unused, c);
}

static int32_t *bucket_of(uint32_t remote, unsigned port) {
    return &buckets[((remote ^ port << 16) * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - BUCKET_BITS)];
}

struct tcp_pcb *net_find_pcb(const void *remote, unsigned remote_port, unsigned local_port) {
    uint32_t address;
    memcpy(&address, remote, sizeof address);
    for (int32_t i = *bucket_of(address, remote_port); i != NOBODY; i = connections[i].hash_next) {
        struct connection *c = &connections[i];
        if (c->remote == address && c->remote_port == remote_port)
            return c->pcb->state != TIME_WAIT && c->pcb->local_port == local_port ? c->pcb : NULL;
    }
    return NULL;
}

static void release_body(struct connection *c) {
    if (c->body)
        net_release_body(c->body);
    c->body = NULL;
}

/* Called when lwIP frees the PCB. */
static void pcb_ends(u8_t id, void *data) {
    struct connection *c = data;
    (void)id;
    int32_t *link = bucket_of(c->remote, c->remote_port);
    while (&connections[*link] != c)
        link = &connections[*link].hash_next;
    *link = c->hash_next;
    c->pcb = NULL;
    release_body(c);
    net_recycle(c);
}

/* Called when a SYN came. */
static err_t pcb_begins(u8_t id, struct tcp_pcb_listen *from, struct tcp_pcb *pcb) {
    static const struct tcp_ext_arg_callbacks callbacks = {.destroy = pcb_ends};
    (void)from;
    struct connection *c = net_take_first(&unused);
    if (!c)
        return ERR_MEM;
    *c = (struct connection){.pcb = pcb, .remote = ip_2_ip4(&pcb->remote_ip)->addr, .remote_port = pcb->remote_port};
    int32_t *bucket = bucket_of(c->remote, c->remote_port);
    c->hash_next = *bucket;
    *bucket = (int32_t)(c - connections);
    tcp_arg(pcb, c);
    tcp_ext_arg_set(pcb, id, c);
    tcp_ext_arg_set_callbacks(pcb, id, &callbacks);
    tcp_nagle_disable(pcb);
    return ERR_OK;
}

void net_connections_begin(struct tcp_pcb *listening) {
    static const struct tcp_ext_arg_callbacks callbacks = {.passive_open = pcb_begins};
    for (int32_t i = 0; i < CONNECTIONS; i++)
        net_append(&unused, &connections[i]);
    memset(buckets, 0xff, sizeof buckets);
    tcp_ext_arg_set_callbacks(listening, tcp_ext_arg_alloc_id(), &callbacks);
}

void net_has_news(struct connection *c) {
    if (c->is_listed || !c->is_open)
        return;
    c->is_listed = true;
    net_append(&net_news, c);
}

err_t lwip_tcp_event(void *arg, struct tcp_pcb *pcb, enum lwip_event event, struct pbuf *p, u16_t bytes, err_t error) {
    struct connection *c = arg;
    (void)bytes;
    if (!c) {
        /* The server has closed the connection, or there was no memory for it. */
        if (p) {
            tcp_recved(pcb, p->tot_len);
            pbuf_free(p);
        }
        return ERR_OK;
    }
    switch (event) {
    case LWIP_EVENT_ACCEPT:
        if (error != ERR_OK)
            return error;
        c->is_listed = true;
        net_append(&net_arrived, c);
        break;
    case LWIP_EVENT_RECV:
        if (!p)
            c->has_ended = true;
        else if (c->input)
            pbuf_cat(c->input, p);
        else
            c->input = p;
        net_has_news(c);
        break;
    case LWIP_EVENT_SENT:
        if (pcb->snd_queuelen == 0)
            release_body(c);
        if (!c->wants_room)
            break;
        c->wants_room = false;
        net_has_news(c);
        break;
    case LWIP_EVENT_ERR:
        c->has_failed = true;
        net_has_news(c);
        break;
    default:
        break;
    }
    return ERR_OK;
}
