/* The allocator that keeps per-request objects in a slab of the cache's size. A server links this part of Stingy.
 *
 * A server calls these functions in place of malloc and free, each with the object that stingygen numbered
 * (STINGY_OBJ_...). Every thread has a separate slab; a block may be freed by any thread. Blocks that do not fit spill:
 * into the thread's high slab, and then to malloc. No call fails that malloc would not fail.
 *
 * STINGY_OFF=1 in the environment passes everything to malloc. STINGY_DIRTY=1 fills memory with 0xa5 before it is given
 * out and when it is freed, which exposes programs that read what they never wrote. STINGY_STATS=stderr|FILE writes a
 * report when the program ends; STINGY_PROFILE=FILE then writes the requested sizes, for stingygen --profile. The end
 * is exit(), or SIGTERM or SIGINT if the program does not handle them. Of processes that forked from one another, the
 * one with the most blocks writes the file.
 *
 * A child of fork has the slab of the thread that forked, and may free blocks of other threads' slabs. */
#ifndef STINGY_RUNTIME_H
#define STINGY_RUNTIME_H

#include <stddef.h>
#include <stdio.h>
#include <stingy/map.h>

/* Stands for any object, for functions that free or reallocate blocks of unknown objects. */
#define STINGY_ANY 0xffffu

struct stingy_options {
    uint32_t max_threads; /* maximum number of slabs; 0: 64. Further threads use malloc */
    bool is_off;          /* everything comes from malloc; room is unlimited */
    bool is_without_huge_pages;
};

/* Sets the map, which must not change. The generated code calls this before main. Returns 0 or a negative errno:
 * EINVAL for a map that breaks an invariant, EBUSY if a map is in use, ENOMEM (then all blocks come from malloc).
 * `options` may be NULL. */
int stingy_init(const struct stingy_map *map, const struct stingy_options *options);

/* Frees everything; for tests. No other thread may use the slabs, and no block of them may be used afterwards. */
void stingy_end(void);

/* Allocates a block for an object of its analysed size. Returns NULL with ENOMEM, like malloc. */
void *stingy_alloc(unsigned object);
/* Like malloc, calloc, strdup and strndup, but in the slab if a slot is large enough. */
void *stingy_alloc_var(unsigned object, size_t bytes);
void *stingy_calloc(unsigned object, size_t count, size_t bytes);
char *stingy_strdup(unsigned object, const char *text);
char *stingy_strndup(unsigned object, const char *text, size_t bytes);
/* Like realloc of the C library in use, also with 0 bytes. `block` may be NULL, or come from malloc. */
void *stingy_realloc(unsigned object, void *block, size_t bytes);
/* Like free, also for blocks of malloc. Freeing a block twice, or an address inside one, ends the program. */
void stingy_free(unsigned object, void *block);

/* Moves a block out of the cache slab to free its slot, and keeps `bytes` of it. Returns the new address, or the
 * old one if it was elsewhere already. Returns NULL and changes nothing if there is no memory. */
void *stingy_evict(unsigned object, void *block, size_t bytes);

/* Allocates one object of a type. A type that is larger than the map expects simply spills. */
#define stingy_new(object, type) ((type *)stingy_alloc_var((object), sizeof(type)))

/* Returns how many more slots of a region this thread can give without a spill; UINT32_MAX when off. The generated
 * stingy_room(stage) uses this. */
uint32_t stingy_free_slots(unsigned region);

/* Runs `function` on a stack in the cache slab, with the low slab below it for overflow; on the program's own
 * stack if the map reserves none (or under AddressSanitizer). Returns after `function` returns. Calls must not
 * nest within a thread. */
void stingy_call_on_stack(void (*function)(void *), void *argument);

/* Counts since stingy_init, over all threads; exact while no thread allocates. */
struct stingy_stats {
    uint64_t allocations;     /* blocks from any source */
    uint64_t in_cache_slab;   /* those in a cache slab */
    uint64_t spilled_full;    /* spilled because no slot was free */
    uint64_t spilled_large;   /* spilled because they were larger than a slot */
    uint64_t spilled_malloc;  /* spilled to malloc because the high slab was full, too */
    uint64_t foreign_frees;   /* freed blocks that came from malloc */
    uint64_t remote_frees;    /* frees by a thread that is not the owner */
    uint64_t live, peak_live; /* blocks in cache slabs; the peak is the sum of the threads' peaks */
    uint64_t threads;         /* number of slabs, in use or idle */
    uint64_t huge_bytes;      /* bytes of the slabs on huge pages now; UINT64_MAX: not measured, no /proc/self/smaps */
    /* For the slab with the deepest stack: from the stack's top to the lowest byte that was ever
     * written. */
    uint64_t stack_peak_bytes;
};
void stingy_stats(struct stingy_stats *stats);

/* Gives the same counts for one object; fields that belong to no object are 0. */
void stingy_object_stats(unsigned object, struct stingy_stats *stats);

/* Writes the counts as one line of JSON. */
void stingy_report(FILE *out);

/* Whether an address lies in a cache slab, or in a slab at all. */
bool stingy_is_in_cache_slab(const void *block);
bool stingy_is_in_slab(const void *block);

#endif
