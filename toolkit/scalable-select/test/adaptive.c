/* Which sets the library takes and which it leaves to the kernel, seen from its epoll instance: it has one while it
 * scales, and none while it does not. Only with the library preloaded and its options as shipped. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <poll.h>

enum { PIPES = 100, CALLS = 3000 };
static int pipes[PIPES][2];
static struct pollfd set[PIPES];

static bool has_epoll_instance(void) {
    char path[300], name[64];
    bool has = false;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, name, sizeof name - 1);
        has |= length > 0 && strncmp(name, "anon_inode:[eventpoll]", 22) == 0;
    }
    closedir(folder);
    return has;
}

static void heat(int hot) {
    char byte;
    for (int i = 0; i < PIPES; i++) {
        struct pollfd one = {pipes[i][0], POLLIN, 0};
        bool is_hot = poll(&one, 1, 0) == 1; /* as small a set is the kernel's */
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

int main(void) {
    for (int i = 0; i < PIPES; i++) {
        if (pipe(pipes[i]) != 0)
            return 2;
        set[i] = (struct pollfd){pipes[i][0], POLLIN, 0};
    }
    RUN(hot_set_is_left_to_the_kernel_and_nothing_is_registered);
    RUN(set_that_cools_is_taken_over);
    RUN(set_that_heats_up_again_is_given_back);
    RUN(set_that_brings_new_descriptors_in_every_call_is_given_back);
    return check_end();
}
