/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets in TIME_WAIT. They enter with an event and leave without one: when their timer fires, or when their
 * client connects from the same port again.
 *
 * The timer is set to a minute and fires at the next step of the timer wheel (kernel/time/timer.c,
 * calc_wheel_index). For such a long time, a step is 2^time_wait_shift jiffies, which is seconds. So the step at
 * which a socket leaves is known when it enters, and one count per step is enough. */
#ifndef STRAINGAUGE_STATES_H
#define STRAINGAUGE_STATES_H

/* Steps at which clients' sockets leave, by a hash of both addresses and the client's port. Kept until the client
 * connects again or the reader removes them. If the map is full, early ends are missed until the next scan. */
MAP(waiting_clients, HASH, BPF_F_NO_PREALLOC, 1, __u64, __u64); /* set by the reader */

/* Transitions that on_state() saw on this CPU and on_missed_state() has not seen yet. */
#define SEEN 4
struct seen {
    __u64 sk[SEEN];
    __u32 change[SEEN];
    __u32 next;
    __u32 reserved;
};
MAP(seen_states, PERCPU_ARRAY, 0, 1, __u32, struct seen);

static __always_inline void note_seen(const struct sock *sk, int old_state, int new_state) {
    __u32 zero = 0, i;
    struct seen *seen = bpf_map_lookup_elem(&seen_states, &zero);

    if (!seen)
        return;
    i = seen->next++ & (SEEN - 1);
    seen->change[i] = old_state << 8 | new_state;
    *(volatile __u64 *)&seen->sk[i] = (__u64)sk;
}

static __always_inline bool was_seen(const struct sock *sk, int old_state, int new_state) {
    __u32 zero = 0;
    struct seen *seen = bpf_map_lookup_elem(&seen_states, &zero);

    if (!seen)
        return 1;
#pragma unroll
    for (int i = 0; i < SEEN; i++) {
        if (seen->sk[i] == (__u64)sk && seen->change[i] == (old_state << 8 | new_state)) {
            seen->sk[i] = 0;
            return 1;
        }
    }
    return 0;
}

static __always_inline __u64 mixed(__u64 hash, __u32 word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
}

/* Must equal client_key() in timer_wheel.rs. */
static __always_inline __u64 client_key(const struct sock *sk) {
    const struct sock_common *c = &sk->__sk_common;
    __u64 hash = mixed(0, c->skc_dport);

    if (c->skc_family != AF_INET6 || !bpf_core_field_exists(c->skc_v6_daddr))
        return mixed(mixed(hash, c->skc_daddr), c->skc_rcv_saddr);
#pragma unroll
    for (int i = 0; i < 4; i++)
        hash = mixed(hash, c->skc_v6_daddr.in6_u.u6_addr32[i]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        hash = mixed(hash, c->skc_v6_rcv_saddr.in6_u.u6_addr32[i]);
    return hash;
}

/* Adds to the count of a step. A place with the count of an earlier step starts again. */
static __always_inline void add_time_wait(__u64 step, __s32 change) {
    __u64 *place = &counts.time_waits[step & (TIME_WAIT_SLOTS - 1)];

#pragma unroll
    for (int attempt = 0; attempt < 8; attempt++) {
        __u64 old = *(volatile __u64 *)place;
        __u32 count = old >> 32 == (__u32)step ? (__u32)old : 0;
        __u64 new = step << 32 | (__u32)(count + change);

        if (__sync_val_compare_and_swap(place, old, new) == old)
            return;
    }
}

static __always_inline void enter_time_wait(const struct sock *sk) {
    __u64 step = ((bpf_jiffies64() + options.time_wait_jiffies) >> options.time_wait_shift) + 1;
    __u64 key = client_key(sk);

    __sync_fetch_and_add(&counts.time_wait_entered, 1);
    add_time_wait(step, 1);
    bpf_map_update_elem(&waiting_clients, &key, &step, 0);
}

/* The kernel reuses the port of a socket in TIME_WAIT for the client's next connection. */
static __always_inline void end_time_wait(const struct sock *sk) {
    __u64 key = client_key(sk);
    __u64 *step = bpf_map_lookup_elem(&waiting_clients, &key);

    if (!step)
        return;
    if (*step > bpf_jiffies64() >> options.time_wait_shift) {
        add_time_wait(*step, -1);
        __sync_fetch_and_add(&counts.time_wait_reused, 1);
    }
    bpf_map_delete_elem(&waiting_clients, &key);
}

/* Run by the reader: the current time on both clocks. */
SEC("syscall")
int moment(void *context) {
    swept.now_jiffies = bpf_jiffies64();
    swept.now_ns = bpf_ktime_get_ns();
    return 0;
}

/* Run by the reader: removes sockets that have left. */
static long forget_one(struct bpf_map *map, const __u64 *key, __u64 *step, void *now) {
    if (*step <= *(__u64 *)now)
        bpf_map_delete_elem(map, key);
    return 0;
}

SEC("syscall")
int forget_waiting(void *context) {
    __u64 now = bpf_jiffies64() >> options.time_wait_shift;

    bpf_for_each_map_elem(&waiting_clients, forget_one, &now, 0);
    return 0;
}

#endif
