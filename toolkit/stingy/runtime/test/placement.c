/* Where stack, globals and slots meet in a cache: on random maps, by the addresses that a program really uses. */
#define _GNU_SOURCE
#include "check.h"
#include "maps.h"

#include <sys/mman.h>

enum { LINE = 64, HUGE = 2 << 20, PAGE = 4096, MOST_LINES = HUGE / LINE };

/* A pool of random regions after a stack of a few pages, and globals in a section at a random page. */
static struct made_map made;
static char *section;

static void make(uint64_t *seed, bool has_globals) {
    made_pool(&made, seed);
    uint32_t stack = random_below(seed, 5) * PAGE, globals = has_globals ? (1 + random_below(seed, 100)) * 48 : 0;
    uint32_t before = (stack + globals + LINE - 1) / LINE * LINE;
    /* Slots of whole lines, so that lines can be counted. */
    for (unsigned r = 0; r < made.map.region_count; r++) {
        struct stingy_region *region = &made.regions[r];
        region->slot_bytes = (region->slot_bytes + LINE - 1) / LINE * LINE;
        region->offset_bytes = before;
        before += region->slots * region->slot_bytes;
    }
    made.map.cache_bytes = (before + PAGE - 1) / PAGE * PAGE;
    made.map.stack_bytes = stack, made.map.globals_bytes = globals;
    if (has_globals) {
        made.map.globals = section + random_below(seed, HUGE / PAGE) * PAGE;
        made.map.globals_end = made.map.globals + globals;
    }
    CHECK_EQ(stingy_init(&made.map, NULL), 0);
}

/* Lines of one part by the set that they fall into, of a cache with so many sets. */
static void fall(const char *from, const char *to, uint32_t sets, uint8_t *lines) {
    for (uintptr_t line = (uintptr_t)from / LINE; from < to && line <= ((uintptr_t)to - 1) / LINE; line++)
        lines[line % sets]++;
}

static uintptr_t deepest_local;
static void go_deep(void *unused) {
    (void)unused;
    volatile char here[64];
    here[0] = 1;
    deepest_local = (uintptr_t)here;
}

struct parts {
    const char *cache; /* the slab's beginning */
    uint8_t stack[MOST_LINES], globals[MOST_LINES], slots[MOST_LINES];
};

/* Every slot of every region is taken, so that its address is known. */
static void find_parts(struct parts *parts, uint32_t sets) {
    memset(parts, 0, sizeof *parts);
    static void *blocks[16 * 64];
    unsigned count = 0;
    for (unsigned o = 0; o < made.map.object_count; o++)
        while (stingy_free_slots(made.objects[o].region) > 0) {
            char *block = blocks[count++] = stingy_alloc(o);
            CHECK(stingy_is_in_cache_slab(block));
            fall(block, block + made.objects[o].object_bytes, sets, parts->slots);
            if (made.objects[o].region == 0 && (!parts->cache || block - made.regions[0].offset_bytes < parts->cache))
                parts->cache = block - made.regions[0].offset_bytes;
        }
    while (count > 0)
        stingy_free(STINGY_ANY, blocks[--count]);
    fall(made.map.globals, made.map.globals_end, sets, parts->globals);
    deepest_local = 0;
    stingy_call_on_stack(go_deep, NULL);
    if (made.map.stack_bytes && stingy_is_in_slab((void *)deepest_local)) /* not under AddressSanitizer */
        CHECK((const char *)deepest_local >= parts->cache &&
              (const char *)deepest_local < parts->cache + made.map.stack_bytes);
    fall(parts->cache, parts->cache + made.map.stack_bytes, sets, parts->stack);
}

static void what_fits_into_the_cache_shares_no_set(void) {
    static struct parts parts;
    uint64_t seed = 11;
    unsigned with_both = 0;
    for (unsigned turn = 0; turn < 150; turn++) {
        make(&seed, turn % 4 != 0);
        /* The smallest cache of one way, a power of two, that the slab fits into: up to a huge page. */
        uint32_t sets = 64;
        while (sets * LINE < made.map.cache_bytes)
            sets *= 2;
        find_parts(&parts, sets);
        unsigned shared = 0;
        for (uint32_t s = 0; s < sets; s++)
            shared += !!parts.stack[s] + !!parts.globals[s] + !!parts.slots[s] > 1;
        CHECK_EQ(shared, 0);
        with_both += made.map.globals && made.map.stack_bytes;
        stingy_end();
    }
    CHECK(with_both > 50);
}

static void no_set_gets_more_lines_than_the_slab_has_for_each(void) {
    static struct parts parts;
    uint64_t seed = 12;
    for (unsigned turn = 0; turn < 150; turn++) {
        make(&seed, true);
        uint32_t sets = 64u << random_below(&seed, 6);
        find_parts(&parts, sets);
        uint32_t ways = (made.map.cache_bytes + sets * LINE - 1) / (sets * LINE);
        for (uint32_t s = 0; s < sets; s++)
            CHECK((uint32_t)parts.stack[s] + parts.globals[s] + parts.slots[s] <= ways);
        stingy_end();
    }
}

static void without_globals_the_slab_begins_at_a_huge_page(void) {
    static struct parts parts;
    uint64_t seed = 13;
    make(&seed, false);
    find_parts(&parts, MOST_LINES);
    CHECK_EQ((uintptr_t)parts.cache % HUGE, 0);
    stingy_end();
}

/* A section with free addresses around it goes to huge pages, and keeps what it holds. */
static void the_section_moves_to_huge_pages_with_its_contents(void) {
    uint64_t seed = 14;
    char *room = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
         *at = room + HUGE + 5 * PAGE;
    CHECK(room != MAP_FAILED);
    munmap(room, 4 * HUGE);
    CHECK(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    for (unsigned i = 0; i < 2 * PAGE; i++)
        at[i] = (char)(i * 7 + i / 251);
    made_pool(&made, &seed);
    for (unsigned r = 0; r < made.map.region_count; r++)
        made.regions[r].offset_bytes += 2 * PAGE;
    made.map.cache_bytes += 2 * PAGE;
    made.map.globals_bytes = 2 * PAGE, made.map.globals = at, made.map.globals_end = at + 2 * PAGE - 100;
    CHECK_EQ(stingy_init(&made.map, NULL), 0);
    for (unsigned i = 0; i < 2 * PAGE - 100; i++)
        CHECK_EQ(at[i], (char)(i * 7 + i / 251));
    at[17] = 99;
    /* Now it owns all of its huge pages. */
    char *first = at - (uintptr_t)at % HUGE;
    unsigned char is_there;
    CHECK_EQ(mincore(first, PAGE, &is_there), 0);
    struct stingy_stats s;
    stingy_stats(&s);
    CHECK_EQ(s.globals_bytes, 2 * PAGE - 100);
    CHECK(s.globals_huge_bytes == UINT64_MAX || s.globals_huge_bytes % HUGE == 0);
    stingy_end();
    CHECK_EQ(at[17], 99);
    CHECK_EQ(stingy_init(&made.map, NULL), 0);
    CHECK_EQ(at[17], 99);
    stingy_end();
}

static void use_some_stack(void *unused) {
    (void)unused;
    volatile char some[3000];
    for (unsigned i = 0; i < sizeof some; i++)
        some[i] = 1;
    deepest_local = (uintptr_t)some;
}

static void the_deepest_use_of_the_stack_is_told(void) {
    uint64_t seed = 15;
    do {
        make(&seed, true);
        if (made.map.stack_bytes >= 2 * PAGE)
            break;
        stingy_end();
    } while (true);
    struct stingy_stats s;
    stingy_call_on_stack(go_deep, NULL);
    stingy_stats(&s);
    bool is_there = stingy_is_in_slab((void *)deepest_local);
    CHECK(is_there ? s.stack_peak_bytes > 0 && s.stack_peak_bytes < 3000 : s.stack_peak_bytes == 0);
    stingy_call_on_stack(use_some_stack, NULL);
    stingy_stats(&s);
    CHECK(is_there ? s.stack_peak_bytes >= 3000 && s.stack_peak_bytes < 6000 : s.stack_peak_bytes == 0);
    stingy_end();
}

static void a_section_that_does_not_fit_is_refused(void) {
    uint64_t seed = 16;
    make(&seed, true);
    stingy_end();
    made.map.globals += 64, made.map.globals_end += 64;
    CHECK_EQ(stingy_init(&made.map, NULL), -EINVAL);
    made.map.globals -= 64;
    CHECK_EQ(stingy_init(&made.map, NULL), -EINVAL); /* larger than globals_bytes */
    made.map.globals_end = NULL;
    CHECK_EQ(stingy_init(&made.map, NULL), -EINVAL);
    made.map.globals = NULL;
    CHECK_EQ(stingy_init(&made.map, NULL), 0);
    stingy_end();
}

int main(void) {
    /* Random places in it are sections; as it is one mapping, it is never moved. */
    section = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (section == MAP_FAILED)
        return 2;
    RUN(what_fits_into_the_cache_shares_no_set);
    RUN(no_set_gets_more_lines_than_the_slab_has_for_each);
    RUN(without_globals_the_slab_begins_at_a_huge_page);
    RUN(the_section_moves_to_huge_pages_with_its_contents);
    RUN(the_deepest_use_of_the_stack_is_told);
    RUN(a_section_that_does_not_fit_is_refused);
    return check_end();
}
