/* A server that makes two system calls per request, recv and send, in a thread for each connection.
 *
 * usage: two_calls PORT
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

static void *serve(void *argument) {
    int connection = (int)(long)argument;
    char request[4096];

    while (recv(connection, request, sizeof request, 0) > 0)
        if (send(connection, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
            break;
    close(connection);
    return NULL;
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1024) != 0) {
        perror("listen");
        exit(1);
    }
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        pthread_t thread;

        if (connection < 0)
            continue;
        if (pthread_create(&thread, NULL, serve, (void *)(long)connection) != 0)
            close(connection);
        else
            pthread_detach(thread);
    }
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: two_calls PORT\n");
        return 2;
    }
    return listen_on(atoi(arguments[1]));
}
