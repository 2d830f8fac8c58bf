/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler: counts stacks in the kernel, and counts every packet of the port by direction and receiving end. A
 * sample in a network softirq belongs to the receiver of the packet that the CPU handled last, not to the
 * interrupted process. */
#include "packets.h"
#include "names.h"
#include "stack_hash.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

volatile struct gate gate SEC(".bss.gate");

static __always_inline bool counts_now(void) {
    return gate.is_open;
}

static __always_inline void take_up(struct cpu_row *own, enum side side) {
    own->side = side;
}

static __always_inline __u64 hook_begins(void) {
    return 0;
}

static __always_inline void hook_ends(__u64 began_ns) {}

/* arch/.../include/uapi/asm/ptrace.h: the context's layout is fixed. Declared with full words, because the
 * verifier refuses narrower reads of registers. */
struct perf_event_context {
#if defined(__TARGET_ARCH_x86)
    __u64 before_cs[17], cs;
#else
    __u64 regs[31], sp, pc, pstate;
#endif
};

static __always_inline bool is_user_mode(const struct perf_event_context *context) {
#if defined(__TARGET_ARCH_x86)
    return (context->cs & 3) == 3;
#else
    return (context->pstate & 0xf) == 0;
#endif
}

TABLE(samples, 131072, struct sample, __u64);
TABLE(kernel_stacks, 16384, __u64, struct kernel_stack);
TABLE(user_stacks, 16384, __u64, struct user_stack);
/* perf_event programs do not nest (bpf_prog_active), so one buffer per CPU is enough. */
MAP(scratch, PERCPU_ARRAY, 0, 1, __u32, struct kernel_stack);

/* A late timer of a clock event is set to the next period from now (hrtimer_forward_now in kernel/events/core.c),
 * so skipped periods have no sample. Up to half a period is normal scatter. */
static __always_inline void note_arrival(struct cpu_row *own) {
    __u64 now_ns = bpf_ktime_get_ns(), period_ns = target.period_ns, from_ns = own->last_ns;
    if (from_ns < gate.opened_ns)
        from_ns = gate.opened_ns;
    if (period_ns && now_ns > from_ns + period_ns + period_ns / 2)
        own->late += (now_ns - from_ns - period_ns / 2) / period_ns;
    own->last_ns = now_ns;
    own->arrived++;
}

SEC("perf_event")
int sample_taken(struct perf_event_context *context) {
    if (!gate.is_open)
        return 0;
    struct cpu_row *own = row();
    if (!bpf_get_attach_cookie(context))
        note_arrival(own);
    struct sample key = {.event = bpf_get_attach_cookie(context), .side = own->side, .block = gate.block};
    __u64 pid_tgid = bpf_get_current_pid_tgid();
    __u32 tgid = pid_tgid >> 32, zero = 0;
    struct member *is_member = bpf_map_lookup_elem(&members, &tgid);
    key.image = is_member ? is_member->image : 0;
    key.tgid = is_member ? tgid : pid_tgid ? TGID_OTHERS : TGID_IDLE;
    key.is_user = is_user_mode(context);
    if (key.is_user)
        key.side = SIDE_NOBODY;
    struct kernel_stack *stack = bpf_map_lookup_elem(&scratch, &zero);
    if (!stack)
        return 0;
    if (!key.is_user) {
        key.kernel_stack = keep_stack(context, &kernel_stacks, (__u64 *)stack, KERNEL_FRAMES, 0, &own->lost_stacks);
    } else if (is_member) {
        /* The kernel's record is longer, but begins in the same way. */
        key.user_stack = keep_stack(context, &user_stacks, (__u64 *)stack, USER_FRAMES, OF_USER, &own->lost_stacks);
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
