/* lowest-free: allocate the lowest free number, in time logarithmic (base 64) in the capacity.
 *
 * The two-level bitmap tree of Banga and Mogul, "Scalable kernel performance for Internet servers under realistic
 * loads" (1998), section 4.2, generalised to any depth. Level 0 has one bit for each number (1 = taken); bit i of
 * level k+1 is 1 exactly when all 64 bits of word i of level k are 1. The top level is one word. UNIX needs the lowest
 * free number, which rules out a free list; a linear search visits up to capacity/64 words, this visits one word a
 * level.
 *
 * Numbers run from 0 to capacity - 1. One thread at a time: the caller locks. No function allocates but
 * lowest_free_create, so the others may be used where malloc may not. */
#ifndef LOWEST_FREE_H
#define LOWEST_FREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lowest_free;

/* Returned by a function when there is no number. */
#define LOWEST_FREE_NONE SIZE_MAX

/* Number of bytes that lowest_free_init needs for this capacity; 0 if capacity is 0 or the size would overflow. */
size_t lowest_free_bytes(size_t capacity);

/* Sets up a tree with all numbers free in the caller's memory: `bytes` at `memory`, aligned to 8. Returns NULL if
 * capacity is 0 or the memory is too small or misaligned. The caller still owns the memory. */
struct lowest_free *lowest_free_init(void *memory, size_t bytes, size_t capacity);

/* Like lowest_free_init in memory from calloc. Returns NULL if capacity is 0 or memory is
   exhausted. Free it with lowest_free_destroy. */
struct lowest_free *lowest_free_create(size_t capacity);
void lowest_free_destroy(struct lowest_free *tree);

/* Takes and returns the lowest free number, or LOWEST_FREE_NONE if all are taken. */
size_t lowest_free_take(struct lowest_free *tree);

/* Takes and returns the lowest free number that is >= floor (like F_DUPFD), or LOWEST_FREE_NONE if there is none. */
size_t lowest_free_take_from(struct lowest_free *tree, size_t floor);

/* Takes exactly this number (like dup2). Returns false if it is already taken or not below the
 * capacity. */
bool lowest_free_take_at(struct lowest_free *tree, size_t number);

/* Gives a number back. Returns false and changes nothing if it was not taken or is not below the capacity. */
bool lowest_free_give(struct lowest_free *tree, size_t number);

bool lowest_free_is_taken(const struct lowest_free *tree, size_t number);
size_t lowest_free_taken(const struct lowest_free *tree); /* number of taken numbers */
size_t lowest_free_capacity(const struct lowest_free *tree);
/* Number of levels of the tree: 1 up to 64 numbers, 2 up to 4096, ... */
unsigned lowest_free_depth(const struct lowest_free *tree);

/* True if every level agrees with the one below it, and the count with the bits. For tests; takes linear time. */
bool lowest_free_is_consistent(const struct lowest_free *tree);

#ifdef __cplusplus
}
#endif
#endif
