/* Structures shared by the files of the runtime: a thread's slab, and the world of all slabs.
 *
 * All slabs lie in one reserved range, `stride` bytes apart, so the owner of a block follows from its address:
 *
 *     control | low | cache | high        stride is a multiple of 2 MiB; cache begins at one
 *
 * Only the owning thread uses a slab, except for: `remote` (a stack to which other threads push blocks that they free)
 * and the marks of such blocks (`returned`, SPILL_RETURNED); `live` and the counters (others read them); and `is_idle`,
 * which the world's lock protects. */
#ifndef STINGY_SLAB_H
#define STINGY_SLAB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stingy/runtime.h>

/* Clang has other names for GCC's macros. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define SLAB_POISON(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define SLAB_UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define SLAB_POISON(address, bytes) ((void)(address), (void)(bytes))
#define SLAB_UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { HUGE_PAGE = 2 << 20 };
/* Size classes of the high slab: multiples of SPILL_STEP bytes, and from SPILL_FINE_BYTES on SPILL_STEPS classes
 * per doubling. */
enum {
    SPILL_STEP = 16,
    SPILL_FINE_BYTES = 4096,
    SPILL_FINE_CLASSES = SPILL_FINE_BYTES / SPILL_STEP,
    SPILL_STEPS = 8,
    SPILL_DOUBLINGS = 5,
    SPILL_CLASSES = SPILL_FINE_CLASSES + SPILL_STEPS * SPILL_DOUBLINGS
};

/* A counter that only its owner increments. */
typedef _Atomic uint64_t counter;
static inline void count(counter *c) {
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1, memory_order_relaxed);
}
static inline uint64_t counted(counter *c) {
    return atomic_load_explicit(c, memory_order_relaxed);
}

struct object_counters {
    counter in_cache_slab, freed, spilled_full, spilled_large, spilled_malloc;
    counter peak_live;
};

/* Slots of a region. `free` is a stack, so that the slot that is still in the cache is given out first. */
struct region_state {
    char *base;
    uint16_t *free;
    uint64_t *live;     /* one bit per slot */
    uint64_t *returned; /* like `live`: freed by another thread and not taken back yet */
    uint32_t free_count;
};

struct slab {
    char *low, *cache, *high, *high_end;
    struct region_state *regions;
    _Atomic(void *) remote;
    char *high_next;                 /* memory from here on is unused so far */
    void *spill_free[SPILL_CLASSES]; /* free blocks by size class */
    struct object_counters *objects; /* last entry: STINGY_ANY */
    counter foreign_frees, remote_frees;
    bool is_idle, is_on_own_stack;
};

struct world {
    const struct stingy_map *map;
    void *reserved; /* as mapped */
    char *base;     /* start of the first slab */
    size_t stride, control_bytes, low_bytes, high_bytes,
        cache_offset; /* offset of the cache slab from the slab's beginning */
    uint32_t max_threads;
    _Atomic uint32_t threads; /* number of created slabs */
    _Atomic bool is_ready;
    bool is_off, is_without_huge_pages;
    bool is_dirty;                 /* STINGY_DIRTY */
    bool is_freed_by_zero_realloc; /* the effect of realloc(block, 0) in the C library */
    pthread_mutex_t lock;
    pthread_key_t at_thread_end;
};
extern struct world stingy_world;

/* Returns the calling thread's slab. Creates one or takes one over if it has none. NULL if off, or if there are
   too many threads. */
struct slab *slab_mine(void);
/* Returns the calling thread's slab, or NULL if it has none yet. */
struct slab *slab_mine_if_any(void);
/* Returns the slab that contains an address, or NULL. */
struct slab *slab_of(const void *address);
static inline bool slab_is_cache(const struct slab *slab, const void *address) {
    return (const char *)address >= slab->cache && (const char *)address < slab->cache + stingy_world.map->cache_bytes;
}

/* Returns why a map cannot be used, or NULL. */
const char *map_fault(const struct stingy_map *map);

/* STINGY_DIRTY fills memory with this before it is given out, and when it is freed. */
enum { DIRT = 0xa5 };

/* slot.c: the cache slab. slot_take returns NULL if no slot is free. */
void slot_start(struct slab *slab);
void *slot_take(struct slab *slab, unsigned object, size_t bytes);
void slot_give(struct slab *slab, unsigned object, void *block);
/* Called by another thread to free a block; the owner takes it back. */
void slot_return(struct slab *slab, unsigned object, const void *block);
void slot_take_back(struct slab *slab, void *block);
/* Ends the program if another thread has freed this block. */
void slot_check_returned(const struct slab *slab, unsigned object, const void *block);
/* Returns the object at this address and the bytes of its slot; ends the program for anything but the beginning of
 * a live block. Also works in another thread's slab, whose owner may be running. */
unsigned slot_find(const struct slab *slab, unsigned object, const void *block, uint32_t *slot_bytes);
/* Records the new size of a block in its slot. */
void slot_resized(void *block, size_t bytes, size_t slot_bytes);

/* spill.c: the high slab, and malloc if it is full. */
void *spill_take(struct slab *slab, unsigned object, size_t bytes);
void spill_give(struct slab *slab, void *block);
/* Called by another thread to free a block; the owner takes it back. */
void spill_return(const void *block);
void spill_take_back(struct slab *slab, void *block);
size_t spill_bytes(const void *block);
/* Records the new size of a block. */
void spill_resized(void *block, size_t bytes);

/* stack.c: the greatest depth of the stack in this slab, in bytes. */
size_t stack_peak(const struct slab *slab);

/* text.c: writes to a file, or to a descriptor if there is none. */
struct text {
    FILE *file;
    int fd;
    size_t used;
    char bytes[512];
};
void text_put(struct text *text, const char *words);
void text_number(struct text *text, const char *before, uint64_t number);
void text_flush(struct text *text);

/* stats.c, profile.c: the reports. profile_blocks: the number of blocks in this report. */
void stats_put(struct text *out);
bool profile_start(void);
void profile_note(unsigned object, size_t bytes);
uint64_t profile_blocks(void);
void profile_put(struct text *out);
extern _Atomic bool profile_is_on;

/* ends.c: opens the reports that the environment requests, and writes them when the program ends. */
void ends_start(void);
void ends_write(void);
void ends_write_profile(void);
void ends_in_child(void);

/* Ends the program because the caller broke a rule, and continuing would corrupt memory. */
_Noreturn void stingy_die(const char *what, unsigned object, const void *block);

#endif
