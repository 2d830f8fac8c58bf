/* Replaces lighttpd's ck_calloc in code rewritten by stingify, with memory from the slab. */
#ifndef LIGHTTPD_STINGY_H
#define LIGHTTPD_STINGY_H

#include "ck.h"
#include "stingy_gen.h"

/* Like ck_calloc it never returns NULL; without memory the program ends. */
static inline void *ck_stingy_calloc(unsigned object, size_t count, size_t bytes) {
    void *block = stingy_calloc(object, count, bytes);
    if (!block)
        ck_assert(0);
    return block;
}

#endif
