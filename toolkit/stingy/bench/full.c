/* Uses a whole cache slab (in a pool's slots also the bytes after an object), globals and stack, round after round: the
 * most that a server can use. For toolkit/stingy/bench/placement, with
 * toolkit/stingy/generate/test/globals.c. usage: full ROUNDS */
#include "globals.h"
#include "stingy_gen.h"

#include <stdlib.h>

enum { LINE = 64, STACK = 8192, REGIONS = 64 };
static const volatile char *first[REGIONS]; /* slot of each region */
static volatile unsigned sum;

static void touch(const volatile char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE)
        sum += (unsigned char)at[i];
}

static void rounds(void *argument) {
    struct global globals[GLOBALS];
    globals_of_overlay(globals);
    for (int round = 0; round < *(int *)argument; round++) {
        volatile char stack[STACK];
        for (unsigned r = 0; r < stingy_gen_map.region_count; r++)
            touch(first[r], (size_t)stingy_gen_map.regions[r].slots * stingy_gen_map.regions[r].slot_bytes);
        for (unsigned i = 0; i < GLOBALS; i++)
            touch(globals[i].at, globals[i].bytes);
        for (unsigned i = 0; i < STACK; i += LINE)
            stack[i] = (char)round;
    }
}

int main(int argc, char **argv) {
    int turns = argc > 1 ? atoi(argv[1]) : 10;
    /* Slots are given out from the lowest on; this takes all of them. */
    for (unsigned object = 0; object < stingy_gen_map.object_count; object++) {
        unsigned region = stingy_gen_map.objects[object].region;
        while (region < REGIONS && stingy_free_slots(region) > 0) {
            char *slot = stingy_alloc(object);
            if (!first[region] || slot < first[region])
                first[region] = slot;
        }
    }
    stingy_call_on_stack(rounds, &turns);
    return 0;
}
