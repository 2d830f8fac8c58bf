/* Tests the runtime's rules, one by one. */
#define _GNU_SOURCE
#include "check.h"
#include "maps.h"
#include "slab.h" /* which sanitizer this is */

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct made_map made;

/* Object 0: 100 bytes, 2 slots; objects 1 and 2 share a region of 3 slots of 256 bytes. */
static void small_pool(void) {
    made_begin(&made, 3);
    made.objects[0] = (struct stingy_object){"request", 100, 0};
    made.objects[1] = (struct stingy_object){"line", 200, 1};
    made.objects[2] = (struct stingy_object){"body", 256, 1};
    made.regions[0] = (struct stingy_region){"request", 8192, 128, 2};
    made.regions[1] = (struct stingy_region){"line, body", 8192 + 256, 256, 3};
    made.map.region_count = 2, made.map.cache_bytes = 16384, made.map.stack_bytes = 8192;
    CHECK_EQ(stingy_init(&made.map, NULL), 0);
}

static struct stingy_stats stats(void) {
    struct stingy_stats s;
    stingy_stats(&s);
    return s;
}

static void objects_of_a_region_share_its_slots_and_the_next_one_spills(void) {
    small_pool();
    void *blocks[5];
    for (unsigned i = 0; i < 5; i++)
        blocks[i] = stingy_alloc(1 + i % 2);
    for (unsigned i = 0; i < 5; i++)
        CHECK_EQ(stingy_is_in_cache_slab(blocks[i]), i < 3);
    CHECK(stingy_is_in_slab(blocks[4]));
    CHECK_EQ(stats().spilled_full, 2);
    CHECK_EQ(stingy_free_slots(1), 0);
    for (unsigned i = 0; i < 5; i++)
        stingy_free(STINGY_ANY, blocks[i]);
    CHECK_EQ(stingy_free_slots(1), 3);
    CHECK_EQ(stats().live, 0);
    stingy_end();
}

static void a_freed_slot_is_the_next_one_given(void) {
    small_pool();
    void *first = stingy_alloc(0);
    stingy_free(0, first);
    CHECK(stingy_alloc(0) == first);
    stingy_end();
}

static void what_is_too_large_spills_and_returns_when_freed(void) {
    small_pool();
    void *large = stingy_alloc_var(1, 257);
    CHECK(stingy_is_in_slab(large) && !stingy_is_in_cache_slab(large));
    CHECK_EQ(stats().spilled_large, 1);
    stingy_free(1, large);
    CHECK(stingy_alloc_var(2, 257) == large);
    stingy_end();
}

static void a_spilled_block_takes_little_more_than_it_asks_for(void) {
    static const size_t sizes[] = {1, 8, 9, 48, 49, 288, 300, 1024, 4080, 4081, 5000, 20000, 70000, 131000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        small_pool();
        /* Blocks that are too large for a slot, or find no free one, are cut one after the other
         * from the high slab. */
        while (stingy_is_in_cache_slab(stingy_alloc_var(1, 1)))
            ;
        char *first = stingy_alloc_var(1, sizes[i]), *second = stingy_alloc_var(1, sizes[i]);
        CHECK(stingy_is_in_slab(first) && !stingy_is_in_cache_slab(first));
        size_t taken = (size_t)(second - first), most = sizes[i] + 16 + 15 + 16 + sizes[i] / 8;
        /* Header, rounding, and under AddressSanitizer a zone after it. */
        CHECK(taken >= sizes[i] + 16 && taken <= most);
        CHECK((uintptr_t)first % 16 == 0);
        stingy_end();
    }
    small_pool();
    void *larger = stingy_alloc_var(1, 131057);
    CHECK(larger && !stingy_is_in_slab(larger));
    stingy_free(1, larger);
    stingy_end();
}

static void what_the_high_slab_cannot_hold_comes_from_malloc(void) {
    small_pool();
    void *huge = stingy_alloc_var(1, 3 << 20);
    CHECK(huge && !stingy_is_in_slab(huge));
    CHECK_EQ(stats().spilled_malloc, 1);
    stingy_free(1, huge);
    void *blocks[30];
    for (unsigned i = 0; i < 30; i++) {
        blocks[i] = stingy_alloc_var(1, 60000);
        memset(blocks[i], 1, 60000);
    }
    CHECK(stats().spilled_malloc > 1);
    for (unsigned i = 0; i < 30; i++)
        stingy_free(1, blocks[i]);
    stingy_end();
}

static void blocks_of_malloc_are_freed_and_reallocated(void) {
    small_pool();
    free(stingy_realloc(1, malloc(10), 5000));
    char *text = stingy_realloc(1, strdup("foreign"), 100);
    CHECK(strcmp(text, "foreign") == 0);
    (void)stingy_free_slots(0);
    stingy_free(1, text);
    stingy_free(STINGY_ANY, NULL);
    CHECK_EQ(stats().foreign_frees, 1);
    stingy_end();
}

static void reallocation_stays_while_the_place_is_large_enough(void) {
    small_pool();
    char *block = stingy_realloc(1, NULL, 8);
    strcpy(block, "content");
    CHECK(stingy_realloc(1, block, 256) == block);
    CHECK(stingy_realloc(1, block, 8) == block);
    char *grown = stingy_realloc(1, block, 5000);
    CHECK(grown != block && strcmp(grown, "content") == 0);
    CHECK_EQ(stingy_free_slots(1), 3);
    stingy_free(1, stingy_realloc(1, grown, 300));
    stingy_end();
}

/* Whether a reallocation to 0 bytes frees the block depends on the C library; this finds out
 * with one of its blocks. */
static void reallocation_to_nothing_is_as_the_c_library_does_it(void) {
    volatile size_t nothing = 0;
    void *volatile block_of_c = malloc(8), *volatile left = realloc(block_of_c, nothing);
    small_pool();
    for (unsigned i = 0; i < 3; i++) { /* in the cache slab, in the high slab, from malloc */
        void *block = i < 2 ? stingy_alloc_var(1, i ? 5000 : 8) : malloc(8);
        void *ours = stingy_realloc(i == 1 ? STINGY_ANY : 1, block, nothing);
        CHECK_EQ(ours == NULL, left == NULL);
        if (ours)
            stingy_free(1, ours);
        CHECK_EQ(stingy_free_slots(1), 3);
        CHECK_EQ(stats().live, 0);
    }
    void *again = stingy_alloc_var(1, 5000), *first = again;
    stingy_free(1, again);
    CHECK(stingy_alloc_var(1, 5000) == first);
    stingy_end();
    free(left);
}

static void blocks_that_the_c_library_gives_through_an_argument_are_freed_and_reallocated(void) {
    small_pool();
    char *text = NULL, *line = NULL, *stream = NULL;
    void *aligned = NULL;
    size_t room = 0, length = 0;
    CHECK(asprintf(&text, "%d", 12) == 2);
    FILE *in = fmemopen((char[]){"a line\n"}, 7, "r"), *out = open_memstream(&stream, &length);
    CHECK(in && out && getline(&line, &room, in) == 7);
    fputs("stream", out);
    fclose(in), fclose(out);
    CHECK_EQ(posix_memalign(&aligned, 64, 100), 0);
    text = stingy_realloc(1, text, 5000), line = stingy_realloc(STINGY_ANY, line, 5000);
    CHECK(strcmp(text, "12") == 0 && strcmp(line, "a line\n") == 0);
    stingy_free(1, text), stingy_free(STINGY_ANY, line), stingy_free(0, stream), stingy_free(2, aligned);
    stingy_end();
}

static bool is_all(const unsigned char *block, size_t bytes, unsigned char byte) {
    for (size_t i = 0; i < bytes; i++)
        if (block[i] != byte)
            return false;
    return true;
}

/* For memory from every source: a slot of the cache slab, the high slab, malloc. */
static void dirty_memory_shows_what_was_never_written(void) {
    static const size_t sizes[] = {200, 5000, 3 << 20};
    for (unsigned i = 0; i < 3; i++) {
        size_t bytes = sizes[i];
        setenv("STINGY_DIRTY", "1", 1);
        small_pool();
        unsetenv("STINGY_DIRTY");
        unsigned char *block = stingy_alloc_var(1, bytes);
        CHECK_EQ(stingy_is_in_cache_slab(block), i == 0);
        CHECK(is_all(block, bytes, 0xa5));
        memset(block, 0, bytes);
        stingy_free(1, block);
        block = stingy_alloc_var(1, bytes);
        CHECK(is_all(block, bytes, 0xa5));
        if (i < 2) {
            memset(block, 0, bytes);
            CHECK(stingy_realloc(1, block, 16) == block && is_all(block, 16, 0));
            CHECK(stingy_realloc(1, block, bytes) == block && is_all(block, 16, 0));
            CHECK(is_all(block + 16, bytes - 16, 0xa5));
        }
        stingy_free(1, block);
        block = stingy_calloc(1, 1, bytes);
        CHECK(is_all(block, bytes, 0));
        stingy_free(1, block);
#if !defined(__SANITIZE_ADDRESS__)
        /* After the link of a free list. */
        if (i < 2)
            CHECK(is_all(block + 16, bytes - 16, 0xa5));
#endif
        stingy_end();
    }
    small_pool();
    CHECK(is_all(stingy_alloc(1), 200, 0));
    stingy_end();
}

static void calloc_clears_what_a_slot_held_and_refuses_an_overflow(void) {
    small_pool();
    memset(stingy_alloc(2), 0xff, 256);
    unsigned char *block = stingy_alloc(2);
    memset(block, 0xff, 256);
    stingy_free(2, block);
    unsigned char *clear = stingy_calloc(2, 16, 16);
    CHECK(clear == block);
    for (unsigned i = 0; i < 256; i++)
        CHECK_EQ(clear[i], 0);
    errno = 0;
    volatile size_t half = SIZE_MAX / 2;
    CHECK(stingy_calloc(2, half, 3) == NULL && errno == ENOMEM);
    stingy_end();
}

static void strings_are_copied_with_their_end(void) {
    small_pool();
    CHECK(strcmp(stingy_strdup(1, "stage"), "stage") == 0);
    char unended[3] = {'a', 'b', 'c'};
    CHECK(strcmp(stingy_strndup(1, unended, 3), "abc") == 0);
    CHECK(strcmp(stingy_strndup(1, "abc", 2), "ab") == 0);
    stingy_end();
}

/* Whether `act` ends the program with a message that contains `words`. */
static bool dies_saying(void (*act)(void), const char *words) {
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        act();
        _exit(0);
    }
    close(ends[1]);
    char text[4096] = "";
    size_t got = 0;
    for (ssize_t n; got < sizeof text - 1 && (n = read(ends[0], text + got, sizeof text - 1 - got)) > 0;)
        got += (size_t)n;
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return status != 0 && strstr(text, words);
}

static void free_slot_twice(void) {
    void *block = stingy_alloc(0);
    stingy_free(0, block);
    stingy_free(0, block);
}
static void free_inside(void) {
    stingy_free(0, (char *)stingy_alloc(0) + 16);
}
static void free_spilled_twice(void) {
    void *block = stingy_alloc_var(1, 300);
    stingy_free(1, block);
    stingy_free(1, block);
}
static void free_the_stack(void) {
    void *block = stingy_alloc(0);
    stingy_free(0, (char *)block - 8192 + 128);
}

static void *free_it(void *block) {
    stingy_free(STINGY_ANY, block);
    return NULL;
}
static void free_elsewhere(void *block) {
    pthread_t thread;
    pthread_create(&thread, NULL, free_it, block);
    pthread_join(thread, NULL);
}
static void free_slot_twice_elsewhere(void) {
    void *block = stingy_alloc(0);
    free_elsewhere(block);
    free_elsewhere(block);
}
static void free_slot_elsewhere_and_here(void) {
    void *block = stingy_alloc(0);
    free_elsewhere(block);
    stingy_free(0, block);
}
static void free_slot_here_and_elsewhere(void) {
    void *block = stingy_alloc(0);
    stingy_free(0, block);
    free_elsewhere(block);
}
static void free_inside_elsewhere(void) {
    free_elsewhere((char *)stingy_alloc(0) + 16);
}
static void *shrink_it(void *block) {
    return stingy_realloc(0, block, 8);
}
static void shrink_inside_elsewhere(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, shrink_it, (char *)stingy_alloc(0) + 16);
    pthread_join(thread, NULL);
}
static void free_spilled_twice_elsewhere(void) {
    void *block = stingy_alloc_var(1, 300);
    free_elsewhere(block);
    free_elsewhere(block);
}
static void free_spilled_elsewhere_and_here(void) {
    void *block = stingy_alloc_var(1, 300);
    free_elsewhere(block);
    stingy_free(1, block);
}
static void free_inside_spilled_elsewhere(void) {
    char *block = stingy_alloc_var(1, 300);
    memset(block, 'x', 300);
    free_elsewhere(block + 32);
}
/* Invalid memory must not be changed: the message comes before another thread's block is written
 * to. */
static void misuse_in_another_thread_ends_the_program_with_a_reason(void) {
    small_pool();
    CHECK(dies_saying(free_slot_twice_elsewhere, "was already freed"));
    CHECK(dies_saying(free_slot_elsewhere_and_here, "was already freed"));
    CHECK(dies_saying(free_slot_here_and_elsewhere, "was already freed"));
    CHECK(dies_saying(free_inside_elsewhere, "is not the beginning of a block"));
    CHECK(dies_saying(shrink_inside_elsewhere, "is not the beginning of a block"));
    CHECK(dies_saying(free_spilled_twice_elsewhere, "was already freed"));
    CHECK(dies_saying(free_spilled_elsewhere_and_here, "was already freed"));
    CHECK(dies_saying(free_inside_spilled_elsewhere, "is not the beginning of a block"));
    for (unsigned i = 0; i < 100; i++) { /* returning a slot again and again is not misuse */
        free_elsewhere(stingy_alloc(0));
        free_elsewhere(stingy_alloc_var(1, 300));
    }
    CHECK_EQ(stats().spilled_full, 0);
    stingy_end();
}

static void misuse_ends_the_program_with_a_reason(void) {
    small_pool();
    CHECK(dies_saying(free_slot_twice, "object request, was already freed"));
    CHECK(dies_saying(free_inside, "is not the beginning of a block"));
    CHECK(dies_saying(free_spilled_twice, "was already freed"));
    CHECK(dies_saying(free_the_stack, "in no region"));
    stingy_end();
}

static void off_hands_everything_to_malloc(void) {
    small_pool();
    stingy_end();
    CHECK_EQ(stingy_init(&made.map, &(struct stingy_options){.is_off = true}), 0);
    void *block = stingy_alloc(0);
    CHECK(!stingy_is_in_slab(block));
    CHECK_EQ(stingy_free_slots(0), UINT32_MAX);
    stingy_free(0, stingy_realloc(0, block, 10000));
    stingy_end();
}

static void before_init_blocks_come_from_malloc(void) {
    char *block = stingy_strdup(0, "early");
    small_pool();
    stingy_free(0, block);
    stingy_end();
}

/* Every possible error in a map, one at a time. */
static void maps_that_break_an_invariant_are_refused(void) {
    struct made_map good;
    small_pool();
    CHECK_EQ(stingy_init(&made.map, NULL), -EBUSY);
    stingy_end();
    good = made;
#define REFUSED(change)                                  \
    do {                                                 \
        made = good;                                     \
        change;                                          \
        CHECK_EQ(stingy_init(&made.map, NULL), -EINVAL); \
    } while (0)
    REFUSED(made.map.version = 7);
    REFUSED(made.map.object_count = 0);
    REFUSED(made.map.region_count = 0);
    REFUSED(made.regions[0].slot_bytes = 8);
    REFUSED(made.regions[0].slot_bytes = 120);
    REFUSED(made.regions[0].slots = 0);
    REFUSED(made.regions[0].slots = 3);
    REFUSED(made.regions[1].slots = 64);
    REFUSED(made.regions[0].offset_bytes = 4096);
    REFUSED(made.objects[0].region = 2);
    REFUSED(made.objects[0].object_bytes = 144);
    REFUSED(made.map.stack_bytes = 5000);
    REFUSED(made.map.globals_bytes = 64);
    made = good;
    CHECK_EQ(stingy_init(NULL, NULL), -EINVAL);
}

/* Each place of a cache of the slab's size has one line of the slab: every set occurs equally
 * often. */
static void the_cache_slab_covers_each_set_of_the_cache_equally(void) {
    enum { CACHE = 1 << 20, WAYS = 16, LINE = 64, SETS = CACHE / WAYS / LINE };
    static unsigned lines_of_set[SETS];
    made_begin(&made, 1);
    made.objects[0] = (struct stingy_object){"line", 64, 0};
    made.regions[0] = (struct stingy_region){"line", 0, 64, CACHE / LINE};
    made.map.region_count = 1, made.map.cache_bytes = CACHE;
    CHECK_EQ(stingy_init(&made.map, NULL), 0);
    for (unsigned i = 0; i < CACHE / LINE; i++) {
        uintptr_t at = (uintptr_t)stingy_alloc(0);
        CHECK(at % LINE == 0);
        lines_of_set[at / LINE % SETS]++;
    }
    CHECK_EQ(stingy_free_slots(0), 0);
    for (unsigned set = 0; set < SETS; set++)
        CHECK_EQ(lines_of_set[set], WAYS);
    stingy_end();
}

static uintptr_t stack_seen;
static bool is_stack_deep_enough;

/* Uses stack beyond the cache slab's part, in the low slab. */
static __attribute__((noinline)) void go_deep(void) {
    volatile char deep[40000];
    memset((char *)deep, 2, sizeof deep);
    is_stack_deep_enough = deep[0] == 2 && stingy_is_in_slab((char *)deep) && !stingy_is_in_cache_slab((char *)deep);
}

static void look_at_the_stack(void *out) {
    char here[1024];
    memset(here, 1, sizeof here);
    stack_seen = (uintptr_t)here;
    *(bool *)out = stingy_is_in_cache_slab(here);
    go_deep();
}

static void the_stack_can_lie_in_the_cache_slab_and_grow_into_the_low_slab(void) {
    small_pool();
    bool is_inside = false;
    stingy_call_on_stack(look_at_the_stack, &is_inside);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    CHECK(stack_seen != 0);
#else
    CHECK(is_inside);
    CHECK(is_stack_deep_enough);
    CHECK(stats().stack_peak_bytes >= 40000 && stats().stack_peak_bytes < 50000);
#endif
    stingy_end();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void end_the_thread(void *unused) {
    pthread_exit(unused);
}
static void *ends_on_the_stack(void *unused) {
    stingy_call_on_stack(end_the_thread, unused);
    return unused;
}
static void *looks_at_the_stack(void *out) {
    stingy_call_on_stack(look_at_the_stack, out);
    return out;
}
static void the_stack_of_a_thread_that_ended_on_it_is_the_next_ones(void) {
    small_pool();
    bool is_inside = false;
    pthread_t thread;
    pthread_create(&thread, NULL, ends_on_the_stack, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, looks_at_the_stack, &is_inside);
    pthread_join(thread, NULL);
    CHECK_EQ(stats().threads, 1);
    CHECK(is_inside);
    stingy_end();
}

enum { LIMIT = 256 << 20 };
static bool takes_little(void) {
    small_pool();
    void *rest = malloc(LIMIT / 2);
    return rest && stingy_is_in_cache_slab(stingy_alloc(0));
}
static bool uses_malloc(void) {
    small_pool();
    stingy_end();
    made.map.high_bytes = LIMIT;
    bool is_refused = stingy_init(&made.map, NULL) == -ENOMEM;
    void *block = stingy_realloc(1, stingy_alloc(1), 5000);
    bool is_block = block && !stingy_is_in_slab(block);
    stingy_free(1, block);
    return is_refused && is_block && stingy_free_slots(1) == UINT32_MAX;
}
static void runs_limited(bool (*what)(void)) {
    fflush(stdout);
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(setrlimit(RLIMIT_AS, &(struct rlimit){LIMIT, LIMIT}) == 0 && what() ? 0 : 1);
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
}
/* As under ulimit -v, or in a server that limits itself. */
static void a_limited_address_space_is_left_to_the_program(void) {
    runs_limited(takes_little);
}
static void without_memory_for_the_slabs_malloc_is_used(void) {
    runs_limited(uses_malloc);
}
#endif

#if defined(__SANITIZE_ADDRESS__)
static void read_freed(void) {
    char *block = stingy_alloc(0);
    stingy_free(0, block);
    *(volatile char *)block;
}
static void write_past(void) {
    volatile char *block = stingy_alloc_var(0, 100);
    block[100] = 1;
}
static void write_past_spilled(void) {
    volatile char *block = stingy_alloc_var(0, 300);
    block[300] = 1;
}
static void address_sanitizer_sees_freed_slots_and_ends_of_blocks(void) {
    small_pool();
    CHECK(dies_saying(read_freed, "use-after-poison"));
    CHECK(dies_saying(write_past, "use-after-poison"));
    CHECK(dies_saying(write_past_spilled, "use-after-poison"));
    stingy_end();
}
#endif

static void report_and_profile_say_what_happened(void) {
    char stats_path[] = "/tmp/stingy-test-XXXXXX", profile_path[] = "/tmp/stingy-test-XXXXXX";
    close(mkstemp(stats_path));
    close(mkstemp(profile_path));
    setenv("STINGY_PROFILE", profile_path, 1);
    small_pool();
    unsetenv("STINGY_PROFILE");
    for (unsigned i = 0; i < 100; i++)
        stingy_free(1, stingy_alloc_var(1, i < 94 ? 40 : i < 99 ? 100 : 5000));
    FILE *out = fopen(stats_path, "w");
    stingy_report(out);
    fclose(out);
    stingy_end();
    char text[4096] = "";
    out = fopen(stats_path, "r");
    CHECK(fgets(text, sizeof text, out));
    fclose(out);
    CHECK(strstr(text, "\"allocations\":100,\"in_cache_slab\":99,\"spilled_full\":0,\"spilled_large\":1,"));
    CHECK(strstr(text, "{\"name\":\"line\",\"allocations\":100,"));
    out = fopen(profile_path, "r");
    bool found = false;
    while (fgets(text, sizeof text, out))
        found |= strstr(text, "{\"id\":\"line\",\"count\":100,\"p50_bytes\":48,\"p95_bytes\":112,\"p99_bytes\":112,"
                              "\"max_bytes\":5000,") != NULL;
    CHECK(found);
    fclose(out);
    unlink(stats_path);
    unlink(profile_path);
}

static void the_profile_notes_each_size_once_also_of_a_block_that_moves(void) {
    char path[] = "/tmp/stingy-test-XXXXXX", text[4096];
    close(mkstemp(path));
    setenv("STINGY_PROFILE", path, 1);
    small_pool();
    unsetenv("STINGY_PROFILE");
    for (unsigned i = 0; i < 100; i++) {
        void *block = stingy_alloc_var(1, 40);
        /* To another slot, within its slot, to the high slab, and within that. */
        if (i < 4)
            block = stingy_realloc(1, block, i < 2 ? 3000 : 100);
        if (i < 1)
            block = stingy_realloc(1, block, 2000);
        stingy_free(1, block);
    }
    stingy_end();
    FILE *out = fopen(path, "r");
    bool found = false;
    while (fgets(text, sizeof text, out))
        found |= strstr(text, "{\"id\":\"line\",\"count\":105,\"p50_bytes\":48,\"p95_bytes\":48,") != NULL;
    CHECK(found);
    fclose(out);
    unlink(path);
}

int main(void) {
    RUN(before_init_blocks_come_from_malloc);
    RUN(objects_of_a_region_share_its_slots_and_the_next_one_spills);
    RUN(a_freed_slot_is_the_next_one_given);
    RUN(what_is_too_large_spills_and_returns_when_freed);
    RUN(a_spilled_block_takes_little_more_than_it_asks_for);
    RUN(what_the_high_slab_cannot_hold_comes_from_malloc);
    RUN(blocks_of_malloc_are_freed_and_reallocated);
    RUN(reallocation_stays_while_the_place_is_large_enough);
    RUN(reallocation_to_nothing_is_as_the_c_library_does_it);
    RUN(blocks_that_the_c_library_gives_through_an_argument_are_freed_and_reallocated);
    RUN(dirty_memory_shows_what_was_never_written);
    RUN(calloc_clears_what_a_slot_held_and_refuses_an_overflow);
    RUN(strings_are_copied_with_their_end);
    RUN(misuse_ends_the_program_with_a_reason);
    RUN(misuse_in_another_thread_ends_the_program_with_a_reason);
    RUN(off_hands_everything_to_malloc);
    RUN(maps_that_break_an_invariant_are_refused);
    RUN(the_cache_slab_covers_each_set_of_the_cache_equally);
    RUN(the_stack_can_lie_in_the_cache_slab_and_grow_into_the_low_slab);
    RUN(report_and_profile_say_what_happened);
    RUN(the_profile_notes_each_size_once_also_of_a_block_that_moves);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    RUN(the_stack_of_a_thread_that_ended_on_it_is_the_next_ones);
    RUN(a_limited_address_space_is_left_to_the_program);
    RUN(without_memory_for_the_slabs_malloc_is_used);
#endif
#if defined(__SANITIZE_ADDRESS__)
    RUN(address_sanitizer_sees_freed_slots_and_ends_of_blocks);
#endif
    return check_end();
}
