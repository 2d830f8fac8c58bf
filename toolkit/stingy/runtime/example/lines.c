/* A server of three stages on stingy/loop.h: answers each line with its length and the line.
 *
 * usage: lines [PORT] [MOST_REQUESTS]
 *
 * It allocates with malloc, so there is no slab to limit its requests; MOST_REQUESTS does that
 * instead. With a map from stingygen, use `.room = stingy_room, .admission_stage =
 * STINGY_STAGE_read_line`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <stingy/loop.h>
#include <string.h>
#include <sys/socket.h>

enum { LONGEST_LINE = 1000 };
enum stage { READ_LINE, ANSWER_LINE, SEND_ANSWER, STAGES };

struct request {
    struct stingy_request loop;
    size_t used, answered, sent;
    bool may_have_more; /* the last read was full */
    char line[LONGEST_LINE], answer[LONGEST_LINE + 16];
};

static struct stingy_loop *loop;
static volatile sig_atomic_t is_ended;

static void read_line(struct stingy_task *task, void *context) {
    (void)context;
    struct request *request = (struct request *)task;
    while (!memchr(request->line, '\n', request->used)) {
        size_t room = sizeof request->line - request->used;
        ssize_t got = room > 0 ? recv(request->loop.fd, request->line + request->used, room, 0) : 0;
        if (got < 0 && errno == EAGAIN && request->used > 0)
            return stingy_loop_wait(loop, &request->loop, READ_LINE);
        if (got < 0 && errno == EAGAIN)
            return stingy_loop_next(loop, &request->loop, false); /* spurious wake-up */
        if (got <= 0)
            return stingy_loop_close(loop, &request->loop);
        request->used += (size_t)got;
        request->may_have_more = (size_t)got == room;
    }
    stingy_loop_go(loop, &request->loop, ANSWER_LINE);
}

static void answer_line(struct stingy_task *task, void *context) {
    (void)context;
    struct request *request = (struct request *)task;
    size_t bytes = (size_t)((char *)memchr(request->line, '\n', request->used) - request->line) + 1;
    int head = snprintf(request->answer, sizeof request->answer, "%zu ", bytes - 1);
    memcpy(request->answer + head, request->line, bytes);
    request->answered = (size_t)head + bytes;
    request->sent = 0;
    request->used -= bytes;
    memmove(request->line, request->line + bytes, request->used);
    stingy_loop_go(loop, &request->loop, SEND_ANSWER);
}

static void send_answer(struct stingy_task *task, void *context) {
    (void)context;
    struct request *request = (struct request *)task;
    while (request->sent < request->answered) {
        ssize_t sent =
            send(request->loop.fd, request->answer + request->sent, request->answered - request->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return stingy_loop_wait(loop, &request->loop, SEND_ANSWER);
        if (sent < 0)
            return stingy_loop_close(loop, &request->loop);
        request->sent += (size_t)sent;
    }
    /* The next line may have arrived together with this one. */
    if (request->used > 0)
        return stingy_loop_go(loop, &request->loop, READ_LINE);
    stingy_loop_next(loop, &request->loop, request->may_have_more);
}

static const struct stingy_stage stages[STAGES] = {
    [READ_LINE] = {"read_line", read_line},
    [ANSWER_LINE] = {"answer_line", answer_line},
    [SEND_ANSWER] = {"send_answer", send_answer},
};

static struct stingy_request *begin(void *context, int fd) {
    (void)context, (void)fd;
    struct request *request = malloc(sizeof *request);
    if (!request)
        return NULL;
    request->used = 0;
    return &request->loop;
}

static void end(void *context, struct stingy_request *request) {
    (void)context;
    free(request);
}

static void on_signal(int number) {
    (void)number;
    is_ended = 1;
}

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)(count > 1 ? atoi(arguments[1]) : 0));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1024) != 0) {
        perror("lines");
        return 1;
    }
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    loop = stingy_loop_new(
        &(struct stingy_loop_config){.listener = listener,
                                     .stages = stages,
                                     .stage_count = STAGES,
                                     .begin = begin,
                                     .end = end,
                                     .most_requests = count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 0,
                                     .request_offset = offsetof(struct request, loop),
                                     .prefetch_bytes = 256});
    if (!loop) {
        perror("lines");
        return 1;
    }
    socklen_t length = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("listens on 127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
    stingy_loop_run(loop, &is_ended);
    struct stingy_gate_stats gate = stingy_loop_gate_stats(loop);
    fprintf(stderr, "%llu connections, %llu requests\n", (unsigned long long)gate.accepted,
            (unsigned long long)gate.bound);
    stingy_loop_delete(loop);
    return 0;
}
