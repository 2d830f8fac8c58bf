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

/* Clang has other names for what GCC defines. */
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
/* Blocks of the high slab: every SPILL_STEP bytes a class, from SPILL_FINE_BYTES on SPILL_STEPS of them for each
 * doubling. */
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

/* Slots of a region: `free` is a stack, so that the slot that is still in the cache is given out first. */
struct region_state {
    char *base;
    uint16_t *free;
    uint64_t *live;     /* a bit a slot */
    uint64_t *returned; /* as `live`: freed by another thread, and not taken back yet */
    uint32_t free_count;
};

struct slab {
    char *low, *cache, *high, *high_end;
    struct region_state *regions;
    _Atomic(void *) remote;
    char *high_next;                 /* never given out from here on */
    void *spill_free[SPILL_CLASSES]; /* blocks by size class */
    struct object_counters *objects; /* last: those of STINGY_ANY */
    counter foreign_frees, remote_frees;
    bool is_idle, is_on_own_stack;
};

struct world {
    const struct stingy_map *map;
    void *reserved;                                                    /* as mapped */
    char *base;                                                        /* of the first slab */
    size_t stride, control_bytes, low_bytes, high_bytes, cache_offset; /* the cache slab's, from the slab's beginning */
    uint32_t max_threads;
    _Atomic uint32_t threads; /* slabs made */
    _Atomic bool is_ready;
    bool is_off, is_without_huge_pages;
    bool is_dirty;                 /* STINGY_DIRTY */
    bool is_freed_by_zero_realloc; /* what realloc(block, 0) of the C library does */
    pthread_mutex_t lock;
    pthread_key_t at_thread_end;
};
extern struct world stingy_world;

/* The calling thread's slab, made or taken over when it has none; NULL when off, or when there are too many threads. */
struct slab *slab_mine(void);
/* The same, but NULL when it has none yet. */
struct slab *slab_mine_if_any(void);
/* The slab that contains an address; NULL if none does. */
struct slab *slab_of(const void *address);
static inline bool slab_is_cache(const struct slab *slab, const void *address) {
    return (const char *)address >= slab->cache && (const char *)address < slab->cache + stingy_world.map->cache_bytes;
}

/* Why a map cannot be used; NULL when it can. */
const char *map_fault(const struct stingy_map *map);

/* STINGY_DIRTY fills memory with this before it is given out, and when it is freed. */
enum { DIRT = 0xa5 };

/* slot.c: the cache slab. take: NULL when no slot is free. */
void slot_start(struct slab *slab);
void *slot_take(struct slab *slab, unsigned object, size_t bytes);
void slot_give(struct slab *slab, unsigned object, void *block);
/* Another thread frees a block; the owner takes it back. */
void slot_return(struct slab *slab, unsigned object, const void *block);
void slot_take_back(struct slab *slab, void *block);
/* Ends the program if another thread has freed this block. */
void slot_check_returned(const struct slab *slab, unsigned object, const void *block);
/* The object that lives at this address and the bytes of its slot; ends the program for anything but a
 * live beginning. Also in another thread's slab, whose owner may be running. */
unsigned slot_find(const struct slab *slab, unsigned object, const void *block, uint32_t *slot_bytes);
/* A block has changed its size in its slot. */
void slot_resized(void *block, size_t bytes, size_t slot_bytes);

/* spill.c: the high slab, and malloc after it. */
void *spill_take(struct slab *slab, unsigned object, size_t bytes);
void spill_give(struct slab *slab, void *block);
/* Another thread frees a block; the owner takes it back. */
void spill_return(const void *block);
void spill_take_back(struct slab *slab, void *block);
size_t spill_bytes(const void *block);
/* A block has changed its size. */
void spill_resized(void *block, size_t bytes);

/* stack.c: the greatest depth of the stack in this slab, in bytes. */
size_t stack_peak(const struct slab *slab);

/* text.c: to a file, or to a descriptor if there is none. */
struct text {
    FILE *file;
    int fd;
    size_t used;
    char bytes[512];
};
void text_put(struct text *text, const char *words);
void text_number(struct text *text, const char *before, uint64_t number);
void text_flush(struct text *text);

/* stats.c, profile.c: the reports; profile_blocks: how many blocks this one is about. */
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

/* Ends the program: the caller broke a rule, and to go on would corrupt memory. */
_Noreturn void stingy_die(const char *what, unsigned object, const void *block);

#endif
