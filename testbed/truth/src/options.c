/* The command line, and parameters as text. */
#include "truth.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: truth KIND PARAMETERS --port N [--address A] [--count]\n"
    "       truth KIND PARAMETERS --truth\n"
    "  bucket       --rate R [--burst B]                R requests per second; up to B at once (1)\n"
    "  thread       --time D                            one thread that uses D of CPU time for a request\n"
    "  workers      --workers K --time D                K workers; each takes D for a request\n"
    "  growing      --workers K --time D --growth G     like workers, but D (1 + G (n - K)) if n > K connections are "
    "open\n"
    "  exponential  --workers K --time D [--seed N]     like workers, with exponential times of mean D\n"
    "  metastable   --workers K --time D --timeout T --retries N\n"
    "                                                   like workers; a client that waits longer than T retries N "
    "times\n"
    "  any kind     --sealed FILE --draw N              parameters drawn from the seed in FILE\n"
    "--at SHARE reduces the capacity to this share. Times are written as 200us, 5ms or 1s.\n"
    "--count prints the number of served requests at the end. --truth prints parameters and truths.\n";

static _Noreturn void refuse(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    fputs("truth: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(2);
}

/* Reads a number; returns the text after it. */
static double number(const char *name, const char *text, const char **rest) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !isfinite(value))
        refuse("%s %s is not a number", name, text);
    *rest = end;
    return value;
}

static double within(const char *name, const char *text, double least, double most) {
    const char *rest;
    double value = number(name, text, &rest);
    if (*rest)
        refuse("%s %s is not a number", name, text);
    if (!(value >= least && value <= most))
        refuse("%s is %s; give %g to %g", name, text, least, most);
    return value;
}

static int64_t whole(const char *name, const char *text, double least, double most) {
    double value = within(name, text, least, most);
    if (value != floor(value))
        refuse("%s is %s; give a whole number", name, text);
    return (int64_t)value;
}

static int64_t length_ns(const char *name, const char *text) {
    const char *unit;
    double value = number(name, text, &unit);
    value *= !strcmp(unit, "us") ? 1e3 : !strcmp(unit, "ms") ? 1e6 : !strcmp(unit, "s") ? 1e9 : NAN;
    if (isnan(value))
        refuse("%s %s has no unit; write it as 200us, 5ms or 1s", name, text);
    if (!(value >= 1e4 && value <= 1e10))
        refuse("%s is %s; give 10us to 10s", name, text);
    return (int64_t)llround(value);
}

/* Reads a file of 16 hexadecimal digits and a newline. */
static uint64_t sealed(const char *path) {
    char text[32] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        refuse("--sealed %s cannot be read: %s", path, strerror(errno));
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    size_t digits = 0;
    while (isxdigit((unsigned char)text[digits]))
        digits++;
    if (digits != 16 || length != 17 || text[16] != '\n')
        refuse("--sealed %s does not contain a seed: 16 hexadecimal digits and a newline", path);
    return strtoull(text, NULL, 16);
}

enum option { RATE, BURST, TIME, HOW_MANY, GROWTH, TIMEOUT, RETRIES, SEED, SEALED, DRAW, AT, PORT, ADDRESS, OPTIONS };
static const char *const OPTION_NAMES[OPTIONS] = {"--rate",    "--burst",   "--time",   "--workers", "--growth",
                                                  "--timeout", "--retries", "--seed",   "--sealed",  "--draw",
                                                  "--at",      "--port",    "--address"};

/* The options before SEALED are parameters, each with its member, form and limits (length_ns() has those of
 * LENGTH). TEXT is a whole number that is printed as text, because JSON numbers do not hold 64 bits. */
static const struct {
    const char *name;
    size_t offset;
    enum { REAL, WHOLE, LENGTH, TEXT } form;
    double least, most;
} MEMBERS[SEALED] = {
#define MEMBER(name) #name, offsetof(struct parameters, name)
    [RATE] = {MEMBER(rate_per_sec), REAL, 1, 1e6}, [BURST] = {MEMBER(burst), WHOLE, 1, 1e6},
    [TIME] = {MEMBER(time_ns), LENGTH, 0, 0},      [HOW_MANY] = {MEMBER(workers), WHOLE, 1, MAX_WORKERS},
    [GROWTH] = {MEMBER(growth), REAL, 0, 1},       [TIMEOUT] = {MEMBER(timeout_ns), LENGTH, 0, 0},
    [RETRIES] = {MEMBER(retries), WHOLE, 1, 100},  [SEED] = {MEMBER(seed), TEXT, 0, 0x1p53},
#undef MEMBER
};

#define BIT(option) (1u << (option))
static const struct {
    unsigned needs, may;
} USES[KINDS] = {
    [BUCKET] = {BIT(RATE), BIT(BURST)},
    [THREAD] = {BIT(TIME), 0},
    [WORKERS] = {BIT(HOW_MANY) | BIT(TIME), 0},
    [GROWING] = {BIT(HOW_MANY) | BIT(TIME) | BIT(GROWTH), 0},
    [EXPONENTIAL] = {BIT(HOW_MANY) | BIT(TIME), BIT(SEED)},
    [METASTABLE] = {BIT(HOW_MANY) | BIT(TIME) | BIT(TIMEOUT) | BIT(RETRIES), 0},
};

static void set(struct parameters *of, int option, const char *text) {
    const char *name = OPTION_NAMES[option];
    void *member = (char *)of + MEMBERS[option].offset;
    double least = MEMBERS[option].least, most = MEMBERS[option].most;
    if (MEMBERS[option].form == REAL)
        *(double *)member = within(name, text, least, most);
    else /* `seed` is unsigned, and its limits are positive */
        *(int64_t *)member = MEMBERS[option].form == LENGTH ? length_ns(name, text) : whole(name, text, least, most);
}

static void slow_down(struct parameters *of, double share) {
    int64_t before_ns = of->time_ns;
    of->rate_per_sec *= share;
    of->time_ns = (int64_t)llround((double)of->time_ns / share);
    /* As many requests fit into the timeout as before. */
    if (before_ns)
        of->timeout_ns = of->timeout_ns / before_ns * of->time_ns + of->timeout_ns % before_ns;
}

/* Checks the options in combination. */
static void check(const struct parameters *of) {
    if (of->kind == METASTABLE && of->timeout_ns < of->time_ns)
        refuse("--timeout is shorter than --time: each request would be late");
}

struct options options_read(int count, char **words) {
    struct options options = {.of.burst = 0, .address = "127.0.0.1", .port = -1};
    struct parameters *of = &options.of;
    const char *values[OPTIONS] = {NULL};
    int kind = 0;
    if (count < 2) {
        fputs(USAGE, stderr);
        exit(2);
    }
    while (kind < KINDS && strcmp(words[1], KIND_NAMES[kind]))
        kind++;
    if (kind == KINDS)
        refuse("there is no kind %s; the kinds are bucket, thread, workers, growing, exponential and metastable",
               words[1]);
    of->kind = (enum kind)kind;
    for (int at = 2; at < count; at++) {
        int option = 0;
        if (!strcmp(words[at], "--truth") || !strcmp(words[at], "--count")) {
            *(words[at][2] == 't' ? &options.is_truth : &options.is_counted) = 1;
            continue;
        }
        while (option < OPTIONS && strcmp(words[at], OPTION_NAMES[option]))
            option++;
        if (option == OPTIONS)
            refuse("there is no option %s", words[at]);
        if (++at == count)
            refuse("%s needs a value", words[at - 1]);
        values[option] = words[at];
    }
    for (int option = 0; option < SEALED; option++) {
        int is_used = ((USES[kind].needs | USES[kind].may) >> option) & 1;
        if (values[option] && values[SEALED])
            refuse("%s cannot be combined with --sealed, which draws it", OPTION_NAMES[option]);
        if (values[option] && !is_used)
            refuse("%s has no %s", KIND_NAMES[kind], OPTION_NAMES[option]);
        if (!values[option] && !values[SEALED] && (USES[kind].needs >> option & 1))
            refuse("%s needs %s", KIND_NAMES[kind], OPTION_NAMES[option]);
        if (values[option])
            set(of, option, values[option]);
    }
    if (!values[SEALED] != !values[DRAW])
        refuse("--sealed and --draw must be given together");
    if (values[SEALED])
        *of = draw(sealed(values[SEALED]), of->kind, (uint64_t)whole("--draw", values[DRAW], 0, 1e6));
    if (kind == BUCKET && !of->burst)
        of->burst = 1;
    if (kind == THREAD)
        of->workers = 1;
    if (values[AT])
        slow_down(of, within("--at", values[AT], 0.1, 1));
    check(of);
    if (values[PORT])
        options.port = (int)whole("--port", values[PORT], 1, 65535);
    if (values[ADDRESS])
        options.address = values[ADDRESS];
    if (options.port < 0 && !options.is_truth)
        refuse("give --port N to serve, or --truth to print the truths");
    return options;
}

void parameters_print(FILE *to, const struct parameters *of) {
    unsigned uses = USES[of->kind].needs | USES[of->kind].may;
    const char *between = "{";
    for (int option = 0; option < SEALED; option++) {
        if (!(uses & BIT(option)))
            continue;
        const void *member = (const char *)of + MEMBERS[option].offset;
        fprintf(to, "%s\"%s\": ", between, MEMBERS[option].name);
        between = ", ";
        if (MEMBERS[option].form == REAL)
            fprintf(to, "%.17g", *(const double *)member);
        else
            fprintf(to, MEMBERS[option].form == TEXT ? "\"%llu\"" : "%llu",
                    (unsigned long long)*(const uint64_t *)member);
    }
    fputc('}', to);
}
