/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler: counts stacks in the kernel, and tells of every packet of the port which way it goes and at whose end it
 * is received. A sample in a network softirq belongs to the end whose packet that CPU took up last, whichever process it
 * interrupted. */
#include "kernel_types.h"
#include "profile.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* include/uapi/linux/bpf.h; names of our own, as other headers of this folder may define some of them. */
#define MAP_HASH 1
#define MAP_PERCPU_ARRAY 6
#define ONLY_NEW 1 /* BPF_NOEXIST */
#define OF_USER (1ULL << 8) /* BPF_F_USER_STACK */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* The part behind ___ is no part of the name that libbpf compares. */
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

/* arch/.../include/uapi/asm/ptrace.h: the context's layout is fixed. Declared with full words: the verifier refuses
 * narrower reads of registers. */
struct perf_event_context {
#if defined(__TARGET_ARCH_x86)
	__u64 before_cs[17], cs;
#elif defined(__TARGET_ARCH_arm64)
	__u64 regs[31], sp, pc, pstate;
#else
#error "no rule yet for telling user from kernel mode on this architecture"
#endif
};

static __always_inline bool is_user_mode(const struct perf_event_context *context)
{
#if defined(__TARGET_ARCH_x86)
	return (context->cs & 3) == 3;
#else
	return (context->pstate & 0xf) == 0;
#endif
}

/* Sections of their own, so that the reader meets each alone. */
const volatile struct target target SEC(".rodata.target");
volatile struct gate gate SEC(".bss.gate");
struct cpu_row rows[CPUS] SEC(".bss.rows");

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} members SEC(".maps");
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 131072);
	__type(key, struct sample);
	__type(value, __u64);
} samples SEC(".maps");
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct kernel_stack);
} kernel_stacks SEC(".maps");
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct user_stack);
} user_stacks SEC(".maps");
/* perf_event programs do not nest (bpf_prog_active), so one buffer a CPU is enough. */
struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kernel_stack);
} scratch SEC(".maps");

static __always_inline struct cpu_row *row(void)
{
	return &rows[bpf_get_smp_processor_id() & (CPUS - 1)];
}

/* A collision would merge two stacks: with 64 bits and 16,384 stacks its odds are below 1 in 10^11. Never 0. */
static __always_inline __u64 hash_of(const __u64 *frames, __u32 count, __u32 limit)
{
	__u64 hash = 0x9e3779b97f4a7c15ULL;
	for (__u32 i = 0; i < limit; i++) {
		if (i >= count)
			break;
		hash = (hash ^ frames[i]) * 0xff51afd7ed558ccdULL;
		hash ^= hash >> 32;
	}
	return hash | 1;
}

SEC("perf_event")
int sample_taken(struct perf_event_context *context)
{
	if (!gate.is_open)
		return 0;
	struct cpu_row *own = row();
	struct sample key = { .event = bpf_get_attach_cookie(context), .side = own->side, .block = gate.block };
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 tgid = pid_tgid >> 32, zero = 0;
	bool is_member = bpf_map_lookup_elem(&members, &tgid);
	key.tgid = is_member ? tgid : pid_tgid ? TGID_OTHERS : TGID_IDLE;
	bool is_user = is_user_mode(context);
	if (is_user) {
		key.flags = SAMPLE_USER;
		key.side = SIDE_NOBODY;
	}
	struct kernel_stack *stack = bpf_map_lookup_elem(&scratch, &zero);
	if (!stack)
		return 0;
	if (!is_user) {
		long bytes = bpf_get_stack(context, stack->frames, sizeof(stack->frames), 0);
		if (bytes > 0) {
			stack->count = bytes / 8;
			key.kernel_stack = hash_of(stack->frames, stack->count, KERNEL_FRAMES);
			if (!bpf_map_lookup_elem(&kernel_stacks, &key.kernel_stack) &&
			    bpf_map_update_elem(&kernel_stacks, &key.kernel_stack, stack, ONLY_NEW) == -7 /* E2BIG */) {
				own->lost_stacks++;
				key.kernel_stack = 0;
				key.flags |= SAMPLE_STACK_LOST;
			}
		}
	} else if (is_member) {
		long bytes = bpf_get_stack(context, stack->frames, USER_FRAMES * 8, OF_USER);
		if (bytes > 0) {
			stack->count = bytes / 8;
			key.user_stack = hash_of(stack->frames, stack->count, USER_FRAMES);
			/* The kernel's record is longer and begins alike. */
			if (!bpf_map_lookup_elem(&user_stacks, &key.user_stack) &&
			    bpf_map_update_elem(&user_stacks, &key.user_stack, stack, ONLY_NEW) == -7) {
				own->lost_stacks++;
				key.user_stack = 0;
				key.flags |= SAMPLE_STACK_LOST;
			}
		}
	}
	__u64 one = 1, *count = bpf_map_lookup_elem(&samples, &key);
	if (!count && bpf_map_update_elem(&samples, &key, &one, ONLY_NEW)) {
		count = bpf_map_lookup_elem(&samples, &key);
		if (!count)
			own->lost_samples++;
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_forked, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, child_tgid = child->tgid;
	__u8 yes = 1;
	if (parent_tgid != child_tgid && bpf_map_lookup_elem(&members, &parent_tgid))
		bpf_map_update_elem(&members, &child_tgid, &yes, ONLY_NEW);
	return 0;
}

struct packet {
	__u16 from, to;
	__u32 payload_bytes;
};

/* Reads the TCP header behind the IP header at `ip`, of which `linear` bytes may be read. False: not TCP, not a first
 * fragment, or behind IPv6 extension headers. */
static __always_inline bool parse(const unsigned char *ip, __u32 linear, __u32 skb_len, struct packet *packet, struct cpu_row *own)
{
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
	/* Packets above 64 KiB carry no length of their own. */
	__u32 headers = header + (tcp[12] >> 4) * 4;
	length = length ? length : skb_len;
	packet->payload_bytes = length > headers ? length - headers : 0;
	return 1;
}

static __always_inline void count_packet(struct cpu_row *own, int way, const struct sk_buff___profile *skb, const struct packet *packet)
{
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
int BPF_PROG(packet_received, struct sk_buff___profile *skb)
{
	struct cpu_row *own = row();
	struct packet packet;
	if (!parse(skb->data, skb->len - skb->data_len, skb->len, &packet, own)) {
		own->side = SIDE_NOBODY;
		return 0;
	}
	if (packet.to == target.port && skb->dev->nd_net.net->ns.inum == target.netns) {
		own->side = SIDE_SERVER;
		if (gate.is_open)
			count_packet(own, IN, skb, &packet);
	} else if (packet.from == target.port) {
		own->side = SIDE_PEER;
		own->peer_packets += gate.is_open;
	} else {
		own->side = SIDE_NOBODY;
	}
	return 0;
}

/* A TCP socket, or what stands for one during the handshake and after the close, which ends before sk_protocol. */
static __always_inline bool is_tcp(const struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;
	return state == TCP_TIME_WAIT || state == 12 /* TCP_NEW_SYN_RECV */ || sk->sk_protocol == IPPROTO_TCP;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(packet_queued, struct sk_buff___profile *skb)
{
	if (!gate.is_open)
		return 0;
	struct cpu_row *own = row();
	struct packet packet;
	struct sock *sk = skb->sk;
	__u16 port = sk ? sk->__sk_common.skc_num : 0;
	if (port) {
		/* The usual case reads no header: TCP keeps what it sends behind the linear part. */
		if (port != target.port || !is_tcp(sk))
			return 0;
		packet.payload_bytes = skb->data_len;
	} else {
		/* Resets and the like, which the kernel sends by a socket of its own. */
		unsigned char *ip = skb->head + skb->network_header;
		__u32 link = ip - skb->data;
		if (!parse(ip, skb->len - skb->data_len - link, skb->len - link, &packet, own) || packet.from != target.port)
			return 0;
	}
	if (skb->dev->nd_net.net->ns.inum == target.netns)
		count_packet(own, OUT, skb, &packet);
	return 0;
}
