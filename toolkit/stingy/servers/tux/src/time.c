/* Clocks, and dates in HTTP's format. */
#define _GNU_SOURCE
#include "tux.h"

#include <string.h>

uint64_t tux_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* strftime is not used because its names depend on the locale. */
static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

void tux_format_date(time_t at, char out[40]) {
    struct tm t;
    gmtime_r(&at, &t);
    snprintf(out, 40, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT", days + 3 * t.tm_wday, t.tm_mday % 100,
             months + 3 * t.tm_mon, (t.tm_year + 1900) % 100000, t.tm_hour, t.tm_min, t.tm_sec);
}

/* Parses the format that clients send today (RFC 9110, IMF-fixdate); returns -1 for others. */
time_t tux_parse_date(const char *text) {
    struct tm t = {0};
    char month[4];
    if (sscanf(text, "%*3s, %2d %3s %4d %2d:%2d:%2d GMT", &t.tm_mday, month, &t.tm_year, &t.tm_hour, &t.tm_min,
               &t.tm_sec) != 6)
        return -1;
    const char *found = strlen(month) == 3 ? strstr(months, month) : NULL;
    if (!found || (found - months) % 3)
        return -1;
    t.tm_mon = (int)(found - months) / 3;
    t.tm_year -= 1900;
    return timegm(&t);
}
