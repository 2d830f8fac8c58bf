// Accepts and holds connections: one process for each 19,000, all on one port (SO_REUSEPORT), so that 100,000 fit
// under a limit of 20,000 descriptors per process. It neither answers nor closes.
//
// usage: hold PORT PROCESSES CPU
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void hold(int port) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
        perror("hold");
        exit(1);
    }
    for (;;) {
        if (accept(listener, NULL, NULL) < 0 && (errno == EMFILE || errno == ENFILE)) {
            // A full process stops listening, so that the others get the next connections.
            close(listener);
            for (;;)
                pause();
        }
    }
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: hold PORT PROCESSES CPU\n");
        return 2;
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(words[3]), &set);
    sched_setaffinity(0, sizeof set, &set);
    for (int i = 1; i < atoi(words[2]); i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            hold(atoi(words[1]));
        }
    }
    hold(atoi(words[1]));
}
