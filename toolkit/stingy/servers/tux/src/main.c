/* tux: options, sockets, threads. */
#define _GNU_SOURCE
#include "tux.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static _Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "tux: %s %s: %s\n", what, which, strerror(errno));
    exit(1);
}

static _Noreturn void usage(void) {
    fputs("usage: tux --port N --documents DIR [--address A] [--threads N] [--timeout SECONDS] [--connections N]\n"
          "           [--access-log FILE] [--vhosts] [--user NAME]\n",
          stderr);
    exit(2);
}

static unsigned number(const char *text, unsigned least, unsigned most) {
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || *end || end == text || n < least || n > most) {
        fprintf(stderr, "tux: %s is not a number from %u to %u\n", text, least, most);
        exit(2);
    }
    return (unsigned)n;
}

static struct tux_options parse_options(int argc, char **argv) {
    static const struct option names[] = {
        {"port", 1, 0, 'p'},       {"documents", 1, 0, 'd'},
        {"address", 1, 0, 'a'},    {"threads", 1, 0, 't'},
        {"timeout", 1, 0, 'o'},    {"connections", 1, 0, 'c'},
        {"access-log", 1, 0, 'l'}, {"vhosts", 0, 0, 'v'},
        {"user", 1, 0, 'u'},       {0, 0, 0, 0},
    };
    struct tux_options options = {.address = "127.0.0.1", .threads = 1, .timeout_s = 15};
    struct rlimit descriptors;
    getrlimit(RLIMIT_NOFILE, &descriptors);
    options.connections = descriptors.rlim_cur > 100000 ? 100000 : (unsigned)descriptors.rlim_cur;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'p':
            options.port = (uint16_t)number(optarg, 1, 65535);
            break;
        case 'd':
            options.documents = optarg;
            break;
        case 'a':
            options.address = optarg;
            break;
        case 't':
            options.threads = number(optarg, 1, 64);
            break;
        case 'o':
            options.timeout_s = number(optarg, 1, 86400);
            break;
        case 'c':
            options.connections = number(optarg, 1, 1000000);
            break;
        case 'l':
            options.access_log = optarg;
            break;
        case 'v':
            options.has_vhosts = true;
            break;
        case 'u':
            options.user = optarg;
            break;
        default:
            usage();
        }
    }
    if (optind != argc || !options.port || !options.documents)
        usage();
    /* Descriptors for the log, the documents, listings and files, in addition to the connections. */
    unsigned own = 64 + FILE_SLOTS * options.threads;
    if (options.connections + own > descriptors.rlim_cur)
        options.connections =
            descriptors.rlim_cur > 2 * own ? (unsigned)descriptors.rlim_cur - own : (unsigned)descriptors.rlim_cur / 2;
    options.connections = (options.connections + options.threads - 1) / options.threads;
    return options;
}

static int listen_on(const struct tux_options *options) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(options->port)};
    bool is_v6 = inet_pton(AF_INET6, options->address, &v6.sin6_addr) == 1;
    if (!is_v6 && inet_pton(AF_INET, options->address, &v4.sin_addr) != 1) {
        errno = EINVAL;
        fail("cannot use the address", options->address);
    }
    int one = 1, fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (options->threads > 1)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    /* Accepted connections inherit this option. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(fd, is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4, is_v6 ? sizeof v6 : sizeof v4) != 0 ||
        listen(fd, 65535) != 0)
        fail("cannot listen on", options->address);
    return fd;
}

static void become(const char *user) {
    struct passwd *entry = user ? getpwnam(user) : NULL;
    if (!user)
        return;
    if (!entry || setgroups(0, NULL) != 0 || setgid(entry->pw_gid) != 0 || setuid(entry->pw_uid) != 0)
        fail("cannot become", user);
}

static void end(int signal_number) {
    (void)signal_number;
    tux_is_ended = true;
}

static void *run_thread(void *thread) {
    event_loop(thread);
    return NULL;
}

int main(int argc, char **argv) {
    struct tux_options options = parse_options(argc, argv);
    int documents = open(options.documents, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (documents < 0)
        fail("cannot open the folder", options.documents);
    FILE *log = NULL;
    if (options.access_log && !(log = fopen(options.access_log, "ae")))
        fail("cannot open the log", options.access_log);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = end}, NULL);
    struct tux_thread *threads = calloc(options.threads, sizeof *threads);
    pthread_t *others = calloc(options.threads, sizeof *others);
    if (!threads || !others)
        fail("no memory for", "threads");
    for (unsigned i = 0; i < options.threads; i++)
        threads[i] = (struct tux_thread){.options = &options,
                                         .documents = documents,
                                         .log = log,
                                         .listener = listen_on(&options),
                                         .epoll = epoll_create1(EPOLL_CLOEXEC),
                                         .now_ms = tux_now_ms()};
    become(options.user);
    for (unsigned i = 1; i < options.threads; i++)
        if (pthread_create(&others[i], NULL, run_thread, &threads[i]) != 0)
            fail("cannot start", "a thread");
    event_loop(&threads[0]);
    for (unsigned i = 1; i < options.threads; i++)
        pthread_join(others[i], NULL);
    for (unsigned i = 0; i < options.threads; i++)
        tux_forget_files(&threads[i]);
    if (log)
        fclose(log);
    free(threads);
    free(others);
    return 0;
}
