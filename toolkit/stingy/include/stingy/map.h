/* The memory map, which stingygen writes into stingy_gen.c and the runtime follows.
 *
 *     low slab | cache slab: stack . globals . regions | high slab
 *
 * The cache slab is one range of at most the cache's size, on huge pages where the kernel gives them, so that each of
 * its lines has a separate place in the cache (Bhatia, Consel and Lawall 2006, Figure 5). A *region* is an array of
 * equal *slots*, for a group of objects that never live together in one request; a slot holds one of them. The stack of
 * the event loop may lie in the slab. Globals cannot: their part of the slab stays unused, so that there is room for
 * them in the cache.
 *
 * Invariants (stingy_init refuses a map that breaks one):
 *   stack_bytes + globals_bytes <= region.offset_bytes; region.offset_bytes + slots * slot_bytes <= cache_bytes
 *   stack_bytes is a multiple of 4096
 *   regions do not overlap; offsets and slot_bytes are multiples of 16; slot_bytes >= object_bytes
 */
#ifndef STINGY_MAP_H
#define STINGY_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { STINGY_MAP_VERSION = 1, STINGY_MAX_OBJECTS = 1024, STINGY_MAX_SLOTS = 65535 };

struct stingy_object {
    const char *name;
    uint32_t object_bytes; /* the size that stingy_alloc() allocates; objects larger than a slot spill */
    uint16_t region;
};

struct stingy_region {
    const char *name;
    uint32_t offset_bytes; /* offset from the cache slab's beginning */
    uint32_t slot_bytes;
    uint32_t slots;
};

struct stingy_map {
    uint32_t version;
    uint32_t stack_bytes, globals_bytes; /* located at the beginning of the cache slab */
    uint32_t low_bytes, cache_bytes, high_bytes;
    uint16_t object_count, region_count;
    const struct stingy_object *objects;
    const struct stingy_region *regions;
};

#endif
