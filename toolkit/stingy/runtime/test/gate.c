/* Tests the gate, with sockets of the loopback and the test's own clock. */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stingy/gate.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { CLIENTS = 200 };
static int epoll = -1, listener = -1;
static struct sockaddr_in address;
static struct stingy_gate *gate;
static uint32_t room, most_connections;
static int bound[10000], woken[1000], expired[1000];
static unsigned bound_count, woken_count, expired_count, evict_count;
static bool is_evictable, refuses;
static uint64_t now_ms;

static uint32_t room_now(void *c) {
    (void)c;
    return room;
}
static bool bind_one(void *c, int fd) {
    (void)c;
    bound[bound_count++] = fd;
    if (refuses)
        return false;
    if (room > 0)
        room--;
    return true;
}
static void wake_one(void *c, int fd) {
    (void)c;
    woken[woken_count++] = fd;
}
static void expire_one(void *c, int fd, bool was_idle) {
    (void)c, (void)was_idle;
    expired[expired_count++] = fd;
    stingy_gate_forget(gate, fd);
    close(fd);
}
static bool evict_one(void *c, int fd) {
    (void)c, (void)fd;
    evict_count++;
    room += is_evictable;
    return is_evictable;
}

static void start(uint32_t first_room) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1000) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    room = first_room, now_ms = 1000, is_evictable = refuses = false;
    bound_count = woken_count = expired_count = evict_count = 0;
    gate = stingy_gate_new(&(struct stingy_gate_config){.epoll = epoll,
                                                        .listener = listener,
                                                        .room = room_now,
                                                        .bind = bind_one,
                                                        .wake = wake_one,
                                                        .expire = expire_one,
                                                        .evict = evict_one,
                                                        .most_connections = most_connections,
                                                        .resume_room = 4,
                                                        .grace_ms = 20,
                                                        .patience_ms = 200,
                                                        .idle_ms = 5000,
                                                        .waiting_ms = 7000});
    CHECK(gate != NULL);
}

static void stop(void) {
    stingy_gate_delete(gate);
    close(listener);
    close(epoll);
    for (int fd = epoll + 1; fd < epoll + 600; fd++)
        close(fd);
}

/* Connections that wait for accept. */
static unsigned queued(void) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    CHECK(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
    return info.tcpi_unacked;
}

/* Whether the other end's kernel has received all written bytes. */
static bool has_come(int fd) {
    int left = -1;
    CHECK(ioctl(fd, SIOCOUTQ, &left) == 0);
    return left == 0;
}

/* On a busy CPU the loopback may be late. When this condition holds, the client's action has
 * arrived. */
#define AWAIT(condition)                                           \
    do {                                                           \
        for (int tries = 0; !(condition) && tries < 5000; tries++) \
            usleep(1000);                                          \
        CHECK(condition);                                          \
    } while (0)

static void say(int fd, const char *text) {
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    AWAIT(has_come(fd));
}

static int client(const char *says) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned before = queued();
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    AWAIT(queued() > before);
    if (says)
        say(fd, says);
    return fd;
}

/* Passes events from epoll to the gate until there are none; returns how many times there were
 * some. */
static unsigned turn(void) {
    struct epoll_event events[64];
    unsigned wakes = 0;
    for (int n; (n = epoll_wait(epoll, events, 64, 0)) > 0; wakes++) {
        for (int i = 0; i < n; i++)
            CHECK(stingy_gate_event(gate, &events[i], now_ms));
        stingy_gate_admit(gate, now_ms);
        if (wakes > 50)
            break;
    }
    stingy_gate_admit(gate, now_ms);
    return wakes;
}

static struct stingy_gate_stats stats(void) {
    return stingy_gate_stats(gate);
}

static void a_connection_without_bytes_gets_no_request(void) {
    start(10);
    int a = client(NULL), b = client("GET");
    turn();
    CHECK_EQ(bound_count, 1);
    CHECK_EQ(stats().idle, 1);
    say(a, "G");
    turn();
    CHECK_EQ(bound_count, 2);
    CHECK_EQ(stats().busy, 2);
    close(a), close(b);
    stop();
}

static void without_room_the_listener_is_disarmed_and_nothing_wakes_the_loop(void) {
    start(3);
    for (unsigned i = 0; i < CLIENTS; i++)
        client("GET");
    CHECK(turn() < 20);
    CHECK_EQ(bound_count, 3);
    CHECK(!stats().is_listening);
    for (unsigned i = 0; i < 50; i++)
        client("GET");
    CHECK_EQ(turn(), 0);
    CHECK(stingy_gate_timeout_ms(gate, now_ms) > 0);
    /* The first one continues with its next request. Because another one is still waiting, no
     * new connection is accepted. */
    room++;
    stingy_gate_park(gate, bound[0], false, now_ms);
    turn();
    CHECK_EQ(bound_count, 4);
    CHECK(!stats().is_listening);
    while (stats().ready > 0 || !stats().is_listening) {
        room += 4;
        turn();
    }
    room = 1000;
    turn();
    CHECK_EQ(bound_count, CLIENTS + 50);
    stop();
}

static void connections_wait_for_room_in_the_order_of_their_bytes(void) {
    start(1);
    int late = client(NULL);
    for (unsigned i = 0; i < 10; i++)
        client("GET");
    turn();
    say(late, "GET");
    turn();
    for (unsigned i = 1; i < 11; i++) {
        room = 1;
        stingy_gate_admit(gate, now_ms);
    }
    CHECK_EQ(bound_count, 11);
    for (unsigned i = 0; i < 10; i++)
        CHECK(bound[i] != bound[10]);
    stop();
}

static void bytes_that_come_while_busy_are_not_forgotten(void) {
    start(5);
    int a = client("GET");
    turn();
    say(a, "GET");
    turn();
    CHECK_EQ(bound_count, 1);
    stingy_gate_park(gate, bound[0], false, now_ms);
    turn();
    CHECK_EQ(bound_count, 2);
    say(a, "GET");
    turn();
    CHECK(!stingy_gate_wait(gate, bound[0], now_ms));
    CHECK(stingy_gate_wait(gate, bound[0], now_ms));
    say(a, "GET");
    turn();
    CHECK_EQ(woken_count, 1);
    stingy_gate_park(gate, bound[0], false, now_ms);
    CHECK_EQ(stats().idle, 1);
    /* The client's end comes while the request is in flight, and only once. */
    say(a, "GET");
    turn();
    close(a);
    /* On a busy machine the end may arrive a moment later. */
    usleep(50000);
    turn();
    CHECK_EQ(stingy_gate_wait(gate, bound[0], now_ms), false);
    stingy_gate_park(gate, bound[0], false, now_ms);
    turn();
    CHECK_EQ(bound_count, 4);
    stop();
}

static void the_clients_end_is_not_forgotten_when_it_comes_with_its_bytes(void) {
    start(5);
    int together = client("G"), later = client("G");
    close(together);
    usleep(50000);
    turn();
    CHECK_EQ(bound_count, 2);
    CHECK(!stingy_gate_wait(gate, bound[0], now_ms));
    CHECK(stingy_gate_wait(gate, bound[0], now_ms));
    CHECK(stingy_gate_wait(gate, bound[1], now_ms));
    say(later, "ET");
    close(later);
    usleep(50000);
    turn();
    CHECK_EQ(woken_count, 1);
    CHECK(!stingy_gate_wait(gate, bound[1], now_ms));
    CHECK(stingy_gate_wait(gate, bound[1], now_ms));
    stop();
}

static void an_error_is_news_and_not_the_clients_end(void) {
    start(5);
    int a = client("GET");
    turn();
    CHECK(stingy_gate_event(gate, &(struct epoll_event){EPOLLERR, {.fd = bound[0]}}, now_ms));
    stingy_gate_park(gate, bound[0], false, now_ms);
    turn();
    CHECK_EQ(bound_count, 2);
    stingy_gate_park(gate, bound[0], false, now_ms);
    CHECK_EQ(turn(), 0);
    CHECK_EQ(bound_count, 2);
    CHECK_EQ(stats().idle, 1);
    close(a);
    stop();
}

static void slow_clients_are_moved_out_of_the_room_after_a_grace(void) {
    start(2);
    is_evictable = true;
    client("G"), client("G"), client("GET");
    turn();
    CHECK(stingy_gate_wait(gate, bound[0], now_ms) && stingy_gate_wait(gate, bound[1], now_ms));
    turn();
    CHECK_EQ(bound_count, 2);
    CHECK_EQ(stingy_gate_timeout_ms(gate, now_ms), 20);
    now_ms += 20;
    turn();
    CHECK_EQ(bound_count, 3);
    CHECK_EQ(evict_count, 1);
    CHECK_EQ(stats().waiting, 2);
    /* It still expires. */
    now_ms += 7000;
    turn();
    CHECK_EQ(expired_count, 2);
    stop();
}

static void where_nobody_can_be_moved_patience_ends_and_the_request_spills(void) {
    start(1);
    client("G"), client("GET"), client("GET");
    turn();
    CHECK(stingy_gate_wait(gate, bound[0], now_ms));
    now_ms += 50;
    turn();
    CHECK_EQ(evict_count, 1);
    turn();
    CHECK_EQ(evict_count, 1);
    CHECK_EQ(stingy_gate_timeout_ms(gate, now_ms), 150);
    now_ms += 150;
    turn();
    CHECK_EQ(bound_count, 3);
    CHECK_EQ(stats().bound_without_room, 2);
    stop();
}

static void new_clients_are_accepted_though_slow_ones_keep_the_room(void) {
    for (int can_move = 0; can_move < 2; can_move++) {
        start(2);
        is_evictable = can_move;
        client("G"), client("G"), client("GET");
        turn();
        CHECK(stingy_gate_wait(gate, bound[0], now_ms) && stingy_gate_wait(gate, bound[1], now_ms));
        now_ms += can_move ? 20 : 200;
        turn();
        CHECK_EQ(bound_count, 3);
        CHECK(stingy_gate_wait(gate, bound[2], now_ms));
        client("GET");
        /* The loop wakes up when it is time to accept; that client then waits for room like
         * those before it. */
        for (turn(); bound_count < 4 && now_ms < 2000; turn()) {
            int timeout_ms = stingy_gate_timeout_ms(gate, now_ms);
            CHECK(timeout_ms > 0 && timeout_ms <= 200);
            now_ms += (uint64_t)timeout_ms;
            turn();
        }
        CHECK_EQ(bound_count, 4);
        CHECK(stingy_gate_timeout_ms(gate, now_ms) != 0);
        stop();
    }
}

static void idle_connections_expire(void) {
    start(5);
    client(NULL);
    turn();
    now_ms += 3000;
    client(NULL);
    turn();
    CHECK_EQ(stingy_gate_timeout_ms(gate, now_ms), 2000);
    now_ms += 2000;
    turn();
    CHECK_EQ(expired_count, 1);
    CHECK_EQ(stats().idle, 1);
    stop();
}

static void a_server_that_cannot_take_a_connection_has_it_closed(void) {
    start(5);
    refuses = true;
    int a = client("GET");
    turn();
    char byte;
    CHECK(read(a, &byte, 1) <= 0);
    CHECK_EQ(stats().busy + stats().idle + stats().ready, 0);
    close(a);
    stop();
}

static void out_of_descriptors_the_loop_sleeps_and_tries_again_later(void) {
    start(5);
    client("GET");
    /* Open descriptors stay open; the next one is refused. */
    struct rlimit old, low;
    getrlimit(RLIMIT_NOFILE, &old);
    int next = dup(0);
    close(next);
    low = old;
    low.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &low);
    CHECK(turn() <= 2);
    CHECK_EQ(stats().accept_failures, 1);
    CHECK_EQ(turn(), 0);
    CHECK_EQ(stingy_gate_timeout_ms(gate, now_ms), 100);
    setrlimit(RLIMIT_NOFILE, &old);
    now_ms += 100;
    turn();
    turn();
    CHECK_EQ(bound_count, 1);
    stop();
}

static void clients_beyond_the_most_connections_wait_until_there_is_a_place(void) {
    enum { ALL = 8, PLACES = 2 };
    int clients[ALL];
    most_connections = PLACES;
    start(10);
    most_connections = 0;
    for (int i = 0; i < ALL; i++)
        clients[i] = client("GET");
    for (unsigned served = 0; served < ALL; served += PLACES) {
        turn();
        CHECK_EQ(bound_count, served + PLACES);
        CHECK(!stats().is_listening);
        CHECK_EQ(turn(), 0);
        for (unsigned i = served; i < bound_count; i++, room++) {
            char request[3];
            CHECK(read(bound[i], request, sizeof request) == 3 && write(bound[i], "x", 1) == 1);
            AWAIT(has_come(bound[i]));
            stingy_gate_forget(gate, bound[i]);
            close(bound[i]);
        }
        stingy_gate_admit(gate, now_ms);
    }
    CHECK_EQ(stats().accept_failures, 0);
    for (int i = 0; i < ALL; i++) {
        char byte = 0;
        CHECK(recv(clients[i], &byte, 1, MSG_DONTWAIT) == 1 && byte == 'x');
        close(clients[i]);
    }
    stop();
}

static void descriptors_of_others_are_left_to_them(void) {
    start(1);
    CHECK(!stingy_gate_event(gate, &(struct epoll_event){EPOLLIN, {.fd = 100000}}, now_ms));
    CHECK(!stingy_gate_event(gate, &(struct epoll_event){EPOLLIN, {.fd = 0}}, now_ms));
    CHECK(!stingy_gate_adopt(gate, -1, now_ms));
    CHECK(!stingy_gate_wait(gate, 5000, now_ms));
    stingy_gate_park(gate, 5000, true, now_ms);
    stingy_gate_forget(gate, 5000);
    stop();
}

int main(void) {
    RUN(a_connection_without_bytes_gets_no_request);
    RUN(without_room_the_listener_is_disarmed_and_nothing_wakes_the_loop);
    RUN(connections_wait_for_room_in_the_order_of_their_bytes);
    RUN(bytes_that_come_while_busy_are_not_forgotten);
    RUN(the_clients_end_is_not_forgotten_when_it_comes_with_its_bytes);
    RUN(an_error_is_news_and_not_the_clients_end);
    RUN(slow_clients_are_moved_out_of_the_room_after_a_grace);
    RUN(where_nobody_can_be_moved_patience_ends_and_the_request_spills);
    RUN(new_clients_are_accepted_though_slow_ones_keep_the_room);
    RUN(idle_connections_expire);
    RUN(a_server_that_cannot_take_a_connection_has_it_closed);
    RUN(out_of_descriptors_the_loop_sleeps_and_tries_again_later);
    RUN(clients_beyond_the_most_connections_wait_until_there_is_a_place);
    RUN(descriptors_of_others_are_left_to_them);
    return check_end();
}
