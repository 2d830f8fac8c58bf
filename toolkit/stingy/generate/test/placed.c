/* A program that was linked with stingy_globals.ld: stack, globals and slots share no set of a cache of one way that
 * the slab fits into, by the addresses at run time. usage: placed LABEL [N: globals that have a place, else all] */
#include "globals.h"
#include "stingy_gen.h"

#include <stdlib.h>

enum { LINE = 64, HUGE = 2 << 20 };
enum part { NOBODY, STACK, GLOBAL, SLOT };
static unsigned char whose[HUGE / LINE];
static uint32_t sets = 64;
static bool is_right = true;

static void take(enum part part, const void *at, size_t bytes) {
    for (uintptr_t line = (uintptr_t)at / LINE; bytes && line <= ((uintptr_t)at + bytes - 1) / LINE; line++) {
        unsigned char *owner = &whose[line % sets];
        is_right &= *owner == NOBODY || *owner == part;
        *owner = (unsigned char)part;
    }
}

static bool was_on_stack;
static void look(void *unused) {
    (void)unused;
    volatile char here[3000];
    here[0] = here[2999] = 1;
    was_on_stack = stingy_is_in_slab((void *)(uintptr_t)here);
    if (was_on_stack)
        take(STACK, (void *)(uintptr_t)here, sizeof here);
}

static bool is_in_section(const struct global *global) {
    return (const char *)global->at >= stingy_gen_map.globals &&
           (const char *)global->at + global->bytes <= stingy_gen_map.globals_end;
}

int main(int argc, char **argv) {
    const char *label = argc > 1 ? argv[1] : "";
    unsigned wanted = argc > 2 ? (unsigned)atoi(argv[2]) : GLOBALS, placed = 0;
    struct global globals[GLOBALS];
    globals_of_overlay(globals);
    bool are_whole = are_globals_whole();
    while (sets * LINE < stingy_gen_map.cache_bytes)
        sets *= 2;
    for (unsigned i = 0; i < GLOBALS; i++)
        if (is_in_section(&globals[i]))
            placed++, take(GLOBAL, globals[i].at, globals[i].bytes);
    for (unsigned s = 0; s < STINGY_STAGES; s++)
        while (stingy_room(s) != UINT32_MAX && stingy_room(s) > 0)
            for (const uint16_t *object = stingy_gen_stages[s].allocates; *object != STINGY_ANY; object++)
                take(SLOT, stingy_alloc(*object), stingy_gen_map.objects[*object].object_bytes);
    stingy_call_on_stack(look, NULL);
    are_whole &= are_globals_whole();
    printf("%s [%s] %u_globals_have_a_place\n", placed == wanted ? "ok" : "FAILED", label, wanted);
    printf("%s [%s] stack_globals_and_slots_share_no_set\n", is_right ? "ok" : "FAILED", label);
    printf("%s [%s] globals_keep_what_they_hold\n", are_whole ? "ok" : "FAILED", label);
    /* Under AddressSanitizer it is the program's own. */
    printf("%s [%s] the_stack_lies_in_the_slab\n",
           was_on_stack || !stingy_gen_map.stack_bytes || getenv("IS_SANITIZED") ? "ok" : "FAILED", label);
    return placed != wanted || !is_right || !are_whole;
}
