/* Chooses the answer: the host's documents, the file, and all or part of it. */
#define _GNU_SOURCE
#include "tux.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Appends the target's path to `path`, decoded and without dots. Returns false if it leads outside or is not a
   path. */
static bool decode_path(char *path, size_t begin, const char *target) {
    size_t used = begin;
    for (const char *c = target + 1; *c && *c != '?'; c++) {
        char byte = *c;
        if (byte == '%') {
            int high = hex(c[1]), low = high < 0 ? -1 : hex(c[2]);
            if (low < 0 || (byte = (char)(high * 16 + low)) == 0)
                return false;
            c += 2;
        }
        path[used++] = byte;
    }
    path[used] = 0;
    /* In place, segment by segment: `to` writes where `from` has already read. */
    size_t to = begin;
    for (size_t from = begin; from < used || from == begin;) {
        size_t end = from;
        while (end < used && path[end] != '/')
            end++;
        size_t bytes = end - from;
        bool is_last = end >= used;
        if (bytes == 2 && path[from] == '.' && path[from + 1] == '.') {
            if (to == begin)
                return false;
            for (to--; to > begin && path[to - 1] != '/';)
                to--;
        } else if (bytes > 0 && !(bytes == 1 && path[from] == '.')) {
            memmove(path + to, path + from, bytes);
            to += bytes;
            if (!is_last)
                path[to++] = '/';
        }
        if (is_last)
            break;
        from = end + 1;
    }
    path[to] = 0;
    return true;
}

/* Finds the folder of the requested host, if each host has one: its name in lower case, without the port. */
void http_lookup_vhost(struct tux_request *req) {
    size_t bytes = strlen(req->target) + (req->host ? strlen(req->host) : 0);
    /* Reserves room for a folder, the path and the name of the index. */
    req->path = malloc(bytes + sizeof "default/" + sizeof "index.html" + 2);
    if (!req->path) {
        tux_error(req, 500, false);
        return;
    }
    size_t begin = 0;
    if (req->thread->options->has_vhosts) {
        for (const char *c = req->host ? req->host : ""; *c && *c != ':'; c++) {
            char low = *c >= 'A' && *c <= 'Z' ? (char)(*c | 32) : *c;
            bool is_name =
                (low >= 'a' && low <= 'z') || (low >= '0' && low <= '9') || low == '-' || (low == '.' && begin > 0);
            if (!is_name) {
                begin = 0;
                break;
            }
            req->path[begin++] = low;
        }
        req->path[begin] = 0;
        struct stat status;
        if (begin == 0 || fstatat(req->thread->documents, req->path, &status, 0) != 0 || !S_ISDIR(status.st_mode))
            begin = (size_t)sprintf(req->path, "default");
        req->path[begin++] = '/';
    }
    if (!decode_path(req->path, begin, req->target)) {
        tux_error(req, 400, true);
        return;
    }
    add_tux_atom(req, http_process_message);
}

static void redirect_to_folder(struct tux_request *req) {
    size_t path = strcspn(req->target, "?"), bytes = strlen(req->target);
    req->location = malloc(bytes + 2);
    if (!req->location) {
        tux_error(req, 500, false);
        return;
    }
    /* `//name/` would be another host. */
    const char *target = req->target;
    while (target[0] == '/' && target[1] == '/')
        target++, path--;
    sprintf(req->location, "%.*s/%s", (int)path, target, target + path);
    tux_error(req, 301, true);
}

static void no_file(struct tux_request *req, int why) {
    int status = why == EACCES || why == EPERM                                            ? 403
                 : why == ENOENT || why == ENOTDIR || why == ENAMETOOLONG || why == ELOOP ? 404
                                                                                          : 500;
    tux_error(req, status, true);
}

static bool is_same_entity(const struct tux_request *req) {
    if (req->none_match) {
        char tag[48];
        snprintf(tag, sizeof tag, "\"%llx-%llx\"", (unsigned long long)req->file->modified,
                 (unsigned long long)req->file->bytes);
        return strcmp(req->none_match, "*") == 0 || strstr(req->none_match, tag);
    }
    return req->modified_since >= 0 && req->file->modified <= req->modified_since;
}

static void choose_range(struct tux_request *req) {
    off_t size = req->file->bytes, first = req->range_first, last = req->range_last;
    if (req->is_range_suffix) {
        first = last >= size ? 0 : size - last;
        last = req->range_last == 0 ? -1 : size - 1;
    } else if (last < 0 || last >= size) {
        last = size - 1;
    }
    if (first >= size || last < first) {
        tux_release_file(req->file);
        req->file = NULL;
        req->range_last = size;
        tux_error(req, 416, true);
        return;
    }
    req->status = 206;
    req->range_first = first;
    req->range_last = last;
    req->body_at = first;
    req->body_end = last + 1;
    add_tux_atom(req, http_send_header);
}

void http_process_message(struct tux_request *req) {
    size_t bytes = strlen(req->path), begin = req->thread->options->has_vhosts ? strcspn(req->path, "/") + 1 : 0;
    bool is_folder = bytes == begin || req->path[bytes - 1] == '/';
    if (is_folder)
        strcpy(req->path + bytes, "index.html");
    req->file = tux_open_file(req->thread, req->path);
    if (!req->file && is_folder && (errno == ENOENT || errno == EISDIR)) {
        req->path[bytes] = 0;
        add_tux_atom(req, http_dirlist_head);
        return;
    }
    if (!req->file) {
        if (errno == EISDIR)
            redirect_to_folder(req);
        else
            no_file(req, errno);
        return;
    }
    req->type = tux_type(req->path);
    if (is_same_entity(req)) {
        req->status = 304;
        add_tux_atom(req, http_send_header);
        return;
    }
    if (req->has_range && req->method == TUX_GET) {
        choose_range(req);
        return;
    }
    req->status = 200;
    req->body_end = req->file->bytes;
    add_tux_atom(req, http_send_header);
}
