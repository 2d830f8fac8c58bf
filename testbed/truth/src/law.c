/* Decides when answers leave. */
#include "truth.h"
#include <math.h>

const char *const KIND_NAMES[KINDS] = {"bucket", "thread", "workers", "growing", "exponential", "metastable"};

/* SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014). */
uint64_t random_next(uint64_t *state) {
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

double random_unit(uint64_t *state) {
    return ((double)(random_next(state) >> 11) + 1) * 0x1p-53;
}

struct law law_new(struct parameters of) {
    return (struct law){.of = of, .random = of.seed};
}

double law_time_ns(const struct parameters *of, double connections) {
    double beyond = fmax(connections - (double)of->workers, 0);
    return (double)of->time_ns * (1 + of->growth * beyond);
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* A token comes every 1/R. The bucket is full at `full_ns`; before that time it lacks one token per 1/R. A request
 * takes a token, and waits until there is one (virtual scheduling, as in ITU-T I.371). */
static int64_t gap_ns(const struct law *law) {
    return llround(1e9 / law->of.rate_per_sec);
}

static int64_t bucket(struct law *law, int64_t now_ns) {
    int64_t end_ns = later(now_ns, law_free_ns(law));
    law->full_ns = later(law->full_ns, now_ns) + gap_ns(law);
    return end_ns;
}

static int64_t first_free(const struct law *law) {
    int64_t first = 0;
    for (int64_t worker = 1; worker < law->of.workers; worker++)
        if (law->free_ns[worker] < law->free_ns[first])
            first = worker;
    return first;
}

int64_t law_free_ns(const struct law *law) {
    switch (law->of.kind) {
    case BUCKET:
        return law->full_ns - (law->of.burst - 1) * gap_ns(law);
    default:
        return law->free_ns[first_free(law)];
    }
}

static int64_t work(struct law *law, int64_t now_ns, int64_t time_ns) {
    int64_t *free_ns = &law->free_ns[first_free(law)];
    return *free_ns = later(*free_ns, now_ns) + time_ns;
}

/* A client that waits longer than the timeout sends the request again, r times, and the server works on those too:
 * a storm. The storm ends when so many requests in a row were in time that they cannot be those that found an
 * empty queue after a pause: twice as many as may wait before a storm. */
static int64_t metastable(struct law *law, int64_t now_ns) {
    const struct parameters *of = &law->of;
    int64_t end_ns = work(law, now_ns, of->time_ns * (law->is_storm ? 1 + of->retries : 1));
    if (end_ns - now_ns > of->timeout_ns) {
        law->is_storm = 1;
        law->calm = 0;
    } else if (law->is_storm && ++law->calm >= 2 * (of->timeout_ns / of->time_ns) * of->workers) {
        law->is_storm = 0;
    }
    return end_ns;
}

int64_t law_end_ns(struct law *law, int64_t now_ns, int64_t connections) {
    switch (law->of.kind) {
    case BUCKET:
        return bucket(law, now_ns);
    case GROWING:
        return work(law, now_ns, llround(law_time_ns(&law->of, (double)connections)));
    case EXPONENTIAL:
        return work(law, now_ns, (int64_t)llround((double)law->of.time_ns * -log(random_unit(&law->random))));
    case METASTABLE:
        return metastable(law, now_ns);
    default:
        return work(law, now_ns, law->of.time_ns);
    }
}
