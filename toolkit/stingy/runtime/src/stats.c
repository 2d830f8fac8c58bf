/* Counts over all slabs, and the report. */
#define _GNU_SOURCE
#include "slab.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct slab *slab_number(uint32_t i) {
    return slab_of(stingy_world.base + i * stingy_world.stride);
}

static void add(struct stingy_stats *stats, struct object_counters *c) {
    uint64_t in = counted(&c->in_cache_slab), freed = counted(&c->freed);
    stats->in_cache_slab += in;
    stats->spilled_full += counted(&c->spilled_full);
    stats->spilled_large += counted(&c->spilled_large);
    stats->spilled_malloc += counted(&c->spilled_malloc);
    stats->peak_live += counted(&c->peak_live);
    /* Modulo 2^64 the sum over objects is right, even if one object was freed under another's name. */
    stats->live += in - freed;
}

static void sum(struct stingy_stats *stats) {
    stats->allocations = stats->in_cache_slab + stats->spilled_full + stats->spilled_large;
}

/* Parses a number at the beginning of a text and moves the text behind it. */
static uint64_t number_at(const char **text, unsigned base) {
    uint64_t number = 0;
    for (;; ++*text) {
        unsigned digit = **text >= '0' && **text <= '9'   ? (unsigned)(**text - '0')
                         : **text >= 'a' && **text <= 'f' ? (unsigned)(**text - 'a') + 10
                                                          : base;
        if (digit >= base)
            return number;
        number = number * base + digit;
    }
}

/* Returns the bytes on huge pages in mappings within a range, from /proc/self/smaps, which has a line of addresses
 * before each mapping's figures. May be called in a signal handler. */
static uint64_t huge_bytes(uintptr_t low, uintptr_t high) {
    int smaps = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (smaps < 0)
        return UINT64_MAX;
    uint64_t all = 0;
    bool is_ours = false;
    static const char wanted[] = "AnonHugePages:";
    char line[64], chunk[512];
    size_t length = 0;
    for (ssize_t got; (got = read(smaps, chunk, sizeof chunk)) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            if (chunk[i] != '\n') {
                if (length < sizeof line - 1)
                    line[length++] = chunk[i];
                continue;
            }
            line[length] = 0;
            length = 0;
            const char *at = line;
            uintptr_t from = number_at(&at, 16);
            if (at > line && *at == '-') {
                at++;
                is_ours = from >= low && number_at(&at, 16) <= high;
            } else if (is_ours && strncmp(line, wanted, sizeof wanted - 1) == 0) {
                for (at = line + sizeof wanted - 1; *at == ' ';)
                    at++;
                all += number_at(&at, 10) << 10;
            }
        }
    close(smaps);
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
}

static void put_counts(struct text *out, const struct stingy_stats *s) {
    text_number(out, "\"allocations\":", s->allocations);
    text_number(out, ",\"in_cache_slab\":", s->in_cache_slab);
    text_number(out, ",\"spilled_full\":", s->spilled_full);
    text_number(out, ",\"spilled_large\":", s->spilled_large);
}

void stats_put(struct text *out) {
    const struct stingy_map *map = stingy_world.map;
    struct stingy_stats s;
    stingy_stats(&s);
    text_number(out, "{\"pid\":", (uint64_t)getpid());
    text_put(out, stingy_world.is_off ? ",\"is_off\":true" : ",\"is_off\":false");
    text_number(out, ",\"threads\":", s.threads);
    text_number(out, ",\"cache_slab_bytes\":", map->cache_bytes);
    if (s.huge_bytes != UINT64_MAX)
        text_number(out, ",\"huge_bytes\":", s.huge_bytes);
    if (map->stack_bytes) {
        text_number(out, ",\"stack_bytes\":", map->stack_bytes);
        text_number(out, ",\"stack_peak_bytes\":", s.stack_peak_bytes);
    }
    text_put(out, ",");
    put_counts(out, &s);
    text_number(out, ",\"spilled_malloc\":", s.spilled_malloc);
    text_number(out, ",\"foreign_frees\":", s.foreign_frees);
    text_number(out, ",\"remote_frees\":", s.remote_frees);
    text_number(out, ",\"live\":", s.live);
    text_put(out, ",\"objects\":[");
    for (unsigned o = 0; o < map->object_count; o++) {
        stingy_object_stats(o, &s);
        text_put(out, o ? ",{\"name\":\"" : "{\"name\":\"");
        text_put(out, map->objects[o].name);
        text_put(out, "\",");
        put_counts(out, &s);
        text_number(out, ",\"peak_live\":", s.peak_live);
        text_put(out, "}");
    }
    text_put(out, "]}\n");
}

void stingy_report(FILE *out) {
    struct text text = {.file = out};
    if (!atomic_load(&stingy_world.is_ready))
        return;
    stats_put(&text);
    text_flush(&text);
}
