/* Measures the cost of one poll or select by the size of the set and the number of hot descriptors. bench/run runs
 * it with and without the library, in turn. Usage: call_cost [ROUNDS]. Prints: kind set hot nanoseconds (CPU, the
 * median round) */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SET_MAX = 9000, ROUNDS_MAX = 1001 };
static struct pollfd fds[SET_MAX];
static int peers[SET_MAX];

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const char *kind, int set, int hot, int rounds) {
    static uint64_t ns[ROUNDS_MAX];
    int is_select = strcmp(kind, "select") == 0;
    char byte = 0;
    for (int round = -20; round < rounds; round++) {
        for (int i = 0; i < hot; i++)
            if (write(peers[i * (set / hot)], &byte, 1) != 1)
                exit(1);
        int ready;
        uint64_t start;
        if (is_select) {
            fd_set in;
            int n = 0;
            FD_ZERO(&in);
            for (int i = 0; i < set; i++) {
                FD_SET(fds[i].fd, &in);
                n = fds[i].fd >= n ? fds[i].fd + 1 : n;
            }
            start = cpu_ns();
            ready = select(n, &in, NULL, NULL, NULL);
        } else {
            start = cpu_ns();
            ready = poll(fds, (nfds_t)set, -1);
        }
        uint64_t used = cpu_ns() - start;
        if (ready != hot)
            exit(1);
        if (round >= 0)
            ns[round] = used;
        for (int i = 0; i < hot; i++)
            if (read(fds[i * (set / hot)].fd, &byte, 1) != 1)
                exit(1);
    }
    qsort(ns, (size_t)rounds, sizeof *ns, ascending);
    printf("%s %d %d %llu\n", kind, set, hot, (unsigned long long)ns[rounds / 2]);
}

int main(int argc, char **argv) {
    static const struct {
        int set, hot;
    } points[] = {{8, 1},    {32, 8},   {33, 1},    {48, 4},      {64, 1},      {64, 32},
                  {64, 64},  {128, 1},  {128, 128}, {450, 20},    {450, 450},   {750, 1},
                  {750, 20}, {2000, 1}, {2000, 20}, {2000, 2000}, {SET_MAX, 1}, {SET_MAX, 20}};
    int rounds = argc > 1 ? atoi(argv[1]) : 201;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < SET_MAX; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            return 1;
        fds[i] = (struct pollfd){pair[0], POLLIN, 0};
        peers[i] = pair[1];
    }
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        measure("poll", points[i].set, points[i].hot, rounds);
        if (fds[points[i].set - 1].fd < FD_SETSIZE)
            measure("select", points[i].set, points[i].hot, rounds);
    }
    return 0;
}
