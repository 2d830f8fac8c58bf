/* Preloaded into the engine, which then runs as on a kernel without SO_TIMESTAMPING and times no arrivals. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    static int (*real)(int, int, int, const void *, socklen_t);
    if (level == SOL_SOCKET && name == SO_TIMESTAMPING) {
        errno = ENOPROTOOPT;
        return -1;
    }
    if (!real)
        real = (int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
    return real(fd, level, name, value, length);
}
