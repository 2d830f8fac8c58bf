/* The cache slab: slots of regions (pool), places of frames (frame). */
#include "slab.h"

#include <string.h>

/* Slots are given out from a stack of numbers, not from a list through them: free slots are not accessed. */
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
    slab->frame = NO_FRAME;
}

void slot_resized(void *block, size_t bytes, size_t place_bytes) {
    SLAB_UNPOISON(block, place_bytes);
    if (stingy_world.is_dirty)
        memset((char *)block + bytes, DIRT, place_bytes - bytes);
    SLAB_POISON(block, place_bytes);
    SLAB_UNPOISON(block, bytes);
}

static void *taken(char *block, size_t bytes, size_t place_bytes) {
    if (stingy_world.is_dirty)
        slot_resized(block, 0, place_bytes);
    SLAB_UNPOISON(block, bytes);
    return block;
}

static void given(char *block, size_t place_bytes) {
    if (stingy_world.is_dirty)
        slot_resized(block, 0, place_bytes);
    SLAB_POISON(block, place_bytes);
}

/* Other threads read it for blocks that they hold, whose bit stays while the owner changes others. */
static void set_live(uint64_t *word, uint64_t live) {
    __atomic_store_n(word, live, __ATOMIC_RELAXED);
}

static void *pool_take(struct slab *slab, const struct stingy_object *object, size_t bytes) {
    struct region_state *region = &slab->regions[object->region];
    if (region->free_count == 0)
        return NULL;
    uint32_t slot = region->free[--region->free_count];
    set_live(&region->live[slot / 64], region->live[slot / 64] | UINT64_C(1) << (slot % 64));
    uint32_t slot_bytes = stingy_world.map->regions[object->region].slot_bytes;
    return taken(region->base + (size_t)slot * slot_bytes, bytes, slot_bytes);
}

/* A place is free when neither it nor any place that shares a byte with it is used. If the analysis was wrong about
 * objects that are alive together, the later one spills. */
static void *frame_take(struct slab *slab, const struct stingy_object *object, size_t bytes, enum slot_why *why) {
    const struct stingy_map *map = stingy_world.map;
    struct region_state *region = &slab->regions[0];
    *why = SLOT_ALONE;
    if (object->is_request) {
        slab->frame = NO_FRAME;
        *why = SLOT_FULL;
        if (region->free_count == 0)
            return NULL;
        slab->frame = region->free[--region->free_count];
    }
    if (slab->frame == NO_FRAME)
        return NULL;
    uint64_t *live = &region->live[slab->frame];
    for (unsigned i = object->place; i < (unsigned)object->place + object->places; i++) {
        if (*live & map->places[i].overlaps)
            continue;
        set_live(live, *live | UINT64_C(1) << i);
        return taken(region->base + (size_t)slab->frame * map->regions[0].slot_bytes + map->places[i].offset_bytes,
                     bytes, object->place_bytes);
    }
    return NULL;
}

void *slot_take(struct slab *slab, unsigned object, size_t bytes, enum slot_why *why) {
    const struct stingy_object *o = &stingy_world.map->objects[object];
    *why = SLOT_FULL;
    return stingy_world.map->layout == STINGY_POOL ? pool_take(slab, o, bytes) : frame_take(slab, o, bytes, why);
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

/* The place of a frame that is held and begins here; -1 for none. */
static int place_at(uint64_t live, uint32_t offset) {
    for (; live; live &= live - 1) {
        int place = __builtin_ctzll(live);
        if (stingy_world.map->places[place].offset_bytes == offset)
            return place;
    }
    return -1;
}

static unsigned object_of_place(unsigned place) {
    const struct stingy_map *map = stingy_world.map;
    for (unsigned o = 0; o < map->object_count; o++)
        if (place >= map->objects[o].place && place < (unsigned)map->objects[o].place + map->objects[o].places)
            return o;
    return STINGY_ANY;
}

/* In a pool the slot does not record which of its objects it holds: the caller's object counts if it fits the region.
 * */
static unsigned object_of_region(unsigned object, unsigned region) {
    const struct stingy_map *map = stingy_world.map;
    if (object < map->object_count && map->objects[object].region == region)
        return object;
    for (unsigned o = 0; o < map->object_count; o++)
        if (map->objects[o].region == region)
            return o;
    return STINGY_ANY;
}

/* The spot of a live block, and for frames its place. */
static struct spot held(const struct slab *slab, unsigned object, const void *block, int *place) {
    struct spot spot;
    if (!spot_of(slab, object, block, &spot))
        stingy_die("is in the cache slab, but in no region", object, block);
    const uint64_t *live = slab->regions[spot.region].live;
    if (stingy_world.map->layout == STINGY_POOL) {
        *place = -1;
        if (spot.offset != 0)
            stingy_die("is not the beginning of a block", object, block);
        if (!(__atomic_load_n(&live[spot.slot / 64], __ATOMIC_RELAXED) >> (spot.slot % 64) & 1))
            stingy_die("was freed before", object, block);
    } else {
        *place = place_at(__atomic_load_n(&live[spot.slot], __ATOMIC_RELAXED), spot.offset);
        if (*place < 0)
            stingy_die("was freed before, or is not the beginning of a block", object, block);
    }
    return spot;
}

unsigned slot_find(const struct slab *slab, unsigned object, const void *block, uint32_t *place_bytes) {
    int place;
    struct spot spot = held(slab, object, block, &place);
    if (place < 0) {
        *place_bytes = stingy_world.map->regions[spot.region].slot_bytes;
        return object_of_region(object, spot.region);
    }
    unsigned found = object_of_place((unsigned)place);
    *place_bytes = stingy_world.map->objects[found].place_bytes;
    return found;
}

static void give(struct slab *slab, unsigned object, void *block, struct spot spot, int place) {
    const struct stingy_map *map = stingy_world.map;
    struct region_state *region = &slab->regions[spot.region];
    if (place < 0) {
        object = object_of_region(object, spot.region);
        set_live(&region->live[spot.slot / 64], region->live[spot.slot / 64] & ~(UINT64_C(1) << (spot.slot % 64)));
        given(block, map->regions[spot.region].slot_bytes);
        region->free[region->free_count++] = (uint16_t)spot.slot;
    } else {
        object = object_of_place((unsigned)place);
        given(block, map->objects[object].place_bytes);
        set_live(&region->live[spot.slot], region->live[spot.slot] & ~(UINT64_C(1) << place));
        if (region->live[spot.slot] == 0) {
            region->free[region->free_count++] = (uint16_t)spot.slot;
            if (slab->frame == spot.slot)
                slab->frame = NO_FRAME;
        }
    }
    count(&slab->objects[object].freed);
}

void slot_give(struct slab *slab, unsigned object, void *block) {
    int place;
    struct spot spot = held(slab, object, block, &place);
    give(slab, object, block, spot, place);
}

/* The word and the bit of a block's mark. */
static uint64_t *mark_of(const struct slab *slab, struct spot spot, int place, uint64_t *bit) {
    *bit = UINT64_C(1) << (place < 0 ? spot.slot % 64 : (unsigned)place);
    return &slab->regions[spot.region].returned[place < 0 ? spot.slot / 64 : spot.slot];
}

void slot_return(struct slab *slab, unsigned object, const void *block) {
    int place;
    struct spot spot = held(slab, object, block, &place);
    uint64_t bit, *mark = mark_of(slab, spot, place, &bit);
    if (__atomic_fetch_or(mark, bit, __ATOMIC_RELAXED) & bit)
        stingy_die("was freed before", object, block);
}

/* First free, then without its mark: at no moment can it be freed once more. */
void slot_take_back(struct slab *slab, void *block) {
    int place;
    struct spot spot = held(slab, STINGY_ANY, block, &place);
    uint64_t bit, *mark = mark_of(slab, spot, place, &bit);
    give(slab, STINGY_ANY, block, spot, place);
    __atomic_fetch_and(mark, ~bit, __ATOMIC_RELAXED);
}

void slot_check_returned(const struct slab *slab, unsigned object, const void *block) {
    int place;
    struct spot spot = held(slab, object, block, &place);
    uint64_t bit, *mark = mark_of(slab, spot, place, &bit);
    if (__atomic_load_n(mark, __ATOMIC_RELAXED) & bit)
        stingy_die("was freed before", object, block);
}

void slot_enter(struct slab *slab, const void *request) {
    struct spot spot;
    slab->frame = NO_FRAME;
    if (request && slab_is_cache(slab, request) && spot_of(slab, STINGY_ANY, request, &spot) &&
        slab->regions[0].live[spot.slot])
        slab->frame = spot.slot;
}
