/* Passes one array again and again with small changes, as programs do, and compares with the
 * direct system call on a copy. The library's memory of the array must never hide a change.
 * Passes with and without the library. */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

enum { FILES = 90, ENTRIES_MAX = 300, CHANGES = 60000 };
static int file[FILES], peer[FILES];
static struct pollfd array[ENTRIES_MAX];
static int count;
static uint64_t state = 88172645463325252u;

static unsigned below(unsigned end) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 20) % end;
}

static struct pollfd some_entry(void) {
    static const short events[] = {POLLIN, POLLIN, POLLIN, POLLOUT, POLLIN | POLLOUT, 0, POLLPRI};
    struct pollfd p = {file[below(FILES)], events[below(7)], 0};
    if (below(40) == 0)
        p.fd = -1 - (int)below(200); /* includes values like the library's own marks */
    if (below(60) == 0)
        p.fd = 900;
    return p;
}

static void open_file(int i) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0)
        exit(2);
    file[i] = pair[0];
    peer[i] = pair[1];
}

static void change(void) {
    int at = (int)below((unsigned)count), other = (int)below((unsigned)count), i = (int)below(FILES);
    char bytes[64];
    switch (below(12)) {
    case 0: /* a connection is inserted: later entries move up */
        if (count < ENTRIES_MAX) {
            memmove(&array[at + 1], &array[at], (size_t)(count++ - at) * sizeof *array);
            array[at] = some_entry();
        }
        break;
    case 1: /* one is removed: later entries move down */
        if (count > 1)
            memmove(&array[at], &array[at + 1], (size_t)(--count - at) * sizeof *array);
        break;
    case 2: { /* the last one fills the gap */
        struct pollfd p = array[at];
        array[at] = array[other];
        array[other] = p;
        break;
    }
    case 3:
        array[at].events ^= below(2) ? POLLIN : POLLOUT;
        break;
    case 4: /* a descriptor twice */
        array[at].fd = array[other].fd;
        break;
    case 5:
        array[at].revents = (short)below(65536);
        break;
    case 6:
        array[at] = some_entry();
        break;
    case 7:
        array[at].fd = ~array[at].fd; /* how programs switch an entry off and on */
        break;
    case 8: /* the array shrinks, and grows again with its old entries */
        count = (int)below((unsigned)count) + 1;
        break;
    case 9:
        while (count < ENTRIES_MAX - 8 && below(8) != 0)
            array[count++] = some_entry();
        break;
    case 10:
        close(file[i]);
        close(peer[i]);
        open_file(i);
        break;
    default:
        break;
    }
    i = (int)below(FILES);
    if (below(2) && write(peer[i], "x", 1) < 0 && errno != EAGAIN && errno != EPIPE)
        exit(2);
    while (below(3) != 0 && read(file[below(FILES)], bytes, sizeof bytes) > 0)
        ;
    if (below(100) == 0)
        shutdown(peer[i], SHUT_WR);
}

static void an_array_that_changes_between_calls_is_answered_as_by_the_kernel(void) {
    static struct pollfd copy[ENTRIES_MAX];
    struct timespec now = {0, 0};
    for (int i = 0; i < FILES; i++)
        open_file(i);
    while (count < 200)
        array[count++] = some_entry();
    for (int round = 0, wrong = 0; round < CHANGES && wrong < 5; round++) {
        change();
        memcpy(copy, array, sizeof copy);
        int expected = (int)syscall(SYS_ppoll, copy, count, &now, NULL, 0);
        int got = poll(array, (nfds_t)count, expected > 0 && below(2) ? -1 : 0);
        CHECK_EQ(got, expected);
        wrong += got != expected;
        for (int i = 0; i < count; i++)
            if (array[i].revents != copy[i].revents) {
                printf("  round %d: entry %d of %d (fd %d, events %x): %x, the kernel says %x\n", round, i, count,
                       array[i].fd, (unsigned)array[i].events, (unsigned)array[i].revents, (unsigned)copy[i].revents);
                CHECK(false);
                wrong++;
            }
        if (below(4) != 0) /* some programs clear what they have read, some do not */
            for (int i = 0; i < count; i++)
                array[i].revents = 0;
    }
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    RUN(an_array_that_changes_between_calls_is_answered_as_by_the_kernel);
    return check_end();
}
