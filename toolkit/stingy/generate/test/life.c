/* Runs the requests of overlay.json through all stages, as many at once as are admitted. No
 * block spills, and objects that live together never share a byte. usage: life LABEL */
#include "stingy_gen.h"

#include <stdlib.h>
#include <string.h>

struct life {
    unsigned char *blocks[STINGY_OBJECTS][3], fill;
};
static bool is_right = true;

static void take(struct life *life, unsigned object, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        life->blocks[object][i] = stingy_alloc(object);
        memset(life->blocks[object][i], life->fill + (int)object, stingy_gen_map.objects[object].object_bytes);
    }
}

static void give(struct life *life, unsigned object, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        unsigned char *block = life->blocks[object][i];
        for (uint32_t b = 0; b < stingy_gen_map.objects[object].object_bytes; b++)
            is_right &= block[b] == (unsigned char)(life->fill + object);
        stingy_free(object, block);
    }
}

int main(int argc, char **argv) {
    static struct life lives[STINGY_REQUESTS];
    for (int round = 0; round < 3; round++) {
        unsigned let_in = 0;
        for (; stingy_room(STINGY_STAGE_accept) > 0; let_in++) {
            lives[let_in].fill = (unsigned char)(let_in * 16);
            take(&lives[let_in], STINGY_OBJ_request, 1);
        }
        is_right &= let_in == STINGY_REQUESTS;
#define EACH(act)                           \
    for (unsigned i = 0; i < let_in; i++) { \
        struct life *life = &lives[i];      \
        act;                                \
    }
        EACH(take(life, STINGY_OBJ_line, 1); take(life, STINGY_OBJ_field, 3));
        EACH(give(life, STINGY_OBJ_field, 3); give(life, STINGY_OBJ_line, 1));
        EACH(if (stingy_room(STINGY_STAGE_a_list) > 0) take(life, STINGY_OBJ_listing, 1);
             else life->blocks[STINGY_OBJ_listing][0] = NULL);
        EACH(take(life, STINGY_OBJ_header, 1); take(life, STINGY_OBJ_tiny, 1));
        EACH(give(life, STINGY_OBJ_header, 1);
             if (life->blocks[STINGY_OBJ_listing][0]) give(life, STINGY_OBJ_listing, 1));
        EACH(take(life, STINGY_OBJ_log_line, 1));
        EACH(give(life, STINGY_OBJ_log_line, 1); give(life, STINGY_OBJ_tiny, 1); give(life, STINGY_OBJ_request, 1));
    }
    struct stingy_stats s;
    stingy_stats(&s);
    is_right &= s.allocations > 0 && s.allocations == s.in_cache_slab && s.live == 0;
    printf("%s [%s] requests_that_were_let_in_live_without_a_spill\n", is_right ? "ok" : "FAILED",
           argc > 1 ? argv[1] : "");
    return !is_right;
}
