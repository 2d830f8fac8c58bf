/* The globals of overlay.json, as a server has them: beside others, one of them static in a function. */
#include "globals.h"

int limit = 40, cold[4000] = {1};
uint64_t hits;
_Thread_local uint64_t own[8];
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
#ifndef TABLE
#define TABLE 1024
#endif
const int table[TABLE] = {3, [1023] = 4};
static const struct {
    int status;
    const char *reason;
} reasons[] = {{200, "OK"}, {404, "Not Found"}, {500, "Internal"}, {0, ""}};

static const char *const *suffix(void) {
    static const char *const known[] = {"html", "css", "js", "png", "txt", "json"};
    return known;
}

void globals_of_overlay(struct global out[GLOBALS]) {
    out[0] = (struct global){"hits", &hits, sizeof hits};
    out[1] = (struct global){"limit", &limit, sizeof limit};
    out[2] = (struct global){"months", months, sizeof months};
    out[3] = (struct global){"reasons", reasons, sizeof reasons};
    out[4] = (struct global){"suffix.known", suffix(), 6 * sizeof(char *)};
    out[5] = (struct global){"table", table, sizeof table};
}

bool are_globals_whole(void) {
    hits++, own[3]++, limit += 2, cold[17]++;
    return strcmp(months + 33, "Dec") == 0 && strcmp(reasons[1].reason, "Not Found") == 0 &&
           strcmp(suffix()[5], "json") == 0 && table[1023] == 4 && limit >= 42 && cold[0] == 1;
}
