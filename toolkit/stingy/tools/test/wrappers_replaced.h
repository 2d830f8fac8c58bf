/* Functions that a user of --replace writes: they do the same with an object as first argument. */
#include "stingy_gen.h"

#include <stdio.h>
#include <stdlib.h>

static inline void *zalloc_replaced(unsigned object, size_t bytes) {
    return stingy_calloc(object, 1, bytes);
}

static inline void *xzalloc_replaced(unsigned object, size_t bytes) {
    void *block = stingy_calloc(object, 1, bytes);
    if (!block) {
        fprintf(stderr, "cannot allocate %zu bytes\n", bytes);
        exit(3);
    }
    return block;
}
