/* Tasks that share the memory but not the descriptor table. Changes to their own descriptors
 * must not affect a thread that sleeps in poll, or the program's own descriptors. Runs with the
 * watchdog off, so lost events stay lost. The same program passes without the library. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

/* Sockets that are always writable, so the library must assume that closing one has an event for
 * its sleepers. The last one carries orders to the thread that polls. */
enum { PAIRS = 70, ORDERS = PAIRS - 1, PATIENCE_S = 20, NUMBERS = 1024 };
static int pairs[PAIRS][2];
static sem_t is_seen;
static _Atomic int seen;
static pthread_t sleeper;

static void *sleeping(void *unused) {
    struct pollfd set[PAIRS];
    for (;;) {
        for (int i = 0; i < PAIRS; i++)
            set[i] = (struct pollfd){pairs[i][0], POLLIN, 0};
        int result = poll(set, PAIRS, -1);
        if (result < 0)
            continue;
        for (int i = 0; i < PAIRS; i++) {
            char byte;
            if (set[i].revents == 0)
                continue;
            if (set[i].revents != POLLIN || read(set[i].fd, &byte, 1) != 1)
                printf("  entry %d: revents %x\n", i, (unsigned)set[i].revents);
            if (i == ORDERS)
                return unused;
            seen = i;
            sem_post(&is_seen);
        }
    }
}

static void tell(int i) {
    CHECK_EQ(write(pairs[i][1], "x", 1), 1);
}

static bool has_missed, has_pipes;

static bool sees(int i) {
    struct timespec end;
    if (has_missed)
        return false;
    tell(i);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    while (sem_timedwait(&is_seen, &end) != 0)
        if (errno != EINTR) {
            has_missed = true;
            return false;
        }
    return seen == i;
}

static bool is_asleep(pid_t task) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)task);
    FILE *file = fopen(path, "r");
    size_t got = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[got] = '\0';
    char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' && end[2] == 'S';
}

static _Atomic pid_t sleeper_task;

static void *sleeping_body(void *unused) {
    sleeper_task = (pid_t)syscall(SYS_gettid);
    return sleeping(unused);
}

static void settle(void) {
    while (!is_asleep(sleeper_task))
        sched_yield();
}

static void start_sleeper(void) {
    has_missed = false;
    for (int i = 0; i < PAIRS; i++)
        CHECK_EQ(has_pipes ? pipe(pairs[i]) : socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
    sem_init(&is_seen, 0, 0);
    sleeper_task = 0;
    CHECK_EQ(pthread_create(&sleeper, NULL, sleeping_body, NULL), 0);
    while (sleeper_task == 0)
        sched_yield();
    for (int round = 0; round < 3; round++) /* every descriptor is known and quiet */
        for (int i = 0; i < ORDERS; i++)
            CHECK(sees(i));
    settle();
}

static void end_sleeper(void) {
    tell(ORDERS);
    pthread_join(sleeper, NULL);
    for (int i = 0; i < PAIRS; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
}

/* Numbers that /proc shows but the program does not know. */
static int hidden[64], hidden_count; /* epoll instances and eventfds, of which this program has none */

static void find_hidden(void) {
    DIR *directory = opendir("/proc/thread-self/fd");
    hidden_count = 0;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char path[300], name[64] = "";
        snprintf(path, sizeof path, "/proc/thread-self/fd/%s", entry->d_name);
        if (readlink(path, name, sizeof name - 1) > 0 && strncmp(name, "anon_inode:[event", 17) == 0)
            hidden[hidden_count++] = atoi(entry->d_name);
    }
    closedir(directory);
}

/* --- the actions of a task on its own table */

enum how { CLOSES, CLOSES_DIRECTLY, CLOSES_RANGE, CLOSES_FROM, DUPLICATES, DUPLICATES_ONTO_HIDDEN, POLLS, HOWS };

static void meddle(enum how how) {
    switch (how) {
    case CLOSES:
        for (int i = 0; i < PAIRS; i++)
            close(pairs[i][0]);
        break;
    case CLOSES_DIRECTLY:
        for (int i = 0; i < PAIRS; i++)
            syscall(SYS_close, pairs[i][0]);
        break;
    case CLOSES_RANGE:
        close_range(3, ~0U, 0);
        break;
    case CLOSES_FROM:
        closefrom(3);
        break;
    case DUPLICATES:
        for (int i = 1; i < PAIRS; i++)
            dup2(pairs[0][1], pairs[i][0]);
        break;
    case DUPLICATES_ONTO_HIDDEN:
        for (int i = 0; i < hidden_count; i++)
            dup2(pairs[0][1], hidden[i]);
        break;
    case POLLS: {
        struct pollfd set[PAIRS];
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < PAIRS; i++)
                set[i] = (struct pollfd){pairs[i][0], POLLIN | POLLOUT, 0};
            poll(set, PAIRS, 0);
        }
        break;
    }
    default:
        break;
    }
}

/* --- the tasks */

static void in_vfork(enum how how) {
    pid_t child = vfork();
    if (child == 0) {
        meddle(how);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, NULL, 0), child);
}

#ifdef __x86_64__
/* Like a runtime that makes its own system calls. */
static void in_direct_vfork(enum how how) {
    long child;
    __asm__ volatile("syscall" : "=a"(child) : "0"(SYS_vfork) : "rcx", "r11", "memory");
    if (child == 0) {
        meddle(how);
        _exit(0);
    }
    CHECK_EQ(waitpid((pid_t)child, NULL, 0), child);
}
#endif

static int meddling(void *how) {
    meddle(*(enum how *)how);
    return 0;
}

static void in_clone(enum how how) {
    static char stack[1 << 20] __attribute__((aligned(16)));
    pid_t child = clone(meddling, stack + sizeof stack, CLONE_VM | SIGCHLD, &how);
    CHECK(child > 0);
    CHECK_EQ(waitpid(child, NULL, 0), child);
}

static void in_spawn(enum how how) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < PAIRS && (how == CLOSES || how == CLOSES_DIRECTLY); i++)
        posix_spawn_file_actions_addclose(&actions, pairs[i][0]);
    if (how == CLOSES_RANGE || how == CLOSES_FROM)
        posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    for (int i = 1; i < PAIRS && how == DUPLICATES; i++)
        posix_spawn_file_actions_adddup2(&actions, pairs[0][1], pairs[i][0]);
    for (int i = 0; i < hidden_count && how == DUPLICATES_ONTO_HIDDEN; i++)
        posix_spawn_file_actions_adddup2(&actions, pairs[0][1], hidden[i]);
    char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
    pid_t child;
    CHECK_EQ(posix_spawn(&child, "/bin/true", &actions, NULL, argv, envp), 0);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    posix_spawn_file_actions_destroy(&actions);
}

static void *leaving(void *how) {
    CHECK_EQ(unshare(CLONE_FILES), 0);
    meddle(*(enum how *)how);
    return NULL;
}

static void *leaving_directly(void *how) {
    CHECK_EQ(syscall(SYS_unshare, CLONE_FILES), 0);
    meddle(*(enum how *)how);
    return NULL;
}

static void *leaving_by_close_range(void *how) {
    CHECK_EQ(close_range(NUMBERS, ~0U, CLOSE_RANGE_UNSHARE), 0);
    meddle(*(enum how *)how);
    return NULL;
}

/* A thread that polls before it leaves, so that it has state to release. */
static void *polling_and_leaving(void *how) {
    meddle(POLLS);
    CHECK_EQ(unshare(CLONE_FILES), 0);
    meddle(POLLS);
    meddle(*(enum how *)how);
    return NULL;
}

static void *meddling_thread(void *how) {
    meddle(*(enum how *)how);
    return NULL;
}

static void *leaving_with_a_thread(void *how) {
    pthread_t thread;
    CHECK_EQ(unshare(CLONE_FILES), 0);
    CHECK_EQ(pthread_create(&thread, NULL, meddling_thread, how), 0);
    pthread_join(thread, NULL);
    return NULL;
}

static void *(*thread_body)(void *);

static void in_thread(enum how how) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, thread_body, &how), 0);
    pthread_join(thread, NULL);
}

/* The sleeper still receives every event, and every number that the program gets is its own. */
static void nothing_is_disturbed_by(void (*task)(enum how)) {
    start_sleeper();
    for (enum how how = 0; how < HOWS; how++) {
        find_hidden();
        task(how);
        bool is_heard = true;
        for (int i = 0; i < ORDERS && is_heard; i++)
            is_heard = sees(i);
        CHECK(is_heard);
        if (!is_heard)
            printf("  after how %d\n", how);
        settle();
    }
    for (int fd; (fd = fcntl(0, F_DUPFD, 3)) >= 0 && fd < NUMBERS;)
        continue;
    for (int fd = 3; fd < NUMBERS; fd++) {
        bool is_known = false;
        for (int i = 0; i < hidden_count; i++)
            is_known |= fd == hidden[i];
        for (int i = 0; i < PAIRS; i++)
            is_known |= fd == pairs[i][0] || fd == pairs[i][1];
        struct pollfd one = {fd, 0, 0};
        /* This uses the kernel's poll, because the library, which finds no free descriptor here,
         * would give up for a second. */
        if (!is_known && (syscall(SYS_poll, &one, 1, 0) < 0 || (one.revents & POLLNVAL) != 0 || close(fd) != 0))
            CHECK_EQ(fd, -1);
    }
    for (int i = 0; i < ORDERS; i++)
        CHECK(sees(i));
    end_sleeper();
}

static void child_of_vfork_disturbs_nothing(void) {
    nothing_is_disturbed_by(in_vfork);
}

#ifdef __x86_64__
static void child_of_a_direct_vfork_disturbs_nothing(void) {
    nothing_is_disturbed_by(in_direct_vfork);
}
#endif

static void child_of_clone_with_shared_memory_disturbs_nothing(void) {
    nothing_is_disturbed_by(in_clone);
}

static void posix_spawn_disturbs_nothing(void) {
    nothing_is_disturbed_by(in_spawn);
}

static void thread_that_unshares_its_table_disturbs_nothing(void) {
    thread_body = leaving;
    nothing_is_disturbed_by(in_thread);
}

static void thread_that_unshares_its_table_directly_disturbs_nothing(void) {
    thread_body = leaving_directly;
    nothing_is_disturbed_by(in_thread);
}

static void thread_that_unshares_its_table_by_close_range_disturbs_nothing(void) {
    thread_body = leaving_by_close_range;
    nothing_is_disturbed_by(in_thread);
}

static void thread_that_polled_before_it_left_disturbs_nothing(void) {
    thread_body = polling_and_leaving;
    nothing_is_disturbed_by(in_thread);
}

static void thread_started_by_one_that_left_disturbs_nothing(void) {
    thread_body = leaving_with_a_thread;
    nothing_is_disturbed_by(in_thread);
}

/* --- a child on its parent's thread-local memory polls its own table */

static int ready_end, child_saw;

static int polling_its_own_table(void *unused) {
    struct pollfd set[PAIRS];
    (void)unused;
    dup2(ready_end, pairs[1][0]);
    for (int i = 0; i < PAIRS; i++)
        set[i] = (struct pollfd){pairs[i][0], POLLIN, 0};
    child_saw = poll(set, PAIRS, 0) == 1 ? set[1].revents : -1;
    return 0;
}

static void child_that_polls_is_answered_by_its_own_table(void) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    struct pollfd set[PAIRS];
    int ready[2];
    CHECK_EQ(pipe(ready), 0);
    CHECK_EQ(write(ready[1], "x", 1), 1);
    ready_end = ready[0];
    for (int i = 0; i < PAIRS; i++)
        CHECK_EQ(pipe(pairs[i]), 0);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < PAIRS; i++)
            set[i] = (struct pollfd){pairs[i][0], POLLIN, 0};
        for (int i = 0; i < 3; i++)
            CHECK_EQ(poll(set, PAIRS, 0), 0); /* all are quiet, and the library knows it */
        child_saw = 0;
        pid_t child =
            round % 2 ? clone(polling_its_own_table, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) : vfork();
        if (child == 0) {
            polling_its_own_table(NULL);
            _exit(0);
        }
        CHECK_EQ(waitpid(child, NULL, 0), child);
        CHECK_EQ(child_saw, POLLIN);
    }
    CHECK_EQ(poll(set, PAIRS, 0), 0);
    for (int i = 0; i < PAIRS; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    close(ready[0]);
    close(ready[1]);
}

/* --- the reverse: tasks that share the table are recognised */

static _Atomic int replacing;

/* The old file may be open in another table. */
static void replace(int i) {
    int fresh[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fresh), 0);
    for (int end = 0; end < 2; end++) {
        CHECK_EQ(dup2(fresh[end], pairs[i][end]), pairs[i][end]);
        close(fresh[end]);
    }
}

static void *replacing_body(void *unused) {
    while (!replacing)
        sched_yield();
    for (int i = 1; i < ORDERS; i++)
        replace(i);
    return unused;
}

static sem_t has_left, may_end;

static void *staying_away(void *unused) {
    CHECK_EQ(unshare(CLONE_FILES), 0);
    sem_post(&has_left);
    sem_wait(&may_end);
    return unused;
}

/* After a thread has left, the remaining threads continue as before, including new ones. */
static void those_who_stay_are_still_heard(void) {
    for (int is_new = 0; is_new < 2; is_new++) {
        pthread_t stranger, replacer;
        sem_init(&has_left, 0, 0);
        sem_init(&may_end, 0, 0);
        replacing = is_new;
        start_sleeper();
        if (!is_new)
            CHECK_EQ(pthread_create(&replacer, NULL, replacing_body, NULL), 0);
        CHECK_EQ(pthread_create(&stranger, NULL, staying_away, NULL), 0);
        sem_wait(&has_left);
        if (is_new)
            CHECK_EQ(pthread_create(&replacer, NULL, replacing_body, NULL), 0);
        replacing = 1;
        pthread_join(replacer, NULL);
        /* The first event makes the sleeper, which may hold the old files, call again. */
        for (int i = 0; i < ORDERS; i++)
            CHECK(sees(i));
        end_sleeper();
        sem_post(&may_end);
        pthread_join(stranger, NULL);
    }
}

/* --- children of threads that left, and children made without the handlers of fork */

static int fork_from_a_strange_table(void) {
    int marks[64], count = hidden_count;
    close_range(3, ~0U, 0);
    /* Its own files, under the numbers that are hidden in other tasks. */
    for (int i = 0; i < count; i++) {
        marks[i] = dup2(0, hidden[i]);
        if (marks[i] != hidden[i])
            return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < count; i++)
            if (fcntl(marks[i], F_GETFD) < 0)
                _exit(1);
        _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child ? status : 2;
}

static void *forking_elsewhere(void *result) {
    CHECK_EQ(unshare(CLONE_FILES), 0);
    *(int *)result = fork_from_a_strange_table();
    return NULL;
}

static void child_of_a_thread_that_left_keeps_its_descriptors(void) {
    pthread_t thread;
    int result = -1;
    start_sleeper();
    find_hidden();
    CHECK_EQ(pthread_create(&thread, NULL, forking_elsewhere, &result), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(result, 0);
    CHECK(sees(0));
    end_sleeper();
}

enum { LAST = NUMBERS - 5 };

static void child_made_past_the_handlers_of_fork_may_use_every_number(void) {
    start_sleeper();
    replace(1); /* with a sleeper, the library keeps one more descriptor from here on */
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    if (child == 0) {
        int bad = 0;
        for (int fd = 3; fd < NUMBERS; fd++)
            syscall(SYS_close_range, fd, fd, 0);
        while (fcntl(0, F_DUPFD, 3) < LAST)
            continue;
        meddle(POLLS);
        pid_t grandchild = fork();
        for (int fd = 3; fd <= LAST; fd++)
            bad += close(fd) != 0;
        int status = 0;
        if (grandchild != 0)
            waitpid(grandchild, &status, 0);
        _exit(bad != 0 || status != 0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    end_sleeper();
}

/* --- threads that end: their former numbers may belong to another thread */

static sem_t may_finish;

static void *leaving_and_waiting(void *unused) {
    meddle(POLLS);
    CHECK_EQ(unshare(CLONE_FILES), 0);
    sem_post(&has_left);
    sem_wait(&may_finish);
    return unused;
}

static void thread_that_ends_after_it_left_takes_nothing_along(void) {
    pthread_t thread;
    sem_init(&has_left, 0, 0);
    sem_init(&may_finish, 0, 0);
    CHECK_EQ(pthread_create(&thread, NULL, leaving_and_waiting, NULL), 0);
    sem_wait(&has_left);
    start_sleeper();
    find_hidden();
    int before = hidden_count;
    sem_post(&may_finish);
    pthread_join(thread, NULL);
    for (int i = 0; i < ORDERS; i++)
        CHECK(sees(i));
    find_hidden();
    CHECK_EQ(hidden_count, before);
    end_sleeper();
}

/* --- a failed copy does not change its target */

static void failed_copy_takes_nothing_out_of_a_sleepers_set(void) {
    int closed = NUMBERS - 2;
    has_pipes = true; /* the pipes are not ready, so only the failure can wake their sleeper */
    start_sleeper();
    has_pipes = false;
    for (int i = 0; i < ORDERS; i++) {
        switch (i % 3) {
        case 0:
            CHECK_EQ(dup2(closed, pairs[i][0]), -1);
            CHECK_EQ(errno, EBADF);
            break;
        case 1:
            CHECK_EQ(dup3(closed, pairs[i][0], O_CLOEXEC), -1);
            CHECK_EQ(errno, EBADF);
            break;
        default:
            CHECK_EQ(dup3(0, pairs[i][0], 0x7f), -1);
            CHECK_EQ(errno, EINVAL);
        }
        settle();
        CHECK(sees(i));
    }
    struct rlimit before, low; /* a target beyond the limit is refused and stays open */
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 10;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    CHECK_EQ(dup2(0, pairs[40][0]), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK(sees(40));
    end_sleeper();
}

/* As with a kernel that has no close_range (before Linux 5.9). */
static void refused_close_range_takes_nothing_out_of_a_sleepers_set(void) {
    has_pipes = true;
    start_sleeper();
    has_pipes = false;
    CHECK_EQ(close_range(3, ~0U, 0), -1);
    CHECK_EQ(errno, ENOSYS);
    for (int i = 0; i < ORDERS; i++)
        CHECK(sees(i));
    end_sleeper();
    int high = fcntl(0, F_DUPFD, 200);
    closefrom(3);
    CHECK(high >= 200 && fcntl(high, F_GETFD) < 0);
}

static void close_range_that_is_refused_takes_nothing_out_of_a_sleepers_set(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    fflush(stdout);
    pid_t child = fork();
    /* Executes a program, so that the library starts with the filter instead of seeing it
       installed. */
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
            execl("/proc/self/exe", "table", "--without-close-range", (char *)NULL);
        _exit(99);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = NUMBERS;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (argc > 1 && strcmp(argv[1], "--without-close-range") == 0) {
        alarm(CHECK_HANG_S);
        refused_close_range_takes_nothing_out_of_a_sleepers_set();
        return check_failures != 0;
    }
    RUN(close_range_that_is_refused_takes_nothing_out_of_a_sleepers_set);
    RUN(failed_copy_takes_nothing_out_of_a_sleepers_set);
    RUN(child_of_vfork_disturbs_nothing);
#ifdef __x86_64__
    RUN(child_of_a_direct_vfork_disturbs_nothing);
#endif
    RUN(child_that_polls_is_answered_by_its_own_table);
    RUN(child_of_clone_with_shared_memory_disturbs_nothing);
    RUN(posix_spawn_disturbs_nothing);
    RUN(child_made_past_the_handlers_of_fork_may_use_every_number);
    RUN(thread_that_unshares_its_table_disturbs_nothing);
    RUN(thread_that_unshares_its_table_directly_disturbs_nothing);
    RUN(thread_that_unshares_its_table_by_close_range_disturbs_nothing);
    RUN(thread_that_polled_before_it_left_disturbs_nothing);
    RUN(thread_started_by_one_that_left_disturbs_nothing);
    RUN(child_of_a_thread_that_left_keeps_its_descriptors);
    RUN(those_who_stay_are_still_heard);
    RUN(thread_that_ends_after_it_left_takes_nothing_along);
    return check_end();
}
