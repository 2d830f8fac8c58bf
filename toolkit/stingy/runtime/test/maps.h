/* Memory maps for tests: made at random, or with given sizes. */
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
    struct stingy_place places[64];
};

static const char *const made_names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                         "i", "j", "k", "l", "m", "n", "o", "p"};

static inline void made_begin(struct made_map *m, enum stingy_layout layout, unsigned objects) {
    memset(m, 0, sizeof *m);
    m->map = (struct stingy_map){.version = STINGY_MAP_VERSION,
                                 .layout = layout,
                                 .low_bytes = 65536,
                                 .high_bytes = 1 << 20,
                                 .object_count = (uint16_t)objects,
                                 .objects = m->objects,
                                 .regions = m->regions,
                                 .places = m->places};
    for (unsigned o = 0; o < objects; o++)
        m->objects[o].name = made_names[o];
}

/* Some objects share a region. */
static inline void made_pool(struct made_map *m, uint64_t *seed) {
    unsigned objects = 1 + random_below(seed, 10), regions = 1 + random_below(seed, objects);
    made_begin(m, STINGY_POOL, objects);
    m->map.region_count = (uint16_t)regions;
    for (unsigned o = 0; o < objects; o++) {
        uint32_t bytes = 1 + random_below(seed, 700), place = (bytes + 15) / 16 * 16;
        unsigned r = o < regions ? o : random_below(seed, regions);
        m->objects[o].object_bytes = bytes, m->objects[o].place_bytes = place, m->objects[o].region = (uint16_t)r;
        if (m->regions[r].slot_bytes < place)
            m->regions[r].slot_bytes = place;
    }
    uint32_t at = random_below(seed, 4) * 64;
    for (unsigned r = 0; r < regions; r++) {
        m->regions[r].name = made_names[r], m->regions[r].offset_bytes = at,
        m->regions[r].slots = 1 + random_below(seed, 40);
        at += m->regions[r].slots * m->regions[r].slot_bytes + random_below(seed, 3) * 16;
    }
    m->map.cache_bytes = (at + 4095) / 4096 * 4096;
}

/* Object 0 is the request; the others begin anywhere after it, so many share bytes. */
static inline void made_frame(struct made_map *m, uint64_t *seed) {
    unsigned objects = 1 + random_below(seed, 8), places = 0;
    made_begin(m, STINGY_FRAME, objects);
    uint32_t frame = 1024, ends[64];
    for (unsigned o = 0; o < objects; o++) {
        struct stingy_object *object = &m->objects[o];
        object->object_bytes = 1 + random_below(seed, 200), object->place_bytes = (object->object_bytes + 15) / 16 * 16;
        object->place = (uint8_t)places, object->places = (uint8_t)(o == 0 ? 1 : 1 + random_below(seed, 3)),
        object->is_request = o == 0;
        for (unsigned i = 0; i < object->places; i++, places++) {
            m->places[places].offset_bytes =
                o == 0 ? 0 : 208 + 16 * random_below(seed, (frame - 208 - object->place_bytes) / 16);
            ends[places] = m->places[places].offset_bytes + object->place_bytes;
        }
    }
    for (unsigned i = 0; i < places; i++)
        for (unsigned j = 0; j < places; j++)
            if (m->places[i].offset_bytes < ends[j] && m->places[j].offset_bytes < ends[i])
                m->places[i].overlaps |= UINT64_C(1) << j;
    m->map.place_count = (uint16_t)places, m->map.region_count = 1;
    m->regions[0] = (struct stingy_region){"frames", 0, frame, 1 + random_below(seed, 30)};
    m->map.cache_bytes = (m->regions[0].slots * frame + 4095) / 4096 * 4096;
}

#endif
