/* Cold connections for lighttpd: the step that Bhatia, Consel and Lawall (2006, section 4.5) do by hand. A part
 * of connections.c, whose static functions it uses; schedule.patch includes it there.
 *
 * Stock lighttpd keeps a connection structure with its request's strings and headers (about 5 KiB) for each connection,
 * with or without a request. Here a connection that waits for its first or next request is frozen: its state is reduced
 * to one line of 64 bytes, at the index of its descriptor, and its structure serves the next connection with a request.
 * When its descriptor is ready it is thawed, and lighttpd continues as if it had not been frozen:
 *
 *     epoll says ready -> queue (8 bytes) -> thaw -> connection_state_machine: read, answer -> freeze
 *
 * The queue is processed one connection at a time, so that each reuses the structure of the one before it, which is in
 * the cache. A connection is frozen only between requests, on plain TCP, without plugin data, queued chunks or pending
 * events. Timeouts, graceful shutdown and mod_status thaw all connections first, so they see them all.
 */
#include "fdevent_impl.h"

#include <netinet/in.h>
#include <sys/mman.h>

struct cold {
    fdnode *fdn; /* NULL: the connection of this descriptor is not frozen */
    const struct server_socket *srv_socket;
    off_t bytes_in, bytes_out, bytes_written_cur_second;
    uint32_t connection_start_s, read_idle_s; /* monotonic clock */
    uint32_t start_s; /* start of the awaited request, in seconds since 1970; valid until 2106 */
    uint32_t request_count : 31, is_ipv6 : 1;
    in_addr_t address;
    in_port_t port;
    uint16_t idle_most_s; /* before the first request: max_read_idle; between two: keep_alive_idle */
};
_Static_assert(sizeof(struct cold) == 64, "a line of the cache");

static struct {
    struct cold *at;           /* indexed by descriptor */
    struct sockaddr_in6 *ipv6; /* indexed by descriptor, for connections with such an address */
    struct {
        int fd, revents;
    } *queue;
    uint32_t size, count, queued;
    char is_off; /* STINGY_COLD=0, or the server ends */
} cold;

static handler_t cold_handle_fdevent(void *context, int revents) {
    struct cold *c = context;
    cold.queue[cold.queued].fd = (int)(c - cold.at);
    cold.queue[cold.queued++].revents = revents;
    return HANDLER_FINISHED;
}

static int cold_start(const server *srv) {
    uint32_t size = srv->ev->maxfds;
    if (cold.at || cold.is_off)
        return !cold.is_off;
    const char *wanted = getenv("STINGY_COLD");
    if (wanted && *wanted == '0') {
        cold.is_off = 1;
        return 0;
    }
    /* Pages are not allocated until a descriptor of that number exists. */
    void *at = mmap(NULL, size * sizeof(struct cold), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    cold.at = at;
    cold.queue = ck_calloc(size, sizeof(*cold.queue));
    cold.size = size;
    return 1;
}

static int cold_has_plugin_data(const connection *con) {
    const request_st *r = &con->request;
    for (uint32_t i = 0; i <= con->srv->plugins.used; i++)
        if (con->plugin_ctx[i] || r->plugin_ctx[i])
            return 1;
    return 0;
}

static int cold_can_be_frozen(const connection *con) {
    const request_st *r = &con->request;
    int family = sock_addr_get_family(&con->dst_addr);
    return con->fd >= 0 && r->state == CON_STATE_READ && r->http_version == HTTP_VERSION_UNSET && !con->h2 &&
           !con->is_ssl_sock && !con->jqnext && !con->revents_err && con->is_readable == 0 && con->is_writable == 1 &&
           !con->traffic_limit_reached && con->read_queue == &r->read_queue && con->write_queue == &r->write_queue &&
           !r->read_queue.first && !r->write_queue.first && !r->reqbody_queue.first &&
           r->read_queue.bytes_in == r->bytes_read_ckpt && r->write_queue.bytes_out == r->bytes_written_ckpt &&
           r->read_queue.bytes_in == r->read_queue.bytes_out && r->write_queue.bytes_in == r->write_queue.bytes_out &&
           con->network_read == connection_read_cq && con->network_write == connection_write_cq &&
           con->reqbody_read == connection_handle_read_post_state && con->fdn->handler == connection_handle_fdevent &&
           fdevent_fdnode_interest(con->fdn) == (FDEVENT_IN | FDEVENT_RDHUP) &&
           (family == AF_INET || family == AF_INET6) && (uint32_t)con->fd < con->srv->ev->maxfds &&
           con->request_count < INT32_MAX && con->keep_alive_idle >= 0 && con->keep_alive_idle <= UINT16_MAX &&
           !cold_has_plugin_data(con);
}

void connection_freeze_if_idle(connection *const con) {
    server *const srv = con->srv;
    request_st *const r = &con->request;
    if (!cold_start(srv) || (uint32_t)con->fd >= cold.size || !cold_can_be_frozen(con))
        return;
    struct cold *c = &cold.at[con->fd];
    *c = (struct cold){.fdn = con->fdn,
                       .srv_socket = con->srv_socket,
                       .bytes_in = r->read_queue.bytes_in,
                       .bytes_out = r->write_queue.bytes_out,
                       .bytes_written_cur_second = con->bytes_written_cur_second,
                       .connection_start_s = (uint32_t)con->connection_start,
                       .read_idle_s = (uint32_t)con->read_idle_ts,
                       .start_s = (uint32_t)r->start_hp.tv_sec,
                       .request_count = con->request_count,
                       .idle_most_s =
                           (uint16_t)(con->request_count == 1 ? r->conf.max_read_idle : con->keep_alive_idle)};
    if (sock_addr_get_family(&con->dst_addr) == AF_INET) {
        c->address = con->dst_addr.ipv4.sin_addr.s_addr;
        c->port = con->dst_addr.ipv4.sin_port;
    } else {
        if (!cold.ipv6)
            cold.ipv6 = ck_calloc(cold.size, sizeof(*cold.ipv6));
        cold.ipv6[con->fd] = con->dst_addr.ipv6;
        c->is_ipv6 = 1;
    }
    con->fdn->ctx = c;
    con->fdn->handler = cold_handle_fdevent;
    cold.count++;

    /* Restores the state in which connection_close leaves it in the pool. */
    con->fdn = NULL;
    con->fd = -1;
    request_reset_ex(r);
    connection_set_state(r, CON_STATE_CONNECT);
    chunkqueue_reset(con->read_queue);
    chunkqueue_reset(con->write_queue);
    r->bytes_read_ckpt = r->bytes_written_ckpt = 0;
    con->request_count = 0;
    con->bytes_written_cur_second = 0;
    con->is_readable = 1;
    connection_del(srv, con);
    --srv->lim_conns; /* a frozen connection still counts */
}

static connection *cold_thaw(server *const srv, struct cold *const c) {
    ++srv->lim_conns;
    connection *const con = connections_get_new_connection(srv);
    request_st *const r = &con->request;
    con->fd = (int)(c - cold.at);
    con->fdn = c->fdn;
    con->fdn->ctx = con;
    con->fdn->handler = connection_handle_fdevent;
    con->network_read = connection_read_cq;
    con->network_write = connection_write_cq;
    con->reqbody_read = connection_handle_read_post_state;
    con->srv_socket = c->srv_socket;
    con->is_ssl_sock = 0;
    con->proto_default_port = 80; /* "http" */
    con->connection_start = c->connection_start_s;
    con->read_idle_ts = c->read_idle_s;
    con->request_count = c->request_count;
    con->keep_alive_idle = c->idle_most_s; /* the answer to the first request sets it */
    con->bytes_written_cur_second = c->bytes_written_cur_second;
    con->is_readable = 0;
    if (c->is_ipv6) {
        con->dst_addr.ipv6 = cold.ipv6[con->fd];
    } else {
        memset(&con->dst_addr.ipv4, 0, sizeof(con->dst_addr.ipv4));
        con->dst_addr.ipv4.sin_family = AF_INET;
        con->dst_addr.ipv4.sin_addr.s_addr = c->address;
        con->dst_addr.ipv4.sin_port = c->port;
    }
    sock_addr_cache_inet_ntop_copy_buffer(&con->dst_addr_buf, &con->dst_addr);
    connection_set_state(r, CON_STATE_READ);
    r->loops_per_request = 0;
    r->start_hp.tv_sec = c->start_s;
    r->read_queue.bytes_in = r->read_queue.bytes_out = r->bytes_read_ckpt = c->bytes_in;
    r->write_queue.bytes_in = r->write_queue.bytes_out = r->bytes_written_ckpt = c->bytes_out;
    config_cond_cache_reset(r);
    r->conditional_is_valid = (1 << COMP_SERVER_SOCKET) | (1 << COMP_HTTP_REMOTE_IP);
    c->fdn = NULL;
    cold.count--;
    return con;
}

/* Serves connections whose descriptors are ready; each is answered before the next is thawed. */
void connections_run_cold(server *const srv) {
    for (uint32_t i = 0; i < cold.queued; i++) {
        int fd = cold.queue[i].fd, revents = cold.queue[i].revents;
        fdnode *fdn = srv->ev->fdarray[fd];
        if (cold.at[fd].fdn) {
            connection *con = cold_thaw(srv, &cold.at[fd]);
            if (i + 1 < cold.queued)
                __builtin_prefetch(&cold.at[cold.queue[i + 1].fd]);
            if (revents & ~(FDEVENT_IN | FDEVENT_OUT))
                con->revents_err |= (revents & ~(FDEVENT_IN | FDEVENT_OUT));
            con->is_readable = (revents & FDEVENT_IN) != 0;
            connection_state_machine(con);
            connection_freeze_if_idle(con);
        } else if (fdn && fdn->handler == connection_handle_fdevent) {
            connection_handle_fdevent(fdn->ctx, revents); /* mod_status has thawed it meanwhile */
        }
    }
    cold.queued = 0;
}

/* Thaws all connections until their next request. `is_for_good`: none is frozen any more, because the server ends. */
void connections_thaw(server *const srv, const int is_for_good) {
    if (is_for_good)
        cold.is_off = 1;
    for (uint32_t fd = 0; cold.count > 0 && fd < cold.size; fd++)
        if (cold.at[fd].fdn) {
            connection *con = cold_thaw(srv, &cold.at[fd]);
            /* mod_status recognises a connection between requests by this value; its last request is not known. */
            if (con->request_count > 1)
                buffer_copy_string_len(&con->request.target_orig, CONST_STR_LEN("-"));
        }
}

/* Called once a second. */
static void cold_periodic_maint(server *const srv, const unix_time64_t cur_ts) {
    uint32_t left = cold.count;
    for (uint32_t fd = 0; left > 0 && fd < cold.size; fd++) {
        struct cold *c = &cold.at[fd];
        if (!c->fdn)
            continue;
        left--;
        c->bytes_written_cur_second = 0;
        /* The check of hot connections decides about those that are due. */
        if (cur_ts - (unix_time64_t)c->read_idle_s > c->idle_most_s)
            connection_check_timeout(cold_thaw(srv, c), cur_ts);
    }
}

off_t connections_cold_bytes_written(void) {
    off_t bytes = 0;
    uint32_t left = cold.count;
    for (uint32_t fd = 0; left > 0 && fd < cold.size; fd++)
        if (cold.at[fd].fdn) {
            bytes += cold.at[fd].bytes_written_cur_second;
            left--;
        }
    return bytes;
}

static void cold_end(void) {
    if (cold.at)
        munmap(cold.at, cold.size * sizeof(struct cold));
    free(cold.ipv6);
    free(cold.queue);
    memset(&cold, 0, sizeof cold);
}
