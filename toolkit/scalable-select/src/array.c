/* See array.h. */
#define _GNU_SOURCE
#include "array.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

typedef size_t differs(const struct pollfd *fds, const uint64_t *remembered, size_t from, size_t end);

static size_t differs_by_word(const struct pollfd *fds, const uint64_t *remembered, size_t from, size_t end) {
    const sp_entry *words = (const sp_entry *)fds;
    for (; from + SP_ARRAY_BLOCK <= end; from += SP_ARRAY_BLOCK) {
        uint64_t difference = 0;
        for (int i = 0; i < SP_ARRAY_BLOCK; i++)
            difference |= words[from + (size_t)i] ^ remembered[from + (size_t)i];
        if (difference != 0)
            return from;
    }
    return from;
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static size_t differs_avx2(const struct pollfd *fds, const uint64_t *remembered,
                                                           size_t from, size_t end) {
    for (; from + SP_ARRAY_BLOCK <= end; from += SP_ARRAY_BLOCK) {
        const __m256i *a = (const __m256i *)(const void *)&fds[from],
                      *b = (const __m256i *)(const void *)&remembered[from];
        __m256i d0 = _mm256_xor_si256(_mm256_loadu_si256(a), _mm256_loadu_si256(b));
        __m256i d1 = _mm256_xor_si256(_mm256_loadu_si256(a + 1), _mm256_loadu_si256(b + 1));
        __m256i d2 = _mm256_xor_si256(_mm256_loadu_si256(a + 2), _mm256_loadu_si256(b + 2));
        __m256i d3 = _mm256_xor_si256(_mm256_loadu_si256(a + 3), _mm256_loadu_si256(b + 3));
        __m256i difference = _mm256_or_si256(_mm256_or_si256(d0, d1), _mm256_or_si256(d2, d3));
        if (!_mm256_testz_si256(difference, difference))
            return from;
    }
    return from;
}
#endif

differs *sp_array_differs = differs_by_word;

void sp_array_start(void) {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && !sp_options.is_plain)
        sp_array_differs = differs_avx2;
#endif
}

void sp_array_remember(struct sp_thread *t, size_t i, struct pollfd p, bool is_quiet) {
    uint64_t word = sp_word_of(p);
    if (p.fd >= 0) {
        uint32_t before = t->place[p.fd];
        bool is_second = false;
        if (before != i && before < t->remembered_count) {
            int there = sp_entry_of(t->remembered[before]).fd;
            /* Places before i were scanned already, so the descriptors remembered there are in the array. (A
             * negative number there may happen to equal our mark; that only costs time.) Later places are not
             * scanned yet. */
            if (there == p.fd || there == ~p.fd) {
                is_second = before < i;
                if (!is_second)
                    t->remembered[before] = sp_doubtful(p.fd);
            }
        }
        if (is_second)
            t->has_duplicates = true;
        else
            t->place[p.fd] = (uint32_t)i;
        if (is_second || !is_quiet)
            word = sp_doubtful(p.fd);
    }
    t->remembered[i] = word;
    if (i >= t->remembered_count)
        t->remembered_count = (uint32_t)i + 1;
}
