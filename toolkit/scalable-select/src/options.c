/* Options come in the environment, because the command line belongs to the program. secure_getenv gives a
 * set-user-id program the defaults (in most such programs the dynamic linker refuses the preload anyway). */
#define _GNU_SOURCE
#include "sp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sp_options sp_options = {.min_set = 63, .watchdog_ms = 1000, .is_adaptive = true, .is_off = false};

/* A value that is not a number in the range leaves the default, because a preload library has no
 * place to report it. */
static int number_option(const char *name, int least, int most, int otherwise) {
    const char *text = secure_getenv(name);
    if (text == NULL || *text == '\0')
        return otherwise;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno != 0 || *end != '\0' || value < least || value > most ? otherwise : (int)value;
}

void sp_options_read(void) {
    int saved = errno;
    sp_options.min_set = number_option("SCALABLE_SELECT_MIN_SET", 0, SP_FD_LIMIT, 63);
    sp_options.watchdog_ms = number_option("SCALABLE_SELECT_WATCHDOG_MS", 0, 3600 * 1000, 1000);
    sp_options.is_adaptive = number_option("SCALABLE_SELECT_ADAPTIVE", 0, 1, 1) != 0;
    sp_options.is_off = number_option("SCALABLE_SELECT_OFF", 0, 1, 0) != 0;
    sp_options.is_plain = number_option("SCALABLE_SELECT_PLAIN_COMPARE", 0, 1, 0) != 0;
    errno = saved;
}
