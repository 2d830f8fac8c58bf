/* Threads close descriptors that other threads use. Each slot holds a pipe. Churning threads
 * replace the pipe, mostly under the same number, write a token into the new one, and wait until
 * the slot's thread has read it. A stale "not ready" means that a token never arrives, and the
 * alarm fires. Runs with the watchdog off, and under TSan. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OWNERS = 3, CHURNERS = 3, SLOTS = 30 };

struct slot {
    pthread_mutex_t lock; /* held by the churner */
    _Atomic int reader;
    int writer;
    _Atomic long sent, received;
};

static struct slot slots[SLOTS];
static int control[OWNERS][2];
static _Atomic int stopping;
static long rounds = 3000;
static int cold[64][2];

static void *owner(void *context) {
    int me = (int)(intptr_t)context;
    while (!stopping) {
        struct pollfd set[1 + SLOTS + 64];
        int count = 0;
        set[count++] = (struct pollfd){control[me][0], POLLIN, 0};
        for (int i = 0; i < 64; i++)
            set[count++] = (struct pollfd){cold[i][0], POLLIN, 0};
        int first = count, slot_count = 0;
        for (int i = me; i < SLOTS; i += OWNERS) {
            set[count++] = (struct pollfd){slots[i].reader, POLLIN, 0};
            slot_count++;
        }
        if (me == 2) { /* one thread uses select */
            fd_set in;
            int n = 0;
            FD_ZERO(&in);
            for (int i = 0; i < count; i++) {
                FD_SET(set[i].fd, &in);
                n = set[i].fd >= n ? set[i].fd + 1 : n;
            }
            int result = select(n, &in, NULL, NULL, NULL);
            for (int i = 0; i < count; i++)
                set[i].revents = result > 0 && FD_ISSET(set[i].fd, &in) ? POLLIN : result < 0 ? POLLNVAL : 0;
        } else if (poll(set, (nfds_t)count, -1) < 0) {
            continue;
        }
        char bytes[64];
        if (set[0].revents && read(control[me][0], bytes, sizeof bytes) < 0)
            errno = 0;
        for (int i = 0; i < slot_count; i++)
            if (set[first + i].revents && read(set[first + i].fd, bytes, 1) == 1)
                /* A token contains its slot, because numbers move between slots. */
                slots[(int)bytes[0]].received++;
    }
    return NULL;
}

static void replace(struct slot *s, unsigned how) {
    int p[2], old = s->reader;
    close(s->writer);
    switch (how % 4) {
    case 0: /* close first, so the lowest number is probably the same */
        close(old);
        CHECK_EQ(pipe2(p, O_NONBLOCK), 0);
        s->reader = p[0];
        break;
    case 1:
        CHECK_EQ(pipe2(p, O_NONBLOCK), 0);
        dup2(p[0], old);
        close(p[0]);
        break;
    case 2:
        close_range((unsigned)old, (unsigned)old, 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p), 0);
        s->reader = p[0];
        break;
    default: { /* the old file stays open under another number */
        int kept = dup(old);
        close(old);
        CHECK_EQ(pipe2(p, O_NONBLOCK), 0);
        s->reader = p[0];
        close(kept);
    }
    }
    s->writer = p[1];
}

static void *churner(void *context) {
    unsigned random = (unsigned)(intptr_t)context * 2654435761U + 1;
    for (long i = 0; i < rounds; i++) {
        random = random * 1103515245U + 12345U;
        int which = (int)(random >> 16) % SLOTS;
        struct slot *s = &slots[which];
        pthread_mutex_lock(&s->lock);
        replace(s, random >> 24);
        long expected = s->received + 1;
        /* The owner learns that its set has changed. The token may come before or after its
         * check. */
        bool token_first = (random >> 27) & 1;
        char token = (char)which;
        if (token_first)
            CHECK_EQ(write(s->writer, &token, 1), 1);
        CHECK_EQ(write(control[which % OWNERS][1], "c", 1), 1);
        if (!token_first) {
            if ((random >> 28) & 1)
                sched_yield();
            CHECK_EQ(write(s->writer, &token, 1), 1);
        }
        for (int tries = 0; s->received < expected; tries++)
            tries < 20 ? sched_yield() : usleep(20);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void no_token_is_lost_when_threads_close_under_each_other(void) {
    pthread_t owners[OWNERS], churners[CHURNERS];
    for (int i = 0; i < 64; i++)
        CHECK_EQ(pipe(cold[i]), 0);
    for (int i = 0; i < OWNERS; i++)
        CHECK_EQ(pipe(control[i]), 0);
    for (int i = 0; i < SLOTS; i++) {
        int p[2];
        CHECK_EQ(pipe2(p, O_NONBLOCK), 0);
        pthread_mutex_init(&slots[i].lock, NULL);
        slots[i].reader = p[0];
        slots[i].writer = p[1];
    }
    for (int i = 0; i < OWNERS; i++)
        pthread_create(&owners[i], NULL, owner, (void *)(intptr_t)i);
    for (int i = 0; i < CHURNERS; i++)
        pthread_create(&churners[i], NULL, churner, (void *)(intptr_t)(i + 1));
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(churners[i], NULL);
    stopping = 1;
    for (int i = 0; i < OWNERS; i++)
        CHECK_EQ(write(control[i][1], "s", 1), 1);
    for (int i = 0; i < OWNERS; i++)
        pthread_join(owners[i], NULL);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        rounds = atol(argv[1]);
    RUN(no_token_is_lost_when_threads_close_under_each_other);
    return check_end();
}
