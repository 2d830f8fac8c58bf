/* Tests the laws by simulation. The counts on the simulation's clock match solve.c. No real time passes in these
   tests. */
#include "truth.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;

static void verdict(int holds, const char *name) {
    printf("%s %s\n", holds ? "ok" : "FAILED", name);
    *(holds ? &passed : &failed) += 1;
}

enum { SECOND = 1000000000 };

/* Clients with a lower number have left. */
static uint64_t first_here;
static int is_here(uint64_t client) {
    return client >= first_here;
}

/* Runs a closed loop of n clients that send again at once; returns the number of answers until `end_ns`. Then all
   clients leave. */
static int64_t closed_loop(struct queue *queue, int64_t start_ns, int64_t end_ns, int64_t n) {
    static uint64_t clients;
    struct request answered;
    int64_t count = 0, now_ns;
    first_here = clients;
    for (int64_t client = 0; client < n; client++)
        queue_arrive(queue, clients++, start_ns, n);
    while ((now_ns = queue_next_ns(queue)) < end_ns)
        while (queue_take(queue, now_ns, &answered)) {
            if (!is_here(answered.client))
                continue;
            count++;
            queue_arrive(queue, answered.client, answered.ns, n);
        }
    first_here = clients;
    return count;
}

static struct queue queue_of(struct parameters of) {
    return (struct queue){.law = law_new(of), .is_here = is_here};
}

static int64_t count_of(struct parameters of, int64_t n, int64_t seconds) {
    struct queue queue = queue_of(of);
    int64_t count = closed_loop(&queue, 0, seconds * SECOND, n);
    queue_free(&queue);
    return count;
}

static const struct parameters EXAMPLES[KINDS] = {
    [BUCKET] = {.kind = BUCKET, .rate_per_sec = 1234, .burst = 5},
    [THREAD] = {.kind = THREAD, .time_ns = 700000, .workers = 1},
    [WORKERS] = {.kind = WORKERS, .time_ns = 5000000, .workers = 8},
    [GROWING] = {.kind = GROWING, .time_ns = 6000000, .workers = 8, .growth = 0.01},
    [EXPONENTIAL] = {.kind = EXPONENTIAL, .time_ns = 5000000, .workers = 8, .seed = 5},
    [METASTABLE] = {.kind = METASTABLE, .time_ns = 3000000, .workers = 4, .timeout_ns = 24000000, .retries = 3},
};

static struct truth truths[KINDS];

static void throughput(void) {
    enum { SECONDS = 40 };
    static const int64_t LOADS[] = {1, 2, 7, 8, 9, 16, 32, 64};
    for (int kind = 0; kind < KINDS; kind++) {
        int holds = 1;
        char name[96];
        for (size_t at = 0; at < sizeof LOADS / sizeof *LOADS; at++) {
            int64_t n = LOADS[at];
            double want = solve_throughput(&EXAMPLES[kind], (double)n) * SECONDS;
            /* Tolerates the requests in work at the end, five standard deviations of random times, and the
               duration of a storm. */
            double room = (double)n + 8 + (kind == EXPONENTIAL ? 5 * sqrt(want) : 0) + (kind == METASTABLE ? 200 : 0);
            int64_t got = count_of(EXAMPLES[kind], n, SECONDS);
            if (fabs((double)got - want) > room) {
                fprintf(stderr, "%s, %d clients: %lld answered, %.1f by the formula\n", KIND_NAMES[kind], (int)n,
                        (long long)got, want);
                holds = 0;
            }
        }
        snprintf(name, sizeof name, "%s answers as many as its formula says at every number of clients",
                 KIND_NAMES[kind]);
        verdict(holds, name);
    }
}

/* Throughput at a load that is no whole number, interpolated between the counts at both neighbours, as in a chart. */
static double counted_per_sec(struct parameters of, double n) {
    double below = floor(n), share = n - below;
    double low = (double)count_of(of, (int64_t)below, 200) / 200,
           high = (double)count_of(of, (int64_t)below + 1, 200) / 200;
    return low + share * (high - low);
}

static void yield(void) {
    for (int kind = WORKERS; kind <= EXPONENTIAL; kind++) {
        struct truth truth = truths[kind];
        double gain = counted_per_sec(EXAMPLES[kind], truth.yield * M_SQRT2) /
                          counted_per_sec(EXAMPLES[kind], truth.yield / M_SQRT2) -
                      1;
        char name[96];
        snprintf(name, sizeof name, "%s gains a fifth by doubling at its yield point", KIND_NAMES[kind]);
        if (fabs(gain - 0.2) > 0.02)
            fprintf(stderr, "%s: gain %.3f at %.2f\n", KIND_NAMES[kind], gain, truth.yield);
        verdict(fabs(gain - 0.2) <= 0.02, name);
    }
    double sharp = truths[WORKERS].yield / 8;
    verdict(fabs(sharp - M_SQRT2 / 1.2) < 1e-6, "a sharp knee yields at 1.18 times the knee");
    int64_t before = count_of(EXAMPLES[GROWING], 7, 40), at = count_of(EXAMPLES[GROWING], 8, 40);
    verdict(truths[GROWING].knee == 8 && at > before && at > count_of(EXAMPLES[GROWING], 9, 40) &&
                truths[GROWING].yield < sharp * 8,
            "growing has its peak at its corner, and falls beyond it");
    verdict(!truths[THREAD].yield && !truths[BUCKET].yield,
            "one thread and a bucket have no yield point over connections");
}

/* Answers in one second at n clients after a pause without any, as between points of a sweep. */
static int64_t at_load(struct queue *queue, int64_t *now_ns, int64_t n) {
    *now_ns += SECOND + SECOND / 5;
    return closed_loop(queue, *now_ns - SECOND, *now_ns, n);
}

static void metastable(void) {
    struct parameters of = EXAMPLES[METASTABLE];
    struct truth truth = truths[METASTABLE];
    struct queue queue = queue_of(of);
    int64_t now_ns = 0, overload = (int64_t)truth.overload, recovery = (int64_t)truth.recovery;
    int64_t healthy = (int64_t)truth.peak_per_sec, slow = healthy / (1 + of.retries);
    verdict(overload == 32 && recovery == 8, "the storm begins above T k / D clients and ends at T k / (1 + r) D");
    int is_up =
        at_load(&queue, &now_ns, 4) > healthy * 98 / 100 && at_load(&queue, &now_ns, overload) > healthy * 98 / 100;
    verdict(is_up, "metastable keeps up to its overload point");
    at_load(&queue, &now_ns, overload + 1);
    verdict(at_load(&queue, &now_ns, overload + 1) < slow * 11 / 10, "metastable falls beyond its overload point");
    int is_down = 1;
    for (int64_t n = overload; n > recovery; n -= 3)
        is_down &= at_load(&queue, &now_ns, n) < slow * 11 / 10;
    is_down &= at_load(&queue, &now_ns, recovery + 1) < slow * 11 / 10;
    verdict(is_down, "metastable stays down while the load falls, and through pauses");
    at_load(&queue, &now_ns, recovery);
    verdict(at_load(&queue, &now_ns, recovery) > healthy * 98 / 100, "metastable is back at its recovery point");
    verdict(at_load(&queue, &now_ns, overload) > healthy * 98 / 100, "metastable that is back is as it was");
    queue_free(&queue);
}

/* During the storm even a single request takes longer than the timeout. */
static void never_back(void) {
    struct parameters of = EXAMPLES[METASTABLE];
    of.timeout_ns = 3 * of.time_ns;
    struct truth truth = solve(&of);
    struct queue queue = queue_of(of);
    int64_t now_ns = 0, one = SECOND / of.time_ns;
    verdict(truth.recovery == 0 && truth.overload == 12, "a storm that no load ends has no recovery point");
    int is_up = at_load(&queue, &now_ns, 1) > one * 98 / 100;
    at_load(&queue, &now_ns, 13);
    at_load(&queue, &now_ns, 1);
    int64_t down = at_load(&queue, &now_ns, 1);
    verdict(is_up && down < one / (1 + of.retries) * 11 / 10, "metastable without one stays down at one connection");
    queue_free(&queue);
}

static void open_loop(void) {
    struct law law = law_new(EXAMPLES[BUCKET]);
    int at_once = 0;
    int64_t last_ns = 0;
    for (int request = 0; request < 1234 + 5; request++) {
        last_ns = law_end_ns(&law, 0, 1);
        at_once += last_ns == 0;
    }
    verdict(at_once == 5, "a bucket of five lets five through at once");
    verdict(llabs(last_ns - SECOND) < 1000000, "a bucket of R a second lets R more through in a second");
    for (int kind = 0; kind < KINDS; kind++) {
        struct truth truth = truths[kind];
        char name[96];
        if (!truth.failure_per_sec)
            continue;
        snprintf(name, sizeof name, "%s: few trials fail below the failing rate and most beyond", KIND_NAMES[kind]);
        double share = truth.failure_per_sec / truth.capacity_per_sec;
        double below = solve_failing(&EXAMPLES[kind], 0.94 * truth.failure_per_sec, 200);
        double beyond = solve_failing(&EXAMPLES[kind], 1.06 * truth.failure_per_sec, 200);
        if (!(below < 0.1 && beyond > 0.9))
            fprintf(stderr, "%s: %.2f of the trials fail below, %.2f beyond\n", KIND_NAMES[kind], below, beyond);
        verdict(below < 0.1 && beyond > 0.9 && share > 0.98 && share < 1.04, name);
    }
}

static int by_time(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* 99th percentile of the response times of a closed loop of n clients that begin together. */
static double p99_s(struct parameters of, int64_t n) {
    enum { ROUNDS = 200 };
    struct queue queue = queue_of(of);
    struct request answered;
    int64_t *asked_ns = calloc((size_t)n, sizeof *asked_ns), *times = calloc((size_t)n * ROUNDS, sizeof *times), now_ns;
    int64_t count = 0;
    first_here = 0;
    for (int64_t client = 0; client < n; client++)
        queue_arrive(&queue, (uint64_t)client, 0, n);
    while (count < n * ROUNDS && (now_ns = queue_next_ns(&queue)) < INT64_MAX)
        while (count < n * ROUNDS && queue_take(&queue, now_ns, &answered)) {
            times[count++] = answered.ns - asked_ns[answered.client];
            asked_ns[answered.client] = answered.ns;
            queue_arrive(&queue, answered.client, answered.ns, n);
        }
    queue_free(&queue);
    qsort(times, (size_t)count, sizeof *times, by_time);
    double p99 = (double)times[(count - 1) * 99 / 100] * 1e-9;
    free(asked_ns);
    free(times);
    return p99;
}

static void closed_failure(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t n = (int64_t)truths[kind].failure;
        char name[96];
        if (!n)
            continue;
        double below = p99_s(EXAMPLES[kind], n - 1), at = p99_s(EXAMPLES[kind], n);
        if (!(below <= 0.1 && at > 0.1))
            fprintf(stderr, "%s: p99 %.4f s with %d clients, %.4f s with one more\n", KIND_NAMES[kind], below,
                    (int)n - 1, at);
        snprintf(name, sizeof name, "%s: clients that begin together fail at its failure point", KIND_NAMES[kind]);
        verdict(below <= 0.1 && at > 0.1, name);
    }
}

static void gone(void) {
    struct queue queue = queue_of(EXAMPLES[WORKERS]);
    struct request answered;
    first_here = 0;
    for (uint64_t client = 1; client <= 1000; client++)
        queue_arrive(&queue, client, 0, 1000);
    /* Eight requests are in work, 992 wait, and all clients leave. */
    verdict(!queue_take(&queue, 0, &answered), "nothing is answered before its time");
    first_here = 2000;
    queue_arrive(&queue, 2000, 1000000, 1);
    int64_t end_ns = -1;
    for (int64_t now_ns = 1000000; end_ns < 0; now_ns = queue_next_ns(&queue))
        while (queue_take(&queue, now_ns, &answered))
            end_ns = answered.client == 2000 ? answered.ns : end_ns;
    verdict(end_ns == 10000000, "who has left is not worked for");
    queue_free(&queue);
}

static int is_same(const struct parameters *a, const struct parameters *b) {
    return a->rate_per_sec == b->rate_per_sec && a->burst == b->burst && a->time_ns == b->time_ns &&
           a->workers == b->workers && a->growth == b->growth && a->timeout_ns == b->timeout_ns &&
           a->retries == b->retries && a->seed == b->seed;
}

static void draws(void) {
    enum { DRAWS = 2000 };
    int same = 1, sane = 1, alike = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        for (uint64_t number = 0; number < DRAWS; number++) {
            struct parameters of = draw(7, (enum kind)kind, number), again = draw(7, (enum kind)kind, number);
            struct parameters next = draw(7, (enum kind)kind, number + 1), other = draw(8, (enum kind)kind, number);
            same &= is_same(&of, &again);
            alike += is_same(&of, &next) + is_same(&of, &other);
            sane &= of.kind == (enum kind)kind && (kind == BUCKET || (of.time_ns >= 300000 && of.time_ns <= 32000000));
            sane &= kind != BUCKET || (of.rate_per_sec >= 1000 && of.rate_per_sec <= 4000 && of.burst >= 1);
            sane &= solve_throughput(&of, 4) > 50 && solve_throughput(&of, 4) < 5000;
        }
    }
    verdict(same, "a seed draws the same parameters again");
    /* A time in whole microseconds repeats now and then. */
    verdict(alike < 2 * KINDS * DRAWS / 500, "another number or seed draws others");
    verdict(sane, "what is drawn can be measured");
}

int main(void) {
    for (int kind = 0; kind < KINDS; kind++)
        truths[kind] = solve(&EXAMPLES[kind]);
    throughput();
    yield();
    metastable();
    never_back();
    closed_failure();
    open_loop();
    gone();
    draws();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
