/* Servers with known capacity, knee, yield and failure, because a stated law decides when each answer leaves.
 *
 * The law and its queue take the time as an argument and read no clock. So the same code serves requests (serve.c)
 * and is simulated (test/law.c, solve.c). README.md lists the laws and the formulas. */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdint.h>
#include <stdio.h>

enum { MAX_WORKERS = 256 };

enum kind { BUCKET, THREAD, WORKERS, GROWING, EXPONENTIAL, METASTABLE, KINDS };
extern const char *const KIND_NAMES[KINDS];

/* Parameters of a law. A kind uses some of them (USES in options.c); the others are 0. */
struct parameters {
    enum kind kind;
    double rate_per_sec; /* R */
    int64_t burst;       /* B, tokens */
    int64_t time_ns;     /* D, or the mean of EXPONENTIAL */
    int64_t workers;     /* k */
    double growth;       /* g */
    int64_t timeout_ns;  /* T */
    int64_t retries;     /* r */
    uint64_t seed;       /* seed of the times of EXPONENTIAL */
};

/* ---- law.c */

struct law {
    struct parameters of;
    int64_t full_ns;              /* BUCKET: when the bucket will be full again */
    int64_t free_ns[MAX_WORKERS]; /* when each worker ends its assigned work */
    uint64_t random;
    int64_t calm; /* METASTABLE: requests in a row that were answered within the timeout */
    int is_storm; /* METASTABLE: whether every request is sent again */
};

struct law law_new(struct parameters of);

/* When the next request in the queue can be taken up. */
int64_t law_free_ns(const struct law *law);

/* When the answer to the next request in the queue leaves. The request arrived at `now_ns` with this many open
 * connections. Arrivals must not go back in time. With THREAD, CPU time counts as time. */
int64_t law_end_ns(struct law *law, int64_t now_ns, int64_t connections);

/* Service time of a request with this many connections; for EXPONENTIAL the mean. */
double law_time_ns(const struct parameters *of, double connections);

uint64_t random_next(uint64_t *state);
/* Greater than 0, at most 1. */
double random_unit(uint64_t *state);

/* ---- queue.c */

struct request {
    uint64_t client;
    int64_t ns; /* arrival while it waits, later its end */
    int64_t connections;
};

/* Requests that wait for the law, and requests in work whose answers are not due yet. */
struct queue {
    struct law law;
    struct request *waiting; /* a ring, by arrival */
    size_t first, count, room;
    struct request *ends; /* a heap, the earliest end at [0] */
    size_t end_count, end_room;
    /* Whether a waiting client is still there. Requests of clients that left are skipped. NULL
       means that all clients are still there. */
    int (*is_here)(uint64_t client);
};

void queue_arrive(struct queue *queue, uint64_t client, int64_t now_ns, int64_t connections);

/* Takes the next answer that is due at `now_ns` or earlier. Returns 0 if there is none. */
int queue_take(struct queue *queue, int64_t now_ns, struct request *answered);

/* When the next action is due; INT64_MAX means never. */
int64_t queue_next_ns(const struct queue *queue);

void queue_free(struct queue *queue);

/* ---- draw.c */

/* The parameters of draw number `draw` for a kind and a seed. */
struct parameters draw(uint64_t seed, enum kind kind, uint64_t draw);

/* ---- solve.c */

/* The truths of a server. A value that it does not have is 0, because no load is 0. */
struct truth {
    /* In a closed loop of clients that send again at once. */
    double knee, yield, peak_load, peak_per_sec, failure;
    /* METASTABLE: the most connections that do not start the storm, and the most at which it ends. */
    double overload, recovery;
    /* In an open loop with Poisson arrivals. */
    double capacity_per_sec, yield_per_sec, failure_per_sec;
};

struct truth solve(const struct parameters *of);

/* Throughput of a closed loop of n connections whose load was raised from below. */
double solve_throughput(const struct parameters *of, double connections);

/* The share of trials that fail at a rate by the criteria of find. */
double solve_failing(const struct parameters *of, double rate_per_sec, int trials);

/* ---- options.c */

struct options {
    struct parameters of;
    const char *address;
    int port;       /* -1 if none was given */
    int is_truth;   /* print the truth and end */
    int is_counted; /* print the counts of the served requests at the end */
};

/* Ends the program with a sentence if the options make no sense. */
struct options options_read(int count, char **words);

void parameters_print(FILE *to, const struct parameters *of);

/* ---- serve.c */

/* Serves until SIGTERM or SIGINT. */
void serve(const struct options *options);

#endif
