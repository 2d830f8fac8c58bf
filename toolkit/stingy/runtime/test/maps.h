/* Memory maps for tests: random, or with given sizes. */
#ifndef MAPS_H
#define MAPS_H

#include <stdint.h>
#include <stdlib.h>
#include <stingy/runtime.h>
#include <string.h>

static inline uint32_t random_below(uint64_t *seed, uint32_t bound) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return (uint32_t)(*seed >> 11) % bound;
}

struct made_map {
    struct stingy_map map;
    struct stingy_object objects[16];
    struct stingy_region regions[16];
};

static const char *const made_names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                         "i", "j", "k", "l", "m", "n", "o", "p"};

static inline void made_begin(struct made_map *m, unsigned objects) {
    memset(m, 0, sizeof *m);
    m->map = (struct stingy_map){.version = STINGY_MAP_VERSION,
                                 .low_bytes = 65536,
                                 .high_bytes = 1 << 20,
                                 .object_count = (uint16_t)objects,
                                 .objects = m->objects,
                                 .regions = m->regions};
    for (unsigned o = 0; o < objects; o++)
        m->objects[o].name = made_names[o];
}

/* Some objects share a region. */
static inline void made_pool(struct made_map *m, uint64_t *seed) {
    unsigned objects = 1 + random_below(seed, 10), regions = 1 + random_below(seed, objects);
    made_begin(m, objects);
    m->map.region_count = (uint16_t)regions;
    for (unsigned o = 0; o < objects; o++) {
        uint32_t bytes = 1 + random_below(seed, 700), slot = (bytes + 15) / 16 * 16;
        unsigned r = o < regions ? o : random_below(seed, regions);
        m->objects[o].object_bytes = bytes, m->objects[o].region = (uint16_t)r;
        if (m->regions[r].slot_bytes < slot)
            m->regions[r].slot_bytes = slot;
    }
    uint32_t at = random_below(seed, 4) * 64;
    for (unsigned r = 0; r < regions; r++) {
        m->regions[r].name = made_names[r], m->regions[r].offset_bytes = at,
        m->regions[r].slots = 1 + random_below(seed, 40);
        at += m->regions[r].slots * m->regions[r].slot_bytes + random_below(seed, 3) * 16;
    }
    m->map.cache_bytes = (at + 4095) / 4096 * 4096;
}

#endif
