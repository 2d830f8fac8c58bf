/* Tables whose index is a descriptor. */
#ifndef BY_FD_H
#define BY_FD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Grows a table of `size` entries of `each` bytes so that it has an entry for `fd`; new entries are zero. Returns
 * NULL and changes nothing if there is no memory. */
static inline void *with_place_for(void *table, uint32_t *size, uint32_t fd, size_t each) {
    uint32_t larger = *size ? *size : 256;
    if (fd < *size)
        return table;
    while (larger <= fd)
        larger *= 2;
    char *grown = realloc(table, larger * each);
    if (!grown)
        return NULL;
    memset(grown + *size * each, 0, (larger - *size) * each);
    *size = larger;
    return grown;
}

#endif
