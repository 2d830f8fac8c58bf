/* A kernel that costs nothing, for tux and its Stingy versions: a preload library that plays listener, connections, epoll and
 * clients inside of the server's process. What is left is the server's own time, on this machine's caches.
 *
 * NULLNET_CONNECTIONS connections ask NULLNET_REQUESTS requests in all. In each epoll_wait a quarter of those whose client waits for
 * nothing ask, in random order, as many as the caller takes. At the end it prints a line, counts from the fifth part on, and
 * ends the process.
 *
 * It plays only what tux uses: listen, accept4, epoll_ctl, epoll_wait, recv, send, sendfile, close. One thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 1000, MOST = 16000, BODY = 1024 };
static const char REQUEST[] = "GET /1k.bin HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";

static struct connection {
	epoll_data_t data;
	bool is_asking; /* a request waits to be read */
	bool is_busy;   /* not answered yet */
} connections[MOST];
static unsigned order[MOST], accepted, total;
static int listener = -1;
static bool is_listening;
static epoll_data_t listener_data;
static long wanted, answered, polls;
static double begin_s;
static uint64_t seed = 88172645463325252;

static double cpu_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static unsigned below(unsigned bound)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return (unsigned)(seed >> 11) % bound;
}

static struct connection *mine(int fd)
{
	return fd >= FIRST && fd < FIRST + (int)total ? &connections[fd - FIRST] : NULL;
}

__attribute__((constructor)) static void start(void)
{
	const char *c = getenv("NULLNET_CONNECTIONS"), *r = getenv("NULLNET_REQUESTS");
	total = c ? (unsigned)atoi(c) : 10;
	wanted = r ? atol(r) : 100000;
	if (total == 0 || total > MOST)
		exit(2);
	for (unsigned i = 0; i < total; i++)
		order[i] = i;
}

int listen(int fd, int backlog)
{
	(void)backlog;
	listener = fd;
	return 0;
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	(void)fd, (void)address, (void)length, (void)flags;
	if (accepted == total) {
		errno = EAGAIN;
		return -1;
	}
	return FIRST + (int)accepted++;
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	(void)epoll;
	if (fd == listener) {
		is_listening = operation != EPOLL_CTL_DEL;
		if (event)
			listener_data = event->data;
	} else if (mine(fd) && event) {
		mine(fd)->data = event->data;
	}
	return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
	(void)epoll, (void)timeout;
	int count = 0;
	polls++;
	if (is_listening && accepted < total) {
		events[0] = (struct epoll_event){ EPOLLIN, listener_data };
		return 1;
	}
	unsigned asks = total / 4 + 1;
	for (unsigned i = 0; i < asks && count < most; i++) {
		/* The next of a random order: exchanged with one that comes after it. */
		unsigned j = i + below(total - i), k = order[j];
		order[j] = order[i], order[i] = k;
		/* Who has asked and was not heard asks again, as with a level. */
		if (k >= accepted || (connections[k].is_busy && !connections[k].is_asking))
			continue;
		connections[k].is_asking = connections[k].is_busy = true;
		events[count++] = (struct epoll_event){ EPOLLIN, connections[k].data };
	}
	return count;
}

ssize_t recv(int fd, void *buffer, size_t bytes, int flags)
{
	struct connection *c = mine(fd);
	(void)flags;
	if (!c || !c->is_asking || bytes < sizeof REQUEST - 1) {
		errno = EAGAIN;
		return -1;
	}
	c->is_asking = false;
	memcpy(buffer, REQUEST, sizeof REQUEST - 1);
	return sizeof REQUEST - 1;
}

ssize_t send(int fd, const void *buffer, size_t bytes, int flags)
{
	(void)fd, (void)buffer, (void)flags;
	return (ssize_t)bytes;
}

ssize_t sendfile(int fd, int file, off_t *offset, size_t bytes)
{
	(void)file;
	*offset += (off_t)bytes;
	mine(fd)->is_busy = false;
	if (++answered == wanted / 5)
		begin_s = cpu_s();
	if (answered == wanted) {
		printf("connections=%u requests=%ld ns=%.1f polls=%ld\n", total, wanted - wanted / 5, (cpu_s() - begin_s) * 1e9 / (double)(wanted - wanted / 5), polls);
		fflush(stdout);
		_exit(0);
	}
	return (ssize_t)bytes;
}

int close(int fd)
{
	static int (*real)(int);
	if (mine(fd))
		return 0;
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "close");
	return real(fd);
}
