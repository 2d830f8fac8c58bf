/* Compares lowest-free with the simplest model: an array of bools searched from the start. */
#include "check.h"

#include "lowest_free.h"

static uint64_t state = 88172645463325252u;

static size_t pick(size_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 11) % n;
}

static size_t model_lowest(const bool *taken, size_t capacity, size_t floor) {
    for (size_t i = floor; i < capacity; i++)
        if (!taken[i])
            return i;
    return LOWEST_FREE_NONE;
}

static const size_t capacities[] = {1, 2, 63, 64, 65, 127, 128, 1000, 4095, 4096, 4097, 5000, 262143, 262144, 262145};
enum { CAPACITIES = sizeof capacities / sizeof *capacities };

static void random_use_agrees_with_a_linear_search_at_every_depth(void) {
    for (size_t c = 0; c < CAPACITIES; c++) {
        size_t capacity = capacities[c], count = 0;
        struct lowest_free *tree = lowest_free_create(capacity);
        bool *taken = calloc(capacity, 1);
        CHECK(tree != NULL && taken != NULL);
        CHECK_EQ(lowest_free_capacity(tree), capacity);
        int steps = capacity > 10000 ? 3000 : 20000;
        /* Large trees are nearly full at first; otherwise the search would never leave the first
         * words. */
        for (size_t i = 0; capacity > 300 && i < capacity - 200; i++) {
            CHECK_EQ(lowest_free_take(tree), i);
            taken[i] = true;
            count++;
        }
        for (int s = 0; s < steps && check_failures == 0; s++) {
            size_t number = pick(capacity + 2), expected;
            switch (pick(5)) {
            case 0:
                expected = model_lowest(taken, capacity, 0);
                CHECK_EQ(lowest_free_take(tree), expected);
                break;
            case 1:
                expected = model_lowest(taken, capacity, number);
                CHECK_EQ(lowest_free_take_from(tree, number), expected);
                break;
            case 2:
                expected = number < capacity && !taken[number] ? number : LOWEST_FREE_NONE;
                CHECK_EQ(lowest_free_take_at(tree, number), expected != LOWEST_FREE_NONE);
                break;
            default:
                expected = LOWEST_FREE_NONE;
                CHECK_EQ(lowest_free_give(tree, number), number < capacity && taken[number]);
                if (number < capacity && taken[number]) {
                    taken[number] = false;
                    count--;
                }
            }
            if (expected != LOWEST_FREE_NONE) {
                taken[expected] = true;
                count++;
            }
            CHECK_EQ(lowest_free_taken(tree), count);
            CHECK_EQ(lowest_free_is_taken(tree, number), number < capacity && taken[number]);
            if (s % 500 == 0)
                CHECK(lowest_free_is_consistent(tree));
        }
        CHECK(lowest_free_is_consistent(tree));
        free(taken);
        lowest_free_destroy(tree);
    }
}

static void all_numbers_come_out_once_and_in_order(void) {
    for (size_t c = 0; c < CAPACITIES; c++) {
        struct lowest_free *tree = lowest_free_create(capacities[c]);
        for (size_t i = 0; i < capacities[c]; i++)
            if (lowest_free_take(tree) != i)
                check_failures++;
        CHECK_EQ(lowest_free_take(tree), LOWEST_FREE_NONE);
        CHECK_EQ(lowest_free_take_from(tree, 0), LOWEST_FREE_NONE);
        CHECK_EQ(lowest_free_taken(tree), capacities[c]);
        CHECK(lowest_free_is_consistent(tree));
        for (size_t i = capacities[c]; i-- > 0;)
            if (!lowest_free_give(tree, i))
                check_failures++;
        CHECK_EQ(lowest_free_taken(tree), 0);
        CHECK(lowest_free_is_consistent(tree));
        lowest_free_destroy(tree);
    }
}

static void depth_is_the_logarithm_to_base_64(void) {
    static const struct {
        size_t capacity;
        unsigned depth;
    } expected[] = {{1, 1},      {64, 1},     {65, 2},       {4096, 2},    {4097, 3},
                    {262144, 3}, {262145, 4}, {16777216, 4}, {16777217, 5}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct lowest_free *tree = lowest_free_create(expected[i].capacity);
        CHECK_EQ(lowest_free_depth(tree), expected[i].depth);
        lowest_free_destroy(tree);
    }
}

static void impossible_requests_are_refused(void) {
    uint64_t memory[64];
    CHECK(lowest_free_create(0) == NULL);
    CHECK_EQ(lowest_free_bytes(0), 0);
    CHECK(lowest_free_init(memory, lowest_free_bytes(100) - 1, 100) == NULL);
    CHECK(lowest_free_init((char *)memory + 1, sizeof memory - 1, 100) == NULL);
    struct lowest_free *tree = lowest_free_init(memory, sizeof memory, 100);
    CHECK(tree != NULL);
    CHECK(!lowest_free_take_at(tree, 100));
    CHECK(!lowest_free_give(tree, 100));
    CHECK(!lowest_free_give(tree, 5));
    CHECK(!lowest_free_is_taken(tree, SIZE_MAX));
    CHECK_EQ(lowest_free_take_from(tree, SIZE_MAX), LOWEST_FREE_NONE);
    CHECK_EQ(lowest_free_take_from(tree, 99), 99);
    CHECK_EQ(lowest_free_take_from(tree, 99), LOWEST_FREE_NONE);
}

int main(void) {
    RUN(random_use_agrees_with_a_linear_search_at_every_depth);
    RUN(all_numbers_come_out_once_and_in_order);
    RUN(depth_is_the_logarithm_to_base_64);
    RUN(impossible_requests_are_refused);
    return check_end();
}
