/* Records the requested sizes by object: STINGY_PROFILE=FILE, for stingygen --profile. */
#include "slab.h"

#include <stdlib.h>
#include <string.h>

/* Buckets of 16 bytes up to 16 KiB. Larger blocks are counted in the last bucket, and the largest size is kept. */
enum { BUCKET_BYTES = 16, BUCKETS = 1024 };
struct histogram {
    _Atomic uint64_t counts[BUCKETS + 1];
    _Atomic uint64_t largest;
};
static struct histogram *histograms;
_Atomic bool profile_is_on;

bool profile_start(void) {
    if (!histograms)
        histograms = calloc(STINGY_MAX_OBJECTS, sizeof *histograms);
    for (unsigned o = 0; histograms && o < stingy_world.map->object_count; o++)
        memset(&histograms[o], 0, sizeof histograms[o]);
    atomic_store(&profile_is_on, histograms != NULL);
    return histograms != NULL;
}

void profile_note(unsigned object, size_t bytes) {
    if (object >= stingy_world.map->object_count)
        return;
    struct histogram *h = &histograms[object];
    size_t bucket = bytes ? (bytes - 1) / BUCKET_BYTES : 0;
    atomic_fetch_add_explicit(&h->counts[bucket < BUCKETS ? bucket : BUCKETS], 1, memory_order_relaxed);
    uint64_t largest = atomic_load_explicit(&h->largest, memory_order_relaxed);
    while (bytes > largest && !atomic_compare_exchange_weak_explicit(&h->largest, &largest, bytes, memory_order_relaxed,
                                                                     memory_order_relaxed))
        ;
}

/* The upper limit of the smallest bucket that at least `percent` of the blocks do not exceed. */
static uint64_t percentile(struct histogram *h, uint64_t all, unsigned percent) {
    uint64_t seen = 0, largest = atomic_load(&h->largest);
    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += atomic_load(&h->counts[b]);
        if (seen * 100 >= all * percent)
            return (b + 1) * BUCKET_BYTES < largest ? (b + 1) * BUCKET_BYTES : largest;
    }
    return largest;
}

static uint64_t blocks_of(struct histogram *h) {
    uint64_t all = 0;
    for (unsigned b = 0; b <= BUCKETS; b++)
        all += atomic_load(&h->counts[b]);
    return all;
}

uint64_t profile_blocks(void) {
    uint64_t all = 0;
    for (unsigned o = 0; o < stingy_world.map->object_count; o++)
        all += blocks_of(&histograms[o]);
    return all;
}

void profile_put(struct text *out) {
    text_put(out, "{\"stingy_profile\":1,\"objects\":[");
    for (unsigned o = 0; o < stingy_world.map->object_count; o++) {
        struct histogram *h = &histograms[o];
        uint64_t all = blocks_of(h);
        struct stingy_stats s;
        stingy_object_stats(o, &s);
        text_put(out, o ? ",\n{\"id\":\"" : "\n{\"id\":\"");
        text_put(out, stingy_world.map->objects[o].name);
        text_number(out, "\",\"count\":", all);
        text_number(out, ",\"p50_bytes\":", percentile(h, all, 50));
        text_number(out, ",\"p95_bytes\":", percentile(h, all, 95));
        text_number(out, ",\"p99_bytes\":", percentile(h, all, 99));
        text_number(out, ",\"max_bytes\":", atomic_load(&h->largest));
        text_number(out, ",\"peak_live\":", s.peak_live);
        text_put(out, "}");
    }
    text_put(out, "\n]}\n");
    /* The histograms are not freed: another thread may be in profile_note. */
}
