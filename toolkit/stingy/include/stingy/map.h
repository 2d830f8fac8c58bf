/* The memory map, which stingygen writes into stingy_gen.c and the runtime follows.
 *
 *     low slab | cache slab: stack . globals . regions | high slab
 *
 * The cache slab is one range of at most the cache's size, on huge pages where the kernel gives them, so that each of
 * its lines has a separate place in the cache (Bhatia, Consel and Lawall 2006, Figure 5). A *region* is an array of
 * equal *slots*. Two layouts:
 *
 *   pool    a region for each group of objects that never live together in one request; a slot holds one of them
 *   frame   one region; a slot is a *frame*, one request's memory; each object has *places* in it, and objects that
 *           never live together share bytes
 *
 * *Globals* are the program's own variables, which the linker puts into one section (stingygen's stingy_globals.ld).
 * They cannot lie in the slab; a part of the slab stays empty for them, and the slab begins where that part and the
 * section have the same address modulo a huge page. So they use the cache as if they lay in the slab: a huge page keeps
 * the low 21 bits of an address, and a cache of up to 2 MiB a way chooses its set by these. The section gets separate
 * huge pages where the program leaves room around it, as stingy_globals.ld does; on small pages this holds for virtual
 * addresses alone.
 *
 * Invariants (stingy_init refuses a map that breaks one):
 *   stack_bytes + globals_bytes <= region.offset_bytes; region.offset_bytes + slots * slot_bytes <= cache_bytes
 *   stack_bytes is a multiple of 4096; globals begin at a page, and are at most globals_bytes
 *   regions do not overlap; offsets and slot_bytes are multiples of 16; place_bytes >= object_bytes
 *   places i and j share a byte  =>  bit j of places[i].overlaps is set, and bit i of places[j].overlaps
 */
#ifndef STINGY_MAP_H
#define STINGY_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { STINGY_MAP_VERSION = 2, STINGY_MAX_OBJECTS = 1024, STINGY_MAX_PLACES = 64, STINGY_MAX_SLOTS = 65535 };

enum stingy_layout { STINGY_POOL = 0, STINGY_FRAME = 1 };

struct stingy_object {
    const char *name;
    uint32_t object_bytes; /* the size that stingy_alloc() allocates */
    uint32_t place_bytes;  /* the largest that fits; larger ones spill */
    uint16_t region;
    uint8_t place, places; /* frame: first place, and how many */
    bool is_request;       /* frame: allocating it opens a frame */
};

struct stingy_region {
    const char *name;
    uint32_t offset_bytes; /* from the cache slab's beginning */
    uint32_t slot_bytes;
    uint32_t slots;
};

struct stingy_place {
    uint32_t offset_bytes; /* from the frame's beginning */
    uint64_t overlaps;     /* places that share a byte with it, itself among them */
};

struct stingy_map {
    uint32_t version;
    enum stingy_layout layout;
    uint32_t stack_bytes, globals_bytes; /* kept free at the beginning of the cache slab */
    char *globals, *globals_end;         /* the section; NULL: the program has none */
    uint32_t low_bytes, cache_bytes, high_bytes;
    uint16_t object_count, region_count, place_count;
    const struct stingy_object *objects;
    const struct stingy_region *regions;
    const struct stingy_place *places;
};

#endif
