/* Compares random calls on random maps with a model: no two live blocks overlap, contents
 * survive, room is exact. */
#define _GNU_SOURCE
#include "check.h"
#include "maps.h"

enum { LIVE = 200, STEPS = 4000 };
static struct block {
    unsigned char *at;
    size_t bytes;
    unsigned object;
    unsigned char fill;
    bool is_foreign;
} live[LIVE];
static unsigned count;
static struct made_map made;

static void fill(struct block *b, unsigned char with) {
    b->fill = with;
    memset(b->at, with, b->bytes);
}

static bool is_whole(const struct block *b, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (b->at[i] != b->fill)
            return false;
    return true;
}

static int by_address(const void *a, const void *b) {
    const struct block *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void nothing_overlaps(void) {
    struct block sorted[LIVE];
    memcpy(sorted, live, count * sizeof *live);
    qsort(sorted, count, sizeof *sorted, by_address);
    for (unsigned i = 1; i < count; i++)
        CHECK(sorted[i - 1].at + sorted[i - 1].bytes <= sorted[i].at);
}

/* Free slots and blocks in the region's slots add up to all slots. */
static void room_is_exact(void) {
    for (unsigned r = 0; r < made.map.region_count; r++) {
        unsigned used = 0;
        for (unsigned i = 0; i < count; i++)
            used += stingy_is_in_cache_slab(live[i].at) && made.objects[live[i].object].region == r;
        CHECK_EQ(stingy_free_slots(r), made.regions[r].slots - used);
    }
}

static void release(unsigned i, uint64_t *seed) {
    CHECK(is_whole(&live[i], live[i].bytes));
    stingy_free(live[i].is_foreign || random_below(seed, 4) == 0 ? STINGY_ANY : live[i].object, live[i].at);
    live[i] = live[--count];
}

static void obtain(uint64_t *seed) {
    struct block *b = &live[count];
    b->object = random_below(seed, made.map.object_count);
    uint32_t usual = made.objects[b->object].object_bytes;
    b->bytes = random_below(seed, 3) ? usual : random_below(seed, 3 * usual + 1);
    b->is_foreign = false;
    switch (random_below(seed, 5)) {
    case 0:
        b->bytes = usual, b->at = stingy_alloc(b->object);
        break;
    case 1:
        b->at = stingy_calloc(b->object, 1, b->bytes), b->fill = 0;
        CHECK(is_whole(b, b->bytes));
        break;
    case 2:
        b->at = malloc(b->bytes + 1), b->is_foreign = true;
        break;
    default:
        b->at = stingy_alloc_var(b->object, b->bytes);
    }
    CHECK(b->at != NULL && (uintptr_t)b->at % 16 == 0);
    fill(b, (unsigned char)(1 + random_below(seed, 255)));
    count++;
}

static void resize(uint64_t *seed) {
    struct block *b = &live[random_below(seed, count)];
    size_t bytes = 1 + random_below(seed, random_below(seed, 10) ? 900 : 90000);
    b->at = stingy_realloc(random_below(seed, 2) ? STINGY_ANY : b->object, b->at, bytes);
    CHECK(b->at != NULL && is_whole(b, b->bytes < bytes ? b->bytes : bytes));
    b->bytes = bytes;
    fill(b, b->fill);
    if (!stingy_is_in_slab(b->at))
        b->is_foreign = true;
}

static void random_calls(uint64_t seed) {
    made_pool(&made, &seed);
    CHECK_EQ(stingy_init(&made.map, &(struct stingy_options){.max_threads = 2}), 0);
    count = 0;
    unsigned most = 1 + random_below(&seed, LIVE - 1);
    for (unsigned step = 0; step < STEPS; step++) {
        if (count < most && random_below(&seed, 2))
            obtain(&seed);
        else if (count && random_below(&seed, 4) == 0)
            resize(&seed);
        else if (count)
            release(random_below(&seed, count), &seed);
        if (step % 50 == 0) {
            nothing_overlaps();
            room_is_exact();
        }
    }
    while (count)
        release(count - 1, &seed);
    struct stingy_stats stats;
    stingy_stats(&stats);
    CHECK_EQ(stats.live, 0);
    for (unsigned r = 0; r < made.map.region_count; r++)
        CHECK_EQ(stingy_free_slots(r), made.regions[r].slots);
    stingy_end();
}

static unsigned rounds = 60;

static void live_blocks_never_overlap(void) {
    for (uint64_t seed = 1; seed <= rounds && !check_failures; seed++)
        random_calls(seed * 0x9e3779b97f4a7c15);
}

int main(int argc, char **argv) {
    if (argc > 1)
        rounds = (unsigned)atoi(argv[1]);
    RUN(live_blocks_never_overlap);
    return check_end();
}
