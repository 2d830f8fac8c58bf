/* Starts the library: finds the functions that it replaces, and reads the options. */
#define _GNU_SOURCE
#include "array.h"
#include "real.h"
#include "sp.h"

#include <dlfcn.h>

struct sp_real sp_real;
int sp_has_started;

/* dlsym returns an object pointer; POSIX guarantees that it can be read as a function pointer. */
#define X(type, name, arguments)                             \
    if (sp_real.name == NULL) {                              \
        *(void **)(&sp_real.name) = dlsym(RTLD_NEXT, #name); \
    }
/* RTLD_NEXT does not find libraries that only a plugin has loaded. */
#define X_IN(name, library)                                      \
    if (sp_real.name == NULL) {                                  \
        void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD); \
        if (loaded != NULL)                                      \
            *(void **)(&sp_real.name) = dlsym(loaded, #name);    \
    }
void sp_find_late(void) {
    SP_LATE_FUNCTIONS(X)
    X_IN(openpty, "libutil.so.1")
    X_IN(seccomp_load, "libseccomp.so.2")
}

void sp_start(void) {
    if (sp_has_started)
        return;
    SP_REAL_FUNCTIONS(X)
    /* Another C library may lack the second names of these functions. */
#define ALSO(name, plain)                                     \
    if (sp_real.name == NULL) {                               \
        *(void **)(&sp_real.name) = dlsym(RTLD_NEXT, #plain); \
    }
    ALSO(open64, open)
    ALSO(openat64, openat)
    ALSO(fcntl64, fcntl)
    ALSO(fopen64, fopen)
    ALSO(freopen64, freopen)
    ALSO(setrlimit64, setrlimit)
    ALSO(prlimit64, prlimit)
#undef ALSO
    sp_options_read();
    sp_array_start();
    sp_life_start();
    sp_registry_start();
    sp_memory_start();
    sp_stats_start();
    sp_has_started = 1;
}

__attribute__((constructor)) static void start_at_load(void) {
    sp_start();
    sp_find_late();
}
