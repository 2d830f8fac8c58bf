/* Tests the slabs of threads: blocks freed elsewhere return, slabs of ended threads are taken
 * over, and no memory is shared. */
#define _GNU_SOURCE
#include "check.h"
#include "maps.h"

#include "slab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PRODUCERS = 3, ROUNDS = 20000, QUEUE = 256 };
static struct made_map made;
static _Atomic(uintptr_t *) queue[QUEUE];
static pthread_barrier_t all_have_slabs;

static void start(uint32_t max_threads) {
    made_begin(&made, 2);
    made.objects[0] = (struct stingy_object){"a", 64, 0};
    made.objects[1] = (struct stingy_object){"b", 40, 1};
    made.regions[0] = (struct stingy_region){"a", 0, 64, 32};
    made.regions[1] = (struct stingy_region){"b", 2048, 48, 32};
    made.map.region_count = 2, made.map.cache_bytes = 4096;
    CHECK_EQ(stingy_init(&made.map, &(struct stingy_options){.max_threads = max_threads}), 0);
}

static struct stingy_stats stats(void) {
    struct stingy_stats s;
    stingy_stats(&s);
    return s;
}

/* Puts a block that contains its own address into a random cell. Checks the previous block, and
 * frees or grows it. */
static void *exchange_blocks(void *number) {
    uint64_t seed = 77 + (uintptr_t)number * 1000003;
    uintptr_t wrong = 0;
    /* All have a slab before the first one ends. */
    stingy_free(0, stingy_alloc(0));
    pthread_barrier_wait(&all_have_slabs);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned object = random_below(&seed, 2);
        uintptr_t *block = stingy_alloc_var(object, random_below(&seed, 8) ? 40 : 400);
        block[0] = (uintptr_t)block, block[1] = ~(uintptr_t)block, block[2] = object;
        uintptr_t *other = atomic_exchange(&queue[random_below(&seed, QUEUE)], block);
        if (!other)
            continue;
        wrong += other[0] != (uintptr_t)other || other[1] != ~(uintptr_t)other;
        if (random_below(&seed, 8) == 0) {
            uintptr_t was = other[0];
            other = stingy_realloc((unsigned)other[2], other, 700);
            wrong += other[0] != was;
            stingy_free(STINGY_ANY, other);
        } else {
            stingy_free((unsigned)other[2], other);
        }
    }
    return (void *)wrong;
}

static void blocks_freed_by_other_threads_come_home(void) {
    start(0);
    pthread_t threads[PRODUCERS];
    pthread_barrier_init(&all_have_slabs, NULL, PRODUCERS + 1);
    for (uintptr_t i = 0; i < PRODUCERS; i++)
        pthread_create(&threads[i], NULL, exchange_blocks, (void *)i);
    uintptr_t wrong = (uintptr_t)exchange_blocks((void *)99);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        void *their;
        pthread_join(threads[i], &their);
        wrong += (uintptr_t)their;
    }
    CHECK_EQ(wrong, 0);
    pthread_barrier_destroy(&all_have_slabs);
    CHECK_EQ(stats().threads, PRODUCERS + 1);
    for (unsigned i = 0; i < QUEUE; i++)
        stingy_free(STINGY_ANY, atomic_exchange(&queue[i], NULL));
    CHECK(stats().remote_frees > 0);
    stingy_end();
}

static void *give_one(void *out) {
    *(void **)out = stingy_alloc(0);
    return NULL;
}

static void a_new_thread_takes_over_the_slab_of_an_ended_one(void) {
    start(0);
    void *blocks[40];
    for (unsigned i = 0; i < 40; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, give_one, &blocks[i]);
        pthread_join(thread, NULL);
    }
    CHECK_EQ(stats().threads, 1);
    for (unsigned i = 0; i < 40; i++)
        CHECK_EQ(stingy_is_in_cache_slab(blocks[i]), i < 32);
    /* Frees by a thread without a slab. */
    for (unsigned i = 0; i < 40; i++)
        stingy_free(0, blocks[i]);
    CHECK_EQ(stingy_free_slots(0), 32);
    CHECK_EQ(stats().live, 0);
    stingy_end();
}

static void threads_beyond_the_limit_use_malloc(void) {
    start(1);
    void *mine = stingy_alloc(0), *theirs;
    pthread_t thread;
    pthread_create(&thread, NULL, give_one, &theirs);
    pthread_join(thread, NULL);
    CHECK(stingy_is_in_cache_slab(mine) && !stingy_is_in_slab(theirs));
    stingy_free(0, theirs);
    stingy_free(0, mine);
    stingy_end();
}

/* A thread that forks meanwhile must wait, so that the child does not inherit a locked lock. */
static void *hold_the_lock(void *unused) {
    pthread_mutex_lock(&stingy_world.lock);
    pthread_barrier_wait(&all_have_slabs);
    usleep(100000);
    pthread_mutex_unlock(&stingy_world.lock);
    return unused;
}

/* The exit status of a child that runs `act`: 0, or that of SIGALRM if it hangs. */
static int status_of_child(bool (*act)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(20);
        /* Bypasses ThreadSanitizer, which would report the parent's threads as leaked. */
        syscall(SYS_exit_group, act() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static bool allocates(void) {
    void *block = stingy_alloc(0);
    bool is_ours = stingy_is_in_cache_slab(block);
    stingy_free(0, block);
    return is_ours;
}

static void a_child_finds_no_lock_that_another_thread_holds(void) {
    start(0);
    pthread_t thread;
    pthread_barrier_init(&all_have_slabs, NULL, 2);
    pthread_create(&thread, NULL, hold_the_lock, NULL);
    pthread_barrier_wait(&all_have_slabs);
    CHECK_EQ(status_of_child(allocates), 0);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&all_have_slabs);
    /* The parent continues, too. */
    CHECK(allocates());
    stingy_end();
}

static uintptr_t *of_other_thread;
static pthread_barrier_t is_forked;

static void *hold_a_block(void *unused) {
    of_other_thread = stingy_alloc(1);
    of_other_thread[0] = 77;
    pthread_barrier_wait(&all_have_slabs);
    pthread_barrier_wait(&is_forked);
    stingy_free(1, of_other_thread);
    return unused;
}

static void *allocates_in_thread(void *is_done) {
    return allocates() ? is_done : NULL;
}

static bool goes_on_alone(void) {
    bool is_good = allocates() && of_other_thread[0] == 77;
    uintptr_t *larger = stingy_realloc(STINGY_ANY, of_other_thread, 700);
    is_good &= larger[0] == 77;
    stingy_free(STINGY_ANY, larger);
    /* The other thread's slab is not taken over, because that thread may have been interrupted
     * anywhere. */
#if !defined(__SANITIZE_THREAD__) /* ThreadSanitizer allows no threads in such a child */
    pthread_t thread;
    char done;
    void *result = NULL;
    is_good &= pthread_create(&thread, NULL, allocates_in_thread, &done) == 0 && pthread_join(thread, &result) == 0;
    is_good &= result != NULL && stats().threads == 3;
#endif
    return is_good;
}

static void a_child_of_a_threaded_program_goes_on_alone(void) {
    start(0);
    allocates();
    pthread_t thread;
    pthread_barrier_init(&all_have_slabs, NULL, 2);
    pthread_barrier_init(&is_forked, NULL, 2);
    pthread_create(&thread, NULL, hold_a_block, NULL);
    pthread_barrier_wait(&all_have_slabs);
    CHECK_EQ(status_of_child(goes_on_alone), 0);
    pthread_barrier_wait(&is_forked);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&all_have_slabs);
    pthread_barrier_destroy(&is_forked);
    CHECK_EQ(stats().threads, 2);
    stingy_end();
}

int main(void) {
    RUN(blocks_freed_by_other_threads_come_home);
    RUN(a_new_thread_takes_over_the_slab_of_an_ended_one);
    RUN(threads_beyond_the_limit_use_malloc);
    RUN(a_child_finds_no_lock_that_another_thread_holds);
    RUN(a_child_of_a_threaded_program_goes_on_alone);
    return check_end();
}
