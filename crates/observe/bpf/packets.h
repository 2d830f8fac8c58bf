/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the port's packets for the profiler's programs, and reports which end receives each. The includer defines
 * the four functions that are only declared here. */
#ifndef STRAINGAUGE_PACKETS_H
#define STRAINGAUGE_PACKETS_H

#include "kernel_types.h"
#include "profile.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "members.h"

/* Whether a window is open. */
static __always_inline bool counts_now(void);
/* Called when the CPU begins to handle a packet that this side receives. */
static __always_inline void take_up(struct cpu_row *own, enum side side);
/* Called around the work of a hook, to measure its time. */
static __always_inline __u64 hook_begins(void);
static __always_inline void hook_ends(__u64 began_ns);

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* libbpf ignores the suffix from ___ on. */
struct net_device___profile {
    possible_net_t nd_net;
};
struct sk_buff___profile {
    struct net_device___profile *dev;
    struct sock *sk;
    unsigned int len, data_len;
    __u16 network_header;
    unsigned int end; /* sk_buff_data_t: an offset on 64-bit machines */
    unsigned char *head, *data;
};
struct skb_shared_info___profile {
    unsigned short gso_size, gso_segs;
};
#pragma clang attribute pop

/* Separate sections, so that the reader can attach each program by itself. */
const volatile struct target target SEC(".rodata.target");
struct cpu_row rows[CPUS] SEC(".bss.rows");

static __always_inline struct cpu_row *row(void) {
    return &rows[bpf_get_smp_processor_id() & (CPUS - 1)];
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(process_ended, struct task_struct *t) {
    forget_process(t);
    return 0;
}

struct packet {
    __u16 from, to;
    __u32 payload_bytes;
};

/* Reads the TCP header after the IP header at `ip`, of which `linear` bytes may be read. Returns false if it is
 * not TCP, not a first fragment, or follows IPv6 extension headers. */
static __always_inline bool parse(const unsigned char *ip, __u32 linear, __u32 skb_len, struct packet *packet,
                                  struct cpu_row *own) {
    __u8 head[40], tcp[20];
    if (linear < 40) {
        own->unread += skb_len >= 40;
        return 0;
    }
    if (bpf_probe_read_kernel(head, sizeof(head), ip))
        return 0;
    __u32 length, header;
    if (head[0] >> 4 == 4) {
        header = (head[0] & 15) * 4;
        if (head[9] != IPPROTO_TCP || (head[6] & 0x1f) || head[7])
            return 0;
        length = head[2] << 8 | head[3];
    } else if (head[0] >> 4 == 6) {
        header = 40;
        if (head[6] != IPPROTO_TCP)
            return 0;
        length = head[4] << 8 | head[5];
        length += length ? 40 : 0;
    } else {
        return 0;
    }
    if (header == 20) {
        __builtin_memcpy(tcp, head + 20, 20);
    } else {
        if (linear < header + 20) {
            own->unread++;
            return 0;
        }
        if (bpf_probe_read_kernel(tcp, sizeof(tcp), ip + header))
            return 0;
    }
    packet->from = tcp[0] << 8 | tcp[1];
    packet->to = tcp[2] << 8 | tcp[3];
    /* Packets above 64 KiB have no length field. */
    __u32 headers = header + (tcp[12] >> 4) * 4;
    length = length ? length : skb_len;
    packet->payload_bytes = length > headers ? length - headers : 0;
    return 1;
}

static __always_inline void count_packet(struct cpu_row *own, int way, const struct sk_buff___profile *skb,
                                         const struct packet *packet) {
    __u32 segments = 1;
    if (skb->len > 1500) {
        struct skb_shared_info___profile *shared = (void *)(skb->head + skb->end);
        segments = BPF_CORE_READ(shared, gso_segs);
        segments = segments ? segments : 1;
    }
    own->packets[way]++;
    own->segments[way] += segments;
    own->data_packets[way] += packet->payload_bytes > 0;
    own->payload_bytes[way] += packet->payload_bytes;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(packet_received, struct sk_buff___profile *skb) {
    __u64 began_ns = hook_begins();
    struct cpu_row *own = row();
    struct packet packet;
    enum side side = SIDE_NOBODY;
    if (parse(skb->data, skb->len - skb->data_len, skb->len, &packet, own)) {
        if (packet.to == target.port && skb->dev->nd_net.net->ns.inum == target.netns) {
            side = SIDE_SERVER;
            if (counts_now())
                count_packet(own, IN, skb, &packet);
        } else if (packet.from == target.port) {
            side = SIDE_PEER;
            own->peer_packets += counts_now();
        }
    }
    take_up(own, side);
    hook_ends(began_ns);
    return 0;
}

/* Whether this is a TCP socket, or the smaller structure that replaces it during the handshake and after the
 * close, and ends before sk_protocol. */
static __always_inline bool is_tcp(const struct sock *sk) {
    __u8 state = sk->__sk_common.skc_state;
    return state == TCP_TIME_WAIT || state == 12 /* TCP_NEW_SYN_RECV */ || sk->sk_protocol == IPPROTO_TCP;
}

static __always_inline void packet_leaves(struct sk_buff___profile *skb) {
    struct cpu_row *own = row();
    struct packet packet;
    struct sock *sk = skb->sk;
    __u16 port = sk ? sk->__sk_common.skc_num : 0;
    if (port) {
        /* Usually no header is read, because TCP keeps its data outside the linear part. */
        if (port != target.port || !is_tcp(sk))
            return;
        packet.payload_bytes = skb->data_len;
    } else {
        /* E.g. for resets, which the kernel sends through a separate socket. */
        unsigned char *ip = skb->head + skb->network_header;
        __u32 link = ip - skb->data;
        if (!parse(ip, skb->len - skb->data_len - link, skb->len - link, &packet, own) || packet.from != target.port)
            return;
    }
    if (skb->dev->nd_net.net->ns.inum == target.netns)
        count_packet(own, OUT, skb, &packet);
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(packet_queued, struct sk_buff___profile *skb) {
    if (counts_now()) {
        __u64 began_ns = hook_begins();
        packet_leaves(skb);
        hook_ends(began_ns);
    }
    return 0;
}

#endif
