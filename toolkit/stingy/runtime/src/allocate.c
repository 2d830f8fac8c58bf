/* The functions that a server calls: each block comes from the cache slab, the high slab or malloc, and returns there.
 * */
#define _GNU_SOURCE
#include "slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Takes back the blocks that other threads freed, linked through their first bytes. */
static void take_back(struct slab *slab) {
    void *block = atomic_exchange_explicit(&slab->remote, NULL, memory_order_acquire);
    while (block) {
        void *next = *(void **)block;
        if (slab_is_cache(slab, block))
            slot_take_back(slab, block);
        else
            spill_take_back(slab, block);
        block = next;
    }
}

static bool has_returns(struct slab *slab) {
    return atomic_load_explicit(&slab->remote, memory_order_relaxed) != NULL;
}

static void *spilled(struct slab *slab, unsigned object, size_t bytes, counter *why) {
    count(why);
    return spill_take(slab, object, bytes);
}

static void note_peak(struct object_counters *c) {
    count(&c->in_cache_slab);
    uint64_t live = counted(&c->in_cache_slab) - counted(&c->freed);
    /* If blocks were freed under another object of the region, the difference may wrap; then there is no peak. */
    if (live < UINT32_MAX && live > counted(&c->peak_live))
        atomic_store_explicit(&c->peak_live, live, memory_order_relaxed);
}

void *stingy_alloc_var(unsigned object, size_t bytes) {
    struct slab *slab = slab_mine();
    if (atomic_load_explicit(&profile_is_on, memory_order_relaxed))
        profile_note(object, bytes);
    if (!slab || object >= stingy_world.map->object_count) {
        void *block = malloc(bytes ? bytes : 1);
        return block && stingy_world.is_dirty ? memset(block, DIRT, bytes) : block;
    }
    struct object_counters *counters = &slab->objects[object];
    if (has_returns(slab))
        take_back(slab);
    const struct stingy_map *map = stingy_world.map;
    if (bytes > map->regions[map->objects[object].region].slot_bytes)
        return spilled(slab, object, bytes, &counters->spilled_large);
    void *block = slot_take(slab, object, bytes);
    if (!block)
        return spilled(slab, object, bytes, &counters->spilled_full);
    note_peak(counters);
    return block;
}

void *stingy_alloc(unsigned object) {
    if (!stingy_world.map || object >= stingy_world.map->object_count)
        stingy_die("was requested before stingy_init, or its object does not exist", object, NULL);
    return stingy_alloc_var(object, stingy_world.map->objects[object].object_bytes);
}

void *stingy_calloc(unsigned object, size_t count_, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(count_, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = stingy_alloc_var(object, all);
    return block ? memset(block, 0, all) : NULL;
}

char *stingy_strndup(unsigned object, const char *text, size_t bytes) {
    size_t length = strnlen(text, bytes);
    char *copy = stingy_alloc_var(object, length + 1);
    if (!copy)
        return NULL;
    copy[length] = 0;
    return memcpy(copy, text, length);
}

char *stingy_strdup(unsigned object, const char *text) {
    return stingy_strndup(object, text, SIZE_MAX);
}

void stingy_free(unsigned object, void *block) {
    if (!block)
        return;
    struct slab *slab = slab_of(block), *own = slab_mine_if_any();
    if (!slab) {
        if (own)
            count(&own->foreign_frees);
        free(block);
    } else if (slab != own) {
        /* An invalid block must not be written to, or passed to its owner. */
        if (slab_is_cache(slab, block))
            slot_return(slab, object, block);
        else
            spill_return(block);
        SLAB_UNPOISON(block, sizeof(void *));
        void *head = atomic_load_explicit(&slab->remote, memory_order_relaxed);
        do
            *(void **)block = head;
        while (!atomic_compare_exchange_weak_explicit(&slab->remote, &head, block, memory_order_release,
                                                      memory_order_relaxed));
        /* Any thread may increment this counter. */
        atomic_fetch_add_explicit(&slab->remote_frees, 1, memory_order_relaxed);
    } else if (slab_is_cache(slab, block)) {
        if (has_returns(slab))
            slot_check_returned(slab, object, block);
        slot_give(slab, object, block);
    } else {
        spill_give(slab, block);
    }
}

/* Moves a block with its first `kept` bytes. These are read whole, even beyond the block's end. */
static void *moved(unsigned object, void *block, size_t kept, size_t bytes) {
    void *larger = stingy_alloc_var(object, bytes);
    if (!larger)
        return NULL;
    SLAB_UNPOISON(block, kept);
    memcpy(larger, block, kept < bytes ? kept : bytes);
    stingy_free(object, block);
    return larger;
}

void *stingy_realloc(unsigned object, void *block, size_t bytes) {
    if (!block)
        return stingy_alloc_var(object, bytes);
    struct slab *slab = slab_of(block);
    if (!slab)
        return realloc(block, bytes);
    if (bytes == 0 && stingy_world.is_freed_by_zero_realloc) {
        stingy_free(object, block);
        return NULL;
    }
    bool is_in_cache_slab = slab_is_cache(slab, block);
    uint32_t slot_bytes = 0;
    unsigned found = is_in_cache_slab ? slot_find(slab, object, block, &slot_bytes) : object;
    size_t room = is_in_cache_slab ? slot_bytes : spill_bytes(block);
    if (bytes > room)
        return moved(object < stingy_world.map->object_count ? object : found, block, room, bytes);
    /* A moved block is recorded like an allocated one. */
    if (atomic_load_explicit(&profile_is_on, memory_order_relaxed))
        profile_note(object, bytes);
    if (is_in_cache_slab)
        slot_resized(block, bytes, room);
    else
        spill_resized(block, bytes);
    return block;
}

void *stingy_evict(unsigned object, void *block, size_t bytes) {
    struct slab *slab = slab_of(block), *own = slab_mine();
    if (!slab || !own || !slab_is_cache(slab, block))
        return block;
    void *elsewhere =
        spill_take(own, object < stingy_world.map->object_count ? object : stingy_world.map->object_count, bytes);
    if (!elsewhere)
        return NULL;
    memcpy(elsewhere, block, bytes);
    stingy_free(object, block);
    return elsewhere;
}

uint32_t stingy_free_slots(unsigned region) {
    struct slab *slab = slab_mine();
    if (!slab)
        return UINT32_MAX;
    if (has_returns(slab))
        take_back(slab);
    return region < stingy_world.map->region_count ? slab->regions[region].free_count : 0;
}

bool stingy_is_in_slab(const void *block) {
    return slab_of(block) != NULL;
}

bool stingy_is_in_cache_slab(const void *block) {
    const struct slab *slab = slab_of(block);
    return slab && slab_is_cache(slab, block);
}
