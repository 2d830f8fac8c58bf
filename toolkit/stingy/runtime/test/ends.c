/* Tests the report at a program's end, and that the program ends as it would without the
 * library. */
#define _GNU_SOURCE
#include "check.h"
#include "maps.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct made_map made;
static char folder[] = "/tmp/stingy-test-XXXXXX", stats_path[64], profile_path[64], other_path[64];
static int to_child, from_child; /* socket pair: a byte says that the child is ready */

static void start(void) {
    made_begin(&made, 1);
    made.objects[0] = (struct stingy_object){"a", 64, 0};
    made.regions[0] = (struct stingy_region){"a", 0, 64, 32};
    made.map.region_count = 1, made.map.cache_bytes = 4096;
    if (stingy_init(&made.map, NULL) != 0)
        _exit(99);
}

static void allocate(unsigned blocks) {
    while (blocks--)
        stingy_free(0, stingy_alloc(0));
}

static void ready(void) {
    if (write(to_child, "r", 1) != 1)
        _exit(98);
}

/* Returns how a child ends that runs `act` and then gets the signal, if one is given. */
static int ends(void (*act)(void), int signal_number) {
    int ends_of_pair[2], status = -1;
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends_of_pair) != 0)
        return -1;
    from_child = ends_of_pair[0], to_child = ends_of_pair[1];
    unlink(stats_path), unlink(profile_path), unlink(other_path);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(20);
        setenv("STINGY_STATS", stats_path, 1);
        setenv("STINGY_PROFILE", profile_path, 1);
        act();
        exit(3);
    }
    close(to_child);
    if (signal_number && read(from_child, &byte, 1) == 1)
        kill(child, signal_number);
    waitpid(child, &status, 0);
    close(from_child);
    return status;
}

static char text[4096];
static const char *contents(const char *path) {
    int file = open(path, O_RDONLY);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    close(file);
    text[got < 0 ? 0 : got] = 0;
    return text;
}

static bool says(const char *path, const char *begin, const char *words) {
    const char *all = contents(path);
    size_t length = strlen(all);
    return strncmp(all, begin, strlen(begin)) == 0 && strstr(all, words) && length && all[length - 1] == '\n';
}

static bool both_say(const char *stats_words, const char *profile_words) {
    return says(stats_path, "{\"pid\":", stats_words) && says(profile_path, "{\"stingy_profile\":1,", profile_words);
}

static void wait_for_a_signal(void) {
    start();
    allocate(5);
    ready();
    for (;;)
        pause();
}
static void a_signal_that_ends_the_program_writes_the_reports_and_still_ends_it(void) {
    static const int signals[] = {SIGTERM, SIGINT};
    for (unsigned i = 0; i < 2; i++) {
        int status = ends(wait_for_a_signal, signals[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        CHECK(both_say("\"allocations\":5,", "\"count\":5,"));
    }
}

static volatile sig_atomic_t seen;
static void own_handler(int number) {
    seen = number;
}
static void set_handler(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler}, old;
    sigaction(SIGTERM, &action, &old);
    /* Like servers that check whether the signal is ignored. */
    if (old.sa_handler == SIG_IGN)
        _exit(97);
}
static void wait_for_own_handler(void) {
    sigset_t blocked, none;
    sigemptyset(&none), sigemptyset(&blocked), sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    allocate(6);
    ready();
    if (sigsuspend(&none) == -1 && seen == SIGTERM)
        exit(7);
    _exit(96);
}
static void handle_after_start(void) {
    start();
    set_handler(own_handler);
    wait_for_own_handler();
}
static void handle_before_start(void) {
    set_handler(own_handler);
    start();
    wait_for_own_handler();
}
static void ignore(void) {
    set_handler(SIG_IGN);
    start();
    allocate(7);
    ready();
    raise(SIGTERM);
    exit(8);
}
static void a_server_that_handles_or_ignores_the_signal_keeps_to_that(void) {
    int status = ends(handle_after_start, SIGTERM);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && both_say("\"allocations\":6,", "\"count\":6,"));
    status = ends(handle_before_start, SIGTERM);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && both_say("\"allocations\":6,", "\"count\":6,"));
    status = ends(ignore, SIGTERM);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 8 && both_say("\"allocations\":7,", "\"count\":7,"));
}

static void without_reports(void) {
    unsetenv("STINGY_STATS");
    unsetenv("STINGY_PROFILE");
    start();
    struct sigaction now;
    sigaction(SIGTERM, NULL, &now);
    exit(now.sa_handler == SIG_DFL ? 4 : 5);
}
static void without_reports_no_signal_is_handled(void) {
    int status = ends(without_reports, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
}

/* Like servers that start as daemons; the numbers then go to clients. */
static void close_everything(void) {
    start();
    allocate(8);
    for (int i = 3; i < 100; i++)
        close(i);
    for (int i = 0; i < 5; i++)
        if (open(other_path, O_CREAT | O_RDWR, 0600) < 0)
            _exit(95);
    exit(9);
}
static void a_descriptor_that_is_anothers_by_now_is_left_alone(void) {
    int status = ends(close_everything, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    CHECK(both_say("\"allocations\":8,", "\"count\":8,"));
    struct stat other;
    CHECK(stat(other_path, &other) == 0 && other.st_size == 0);
}

/* A child that a server starts for another program (CGI); its standard error is the client. */
static void be_a_clients_child(void) {
    setenv("STINGY_STATS", "stderr", 1);
    start();
    allocate(9);
    dup2(to_child, STDERR_FILENO);
    exit(10);
}
static void a_standard_error_that_is_a_clients_by_now_is_left_alone(void) {
    int status = ends(be_a_clients_child, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 10);
    CHECK(says(profile_path, "{\"stingy_profile\":1,", "\"count\":9,"));
}
static int bytes_from_client_child;
static void count_what_the_client_gets(void) {
    int pair[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        _exit(94);
    pid_t child = fork();
    if (child == 0) {
        to_child = pair[1];
        be_a_clients_child();
    }
    close(pair[1]);
    waitpid(child, &bytes_from_client_child, 0);
    _exit(recv(pair[0], &byte, 1, 0) == 0 ? 11 : 12);
}
static void a_client_gets_nothing_of_the_reports(void) {
    int status = ends(count_what_the_client_gets, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 11);
}

/* A process allocates `first` blocks, forks a child that allocates `more`, and allocates `rest`
 * when the child has ended. */
static void fork_between(unsigned first, unsigned more, unsigned rest) {
    start();
    allocate(first);
    pid_t child = fork();
    if (child == 0) {
        allocate(more);
        exit(0);
    }
    waitpid(child, NULL, 0);
    allocate(rest);
    exit(13);
}
static void begin_as_a_daemon(void) {
    fork_between(1, 20, 0);
}
static void have_a_short_child(void) {
    fork_between(10, 1, 10);
}
static void of_processes_that_forked_the_busiest_has_the_file(void) {
    int status = ends(begin_as_a_daemon, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 13);
    CHECK(both_say("\"allocations\":21,", "\"count\":21,"));
    status = ends(have_a_short_child, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 13);
    CHECK(both_say("\"allocations\":20,", "\"count\":20,"));
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    snprintf(stats_path, sizeof stats_path, "%s/stats", folder);
    snprintf(profile_path, sizeof profile_path, "%s/profile", folder);
    snprintf(other_path, sizeof other_path, "%s/other", folder);
    RUN(a_signal_that_ends_the_program_writes_the_reports_and_still_ends_it);
    RUN(a_server_that_handles_or_ignores_the_signal_keeps_to_that);
    RUN(without_reports_no_signal_is_handled);
    RUN(a_descriptor_that_is_anothers_by_now_is_left_alone);
    RUN(a_standard_error_that_is_a_clients_by_now_is_left_alone);
    RUN(a_client_gets_nothing_of_the_reports);
    RUN(of_processes_that_forked_the_busiest_has_the_file);
    unlink(stats_path), unlink(profile_path), unlink(other_path), rmdir(folder);
    return check_end();
}
