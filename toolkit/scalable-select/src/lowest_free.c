#include "lowest_free.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_BITS = 64, WORD_SHIFT = 6, MAX_LEVELS = 11 }; /* 64^11 > 2^64 */
#define FULL UINT64_MAX

/* word[start[k] + i] is word i of level k. Bits beyond the capacity, and beyond the words of the level below, are
 * always 1. They count as taken, so a search needs no bound and never finds them. */
struct lowest_free {
    size_t capacity;
    size_t taken;
    unsigned levels;
    size_t start[MAX_LEVELS];
    size_t words[MAX_LEVELS];
    uint64_t word[];
};

static size_t words_for(size_t bits) {
    return bits / WORD_BITS + (bits % WORD_BITS != 0);
}

size_t lowest_free_bytes(size_t capacity) {
    if (capacity == 0)
        return 0;
    size_t total = 0, words = capacity;
    do {
        words = words_for(words);
        total += words;
    } while (words > 1);
    if (total > (SIZE_MAX - sizeof(struct lowest_free)) / sizeof(uint64_t))
        return 0;
    return sizeof(struct lowest_free) + total * sizeof(uint64_t);
}

/* Marks the unused bits of a level's last word as taken. */
static void seal(uint64_t *level, size_t words, size_t bits) {
    size_t used = bits - (words - 1) * WORD_BITS;
    if (used < WORD_BITS)
        level[words - 1] = FULL << used;
}

struct lowest_free *lowest_free_init(void *memory, size_t bytes, size_t capacity) {
    size_t need = lowest_free_bytes(capacity);
    if (need == 0 || memory == NULL || bytes < need || (uintptr_t)memory % _Alignof(struct lowest_free) != 0)
        return NULL;
    struct lowest_free *tree = memory;
    memset(tree, 0, need);
    tree->capacity = capacity;
    size_t at = 0, bits = capacity;
    do {
        size_t words = words_for(bits);
        tree->start[tree->levels] = at;
        tree->words[tree->levels] = words;
        seal(tree->word + at, words, bits);
        tree->levels++;
        at += words;
        bits = words;
    } while (bits > 1);
    return tree;
}

struct lowest_free *lowest_free_create(size_t capacity) {
    size_t bytes = lowest_free_bytes(capacity);
    void *memory = bytes != 0 ? malloc(bytes) : NULL;
    return memory != NULL ? lowest_free_init(memory, bytes, capacity) : NULL;
}

void lowest_free_destroy(struct lowest_free *tree) {
    free(tree);
}

static uint64_t *word_at(struct lowest_free *tree, unsigned level, size_t index) {
    return &tree->word[tree->start[level] + index];
}

/* Sets the bit, and the bits of the levels above whose word became full. */
static void mark(struct lowest_free *tree, size_t number) {
    for (unsigned level = 0; level < tree->levels; level++) {
        uint64_t *word = word_at(tree, level, number >> WORD_SHIFT);
        *word |= (uint64_t)1 << (number % WORD_BITS);
        if (*word != FULL)
            break;
        number >>= WORD_SHIFT;
    }
    tree->taken++;
}

/* Descends from a word of any level that has a zero bit to the lowest free number under it. */
static size_t descend(struct lowest_free *tree, unsigned level, size_t index) {
    for (;;) {
        index = index * WORD_BITS + (size_t)__builtin_ctzll(~*word_at(tree, level, index));
        if (level-- == 0)
            return index;
    }
}

size_t lowest_free_take(struct lowest_free *tree) {
    if (*word_at(tree, tree->levels - 1, 0) == FULL)
        return LOWEST_FREE_NONE;
    size_t number = descend(tree, tree->levels - 1, 0);
    mark(tree, number);
    return number;
}

size_t lowest_free_take_from(struct lowest_free *tree, size_t floor) {
    if (floor >= tree->capacity)
        return LOWEST_FREE_NONE;
    /* Climbs until a word has a zero at or after the floor, then descends to its lowest number. */
    size_t bit = floor;
    for (unsigned level = 0; level < tree->levels; level++) {
        size_t index = bit >> WORD_SHIFT;
        if (index >= tree->words[level])
            return LOWEST_FREE_NONE;
        uint64_t zeros = ~*word_at(tree, level, index) & (FULL << (bit % WORD_BITS));
        if (zeros != 0) {
            size_t number = index * WORD_BITS + (size_t)__builtin_ctzll(zeros);
            if (level > 0)
                number = descend(tree, level - 1, number);
            mark(tree, number);
            return number;
        }
        bit = index + 1; /* the words after this one, seen from the level above */
    }
    return LOWEST_FREE_NONE;
}

bool lowest_free_is_taken(const struct lowest_free *tree, size_t number) {
    return number < tree->capacity && (tree->word[number >> WORD_SHIFT] >> (number % WORD_BITS) & 1) != 0;
}

bool lowest_free_take_at(struct lowest_free *tree, size_t number) {
    if (number >= tree->capacity || lowest_free_is_taken(tree, number))
        return false;
    mark(tree, number);
    return true;
}

bool lowest_free_give(struct lowest_free *tree, size_t number) {
    if (!lowest_free_is_taken(tree, number))
        return false;
    for (unsigned level = 0; level < tree->levels; level++) {
        uint64_t *word = word_at(tree, level, number >> WORD_SHIFT);
        bool was_full = *word == FULL;
        *word &= ~((uint64_t)1 << (number % WORD_BITS));
        if (!was_full)
            break;
        number >>= WORD_SHIFT;
    }
    tree->taken--;
    return true;
}

size_t lowest_free_taken(const struct lowest_free *tree) {
    return tree->taken;
}

size_t lowest_free_capacity(const struct lowest_free *tree) {
    return tree->capacity;
}

unsigned lowest_free_depth(const struct lowest_free *tree) {
    return tree->levels;
}

bool lowest_free_is_consistent(const struct lowest_free *tree) {
    size_t taken = 0;
    for (size_t i = 0; i < tree->words[0]; i++)
        taken += (size_t)__builtin_popcountll(tree->word[i]);
    if (taken - (tree->words[0] * WORD_BITS - tree->capacity) != tree->taken)
        return false;
    for (unsigned level = 1; level < tree->levels; level++)
        for (size_t i = 0; i < tree->words[level] * WORD_BITS; i++) {
            bool bit = tree->word[tree->start[level] + i / WORD_BITS] >> (i % WORD_BITS) & 1;
            bool full = i >= tree->words[level - 1] || tree->word[tree->start[level - 1] + i] == FULL;
            if (bit != full)
                return false;
        }
    return true;
}
