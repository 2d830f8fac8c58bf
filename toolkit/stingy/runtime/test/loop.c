/* Tests the loop, with a server of two stages in a thread: each line is answered with its
 * length. */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stingy/loop.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { READ, ANSWER, STAGES, THE_END = 1000, CLIENTS = 60, LINES = 25, LONGEST = 200 };

struct request {
    long canary;
    struct stingy_request loop;
    size_t used;
    bool is_moved;
    char line[LONGEST];
};

static struct sockaddr_in address;
static struct stingy_loop *loop;
static volatile sig_atomic_t is_ended;
static atomic_uint begun, ended, moved, in_room, most, begins_fail, news, strangers;
static uint32_t places; /* for requests that were not moved; 0: no limit */
static void (*at_turn)(void);
static struct stingy_request *latest;
static int listener, other;
static pthread_t thread;

static struct request *of(struct stingy_task *task) {
    struct request *request = (struct request *)((char *)task - offsetof(struct request, loop));
    CHECK_EQ(request->canary, 42);
    return request;
}

static void read_stage(struct stingy_task *task, void *context) {
    CHECK(context == &address);
    struct request *request = of(task);
    if (stingy_loop_requests(loop) > most)
        most = stingy_loop_requests(loop);
    while (!memchr(request->line, '\n', request->used)) {
        ssize_t got = recv(request->loop.fd, request->line + request->used, LONGEST - request->used, 0);
        if (got < 0 && errno == EAGAIN)
            return request->used > 0 ? stingy_loop_wait(loop, &request->loop, READ)
                                     : stingy_loop_next(loop, &request->loop, false);
        if (got <= 0)
            return stingy_loop_close(loop, &request->loop);
        request->used += (size_t)got;
    }
    stingy_loop_go(loop, &request->loop, ANSWER);
}

static void answer_stage(struct stingy_task *task, void *context) {
    (void)context;
    struct request *request = of(task);
    char answer[32];
    size_t bytes = (size_t)((char *)memchr(request->line, '\n', request->used) - request->line) + 1;
    int length = snprintf(answer, sizeof answer, "%zu\n", bytes - 1);
    if (send(request->loop.fd, answer, (size_t)length, MSG_NOSIGNAL) != length)
        return stingy_loop_close(loop, &request->loop);
    request->used -= bytes;
    memmove(request->line, request->line + bytes, request->used);
    if (request->used > 0)
        return stingy_loop_go(loop, &request->loop, READ);
    stingy_loop_next(loop, &request->loop, true);
}

static struct stingy_request *begin(void *context, int fd) {
    (void)context, (void)fd;
    struct request *request = begins_fail ? NULL : malloc(sizeof *request);
    if (!request)
        return NULL;
    request->canary = 42;
    request->used = 0;
    request->is_moved = false;
    in_room++;
    latest = &request->loop;
    begun++;
    return &request->loop;
}

static void end(void *context, struct stingy_request *given) {
    (void)context;
    struct request *request = of(&given->task);
    in_room -= !request->is_moved;
    request->canary = 0;
    free(request);
    ended++;
}

static struct stingy_request *move(void *context, struct stingy_request *given) {
    (void)context;
    struct request *request = of(&given->task), *copy = malloc(sizeof *copy);
    *copy = *request;
    request->canary = 0;
    free(request);
    copy->is_moved = true;
    in_room--;
    moved++;
    return &copy->loop;
}

static void on_event(void *context, const struct epoll_event *event) {
    (void)context;
    uint64_t count;
    strangers += event->data.fd != other;
    if (event->data.fd != other || read(other, &count, sizeof count) != sizeof count)
        return;
    news += (unsigned)count;
    is_ended = count >= THE_END;
}

static void on_turn(void *context, uint64_t now_ms) {
    (void)context, (void)now_ms;
    if (at_turn)
        at_turn();
}

static uint32_t room(unsigned stage) {
    (void)stage;
    return places == 0 ? UINT32_MAX : in_room < places ? places - in_room : 0;
}

static const struct stingy_stage stages[STAGES] = {{"read", read_stage}, {"answer", answer_stage}};

static void *serve(void *unused) {
    (void)unused;
    stingy_loop_run(loop, &is_ended);
    return NULL;
}

static void start(uint32_t most_requests, bool can_move, uint32_t idle_ms) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1000) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    begun = ended = moved = in_room = most = begins_fail = news = strangers = 0;
    is_ended = 0;
    loop = stingy_loop_new(&(struct stingy_loop_config){.listener = listener,
                                                        .stages = stages,
                                                        .stage_count = STAGES,
                                                        .context = &address,
                                                        .begin = begin,
                                                        .end = end,
                                                        .move = can_move ? move : NULL,
                                                        .event = on_event,
                                                        .turn = on_turn,
                                                        .room = room,
                                                        .most_requests = most_requests,
                                                        .idle_ms = idle_ms,
                                                        .request_offset = offsetof(struct request, loop),
                                                        .prefetch_bytes = sizeof(struct request)});
    CHECK(loop != NULL);
    other = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = other};
    CHECK(epoll_ctl(stingy_loop_epoll(loop), EPOLL_CTL_ADD, other, &event) == 0);
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
}

static struct stingy_gate_stats stop(void) {
    uint64_t end = THE_END;
    CHECK_EQ(write(other, &end, sizeof end), sizeof end);
    pthread_join(thread, NULL);
    struct stingy_gate_stats stats = stingy_loop_gate_stats(loop);
    stingy_loop_delete(loop);
    CHECK_EQ(begun, ended);
    close(other);
    close(listener);
    return stats;
}

static int client(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void say(int fd, const char *words) {
    CHECK_EQ(send(fd, words, strlen(words), MSG_NOSIGNAL), strlen(words));
}

/* The server's next line; "" at the end of the connection. */
static const char *heard(int fd) {
    static char line[64];
    size_t used = 0;
    while (used < sizeof line - 1 && recv(fd, line + used, 1, 0) == 1 && line[used] != '\n')
        used++;
    line[used] = 0;
    return line;
}

#define CHECK_HEARD(fd, words) CHECK(strcmp(heard(fd), words) == 0)

static void every_line_of_every_client_is_answered_in_the_room_there_is(void) {
    start(4, false, 0);
    int clients[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i] = client();
    for (unsigned line = 0; line < LINES; line++) {
        for (unsigned i = 0; i < CLIENTS; i++) {
            char words[LONGEST];
            unsigned length = (i * 7 + line * 3) % 90;
            memset(words, 'x', length);
            strcpy(words + length, line % 3 == 2 ? "\nab\n" : "\n");
            say(clients[i], words);
        }
        for (unsigned i = 0; i < CLIENTS; i++) {
            CHECK_EQ(atoi(heard(clients[i])), (i * 7 + line * 3) % 90);
            if (line % 3 == 2)
                CHECK_HEARD(clients[i], "2");
        }
    }
    CHECK(most <= 4);
    for (unsigned i = 0; i < CLIENTS; i++)
        close(clients[i]);
    struct stingy_gate_stats stats = stop();
    CHECK_EQ(stats.accepted, CLIENTS);
    CHECK_EQ(stats.bound, begun);
}

static void a_line_in_parts_waits_and_does_not_keep_others_out(void) {
    places = 1;
    start(0, true, 0);
    int slow = client(), quick = client();
    say(slow, "ab");
    while (begun == 0)
        sched_yield();
    say(quick, "abc\n");
    CHECK_HEARD(quick, "3");
    CHECK_EQ(moved, 1);
    say(slow, "cd\n");
    CHECK_HEARD(slow, "4");
    close(slow), close(quick);
    stop();
    places = 0;
}

static void where_requests_are_counted_none_is_moved_as_that_makes_no_room(void) {
    enum { SLOW = 4 };
    int slow[SLOW];
    start(SLOW, true, 0);
    for (unsigned i = 0; i < SLOW; i++)
        say(slow[i] = client(), "ab");
    while (begun < SLOW)
        sched_yield();
    int quick = client();
    say(quick, "abc\n");
    CHECK_HEARD(quick, "3");
    CHECK_EQ(moved, 0);
    close(quick);
    for (unsigned i = 0; i < SLOW; i++)
        close(slow[i]);
    CHECK_EQ(stop().bound_without_room, 1);
}

static int leaver, newcomer;
static bool is_newcomer;
static atomic_int step;

/* When the leaver's request waits, the newcomer connects and the leaver leaves. In the next
 * turn, which has these two events, the server closes the leaver. */
static void the_leaver_is_closed(void) {
    if (step == 0 && stingy_loop_gate_stats(loop).waiting == 1) {
        if (is_newcomer)
            newcomer = client();
        say(leaver, "cd");
        step = 1;
    } else if (step == 1) {
        stingy_loop_close(loop, latest);
        step = 2;
    }
}

static void an_event_of_a_connection_closed_in_the_same_turn_is_nobodys(void) {
    for (int i = 0; i < 2; i++) {
        is_newcomer = i;
        step = 0;
        at_turn = the_leaver_is_closed;
        start(0, false, 0);
        say(leaver = client(), "ab");
        while (step < 2)
            sched_yield();
        struct stingy_gate_stats stats = stop();
        at_turn = NULL;
        CHECK_EQ(stats.accepted, 1 + is_newcomer);
        CHECK_EQ(strangers, 0);
        CHECK_EQ(begun, 1);
        close(leaver);
        if (is_newcomer)
            close(newcomer);
    }
}

static void idle_connections_expire_and_the_rest_is_closed_at_the_end(void) {
    start(0, false, 100);
    int idle = client();
    CHECK_HEARD(idle, "");
    close(idle);
    stop();
    start(0, false, 0);
    int kept = client(), half = client();
    say(kept, "a\n");
    CHECK_HEARD(kept, "1");
    say(half, "ab");
    while (begun < 2)
        sched_yield();
    stop();
    CHECK_HEARD(kept, "");
    CHECK_HEARD(half, "");
    close(kept), close(half);
}

static void without_memory_for_a_request_its_connection_is_closed(void) {
    start(0, false, 0);
    begins_fail = 1;
    int refused = client();
    say(refused, "a\n");
    CHECK_HEARD(refused, "");
    begins_fail = 0;
    int served = client();
    say(served, "a\n");
    CHECK_HEARD(served, "1");
    close(refused), close(served);
    stop();
}

static void events_of_the_servers_own_descriptors_are_handed_to_it(void) {
    start(0, false, 0);
    uint64_t five = 5;
    CHECK_EQ(write(other, &five, sizeof five), sizeof five);
    while (news != 5)
        sched_yield();
    stop();
}

static void what_is_no_configuration_is_refused(void) {
    CHECK(stingy_loop_new(NULL) == NULL && errno == EINVAL);
    CHECK(stingy_loop_new(&(struct stingy_loop_config){.begin = begin}) == NULL && errno == EINVAL);
    struct stingy_loop_config no_listener = {
        .listener = 1000000, .stages = stages, .stage_count = STAGES, .begin = begin, .end = end};
    CHECK(stingy_loop_new(&no_listener) == NULL && errno == EBADF);
    stingy_loop_delete(NULL);
}

int main(void) {
    RUN(every_line_of_every_client_is_answered_in_the_room_there_is);
    RUN(a_line_in_parts_waits_and_does_not_keep_others_out);
    RUN(where_requests_are_counted_none_is_moved_as_that_makes_no_room);
    RUN(an_event_of_a_connection_closed_in_the_same_turn_is_nobodys);
    RUN(idle_connections_expire_and_the_rest_is_closed_at_the_end);
    RUN(without_memory_for_a_request_its_connection_is_closed);
    RUN(events_of_the_servers_own_descriptors_are_handed_to_it);
    RUN(what_is_no_configuration_is_refused);
    return check_end();
}
