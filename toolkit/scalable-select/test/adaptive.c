/* Checks which sets the library takes and which it leaves to the kernel, by its epoll instance:
 * it has one only while it scales. Runs with the library preloaded and its default options. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

enum { PIPES = 100, CALLS = 3000 };
static int pipes[PIPES][2];
static struct pollfd set[PIPES];

static int epoll_instances(void) {
    char path[300], name[64];
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, name, sizeof name - 1);
        count += length > 0 && strncmp(name, "anon_inode:[eventpoll]", 22) == 0;
    }
    closedir(folder);
    return count;
}

static bool has_epoll_instance(void) {
    return epoll_instances() > 0;
}

static void heat(int hot) {
    char byte;
    for (int i = 0; i < PIPES; i++) {
        struct pollfd one = {pipes[i][0], POLLIN, 0};
        bool is_hot = poll(&one, 1, 0) == 1; /* so small a set is left to the kernel */
        if (is_hot && i >= hot && read(pipes[i][0], &byte, 1) != 1)
            exit(2);
        if (!is_hot && i < hot && write(pipes[i][1], "x", 1) != 1)
            exit(2);
    }
}

static void call(int expected) {
    for (int i = 0; i < CALLS; i++)
        if (poll(set, PIPES, 0) != expected) {
            CHECK(false);
            return;
        }
}

static void hot_set_is_left_to_the_kernel_and_nothing_is_registered(void) {
    heat(PIPES);
    for (int i = 0; i < CALLS; i++) {
        CHECK_EQ(poll(set, PIPES, -1), PIPES);
        if (i % 500 == 0)
            CHECK(!has_epoll_instance());
    }
}

static void set_that_cools_is_taken_over(void) {
    heat(1);
    call(1);
    CHECK(has_epoll_instance());
}

static void set_that_heats_up_again_is_given_back(void) {
    heat(PIPES);
    call(PIPES);
    CHECK(!has_epoll_instance());
}

static void set_that_brings_new_descriptors_in_every_call_is_given_back(void) {
    heat(1);
    call(1);
    CHECK(has_epoll_instance());
    for (int i = 0; i < CALLS; i++) {
        for (int k = 1; k < PIPES; k += 2) { /* the copies are closed with the next dup2 */
            if (dup2(pipes[(k + i) % PIPES][0], pipes[k][1]) < 0)
                exit(2);
            set[k].fd = pipes[k][1];
        }
        if (poll(set, PIPES, 0) < 0)
            exit(2);
    }
    CHECK(!has_epoll_instance());
}

enum { THREADS = 300, LIMIT = 512 };
static pthread_barrier_t all_have_called;

static void *calls_and_sleeps(void *woken) {
    struct pollfd cold[PIPES];
    for (int i = 0; i < PIPES; i++)
        cold[i] = (struct pollfd){pipes[i][0], POLLIN, 0};
    for (int i = 0; i < 5; i++)
        CHECK_EQ(poll(cold, PIPES, 0), 0);
    pthread_barrier_wait(&all_have_called);
    int ready = poll(cold, PIPES, -1);
    *(bool *)woken = ready == 1 && cold[PIPES / 2].revents == POLLIN;
    return NULL;
}

/* Few descriptors for many threads: those without an instance use the kernel's calls. */
static void threads_leave_the_program_most_of_its_descriptors(void) {
    static bool woken[THREADS];
    pthread_t threads[THREADS];
    int opened[LIMIT], count = 0;
    heat(0);
    struct rlimit before, low;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){LIMIT, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    pthread_barrier_init(&all_have_called, NULL, THREADS + 1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, calls_and_sleeps, &woken[i]) != 0)
            exit(2);
    pthread_barrier_wait(&all_have_called);
    int hidden = epoll_instances();
    CHECK(hidden > 16 && hidden <= LIMIT / 4);
    for (int fd; count < LIMIT && (fd = open("/dev/null", O_RDONLY)) >= 0;)
        opened[count++] = fd;
    CHECK(count >= LIMIT - 2 * PIPES - LIMIT / 4 - 10);
    while (count > 0)
        close(opened[--count]);
    CHECK_EQ(write(pipes[PIPES / 2][1], "x", 1), 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(woken[i]);
    }
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void) {
    for (int i = 0; i < PIPES; i++) {
        if (pipe(pipes[i]) != 0)
            return 2;
        set[i] = (struct pollfd){pipes[i][0], POLLIN, 0};
    }
    RUN(hot_set_is_left_to_the_kernel_and_nothing_is_registered);
    RUN(set_that_cools_is_taken_over);
    RUN(set_that_heats_up_again_is_given_back);
    RUN(threads_leave_the_program_most_of_its_descriptors);
    RUN(set_that_brings_new_descriptors_in_every_call_is_given_back);
    return check_end();
}
