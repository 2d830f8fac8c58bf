/* Fills every stage of a generated map until stingy_room() refuses: no block spills before, and
 * the next request's does. usage: room LABEL */
#include "stingy_gen.h"

#include <stdlib.h>

static uint64_t spilled(void) {
    struct stingy_stats s;
    stingy_stats(&s);
    return s.allocations - s.in_cache_slab;
}

/* Passes one request through the stage and keeps its blocks. */
static void pass(const struct stingy_gen_stage *stage, void **blocks, unsigned *count) {
    for (const uint16_t *object = stage->allocates; *object != STINGY_ANY; object++)
        blocks[(*count)++] = stingy_alloc(*object);
}

static bool is_exact(unsigned number) {
    static void *blocks[100000];
    const struct stingy_gen_stage *stage = &stingy_gen_stages[number];
    unsigned count = 0, passed = 0;
    uint32_t room = stingy_room(number);
    if (room == UINT32_MAX)
        return true;
    bool is_right = room > 0;
    for (; stingy_room(number) > 0; passed++) {
        is_right &= stingy_room(number) == room - passed;
        pass(stage, blocks, &count);
    }
    is_right &= passed == room && spilled() == 0;
    pass(stage, blocks, &count);
    is_right &= spilled() > 0;
    while (count > 0)
        stingy_free(STINGY_ANY, blocks[--count]);
    is_right &= stingy_room(number) == room;
    stingy_end();
    if (stingy_init(&stingy_gen_map, NULL) != 0)
        exit(2);
    return is_right;
}

int main(int argc, char **argv) {
    unsigned failed = 0;
    for (unsigned s = 0; s < STINGY_STAGES; s++) {
        bool is_right = is_exact(s);
        failed += !is_right;
        printf("%s [%s] room_of_%s_is_exact\n", is_right ? "ok" : "FAILED", argc > 1 ? argv[1] : "",
               stingy_gen_stages[s].name);
    }
    return failed != 0;
}
