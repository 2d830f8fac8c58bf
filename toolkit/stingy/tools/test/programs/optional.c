/* A password that few requests have, of any length up to 65,536; a buffer in the structure; ended requests on a free
 * list. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum state { READ, LOGIN, SEND };

struct conn {
    int fd;
    enum state state;
    struct conn *next;
    char *line, *password;
    size_t used;
    char buffer[4096];
};

static struct conn *conns[100], *unused;

static struct conn *take(void) {
    struct conn *c = unused;
    if (c)
        unused = c->next;
    else
        c = malloc(sizeof *c);
    return c;
}

static void put_back(struct conn *c) {
    c->next = unused;
    unused = c;
}

static void add(int fd) {
    struct conn *c = take();
    if (!c)
        return;
    c->fd = fd;
    c->used = 0;
    c->line = c->password = NULL;
    c->state = READ;
    conns[fd] = c;
}

static void handle(struct conn *c) {
    uint16_t length;
    switch (c->state) {
    case READ:
        c->used = (size_t)read(c->fd, c->buffer, sizeof c->buffer);
        c->line = malloc(200);
        c->state = c->used ? LOGIN : SEND;
        break;
    case LOGIN:
        if (read(c->fd, &length, sizeof length) == sizeof length && length > 0) {
            c->password = malloc((size_t)length + 1);
            read(c->fd, c->password, length);
        }
        c->state = SEND;
        break;
    case SEND:
        write(c->fd, c->buffer, c->used);
        free(c->line);
        free(c->password);
        conns[c->fd] = NULL;
        put_back(c);
        break;
    }
}

int main(void) {
    for (int i = 0; i < 100; i++)
        add(i);
    for (;;)
        for (int i = 0; i < 100; i++)
            if (conns[i])
                handle(conns[i]);
}
