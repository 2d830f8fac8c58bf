/* SPDX-License-Identifier: Apache-2.0 */
/* Slow-down experiments: delays the server at a place of its code, and counts how often and for how long. Each
 * program is attached only if its place is requested. */
/* Programs that add delay are named slow_*: the profile charges their time to the place where they are attached. */
#define packet_received slow_packet_received
#define packet_queued slow_packet_queued
#include "packets.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* In the order of SlowPlace in crates/record/src/axis.rs. */
enum place { RECEIVE, SEND, WAKE_UP, REQUEST, ACCEPT, FILE_READ, FUNCTION, LOCK, KERNEL_LOCK, PLACES };

/* Limits for a faulty delay: time, and number of clock readings, which take at least 20 ns each. */
#define MOST_NS 100000
#define MOST_READINGS 8192

MAP(delays, ARRAY, 0, PLACES, __u32, __u64);

/* Number and duration (nanoseconds) of the delays so far. */
struct spun {
    __u64 count;
    __u64 ns;
};
MAP(spun, PERCPU_ARRAY, 0, PLACES, __u32, struct spun);

static __always_inline void spin(__u32 place) {
    struct spun *own = bpf_map_lookup_elem(&spun, &place);
    __u64 *delay = bpf_map_lookup_elem(&delays, &place);
    if (!own || !delay)
        return;
    own->count++;
    __u64 delay_ns = *delay;
    if (!delay_ns)
        return;
    if (delay_ns > MOST_NS)
        delay_ns = MOST_NS;
    __u64 began_ns = bpf_ktime_get_ns(), ns = 0;
    for (int i = 0; i < MOST_READINGS && ns < delay_ns; i++)
        ns = bpf_ktime_get_ns() - began_ns;
    own->ns += ns;
}

/* packets.h identifies the packets, and counts those that leave while counts_now returns true. Only the program
 * for leaving packets is loaded with it. */
static __always_inline bool counts_now(void) {
    return 1;
}

static __always_inline void take_up(struct cpu_row *own, enum side side) {
    if (side == SIDE_SERVER)
        spin(RECEIVE);
}

static __always_inline __u64 hook_begins(void) {
    return row()->packets[OUT];
}

static __always_inline void hook_ends(__u64 packets_before) {
    if (row()->packets[OUT] != packets_before)
        spin(SEND);
}

static __always_inline bool is_member(__u32 tgid) {
    return bpf_map_lookup_elem(&members, &tgid) != 0;
}

/* At a switch, the delay is charged to the next thread, whose clock already runs. */
SEC("tp_btf/sched_switch")
int BPF_PROG(slow_thread_runs, bool preempt, struct task_struct *prev, struct task_struct *next) {
    if (next->pid && is_member(next->tgid))
        spin(WAKE_UP);
    return 0;
}

/* A thread of the server took data from a connection of the port. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(slow_request_read, struct sock *sk) {
    if (sk->__sk_common.skc_num == target.port && sk->__sk_common.skc_net.net->ns.inum == target.netns)
        spin(REQUEST);
    return 0;
}

#if defined(__TARGET_ARCH_x86)
enum { NR_ACCEPT = 43, NR_ACCEPT4 = 288, NR_PREAD64 = 17, NR_PREADV = 295, NR_PREADV2 = 327, NR_SENDFILE = 40 };
#else
enum { NR_ACCEPT = 202, NR_ACCEPT4 = 242, NR_PREAD64 = 67, NR_PREADV = 69, NR_PREADV2 = 286, NR_SENDFILE = 71 };
#endif

SEC("tp_btf/sys_exit")
int BPF_PROG(slow_call_accepts, struct pt_regs *regs, long result) {
    int number = SYSCALL_NUMBER(regs);
    if ((number == NR_ACCEPT || number == NR_ACCEPT4) && result >= 0 && is_member(bpf_get_current_pid_tgid() >> 32))
        spin(ACCEPT);
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(slow_call_reads_file, struct pt_regs *regs, long result) {
    int number = SYSCALL_NUMBER(regs);
    bool is_read = number == NR_PREAD64 || number == NR_PREADV || number == NR_PREADV2 || number == NR_SENDFILE;
    if (is_read && result > 0 && is_member(bpf_get_current_pid_tgid() >> 32))
        spin(FILE_READ);
    return 0;
}

SEC("uprobe")
int slow_function_begins(void *context) {
    if (is_member(bpf_get_current_pid_tgid() >> 32))
        spin(FUNCTION);
    return 0;
}

/* At the entry of pthread_mutex_unlock. The caller still holds the mutex; threads wait for it if its first word is 2
 * (glibc, nptl/lowlevellock.h). */
SEC("uprobe")
int slow_mutex_held(struct pt_regs *regs) {
    int state = 0;
    if (!is_member(bpf_get_current_pid_tgid() >> 32))
        return 0;
    if (!bpf_probe_read_user(&state, sizeof state, (void *)FUNCTION_ARGUMENT(regs)) && state == 2)
        spin(LOCK);
    return 0;
}

/* Threads that wait for a lock of the kernel which one thread holds at a time. */
TABLE(waiting, 16384, __u32, __u64);

/* include/trace/events/lock.h. No time is added to locks for which a CPU spins. */
enum { LCB_F_SPIN = 1, LCB_F_WRITE = 4, LCB_F_RT = 8, LCB_F_MUTEX = 32 };

SEC("tp_btf/contention_begin")
int BPF_PROG(slow_lock_waits, void *lock, unsigned int flags) {
    __u64 id = bpf_get_current_pid_tgid(), address = (__u64)lock;
    __u32 pid = id;
    if (flags & (LCB_F_WRITE | LCB_F_RT | LCB_F_MUTEX) && !(flags & LCB_F_SPIN) && is_member(id >> 32))
        bpf_map_update_elem(&waiting, &pid, &address, 0);
    return 0;
}

/* The thread has the lock now. */
SEC("tp_btf/contention_end")
int BPF_PROG(slow_lock_taken, void *lock, int error) {
    __u32 pid = bpf_get_current_pid_tgid();
    __u64 *address = bpf_map_lookup_elem(&waiting, &pid);
    if (!address || *address != (__u64)lock)
        return 0;
    bpf_map_delete_elem(&waiting, &pid);
    if (!error)
        spin(KERNEL_LOCK);
    return 0;
}
