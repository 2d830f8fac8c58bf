// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server on io_uring: one thread, multishot accept, a read and a write in flight a connection, no other
// system call than io_uring_enter. Serves the files of a folder from memory. A request is a head without a body;
// pipelined ones are answered one after another.
//
// usage: uring ADDRESS PORT DOCUMENTS [sqpoll]
//   sqpoll: the kernel's thread submits (IORING_SETUP_SQPOLL), so reads and writes happen in it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <liburing.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DOCUMENTS 64
#define CONNECTIONS 4096
#define HEAD_BYTES 8192

// A complete response with head and body.
struct document {
    char path[64];
    char *response;
    size_t bytes;
};

struct connection {
    int fd;
    size_t filled;   // bytes of `head`
    size_t consumed; // bytes of `head` that belong to the request that is being answered
    const struct document *document;
    size_t sent;
    bool closes; // whether to close after this response
    char head[HEAD_BYTES];
};

static struct document documents[DOCUMENTS];
static int document_count;
static struct document missing;
static struct connection connections[CONNECTIONS];
static struct io_uring ring;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void make_response(struct document *document, const char *status, const char *body, size_t bytes) {
    char head[128];
    int head_bytes = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", status, bytes);
    document->bytes = (size_t)head_bytes + bytes;
    document->response = malloc(document->bytes);
    if (!document->response)
        fail("uring: memory");
    memcpy(document->response, head, (size_t)head_bytes);
    memcpy(document->response + head_bytes, body, bytes);
}

static void read_documents(const char *folder) {
    DIR *entries = opendir(folder);
    if (!entries)
        fail(folder);
    for (struct dirent *entry; (entry = readdir(entries)) && document_count < DOCUMENTS;) {
        char path[4096];
        struct stat facts;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strlen(entry->d_name) > 60 || stat(path, &facts) || !S_ISREG(facts.st_mode))
            continue;
        FILE *file = fopen(path, "rb");
        char *body = malloc((size_t)facts.st_size + 1);
        if (!file || !body || fread(body, 1, (size_t)facts.st_size, file) != (size_t)facts.st_size)
            fail(path);
        fclose(file);
        struct document *document = &documents[document_count++];
        snprintf(document->path, sizeof document->path, "/%.60s", entry->d_name);
        make_response(document, "200 OK", body, (size_t)facts.st_size);
        free(body);
    }
    closedir(entries);
    make_response(&missing, "404 Not Found", "not found\n", 10);
}

// The source of a completion: the connection's index, and 0 for read, 1 for write, 2 for accept.
enum { READ, WRITE, ACCEPT };
static void tag(struct io_uring_sqe *entry, long index, unsigned what) {
    io_uring_sqe_set_data64(entry, (unsigned long long)index << 2 | what);
}

static struct io_uring_sqe *next_entry(void) {
    struct io_uring_sqe *entry;
    while (!(entry = io_uring_get_sqe(&ring)))
        io_uring_submit(&ring);
    return entry;
}

static void accept_more(int listener) {
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_multishot_accept(entry, listener, NULL, NULL, 0);
    tag(entry, 0, ACCEPT);
}

static void read_more(struct connection *c) {
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_recv(entry, c->fd, c->head + c->filled, HEAD_BYTES - c->filled, 0);
    tag(entry, c - connections, READ);
}

static void write_more(struct connection *c) {
    struct io_uring_sqe *entry = next_entry();
    io_uring_prep_send(entry, c->fd, c->document->response + c->sent, c->document->bytes - c->sent, MSG_NOSIGNAL);
    tag(entry, c - connections, WRITE);
}

static void finish(struct connection *c) {
    close(c->fd);
    c->fd = -1;
}

// Answers the first complete request among the read bytes, or reads more.
static void answer(struct connection *c) {
    char *end = memmem(c->head, c->filled, "\r\n\r\n", 4);
    if (!end) {
        if (c->filled == HEAD_BYTES)
            finish(c);
        else
            read_more(c);
        return;
    }
    c->consumed = (size_t)(end + 4 - c->head);
    c->closes = memmem(c->head, c->consumed, "Connection: close", 17) != NULL;
    c->document = &missing;
    for (int i = 0; i < document_count; i++) {
        size_t length = strlen(documents[i].path);
        if (c->consumed > 5 + length && !memcmp(c->head, "GET ", 4) &&
            !memcmp(c->head + 4, documents[i].path, length) && c->head[4 + length] == ' ')
            c->document = &documents[i];
    }
    c->sent = 0;
    write_more(c);
}

static void on_read(struct connection *c, int bytes) {
    if (bytes <= 0) {
        finish(c);
        return;
    }
    c->filled += (size_t)bytes;
    answer(c);
}

static void on_written(struct connection *c, int bytes) {
    if (bytes <= 0) {
        finish(c);
        return;
    }
    c->sent += (size_t)bytes;
    if (c->sent < c->document->bytes) {
        write_more(c);
    } else if (c->closes) {
        finish(c);
    } else {
        c->filled -= c->consumed;
        memmove(c->head, c->head + c->consumed, c->filled);
        answer(c);
    }
}

static void on_accepted(int fd) {
    if (fd < 0)
        return;
    for (int i = 0; i < CONNECTIONS; i++) {
        if (connections[i].fd < 0) {
            connections[i].fd = fd;
            connections[i].filled = 0;
            read_more(&connections[i]);
            return;
        }
    }
    close(fd);
}

static int listen_on(const char *address, int port) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (listener < 0 || inet_pton(AF_INET, address, &name.sin_addr) != 1)
        fail("uring: address");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) || listen(listener, 4096))
        fail("uring: listen");
    return listener;
}

int main(int count, char **words) {
    if (count < 4 || count > 5) {
        fprintf(stderr, "usage: uring ADDRESS PORT DOCUMENTS [sqpoll]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    read_documents(words[3]);
    int listener = listen_on(words[1], atoi(words[2]));
    const struct passwd *nobody = getpwnam("nobody");
    if (!geteuid() && (!nobody || setgroups(0, NULL) || setgid(nobody->pw_gid) || setuid(nobody->pw_uid)))
        fail("uring: cannot become nobody");
    for (int i = 0; i < CONNECTIONS; i++)
        connections[i].fd = -1;
    unsigned flags = count == 5 ? IORING_SETUP_SQPOLL : 0;
    int error = io_uring_queue_init(1024, &ring, flags);
    if (error < 0) {
        errno = -error;
        fail("uring: io_uring_queue_init");
    }
    accept_more(listener);
    for (;;) {
        struct io_uring_cqe *done;
        if (io_uring_submit_and_wait(&ring, 1) < 0 && errno != EINTR)
            continue;
        while (!io_uring_peek_cqe(&ring, &done)) {
            unsigned long long what = io_uring_cqe_get_data64(done);
            int result = done->res;
            bool more = done->flags & IORING_CQE_F_MORE;
            io_uring_cqe_seen(&ring, done);
            struct connection *c = &connections[(what >> 2) % CONNECTIONS];
            switch (what & 3) {
            case READ:
                on_read(c, result);
                break;
            case WRITE:
                on_written(c, result);
                break;
            case ACCEPT:
                on_accepted(result);
                if (!more)
                    accept_more(listener);
            }
        }
    }
}
