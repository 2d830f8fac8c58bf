/* The behaviour of select and poll on Linux, rule by rule. The same program must pass with the C
 * library's own functions and under the library with every call forced through it: the first run
 * checks the rules, the second the library. */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

static void nap(void) {
    usleep(20000);
}

static int wait_for(int fd, short events, int timeout_ms) {
    struct pollfd p = {fd, events, 0};
    int result = poll(&p, 1, timeout_ms);
    return result > 0 ? p.revents : result;
}

static int select_one(int fd, int which, long us) {
    fd_set set;
    struct timeval time = {us / 1000000, us % 1000000};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    return select(fd + 1, which == 0 ? &set : NULL, which == 1 ? &set : NULL, which == 2 ? &set : NULL, &time);
}

static void drain(int fd) {
    char buffer[4096];
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    while (read(fd, buffer, sizeof buffer) > 0) {
    }
    fcntl(fd, F_SETFL, flags);
}

static void close_pair(const int *pair) {
    close(pair[0]);
    close(pair[1]);
}

/* --- results and timeouts */

static void time_that_runs_out_gives_zero_and_empty_sets(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    fd_set in, ex;
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    ex = in;
    struct timeval time = {0, 3000};
    CHECK_EQ(select(p[0] + 1, &in, NULL, &ex, &time), 0);
    CHECK(!FD_ISSET(p[0], &in) && !FD_ISSET(p[0], &ex));
    CHECK_EQ(time.tv_sec, 0);
    CHECK_EQ(time.tv_usec, 0);
    CHECK_EQ(wait_for(p[0], POLLIN, 3), 0);
    close_pair(p);
}

static void select_tells_the_time_that_was_left(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(write(p[1], "x", 1), 1);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    struct timeval time = {100, 1500000}; /* microseconds may exceed a second */
    CHECK_EQ(select(p[0] + 1, &in, NULL, NULL, &time), 1);
    CHECK(FD_ISSET(p[0], &in));
    CHECK(time.tv_sec <= 101 && time.tv_sec >= 1 && time.tv_usec < 1000000);
    close_pair(p);
}

static void readable_stays_readable_until_it_is_read(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    CHECK_EQ(write(p[1], "xy", 2), 2);
    char byte;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(wait_for(p[0], POLLIN, -1), POLLIN);
    CHECK_EQ(read(p[0], &byte, 1), 1);
    CHECK_EQ(wait_for(p[0], POLLIN, -1), POLLIN);
    CHECK_EQ(select_one(p[0], 0, 1000000), 1);
    CHECK_EQ(read(p[0], &byte, 1), 1);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    CHECK_EQ(select_one(p[0], 0, 0), 0);
    close_pair(p);
}

static void duplicate_entries_are_all_answered(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    struct pollfd set[3] = {{p[0], POLLIN, 0}, {p[1], POLLOUT, 0}, {p[0], POLLIN | POLLRDNORM, 0}};
    CHECK_EQ(poll(set, 3, -1), 1);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_EQ(poll(set, 3, -1), 3);
    CHECK_EQ(set[0].revents, POLLIN);
    CHECK_EQ(set[2].revents, POLLIN | POLLRDNORM);
    close_pair(p);
}

static void negative_descriptors_are_skipped(void) {
    struct pollfd set[2] = {{-1, POLLIN, 9}, {-77, POLLOUT, 9}};
    CHECK_EQ(poll(set, 2, 0), 0);
    CHECK_EQ(set[0].revents, 0);
    CHECK_EQ(set[1].revents, 0);
}

static void closed_descriptor_is_invalid_in_poll_and_an_error_in_select(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    CHECK_EQ(select_one(p[0], 0, 0), 0);
    close_pair(p);
    CHECK_EQ(wait_for(p[0], POLLIN, -1), POLLNVAL);
    fd_set in, before;
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    before = in;
    CHECK_EQ(select(p[0] + 1, &in, NULL, NULL, NULL), -1);
    CHECK_EQ(errno, EBADF);
    CHECK(memcmp(&in, &before, sizeof in) == 0);
}

static void bad_arguments_are_refused(void) {
    struct pollfd p = {0, 0, 0};
    fd_set in;
    FD_ZERO(&in);
    CHECK_EQ(ppoll(&p, 1, &(struct timespec){0, 1000000000}, NULL), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(ppoll(&p, 1, &(struct timespec){-1, 0}, NULL), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(select(-1, &in, NULL, NULL, &(struct timeval){0, 0}), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(select(50, &in, NULL, NULL, &(struct timeval){-1, 0}), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(pselect(50, &in, NULL, NULL, &(struct timespec){0, -5}, NULL), -1);
    CHECK_EQ(errno, EINVAL);
}

__attribute__((unused)) static void more_entries_than_the_limit_are_refused(void) {
    struct rlimit before, low;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    static struct pollfd set[400];
    for (int i = 0; i < 400; i++)
        set[i].fd = -1;
    CHECK_EQ(poll(set, 400, 0), 0);
    low = before;
    low.rlim_cur = 300;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    CHECK_EQ(poll(set, 400, 0), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_EQ(poll(set, 400, 0), 0);
}

__attribute__((unused)) static void memory_that_is_not_ours_is_a_fault_not_a_crash(void) {
    long page = sysconf(_SC_PAGESIZE);
    char *gone = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, (size_t)page);
    CHECK_EQ(poll((struct pollfd *)(void *)gone, 100, 0), -1);
    CHECK_EQ(errno, EFAULT);
    struct pollfd *volatile null = NULL;
    CHECK_EQ(poll(null, 100, 0), -1);
    CHECK_EQ(errno, EFAULT);
    CHECK_EQ(select(200, (fd_set *)(void *)gone, NULL, NULL, &(struct timeval){0, 0}), -1);
    CHECK_EQ(errno, EFAULT);
    char *fixed = mmap(NULL, (size_t)page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(poll((struct pollfd *)(void *)fixed, 100, 0), -1);
    CHECK_EQ(errno, EFAULT);
    munmap(fixed, (size_t)page);
}

static void bits_beyond_n_are_ignored_and_cleared(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    FD_SET(p[0] / 64 * 64 + 63, &in); /* in the same word, and certainly not open */
    CHECK_EQ(select(p[0] + 1, &in, NULL, NULL, &(struct timeval){0, 0}), 0);
    CHECK(!FD_ISSET(p[0] / 64 * 64 + 63, &in));
    close_pair(p);
}

/* --- what each kind of file reports */

static void hang_up_is_reported_unasked_by_poll_and_as_readable_by_select(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(wait_for(p[0], 0, 0), 0);
    close(p[1]);
    CHECK_EQ(wait_for(p[0], 0, -1), POLLHUP);
    CHECK_EQ(select_one(p[0], 0, 1000000), 1);
    /* It also does not spin on bits that the third set excludes. */
    CHECK_EQ(select_one(p[0], 2, 3000), 0);
    CHECK_EQ(select_one(p[0], 2, 0), 0);
    close(p[0]);
    CHECK_EQ(pipe(p), 0);
    close(p[0]);
    CHECK_EQ(wait_for(p[1], 0, -1), POLLERR);
    CHECK_EQ(select_one(p[1], 1, 1000000), 1);
    close(p[1]);
}

static void files_are_always_ready(void) {
    int fd = open("/etc/passwd", O_RDONLY);
    CHECK_EQ(wait_for(fd, POLLIN | POLLOUT, -1), POLLIN | POLLOUT);
    CHECK_EQ(select_one(fd, 0, 1000000), 1);
    CHECK_EQ(select_one(fd, 2, 2000), 0);
    close(fd);
    fd = open("/dev/null", O_RDWR);
    CHECK_EQ(wait_for(fd, POLLOUT, -1), POLLOUT);
    close(fd);
}

static int loopback_listener(struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_EQ(bind(fd, (struct sockaddr *)address, sizeof *address), 0);
    CHECK_EQ(listen(fd, 16), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)address, &length), 0);
    return fd;
}

static void tcp_pair(int *pair) {
    struct sockaddr_in address;
    int listener = loopback_listener(&address);
    CHECK_EQ(wait_for(listener, POLLIN, 0), 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(pair[0], (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(wait_for(listener, POLLIN, -1), POLLIN);
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
}

static void urgent_data_is_an_exception(void) {
    int p[2];
    tcp_pair(p);
    CHECK_EQ(select_one(p[1], 2, 0), 0);
    CHECK_EQ(send(p[0], "!", 1, MSG_OOB), 1);
    CHECK_EQ(wait_for(p[1], POLLPRI, -1), POLLPRI);
    CHECK_EQ(select_one(p[1], 2, 1000000), 1);
    close_pair(p);
}

/* Both options change the reported state of a socket without a wake-up. */
static void urgent_byte_counts_as_data_as_soon_as_it_is_in_line(void) {
    int p[2], on = 1, off = 0;
    tcp_pair(p);
    int same = dup(p[1]);
    CHECK_EQ(send(p[0], "!", 1, MSG_OOB), 1);
    CHECK_EQ(wait_for(p[1], POLLPRI, -1), POLLPRI);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(wait_for(p[1], POLLIN, 0), 0);
        CHECK_EQ(select_one(p[1], 0, 0), 0);
        CHECK_EQ(setsockopt(i % 2 ? same : p[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on), 0);
        CHECK_EQ(wait_for(p[1], POLLIN, 0), POLLIN);
        CHECK_EQ(select_one(p[1], 0, 0), 1);
        CHECK_EQ(setsockopt(p[1], SOL_SOCKET, SO_OOBINLINE, &off, sizeof off), 0);
    }
    close(same);
    close_pair(p);
}

static void queued_error_is_an_exception_as_soon_as_the_socket_says_so(void) {
    struct sockaddr_in address;
    int on = 1, off = 0, listener = loopback_listener(&address), fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on), 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(send(fd, "x", 1, 0), 1); /* no datagram socket has this port */
    CHECK_EQ(wait_for(fd, 0, -1), POLLERR);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(select_one(fd, 2, 0), 0);
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, &on, sizeof on), 0);
        CHECK_EQ(select_one(fd, 2, 0), 1);
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, &off, sizeof off), 0);
    }
    close(fd);
    close(listener);
}

static void refused_connection_is_reported(void) {
    struct sockaddr_in address;
    int listener = loopback_listener(&address), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t length = sizeof error;
    close(listener);
    CHECK_EQ(wait_for(fd, POLLIN, 0), POLLHUP); /* not connected yet */
    connect(fd, (struct sockaddr *)&address, sizeof address);
    int got = wait_for(fd, POLLOUT, -1);
    CHECK((got & (POLLERR | POLLHUP)) != 0);
    CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    CHECK_EQ(error, ECONNREFUSED);
    close(fd);
}

/* --- sleeping, and being woken */

struct helper {
    int fd;
    const void *data;
    size_t bytes;
    int drain_fd;
    int close_fd;
    pthread_t target;
    _Atomic int stop;
};

static void *writing(void *context) {
    struct helper *h = context;
    nap();
    /* The reader has only a tenth of a megabyte of TCP's four megabytes in flight, so it reads
     * the rest later. */
    while (h->drain_fd >= 0 && !h->stop) {
        drain(h->drain_fd);
        usleep(1000);
    }
    if (h->data != NULL && write(h->fd, h->data, h->bytes) < 0)
        perror("write");
    return NULL;
}

static void start(pthread_t *thread, void *(*body)(void *), void *context) {
    CHECK_EQ(pthread_create(thread, NULL, body, context), 0);
}

static void sleeper_is_woken_by(int sleeping_fd, short events, int by_fd, const void *data, size_t bytes, int drained) {
    struct helper h = {.fd = by_fd, .data = data, .bytes = bytes, .drain_fd = drained};
    pthread_t thread;
    start(&thread, writing, &h);
    CHECK_EQ(wait_for(sleeping_fd, events, -1) & events, events);
    h.stop = 1;
    pthread_join(thread, NULL);
}

static void every_kind_of_descriptor_wakes_a_sleeper(void) {
    int p[2];
    uint64_t one = 1;
    CHECK_EQ(pipe(p), 0);
    sleeper_is_woken_by(p[0], POLLIN, p[1], "x", 1, -1);
    close_pair(p);
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        CHECK_EQ(socketpair(AF_UNIX, type, 0, p), 0);
        sleeper_is_woken_by(p[0], POLLIN, p[1], "x", 1, -1);
        close_pair(p);
    }
    tcp_pair(p);
    sleeper_is_woken_by(p[1], POLLIN | POLLRDNORM, p[0], "x", 1, -1);
    close_pair(p);
    int fd = eventfd(0, 0);
    sleeper_is_woken_by(fd, POLLIN, fd, &one, sizeof one, -1);
    close(fd);
    fd = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(fd, 0, &(struct itimerspec){.it_value = {0, 5000000}}, NULL);
    CHECK_EQ(wait_for(fd, POLLIN, -1), POLLIN);
    close(fd);
    CHECK_EQ(pipe(p), 0);
    fd = epoll_create1(0);
    CHECK_EQ(epoll_ctl(fd, EPOLL_CTL_ADD, p[0], &(struct epoll_event){.events = EPOLLIN}), 0);
    sleeper_is_woken_by(fd, POLLIN, p[1], "x", 1, -1);
    close(fd);
    close_pair(p);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK_EQ(grantpt(master) | unlockpt(master), 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    sleeper_is_woken_by(slave, POLLIN, master, "x\n", 2, -1);
    close(slave);
    close(master);
}

static void room_to_write_wakes_a_sleeper(void) {
    static char block[65536];
    for (int kind = 0; kind < 3; kind++) {
        int p[2];
        if (kind == 0)
            CHECK_EQ(pipe(p), 0);
        else if (kind == 1)
            CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
        else
            tcp_pair(p);
        int reader = p[0], writer = p[1];
        CHECK_EQ(wait_for(writer, POLLOUT, -1), POLLOUT);
        fcntl(writer, F_SETFL, O_NONBLOCK);
        while (write(writer, block, sizeof block) > 0 || (kind == 2 && wait_for(writer, POLLOUT, 20) > 0)) {
        }
        CHECK_EQ(wait_for(writer, POLLOUT, 0), 0);
        CHECK_EQ(select_one(writer, 1, 0), 0);
        sleeper_is_woken_by(writer, POLLOUT, -1, NULL, 0, reader);
        close_pair(p);
    }
}

static void *shutting(void *context) {
    struct helper *h = context;
    nap();
    shutdown(h->close_fd, SHUT_RDWR);
    close(h->close_fd);
    return NULL;
}

static void shutdown_and_close_by_another_thread_wake_a_sleeper(void) {
    for (int i = 0; i < 20; i++) {
        int p[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
        struct helper h = {.close_fd = p[0]};
        pthread_t thread;
        CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
        start(&thread, shutting, &h);
        CHECK((i % 2 ? select_one(p[0], 0, 100000000) : wait_for(p[0], POLLIN, -1)) > 0);
        pthread_join(thread, NULL);
        close(p[1]);
    }
}

struct sharing {
    int fd;
    _Atomic int woken;
};

static void *sharing_body(void *context) {
    struct sharing *s = context;
    if (wait_for(s->fd, POLLIN, -1) == POLLIN)
        s->woken++;
    return NULL;
}

static void all_threads_that_wait_for_one_descriptor_wake(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    struct sharing s = {p[0], 0};
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        start(&thread[i], sharing_body, &s);
    nap();
    CHECK_EQ(write(p[1], "x", 1), 1);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(s.woken, 8);
    close_pair(p);
}

/* --- signals */

static _Atomic int handled;

static void handler(int number) {
    (void)number;
    handled++;
}

static void install(int number, void (*function)(int), int flags) {
    struct sigaction action = {.sa_handler = function, .sa_flags = flags};
    sigaction(number, &action, NULL);
}

static void *signalling(void *context) {
    struct helper *h = context;
    while (!h->stop) {
        usleep(1000);
        pthread_kill(h->target, SIGUSR1);
    }
    return NULL;
}

static void handler_ends_a_sleep_even_if_it_restarts_system_calls(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    struct helper h = {.target = pthread_self()};
    pthread_t thread;
    install(SIGUSR1, handler, SA_RESTART);
    start(&thread, signalling, &h);
    for (int i = 0; i < 20; i++) {
        struct pollfd set = {p[0], POLLIN, 0x55};
        CHECK_EQ(poll(&set, 1, -1), -1);
        CHECK_EQ(errno, EINTR);
        CHECK_EQ(set.revents, 0);
        fd_set in;
        FD_ZERO(&in);
        FD_SET(p[0], &in);
        CHECK_EQ(select(p[0] + 1, &in, NULL, NULL, NULL), -1);
        CHECK_EQ(errno, EINTR);
        CHECK(FD_ISSET(p[0], &in));
    }
    h.stop = 1;
    pthread_join(thread, NULL);
    close_pair(p);
}

struct noise {
    int fd;
    _Atomic int stop;
};

static void *noisy(void *context) {
    struct noise *n = context;
    char bytes[64];
    while (!n->stop) {
        if (write(n->fd, "x", 1) < 0)
            perror("noise");
        usleep(50);
        if (recv(n->fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0)
            errno = 0;
    }
    return NULL;
}

/* The handler can run only inside ppoll, so each run must end one, even when the library wakes
 * for an event that the program does not want and sleeps again. */
static void every_handler_run_ends_a_sleep_amid_unwanted_events(void) {
    int p[2], q[2];
    sigset_t block, before;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(pipe(q), 0);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    struct noise n = {.fd = p[1]};
    struct helper h = {.target = pthread_self()};
    pthread_t threads[2];
    install(SIGUSR1, handler, 0);
    start(&threads[0], noisy, &n);
    start(&threads[1], signalling, &h);
    char bytes[4096];
    for (int i = 0; i < 200; i++) {
        struct pollfd set[2] = {{p[0], i % 2 ? POLLPRI : POLLIN, 0}, {q[0], POLLIN, 0}};
        int before_handled = handled, result;
        result = ppoll(set, 2, NULL, &before);
        CHECK(result == 1 || (result == -1 && errno == EINTR));
        CHECK_EQ(handled - before_handled, result == -1 ? 1 : 0);
        if (recv(p[0], bytes, sizeof bytes, MSG_DONTWAIT) < 0)
            errno = 0;
    }
    n.stop = h.stop = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close_pair(p);
    close_pair(q);
}

/* The library's epoll instance for this thread, the only one that polls, if it has one. */
static int hidden_instance(void) {
    DIR *directory = opendir("/proc/self/fd");
    int found = -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[300], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, name, sizeof name - 1) > 0 && strcmp(name, "anon_inode:[eventpoll]") == 0)
            found = atoi(entry->d_name);
    }
    closedir(directory);
    return found;
}

static int lines_that_begin(const char *path, const char *word) {
    char line[512];
    int count = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        count += strncmp(line, word, strlen(word)) == 0;
    if (file != NULL)
        fclose(file);
    return count;
}

struct one_signal {
    pthread_t target;
    int instance;
    _Atomic int task;
};

static void *signalling_once(void *context) {
    struct one_signal *s = context;
    char instance[64], status[64];
    while (s->task == 0)
        sched_yield();
    snprintf(instance, sizeof instance, "/proc/self/fdinfo/%d", s->instance);
    snprintf(status, sizeof status, "/proc/self/task/%d/status", s->task);
    while (lines_that_begin(instance, "tfd:") < 200 && lines_that_begin(status, "State:\tS") == 0)
        sched_yield();
    pthread_kill(s->target, SIGUSR1);
    return NULL;
}

/* A signal comes once, while thousands of descriptors are examined for the first time, or
 * afterwards. */
static void one_signal_ends_a_call_over_thousands_of_new_descriptors(void) {
    enum { MOST = 8000 };
    static struct pollfd set[MOST];
    struct rlimit before, high;
    int p[2], count;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    high = before;
    high.rlim_cur = high.rlim_max < MOST + 500 ? high.rlim_max : MOST + 500;
    count = (int)high.rlim_cur - 500;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &high), 0);
    CHECK_EQ(pipe(p), 0);
    install(SIGUSR1, handler, SA_RESTART);
    for (int round = 0; round < 20; round++) {
        struct one_signal s = {.target = pthread_self(), .instance = hidden_instance()};
        pthread_t thread;
        for (int i = 0; i < count; i++)
            set[i] = (struct pollfd){dup(p[0]), POLLIN, 0};
        start(&thread, signalling_once, &s);
        s.task = (int)syscall(SYS_gettid);
        CHECK_EQ(poll(set, (nfds_t)count, -1), -1); /* or hangs */
        CHECK_EQ(errno, EINTR);
        pthread_join(thread, NULL);
        for (int i = 0; i < count; i++)
            close(set[i].fd);
    }
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    close_pair(p);
}

static volatile int victim = -1;

static void closing_handler(int number) {
    (void)number;
    close(victim);
    victim = -1;
}

/* A handler runs before the call, which then finds the descriptor closed, or during the call,
 * which then ends; it is never unnoticed. */
static void handler_that_closes_a_descriptor_is_noticed_whenever_it_runs(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    install(SIGUSR2, closing_handler, 0);
    CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    for (int i = 0; i < 4000; i++) {
        struct pollfd set[3] = {{p[0], POLLIN, 0}, {-1, POLLIN, 0}, {p[0], POLLPRI, 0}};
        set[1].fd = victim = dup(p[0]);
        struct itimerspec soon = {.it_value = {0, 1000 + i % 40 * 1000}};
        timer_settime(timer, 0, &soon, NULL);
        int result = poll(set, 3, -1);
        CHECK((result == -1 && errno == EINTR) || (result == 1 && set[1].revents == POLLNVAL));
        while (victim >= 0)
            ;
    }
    timer_delete(timer);
    close_pair(p);
}

static void mask_lets_a_pending_signal_in_only_if_nothing_is_ready(void) {
    int p[2];
    sigset_t block, before, pending;
    CHECK_EQ(pipe(p), 0);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    install(SIGUSR1, handler, 0);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    for (int timeout = 0; timeout < 2; timeout++) {
        struct timespec time = {timeout * 10, 0};
        struct pollfd set = {p[0], POLLIN, 0};
        CHECK_EQ(poll(&set, 1, 0), 0);
        raise(SIGUSR1);
        int count = handled;
        CHECK_EQ(ppoll(&set, 1, &time, &before), -1);
        CHECK_EQ(errno, EINTR);
        CHECK_EQ(handled, count + 1);
        raise(SIGUSR1);
        CHECK_EQ(write(p[1], "x", 1), 1);
        CHECK_EQ(ppoll(&set, 1, &time, &before), 1);
        CHECK_EQ(handled, count + 1);
        sigpending(&pending);
        CHECK(sigismember(&pending, SIGUSR1));
        fd_set in;
        FD_ZERO(&in);
        FD_SET(p[0], &in);
        CHECK_EQ(pselect(p[0] + 1, &in, NULL, NULL, &time, &before), 1);
        drain(p[0]);
        FD_SET(p[0], &in);
        CHECK_EQ(pselect(p[0] + 1, &in, NULL, NULL, &time, &before), -1);
        CHECK_EQ(handled, count + 2);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close_pair(p);
}

static void stop_and_continue_do_not_end_a_sleep(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(CHECK_HANG_S);
        _exit(wait_for(p[0], POLLIN, -1) == POLLIN && select_one(p[0], 0, 1000000) == 1 ? 0 : 1);
    }
    for (int i = 0; i < 5; i++) {
        nap();
        kill(child, SIGSTOP);
        nap();
        kill(child, SIGCONT);
    }
    CHECK_EQ(write(p[1], "x", 1), 1);
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    close_pair(p);
}

static int handler_pipe[2], handler_saw;

static void polling_handler(int number) {
    (void)number;
    int saved = errno;
    handler_saw = wait_for(handler_pipe[0], POLLIN, 0);
    close(dup(handler_pipe[0]));
    handled++;
    errno = saved;
}

static void handler_may_poll_while_its_thread_sleeps_in_poll(void) {
    CHECK_EQ(pipe(handler_pipe), 0);
    CHECK_EQ(write(handler_pipe[1], "x", 1), 1);
    int p[2];
    CHECK_EQ(pipe(p), 0);
    struct helper h = {.target = pthread_self()};
    pthread_t thread;
    install(SIGUSR1, polling_handler, 0);
    start(&thread, signalling, &h);
    for (int i = 0; i < 50; i++) {
        handler_saw = 0;
        CHECK_EQ(wait_for(p[0], POLLIN, -1), -1);
        CHECK_EQ(errno, EINTR);
        CHECK_EQ(handler_saw, POLLIN);
    }
    h.stop = 1;
    pthread_join(thread, NULL);
    close_pair(p);
    close_pair(handler_pipe);
}

/* Such a build leaves interpose_process.c out. */
#if !__GLIBC_PREREQ(2, 34) || defined(UNDER_SANITIZER)
#define _Fork fork
#endif
static volatile pid_t forked;

static void forking_handler(int number) {
    (void)number;
    forked = handled++ % 2 ? _Fork() : fork();
    if (forked == 0)
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

/* Stops the timer and waits for the forked children. Returns the status of the last child with
 * another status than 0, or 0. */
static int status_of_forked(void) {
    int status = 0, worst = 0;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    while (waitpid(-1, &status, 0) > 0)
        if (status != 0)
            worst = status;
    return worst;
}

static void sleep_in_which_a_handler_forks_ends_in_the_child_too(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    for (int i = 0; i < 4; i++) {
        install(SIGALRM, forking_handler, 0);
        forked = -1;
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 20000}}, NULL);
        int result = i % 2 ? select_one(p[0], 0, 3000000) : wait_for(p[0], POLLIN, 3000);
        bool is_interrupted = result == -1 && errno == EINTR;
        if (forked == 0)
            _exit(!is_interrupted);
        CHECK(is_interrupted);
        CHECK_EQ(status_of_forked(), 0);
    }
    install(SIGALRM, check_hung, 0);
    alarm(CHECK_HANG_S);
    close_pair(p);
}

static void handler_may_fork_at_any_moment_of_a_call(void) {
    enum { ENTRIES = 1000 };
    static struct pollfd set[ENTRIES];
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(write(p[1], "x", 1), 1);
    int ready = dup(p[0]);
    CHECK_EQ(pipe(p), 0);
    for (int i = 0; i < ENTRIES; i++)
        set[i] = (struct pollfd){i == ENTRIES / 2 ? ready : p[0], POLLIN, 0};
    install(SIGALRM, forking_handler, 0);
    for (int i = 0; i < 100; i++) {
        forked = -1;
        /* The timer fires only once, because a fork may take longer than any period. */
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 100 + i * 7}}, NULL);
        for (int j = 0; forked < 0; j++) {
            int result = j % 2 ? poll(set, ENTRIES - 1, 0) : select_one(ready, 0, 0);
            if (forked == 0)
                _exit(result != 1);
            CHECK_EQ(result, 1);
        }
        if (forked == 0)
            _exit(0);
    }
    CHECK_EQ(status_of_forked(), 0);
    install(SIGALRM, check_hung, 0);
    alarm(CHECK_HANG_S);
    close_pair(p);
    close(ready);
}

static void leaving_handler(int number) {
    (void)number;
    handled = unshare(CLONE_FILES) == 0;
}

static void *sleeping_until_it_leaves(void *context) {
    sigset_t signal;
    sigemptyset(&signal);
    sigaddset(&signal, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &signal, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 20000}}, NULL);
    errno = 0;
    return wait_for(*(int *)context, POLLIN, 3000) == -1 && errno == EINTR ? context : NULL;
}

/* From here on, SIGALRM runs this handler, in another thread. Returns the earlier mask. */
static sigset_t leave_alarms_to_other_threads(void (*deed)(int)) {
    sigset_t signal, before;
    install(SIGALRM, deed, 0);
    sigemptyset(&signal);
    sigaddset(&signal, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &signal, &before);
    return before;
}

static void take_alarms_back(const sigset_t *before) {
    install(SIGALRM, check_hung, 0);
    pthread_sigmask(SIG_SETMASK, before, NULL);
    alarm(CHECK_HANG_S);
}

static void sleep_in_which_a_handler_leaves_the_descriptor_table_ends(void) {
    int p[2];
    pthread_t thread;
    void *result = NULL;
    CHECK_EQ(pipe(p), 0);
    sigset_t before = leave_alarms_to_other_threads(leaving_handler);
    start(&thread, sleeping_until_it_leaves, &p[0]);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == &p[0]);
    CHECK_EQ(handled, 1);
    take_alarms_back(&before);
    close_pair(p);
}

static sigjmp_buf back;

static void jumping_handler(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static void jump_out_of_a_sleep_leaves_select_usable(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    for (int i = 0; i < 20; i++) {
        install(SIGALRM, jumping_handler, 0);
        struct itimerval soon = {.it_value = {0, 3000}};
        if (sigsetjmp(back, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, NULL);
            for (;;)
                i % 2 ? select_one(p[0], 0, 100000000) : wait_for(p[0], POLLIN, -1);
        }
        pthread_sigmask(SIG_SETMASK, NULL, &after);
        CHECK(memcmp(&before, &after, 8) == 0);
        CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
        CHECK_EQ(write(p[1], "x", 1), 1);
        CHECK_EQ(wait_for(p[0], POLLIN, 10000), POLLIN);
        drain(p[0]);
    }
    install(SIGALRM, check_hung, 0);
    alarm(CHECK_HANG_S);
    close_pair(p);
}

static void jump_out_of_a_sleep(int fd, bool by_select) {
    if (sigsetjmp(back, 1) == 0) {
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 3000}}, NULL);
        for (;;)
            by_select ? select_one(fd, 0, 100000000) : wait_for(fd, POLLIN, -1);
    }
}

/* Overwrites the stack of the call that was left by longjmp. */
static __attribute__((noinline)) void write_over_the_stack(void) {
    volatile char stack[65536];
    memset((char *)stack, 0x41, sizeof stack);
}

static struct {
    int fd;
    bool by_select, by_cancel;
} jumper;

__attribute__((unused)) static void *jumping_and_ending(void *context) {
    sigset_t signal;
    sigemptyset(&signal);
    sigaddset(&signal, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &signal, NULL);
    jump_out_of_a_sleep(jumper.fd, jumper.by_select);
    write_over_the_stack();
    if (jumper.by_cancel) {
        pthread_cancel(pthread_self());
        pthread_testcancel();
    }
    pthread_exit(context);
}

__attribute__((unused)) static void thread_that_jumped_out_of_a_sleep_can_end(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    sigset_t before = leave_alarms_to_other_threads(jumping_handler);
    jumper.fd = p[0];
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *result = NULL;
        jumper.by_select = i % 2, jumper.by_cancel = i / 2;
        start(&thread, jumping_and_ending, p);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == (jumper.by_cancel ? PTHREAD_CANCELED : p));
    }
    take_alarms_back(&before);
    close_pair(p);
}

/* --- the life of a descriptor */

static void new_file_under_an_old_number_is_a_new_file(void) {
    int p[2], q[2], ready[2];
    CHECK_EQ(pipe(ready), 0);
    CHECK_EQ(write(ready[1], "x", 1), 1);
    for (int how = 0; how < 7; how++) {
        CHECK_EQ(pipe(p), 0);
        int number = p[0];
        CHECK_EQ(wait_for(number, POLLIN, 0), 0);
        CHECK_EQ(select_one(number, 0, 0), 0);
        switch (how) {
        case 0:
            dup2(ready[0], number);
            break;
        case 1:
            dup3(ready[0], number, O_CLOEXEC);
            break;
        case 2:
            close(number);
            CHECK_EQ(dup(ready[0]), number);
            break;
        case 3:
            close_range((unsigned)number, (unsigned)number, 0);
            CHECK_EQ(fcntl(ready[0], F_DUPFD, number), number);
            break;
        case 4: { /* a close that the library does not see, then a creation that it sees */
            long result;
            __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_close), "D"(number) : "rcx", "r11", "memory");
            CHECK_EQ(dup(ready[0]), number);
            break;
        }
        case 5:
#ifdef UNDER_SANITIZER
            close(number);
#else
            syscall(SYS_close, number);
#endif
            CHECK_EQ(fcntl(ready[0], F_DUPFD_CLOEXEC, number), number);
            break;
        case 6: {
            FILE *file = fdopen(number, "r");
            fclose(file);
            CHECK_EQ(dup(ready[0]), number);
            break;
        }
        }
        CHECK_EQ(wait_for(number, POLLIN, 0), POLLIN);
        CHECK_EQ(select_one(number, 0, 0), 1);
        /* the old file, open under another number, must not count for this one */
        CHECK_EQ(pipe(q), 0);
        int kept = dup(q[0]);
        CHECK_EQ(wait_for(q[0], POLLIN, 0), 0);
        dup2(p[1], q[0]);
        CHECK_EQ(write(q[1], "x", 1), 1);
        CHECK_EQ(wait_for(q[0], POLLIN, 0) & POLLIN, 0);
        CHECK_EQ(wait_for(kept, POLLIN, 0), POLLIN);
        close(kept);
        close_pair(q);
        close_pair(p);
    }
    close_pair(ready);
}

static void descriptors_received_over_a_socket_are_new_files(void) {
    for (int peeks = 0; peeks < 2; peeks++) {
        int channel[2], ready[2], p[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, channel), 0);
        CHECK_EQ(pipe(ready), 0);
        CHECK_EQ(write(ready[1], "x", 1), 1);
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        memset(&control, 0, sizeof control);
        char byte = 1;
        struct iovec data = {&byte, 1};
        struct msghdr message = {
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &ready[0], sizeof(int));
        CHECK_EQ(sendmsg(channel[0], &message, 0), 1);
        CHECK_EQ(pipe(p), 0);
        CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
        long result;
        /* The library does not see this call. */
        __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_close), "D"(p[0]) : "rcx", "r11", "memory");
        message.msg_controllen = sizeof control;
        CHECK_EQ(recvmsg(channel[1], &message, peeks ? MSG_PEEK : 0), 1);
        int got;
        memcpy(&got, CMSG_DATA(c), sizeof got);
        CHECK_EQ(got, p[0]);
        CHECK_EQ(wait_for(got, POLLIN, 0), POLLIN);
        close_pair(p);
        close_pair(ready);
        close_pair(channel);
    }
}

static void child_and_parent_wait_each_for_themselves(void) {
    int p[2], q[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(pipe(q), 0);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(CHECK_HANG_S);
        close(p[1]);
        int is_right = wait_for(p[0], POLLIN, 0) == 0;
        close(q[0]);
        is_right &= write(q[1], "x", 1) == 1; /* only the parent reads it */
        is_right &= wait_for(p[0], POLLIN, -1) == POLLIN;
        dup2(q[1], p[0]);
        _exit(is_right ? 0 : 1);
    }
    CHECK_EQ(wait_for(q[0], POLLIN, -1), POLLIN);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_EQ(wait_for(p[0], POLLIN, -1), POLLIN);
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    drain(p[0]);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    sleeper_is_woken_by(p[0], POLLIN, p[1], "x", 1, -1);
    close_pair(p);
    close_pair(q);
}

static void child_of_vfork_may_close_and_execute(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    for (int i = 0; i < 10; i++) {
        pid_t child = vfork();
        if (child == 0) {
            close(p[0]);
            dup2(p[1], 0);
            close_range(3, ~0U, 0);
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        int status = -1;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
        CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
        sleeper_is_woken_by(p[0], POLLIN, p[1], "x", 1, -1);
        drain(p[0]);
    }
    close_pair(p);
}

static void program_that_closes_everything_goes_on(void) {
    int p[2];
    CHECK_EQ(wait_for(0, 0, 0) & POLLNVAL, 0);
    for (int how = 0; how < 3; how++) {
        if (how == 0)
            for (int fd = 3; fd < 5000; fd++)
                close(fd);
        else if (how == 1)
            close_range(3, ~0U, 0);
        else
            closefrom(3);
        CHECK_EQ(pipe(p), 0);
        CHECK_EQ(p[0], 3);
        CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
        sleeper_is_woken_by(p[0], POLLIN, p[1], "x", 1, -1);
        close_pair(p);
    }
}

static void program_may_take_any_number_with_dup2(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    for (int number = 20; number < 1100; number++) {
        CHECK_EQ(dup2(p[0], number), number);
        CHECK_EQ(wait_for(number, POLLIN, 0), 0);
    }
    CHECK_EQ(write(p[1], "x", 1), 1);
    for (int number = 20; number < 1100; number++)
        CHECK_EQ(wait_for(number, POLLIN, -1), POLLIN);
    for (int number = 20; number < 1100; number++)
        close(number);
    CHECK_EQ(wait_for(p[0], POLLIN, -1), POLLIN);
    drain(p[0]);
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    close_pair(p);
}

static void sets_may_be_larger_than_fd_setsize(void) {
    static unsigned long in[64], out[64]; /* 4096 descriptors */
    int p[2];
    CHECK_EQ(pipe(p), 0);
    int high = fcntl(p[0], F_DUPFD, 3000);
    CHECK(high >= 3000);
    for (int i = 0; i < 3; i++) {
        memset(in, 0, sizeof in);
        memset(out, 0, sizeof out);
        in[high / 64] |= 1UL << (high % 64);
        out[p[1] / 64] |= 1UL << (p[1] % 64);
        int result =
            select(4096, (fd_set *)(void *)in, i ? NULL : (fd_set *)(void *)out, NULL, &(struct timeval){10, 0});
        CHECK_EQ(result, 1);
        CHECK_EQ((in[high / 64] >> (high % 64)) & 1, i > 0);
        if (i == 0) {
            CHECK_EQ((out[p[1] / 64] >> (p[1] % 64)) & 1, 1);
            CHECK_EQ(write(p[1], "x", 1), 1);
        }
    }
    close(high);
    close_pair(p);
}

/* --- threads */

__attribute__((unused)) static void *sleeping_for_ever(void *context) {
    wait_for(*(int *)context, POLLIN, -1);
    return NULL;
}

static struct {
    int fd, seen;
    bool is_blocked;
    _Atomic pid_t thread;
} after_cancel;

/* Waits until the thread sleeps in poll. Before that it may have blocked signals, and a cancellation then runs the
 * cleanup handlers with them blocked. */
static void until_asleep(_Atomic pid_t *thread) {
    char path[64], line[16];
    long call = -1;
    while (call != SYS_ppoll
#ifdef SYS_poll
           && call != SYS_poll
#endif
    ) {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", *thread);
        FILE *file = fopen(path, "r");
        call = file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != 'r' ? strtol(line, NULL, 10) : -1;
        if (file != NULL)
            fclose(file);
    }
}

static void polling_cleanup(void *context) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    after_cancel.is_blocked = sigismember(&mask, SIGUSR1);
    after_cancel.seen = wait_for(*(int *)context, POLLIN, 10000);
}

__attribute__((unused)) static void *sleeping_with_a_cleanup(void *context) {
    pthread_cleanup_push(polling_cleanup, &after_cancel.fd);
    after_cancel.thread = gettid();
    wait_for(*(int *)context, POLLIN, -1);
    pthread_cleanup_pop(0);
    return NULL;
}

__attribute__((unused)) static void cleanup_handler_of_a_cancelled_sleep_may_poll(void) {
    int p[2], ready[2];
    CHECK_EQ(pipe(p), 0);
    CHECK_EQ(pipe(ready), 0);
    CHECK_EQ(write(ready[1], "x", 1), 1);
    after_cancel.fd = ready[0];
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result = NULL;
        after_cancel.seen = 0;
        after_cancel.thread = 0;
        start(&thread, sleeping_with_a_cleanup, &p[0]);
        if (i % 2)
            until_asleep(&after_cancel.thread);
        pthread_cancel(thread);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
        if (i % 2) { /* otherwise it may end before it has the handler */
            CHECK_EQ(after_cancel.seen, POLLIN);
            CHECK(!after_cancel.is_blocked);
        }
    }
    close_pair(p);
    close_pair(ready);
}

__attribute__((unused)) static void *polling_for_ever(void *context) {
    for (;;)
        wait_for(*(int *)context, POLLIN, 0);
    return NULL;
}

__attribute__((unused)) static void thread_that_never_sleeps_can_be_cancelled(void) {
    int p[2];
    pthread_t thread;
    void *result = NULL;
    CHECK_EQ(pipe(p), 0);
    start(&thread, polling_for_ever, &p[0]);
    nap();
    pthread_cancel(thread);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    close_pair(p);
}

__attribute__((unused)) static void sleeping_thread_can_be_cancelled(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result = NULL;
        start(&thread, sleeping_for_ever, &p[0]);
        if (i % 2)
            nap();
        pthread_cancel(thread);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    CHECK_EQ(wait_for(p[0], POLLIN, 0), 0);
    close_pair(p);
}

static int open_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void *briefly_polling(void *context) {
    wait_for(*(int *)context, POLLIN, 0);
    return NULL;
}

static void threads_that_end_leave_no_descriptor_behind(void) {
    int p[2];
    CHECK_EQ(pipe(p), 0);
    wait_for(p[0], POLLIN, 0);
    int before = open_descriptors();
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        start(&thread, briefly_polling, &p[0]);
        pthread_join(thread, NULL);
    }
    CHECK_EQ(open_descriptors(), before);
    close_pair(p);
}

/* --- fortified forms */

extern int __poll_chk(struct pollfd *, nfds_t, int, size_t);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
extern long __fdelt_chk(long);
extern int __poll(struct pollfd *, nfds_t, int);

static int status_of(void (*body)(void)) {
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        setenv("LIBC_FATAL_STDERR_", "1", 1);
        int tty = open("/dev/tty", O_RDONLY);
        (void)tty;
        body();
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static struct pollfd two[2] = {{-1, 0, 0}, {-1, 0, 0}};

static void overflow_poll(void) {
    __poll_chk(two, 3, 0, sizeof two);
}

static void overflow_ppoll(void) {
    __ppoll_chk(two, 3, &(struct timespec){0, 0}, NULL, sizeof two);
}

static void overflow_fd_set(void) {
    __fdelt_chk(FD_SETSIZE);
}

static void fortified_forms_work_and_abort_on_overflow(void) {
    CHECK_EQ(__poll_chk(two, 2, 0, sizeof two), 0);
    CHECK_EQ(__ppoll_chk(two, 2, &(struct timespec){0, 0}, NULL, sizeof two), 0);
    CHECK_EQ(__poll(two, 2, 0), 0);
    CHECK_EQ(status_of(overflow_poll), SIGABRT);
    CHECK_EQ(status_of(overflow_ppoll), SIGABRT);
    CHECK_EQ(status_of(overflow_fd_set), SIGABRT);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    RUN(time_that_runs_out_gives_zero_and_empty_sets);
    RUN(select_tells_the_time_that_was_left);
    RUN(readable_stays_readable_until_it_is_read);
    RUN(duplicate_entries_are_all_answered);
    RUN(negative_descriptors_are_skipped);
    RUN(closed_descriptor_is_invalid_in_poll_and_an_error_in_select);
    RUN(bad_arguments_are_refused);
#ifdef UNDER_SANITIZER
    puts("not run: more_entries_than_the_limit_are_refused: setrlimit is not interposed under a sanitizer");
    puts("not run: memory_that_is_not_ours_is_a_fault_not_a_crash: the sanitizer itself reads the arguments of poll");
#else
    RUN(more_entries_than_the_limit_are_refused);
    RUN(memory_that_is_not_ours_is_a_fault_not_a_crash);
#endif
    RUN(bits_beyond_n_are_ignored_and_cleared);
    RUN(hang_up_is_reported_unasked_by_poll_and_as_readable_by_select);
    RUN(files_are_always_ready);
    RUN(urgent_data_is_an_exception);
    RUN(urgent_byte_counts_as_data_as_soon_as_it_is_in_line);
    RUN(queued_error_is_an_exception_as_soon_as_the_socket_says_so);
    RUN(refused_connection_is_reported);
    RUN(every_kind_of_descriptor_wakes_a_sleeper);
    RUN(room_to_write_wakes_a_sleeper);
    RUN(shutdown_and_close_by_another_thread_wake_a_sleeper);
    RUN(all_threads_that_wait_for_one_descriptor_wake);
    RUN(handler_ends_a_sleep_even_if_it_restarts_system_calls);
    RUN(every_handler_run_ends_a_sleep_amid_unwanted_events);
    RUN(one_signal_ends_a_call_over_thousands_of_new_descriptors);
    RUN(handler_that_closes_a_descriptor_is_noticed_whenever_it_runs);
    RUN(mask_lets_a_pending_signal_in_only_if_nothing_is_ready);
    RUN(stop_and_continue_do_not_end_a_sleep);
    RUN(handler_may_poll_while_its_thread_sleeps_in_poll);
    RUN(sleep_in_which_a_handler_forks_ends_in_the_child_too);
    RUN(handler_may_fork_at_any_moment_of_a_call);
    RUN(jump_out_of_a_sleep_leaves_select_usable);
#ifdef UNDER_SANITIZER
    puts("not run: thread_that_jumped_out_of_a_sleep_can_end: the sanitizer does not follow a forced unwinding");
#else
    RUN(thread_that_jumped_out_of_a_sleep_can_end);
#endif
    RUN(new_file_under_an_old_number_is_a_new_file);
    RUN(descriptors_received_over_a_socket_are_new_files);
    RUN(child_and_parent_wait_each_for_themselves);
    RUN(child_of_vfork_may_close_and_execute);
    RUN(program_that_closes_everything_goes_on);
    RUN(program_may_take_any_number_with_dup2);
    RUN(sets_may_be_larger_than_fd_setsize);
#ifdef UNDER_SANITIZER
    puts("not run: sleeping_thread_can_be_cancelled: the sanitizer does not follow a forced unwinding");
#else
    RUN(sleeping_thread_can_be_cancelled);
    RUN(cleanup_handler_of_a_cancelled_sleep_may_poll);
    RUN(thread_that_never_sleeps_can_be_cancelled);
#endif
    RUN(threads_that_end_leave_no_descriptor_behind);
    /* After this, tables are compared. */
    RUN(sleep_in_which_a_handler_leaves_the_descriptor_table_ends);
    RUN(fortified_forms_work_and_abort_on_overflow);
    return check_end();
}
