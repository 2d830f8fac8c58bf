/* Computes the truth of a law with its formula, or by simulation if there is none.
 *
 * The criteria are the defaults of `find` (docs/zones.md). A load is elastic while doubling the connections raises
 * throughput by 20 %, and saturated at 95 % of a CPU. It fails when less than 98 % of the offered load was
 * answered in the window, or when the 99th percentile of the response time exceeds 100 ms. */
#include "truth.h"
#include <math.h>
#include <stdlib.h>

#define GAIN 0.20
#define SATURATION 0.95
#define GOODPUT 0.98
#define LIMIT_S 0.1
/* Lengths of a trial of find. */
#define WARMUP_NS 200000000
#define WINDOW_NS 1000000000
/* Number of simulated trials at each rate, and of steps towards the rate at which half of them fail. */
enum { TRIALS = 400, STEPS = 12, MOST_CONNECTIONS = 1 << 20 };

/* Maximum number of connections that does not start the storm of METASTABLE. With more, one of them waits longer
   than the timeout. */
static double overload(const struct parameters *of) {
    return (double)(of->timeout_ns / of->time_ns * of->workers);
}

/* Number of connections at which the storm ends, because none of them waits longer though the server works on each
 * request 1 + r times. It is 0 if a single request takes longer, so that the storm never ends. */
static double recovery(const struct parameters *of) {
    return (double)(of->timeout_ns / ((1 + of->retries) * of->time_ns) * of->workers);
}

/* The server's capacity in an open loop. GROWING has none, because it depends on the number of connections. */
static double capacity_per_sec(const struct parameters *of) {
    if (of->kind == BUCKET)
        return of->rate_per_sec;
    return of->kind == GROWING ? 0 : 1e9 * (double)of->workers / (double)of->time_ns;
}

/* Work time of a request in a closed loop whose load was raised from below. */
static double work_s(const struct parameters *of, double connections) {
    double storm = of->kind == METASTABLE && connections > overload(of) ? (double)(1 + of->retries) : 1;
    return law_time_ns(of, connections) * 1e-9 * storm;
}

double solve_throughput(const struct parameters *of, double connections) {
    return of->kind == BUCKET ? of->rate_per_sec : fmin(connections, (double)of->workers) / work_s(of, connections);
}

static double gain(const struct parameters *of, double connections) {
    return solve_throughput(of, connections * M_SQRT2) / solve_throughput(of, connections / M_SQRT2) - 1;
}

/* The first load beyond which a doubling, centred on it, gains too little. */
static double yield_connections(const struct parameters *of) {
    double below = M_SQRT2, above;
    if (gain(of, below) < GAIN)
        return 0;
    for (above = below * 1.01; gain(of, above) >= GAIN; above *= 1.01)
        below = above;
    while (above / below > 1 + 1e-9) {
        double middle = sqrt(below * above);
        *(gain(of, middle) < GAIN ? &above : &below) = middle;
    }
    return above;
}

/* The longest response time of a closed loop whose clients begin together. They stay in step: k of them are
 * answered at once, and the last waits for all earlier rounds. */
static double longest_s(const struct parameters *of, double connections) {
    if (of->kind == BUCKET)
        return connections / of->rate_per_sec;
    return ceil(connections / (double)of->workers) * work_s(of, connections);
}

/* The first load whose response time exceeds the limit. With up to 100 workers, more than one request in a hundred
 * waits the longest time. EXPONENTIAL varies, so it has no formula. */
static double failure_connections(const struct parameters *of) {
    for (int connections = 1; of->kind != EXPONENTIAL && connections < MOST_CONNECTIONS; connections++)
        if (longest_s(of, connections) > LIMIT_S)
            return connections;
    return 0;
}

static int by_time(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Simulates a trial with Poisson arrivals. Requests that arrive in the window or are in progress at its start
 * count with their full response times. An answer counts when it leaves within the window. */
static int trial_fails(const struct parameters *of, double rate_per_sec, uint64_t seed, int64_t *times, size_t room) {
    struct law law = law_new(*of);
    law.random = random_next(&seed);
    double sent = 0, answered = 0;
    size_t count = 0;
    for (double at_ns = 0;;) {
        at_ns -= log(random_unit(&seed)) * 1e9 / rate_per_sec;
        int64_t now_ns = (int64_t)at_ns;
        if (now_ns >= WARMUP_NS + WINDOW_NS)
            break;
        int64_t end_ns = law_end_ns(&law, now_ns, 1);
        sent += now_ns >= WARMUP_NS;
        answered += end_ns >= WARMUP_NS && end_ns < WARMUP_NS + WINDOW_NS;
        if (end_ns >= WARMUP_NS && count < room)
            times[count++] = end_ns - now_ns;
    }
    qsort(times, count, sizeof *times, by_time);
    double offered = fmin(sent, rate_per_sec * WINDOW_NS * 1e-9);
    double p99_s = count ? (double)times[(count - 1) * 99 / 100] * 1e-9 : 0;
    return answered < GOODPUT * offered || p99_s > LIMIT_S;
}

double solve_failing(const struct parameters *of, double rate_per_sec, int trials) {
    size_t room = (size_t)(rate_per_sec * (WARMUP_NS + WINDOW_NS) * 1e-9 * 2) + 64;
    int64_t *times = malloc(room * sizeof *times);
    int failed = 0;
    if (!times)
        abort();
    for (int trial = 0; trial < trials; trial++)
        failed += trial_fails(of, rate_per_sec, (uint64_t)trial * 0x10001, times, room);
    free(times);
    return (double)failed / trials;
}

/* The rate at which half of the trials fail. */
static double failure_per_sec(const struct parameters *of) {
    double below = 0.5 * capacity_per_sec(of), above = 1.5 * capacity_per_sec(of);
    for (int step = 0; step < STEPS; step++) {
        double middle = sqrt(below * above);
        *(solve_failing(of, middle, TRIALS) < 0.5 ? &below : &above) = middle;
    }
    return sqrt(below * above);
}

struct truth solve(const struct parameters *of) {
    int has_corner = of->kind != BUCKET && of->kind != THREAD, is_stormy = of->kind == METASTABLE;
    struct truth truth = {
        .knee = has_corner ? (double)of->workers : 0,
        .yield = yield_connections(of),
        .peak_load = of->kind == BUCKET ? 1 : (double)of->workers,
        .failure = failure_connections(of),
        .overload = is_stormy ? overload(of) : 0,
        .recovery = is_stormy ? recovery(of) : 0,
        .capacity_per_sec = capacity_per_sec(of),
        /* Only this kind keeps a CPU busy. */
        .yield_per_sec = of->kind == THREAD ? SATURATION * capacity_per_sec(of) : 0,
        .failure_per_sec = of->kind == GROWING || is_stormy ? 0 : failure_per_sec(of),
    };
    truth.peak_per_sec = solve_throughput(of, truth.peak_load);
    return truth;
}
