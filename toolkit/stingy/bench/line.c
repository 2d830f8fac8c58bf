/* Measures the distance of two CPUs: ns for a cache line to the other CPU and back, the mean of
 * 3,000 times. If a host moves a virtual machine's CPUs between its caches, the distance changes
 * by a factor of four, and so does the cost of all data that client and server exchange. Prints
 * a number. Always ends after 2 s, because it may run at real-time priority.
 *
 * usage: line CPU CPU */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "usage.h"

enum { WARM = 300, TIMES = 3000 };
static _Atomic int flag;

static void *answer(void *unused) {
    for (int i = 0; i < WARM + TIMES; i++) {
        while (atomic_load_explicit(&flag, memory_order_acquire) != 2 * i + 1)
            ;
        atomic_store_explicit(&flag, 2 * i + 2, memory_order_release);
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t other;
    pthread_attr_t attributes;
    cpu_set_t set;
    double begin = 0;
    if (argc != 3)
        return fprintf(stderr, "usage: line CPU CPU\n"), 2;
    alarm(2);
    pthread_attr_init(&attributes);
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[2]), &set);
    /* Waits until both threads are on their CPUs. */
    pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
    CPU_ZERO(&set);
    CPU_SET(atoi(argv[1]), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0 || pthread_create(&other, &attributes, answer, NULL) != 0)
        return perror("line"), 1;
    for (int i = 0; i < WARM + TIMES; i++) {
        if (i == WARM)
            begin = clock_s(CLOCK_MONOTONIC);
        atomic_store_explicit(&flag, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(&flag, memory_order_acquire) != 2 * i + 2)
            ;
    }
    printf("%.0f\n", (clock_s(CLOCK_MONOTONIC) - begin) * 1e9 / TIMES);
    return 0;
}
