/* Lists a folder without index.html: some entries at a time, so that a large folder does not delay other requests. */
#define _GNU_SOURCE
#include "tux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Escapes text for HTML, or for a link in HTML. */
static bool append_escaped(struct tux_request *req, const char *text, bool is_link) {
    char out[16];
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_plain =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("-._~/", c);
        int bytes;
        if (is_plain || (!is_link && c > ' ' && !strchr("&<>\"'", c)))
            bytes = snprintf(out, sizeof out, "%c", c);
        else
            bytes = snprintf(out, sizeof out, is_link ? "%%%02X" : "&#%u;", c);
        if (!tux_append(req, out, (size_t)bytes))
            return false;
    }
    return true;
}

static bool append(struct tux_request *req, const char *text) {
    return tux_append(req, text, strlen(text));
}

void http_dirlist_head(struct tux_request *req) {
    int fd = openat(req->thread->documents, *req->path ? req->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    req->directory = fd < 0 ? NULL : fdopendir(fd);
    if (!req->directory) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        tux_error(req, why == ENOENT || why == ENOTDIR ? 404 : why == EACCES ? 403 : 500, true);
        return;
    }
    req->status = 200;
    req->type = "text/html; charset=utf-8";
    if (!append(req, "<!DOCTYPE html>\n<title>Index of /") || !append_escaped(req, req->path, false) ||
        !append(req, "</title>\n<ul>\n")) {
        tux_error(req, 500, false);
        return;
    }
    add_tux_atom(req, list_directory);
}

static bool append_entry(struct tux_request *req, const struct dirent *entry) {
    const char *end = entry->d_type == DT_DIR ? "/" : "";
    /* `./`, because a name may look like a scheme. */
    return append(req, "<li><a href=\"./") && append_escaped(req, entry->d_name, true) && append(req, end) &&
           append(req, "\">") && append_escaped(req, entry->d_name, false) && append(req, end) &&
           append(req, "</a></li>\n");
}

void list_directory(struct tux_request *req) {
    for (unsigned i = 0; i < LISTING_ENTRIES_A_TURN; i++) {
        struct dirent *entry = readdir(req->directory);
        if (!entry || req->body_used > LISTING_MOST_BYTES) {
            add_tux_atom(req, http_dirlist_tail);
            return;
        }
        if (entry->d_name[0] != '.' && !append_entry(req, entry)) {
            tux_error(req, 500, false);
            return;
        }
    }
    add_tux_atom(req, list_directory);
}

void http_dirlist_tail(struct tux_request *req) {
    closedir(req->directory);
    req->directory = NULL;
    if (!append(req, "</ul>\n")) {
        tux_error(req, 500, false);
        return;
    }
    add_tux_atom(req, http_send_header);
}
