/* A stack in the cache slab: at its lowest addresses, growing down, with the low slab below it (Figure 5 of
 * the paper). */
#define _GNU_SOURCE
#include "slab.h"

#include <ucontext.h>

struct stack_call {
    void (*function)(void *);
    void *argument;
};
static _Thread_local struct stack_call current_call;

static void run_call(void) {
    current_call.function(current_call.argument);
}

void stingy_call_on_stack(void (*function)(void *), void *argument) {
    struct slab *slab = slab_mine();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    slab = NULL; /* these tools know only the thread's own stack */
#endif
    ucontext_t back, there;
    if (!slab || stingy_world.map->stack_bytes == 0 || slab->is_on_own_stack || getcontext(&there) != 0) {
        function(argument);
        return;
    }
    /* From the guard page to the end of the stack's part of the cache slab: the top of the stack lies in the cache
     * slab. */
    there.uc_stack.ss_sp = slab->low + 4096;
    there.uc_stack.ss_size = (size_t)(slab->cache + stingy_world.map->stack_bytes - (slab->low + 4096));
    there.uc_link = &back;
    current_call = (struct stack_call){function, argument};
    slab->is_on_own_stack = true;
    makecontext(&there, run_call, 0);
    swapcontext(&back, &there);
    slab->is_on_own_stack = false;
}

/* The slab's memory was all zero at first, so the lowest non-zero byte was written; a frame that is never written
 * does not count. Only the owner's thread writes there; a byte that is read too early makes the figure too small. */
size_t stack_peak(const struct slab *slab) {
    const struct world *w = &stingy_world;
    if (w->map->stack_bytes == 0)
        return 0;
    const char *top = slab->cache + w->map->stack_bytes;
    for (const char *at = slab->low + 4096; at < top; at += sizeof(uint64_t))
        if (*(const volatile uint64_t *)at)
            return (size_t)(top - at);
    return 0;
}
