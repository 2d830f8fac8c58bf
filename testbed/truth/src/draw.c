/* Draws parameters from a seed, so that they are unknown until the seed is opened. */
#include "truth.h"
#include <math.h>

/* Draws with the same probability in each octave. */
static double between(uint64_t *state, double low, double high) {
    return low * pow(high / low, random_unit(state));
}

static int64_t one_of(uint64_t *state, int64_t first, int64_t last) {
    return first + (int64_t)(random_next(state) % (uint64_t)(last - first + 1));
}

/* Draws whole microseconds, so that the printed values equal the served ones. */
static int64_t time_between(uint64_t *state, double low_us, double high_us) {
    return (int64_t)llround(between(state, low_us, high_us)) * 1000;
}

struct parameters draw(uint64_t seed, enum kind kind, uint64_t draw) {
    uint64_t state = seed ^ ((uint64_t)kind << 32) ^ draw;
    /* Mixes the state first, because neighbouring states are similar. */
    state = random_next(&state);
    struct parameters of = {.kind = kind};
    switch (kind) {
    case BUCKET:
        of.rate_per_sec = round(between(&state, 1000, 4000));
        of.burst = one_of(&state, 1, 8);
        break;
    case THREAD:
        of.time_ns = time_between(&state, 300, 1200);
        break;
    case METASTABLE:
        of.workers = one_of(&state, 3, 6);
        of.time_ns = time_between(&state, 2000, 4000);
        of.timeout_ns = 8 * of.time_ns;
        of.retries = 3;
        break;
    default:
        of.workers = one_of(&state, 6, 20);
        /* This is long compared with the path and the client, which serve one after another all requests that the
         * workers end at once. The longest of random times are several times their mean. */
        of.time_ns = kind == EXPONENTIAL ? time_between(&state, 8000, 16000) : time_between(&state, 16000, 32000);
        /* With twice as many connections as workers a request takes 3 to 10 % longer. */
        of.growth = kind == GROWING ? round(between(&state, 0.03, 0.1) / (double)of.workers * 1e6) / 1e6 : 0;
        of.seed = kind == EXPONENTIAL ? random_next(&state) : 0;
    }
    if (kind == THREAD)
        of.workers = 1;
    return of;
}
