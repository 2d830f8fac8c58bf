/* The sizes that were asked for, by object: STINGY_PROFILE=FILE writes them at exit, for stingygen --profile. */
#define _GNU_SOURCE
#include "slab.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Buckets of 16 bytes up to 16 KiB; larger blocks are counted in the last, and the largest is kept. */
enum { BUCKET_BYTES = 16, BUCKETS = 1024 };
struct histogram {
    _Atomic uint64_t counts[BUCKETS + 1];
    _Atomic uint64_t largest;
};
static struct histogram *histograms;
_Atomic bool profile_is_on;

/* Opened at start, when the program may still write there. */
static FILE *profile_file, *stats_file;

static FILE *open_report(const char *name) {
    const char *path = getenv(name);
    if (!path || !*path)
        return NULL;
    if (strcmp(path, "stderr") == 0)
        return stderr;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        fprintf(stderr, "stingy: cannot write %s=%s: %s\n", name, path, strerror(errno));
    return file;
}

static void at_exit(void) {
    if (stats_file)
        stingy_report(stats_file);
    profile_end();
    if (stats_file && stats_file != stderr)
        fclose(stats_file);
    stats_file = NULL;
}

void profile_start(const struct stingy_map *map) {
    static bool is_registered;
    profile_file = open_report("STINGY_PROFILE");
    stats_file = open_report("STINGY_STATS");
    if (profile_file && (histograms = calloc(map->object_count, sizeof *histograms)))
        atomic_store(&profile_is_on, true);
    if ((profile_file || stats_file) && !is_registered) {
        is_registered = true;
        atexit(at_exit);
    }
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

/* The smallest bucket's end that at least `percent` of the blocks do not exceed. */
static uint64_t percentile(struct histogram *h, uint64_t all, unsigned percent) {
    uint64_t seen = 0, largest = atomic_load(&h->largest);
    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += atomic_load(&h->counts[b]);
        if (seen * 100 >= all * percent)
            return (b + 1) * BUCKET_BYTES < largest ? (b + 1) * BUCKET_BYTES : largest;
    }
    return largest;
}

void profile_end(void) {
    if (!atomic_exchange(&profile_is_on, false))
        return;
    fputs("{\"stingy_profile\":1,\"objects\":[", profile_file);
    for (unsigned o = 0; o < stingy_world.map->object_count; o++) {
        struct histogram *h = &histograms[o];
        uint64_t all = 0;
        for (unsigned b = 0; b <= BUCKETS; b++)
            all += atomic_load(&h->counts[b]);
        struct stingy_stats s;
        stingy_object_stats(o, &s);
        fprintf(profile_file,
                "%s\n{\"id\":\"%s\",\"count\":%" PRIu64 ",\"p50_bytes\":%" PRIu64 ",\"p95_bytes\":%" PRIu64
                ",\"p99_bytes\":%" PRIu64 ",\"max_bytes\":%" PRIu64 ",\"peak_live\":%" PRIu64 "}",
                o ? "," : "", stingy_world.map->objects[o].name, all, percentile(h, all, 50), percentile(h, all, 95),
                percentile(h, all, 99), (uint64_t)atomic_load(&h->largest), s.peak_live);
    }
    fputs("\n]}\n", profile_file);
    if (profile_file != stderr)
        fclose(profile_file);
    profile_file = NULL;
    /* The histograms stay: another thread may be in profile_note. */
}
