/* Servers whose capacity, knee, yield and failure are known, because a stated law decides when each answer leaves.
 *
 * The law and its queue take the time as an argument and read no clock. So the same code serves requests (serve.c) and
 * is simulated (test/law.c, solve.c). README.md has the laws and the formulas. */
#ifndef TRUTH_H
#define TRUTH_H

#include <stdint.h>
#include <stdio.h>

enum { MAX_WORKERS = 256 };

enum kind { BUCKET, THREAD, WORKERS, GROWING, EXPONENTIAL, METASTABLE, KINDS };
extern const char *const KIND_NAMES[KINDS];

/* What a law is made of. A kind uses some of them (USES in options.c); the others are 0. */
struct parameters {
    enum kind kind;
    double rate_per_sec; /* R */
    int64_t burst;       /* B, tokens */
    int64_t time_ns;     /* D; the mean of EXPONENTIAL */
    int64_t workers;     /* k */
    double growth;       /* g */
    int64_t timeout_ns;  /* T */
    int64_t retries;     /* r */
    uint64_t seed;       /* of the times of EXPONENTIAL */
};

/* ---- law.c */

struct law {
    struct parameters of;
    int64_t full_ns;              /* BUCKET: when the bucket will be full again */
    int64_t free_ns[MAX_WORKERS]; /* when each worker has done what it was given */
    uint64_t random;
    int64_t calm; /* METASTABLE: requests in a row that were answered within the timeout */
    int is_storm; /* METASTABLE: every request is sent again */
};

struct law law_new(struct parameters of);

/* From when on the next request in the queue can be taken up. */
int64_t law_free_ns(const struct law *law);

/* The time at which the answer to the next request in the queue leaves. The request arrived at `now_ns` with this many
 * open connections. Arrivals do not go back in time. THREAD: its CPU time counts as time. */
int64_t law_end_ns(struct law *law, int64_t now_ns, int64_t connections);

/* Service time of a request with this many connections; for EXPONENTIAL the mean. */
double law_time_ns(const struct parameters *of, double connections);

uint64_t random_next(uint64_t *state);
/* Above 0, at most 1. */
double random_unit(uint64_t *state);

/* ---- queue.c */

struct request {
    uint64_t client;
    int64_t ns; /* arrival while it waits, then end */
    int64_t connections;
};

/* Requests that wait for the law, and those taken up whose answers are not yet due. */
struct queue {
    struct law law;
    struct request *waiting; /* a ring, by arrival */
    size_t first, count, room;
    struct request *ends; /* a heap, the earliest end at [0] */
    size_t end_count, end_room;
    /* Whether a client that waits is still there; one that is gone is not worked for. NULL: all are. */
    int (*is_here)(uint64_t client);
};

void queue_arrive(struct queue *queue, uint64_t client, int64_t now_ns, int64_t connections);

/* The next answer that is due at `now_ns` or before; 0 where there is none. */
int queue_take(struct queue *queue, int64_t now_ns, struct request *answered);

/* When there is something to do: INT64_MAX is never. */
int64_t queue_next_ns(const struct queue *queue);

void queue_free(struct queue *queue);

/* ---- draw.c */

/* The parameters number `draw` of a kind, of this seed. */
struct parameters draw(uint64_t seed, enum kind kind, uint64_t draw);

/* ---- solve.c */

/* A truth that a server does not have is 0: no load is. */
struct truth {
    /* Closed loop, clients that ask again at once. */
    double knee, yield, peak_load, peak_per_sec, failure;
    /* METASTABLE: the most connections that do not start the storm, and the most at which it ends. */
    double overload, recovery;
    /* Open loop, Poisson arrivals. */
    double capacity_per_sec, yield_per_sec, failure_per_sec;
};

struct truth solve(const struct parameters *of);

/* Throughput of a closed loop of n connections, after loading from below. */
double solve_throughput(const struct parameters *of, double connections);

/* The share of trials that fail at a rate, by the criteria of find. */
double solve_failing(const struct parameters *of, double rate_per_sec, int trials);

/* ---- options.c */

struct options {
    struct parameters of;
    const char *address;
    int port;       /* -1: none was given */
    int is_truth;   /* print it and end */
    int is_counted; /* say at the end what was served */
};

/* Ends the program with a sentence where they make no sense. */
struct options options_read(int count, char **words);

void parameters_print(FILE *to, const struct parameters *of);

/* ---- serve.c */

/* Serves until SIGTERM or SIGINT. */
void serve(const struct options *options);

#endif
