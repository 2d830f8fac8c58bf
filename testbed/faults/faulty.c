/* A small HTTP server with one planted fault, for the tests of the verdict. FAULTS describes the
 * faults.
 *
 * Answers any GET with 200 and 128 bytes, and keeps connections alive. One file, so that the
 * faults can be read. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BODY = 128,
    STATE_BYTES = 64 << 10,
    LINE = 64,
    TOUCHES = 1500,
    MAX_FD = 65536,
    REQUEST = 4096,
    DISSECTIONS = 4000,
    LONG_BODY = 256 << 20,
    NEW_MEMORY = 1 << 20
};

struct fault {
    const char *name, *what;
    void (*start)(void);       /* before the first connection */
    void (*work)(void);        /* additional CPU or waiting time of a request */
    void (*run)(int listener); /* waits for connections and serves them, instead of run_epoll */
    int workers;               /* of run_epoll: threads that serve connections; without any, its own thread does */
    int backlog;
    int has_state, sends_apart, has_cork, send_buffer, has_long, has_filter, needs_log, shares_port;
    rlim_t descriptors;  /* limit of open descriptors */
    long burst_us;       /* pause before each check for requests */
    const char *refusal; /* the answer if more than 16 connections are open */
    int says_refusal;
};
struct connection {
    size_t held; /* bytes of an incomplete request head */
    char head[REQUEST];
    uint32_t *state; /* memory: a cycle through STATE_BYTES in random order */
};

static const struct fault *fault;
static struct connection *connections[MAX_FD];
static char answer[512];
#define BIG_HEAD 64
static char big_answer[BIG_HEAD + (256 << 10)]; /* send-buffer: a head and zeros */
static size_t answer_bytes;
static const char *log_path;
static int log_fd = -1;
static int open_connections;   /* with a refusal: it has one thread, so no lock is needed */
static const char *file_pages; /* paging: the mapped file */
static size_t file_bytes;
static int asked = -1; /* lookup: the socket of the process that answers */
static long pause_us;  /* unequal: pause of this process in each request */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spinlock;
static sem_t four; /* semaphore */
static volatile uint32_t sink;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "faulty: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void sleep_us(long us) {
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

/* One cycle through all lines of the state in random order, so that no line can be prefetched. */
static uint32_t *new_state(void) {
    enum { LINES = STATE_BYTES / LINE, STEP = LINE / sizeof(uint32_t) };
    uint32_t *state = aligned_alloc(LINE, STATE_BYTES);
    uint32_t order[LINES];
    if (!state)
        die("memory for a connection");
    for (uint32_t i = 0; i < LINES; i++)
        order[i] = i;
    for (uint32_t i = LINES - 1; i > 0; i--) {
        uint32_t j = (uint32_t)random() % (i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (uint32_t i = 0; i < LINES; i++)
        state[order[i] * STEP] = order[(i + 1) % LINES] * STEP;
    return state;
}

static __attribute__((noinline)) void touch_state(const uint32_t *state) {
    uint32_t at = 0;
    for (int i = 0; i < TOUCHES; i++)
        at = state[at];
    sink = at;
}

static void log_request(void) {
    static const char line[] = "GET / 200 128\n";
    if (write(log_fd, line, sizeof line - 1) < 0)
        die("write to the log");
}

static void log_to_disk(void) {
    log_request();
    if (fdatasync(log_fd) < 0)
        die("fdatasync of the log");
}

static inline __attribute__((always_inline)) void multiply(void) {
    uint32_t at = 1;
    for (int i = 0; i < 20000; i++)
        at = at * 1664525u + 1013904223u;
    sink = at;
}

/* 20 to 40 us. In descriptors it makes the server the bottleneck instead of a client on one CPU. */
static __attribute__((noinline)) void compute(void) {
    multiply();
}

/* The cost that a slow-down experiment must find. */
static __attribute__((noinline)) void planted(void) {
    multiply();
    sink++;
}

/* Memory that is never used again. It is written, so that the kernel really allocates it. */
static void leak(void) {
    enum { KEPT = 4096 };
    char *kept = malloc(KEPT);
    if (!kept)
        die("memory for a request");
    memset(kept, 1, KEPT);
    sink = (uint32_t)(uintptr_t)kept;
}

/* Adds every request to a list and searches the whole list. */
static __attribute__((noinline)) void remember(void) {
    static struct entry {
        struct entry *next;
        uint32_t key;
    } *first;
    struct entry *entry = malloc(sizeof *entry);
    static uint32_t keys;
    if (!entry)
        die("memory for a request");
    *entry = (struct entry){first, ++keys};
    first = entry;
    for (const struct entry *at = first; at; at = at->next)
        if (at->key == 0)
            sink = keys;
}

/* Uses this much CPU time. */
static void burn_us(long us) {
    struct timespec from, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < us);
}

static _Noreturn void *background(void *argument) {
    (void)argument;
    for (;;) {
        burn_us(3000);
        sleep_us(7000);
    }
}

static void start_thread(void *(*run)(void *), const char *name) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL))
        die(name);
    pthread_setname_np(thread, name);
}

static void start_background(void) {
    start_thread(background, "compactor");
}

/* One process per request, as with CGI. */
static void fork_and_wait(void) {
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (!child)
        _exit(0);
    waitpid(child, NULL, 0);
}

static void open_log(void) {
    if ((log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) < 0)
        die(log_path);
}

static void map_file(void) {
    struct stat about;
    int fd = open(log_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) || about.st_size < 1 << 20)
        die(log_path);
    file_bytes = (size_t)about.st_size;
    file_pages = mmap(NULL, file_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (file_pages == MAP_FAILED || madvise((void *)file_pages, file_bytes, MADV_RANDOM))
        die("map of the file");
}

static void read_pages(void) {
    for (int i = 0; i < 4; i++)
        sink = (uint32_t)file_pages[((size_t)random() << 12) % file_bytes];
}

/* Writes one of 64 pieces of memory and gives it up. The kernel takes it back when it needs
 * memory. */
static void use_and_give_up(void) {
    enum { PIECE = 1 << 20, PIECES = 64 };
    static char *pieces;
    static size_t next;
    if (!pieces) {
        pieces = mmap(NULL, (size_t)PIECE * PIECES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* Whole large pages would be returned at once. */
        if (pieces == MAP_FAILED || madvise(pieces, (size_t)PIECE * PIECES, MADV_NOHUGEPAGE))
            die("memory");
    }
    char *piece = pieces + PIECE * (next++ % PIECES);
    for (size_t at = 0; at < PIECE; at += 4096)
        piece[at] = 1;
    madvise(piece, PIECE, MADV_FREE);
}

/* Starts a process that ends with the server; returns whether this is that process. */
static int is_helper(void) {
    pid_t server = getpid(), child = fork();
    if (child < 0)
        die("fork");
    if (child)
        return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server)
        _exit(0);
    return 1;
}

/* A process that answers each datagram after 3 ms, one at a time, and ends with the server. */
static void start_answerer(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
    socklen_t bytes = sizeof here;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) || getsockname(fd, (struct sockaddr *)&here, &bytes))
        die("datagrams");
    if (is_helper()) {
        for (char byte; (bytes = sizeof from), recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from, &bytes) == 1;) {
            sleep_us(3000);
            sendto(fd, &byte, 1, 0, (struct sockaddr *)&from, bytes);
        }
        _exit(0);
    }
    close(fd);
    asked = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (asked < 0 || connect(asked, (struct sockaddr *)&here, sizeof here))
        die("datagrams");
}

/* Three more processes, of which the last is five times slower. */
static void start_unequal(void) {
    pause_us = 1000;
    for (int i = 0; i < 3; i++)
        if (is_helper()) {
            if (i == 2)
                pause_us = 5000;
            break;
        }
}

/* Keeps two processes that serve; each computes for 50 ms before it listens. */
static void start_recycled(void) {
    for (int alive = 0;; alive--) {
        for (; alive < 2; alive++)
            if (is_helper()) {
                burn_us(50000);
                return;
            }
        wait(NULL);
    }
}

/* Ends the process after its 3,000th request. */
static void compute_and_end(void) {
    static int served;
    compute();
    if (++served == 3000)
        _exit(0);
}

static void look_up(void) {
    char byte = 'x';
    if (send(asked, &byte, 1, 0) != 1 || recv(asked, &byte, 1, 0) != 1)
        die("lookup");
}

static void compute_twice(void) {
    compute();
    compute();
}

static void compute_and_planted(void) {
    planted();
    compute_twice();
}

static void sleep_5ms(void) {
    sleep_us(5000);
}

static void sleep_unequal(void) {
    sleep_us(pause_us);
}

static void burn_5ms(void) {
    burn_us(5000);
}

static void sleep_in_lock(void) {
    sleep_us(1000);
    pthread_mutex_lock(&lock);
    sleep_us(300);
    pthread_mutex_unlock(&lock);
}

/* Holds the lock for 250 ms of each second. */
static _Noreturn void *pause_all(void *argument) {
    (void)argument;
    for (;;) {
        sleep_us(750000);
        pthread_mutex_lock(&lock);
        sleep_us(250000);
        pthread_mutex_unlock(&lock);
    }
}

static void start_pauses(void) {
    start_thread(pause_all, "checkpoint");
}

static void work_unless_paused(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    compute();
}

/* Every second request takes the two locks in the other order. */
static pthread_mutex_t other_lock = PTHREAD_MUTEX_INITIALIZER;

static void take_both(void) {
    static unsigned requests;
    int is_odd = __atomic_fetch_add(&requests, 1, __ATOMIC_RELAXED) & 1;
    pthread_mutex_t *first = is_odd ? &lock : &other_lock, *second = is_odd ? &other_lock : &lock;
    pthread_mutex_lock(first);
    compute();
    pthread_mutex_lock(second);
    compute();
    pthread_mutex_unlock(second);
    pthread_mutex_unlock(first);
}

static void forget_a_file(void) {
    open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void start_spin(void) {
    if (pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE))
        die("spin lock");
}

static void sleep_in_spin_lock(void) {
    pthread_spin_lock(&spinlock);
    sleep_us(300);
    pthread_spin_unlock(&spinlock);
}

static void sleep_in_yielding_lock(void) {
    static char is_held;
    while (__atomic_exchange_n(&is_held, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    sleep_us(300);
    __atomic_store_n(&is_held, 0, __ATOMIC_RELEASE);
}

/* Like cpulimit: a process stops and continues the server, 30 ms each, and ends with it. */
static void start_stopping(void) {
    pid_t server = getpid();
    if (!is_helper())
        return;
    for (int number = SIGSTOP;; number = number == SIGSTOP ? SIGCONT : SIGSTOP) {
        kill(server, number);
        sleep_us(30000);
    }
}

static void start_semaphore(void) {
    if (sem_init(&four, 0, 4))
        die("semaphore");
}

static void sleep_with_semaphore(void) {
    while (sem_wait(&four))
        ;
    sleep_us(2000);
    sem_post(&four);
}

static void drop(int fd) {
    struct connection *connection = connections[fd];
    connections[fd] = NULL;
    if (connection)
        free(connection->state);
    free(connection);
    close(fd);
    if (fault->refusal)
        open_connections--;
}

/* A long answer, after which the connection ends. Returns when the client has taken it. */
static int send_long(int fd) {
    static const char head[] = "HTTP/1.0 200 OK\r\n\r\n";
    static char body[LONG_BODY];
    if (send(fd, head, sizeof head - 1, MSG_NOSIGNAL) > 0)
        send(fd, body, sizeof body, MSG_NOSIGNAL);
    return 0;
}

/* Reads the available bytes and answers every request in them. Returns 0 when the connection is closed. */
static int serve(int fd) {
    struct connection *connection = connections[fd];
    ssize_t got = read(fd, connection->head + connection->held, REQUEST - connection->held);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (got <= 0)
        return 0;
    connection->held += (size_t)got;
    for (;;) {
        char *end = memmem(connection->head, connection->held, "\r\n\r\n", 4);
        if (!end)
            return connection->held < REQUEST;
        size_t used = (size_t)(end + 4 - connection->head);
        if (fault->has_long && !memcmp(connection->head, "GET /long ", 10))
            return send_long(fd);
        memmove(connection->head, connection->head + used, connection->held - used);
        connection->held -= used;
        if (connection->state)
            touch_state(connection->state);
        if (fault->work)
            fault->work();
        const char *sent = answer;
        size_t bytes = answer_bytes, head = fault->sends_apart ? bytes - BODY : 0;
        if (fault->refusal && open_connections > 16) {
            static time_t said;
            if (fault->says_refusal && said != time(NULL)) {
                said = time(NULL);
                fprintf(stderr, "faulty: limiting requests, %d connections are open\n", open_connections);
            }
            sent = fault->refusal;
            bytes = strlen(sent);
        }
        if (fault->send_buffer) {
            sent = big_answer;
            bytes = strlen(big_answer) + sizeof big_answer - BIG_HEAD;
        }
        if (head && send(fd, sent, head, MSG_NOSIGNAL) != (ssize_t)head)
            return 0;
        if (send(fd, sent + head, bytes - head, MSG_NOSIGNAL) != (ssize_t)(bytes - head))
            return 0;
    }
}

/* Accepts a connection. Returns -1 if there is none, or no free descriptor. */
static int take(int listener, int flags) {
    int fd = accept4(listener, NULL, NULL, flags | SOCK_CLOEXEC), on = 1;
    if (fd < 0)
        return -1;
    if (fd >= MAX_FD) {
        close(fd);
        return -1;
    }
    if (!fault->sends_apart && !fault->has_cork)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fault->has_cork)
        setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    if (fault->send_buffer)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &fault->send_buffer, sizeof fault->send_buffer);
    connections[fd] = calloc(1, sizeof *connections[fd]);
    if (!connections[fd])
        die("memory for a connection");
    if (fault->has_state)
        connections[fd]->state = new_state();
    if (fault->refusal)
        open_connections++;
    return fd;
}

static void *thread_of_connection(void *argument) {
    int fd = (int)(intptr_t)argument;
    while (serve(fd))
        ;
    drop(fd);
    return NULL;
}

static void run_threads(int listener) {
    for (;;) {
        int fd = take(listener, 0);
        pthread_t thread;
        if (fd < 0)
            continue;
        if (pthread_create(&thread, NULL, thread_of_connection, (void *)(intptr_t)fd))
            drop(fd);
        else
            pthread_detach(thread);
    }
}

/* A queue that holds each descriptor at most once. */
static struct {
    int fds[MAX_FD];
    unsigned first, count;
    pthread_cond_t filled;
} work_queue = {.filled = PTHREAD_COND_INITIALIZER};

static void work_queue_put(int fd) {
    pthread_mutex_lock(&lock);
    work_queue.fds[(work_queue.first + work_queue.count++) % MAX_FD] = fd;
    pthread_cond_signal(&work_queue.filled);
    pthread_mutex_unlock(&lock);
}

static int work_queue_take(void) {
    pthread_mutex_lock(&lock);
    while (!work_queue.count)
        pthread_cond_wait(&work_queue.filled, &lock);
    int fd = work_queue.fds[work_queue.first];
    work_queue.first = (work_queue.first + 1) % MAX_FD;
    work_queue.count--;
    pthread_mutex_unlock(&lock);
    return fd;
}

/* The epoll set. A worker arms its connection again after each event. */
static int ready_set;

static void *worker(void *argument) {
    struct epoll_event event;
    (void)argument;
    for (;;) {
        int fd = work_queue_take();
        if (!serve(fd)) {
            drop(fd);
            continue;
        }
        event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
        if (epoll_ctl(ready_set, EPOLL_CTL_MOD, fd, &event))
            drop(fd);
    }
    return NULL;
}

static void run_poll(int listener) {
    static struct pollfd set[MAX_FD];
    nfds_t count = 1;
    set[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (;;) {
        if (poll(set, count, -1) < 0 && errno != EINTR)
            die("poll");
        for (nfds_t i = count; i-- > 1;) {
            if (set[i].revents && !serve(set[i].fd)) {
                drop(set[i].fd);
                set[i] = set[--count];
            }
        }
        if (set[0].revents) {
            int fd;
            while ((fd = take(listener, SOCK_NONBLOCK)) >= 0)
                set[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
}

/* With workers each event goes to one of them. */
static void run_epoll(int listener) {
    const int workers = fault->workers;
    const uint32_t interest = EPOLLIN | (workers ? EPOLLONESHOT : 0u);
    struct epoll_event events[64], accepts = {.events = EPOLLIN, .data.fd = listener};
    int is_full = 0;
    if ((ready_set = epoll_create1(EPOLL_CLOEXEC)) < 0 || epoll_ctl(ready_set, EPOLL_CTL_ADD, listener, &accepts))
        die("epoll");
    for (int i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL))
            die("worker");
    }
    for (;;) {
        if (fault->burst_us)
            sleep_us(fault->burst_us);
        int count = epoll_wait(ready_set, events, 64, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd != listener) {
                /* This connection is closed. While another process reads its descriptor in
                   /proc, epoll still reports it. */
                if (!connections[fd])
                    continue;
                if (workers) {
                    work_queue_put(fd);
                } else if (!serve(fd)) {
                    drop(fd);
                    /* A descriptor is free again, so the next connection in the accept queue can be accepted. */
                    if (is_full && !epoll_ctl(ready_set, EPOLL_CTL_ADD, listener, &accepts))
                        is_full = 0;
                }
                continue;
            }
            while ((fd = take(listener, fault->has_long ? 0 : SOCK_NONBLOCK)) >= 0) {
                struct epoll_event reads = {.events = interest, .data.fd = fd};
                if (epoll_ctl(ready_set, EPOLL_CTL_ADD, fd, &reads))
                    drop(fd);
            }
            if (errno == EMFILE && !is_full && !workers && !epoll_ctl(ready_set, EPOLL_CTL_DEL, listener, NULL))
                is_full = 1;
        }
    }
}

static void fill_big_answer(void) {
    snprintf(big_answer, BIG_HEAD, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", sizeof big_answer - BIG_HEAD);
}

/* The slow reader of pipe-log, a separate process that ends with the server. */
static void start_reader(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) || fcntl(ends[1], F_SETPIPE_SZ, 4096) < 0)
        die("pipe");
    if (is_helper()) {
        close(ends[1]);
        for (char line[14]; read(ends[0], line, sizeof line) > 0;)
            sleep_us(1000);
        _exit(0);
    }
    close(ends[0]);
    log_fd = ends[1];
}

static void touch_new_memory(void) {
    char *memory = mmap(NULL, NEW_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    for (size_t at = 0; at < NEW_MEMORY; at += 4096)
        memory[at] = 1;
    munmap(memory, NEW_MEMORY);
}

/* Makes receive processing cost more than the server and its client together, so that two CPUs are enough to show
 * where it runs. Accepted sockets inherit the filter. To find the payload the kernel dissects the packet's
 * headers. */
static void attach_filter(int listener) {
    static struct sock_filter code[DISSECTIONS + 1];
    struct sock_fprog program = {DISSECTIONS + 1, code};
    for (int i = 0; i < DISSECTIONS; i++)
        code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PAY_OFFSET));
    code[DISSECTIONS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
    if (setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program))
        die("socket filter");
}

static const struct fault FAULTS[] = {
    {.name = "none", .what = "epoll, one thread, no fault"},
    {"backlog", "listens with a backlog of 2", .backlog = 2},
    {"poll", "waits in poll() over all connections instead of epoll", .run = run_poll},
    {"memory",
     "reads 1,500 cache lines in a connection's own 64 KiB for each request; each contains the position of the next",
     .has_state = 1},
    {"disk-log", "writes a line for each request to --log and waits until the disk has it (fdatasync)",
     .start = open_log, .work = log_to_disk, .needs_log = 1},
    {"pipe-log", "writes a line for each request to a process that reads 1,000 lines a second", .start = start_reader,
     .work = log_request},
    {"page-faults", "maps 1 MiB of new memory for each request and touches each page", .work = touch_new_memory},
    {"lock", "a thread for each connection sleeps 300 us of every request inside one lock, and 1 ms outside of it",
     .work = sleep_in_lock, .run = run_threads},
    {"spin", "like lock, but 300 us inside a spin lock and no work outside of it", .start = start_spin,
     .work = sleep_in_spin_lock, .run = run_threads},
    {"yield", "like spin, but calls sched_yield() while it waits", .work = sleep_in_yielding_lock, .run = run_threads},
    {"stops", "a process stops the server for 30 ms in every 60", .start = start_stopping, .work = compute},
    {"semaphore", "a thread for each connection; a semaphore lets four at a time sleep 2 ms in a request",
     .start = start_semaphore, .work = sleep_with_semaphore, .run = run_threads},
    {"pool-1", "a thread takes one request at a time from a queue and sleeps 5 ms in it", .work = sleep_5ms,
     .workers = 1},
    {"pool-8", "8 such threads", .work = sleep_5ms, .workers = 8},
    {"pool-32", "32 such threads", .work = sleep_5ms, .workers = 32},
    {"leak", "keeps 4 KiB of every request", .work = leak},
    {"list", "adds every request to a list and searches the whole list", .work = remember},
    {"errors", "computes, and answers 500 if more than 16 connections are open", .work = compute,
     .refusal = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"},
    {"limiter", "like errors, but answers 429, and prints that it limits requests", .work = compute,
     .refusal = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", .says_refusal = 1},
    {"bursts", "answers requests only every 60 ms, with 5 ms of CPU time for each", .burst_us = 60000,
     .work = burn_5ms},
    {"forks", "starts a process for each request, and waits for its end", .work = fork_and_wait},
    {"background", "a second thread uses 3 ms of CPU time in every 10 ms, independent of the load",
     .start = start_background},
    {"paging", "reads 4 random pages of the file --log for each request", .start = map_file, .work = read_pages,
     .needs_log = 1},
    {"lookup", "sends a datagram to another process for each request, which answers it after 3 ms",
     .start = start_answerer, .work = look_up},
    {"unequal", "four processes listen on the port; three sleep 1 ms in a request, one 5 ms", .start = start_unequal,
     .work = sleep_unequal, .shares_port = 1},
    {"recycled", "two processes; each ends after 3,000 requests, and the next one computes for 50 ms before it listens",
     .start = start_recycled, .work = compute_and_end, .shares_port = 1},
    {"compute", "calls compute(), which takes 20 to 40 us of CPU time, twice for every request", .work = compute_twice},
    {"planted", "like compute, and calls planted(), which takes as long as one of them", .work = compute_and_planted},
    {"descriptors", "lowers its own limit of open descriptors to 64", .descriptors = 64, .work = compute},
    {"descriptor-leak", "opens a file in each request and never closes it, with a limit of 2,000 descriptors",
     .descriptors = 2000, .work = forget_a_file},
    {"pauses", "a thread holds a lock that all requests need for 250 ms of each second", .start = start_pauses,
     .work = work_unless_paused, .run = run_threads},
    {"deadlock", "a thread for each connection; every second request takes two locks in the other order",
     .work = take_both, .run = run_threads},
    {"two-writes", "sends head and body of an answer separately, with Nagle's algorithm enabled", .sends_apart = 1},
    {"cork", "sets TCP_CORK on its connections and never clears it", .has_cork = 1},
    {"send-buffer", "a thread for each connection answers with 256 KiB, through a send buffer of 4 KiB",
     .start = fill_big_answer, .send_buffer = 4096, .run = run_threads},
    {"reclaim", "writes 1 MiB of memory for a request, which the kernel may take back afterwards",
     .work = use_and_give_up},
    {"senders",
     "eight threads, which sleep 5 ms in a request; the answer to GET /long is 256 MiB, and one of them waits until "
     "the "
     "client has taken it (slow-readers PORT)",
     .has_long = 1, .work = sleep_5ms, .workers = 8},
    {"filter", "attaches a socket filter that dissects each packet 4,000 times, in softirq", .has_filter = 1},
};

int main(int count, char **words) {
    const char *port = NULL, *address = "127.0.0.1";
    size_t known = sizeof FAULTS / sizeof *FAULTS, which = 0;
    while (count > 1 && which < known && strcmp(words[1], FAULTS[which].name))
        which++;
    for (int i = 2; i + 1 < count; i += 2) {
        if (!strcmp(words[i], "--port"))
            port = words[i + 1];
        else if (!strcmp(words[i], "--address"))
            address = words[i + 1];
        else if (!strcmp(words[i], "--log"))
            log_path = words[i + 1];
        else
            which = known;
    }
    if (count < 2 || count % 2 || which == known || !port || (FAULTS[which].needs_log && !log_path)) {
        fprintf(stderr, "usage: faulty FAULT --port N [--address A] [--log FILE]\nFAULT is one of\n");
        for (size_t i = 0; i < known; i++)
            fprintf(stderr, "  %-12s%s\n", FAULTS[i].name, FAULTS[i].what);
        return 2;
    }
    fault = &FAULTS[which];
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        die("getrlimit");
    if (fault->start)
        fault->start();
    limit.rlim_cur = fault->descriptors ? fault->descriptors : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        die("setrlimit");
    answer_bytes = (size_t)snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
    memset(answer + answer_bytes, 'x', BODY);
    answer_bytes += BODY;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int waits = fault->run == run_threads ? 0 : SOCK_NONBLOCK, on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | waits, 0);
    if (listener < 0 || inet_pton(AF_INET, address, &here.sin_addr) != 1)
        die("address");
    setsockopt(listener, SOL_SOCKET, fault->shares_port ? SO_REUSEPORT : SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) ||
        listen(listener, fault->backlog ? fault->backlog : 4096))
        die("listen");
    if (fault->has_filter)
        attach_filter(listener);
    (fault->run ? fault->run : run_epoll)(listener);
    return 0;
}
