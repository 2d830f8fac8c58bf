/* Compares lowest-free with what it replaces, for 1 Ki to 16 Mi numbers, in turn within each
 * round.
 *
 * The table is nearly full: one number is given back and the lowest free one taken. `linear`
 * searches a bitmap word by word from the start. `two-level` works as Linux since 4.4
 * (fs/file.c, find_next_fd): it searches a second bitmap of full words word by word, then one
 * word below. Both start at the lowest number, without Linux's next_fd hint. Prints the
 * capacity, and for each method the median over rounds of nanoseconds for a pair of give and
 * take. */
#define _GNU_SOURCE
#include "lowest_free.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, PAIRS = 200 };

static uint64_t state = 88172645463325252u;
static size_t pick(size_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 11) % n;
}

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t *bitmap, *full;
static size_t words;

static size_t linear_take(void) {
    for (size_t i = 0; i < words; i++)
        if (bitmap[i] != UINT64_MAX) {
            size_t bit = (size_t)__builtin_ctzll(~bitmap[i]);
            bitmap[i] |= UINT64_C(1) << bit;
            return i * 64 + bit;
        }
    return SIZE_MAX;
}

static size_t two_level_take(void) {
    for (size_t i = 0; i < words / 64 + 1; i++)
        if (full[i] != UINT64_MAX) {
            size_t word = i * 64 + (size_t)__builtin_ctzll(~full[i]);
            size_t bit = (size_t)__builtin_ctzll(~bitmap[word]);
            bitmap[word] |= UINT64_C(1) << bit;
            if (bitmap[word] == UINT64_MAX)
                full[i] |= UINT64_C(1) << (word % 64);
            return word * 64 + bit;
        }
    return SIZE_MAX;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    printf("capacity linear_ns two_level_ns lowest_free_ns linear_ratio two_level_ratio\n");
    for (size_t capacity = 1024; capacity <= (size_t)16 << 20; capacity *= 4) {
        double ns[3][ROUNDS];
        size_t number[PAIRS];
        struct lowest_free *tree = lowest_free_create(capacity);
        words = capacity / 64;
        bitmap = malloc(words * 8);
        full = malloc((words / 64 + 1) * 8);
        if (tree == NULL || bitmap == NULL || full == NULL)
            return 1;
        memset(bitmap, 0xff, words * 8);
        memset(full, 0xff, (words / 64 + 1) * 8);
        while (lowest_free_take(tree) != LOWEST_FREE_NONE) {
        }
        for (int round = 0; round < ROUNDS; round++) {
            int pairs = capacity > 1 << 20 ? PAIRS / 4 : PAIRS;
            for (int i = 0; i < pairs; i++)
                number[i] = pick(capacity);
            for (int method = 0; method < 3; method++) {
                uint64_t start = cpu_ns();
                for (int i = 0; i < pairs; i++) {
                    size_t n = number[i], got;
                    if (method == 2) {
                        lowest_free_give(tree, n);
                        got = lowest_free_take(tree);
                    } else {
                        bitmap[n / 64] &= ~(UINT64_C(1) << (n % 64));
                        full[n / 4096] &= ~(UINT64_C(1) << (n / 64 % 64));
                        got = method == 0 ? linear_take() : two_level_take();
                        full[n / 4096] |= UINT64_C(1) << (n / 64 % 64);
                    }
                    if (got != n)
                        return 1;
                }
                ns[method][round] = (double)(cpu_ns() - start) / pairs;
            }
        }
        for (int method = 0; method < 3; method++)
            qsort(ns[method], ROUNDS, sizeof(double), ascending);
        double ours = ns[2][ROUNDS / 2];
        printf("%zu %.0f %.0f %.0f %.1f %.1f\n", capacity, ns[0][ROUNDS / 2], ns[1][ROUNDS / 2], ours,
               ns[0][ROUNDS / 2] / ours, ns[1][ROUNDS / 2] / ours);
        free(bitmap);
        free(full);
        lowest_free_destroy(tree);
    }
    return 0;
}
