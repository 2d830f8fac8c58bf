/* SPDX-License-Identifier: Apache-2.0 */
/* The key under which a stack is stored once. */
#ifndef STRAINGAUGE_STACK_HASH_H
#define STRAINGAUGE_STACK_HASH_H

/* A collision would merge two stacks: with 64 bits and 16,384 stacks its odds are below 1 in 10^11. Never 0. */
static __always_inline __u64 hash_of(const __u64 *frames, __u32 count, __u32 limit) {
    __u64 hash = 0x9e3779b97f4a7c15ULL;
    for (__u32 i = 0; i < limit; i++) {
        if (i >= count)
            break;
        hash = (hash ^ frames[i]) * 0xff51afd7ed558ccdULL;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

/* Stores a stack once and returns its key: 0 if there is no place for it, which is counted in `lost`. `record` has the
 * stack's length and at most `limit` frames. */
static __always_inline __u64 store_stack(void *stacks, __u64 *record, __u32 limit, __u64 *lost) {
    __u64 hash = hash_of(record + 1, record[0], limit);

    if (!bpf_map_lookup_elem(stacks, &hash) && bpf_map_update_elem(stacks, &hash, record, ONLY_NEW) == -7 /* E2BIG */) {
        __sync_fetch_and_add(lost, 1);
        return 0;
    }
    return hash;
}

/* Stores the current stack; 0 also if there is none. `record` is a buffer for the length and `limit` frames. */
static __always_inline __u64 keep_stack(void *context, void *stacks, __u64 *record, __u32 limit, __u64 flags,
                                        __u64 *lost) {
    long bytes = bpf_get_stack(context, record + 1, limit * 8, flags);

    if (bytes <= 0)
        return 0;
    record[0] = bytes / 8;
    return store_stack(stacks, record, limit, lost);
}

#endif
