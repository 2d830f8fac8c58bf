/* Bad environments: a resource that the library needs is refused, exhausted or removed. Each
 * test runs this program again in the bad environment, with the library preloaded if it is
 * preloaded here, and must get the kernel's answers. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PIPES = 20 };
static int pipes[PIPES][2];

/* A small ordinary program; returns 0 if every answer is right. */
static int select_and_poll_are_right(void) {
    struct pollfd set[PIPES];
    for (int i = 0; i < PIPES; i++)
        if (pipes[i][1] == 0 && pipe(pipes[i]) != 0)
            return 1;
    for (int round = 0; round < 100; round++) {
        int lucky = round % PIPES;
        for (int i = 0; i < PIPES; i++)
            set[i] = (struct pollfd){pipes[i][0], POLLIN, 0};
        if (poll(set, PIPES, 0) != 0)
            return 2;
        if (write(pipes[lucky][1], "x", 1) != 1)
            return 3;
        if (poll(set, PIPES, -1) != 1 || set[lucky].revents != POLLIN)
            return 4;
        fd_set in;
        FD_ZERO(&in);
        for (int i = 0; i < PIPES; i++)
            FD_SET(pipes[i][0], &in);
        if (select(pipes[PIPES - 1][0] + 1, &in, NULL, NULL, NULL) != 1 || !FD_ISSET(pipes[lucky][0], &in))
            return 5;
        char byte;
        if (read(pipes[lucky][0], &byte, 1) != 1)
            return 6;
        if (round % 10 == 0) {
            close(pipes[lucky][0]);
            close(pipes[lucky][1]);
            if (pipe(pipes[lucky]) != 0)
                return 7;
        }
    }
    return 0;
}

/* The kernel ignores bits beyond its table, and the memory that would hold them. */
static int select_is_right_at_the_end_of_memory(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || munmap(memory + page, page) != 0)
        return 8;
    fd_set *in = (fd_set *)(void *)(memory + page - sizeof(fd_set));
    FD_SET(pipes[0][0], in);
    return select(4096, in, NULL, NULL, &(struct timeval){0, 0}) == 0 && !FD_ISSET(pipes[0][0], in) ? 0 : 9;
}

/* Programs pass getdtablesize() with a plain fd_set. */
static struct {
    fd_set set;
    char behind[4096 / 8 - sizeof(fd_set)];
} beyond;

static void *writing_behind(void *pipe_end) {
    usleep(20000);
    memset(beyond.behind, 1, sizeof beyond.behind);
    return write(*(int *)pipe_end, "x", 1) == 1 ? NULL : pipe_end;
}

static int select_leaves_memory_behind_its_set_alone(void) {
    int result = select_and_poll_are_right();
    pthread_t writer;
    if (result != 0 || pthread_create(&writer, NULL, writing_behind, &pipes[0][1]) != 0)
        return 90;
    FD_SET(pipes[0][0], &beyond.set);
    if (select(4096, &beyond.set, NULL, NULL, NULL) != 1 || !FD_ISSET(pipes[0][0], &beyond.set))
        return 91;
    pthread_join(writer, NULL);
    for (size_t i = 0; i < sizeof beyond.behind; i++)
        if (beyond.behind[i] != 1)
            return 92;
    return 0;
}

/* Refuses one system call, or only with one value of its second argument. */
static int install_filter(int number, int second_argument, unsigned action, bool directly) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second_argument, 0, second_argument >= 0 ? 1 : 0),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return directly ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)
                    : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int run_again(const char *how) {
    execl("/proc/self/exe", "environment", how, (char *)NULL);
    return 99;
}

static int under_filter_again(int number, int second_argument, unsigned action, const char *how) {
    /* directly, because the library would give up at once; here it must meet the filter when it
     * starts */
    if (install_filter(number, second_argument, action, true) != 0)
        return 98;
    return run_again(how);
}

static int under_filter(int number, int second_argument, unsigned action) {
    return under_filter_again(number, second_argument, action, "--again");
}

static void *leaving_the_table(void *failed) {
    return unshare(CLONE_FILES) == 0 ? NULL : failed;
}

static int right_after_a_thread_has_left(void) {
    pthread_t thread;
    void *failed = NULL;
    if (select_and_poll_are_right() != 0 || pthread_create(&thread, NULL, leaving_the_table, pipes) != 0 ||
        pthread_join(thread, &failed) != 0 || failed != NULL)
        return 97;
    return select_and_poll_are_right();
}

/* The library no longer knows which tasks share the table, so it leaves everything to the
 * kernel. */
static int refuse_comparing_tables(void) {
    return under_filter_again(SYS_kcmp, -1, SECCOMP_RET_ERRNO | ENOSYS, "--leave");
}

static int refuse_epoll_create(void) {
    return under_filter(SYS_epoll_create1, -1, SECCOMP_RET_ERRNO | EPERM);
}

static int refuse_epoll_ctl(void) {
    return under_filter(SYS_epoll_ctl, -1, SECCOMP_RET_ERRNO | EPERM);
}

static int refuse_epoll_wait(void) {
    return under_filter(SYS_epoll_pwait, -1, SECCOMP_RET_ERRNO | ENOSYS);
}

static int refuse_madvise(void) {
    return under_filter(SYS_madvise, -1, SECCOMP_RET_ERRNO | EPERM);
}

static int refuse_more_watches(void) {
    /* the error when fs.epoll.max_user_watches is reached */
    return under_filter(SYS_epoll_ctl, 1, SECCOMP_RET_ERRNO | ENOSPC);
}

static int kill_for_epoll(void) {
    if (select_and_poll_are_right() != 0)
        return 90;
    if (install_filter(SYS_epoll_pwait, -1, SECCOMP_RET_KILL_PROCESS, false) != 0 ||
        install_filter(SYS_epoll_ctl, -1, SECCOMP_RET_KILL_PROCESS, false) != 0 ||
        install_filter(SYS_madvise, -1, SECCOMP_RET_KILL_PROCESS, true) != 0)
        return 98;
    return select_and_poll_are_right();
}

static int kill_for_epoll_directly(void) {
    if (select_and_poll_are_right() != 0)
        return 90;
    if (install_filter(SYS_epoll_pwait, -1, SECCOMP_RET_KILL_PROCESS, true) != 0 ||
        install_filter(SYS_epoll_ctl, -1, SECCOMP_RET_KILL_PROCESS, true) != 0)
        return 98;
    return select_and_poll_are_right();
}

static void *sleeping_amid_pipes(void *result) {
    struct pollfd set[PIPES];
    for (int i = 0; i < PIPES; i++)
        set[i] = (struct pollfd){pipes[i][0], POLLIN, 0};
    *(int *)result = poll(set, PIPES, -1) == 1 && set[3].revents == POLLIN ? 0 : 95;
    return NULL;
}

/* The filter applies to every thread. */
static int kill_for_epoll_while_a_thread_sleeps(void) {
    pthread_t thread;
    int result = select_and_poll_are_right();
    if (result != 0 || pthread_create(&thread, NULL, sleeping_amid_pipes, &result) != 0)
        return 90;
    usleep(100000);
    if (install_filter(SYS_epoll_pwait, -1, SECCOMP_RET_KILL_PROCESS, true) != 0 ||
        install_filter(SYS_epoll_ctl, -1, SECCOMP_RET_KILL_PROCESS, true) != 0 ||
        install_filter(SYS_close, -1, SECCOMP_RET_KILL_PROCESS, true) != 0)
        return 98;
    return write(pipes[3][1], "x", 1) == 1 && pthread_join(thread, NULL) == 0 ? result : 96;
}

/* An option that may make a watched socket ready. */
static int kill_for_what_an_option_never_does(void) {
    int pair[2], one = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return 90;
    struct pollfd watched = {pair[0], POLLIN, 0};
    if (poll(&watched, 1, 1) != 0)
        return 91;
    if (install_filter(SYS_ioctl, -1, SECCOMP_RET_KILL_PROCESS, false) != 0 ||
        install_filter(SYS_ppoll, -1, SECCOMP_RET_KILL_PROCESS, false) != 0)
        return 98;
    return setsockopt(pair[0], SOL_SOCKET, SO_OOBINLINE, &one, sizeof one) == 0 &&
                   setsockopt(pair[0], SOL_SOCKET, SO_SELECT_ERR_QUEUE, &one, sizeof one) == 0
               ? 0
               : 97;
}

/* No call of the library is seen at exit. */
static int kill_for_what_exit_needs_not(void) {
    int result = select_and_poll_are_right();
    const int numbers[] = {SYS_openat, SYS_newfstatat, SYS_getpid, SYS_fcntl, SYS_write, SYS_close};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (install_filter(numbers[i], -1, SECCOMP_RET_KILL_PROCESS, false) != 0)
            return 98;
    return result;
}

/* The child shares only the memory with its parent. */
static int after_a_child_of_vfork(void) {
    int result = select_and_poll_are_right();
    pid_t child = vfork();
    if (child == 0) {
        struct rlimit limit = {PIPES / 2, PIPES / 2};
        struct pollfd one = {pipes[0][0], POLLIN, 0};
        _exit(poll(&one, 1, 0) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
              prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return result != 0 || status != 0 ? 90 : select_and_poll_are_right();
}

/* Both count 300 calls and 10 closes; only the parent has not polled. */
static int in_parent_and_child(void) {
    int result = select_and_poll_are_right(), status = -1;
    for (int i = 0; i < 100; i++)
        poll(NULL, 0, 0);
    pid_t child = fork();
    if (child == 0)
        exit(select_and_poll_are_right());
    waitpid(child, &status, 0);
    return result != 0 ? result : status;
}

/* The program has not requested these signals, and must find no handler. */
static int ended_by(int number) {
    int result = select_and_poll_are_right();
    struct sigaction found;
    if (sigaction(number, NULL, &found) != 0 || found.sa_handler != SIG_DFL || found.sa_flags != 0)
        return 95;
    if (signal(SIGHUP, SIG_IGN) != SIG_DFL || signal(SIGHUP, SIG_DFL) != SIG_IGN)
        return 96;
    kill(getpid(), number);
    return result != 0 ? result : 97;
}

static int low_limit(void) {
    struct rlimit limit = {2 * PIPES + 5, 2 * PIPES + 5};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 98;
    return run_again("--again");
}

static int descriptors_exhausted(void) {
    for (int i = 0; i < PIPES; i++)
        if (pipe(pipes[i]) != 0)
            return 98;
    struct rlimit limit = {100, 100};
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = 0, last = -1;
    for (int fd; (fd = dup(0)) >= 0; last = fd)
        count++;
    /* the pipes are replaced in place, so that none is missing */
    int result = errno == EMFILE && count > 10 ? select_and_poll_are_right() : 97;
    close(last);
    return result != 0 ? result : select_and_poll_are_right();
}

static int epoll_instance_closed_behind_the_back(void) {
    for (int round = 0; round < 5; round++) {
        int result = select_and_poll_are_right();
        if (result != 0)
            return result;
        for (int fd = 3; fd < 4096; fd++) {
            bool is_ours = false;
            for (int i = 0; i < PIPES; i++)
                is_ours |= fd == pipes[i][0] || fd == pipes[i][1];
            long unseen;
            if (!is_ours)
                __asm__ volatile("syscall" : "=a"(unseen) : "0"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
        }
        if (round % 2) /* its number goes to a file that never becomes ready */
            for (int i = 0; i < 30; i++)
                if (socket(AF_INET, SOCK_DGRAM, 0) < 0)
                    return 96;
    }
    return 0;
}

static int number_taken_unseen(bool by_range) {
    if (select_and_poll_are_right() != 0)
        return 90;
    int hidden[8], count = 0;
    for (int fd = 3; fd < 1024 && count < 8; fd++) {
        char path[64], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) > 0 && strcmp(name, "anon_inode:[eventpoll]") == 0)
            hidden[count++] = fd;
    }
    for (int i = 0; i < count; i++) {
        long unseen;
        __asm__ volatile("syscall" : "=a"(unseen) : "0"(SYS_dup2), "D"(0), "S"(hidden[i]) : "rcx", "r11", "memory");
    }
    /* From here on the numbers are the program's: they stay open until it closes them, and are
     * then closed. */
    if (!by_range && select_and_poll_are_right() != 0)
        return 91;
    for (int i = 0; i < count; i++) {
        unsigned number = (unsigned)hidden[i];
        if (fcntl(hidden[i], F_GETFD) < 0 || (by_range ? close_range(number, number, 0) : close(hidden[i])) != 0 ||
            fcntl(hidden[i], F_GETFD) >= 0)
            return 92;
    }
    return select_and_poll_are_right();
}

static int number_taken_unseen_from_the_library(void) {
    int result = number_taken_unseen(false);
    return result != 0 ? result : number_taken_unseen(true);
}

static int unseen_close_and_unseen_creation(void) {
    /* only the watchdog notices this, within a period */
    if (select_and_poll_are_right() != 0)
        return 90;
    int fresh[2];
    if (pipe(fresh) != 0 || write(fresh[1], "x", 1) != 1)
        return 98;
    long unseen;
    __asm__ volatile("syscall"
                     : "=a"(unseen)
                     : "0"(SYS_dup2), "D"(fresh[0]), "S"(pipes[0][0])
                     : "rcx", "r11", "memory");
    struct pollfd set[PIPES];
    for (int i = 0; i < PIPES; i++)
        set[i] = (struct pollfd){pipes[i][0], POLLIN, 0};
    return poll(set, PIPES, -1) == 1 && set[0].revents == POLLIN ? 0 : 9;
}

/* Only a plugin loads the filter's library. The replacement returns 7. */
static int filter_of_a_plugin(void) {
    char path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length < 0)
        return 98;
    path[length] = 0;
    strcpy(strrchr(path, '/'), "/plugin.so");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*load)(void *) = NULL;
    if (plugin)
        *(void **)&load = dlsym(plugin, "load");
    return !load || load(path) != 7 ? 97 : select_and_poll_are_right();
}

static int status_of(int (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(CHECK_HANG_S);
        _exit(body());
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

#define TEST(name, body)              \
    static void name(void) {          \
        CHECK_EQ(status_of(body), 0); \
    }
TEST(all_is_right_where_nothing_is_wrong, select_and_poll_are_right)
TEST(memory_behind_a_set_is_left_alone, select_leaves_memory_behind_its_set_alone)
TEST(filter_that_refuses_epoll_create_leaves_the_kernels_answers, refuse_epoll_create)
TEST(filter_that_refuses_epoll_ctl_leaves_the_kernels_answers, refuse_epoll_ctl)
TEST(filter_that_refuses_epoll_wait_leaves_the_kernels_answers, refuse_epoll_wait)
TEST(filter_that_refuses_madvise_leaves_the_kernels_answers, refuse_madvise)
TEST(watches_used_up_leave_the_kernels_answers, refuse_more_watches)
TEST(filter_that_kills_for_epoll_never_sees_it, kill_for_epoll)
TEST(filter_installed_by_direct_call_that_kills_for_epoll_never_sees_it, kill_for_epoll_directly)
TEST(filter_that_kills_for_epoll_never_sees_it_from_a_thread_that_slept, kill_for_epoll_while_a_thread_sleeps)
TEST(filter_that_kills_never_sees_what_an_option_of_a_socket_needs_not, kill_for_what_an_option_never_does)
TEST(filter_of_a_plugins_own_library_is_loaded, filter_of_a_plugin)
TEST(thread_that_leaves_the_table_leaves_the_others_answers, right_after_a_thread_has_left)
TEST(tables_that_cannot_be_compared_leave_the_kernels_answers, refuse_comparing_tables)
TEST(low_descriptor_limit_leaves_the_kernels_answers, low_limit)
TEST(exhausted_descriptors_leave_the_kernels_answers, descriptors_exhausted)
TEST(epoll_instance_that_is_closed_unseen_is_made_again, epoll_instance_closed_behind_the_back)
TEST(number_that_was_taken_unseen_from_the_library_is_the_programs, number_taken_unseen_from_the_library)
TEST(watchdog_finds_a_descriptor_that_was_replaced_unseen, unseen_close_and_unseen_creation)

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--again") == 0) {
        int result = select_and_poll_are_right();
        return result != 0 ? result : select_is_right_at_the_end_of_memory();
    }
    if (argc > 1 && strcmp(argv[1], "--leave") == 0)
        return right_after_a_thread_has_left();
    if (argc > 1 && strcmp(argv[1], "--sandbox") == 0)
        return kill_for_what_exit_needs_not();
    if (argc > 1 && strcmp(argv[1], "--fork") == 0)
        return in_parent_and_child();
    if (argc > 1 && strcmp(argv[1], "--exhausted") == 0)
        return descriptors_exhausted();
    if (argc > 2 && strcmp(argv[1], "--ended-by") == 0)
        return ended_by(atoi(argv[2]));
    if (argc > 1 && strcmp(argv[1], "--vfork") == 0)
        return after_a_child_of_vfork();
    setvbuf(stdout, NULL, _IOLBF, 0);
    RUN(all_is_right_where_nothing_is_wrong);
    RUN(memory_behind_a_set_is_left_alone);
    RUN(filter_that_refuses_epoll_create_leaves_the_kernels_answers);
    RUN(filter_that_refuses_epoll_ctl_leaves_the_kernels_answers);
    RUN(filter_that_refuses_epoll_wait_leaves_the_kernels_answers);
    RUN(filter_that_refuses_madvise_leaves_the_kernels_answers);
    RUN(watches_used_up_leave_the_kernels_answers);
    RUN(filter_that_kills_for_epoll_never_sees_it);
    RUN(filter_installed_by_direct_call_that_kills_for_epoll_never_sees_it);
    RUN(filter_that_kills_for_epoll_never_sees_it_from_a_thread_that_slept);
    RUN(filter_that_kills_never_sees_what_an_option_of_a_socket_needs_not);
    RUN(filter_of_a_plugins_own_library_is_loaded);
    RUN(thread_that_leaves_the_table_leaves_the_others_answers);
    RUN(tables_that_cannot_be_compared_leave_the_kernels_answers);
    RUN(low_descriptor_limit_leaves_the_kernels_answers);
    RUN(exhausted_descriptors_leave_the_kernels_answers);
    RUN(epoll_instance_that_is_closed_unseen_is_made_again);
    RUN(number_that_was_taken_unseen_from_the_library_is_the_programs);
    RUN(watchdog_finds_a_descriptor_that_was_replaced_unseen);
    return check_end();
}
