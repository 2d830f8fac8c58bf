/* Manages a request's memory, from the connection's first byte to its last. */
#define _GNU_SOURCE
#include "tux.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tux_request *tux_new_request(struct tux_thread *thread, int fd) {
    struct tux_request *req = calloc(1, sizeof *req);
    if (!req)
        return NULL;
    req->thread = thread;
    req->fd = fd;
    req->modified_since = -1;
    return req;
}

void tux_reset_request(struct tux_request *req) {
    free(req->target);
    free(req->host);
    free(req->path);
    free(req->none_match);
    free(req->location);
    free(req->header);
    free(req->body);
    req->target = req->host = req->path = req->none_match = req->location = req->header = req->body = NULL;
    if (req->file)
        tux_release_file(req->file);
    if (req->directory)
        closedir(req->directory);
    req->file = NULL;
    req->directory = NULL;
    if (req->head_bytes) {
        memmove(req->input, req->input + req->head_bytes, req->input_used - req->head_bytes);
        req->input_used -= req->head_bytes;
    }
    req->head_bytes = req->header_used = req->header_sent = req->body_size = req->body_used = 0;
    req->body_at = req->body_end = 0;
    req->has_range = req->is_range_suffix = req->has_body = false;
    req->modified_since = -1;
    req->status = 0;
    req->type = NULL;
    req->sent_bytes = 0;
}

void tux_free_request(struct tux_request *req) {
    req->head_bytes = 0;
    tux_reset_request(req);
    free(req->input);
    free(req);
}

bool tux_append(struct tux_request *req, const char *text, size_t bytes) {
    if (req->body_used + bytes > req->body_size) {
        size_t size = req->body_size ? req->body_size : 512;
        while (size < req->body_used + bytes)
            size *= 2;
        char *larger = realloc(req->body, size);
        if (!larger)
            return false;
        req->body = larger;
        req->body_size = size;
    }
    memcpy(req->body + req->body_used, text, bytes);
    req->body_used += bytes;
    req->body_end = (off_t)req->body_used;
    return true;
}

const char *tux_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {414, "URI Too Long"},
        {416, "Range Not Satisfiable"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

void tux_error(struct tux_request *req, int status, bool may_keep) {
    char page[256];
    req->status = status;
    req->type = "text/html; charset=utf-8";
    if (!may_keep)
        req->is_kept = false;
    /* Drops the part of a body that was made before the error. */
    req->body_used = 0;
    req->body_at = 0;
    int bytes = snprintf(page, sizeof page, "<!DOCTYPE html>\n<title>%d %s</title>\n<h1>%d %s</h1>\n", status,
                         tux_reason(status), status, tux_reason(status));
    tux_append(req, page, (size_t)bytes);
    add_tux_atom(req, http_send_header);
}
