/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of the server. The reader adds those that it knows; the programs add their descendants and remove
 * ended ones. */
#ifndef STRAINGAUGE_MEMBERS_H
#define STRAINGAUGE_MEMBERS_H

/* The includer is called at each event. */
#ifndef FOLLOWER_RAN
#define FOLLOWER_RAN()
#endif

#define TICK_NS (1000000000 / 100) /* unit of the start times in /proc/PID/stat (USER_HZ) */

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* Process ids are reused, so the start time is compared, too. */
struct member {
    __u64 start_ticks;
    __u32 image; /* the process whose memory it copied; itself after exec */
    __u32 reserved;
};

struct member_counts {
    __u64 lost;         /* processes for which there was no place */
    __u64 ended_cpu_ns; /* CPU time of ended processes, from their start */
};

#pragma clang diagnostic pop

TABLE(members, 16384, __u32, struct member);
struct member_counts member_counts SEC(".bss.members");

static __always_inline __u64 start_ticks_of(const struct task_struct *t) {
    return t->group_leader->start_boottime / TICK_NS;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_forked, struct task_struct *parent, struct task_struct *child) {
    __u32 parent_tgid = parent->tgid, child_tgid = child->tgid;
    struct member *of_parent, new = {};

    FOLLOWER_RAN();
    if (parent_tgid == child_tgid)
        return 0;
    of_parent = bpf_map_lookup_elem(&members, &parent_tgid);
    if (!of_parent || of_parent->start_ticks != start_ticks_of(parent))
        return 0;
    new.start_ticks = start_ticks_of(child);
    new.image = of_parent->image;
    if (bpf_map_update_elem(&members, &child_tgid, &new, 0))
        __sync_fetch_and_add(&member_counts.lost, 1);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_executed, struct task_struct *t) {
    __u32 tgid = t->tgid;
    struct member *member = bpf_map_lookup_elem(&members, &tgid);

    FOLLOWER_RAN();
    if (member)
        member->image = tgid;
    return 0;
}

/* Runs when the kernel frees a thread, shortly after its end and the closing of its sockets. */
static __always_inline void forget_process(struct task_struct *t) {
    __u32 tgid = t->tgid;
    struct member *member;

    /* The first thread is freed last. */
    if (t->pid != tgid)
        return;
    member = bpf_map_lookup_elem(&members, &tgid);
    if (!member || member->start_ticks != t->start_boottime / TICK_NS)
        return;
    __sync_fetch_and_add(&member_counts.ended_cpu_ns, t->signal->sum_sched_runtime);
    bpf_map_delete_elem(&members, &tgid);
}

#endif
