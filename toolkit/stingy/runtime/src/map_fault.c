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

static const struct stingy_object *object_of(const struct stingy_map *map, unsigned place) {
    for (unsigned o = 0; o < map->object_count; o++)
        if (place >= map->objects[o].place && place < (unsigned)map->objects[o].place + map->objects[o].places)
            return &map->objects[o];
    return NULL;
}

static bool places_fit(const struct stingy_map *map) {
    for (unsigned i = 0; i < map->place_count; i++) {
        const struct stingy_object *a = object_of(map, i);
        uint64_t a_from = map->places[i].offset_bytes, a_end = a ? a_from + a->place_bytes : 0;
        if (!a || a_from % 16 || a_end > map->regions[0].slot_bytes || !(map->places[i].overlaps >> i & 1))
            return false;
        for (unsigned j = 0; j < i; j++) {
            uint64_t b_from = map->places[j].offset_bytes, b_end = b_from + object_of(map, j)->place_bytes;
            bool meet = a_from < b_end && b_from < a_end;
            bool said = (map->places[i].overlaps >> j & 1) && (map->places[j].overlaps >> i & 1);
            if (meet && !said)
                return false;
        }
    }
    return true;
}

const char *map_fault(const struct stingy_map *map) {
    if (!map || map->version != STINGY_MAP_VERSION)
        return "not a map of this version";
    if (map->object_count == 0 || map->object_count > STINGY_MAX_OBJECTS || map->region_count == 0)
        return "no objects, too many, or no regions";
    if (map->stack_bytes % 4096 || map->cache_bytes > UINT32_MAX / 4 || map->low_bytes > UINT32_MAX / 4)
        return "sizes out of bounds";
    if ((map->globals != NULL) != (map->globals_end != NULL) || map->globals_end < map->globals ||
        (size_t)(map->globals_end - map->globals) > map->globals_bytes || (uintptr_t)map->globals % 4096)
        return "the section of globals does not begin at a page, or is larger than what is kept free for it";
    if (!regions_fit(map))
        return "regions overlap, or leave the cache slab";
    for (unsigned o = 0; o < map->object_count; o++) {
        const struct stingy_object *object = &map->objects[o];
        if (object->region >= map->region_count || object->place_bytes < object->object_bytes ||
            object->place_bytes < 16 || object->place_bytes % 16)
            return "an object is larger than its place";
        if (map->layout == STINGY_POOL && object->place_bytes > map->regions[object->region].slot_bytes)
            return "an object is larger than its slot";
        if (map->layout == STINGY_FRAME && (object->places == 0 || object->place + object->places > map->place_count))
            return "an object has no place";
    }
    if (map->layout == STINGY_FRAME &&
        (map->region_count != 1 || map->place_count > STINGY_MAX_PLACES || !places_fit(map)))
        return "places overlap unsaid, or leave the frame";
    return NULL;
}
