/* The high slab holds blocks that do not fit in the cache slab. Blocks are cut from a range that is used only as
 * far as needed; when it is full, malloc takes over.
 *
 * Size classes are as fine as malloc's: multiples of 16 bytes up to 4 KiB, then eight steps to the next power of
 * two. With powers of two, the used lines of a block (a structure of 288 bytes in 512, the head of a buffer of 1
 * KiB in 2) would fall into the same few sets of the cache as those of all others, and leave the other sets empty. */
#include "slab.h"

#include <stdlib.h>
#include <string.h>

/* Precedes every block of the high slab. It has 16 bytes, so that blocks are aligned like malloc's. */
struct spill_header {
    uint32_t size_class, state;
    uint64_t object;
};
_Static_assert(sizeof(struct spill_header) == 16, "keeps blocks aligned");
enum { SPILL_LIVE = 0x57a9e1, SPILL_RETURNED = 0x57a9e2 /* freed by another thread */, SPILL_DEAD = 0xdead };

/* Follows a block, poisoned, so that a write beyond its end never reaches the next one's header. */
#if defined(__SANITIZE_ADDRESS__)
enum { SPILL_REDZONE = 16 };
#else
enum { SPILL_REDZONE = 0 };
#endif

/* The smallest class with this many bytes, including the header; SPILL_CLASSES if there is none. */
static unsigned class_of(size_t bytes) {
    if (bytes <= SPILL_FINE_BYTES)
        return bytes <= SPILL_STEP ? 0 : (unsigned)((bytes - 1) / SPILL_STEP);
    if (bytes > SPILL_FINE_BYTES << SPILL_DOUBLINGS)
        return SPILL_CLASSES;
    unsigned doubling = (unsigned)(63 - __builtin_clzll(bytes - 1)) - (unsigned)__builtin_ctz(SPILL_FINE_BYTES);
    size_t begin = (size_t)SPILL_FINE_BYTES << doubling, step = begin / SPILL_STEPS;
    return SPILL_FINE_CLASSES + doubling * SPILL_STEPS + (unsigned)((bytes - begin - 1) / step);
}

static size_t class_bytes(unsigned size_class) {
    if (size_class < SPILL_FINE_CLASSES)
        return ((size_t)size_class + 1) * SPILL_STEP;
    size_class -= SPILL_FINE_CLASSES;
    size_t begin = (size_t)SPILL_FINE_BYTES << size_class / SPILL_STEPS;
    return begin + (size_class % SPILL_STEPS + 1) * (begin / SPILL_STEPS);
}

static struct spill_header *header_of(const void *block) {
    return (struct spill_header *)((char *)(uintptr_t)block - sizeof(struct spill_header));
}

void *spill_take(struct slab *slab, unsigned object, size_t bytes) {
    /* A free block holds its header and a pointer. */
    size_t least = bytes < sizeof(void *) ? sizeof(void *) : bytes;
    size_t around = sizeof(struct spill_header) + SPILL_REDZONE;
    unsigned size_class = least > SIZE_MAX - around ? SPILL_CLASSES : class_of(least + around);
    struct spill_header *header = NULL;
    if (size_class < SPILL_CLASSES) {
        header = slab->spill_free[size_class];
        if (header) {
            SLAB_UNPOISON(header + 1, sizeof(void *));
            slab->spill_free[size_class] = *(void **)(header + 1);
        } else if ((size_t)(slab->high_end - slab->high_next) >= class_bytes(size_class)) {
            header = (struct spill_header *)slab->high_next;
            slab->high_next += class_bytes(size_class);
        }
    }
    if (!header) {
        count(&slab->objects[object].spilled_malloc);
        void *block = malloc(bytes);
        return block && stingy_world.is_dirty ? memset(block, DIRT, bytes) : block;
    }
    *header = (struct spill_header){size_class, SPILL_LIVE, object};
    if (stingy_world.is_dirty)
        spill_resized(header + 1, 0);
    spill_resized(header + 1, bytes);
    return header + 1;
}

static struct spill_header *checked_header(const void *block, uint32_t found, uint32_t wanted) {
    if (found != wanted && (found == SPILL_DEAD || found == SPILL_RETURNED))
        stingy_die("was already freed", STINGY_ANY, block);
    if (found != wanted || header_of(block)->size_class >= SPILL_CLASSES)
        stingy_die("is not the beginning of a block", STINGY_ANY, block);
    return header_of(block);
}

static struct spill_header *live_header(const void *block) {
    return checked_header(block, __atomic_load_n(&header_of(block)->state, __ATOMIC_RELAXED), SPILL_LIVE);
}

void spill_return(const void *block) {
    struct spill_header *header = live_header(block);
    checked_header(block, __atomic_exchange_n(&header->state, SPILL_RETURNED, __ATOMIC_RELAXED), SPILL_LIVE);
}

static void give(struct slab *slab, struct spill_header *header, void *block) {
    __atomic_store_n(&header->state, SPILL_DEAD, __ATOMIC_RELAXED);
    if (stingy_world.is_dirty)
        spill_resized(block, 0);
    SLAB_UNPOISON(block, sizeof(void *));
    *(void **)block = slab->spill_free[header->size_class];
    slab->spill_free[header->size_class] = header;
    SLAB_POISON(block, class_bytes(header->size_class) - sizeof *header);
}

void spill_give(struct slab *slab, void *block) {
    give(slab, live_header(block), block);
}

void spill_take_back(struct slab *slab, void *block) {
    uint32_t found = __atomic_load_n(&header_of(block)->state, __ATOMIC_RELAXED);
    give(slab, checked_header(block, found, SPILL_RETURNED), block);
}

size_t spill_bytes(const void *block) {
    return class_bytes(live_header(block)->size_class) - sizeof(struct spill_header) - SPILL_REDZONE;
}

void spill_resized(void *block, size_t bytes) {
    size_t room = class_bytes(header_of(block)->size_class) - sizeof(struct spill_header);
    if (stingy_world.is_dirty) {
        SLAB_UNPOISON(block, room);
        memset((char *)block + bytes, DIRT, room - bytes);
    }
    SLAB_POISON(block, room);
    SLAB_UNPOISON(block, bytes);
}
