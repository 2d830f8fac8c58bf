/* Parses requests: the part of RFC 9112 that a static server needs. */
#define _GNU_SOURCE
#include "tux.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* Returns the length of the head that begins here, with its empty line; 0 while it is incomplete. Lines may end
 * with LF alone. */
static size_t head_end(const char *input, size_t bytes) {
    const char *at = input;
    while ((at = memchr(at, '\n', bytes - (size_t)(at - input)))) {
        at++;
        size_t left = bytes - (size_t)(at - input);
        if (left >= 1 && at[0] == '\n')
            return (size_t)(at + 1 - input);
        if (left >= 2 && at[0] == '\r' && at[1] == '\n')
            return (size_t)(at + 2 - input);
    }
    return 0;
}

static bool is_token_char(unsigned char c) {
    return c > ' ' && c < 127 && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static int parse_target(struct tux_request *req, const char *target, size_t bytes) {
    if (bytes > TARGET_MOST)
        return 414;
    /* The absolute form contains the host, which takes precedence over the Host line. */
    if (bytes > 7 && strncasecmp(target, "http://", 7) == 0) {
        const char *host = target + 7, *slash = memchr(host, '/', bytes - 7), *end = target + bytes;
        req->host = strndup(host, (size_t)((slash ? slash : end) - host));
        if (!req->host)
            return 500;
        bytes = slash ? (size_t)(end - slash) : 1;
        target = slash ? slash : "/";
    }
    if (bytes == 0 || target[0] != '/')
        return 400;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)target[i] <= ' ' || target[i] == 127 || target[i] == '#')
            return 400;
    req->target = strndup(target, bytes);
    return req->target ? 0 : 500;
}

static int parse_method(struct tux_request *req, const char *line, size_t bytes) {
    static const char *const others[] = {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"};
    if (bytes == 3 && memcmp(line, "GET", 3) == 0)
        req->method = TUX_GET;
    else if (bytes == 4 && memcmp(line, "HEAD", 4) == 0)
        req->method = TUX_HEAD;
    else {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (strlen(others[i]) == bytes && memcmp(line, others[i], bytes) == 0)
                return 405;
        for (size_t i = 0; i < bytes; i++)
            if (!is_token_char((unsigned char)line[i]))
                return 400;
        return bytes ? 501 : 400;
    }
    return 0;
}

static int parse_line(struct tux_request *req, const char *line, const char *end) {
    const char *space = memchr(line, ' ', (size_t)(end - line));
    if (!space)
        return 400;
    int error = parse_method(req, line, (size_t)(space - line));
    const char *target = space + 1, *version = memrchr(target, ' ', (size_t)(end - target));
    if (!version || memchr(target, ' ', (size_t)(version - target)))
        return 400;
    if (end - version != 9 || memcmp(version + 1, "HTTP/", 5) != 0 || version[7] != '.')
        return 400;
    if (version[6] != '1' || version[8] < '0' || version[8] > '9')
        return 505;
    req->minor_version = (uint8_t)(version[8] - '0');
    req->is_kept = req->minor_version >= 1;
    return error ? error : parse_target(req, target, (size_t)(version - target));
}

/* Whether a list of words contains this one. */
static bool has_word(const char *value, size_t bytes, const char *word) {
    size_t length = strlen(word);
    for (const char *end = value + bytes; value < end;) {
        const char *comma = memchr(value, ',', (size_t)(end - value)), *stop = comma ? comma : end;
        while (value < stop && (*value == ' ' || *value == '\t'))
            value++;
        const char *last = stop;
        while (last > value && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        if ((size_t)(last - value) == length && strncasecmp(value, word, length) == 0)
            return true;
        value = stop + 1;
    }
    return false;
}

/* Returns the value of a text of digits only, below 2^62; -1 for any other text. */
static off_t number(const char *text, const char *end) {
    off_t n = 0;
    if (text == end || end - text > 18)
        return -1;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        n = n * 10 + (*text - '0');
    }
    return n;
}

/* Parses one range of bytes. Everything else is ignored, as RFC 9110 permits: the whole file is sent. */
static void parse_range(struct tux_request *req, const char *value, size_t bytes) {
    const char *end = value + bytes;
    if (bytes < 8 || strncasecmp(value, "bytes=", 6) != 0)
        return;
    value += 6;
    const char *dash = memchr(value, '-', (size_t)(end - value));
    if (!dash)
        return;
    off_t first = number(value, dash), last = number(dash + 1, end);
    if (value == dash && last >= 0)
        req->is_range_suffix = true;
    else if (first < 0 || (last < 0 && dash + 1 != end) || (last >= 0 && last < first))
        return;
    req->has_range = true;
    req->range_first = first;
    req->range_last = last;
}

struct seen {
    unsigned hosts;
    off_t length;
    bool has_if_range;
};

static int parse_field(struct tux_request *req, struct seen *seen, const char *name, size_t name_bytes,
                       const char *value, size_t bytes) {
#define IS(text) (name_bytes == sizeof(text) - 1 && strncasecmp(name, text, sizeof(text) - 1) == 0)
    if (IS("Host")) {
        if (seen->hosts++)
            return 400;
        for (size_t i = 0; i < bytes; i++)
            if (!is_token_char((unsigned char)value[i]) && !strchr(":[]", value[i]))
                return 400;
        if (!req->host && !(req->host = strndup(value, bytes)))
            return 500;
    } else if (IS("Connection")) {
        if (has_word(value, bytes, "close"))
            req->is_kept = false;
        else if (req->minor_version == 0 && has_word(value, bytes, "keep-alive"))
            req->is_kept = true;
    } else if (IS("Content-Length")) {
        off_t length = number(value, value + bytes);
        if (length < 0 || (seen->length >= 0 && seen->length != length))
            return 400;
        seen->length = length;
        req->has_body |= length > 0;
    } else if (IS("Transfer-Encoding")) {
        req->has_body = true;
    } else if (IS("If-Modified-Since")) {
        char date[64];
        snprintf(date, sizeof date, "%.*s", (int)(bytes < 60 ? bytes : 60), value);
        req->modified_since = tux_parse_date(date);
    } else if (IS("If-None-Match")) {
        free(req->none_match);
        if (!(req->none_match = strndup(value, bytes)))
            return 500;
    } else if (IS("Range")) {
        parse_range(req, value, bytes);
    } else if (IS("If-Range")) {
        seen->has_if_range = true;
    }
    return 0;
#undef IS
}

int tux_parse_head(struct tux_request *req, char *head, size_t bytes) {
    struct seen seen = {0, -1, false};
    char *end = head + bytes, *line = head;
    int error = 0;
    if (memchr(head, 0, bytes))
        return 400;
    for (unsigned n = 0; line < end; n++) {
        char *next = memchr(line, '\n', (size_t)(end - line)), *stop = next;
        if (stop > line && stop[-1] == '\r')
            stop--;
        if (stop == line)
            break;
        if (memchr(line, '\r', (size_t)(stop - line)))
            return 400;
        int this_error;
        if (n == 0) {
            this_error = parse_line(req, line, stop);
        } else {
            char *colon = memchr(line, ':', (size_t)(stop - line)), *value = colon ? colon + 1 : stop, *last = stop;
            for (char *c = line; colon && c < colon; c++)
                if (!is_token_char((unsigned char)*c))
                    return 400;
            if (!colon || colon == line)
                return 400;
            while (value < last && (*value == ' ' || *value == '\t'))
                value++;
            while (last > value && (last[-1] == ' ' || last[-1] == '\t'))
                last--;
            this_error = parse_field(req, &seen, line, (size_t)(colon - line), value, (size_t)(last - value));
        }
        /* The first error is reported, but an unknown method must not hide how the request ends. */
        if (this_error == 400 || this_error == 500)
            return this_error;
        if (!error)
            error = this_error;
        line = next + 1;
    }
    if (!error && req->minor_version >= 1 && seen.hosts == 0)
        error = 400;
    if (seen.has_if_range)
        req->has_range = false;
    return error;
}

/* Reads bytes of the next request. Returns false if there are none, and the request waits or is closed. */
static bool read_more(struct tux_request *req) {
    if (!req->input) {
        req->input = malloc(INPUT_BEGIN);
        req->input_size = req->input ? INPUT_BEGIN : 0;
    } else if (req->input_used == req->input_size && req->input_size < INPUT_MOST) {
        char *larger = realloc(req->input, req->input_size * 2);
        if (larger) {
            req->input = larger;
            req->input_size *= 2;
        }
    }
    if (req->input_used == req->input_size) {
        tux_close(req);
        return false;
    }
    ssize_t got = recv(req->fd, req->input + req->input_used, req->input_size - req->input_used, 0);
    if (got > 0) {
        if (req->input_used == 0)
            req->began_ms = req->thread->now_ms;
        req->input_used += (size_t)got;
        return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        tux_wait(req, TUX_INPUT, parse_request);
    else
        tux_close(req);
    return false;
}

void parse_request(struct tux_request *req) {
    size_t bytes = 0, skip;
    for (;;) {
        /* Empty lines before a request are not part of it. */
        for (skip = 0; skip < req->input_used && (req->input[skip] == '\r' || req->input[skip] == '\n'); skip++)
            ;
        if (skip) {
            memmove(req->input, req->input + skip, req->input_used - skip);
            req->input_used -= skip;
        }
        if (req->input_used && (bytes = head_end(req->input, req->input_used)) != 0)
            break;
        if (req->input_used >= INPUT_MOST) {
            req->head_bytes = req->input_used;
            req->has_body = true;
            tux_error(req, memchr(req->input, '\n', req->input_used) ? 431 : 414, false);
            return;
        }
        /* A client that sends only an occasional byte is disconnected. */
        if (req->input_used && req->thread->now_ms - req->began_ms > req->thread->options->timeout_s * UINT64_C(1000)) {
            req->head_bytes = req->input_used;
            tux_error(req, 408, false);
            return;
        }
        if (!read_more(req))
            return;
    }
    req->head_bytes = bytes;
    int error = tux_parse_head(req, req->input, bytes);
    /* A body is not read, so the connection ends after the answer. */
    if (req->has_body)
        req->is_kept = false;
    if (error) {
        tux_error(req, error, error == 405 || error == 501);
        return;
    }
    add_tux_atom(req, http_lookup_vhost);
}
