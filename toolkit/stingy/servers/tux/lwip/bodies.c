/* Stores the bytes of small files; see net.h. */
#define _GNU_SOURCE
#include "net.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE_MOST = 65536 };

static struct body *bodies[NET_FIRST], *ended;

/* Packets with its bytes may still be on their way to the kernel. */
static void end(struct body *body) {
    body->next = ended;
    ended = body;
}

void net_free_bodies(void) {
    for (struct body *body; (body = ended);) {
        ended = body->next;
        free(body->bytes);
        free(body);
    }
}

static struct body *read_body(int file) {
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0 || status.st_size > SIZE_MOST)
        return NULL;
    struct body *body = calloc(1, sizeof *body);
    if (!body)
        return NULL;
    body->is_open = true;
    body->bytes = malloc((size_t)status.st_size);
    ssize_t got = body->bytes ? pread(file, body->bytes, (size_t)status.st_size, 0) : -1;
    if (got > 0) {
        body->size = (size_t)got;
        return body;
    }
    end(body);
    return NULL;
}

struct body *net_body(int file) {
    if (file < 0 || file >= NET_FIRST)
        return NULL;
    if (!bodies[file])
        bodies[file] = read_body(file);
    return bodies[file];
}

void net_release_body(struct body *body) {
    if (--body->users == 0 && !body->is_open)
        end(body);
}

void net_forget_body(int file) {
    struct body *body = file >= 0 && file < NET_FIRST ? bodies[file] : NULL;
    if (!body)
        return;
    bodies[file] = NULL;
    body->is_open = false;
    if (body->users == 0)
        end(body);
}
