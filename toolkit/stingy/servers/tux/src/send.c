/* Sends the answer: head, body, and the end of the request. */
#define _GNU_SOURCE
#include "tux.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum { HEADER_BYTES = 512, SEND_A_TURN = 1 << 20, DISCARDED_MOST = 1 << 20 };

static const char *date_now(struct tux_thread *thread) {
    time_t now = time(NULL);
    if (now != thread->date_s) {
        thread->date_s = now;
        tux_format_date(now, thread->date);
    }
    return thread->date;
}

static bool format_header(struct tux_request *req) {
    size_t size = HEADER_BYTES + (req->location ? strlen(req->location) : 0), used;
    char date[40];
    req->header = malloc(size);
    if (!req->header)
        return false;
    used = (size_t)snprintf(req->header, size, "HTTP/1.1 %d %s\r\nServer: tux\r\nDate: %s\r\n", req->status,
                            tux_reason(req->status), date_now(req->thread));
#define ADD(...) (used += (size_t)snprintf(req->header + used, size - used, __VA_ARGS__))
    if (req->type && req->status != 304)
        ADD("Content-Type: %s\r\n", req->type);
    if (req->status != 304)
        ADD("Content-Length: %lld\r\n", (long long)(req->body_end - req->body_at));
    if (req->file) {
        tux_format_date(req->file->modified, date);
        ADD("Last-Modified: %s\r\nETag: \"%llx-%llx\"\r\nAccept-Ranges: bytes\r\n", date,
            (unsigned long long)req->file->modified, (unsigned long long)req->file->bytes);
    }
    if (req->status == 206)
        ADD("Content-Range: bytes %lld-%lld/%lld\r\n", (long long)req->range_first, (long long)req->range_last,
            (long long)req->file->bytes);
    if (req->status == 416)
        ADD("Content-Range: bytes */%lld\r\n", (long long)req->range_last);
    if (req->status == 405)
        ADD("Allow: GET, HEAD\r\n");
    if (req->location)
        ADD("Location: %s\r\n", req->location);
    if (!req->is_kept)
        ADD("Connection: close\r\n");
    else if (req->minor_version == 0)
        ADD("Connection: keep-alive\r\n");
    ADD("\r\n");
#undef ADD
    req->header_used = used;
    return used < size;
}

/* After a failed send: waits for the client, or ends the connection. */
static void not_sent(struct tux_request *req, tux_atom *atom) {
    if (errno == EAGAIN || errno == EINTR)
        tux_wait(req, TUX_OUTPUT, atom);
    else
        tux_close(req);
}

void http_send_header(struct tux_request *req) {
    bool has_body = req->method != TUX_HEAD && req->status != 304 && req->body_end > req->body_at;
    if (!req->header && !format_header(req)) {
        tux_close(req);
        return;
    }
    while (req->header_sent < req->header_used) {
        ssize_t sent = send(req->fd, req->header + req->header_sent, req->header_used - req->header_sent,
                            MSG_NOSIGNAL | (has_body ? MSG_MORE : 0));
        if (sent < 0) {
            not_sent(req, http_send_header);
            return;
        }
        req->header_sent += (size_t)sent;
        req->sent_bytes += (uint64_t)sent;
    }
    add_tux_atom(req, has_body ? http_send_body : flush_request);
}

void http_send_body(struct tux_request *req) {
    off_t turn_end = req->body_at + SEND_A_TURN;
    while (req->body_at < req->body_end && req->body_at < turn_end) {
        size_t left = (size_t)(req->body_end - req->body_at);
        if (left > SEND_A_TURN)
            left = SEND_A_TURN;
        ssize_t sent;
        if (req->file) {
            off_t at = req->body_at;
            sent = sendfile(req->fd, req->file->fd, &at, left);
        } else {
            sent = send(req->fd, req->body + req->body_at, left, MSG_NOSIGNAL);
        }
        if (sent < 0) {
            not_sent(req, http_send_body);
            return;
        }
        /* The file has become shorter than announced. */
        if (sent == 0) {
            tux_close(req);
            return;
        }
        req->body_at += sent;
        req->sent_bytes += (uint64_t)sent;
    }
    add_tux_atom(req, req->body_at < req->body_end ? http_send_body : flush_request);
}

void flush_request(struct tux_request *req) {
    if (req->thread->log)
        fprintf(req->thread->log, "%d %llu\n", req->status, (unsigned long long)req->sent_bytes);
    if (req->is_kept) {
        tux_reset_request(req);
        tux_next_request(req);
    } else if (req->has_body) {
        /* The kernel resets a connection closed with unread input, and the answer would be lost. */
        shutdown(req->fd, SHUT_WR);
        tux_reset_request(req);
        req->input_used = 0;
        add_tux_atom(req, linger_request);
    } else {
        tux_close(req);
    }
}

/* Reads and drops bytes until the client has ended, too, or has sent 1 MiB. */
void linger_request(struct tux_request *req) {
    char away[4096];
    for (;;) {
        ssize_t got = recv(req->fd, away, sizeof away, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            tux_wait(req, TUX_INPUT, linger_request);
            return;
        }
        req->discarded_bytes += got > 0 ? (uint64_t)got : 0;
        if (got <= 0 || req->discarded_bytes > DISCARDED_MOST) {
            tux_close(req);
            return;
        }
    }
}
