/* Checks that a map keeps the invariants of map.h. */
#include "slab.h"

static bool regions_fit(const struct stingy_map *map) {
    uint64_t from = (uint64_t)map->stack_bytes + map->globals_bytes;
    for (unsigned r = 0; r < map->region_count; r++) {
        const struct stingy_region *a = &map->regions[r];
        uint64_t end = a->offset_bytes + (uint64_t)a->slots * a->slot_bytes;
        if (a->slots == 0 || a->slots > STINGY_MAX_SLOTS || a->slot_bytes < 16 || a->slot_bytes % 16 ||
            a->offset_bytes % 16)
            return false;
        if (a->offset_bytes < from || end > map->cache_bytes)
            return false;
        for (unsigned q = 0; q < r; q++) {
            const struct stingy_region *b = &map->regions[q];
            uint64_t b_end = b->offset_bytes + (uint64_t)b->slots * b->slot_bytes;
            if (a->offset_bytes < b_end && b->offset_bytes < end)
                return false;
        }
    }
    return true;
}

const char *map_fault(const struct stingy_map *map) {
    if (!map || map->version != STINGY_MAP_VERSION)
        return "not a map of this version";
    if (map->object_count == 0 || map->object_count > STINGY_MAX_OBJECTS || map->region_count == 0)
        return "no objects, too many objects, or no regions";
    if (map->stack_bytes % 4096 || map->cache_bytes > UINT32_MAX / 4 || map->low_bytes > UINT32_MAX / 4)
        return "sizes out of bounds";
    if (!regions_fit(map))
        return "regions overlap, or leave the cache slab";
    for (unsigned o = 0; o < map->object_count; o++) {
        const struct stingy_object *object = &map->objects[o];
        if (object->region >= map->region_count)
            return "an object has no region";
        if (object->object_bytes > map->regions[object->region].slot_bytes)
            return "an object is larger than its slot";
    }
    return NULL;
}
