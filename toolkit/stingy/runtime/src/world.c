/* The world: the reserved range, slabs and the threads that own them. */
#define _GNU_SOURCE
#include "slab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct world stingy_world = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The world to which the thread's slab belongs; stingy_end invalidates all slabs. */
static _Atomic uint32_t generation = 1;
static _Thread_local struct {
    struct slab *slab;
    uint32_t generation;
    bool is_refused; /* there were too many threads */
} mine;

static size_t round_up(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

static struct slab *slab_at(uint32_t i) {
    return (struct slab *)(stingy_world.base + i * stingy_world.stride);
}

/* Lays out the parts of a slab's control block one after another; with NULL returns only their total size. */
static size_t lay_control(char *at) {
    const struct stingy_map *map = stingy_world.map;
    struct slab *slab = (struct slab *)at;
    size_t bytes = round_up(sizeof(struct slab), 64);
    if (at)
        slab->regions = (struct region_state *)(at + bytes);
    bytes = round_up(bytes + map->region_count * sizeof(struct region_state), 64);
    for (unsigned r = 0; r < map->region_count; r++) {
        size_t slots = map->regions[r].slots, words = slots / 64 + 1;
        if (at)
            slab->regions[r].live = (uint64_t *)(at + bytes);
        bytes = round_up(bytes + words * sizeof(uint64_t), 64);
        if (at)
            slab->regions[r].returned = (uint64_t *)(at + bytes);
        bytes = round_up(bytes + words * sizeof(uint64_t), 64);
        if (at)
            slab->regions[r].free = (uint16_t *)(at + bytes);
        bytes = round_up(bytes + slots * sizeof(uint16_t), 64);
    }
    if (at)
        slab->objects = (struct object_counters *)(at + bytes);
    return bytes + (map->object_count + 1u) * sizeof(struct object_counters);
}

/* Creates a slab. The thread that will use it writes it first, so that its memory lies near that thread's CPU. */
static struct slab *slab_make(uint32_t i) {
    struct world *w = &stingy_world;
    char *at = (char *)slab_at(i);
    if (mprotect(at, w->stride, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    struct slab *slab = (struct slab *)at;
    lay_control(at);
    slab->low = at + w->control_bytes;
    slab->cache = at + w->cache_offset;
    slab->high = slab->high_next = slab->cache + round_up(w->map->cache_bytes, 4096);
    slab->high_end = slab->high + w->high_bytes;
    /* A stack that outgrows the low slab must not reach the control block. */
    if (w->map->stack_bytes)
        mprotect(slab->low, 4096, PROT_NONE);
    madvise(slab->cache, round_up(w->map->cache_bytes, HUGE_PAGE),
            w->is_without_huge_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    memset(slab->cache, 0, w->map->cache_bytes);
    slot_start(slab);
    return slab;
}

static struct slab *slab_take_over(void) {
    struct world *w = &stingy_world;
    struct slab *found = NULL;
    pthread_mutex_lock(&w->lock);
    uint32_t threads = atomic_load(&w->threads);
    for (uint32_t i = 0; i < threads && !found; i++)
        if (slab_at(i)->is_idle)
            found = slab_at(i);
    if (found) {
        found->is_idle = false;
        found->is_on_own_stack = false; /* the last owner may have ended on that stack */
    } else if (threads < w->max_threads && (found = slab_make(threads))) {
        atomic_store(&w->threads, threads + 1);
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

struct slab *slab_mine_if_any(void) {
    return mine.generation == atomic_load_explicit(&generation, memory_order_acquire) ? mine.slab : NULL;
}

struct slab *slab_mine(void) {
    uint32_t now = atomic_load_explicit(&generation, memory_order_acquire);
    if (mine.generation == now && (mine.slab || mine.is_refused))
        return mine.slab;
    if (!atomic_load_explicit(&stingy_world.is_ready, memory_order_acquire) || stingy_world.is_off)
        return NULL;
    mine.slab = slab_take_over();
    mine.is_refused = !mine.slab;
    mine.generation = now;
    if (mine.slab)
        pthread_setspecific(stingy_world.at_thread_end, mine.slab);
    return mine.slab;
}

/* The slab with its live blocks waits for the next thread. */
static void thread_ends(void *slab) {
    if (slab_mine_if_any() == slab) {
        mine.slab = NULL;
        mine.generation = 0;
    }
    pthread_mutex_lock(&stingy_world.lock);
    ((struct slab *)slab)->is_idle = true;
    pthread_mutex_unlock(&stingy_world.lock);
}

struct slab *slab_of(const void *address) {
    struct world *w = &stingy_world;
    if (!atomic_load_explicit(&w->is_ready, memory_order_acquire) || (const char *)address < w->base)
        return NULL;
    size_t i = (size_t)((const char *)address - w->base) / w->stride;
    return i < atomic_load_explicit(&w->threads, memory_order_acquire) ? slab_at((uint32_t)i) : NULL;
}

/* After a fork the child has only the thread that forked, so the lock must be free in it. The slabs of the others
 * keep owners that never run again: these may have been interrupted anywhere, and the kernel copies pages one by
 * one, so the child does not even see their writes in order. If the child frees blocks of these slabs, they go to
 * the stacks of returned blocks, which needs nothing of the slab. */
static void before_fork(void) {
    pthread_mutex_lock(&stingy_world.lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&stingy_world.lock);
}
static void after_fork_in_child(void) {
    after_fork();
    ends_in_child();
}

/* realloc(block, 0) frees the block in glibc, and returns an empty block elsewhere (C11, 7.22.3:
 * implementation-defined). */
static bool is_freed_by_zero_realloc(void) {
    /* Volatile, because a compiler may remove blocks that are never read. */
    volatile size_t zero = 0;
    void *volatile block = malloc(1), *volatile left = block ? realloc(block, zero) : NULL;
    bool is_freed = block && !left;
    free(left);
    return is_freed;
}

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

int stingy_init(const struct stingy_map *map, const struct stingy_options *options) {
    struct world *w = &stingy_world;
    if (map_fault(map))
        return -EINVAL;
    pthread_mutex_lock(&w->lock);
    int status = -EBUSY;
    if (!atomic_load(&w->is_ready)) {
        static bool has_fork_handlers;
        w->map = map;
        w->is_off = (options && options->is_off) || is_set("STINGY_OFF");
        w->is_dirty = is_set("STINGY_DIRTY");
        w->is_freed_by_zero_realloc = is_freed_by_zero_realloc();
        w->is_without_huge_pages = options && options->is_without_huge_pages;
        w->max_threads = options && options->max_threads ? options->max_threads : 64;
        w->control_bytes = round_up(lay_control(NULL), 4096);
        w->low_bytes = round_up(map->low_bytes, 4096);
        w->high_bytes = round_up(map->high_bytes, 4096);
        /* Low slab and control block are kept out of the cache slab's huge pages: a guard page among them would
         * split these. */
        w->cache_offset = round_up(w->control_bytes + w->low_bytes, HUGE_PAGE);
        w->stride = round_up(w->cache_offset + round_up(map->cache_bytes, 4096) + w->high_bytes, HUGE_PAGE);
        /* If the address space is limited, most of it is left to the program. */
        struct rlimit limit;
        if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
            while (w->max_threads > 1 && (w->max_threads + 1) * w->stride > limit.rlim_cur / 8)
                w->max_threads /= 2;
        /* One slab more, so that the first one can begin at a huge page. Its memory is not allocated until it is
           used. */
        size_t reserved = (w->max_threads + 1) * w->stride;
        w->reserved = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        status = w->reserved == MAP_FAILED ? -ENOMEM : -pthread_key_create(&w->at_thread_end, thread_ends);
        if (status == 0 && !has_fork_handlers) {
            status = -pthread_atfork(before_fork, after_fork, after_fork_in_child);
            has_fork_handlers = status == 0;
        }
        if (status == 0) {
            w->base = (char *)round_up((size_t)w->reserved, HUGE_PAGE);
            atomic_store(&w->threads, 0);
            ends_start();
            atomic_store_explicit(&w->is_ready, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

void stingy_end(void) {
    struct world *w = &stingy_world;
    pthread_mutex_lock(&w->lock);
    if (atomic_load(&w->is_ready)) {
        ends_write_profile();
        atomic_store(&w->is_ready, false);
        atomic_fetch_add(&generation, 1);
        pthread_key_delete(w->at_thread_end);
        SLAB_UNPOISON(w->reserved, (w->max_threads + 1) * w->stride);
        munmap(w->reserved, (w->max_threads + 1) * w->stride);
        atomic_store(&w->threads, 0);
    }
    pthread_mutex_unlock(&w->lock);
}

_Noreturn void stingy_die(const char *what, unsigned object, const void *block) {
    const char *name = "?";
    if (stingy_world.map && object < stingy_world.map->object_count)
        name = stingy_world.map->objects[object].name;
    fprintf(stderr, "stingy: the block at %p, passed as object %s, %s\n", block, name, what);
    abort();
}
