// SPDX-License-Identifier: Apache-2.0
/* Requests of one TCP port, counted exactly by the server's own reads; connection states, counted on each
 * transition.
 *
 * A request begins with the first byte read after a response was written. It ends with the connection's next read
 * (or end), when the position of the response stream shows that it was answered. So one hook per read counts
 * requests, bytes in both directions and CPU time, without reading the clock (TCP has just done so) and without a
 * hook on sends. The send hook is attached in windows only, for the phases. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "watch.h"
#include "requests.h"
#define FOLLOWER_RAN() RAN_ATOMICALLY(others)
#include "members.h"
#include "cpu_time.h"
#include "looks.h"
#include "states.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* `c` is the current thread, so its record needs no atomic instructions. */
static __always_inline void record_phases(struct request *r, __u64 bytes_out, struct thread *c) {
    __u32 i = bpf_get_smp_processor_id() * SIZE_CLASSES + class_of(bytes_out);
    struct phase_row *row = bpf_map_lookup_elem(&phases, &i);
    __u64 end_ns = r->end_ns ? r->end_ns : r->last_send_ns;
    __u64 elapsed[PHASES];

    if (!row)
        return;
    /* The clocks of the two hooks may differ by some hundred nanoseconds, but a phase is never negative. */
    elapsed[0] = r->parsed_ns > r->begun_ns ? r->parsed_ns - r->begun_ns : 0;
    elapsed[1] = r->last_send_ns > r->parsed_ns ? r->last_send_ns - r->parsed_ns : 0;
    elapsed[2] = end_ns > r->last_send_ns ? end_ns - r->last_send_ns : 0;
    row->requests++;
    row->sends += r->sends;
    row->disk_bytes += r->disk_bytes;
    row->disk_reads += r->disk_reads;
    row->split += r->is_split;
    if (control.by_thread)
        c->timed++;
#pragma unroll
    for (int p = 0; p < PHASES; p++) {
        __s64 cpu = r->phase_cpu_ns[p];

        if (control.by_thread) {
            c->elapsed_ns[p] += elapsed[p];
            c->phase_cpu_ns[p] += cpu;
        }
        row->elapsed_ns[p] += elapsed[p];
        row->cpu_ns[p] += cpu;
    }
}

static __always_inline void count_for_thread(struct request *r, __u64 bytes_out, struct thread *c) {
    if (control.window && has_phases(r) && r->phase == PHASE_LOG)
        record_phases(r, bytes_out, c);
    c->requests++;
    c->bytes_in += r->bytes_in;
    c->bytes_out += bytes_out;
}

static __always_inline void begin(struct request *r, __u64 now_ns, __u64 at, __u32 bytes) {
    r->begun_ns = now_ns;
    r->written = at;
    r->bytes_in = bytes;
    r->receives = 1;
    r->cpu_ns = 0;
    r->window = 0;
    if (control.gate) {
        r->window = control.window;
        r->phase = PHASE_PARSE;
        r->is_split = 0;
        r->sends = 0;
        r->bytes_sent = 0;
        r->disk_bytes = 0;
        r->disk_reads = 0;
        r->parsed_ns = r->last_send_ns = r->end_ns = 0;
        r->phase_cpu_ns[0] = r->phase_cpu_ns[1] = r->phase_cpu_ns[2] = 0;
    }
}

static __always_inline void first_read(struct request *r, __u64 now_ns, __s64 accept_cpu_ns, struct thread *c) {
    __s64 elapsed = now_ns - r->begun_ns;

    if (elapsed < 0)
        elapsed = 0;
    __sync_fetch_and_add(&counts.connects, 1);
    __sync_fetch_and_add(&counts.connect_elapsed_ns, elapsed);
    if (accept_cpu_ns) {
        c->other_cpu_ns -= accept_cpu_ns;
        __sync_fetch_and_add(&counts.connect_cpu_ns, accept_cpu_ns);
        __sync_fetch_and_add(&counts.connects_with_cpu, 1);
    }
}

/* Adds bytes that left the receive queue since the last event in addition to those that were `read`: the server
 * splices them to another socket. The end of a stream also takes a sequence number. */
static __always_inline void note_unread(struct request *r, __u32 copied, __u32 read) {
    __s32 unread = copied - r->copied - read;

    if (r->copied && unread > 1)
        COUNT_BY(UNREAD_BYTES, unread);
    r->copied = copied;
}

/* Bytes of an upload that the server has already answered belong to the answered request. */
static __always_inline void read_on(struct request *r, struct thread *c, __u32 bytes) {
    __u32 i = bpf_get_smp_processor_id() * SIZE_CLASSES + class_of(r->bytes_sent);
    struct class_row *row = bpf_map_lookup_elem(&classes, &i);

    if (!row)
        return;
    row->bytes_in += bytes;
    row->receives++;
    c->bytes_in += bytes;
}

/* `at`: position in the stream of responses; `sent_ns`: when its last acknowledged segment was sent. */
static __always_inline void add_read(struct sock *sk, struct request *r, __u32 slot, __u32 bytes, __u64 at,
                                     __u64 now_ns, __u64 sent_ns) {
    struct task_struct *t = bpf_get_current_task_btf();
    struct thread *c = thread_of(t);
    __s64 other;

    if (!c)
        return;
    if (has_ended_stream(sk)) {
        read_on(r, c, bytes);
        return;
    }
    other = charge(c, (__u64)sk, slot, now_ns);
    r->pid = t->pid;
    if (r->bytes_in) {
        if (at == r->written) {
            r->bytes_in += bytes;
            r->receives++;
            return;
        }
        count_for_thread(r, at - r->written, c);
        record_finished(r, at - r->written, sent_ns);
    } else if (r->begun_ns) {
        first_read(r, now_ns, other, c);
    }
    if (!control.counts) {
        forget(r);
        return;
    }
    look(t, bytes);
    begin(r, now_ns, at, bytes);
}

/* `by_position`: the event has no byte count and comes before TCP refreshes its clock. */
static __always_inline void received(struct sock *sk, struct tcp_sock *tp, __u32 bytes, const bool by_position) {
    __u32 hash = sk->__sk_common.skc_hash, slot = 0;
    struct request *r = find((__u64)sk, hash, &slot);
    bool is_new = !r;
    __u64 now_ns;

    if (is_new) {
        /* A known connection belongs to this namespace; checking each time would follow three more pointers. */
        if (!control.counts || !is_our_tcp(tp))
            return;
        r = claim((__u64)sk, hash, &slot);
        if (!r)
            return;
    }
    if (by_position) {
        __u32 copied = tp->copied_seq;

        /* The connection is older than the watch or its window, so it is not known how much of its first request
         * was read before. */
        bytes = r->copied ? copied - r->copied : 1;
        r->copied = copied;
        if (!bytes)
            return;
        now_ns = bpf_ktime_get_ns();
    } else {
        now_ns = tp->tcp_clock_cache;
        if (is_new)
            r->copied = tp->copied_seq;
        else
            note_unread(r, tp->copied_seq, bytes);
    }
    add_read(sk, r, slot, bytes, written_position(tp), now_ns, tp->first_tx_mstamp * 1000);
}

static __always_inline void received_by_mptcp(struct sock *sk, __u32 bytes) {
    __u32 hash = mptcp_hash(sk), slot = 0;
    struct request *r = find((__u64)sk, hash, &slot);

    if (!r && control.counts && is_ours(sk))
        r = claim((__u64)sk, hash, &slot);
    if (r)
        add_read(sk, r, slot, bytes, written_by_mptcp((__u64)sk), bpf_ktime_get_ns(), sent_by_mptcp((__u64)sk));
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int bytes, int flags) {
    struct tcp_sock *tp;

    RAN(receives);
    /* The error queue contains copies of sent data with time stamps. */
    if (sk->__sk_common.skc_num != control.port || bytes <= 0 || flags & (MSG_PEEK | MSG_ERRQUEUE))
        return 0;
    tp = bpf_skc_to_tcp_sock(sk);
    if (tp)
        received(sk, tp, bytes, 0);
    else if (sk->sk_protocol == IPPROTO_MPTCP)
        received_by_mptcp(sk, bytes);
    return 0;
}

/* For kernels before 6.3: one event per segment read, without a byte count. */
SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_copied, struct sock *sk) {
    struct tcp_sock *tp;

    RAN(receives);
    if (sk->__sk_common.skc_num != control.port)
        return 0;
    tp = bpf_skc_to_tcp_sock(sk);
    if (tp)
        received(sk, tp, 0, 1);
    return 0;
}

/* In a probe, the verifier sees `sk` as a number, so its fields are copied. */
static __always_inline void sent(struct sock *sk, bool is_probed, __u32 bytes) {
    __u32 hash = is_probed ? BPF_CORE_READ(sk, __sk_common.skc_hash) : sk->__sk_common.skc_hash;
    struct task_struct *t;
    struct request *r;
    struct thread *c;
    __u32 slot = 0;
    __u64 now_ns;

    t = bpf_get_current_task_btf();
    note_status(t, bytes);
    if (!control.window)
        return;
    if (!is_probed && sk->sk_protocol == IPPROTO_MPTCP)
        hash = mptcp_hash(sk);
    /* Only known connections, which belong to this namespace. */
    r = find((__u64)sk, hash, &slot);
    if (!r || !has_phases(r))
        return;
    c = thread_of(t);
    if (!c)
        return;
    if (is_probed) {
        now_ns = BPF_CORE_READ((struct tcp_sock *)sk, tcp_clock_cache);
    } else {
        struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

        now_ns = tp ? tp->tcp_clock_cache : bpf_ktime_get_ns();
    }
    if (r->phase == PHASE_LOG) {
        r->phase = PHASE_PROCESS;
        r->end_ns = 0;
    }
    charge(c, (__u64)sk, slot, now_ns);
    c->sends_in_windows++;
    if (!r->parsed_ns)
        r->parsed_ns = now_ns;
    r->phase = PHASE_LOG;
    r->last_send_ns = now_ns;
    r->sends++;
    r->bytes_sent += bytes;
}

static __always_inline int send_returned(struct sock *sk, int bytes) {
    RAN(sends);
    if (sk->__sk_common.skc_num == control.port && bytes > 0)
        sent(sk, 0, bytes);
    return 0;
}

SEC("?tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int bytes, int flags) {
    return send_returned(sk, bytes);
}

SEC("?fexit/tcp_sendmsg")
int BPF_PROG(on_sendmsg, struct sock *sk, void *message, unsigned long size, int bytes) {
    return send_returned(sk, bytes);
}

SEC("?fexit/tcp_sendpage")
int BPF_PROG(on_sendpage, struct sock *sk, void *page, int offset, unsigned long size, int flags, int bytes) {
    return send_returned(sk, bytes);
}

/* For kernels that cannot hook functions (arm64 before Linux 6.4): probes at entry and return.
 * At the return, the socket is no longer known. */
#if defined(__TARGET_ARCH_x86)
#define FIRST_ARGUMENT 14
#define RETURNED 10
#else
#define FIRST_ARGUMENT 0
#define RETURNED 0
#endif

/* Threads in a send, by thread id. */
struct sending {
    __u64 sk;
    __u64 pid;
};
MAP(sending, ARRAY, 0, THREADS, __u32, struct sending); /* set by the reader; 1 without probes */

static __always_inline int send_begins(const __u64 *registers) {
    __u32 pid = bpf_get_current_pid_tgid(), i = pid & (THREADS - 1);
    struct sock *sk = (struct sock *)registers[FIRST_ARGUMENT];
    struct sending *s = bpf_map_lookup_elem(&sending, &i);

    RAN(sends);
    if (!s || BPF_CORE_READ(sk, __sk_common.skc_num) != control.port)
        return 0;
    s->sk = (__u64)sk;
    s->pid = pid;
    return 0;
}

static __always_inline int send_ends(const __u64 *registers) {
    __u32 pid = bpf_get_current_pid_tgid(), i = pid & (THREADS - 1);
    struct sending *s = bpf_map_lookup_elem(&sending, &i);
    int bytes = registers[RETURNED];

    RAN(sends);
    if (!s || s->pid != pid)
        return 0;
    s->pid = 0;
    if (bytes > 0)
        sent((struct sock *)s->sk, 1, bytes);
    return 0;
}

#define PROBED(function)                           \
    SEC("?kprobe/tcp_" #function)                  \
    int begin_##function(const __u64 *registers) { \
        return send_begins(registers);             \
    }                                              \
    SEC("?kretprobe/tcp_" #function)               \
    int end_##function(const __u64 *registers) {   \
        return send_ends(registers);               \
    }
PROBED(sendmsg)
PROBED(sendpage)

/* The log phase ends when the thread goes to sleep, at the latest. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(on_switch, bool is_preempted, struct task_struct *prev) {
    struct thread *c;
    struct request *r;

    RAN(switches);
    if (is_preempted || !control.window)
        return 0;
    c = find_thread(prev->pid);
    if (!c || !c->sk || !prev->__state)
        return 0;
    r = request_at(c->slot);
    if (r && r->sk == c->sk && has_phases(r) && r->phase == PHASE_LOG && !r->end_ns)
        r->end_ns = bpf_ktime_get_ns();
    return 0;
}

/* The parse phase ends where the server opens or looks up the requested file. This slows every system call of the
 * machine, so it is attached only in few windows. */
SEC("?tp_btf/sys_enter")
int BPF_PROG(on_syscall, struct pt_regs *regs, long number) {
    struct task_struct *t;
    struct request *r;
    struct thread *c;
    __u64 now_ns;
    bool is_wanted = 0;

    RAN_ATOMICALLY(syscalls);
#pragma unroll
    for (int i = 0; i < SYSCALLS; i++)
        is_wanted |= number == options.split_syscalls[i];
    if (!is_wanted || !control.window)
        return 0;
    t = bpf_get_current_task_btf();
    c = find_thread(t->pid);
    if (!c || !c->sk)
        return 0;
    r = request_at(c->slot);
    if (!r || r->sk != c->sk || !has_phases(r) || r->phase != PHASE_PARSE)
        return 0;
    now_ns = bpf_ktime_get_ns();
    charge(c, c->sk, c->slot, now_ns);
    r->parsed_ns = now_ns;
    r->phase = PHASE_PROCESS;
    r->is_split = 1;
    return 0;
}

/* A thread that works on a request reads from a block device, including read-ahead. */
SEC("?tp_btf/block_bio_queue")
int BPF_PROG(on_disk_read, struct bio *bio) {
    struct request *r;
    struct thread *c;
    __u32 pid;

    RAN_ATOMICALLY(disk_reads);
    /* REQ_OP_READ is 0, the other bits are flags (include/linux/blk_types.h). */
    if (!control.window || bio->bi_opf & 0xff)
        return 0;
    pid = bpf_get_current_task_btf()->pid;
    c = find_thread(pid);
    if (!c || !c->sk)
        return 0;
    r = request_at(c->slot);
    if (r && r->sk == c->sk && has_phases(r) && r->disk_reads < 0xffff)
        r->disk_reads++;
    return 0;
}

/* The connection ends with unanswered bytes. If the server closes after an answer, they are the rest of an upload
 * that it refused; otherwise they are a request. */
static __always_inline void end_unanswered(struct request *r, __u64 at, bool has_answered) {
    __u32 i = options.state_bank * SIZE_CLASSES + class_of(at);
    struct class_row *row = bpf_map_lookup_elem(&classes, &i);

    if (!has_answered) {
        COUNT(UNANSWERED);
    } else if (row) {
        __sync_fetch_and_add(&row->bytes_in, r->bytes_in);
        __sync_fetch_and_add(&row->receives, r->receives);
    }
}

/* The application closes: its work so far belongs to the request, later work does not. `at`: position in the
 * stream of responses; `end_ns`: when its last byte was sent; `has_answered`: also, the server closes first. */
static __always_inline void on_own_close(struct request *r, __u64 at, __u64 end_ns, bool has_answered) {
    struct task_struct *t = bpf_get_current_task_btf();
    struct thread *c = thread_of(t);

    if (!c)
        return;
    charge(c, 0, 0, bpf_ktime_get_ns());
    if (!r)
        return;
    if (r->bytes_in && at == r->written) {
        end_unanswered(r, at, has_answered);
    } else if (r->bytes_in) {
        count_for_thread(r, at - r->written, c);
        record_finished_atomically(r, at - r->written, end_ns);
    }
    r->bytes_sent = at - r->written;
    r->bytes_in = 0;
    r->written = at;
    r->begun_ns = 0;
    r->cpu_ns = 0;
}

static __always_inline bool closes_own_side(int old_state, int new_state) {
    return (old_state == TCP_ESTABLISHED && new_state == TCP_FIN_WAIT1) ||
           (old_state == TCP_CLOSE_WAIT && new_state == TCP_LAST_ACK);
}

static __always_inline void on_own_tcp_close(struct tcp_sock *tp, struct request *r, int old_state) {
    __u64 at = written_position(tp);

    /* Data held back by TCP_CORK is sent with this close. Otherwise, the last segment may not be acknowledged yet,
     * and the time is that of TCP's last transmission. */
    __u64 end_ns = tp->snd_una == tp->write_seq ? tp->first_tx_mstamp * 1000 : tp->tcp_wstamp_ns;

    if (tp->snd_nxt != tp->write_seq)
        end_ns = bpf_ktime_get_ns();
    /* The first sequence number belongs to the handshake. */
    on_own_close(r, at, end_ns, old_state == TCP_ESTABLISHED && at > 1);
}

static __always_inline void end_request(struct request *r, int old_state, __u64 at, __u64 end_ns, bool has_answered) {
    if (r->bytes_in) {
        if (at != r->written && (old_state == TCP_ESTABLISHED || old_state == TCP_CLOSE_WAIT))
            record_finished_atomically(r, at - r->written, end_ns);
        else
            end_unanswered(r, at, has_answered);
    }
    forget(r);
    r->sk = 0;
}

static __always_inline void on_end(struct sock *sk, struct tcp_sock *tp, int old_state, struct request *r) {
    COUNT(CLOSED);
    COUNT_BY(CLOSED_BYTES_RECEIVED, tp->bytes_received);
    COUNT_BY(CLOSED_BYTES_ACKED, tp->bytes_acked);
    COUNT_BY(CLOSED_DATA_SEGMENTS_IN, tp->data_segs_in);
    COUNT_BY(CLOSED_DATA_SEGMENTS_OUT, tp->data_segs_out);
    /* Without an error, the server has reset the connection: it had not read all data, or SO_LINGER is 0. */
    if (sk->sk_err || old_state == TCP_ESTABLISHED || old_state == TCP_CLOSE_WAIT)
        COUNT(ABORTED);
    else if (old_state == TCP_FIN_WAIT2 || old_state == TCP_CLOSING)
        enter_time_wait(sk);
    if (!sk->sk_err && old_state == TCP_ESTABLISHED)
        COUNT(CLOSED_BY_SERVER);
    if (!r)
        return;
    note_unread(r, tp->copied_seq, 0);
    end_request(r, old_state, written_position(tp), tp->first_tx_mstamp * 1000,
                !sk->sk_err && old_state == TCP_ESTABLISHED && written_position(tp) > 1);
}

/* Whether a socket belongs to the port. skc_num may already be 0 at the close, because the port was released. */
static __always_inline bool is_of_port(struct tcp_sock *tp) {
    return tp && tp->inet_conn.icsk_inet.inet_sport == __builtin_bswap16(control.port) && is_our_tcp(tp);
}

static __always_inline int changed_state(struct sock *sk, struct tcp_sock *tp, int old_state, int new_state) {
    struct request *r;
    __u32 hash, slot = 0;

    /* An accepted child is a copy of its listener, which stays. State CLOSE is not counted. */
    if (old_state != TCP_CLOSE && !(old_state == TCP_LISTEN && new_state == TCP_SYN_RECV))
        __sync_fetch_and_add(&counts.left[old_state & 15], 1);
    if (new_state != TCP_CLOSE)
        __sync_fetch_and_add(&counts.entered[new_state & 15], 1);
    if (old_state == TCP_LISTEN || new_state == TCP_LISTEN)
        return 0;

    hash = sk->__sk_common.skc_hash;
    if (new_state == TCP_ESTABLISHED && old_state == TCP_SYN_RECV) {
        COUNT(ACCEPTED);
        end_time_wait(sk);
        if (bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp) {
            COUNT(MULTIPATH);
            return 0;
        }
        /* With TCP Fast Open, the server may have read before. */
        if (!control.counts || find((__u64)sk, hash, &slot))
            return 0;
        r = claim((__u64)sk, hash, &slot);
        if (r) {
            r->begun_ns = bpf_ktime_get_ns();
            r->copied = tp->copied_seq;
        }
        return 0;
    }
    if (old_state == TCP_ESTABLISHED && new_state == TCP_FIN_WAIT1)
        COUNT(CLOSED_BY_SERVER);
    r = find((__u64)sk, hash, &slot);
    if (closes_own_side(old_state, new_state))
        on_own_tcp_close(tp, r, old_state);
    else if (new_state == TCP_CLOSE)
        on_end(sk, tp, old_state, r);
    return 0;
}

/* A state change of an MPTCP connection. Its paths are counted as connections, as in ss. */
static __always_inline int changed_mptcp_state(struct sock *sk, int old_state, int new_state) {
    struct request *r;
    __u32 slot = 0;
    __be16 port = 0;

    bpf_core_read(&port, sizeof(port), &((struct inet_sock *)sk)->inet_sport);
    if (port != __builtin_bswap16(control.port) || !is_ours(sk))
        return 0;
    r = find((__u64)sk, mptcp_hash(sk), &slot);
    if (closes_own_side(old_state, new_state))
        on_own_close(r, written_by_mptcp((__u64)sk), bpf_ktime_get_ns(), 0);
    else if (r && new_state == TCP_CLOSE)
        end_request(r, old_state, written_by_mptcp((__u64)sk), sent_by_mptcp((__u64)sk), 0);
    return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, struct sock *sk, int old_state, int new_state) {
    struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

    RAN_ATOMICALLY(others);
    if (!tp && sk->sk_protocol == IPPROTO_MPTCP)
        return changed_mptcp_state(sk, old_state, new_state);
    if (!is_of_port(tp))
        return 0;
    note_seen(sk, old_state, new_state);
    return changed_state(sk, tp, old_state, new_state);
}

/* The kernel does not run a program that it has just interrupted, so a transition in softirq during a task's
 * on_state() would be missed. This program is attached after it, and counts the transitions that it missed. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_missed_state, struct sock *sk, int old_state, int new_state) {
    struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

    RAN_ATOMICALLY(others);
    if (!is_of_port(tp) || was_seen(sk, old_state, new_state))
        return 0;
    return changed_state(sk, tp, old_state, new_state);
}

#include "boundaries.h"

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, const struct sock *sk) {
    RAN_ATOMICALLY(others);
    if (sk->__sk_common.skc_num == control.port && is_ours(sk))
        COUNT(RETRANSMITS);
    return 0;
}

/* The reset answers `segment`. Without a segment, the server ends the connection; without a socket, the segment
 * has none. */
SEC("tp_btf/tcp_send_reset")
int BPF_PROG(on_send_reset, struct sock *sk, const struct sk_buff *segment) {
    RAN_ATOMICALLY(others);
    if (sk) {
        /* A closed socket has already released its port. */
        struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

        if (tp ? !is_of_port(tp) : sk->__sk_common.skc_num != control.port || !is_ours(sk))
            return 0;
        /* The connection ends with its reset. */
        if (sk->__sk_common.skc_state == TCP_TIME_WAIT)
            end_time_wait(sk);
    } else {
        __be16 ports[2] = {};

        if (!segment || (control.netns_inum && BPF_CORE_READ(segment, dev, nd_net.net, ns.inum) != control.netns_inum))
            return 0;
        bpf_probe_read_kernel(ports, sizeof(ports), segment->head + segment->transport_header);
        if (ports[1] != __builtin_bswap16(control.port))
            return 0;
    }
    COUNT(RESETS_SENT);
    return 0;
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(on_receive_reset, const struct sock *sk) {
    RAN_ATOMICALLY(others);
    if (sk->__sk_common.skc_num == control.port && is_ours(sk))
        COUNT(RESETS_RECEIVED);
    return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(process_ended, struct task_struct *t) {
    struct thread *c = find_thread(t->pid);

    FOLLOWER_RAN();
    /* The thread's record is still there unless another thread took its place. */
    if (c)
        *(volatile __u32 *)&c->pid = 0;
    forget_process(t);
    return 0;
}

/* A read in progress may be missed, at most one per CPU. */
static __always_inline void note_unread_of(__u64 sk, struct request *r) {
    __u32 copied = 0, before = r->copied;
    __s32 unread;

    bpf_core_read(&copied, sizeof(copied), &((struct tcp_sock *)sk)->copied_seq);
    unread = copied - before;
    if (before && unread > 1 && __sync_val_compare_and_swap(&r->copied, before, copied) == before)
        COUNT_BY(UNREAD_BYTES, unread);
}

static long end_one(struct bpf_map *map, const __u32 *slot, struct request *r, void *context) {
    __u64 at, sent_ns;
    __u32 unacked;

    if (r->sk && r->bytes_in) {
        at = written_position_of(r->sk, &sent_ns, &unacked);
        record_finished_atomically(r, at - r->written, at == r->written ? 0 : sent_ns);
    }
    forget(r);
    return 0;
}

/* Run by the reader when no more reads are seen: ends all requests in progress, answered or not. */
SEC("syscall")
int end_counting(void *context) {
    bpf_for_each_map_elem(&requests, end_one, 0, 0);
    return 0;
}

static long sweep_one(struct bpf_map *map, const __u32 *slot, struct request *r, void *context) {
    struct sock *sk = (struct sock *)r->sk;
    __u64 at, sent_ns;
    __u32 unacked, i;

    if (!sk)
        return 0;
    note_unread_of((__u64)sk, r);
    if (!r->bytes_in)
        return 0;
    at = written_position_of((__u64)sk, &sent_ns, &unacked);
    if (at == r->written) {
        swept.waiting++;
        swept.waiting_cpu_ns += r->cpu_ns;
    } else {
        struct sweep_row *row;

        i = class_of(at - r->written);
        if (i >= SIZE_CLASSES)
            return 0;
        row = &swept.answered[i];
        row->requests++;
        row->bytes_in += r->bytes_in;
        row->bytes_out += at - r->written;
        row->receives += r->receives;
        row->cpu_ns += r->cpu_ns;
        if (!unacked)
            return 0;
        swept.sending++;
    }
    /* With more requests than places, requests replace each other, but the oldest one stays. */
    i = swept.listed++;
    struct open_request *o = &swept.open[i % OPEN_LISTED];
    if (i < OPEN_LISTED || r->begun_ns < o->begun_ns) {
        o->sk = r->sk;
        o->begun_ns = r->begun_ns;
        o->bytes_in = r->bytes_in;
        o->bytes_out = at - r->written;
        o->cpu_ns = r->cpu_ns;
        o->pid = r->pid;
        o->is_sending = at != r->written;
    }
    return 0;
}

/* Run by the reader: lists the requests in progress without changing them. */
SEC("syscall")
int sweep(void *context) {
    swept.now_ns = bpf_ktime_get_ns();
    bpf_for_each_map_elem(&requests, sweep_one, 0, 0);
    return 0;
}
