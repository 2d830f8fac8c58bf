/* Counting over all slabs, and the report. */
#define _GNU_SOURCE
#include "slab.h"

#include <inttypes.h>
#include <string.h>

static struct slab *slab_number(uint32_t i) {
    return slab_of(stingy_world.base + i * stingy_world.stride);
}

static void add(struct stingy_stats *stats, struct object_counters *c) {
    uint64_t in = counted(&c->in_cache_slab), freed = counted(&c->freed);
    stats->in_cache_slab += in;
    stats->spilled_full += counted(&c->spilled_full);
    stats->spilled_large += counted(&c->spilled_large);
    stats->spilled_alone += counted(&c->spilled_alone);
    stats->spilled_malloc += counted(&c->spilled_malloc);
    stats->peak_live += counted(&c->peak_live);
    /* Modulo 2^64 the sum over objects is right, even where one was freed under another's name. */
    stats->live += in - freed;
}

static void sum(struct stingy_stats *stats) {
    stats->allocations = stats->in_cache_slab + stats->spilled_full + stats->spilled_large + stats->spilled_alone;
}

/* Bytes of huge pages in mappings that lie in a range, as /proc/self/smaps has it: a line of addresses, then its
 * figures. */
static uint64_t huge_bytes(uintptr_t low, uintptr_t high) {
    FILE *smaps = fopen("/proc/self/smaps", "re");
    if (!smaps)
        return UINT64_MAX;
    uint64_t all = 0;
    bool is_ours = false;
    char line[512];
    while (fgets(line, sizeof line, smaps)) {
        uintptr_t from, to;
        uint64_t kib;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            is_ours = from >= low && to <= high;
        else if (is_ours && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1)
            all += kib << 10;
    }
    fclose(smaps);
    return all;
}

void stingy_object_stats(unsigned object, struct stingy_stats *stats) {
    memset(stats, 0, sizeof *stats);
    if (!atomic_load(&stingy_world.is_ready) || object >= stingy_world.map->object_count)
        return;
    for (uint32_t i = 0; i < atomic_load(&stingy_world.threads); i++)
        add(stats, &slab_number(i)->objects[object]);
    if (stats->live > UINT32_MAX)
        stats->live = 0;
    sum(stats);
}

void stingy_stats(struct stingy_stats *stats) {
    memset(stats, 0, sizeof *stats);
    if (!atomic_load(&stingy_world.is_ready))
        return;
    stats->threads = atomic_load(&stingy_world.threads);
    for (uint32_t i = 0; i < stats->threads; i++) {
        struct slab *slab = slab_number(i);
        for (unsigned o = 0; o <= stingy_world.map->object_count; o++)
            add(stats, &slab->objects[o]);
        stats->foreign_frees += counted(&slab->foreign_frees);
        stats->remote_frees += counted(&slab->remote_frees);
        size_t peak = stack_peak(slab);
        if (peak > stats->stack_peak_bytes)
            stats->stack_peak_bytes = peak;
    }
    sum(stats);
    const struct world *w = &stingy_world;
    stats->huge_bytes = huge_bytes((uintptr_t)w->base, (uintptr_t)w->base + w->max_threads * w->stride);
    if (w->map->globals) {
        stats->globals_bytes = (uint64_t)(w->map->globals_end - w->map->globals);
        stats->globals_huge_bytes =
            huge_bytes((uintptr_t)w->map->globals / HUGE_PAGE * HUGE_PAGE,
                       ((uintptr_t)w->map->globals_end + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    }
}

void stingy_report(FILE *out) {
    struct stingy_stats s;
    if (!atomic_load(&stingy_world.is_ready))
        return;
    stingy_stats(&s);
    fprintf(out, "{\"is_off\":%s,\"threads\":%" PRIu64 ",\"cache_slab_bytes\":%" PRIu32 ",",
            stingy_world.is_off ? "true" : "false", s.threads, stingy_world.map->cache_bytes);
    if (s.huge_bytes != UINT64_MAX)
        fprintf(out, "\"huge_bytes\":%" PRIu64 ",", s.huge_bytes);
    if (s.globals_bytes && s.globals_huge_bytes != UINT64_MAX)
        fprintf(out, "\"globals_bytes\":%" PRIu64 ",\"globals_huge_bytes\":%" PRIu64 ",", s.globals_bytes,
                s.globals_huge_bytes);
    if (stingy_world.map->stack_bytes)
        fprintf(out, "\"stack_bytes\":%" PRIu32 ",\"stack_peak_bytes\":%" PRIu64 ",", stingy_world.map->stack_bytes,
                s.stack_peak_bytes);
    fprintf(out,
            "\"allocations\":%" PRIu64 ",\"in_cache_slab\":%" PRIu64 ",\"spilled_full\":%" PRIu64
            ",\"spilled_large\":%" PRIu64 ",\"spilled_alone\":%" PRIu64 ",\"spilled_malloc\":%" PRIu64
            ",\"foreign_frees\":%" PRIu64 ",\"remote_frees\":%" PRIu64 ",\"live\":%" PRIu64 ",\"objects\":[",
            s.allocations, s.in_cache_slab, s.spilled_full, s.spilled_large, s.spilled_alone, s.spilled_malloc,
            s.foreign_frees, s.remote_frees, s.live);
    for (unsigned o = 0; o < stingy_world.map->object_count; o++) {
        stingy_object_stats(o, &s);
        fprintf(out,
                "%s{\"name\":\"%s\",\"allocations\":%" PRIu64 ",\"in_cache_slab\":%" PRIu64 ",\"spilled_full\":%" PRIu64
                ",\"spilled_large\":%" PRIu64 ",\"spilled_alone\":%" PRIu64 ",\"peak_live\":%" PRIu64 "}",
                o ? "," : "", stingy_world.map->objects[o].name, s.allocations, s.in_cache_slab, s.spilled_full,
                s.spilled_large, s.spilled_alone, s.peak_live);
    }
    fputs("]}\n", out);
}
