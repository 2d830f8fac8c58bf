/* The cache slab: slots of regions. */
#include "slab.h"

#include <string.h>

/* Free slots are on a stack of numbers, not in a list through them, so they are not accessed. */
void slot_start(struct slab *slab) {
    const struct stingy_map *map = stingy_world.map;
    for (unsigned r = 0; r < map->region_count; r++) {
        struct region_state *region = &slab->regions[r];
        uint32_t slots = map->regions[r].slots;
        for (uint32_t i = 0; i < slots; i++)
            region->free[i] = (uint16_t)(slots - 1 - i);
        region->free_count = slots;
        region->base = slab->cache + map->regions[r].offset_bytes;
        SLAB_POISON(region->base, (size_t)slots * map->regions[r].slot_bytes);
    }
}

void slot_resized(void *block, size_t bytes, size_t slot_bytes) {
    SLAB_UNPOISON(block, slot_bytes);
    if (stingy_world.is_dirty)
        memset((char *)block + bytes, DIRT, slot_bytes - bytes);
    SLAB_POISON(block, slot_bytes);
    SLAB_UNPOISON(block, bytes);
}

/* Other threads read the word for blocks that they hold, whose bit stays while the owner changes others. */
static void set_live(uint64_t *word, uint64_t live) {
    __atomic_store_n(word, live, __ATOMIC_RELAXED);
}

void *slot_take(struct slab *slab, unsigned object, size_t bytes) {
    unsigned r = stingy_world.map->objects[object].region;
    struct region_state *region = &slab->regions[r];
    if (region->free_count == 0)
        return NULL;
    uint32_t slot = region->free[--region->free_count], slot_bytes = stingy_world.map->regions[r].slot_bytes;
    set_live(&region->live[slot / 64], region->live[slot / 64] | UINT64_C(1) << (slot % 64));
    char *block = region->base + (size_t)slot * slot_bytes;
    if (stingy_world.is_dirty)
        slot_resized(block, 0, slot_bytes);
    SLAB_UNPOISON(block, bytes);
    return block;
}

/* The position of an address in the cache slab. */
struct spot {
    unsigned region;
    uint32_t slot, offset;
};

static bool spot_in(const struct slab *slab, unsigned r, const char *block, struct spot *spot) {
    const struct stingy_region *region = &stingy_world.map->regions[r];
    size_t from = (size_t)(block - slab->regions[r].base);
    if (block < slab->regions[r].base || from >= (size_t)region->slots * region->slot_bytes)
        return false;
    *spot = (struct spot){r, (uint32_t)from / region->slot_bytes, (uint32_t)from % region->slot_bytes};
    return true;
}

static bool spot_of(const struct slab *slab, unsigned object, const char *block, struct spot *spot) {
    const struct stingy_map *map = stingy_world.map;
    unsigned hint = object < map->object_count ? map->objects[object].region : 0;
    if (spot_in(slab, hint, block, spot))
        return true;
    for (unsigned r = 0; r < map->region_count; r++)
        if (spot_in(slab, r, block, spot))
            return true;
    return false;
}

/* A slot does not record which of its objects it holds, so the caller's object is used if it fits the region. */
static unsigned object_of_region(unsigned object, unsigned region) {
    const struct stingy_map *map = stingy_world.map;
    if (object < map->object_count && map->objects[object].region == region)
        return object;
    for (unsigned o = 0; o < map->object_count; o++)
        if (map->objects[o].region == region)
            return o;
    return STINGY_ANY;
}

/* The spot of a live block. */
static struct spot held(const struct slab *slab, unsigned object, const void *block) {
    struct spot spot;
    if (!spot_of(slab, object, block, &spot))
        stingy_die("is in the cache slab, but in no region", object, block);
    if (spot.offset != 0)
        stingy_die("is not the beginning of a block", object, block);
    const uint64_t *live = slab->regions[spot.region].live;
    if (!(__atomic_load_n(&live[spot.slot / 64], __ATOMIC_RELAXED) >> (spot.slot % 64) & 1))
        stingy_die("was already freed", object, block);
    return spot;
}

unsigned slot_find(const struct slab *slab, unsigned object, const void *block, uint32_t *slot_bytes) {
    struct spot spot = held(slab, object, block);
    *slot_bytes = stingy_world.map->regions[spot.region].slot_bytes;
    return object_of_region(object, spot.region);
}

static void give(struct slab *slab, unsigned object, void *block, struct spot spot) {
    struct region_state *region = &slab->regions[spot.region];
    uint32_t slot_bytes = stingy_world.map->regions[spot.region].slot_bytes;
    set_live(&region->live[spot.slot / 64], region->live[spot.slot / 64] & ~(UINT64_C(1) << (spot.slot % 64)));
    if (stingy_world.is_dirty)
        slot_resized(block, 0, slot_bytes);
    SLAB_POISON(block, slot_bytes);
    region->free[region->free_count++] = (uint16_t)spot.slot;
    count(&slab->objects[object_of_region(object, spot.region)].freed);
}

void slot_give(struct slab *slab, unsigned object, void *block) {
    give(slab, object, block, held(slab, object, block));
}

/* The word and the bit of a block's mark. */
static uint64_t *mark_of(const struct slab *slab, struct spot spot, uint64_t *bit) {
    *bit = UINT64_C(1) << (spot.slot % 64);
    return &slab->regions[spot.region].returned[spot.slot / 64];
}

void slot_return(struct slab *slab, unsigned object, const void *block) {
    uint64_t bit, *mark = mark_of(slab, held(slab, object, block), &bit);
    if (__atomic_fetch_or(mark, bit, __ATOMIC_RELAXED) & bit)
        stingy_die("was already freed", object, block);
}

/* Frees the slot first and then removes its mark, so that at no moment it can be freed once more. */
void slot_take_back(struct slab *slab, void *block) {
    struct spot spot = held(slab, STINGY_ANY, block);
    uint64_t bit, *mark = mark_of(slab, spot, &bit);
    give(slab, STINGY_ANY, block, spot);
    __atomic_fetch_and(mark, ~bit, __ATOMIC_RELAXED);
}

void slot_check_returned(const struct slab *slab, unsigned object, const void *block) {
    uint64_t bit, *mark = mark_of(slab, held(slab, object, block), &bit);
    if (__atomic_load_n(mark, __ATOMIC_RELAXED) & bit)
        stingy_die("was already freed", object, block);
}
