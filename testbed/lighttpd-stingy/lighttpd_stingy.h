/* What stingify puts in the place of lighttpd's ck_calloc: the same, from the slab. */
#ifndef LIGHTTPD_STINGY_H
#define LIGHTTPD_STINGY_H

#include "ck.h"
#include "stingy_gen.h"

/* As ck_calloc: never NULL; without memory the program ends. */
static inline void *ck_stingy_calloc(unsigned object, size_t count, size_t bytes) {
    void *block = stingy_calloc(object, count, bytes);
    if (!block)
        ck_assert(0);
    return block;
}

#endif
