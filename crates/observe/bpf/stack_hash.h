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

#endif
