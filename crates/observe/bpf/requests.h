/* SPDX-License-Identifier: Apache-2.0 */
/* The table of connections, and the counting of ended requests.
 *
 * A connection's record is in one of WAYS neighbouring slots chosen by the socket's own hash, so finding it
 * usually costs one comparison and never a map call. If another connection needs the slot, the request is ended:
 * exactly if its response was written, otherwise it is counted in `lost_open`.
 *
 * Counts of the receive and send hooks go to rows of this CPU without atomic instructions: the hooks run in tasks,
 * with preemption off. The state hook runs in softirq, too, so it has a separate row that is written atomically. */
#ifndef STRAINGAUGE_REQUESTS_H
#define STRAINGAUGE_REQUESTS_H

MAPPED(requests, 16384, struct request); /* set by the reader: a power of two, at least WAYS */

MAPPED(threads, THREADS, struct thread);

/* (CPUs + 1) x SIZE_CLASSES rows; the last SIZE_CLASSES rows belong to the state hook. */
MAPPED(classes, 2 * SIZE_CLASSES, struct class_row);

MAPPED(phases, 2 * SIZE_CLASSES, struct phase_row);

/* One object per section: each becomes a separate map, which the reader maps into its memory. */
const volatile struct watch_options options SEC(".rodata.options") = {};
struct port_counts counts SEC(".bss.counts");
#define COUNT_BY(name, number) __sync_fetch_and_add(&counts.counters[COUNT_##name], number)
#define COUNT(name) COUNT_BY(name, 1)
struct control control SEC(".bss.control");
struct sweep swept SEC(".bss.swept");

MAPPED(runs, 1, struct run_row); /* set by the reader: CPUs */

static __always_inline struct run_row *runs_here(void) {
    __u32 cpu = bpf_get_smp_processor_id();

    return bpf_map_lookup_elem(&runs, &cpu);
}

/* Counters for kinds of events that cannot interrupt each other. */
#define RAN(kind)                           \
    ({                                      \
        struct run_row *here = runs_here(); \
        if (here)                           \
            here->kind++;                   \
    })

#define RAN_ATOMICALLY(kind)                      \
    ({                                            \
        struct run_row *here = runs_here();       \
        if (here)                                 \
            __sync_fetch_and_add(&here->kind, 1); \
    })

static __always_inline __u32 bucket_of(__u64 ns) {
    __u64 v = ns >> 6;
    __u32 b = 1;

    if (!v)
        return 0;
    if (v >> 32) {
        b += 32;
        v >>= 32;
    }
    if (v >> 16) {
        b += 16;
        v >>= 16;
    }
    if (v >> 8) {
        b += 8;
        v >>= 8;
    }
    if (v >> 4) {
        b += 4;
        v >>= 4;
    }
    if (v >> 2) {
        b += 2;
        v >>= 2;
    }
    if (v >> 1)
        b += 1;
    return b < BUCKETS ? b : BUCKETS - 1;
}

static __always_inline __u32 class_of(__u64 bytes_out) {
    __u32 c = 0;

#pragma unroll
    for (__u32 i = 0; i < SIZE_CLASSES - 1; i++)
        if (bytes_out >= options.class_below_bytes[i])
            c = i + 1;
        else
            break;
    return c;
}

/* Position of the socket's next response byte in the stream; does not wrap at 32 bits (bytes_acked has 64). */
static __always_inline __u64 written_position(struct tcp_sock *tp) {
    return tp->bytes_acked + (__u32)(tp->write_seq - tp->snd_una);
}

static __always_inline bool is_ours(const struct sock *sk) {
    return !control.netns_inum || BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == control.netns_inum;
}

/* Since Linux 6.4, the verifier searches the names of all types for each pointer that is read from a hook's argument.
 * It does not for one that is read from `tp`, the result of a helper. */
static __always_inline bool is_our_tcp(const struct tcp_sock *tp) {
    const struct sock *sk = (const struct sock *)tp;

    return !control.netns_inum || sk->__sk_common.skc_net.net->ns.inum == control.netns_inum;
}

/* MPTCP connections: the application reads and writes a socket whose data the kernel spreads over TCP sockets. The
 * hooks know it as a struct sock, so its further fields are copied. */
static __always_inline bool is_mptcp(__u64 sk) {
    __u16 protocol = 0;

    bpf_core_read(&protocol, sizeof(protocol), &((struct sock *)sk)->sk_protocol);
    return protocol == IPPROTO_MPTCP;
}

static __always_inline __u64 written_by_mptcp(__u64 sk) {
    __u64 at = 0;

    if (bpf_core_field_exists(((struct mptcp_sock *)sk)->write_seq))
        bpf_core_read(&at, sizeof(at), &((struct mptcp_sock *)sk)->write_seq);
    return at;
}

/* When the last acknowledged segment was sent on the first path; 0 = unknown. */
static __always_inline __u64 sent_by_mptcp(__u64 sk) {
    struct sock *first = 0;
    __u64 us = 0;

    if (bpf_core_field_exists(((struct mptcp_sock *)sk)->first))
        bpf_core_read(&first, sizeof(first), &((struct mptcp_sock *)sk)->first);
    if (first)
        bpf_core_read(&us, sizeof(us), &((struct tcp_sock *)first)->first_tx_mstamp);
    return us * 1000;
}

/* MPTCP sockets have no hash of their own; most clients have different ports. */
static __always_inline __u32 mptcp_hash(const struct sock *sk) {
    return (sk->__sk_common.skc_dport * 0x9e3779b1U) >> 12;
}

/* Whether the server has ended its stream of responses, so that it will not answer what it reads from now on. */
static __always_inline bool has_ended_stream(const struct sock *sk) {
    __u8 state = sk->__sk_common.skc_state;

    return state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING;
}

static __always_inline struct request *request_at(__u32 slot) {
    return bpf_map_lookup_elem(&requests, &slot);
}

static __always_inline struct request *find(__u64 sk, __u32 hash, __u32 *slot) {
    __u32 base = hash & options.slots_mask & ~(WAYS - 1);

#pragma unroll
    for (__u32 way = 0; way < WAYS; way++) {
        struct request *r = request_at(base + way);

        if (r && r->sk == sk) {
            *slot = base + way;
            return r;
        }
    }
    return 0;
}

static __always_inline void record_finished(struct request *r, __u64 bytes_out, __u64 end_ns) {
    __u32 i = bpf_get_smp_processor_id() * SIZE_CLASSES + class_of(bytes_out);
    struct class_row *row = bpf_map_lookup_elem(&classes, &i);
    __s64 elapsed = end_ns - r->begun_ns;

    if (!row)
        return;
    row->requests++;
    row->bytes_in += r->bytes_in;
    row->bytes_out += bytes_out;
    row->receives += r->receives;
    row->cpu_ns += r->cpu_ns;
    if (elapsed > 0) {
        row->timed++;
        row->elapsed_ns += elapsed;
        row->elapsed.buckets[bucket_of(elapsed)]++;
    }
}

/* For code in softirq, or code that softirq may interrupt. */
__noinline int record_finished_atomically(struct request *r, __u64 bytes_out, __u64 end_ns) {
    __u32 i = options.state_bank * SIZE_CLASSES + class_of(bytes_out);
    struct class_row *row = bpf_map_lookup_elem(&classes, &i);
    __s64 elapsed;

    if (!row || !r)
        return 0;
    elapsed = end_ns - r->begun_ns;
    __sync_fetch_and_add(&row->requests, 1);
    __sync_fetch_and_add(&row->bytes_in, r->bytes_in);
    __sync_fetch_and_add(&row->bytes_out, bytes_out);
    __sync_fetch_and_add(&row->receives, r->receives);
    __sync_fetch_and_add(&row->cpu_ns, r->cpu_ns);
    if (elapsed > 0) {
        __sync_fetch_and_add(&row->timed, 1);
        __sync_fetch_and_add(&row->elapsed_ns, elapsed);
        __sync_fetch_and_add(&row->elapsed.buckets[bucket_of(elapsed)], 1);
    }
    return 0;
}

static __always_inline void forget(struct request *r) {
    r->begun_ns = 0;
    r->written = 0;
    r->cpu_ns = 0;
    r->bytes_in = 0;
    r->disk_bytes = 0;
    r->disk_reads = 0;
    r->copied = 0;
    r->receives = 0;
    r->window = 0;
    r->phase = PHASE_NONE;
    r->is_split = 0;
}

/* Position and last transmission of a socket that is not an argument of the hook. Its memory stays readable, and
 * the state hook frees the record before the socket is reused. */
static __always_inline __u64 written_position_of(__u64 sk, __u64 *sent_ns, __u32 *unacked) {
    struct tcp_sock *tp = (struct tcp_sock *)sk;
    __u64 acked = 0, us = 0;
    __u32 write_seq = 0, snd_una = 0;

    if (is_mptcp(sk)) {
        *unacked = 0;
        *sent_ns = sent_by_mptcp(sk);
        return written_by_mptcp(sk);
    }
    bpf_core_read(&acked, sizeof(acked), &tp->bytes_acked);
    bpf_core_read(&write_seq, sizeof(write_seq), &tp->write_seq);
    bpf_core_read(&snd_una, sizeof(snd_una), &tp->snd_una);
    bpf_core_read(&us, sizeof(us), &tp->first_tx_mstamp);
    *sent_ns = us * 1000;
    *unacked = write_seq - snd_una;
    return acked + *unacked;
}

/* Finds a slot for a new connection: a free one, else the one that the hash selects. */
static __always_inline struct request *claim(__u64 sk, __u32 hash, __u32 *slot) {
    __u32 base = hash & options.slots_mask & ~(WAYS - 1);
    struct request *r;

#pragma unroll
    for (__u32 way = 0; way < WAYS; way++) {
        r = request_at(base + way);
        if (r && !r->sk && __sync_val_compare_and_swap(&r->sk, 0, sk) == 0) {
            *slot = base + way;
            forget(r);
            return r;
        }
    }
    /* All slots are taken: prefer one without a request in progress. */
    *slot = base + ((hash >> 24) & (WAYS - 1));
#pragma unroll
    for (__u32 way = 0; way < WAYS; way++) {
        r = request_at(base + way);
        if (r && !r->bytes_in) {
            *slot = base + way;
            break;
        }
    }
    r = request_at(*slot);
    if (!r)
        return 0;
    if (r->bytes_in) {
        __u64 sent_ns;
        __u32 unacked;
        __u64 at = written_position_of(r->sk, &sent_ns, &unacked);

        if (at != r->written) {
            record_finished_atomically(r, at - r->written, sent_ns);
            COUNT(DISPLACED_ANSWERED);
        } else {
            COUNT(DISPLACED_OPEN);
        }
    }
    forget(r);
    r->sk = sk;
    return r;
}

#endif
