/* The CPU time of a process's first thread (the servers here have one), from the kernel: the clients read it when a
 * window begins and ends. */
#ifndef BENCH_STINGY_USAGE_H
#define BENCH_STINGY_USAGE_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Parses PORT on loopback, or ADDRESS:PORT. */
static inline struct sockaddr_in server_at(const char *text) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *colon = strchr(text, ':');
    char address[INET_ADDRSTRLEN];
    if (colon) {
        snprintf(address, sizeof address, "%.*s", (int)(colon - text), text);
        inet_pton(AF_INET, address, &at.sin_addr);
    }
    at.sin_port = htons((uint16_t)atoi(colon ? colon + 1 : text));
    return at;
}

struct usage {
    long long run_ns, waited_ns; /* time on a CPU; time runnable but not running */
    long user_ticks, system_ticks;
};

static inline double clock_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns false if there is no such process. */
static inline int read_schedstat(int file, struct usage *out) {
    char text[128];
    ssize_t got = pread(file, text, sizeof text - 1, 0);
    if (got <= 0)
        return 0;
    text[got] = 0;
    return sscanf(text, "%lld %lld", &out->run_ns, &out->waited_ns) == 2;
}

static inline int read_usage(int pid, struct usage *out) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC), is_read = file >= 0 && read_schedstat(file, out);
    if (file >= 0)
        close(file);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0)
        return 0;
    text[got] = 0;
    /* The name in parentheses may contain anything. */
    const char *after = strrchr(text, ')');
    return is_read && after &&
           sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &out->user_ticks,
                  &out->system_ticks) == 2;
}

#endif
