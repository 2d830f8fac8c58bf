// SPDX-License-Identifier: Apache-2.0
/* The account of the server's threads: each nanosecond of each thread is running, runnable or blocked at a place. A
 * thread's place is read when it is woken, from the system call that it is still in, so falling asleep costs only a
 * clock read. A switch that the kernel does not report then costs no more than the wait for a CPU: some kernels report
 * none from certain threads. When the window closes, the reader walks over all threads: it ends the states in progress
 * and counts threads that did not switch at all. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "account.h"
#include "members.h"
#include "names.h"
#include "stack_hash.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define DEAD 0xb0    /* TASK_DEAD, EXIT_DEAD, EXIT_ZOMBIE */
#define STOPPED 0x0c /* __TASK_STOPPED, __TASK_TRACED */
#define AF_UNIX_FAMILY 1
#define SYSCALL_FUTEX_KNOWN 1 /* values in `calls`: kinds of system calls */
#define SYSCALL_DESCRIPTOR 2
#define WAKER_FRAMES 12 /* kernel frames from the event to the timer's function */
#define TIMER_FUNCTION_BYTES 64

/* A thread's next event ends its last interval up to this long after the window's end. */
#define AFTERWARDS_NS 50000000
#define LONGEST_EVENT_NS 20000
#define NEVER_NS (~0ULL >> 1)

volatile struct account_gate gate SEC(".bss.gate");
/* The listening ports of the server's machine, one bit each: connections with these local ports were accepted. */
__u64 listening[65536 / 64] SEC(".bss.listening");
struct account_sums sums SEC(".bss.sums");
struct cpu_clock clocks[ACCOUNT_CPUS] SEC(".bss.clocks");
/* Meaning of a system call's first argument, by the call's number. */
const volatile __u8 calls[SYSCALLS_KNOWN] SEC(".rodata.calls") = {};

TABLE(doers, 32768, __u32, struct doer);
TABLE(places, 32768, struct place, struct wait_use);
TABLE(wait_samples, 8192, struct wait_sample, struct wait_use);
TABLE(wait_stacks, 4096, __u64, struct wait_stack);
TABLE(outgoing, 16384, struct connection, struct outgoing);
/* Only programs of different kinds interrupt each other on a CPU, so each kind has its own buffer. */
MAP(stack_scratch, PERCPU_ARRAY, 0, 2, __u32, struct wait_stack);
MAP(outgoing_scratch, PERCPU_ARRAY, 0, 1, __u32, struct outgoing);

/* Address of hrtimer_wakeup, the function of a timer that wakes the thread that set it (kernel/time/hrtimer.c); 0 if it
 * is not known. An extern __ksym would make libbpf read all symbols of the kernel. */
__u64 wakeup_address SEC(".bss.wakeup");
static const char wakeup_name[] SEC(".rodata.wakeup_name") = "hrtimer_wakeup";

/* Run by the reader once. Before Linux 5.16, which has no such helper, the reader sets the address. */
SEC("syscall")
int find_wakeup(void *context) {
    bpf_kallsyms_lookup_name(wakeup_name, sizeof(wakeup_name), 0, &wakeup_address);
    return 0;
}

static __always_inline struct cpu_clock *clock_of(__u32 cpu) {
    return &clocks[cpu & (ACCOUNT_CPUS - 1)];
}

static __always_inline bool is_counted(__u64 now_ns) {
    return now_ns < gate.closes_ns + AFTERWARDS_NS;
}

/* Measures the cost of every sixteenth event, and ends the window when the programs have used up
 * their budget. */
static __always_inline void charge_event(struct cpu_clock *c, __u64 count, __u64 began_ns) {
    __u64 now_ns, spent_ns;

    if (count & 15)
        return;
    now_ns = bpf_ktime_get_ns();
    /* An event that took longer was interrupted. */
    spent_ns = now_ns - began_ns < LONGEST_EVENT_NS ? now_ns - began_ns : LONGEST_EVENT_NS;
    c->cost_ns += spent_ns << 4;
    if (c->cost_ns > gate.budget_ns && now_ns < gate.closes_ns)
        gate.closes_ns = now_ns;
}

static __always_inline bool is_member(const struct task_struct *t) {
    __u32 tgid = t->tgid;
    struct member *member = bpf_map_lookup_elem(&members, &tgid);

    return member && member->start_ticks == start_ticks_of(t);
}

static __always_inline void add_use(struct wait_use *use, __u64 ns) {
    __sync_fetch_and_add(&use->ns, ns);
    __sync_fetch_and_add(&use->times, 1);
    if (ns > use->longest_ns)
        use->longest_ns = ns;
}

static __always_inline struct wait_use *use_of(const struct place *place) {
    struct wait_use *use = bpf_map_lookup_elem(&places, place), none = {};

    if (use)
        return use;
    bpf_map_update_elem(&places, place, &none, ONLY_NEW);
    use = bpf_map_lookup_elem(&places, place);
    if (!use)
        __sync_fetch_and_add(&sums.lost_places, 1);
    return use;
}

static __always_inline void add_place(const struct place *place, __u64 ns) {
    struct wait_use *use = use_of(place);

    if (use)
        add_use(use, ns);
}

static __always_inline __u8 first_thread(const struct task_struct *t) {
    return t->pid == t->tgid ? FIRST_THREAD : 0;
}

static __always_inline void begin_place(struct place *place, struct task_struct *t, enum doing doing) {
    __builtin_memset(place, 0, sizeof(*place));
    place->tgid = t->tgid;
    place->call = -1;
    place->doing = doing | first_thread(t);
    bpf_core_read(place->name, sizeof(place->name), &t->comm);
}

static __always_inline bool is_served(__u16 port) {
    return port == gate.port || listening[port / 64] >> (port % 64) & 1;
}

/* What the connection's data mostly waited for, if not for the path. */
static __always_inline __u16 limit_of_sending(struct sock *sk) {
    struct tcp_sock *tcp = (struct tcp_sock *)sk;
    __u32 times[3] = {};

    if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
        return 0;
    bpf_core_read(times, sizeof(times), &tcp->chrono_stat);
    if (times[1] > times[0] + times[2])
        return WINDOW_CLOSED;
    return BPF_CORE_READ(tcp, write_seq) == BPF_CORE_READ(tcp, snd_nxt) ? SEND_BUFFER_FULL : 0;
}

/* The name of a Unix socket's other end; 0 if it has none or was connected from there. */
static __always_inline struct unix_address *name_of_peer(struct sock *sk) {
    struct unix_sock *own = (struct unix_sock *)sk;
    struct unix_sock *peer = (struct unix_sock *)BPF_CORE_READ(own, peer);

    /* A socket with a name was accepted here. */
    return BPF_CORE_READ(own, addr) ? 0 : BPF_CORE_READ(peer, addr);
}

/* Reads the address of an internet socket's other end, and returns its port. */
static __always_inline __u16 read_other_end(struct sock *sk, __u16 family, __u64 address[2]) {
    if (family == AF_INET6 && bpf_core_field_exists(((struct sock *)0)->__sk_common.skc_v6_daddr))
        bpf_core_read(address, 16, &sk->__sk_common.skc_v6_daddr);
    else
        address[0] = BPF_CORE_READ(sk, __sk_common.skc_daddr);
    return __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
}

static __always_inline void describe_socket(struct place *place, struct file *file, __u8 ended_by) {
    struct socket *socket = BPF_CORE_READ(file, private_data);
    struct sock *sk = BPF_CORE_READ(socket, sk);
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

    place->device = family;
    if (family == AF_UNIX_FAMILY) {
        place->object[0] = (__u64)name_of_peer(sk);
        place->device |= ended_by ? 0 : IN_PROGRESS;
        return;
    }
    place->port = read_other_end(sk, family, place->object);
    if (is_served(BPF_CORE_READ(sk, __sk_common.skc_num))) {
        /* Otherwise each client would be a separate place. */
        place->object[0] = place->object[1] = 0;
        place->port = limit_of_sending(sk);
        place->device |= SERVED;
    }
}

static __always_inline void describe_descriptor(struct place *place, struct task_struct *t, __u32 number,
                                                __u8 ended_by) {
    struct files_struct *files = BPF_CORE_READ(t, files);
    struct fdtable *table = BPF_CORE_READ(files, fdt);
    struct file **entries = BPF_CORE_READ(table, fd), *file = 0;
    struct inode *inode;

    if (number >= BPF_CORE_READ(table, max_fds))
        return;
    bpf_probe_read_kernel(&file, sizeof(file), &entries[number]);
    if (!file)
        return;
    inode = BPF_CORE_READ(file, f_inode);
    place->file_type = BPF_CORE_READ(inode, i_mode) >> 12;
    if (place->file_type == 0xc) {
        describe_socket(place, file, ended_by);
        return;
    }
    place->object[0] = BPF_CORE_READ(inode, i_ino);
    place->device = BPF_CORE_READ(inode, i_sb, s_dev);
}

/* Describes the place at which a thread is blocked. */
static __always_inline void describe_wait(struct place *place, struct task_struct *t, __u8 ended_by) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(t);
    __s32 number;
    __u8 kind;

    if (!regs || !BPF_CORE_READ(t, files)) /* a kernel thread, or one that is exiting */
        return;
    number = (__s32)SYSCALL_NUMBER(regs);
    if (number < 0)
        return;
    place->call = number;
    if (number >= SYSCALLS_KNOWN)
        return;
    kind = calls[number];
    if (kind == SYSCALL_FUTEX_KNOWN) {
        place->object[0] = FIRST_ARGUMENT_OF(regs);
        place->object[1] = SECOND_ARGUMENT(regs) & 0x7f;
        place->file_type = ended_by;
    } else if (kind == SYSCALL_DESCRIPTOR) {
        describe_descriptor(place, t, FIRST_ARGUMENT_OF(regs), ended_by);
    }
}

/* Whether the thread being woken is in a futex call with a timeout, and its timer wakes it. */
static __always_inline bool is_woken_by_timer(void *context, struct task_struct *t) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(t);
    __u64 frames[WAKER_FRAMES] = {}, wakeup = wakeup_address;
    __s32 number;

    if (!wakeup || !regs || !BPF_CORE_READ(t, files)) /* a thread of the kernel, or one that ends */
        return 0;
    number = (__s32)SYSCALL_NUMBER(regs);
    if (number < 0 || number >= SYSCALLS_KNOWN || calls[number] != SYSCALL_FUTEX_KNOWN || !FOURTH_ARGUMENT(regs))
        return 0;
    if (bpf_get_stack(context, frames, sizeof(frames), 0) <= 0)
        return 0;
    for (int i = 0; i < WAKER_FRAMES; i++)
        if (frames[i] - wakeup < TIMER_FUNCTION_BYTES)
            return 1;
    return 0;
}

/* Advances the CPU's clocks to now; the time since the last event belongs to the thread that ran. */
static __always_inline void advance(struct cpu_clock *c, __u64 now_ns) {
    if (now_ns <= c->since_ns)
        return;
    if (c->ran == 1)
        c->own_ns += now_ns - c->since_ns;
    else if (c->ran == 2)
        c->others_ns += now_ns - c->since_ns;
    c->since_ns = now_ns;
}

/* Reads a CPU's clocks as of now. Another CPU may write them concurrently, which only reduces accuracy. */
static __always_inline void read_clock(__u32 cpu, __u64 now_ns, struct doer *d) {
    struct cpu_clock *c = clock_of(cpu);
    __u64 since_ns = c->since_ns, more = 0;

    if (c->window == gate.window && now_ns > since_ns)
        more = now_ns - since_ns;
    d->cpu = cpu;
    d->own_ns = c->own_ns + (c->ran == 1 ? more : 0);
    d->others_ns = c->others_ns + (c->ran == 2 ? more : 0);
}

static __always_inline __u64 birth_or(const struct task_struct *t, __u64 opened_ns) {
    return t->start_time > opened_ns ? t->start_time : opened_ns;
}

/* The thread's record in this window. A thread without one has been in one state since the
 * window opened: running, blocked, or runnable (`is_ready`: no event has woken it). */
static __always_inline struct doer *doer_of(struct task_struct *t, bool is_running, bool is_ready) {
    __u32 pid = t->pid;
    struct doer *d = bpf_map_lookup_elem(&doers, &pid);

    if (!d) {
        struct doer new = {};

        bpf_map_update_elem(&doers, &pid, &new, ONLY_NEW);
        d = bpf_map_lookup_elem(&doers, &pid);
        if (!d) {
            __sync_fetch_and_add(&sums.lost_threads, 1);
            return 0;
        }
    }
    if (d->window != gate.window || d->start_ns != t->start_time) {
        __builtin_memset(d, 0, sizeof(*d));
        d->window = gate.window;
        d->start_ns = t->start_time;
        d->since_ns = birth_or(t, gate.opened_ns);
        d->is_running = is_running;
        d->woken_ns = is_ready ? d->since_ns : 0;
    }
    return d;
}

static __always_inline __u64 passed(__u64 from_ns, __u64 to_ns) {
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

static __always_inline void add_running(struct task_struct *t, struct doer *d, __u64 now_ns, bool is_end) {
    __u64 ns = passed(d->since_ns, now_ns);
    struct wait_use *use;
    struct place place;

    begin_place(&place, t, RUNNING);
    use = use_of(&place);
    d->work_ns += ns;
    if (use) {
        __sync_fetch_and_add(&use->ns, ns);
        if (is_end) {
            __sync_fetch_and_add(&use->times, 1);
            if (d->work_ns > use->longest_ns)
                use->longest_ns = d->work_ns;
        }
    }
    if (is_end)
        d->work_ns = 0;
}

static __always_inline void add_sample(const struct place *place, const struct doer *d, __u64 ns) {
    struct wait_sample key = {
        .place = *place, .kernel_stack = d->kernel_stack, .user_stack = d->user_stack, .waker_stack = d->waker_stack};
    struct wait_use *use = bpf_map_lookup_elem(&wait_samples, &key);

    if (!use) {
        struct wait_use none = {};

        bpf_map_update_elem(&wait_samples, &key, &none, ONLY_NEW);
        use = bpf_map_lookup_elem(&wait_samples, &key);
    }
    if (use)
        add_use(use, ns);
    else
        __sync_fetch_and_add(&sums.lost_stacks, 1);
}

/* The thread was blocked until now. Its place is read while it is still in its system call. */
static __always_inline void add_blocked(struct task_struct *t, struct doer *d, __u64 now_ns) {
    struct place place;

    if (now_ns > d->since_ns) {
        begin_place(&place, t, BLOCKED);
        if (d->is_stopped)
            place.call = STOPPED_THREAD;
        else
            describe_wait(&place, t, d->ended_by);
        add_place(&place, now_ns - d->since_ns);
        if (d->is_sampled)
            add_sample(&place, d, now_ns - d->since_ns);
    }
    d->since_ns = d->woken_ns = now_ns;
}

/* The thread was off its CPU until now: runnable since it was woken, or blocked if no event has woken it. */
static __always_inline void add_waiting(struct task_struct *t, struct doer *d, __u64 now_ns, __u32 cpu, bool has_cpu) {
    struct place place;
    __u64 ready_ns;

    if (!d->woken_ns)
        add_blocked(t, d, now_ns);
    ready_ns = passed(d->since_ns, now_ns);
    if (!ready_ns)
        return;
    begin_place(&place, t, READY_MOVED);
    if (has_cpu && d->cpu == cpu) {
        struct cpu_clock *c = clock_of(cpu);
        __u64 own_ns = passed(d->own_ns, c->own_ns), others_ns = passed(d->others_ns, c->others_ns);

        own_ns = own_ns < ready_ns ? own_ns : ready_ns;
        others_ns = others_ns < ready_ns - own_ns ? others_ns : ready_ns - own_ns;
        ready_ns -= own_ns + others_ns;
        place.doing = READY_OWN | first_thread(t);
        if (own_ns)
            add_place(&place, own_ns);
        place.doing = READY_OTHERS | first_thread(t);
        if (others_ns)
            add_place(&place, others_ns);
        place.doing = READY_STOPPED | first_thread(t);
        if (!ready_ns)
            return;
    }
    add_place(&place, ready_ns);
}

static __always_inline __u64 kernel_stack_of(void *context, __u32 which) {
    __u64 *record = bpf_map_lookup_elem(&stack_scratch, &which);

    return record ? keep_stack(context, &wait_stacks, record, WAIT_FRAMES, 0, &sums.lost_stacks) : 0;
}

/* The second frame is the return address of a function without a frame, such as glibc's syscall(), or 0. */
static __always_inline __u64 user_stack_of(void *context, __u32 which) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
    __u64 *record = bpf_map_lookup_elem(&stack_scratch, &which);
    long bytes;

    if (!record || !regs)
        return 0;
    bytes = bpf_get_stack(context, record + 2, (WAIT_FRAMES - 1) * 8, OF_USER);
    if (bytes <= 0)
        return 0;
    record[0] = bytes / 8 + 1;
    record[1] = record[2];
    record[2] = 0;
    READ_RETURN_ADDRESS(&record[2], regs, record[1]);
    return store_stack(&wait_stacks, record, WAIT_FRAMES, &sums.lost_stacks);
}

static __always_inline void switched(void *context, bool is_preempted, struct task_struct *prev,
                                     struct task_struct *next, unsigned int state) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct cpu_clock *c = clock_of(cpu);
    bool from_server, to_server, is_last;
    struct doer *d;
    __u64 began_ns, now_ns;

    if (!gate.is_open)
        return;
    began_ns = now_ns = bpf_ktime_get_ns();
    if (!is_counted(now_ns))
        return;
    is_last = now_ns >= gate.closes_ns;
    if (is_last)
        now_ns = gate.closes_ns;
    from_server = prev->pid && !(state & DEAD) && is_member(prev);
    to_server = next->pid && is_member(next);
    if (c->window != gate.window) {
        c->ran = !prev->pid ? 0 : from_server ? 1 : 2;
        c->own_ns = c->others_ns = c->cost_ns = c->switches = c->wakings = 0;
        c->since_ns = gate.opened_ns;
        c->window = gate.window;
    }
    advance(c, now_ns);
    c->switches++;
    if (from_server && (d = doer_of(prev, 1, 0)) && !d->is_closed) {
        add_running(prev, d, now_ns, !is_preempted && state);
        d->is_closed = is_last;
        d->is_running = 0;
        d->since_ns = now_ns;
        d->is_sampled = 0;
        d->ended_by = 0;
        d->is_stopped = !is_preempted && state & STOPPED;
        d->woken_ns = 0;
        if (is_preempted || !state) {
            d->woken_ns = now_ns;
            read_clock(cpu, now_ns, d);
        } else {
            d->cpu = cpu;
            if (now_ns - c->stack_at_ns > gate.stack_gap_ns) {
                c->stack_at_ns = now_ns;
                d->is_sampled = 1;
                d->waker_stack = 0;
                d->kernel_stack = kernel_stack_of(context, 0);
                d->user_stack = user_stack_of(context, 0);
            }
        }
    }
    if (to_server && (d = doer_of(next, 0, !is_last)) && !d->is_closed) {
        if (!d->is_running)
            add_waiting(next, d, now_ns, cpu, 1);
        d->is_closed = is_last;
        d->is_running = 1;
        d->is_sampled = 0;
        d->since_ns = now_ns;
        d->woken_ns = 0;
    }
    c->ran = !next->pid ? 0 : to_server ? 1 : 2;
    charge_event(c, c->switches, began_ns);
}

/* The fourth argument (Linux 5.18) is the state in which the thread left; the thread's own field
 * may have changed since. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(on_account_switch, bool is_preempted, struct task_struct *prev, struct task_struct *next,
             unsigned int state) {
    switched(ctx, is_preempted, prev, next, state);
    return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(on_older_switch, bool is_preempted, struct task_struct *prev, struct task_struct *next) {
    switched(ctx, is_preempted, prev, next, prev->__state);
    return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *t) {
    struct cpu_clock *c;
    struct doer *d;
    __u64 now_ns;

    if (!gate.is_open)
        return 0;
    now_ns = bpf_ktime_get_ns();
    if (now_ns >= gate.closes_ns)
        return 0;
    c = clock_of(bpf_get_smp_processor_id());
    c->wakings++;
    if (is_member(t) && (d = doer_of(t, 0, 0)) && !d->is_running && !d->woken_ns) {
        read_clock(d->cpu, now_ns, d);
        d->ended_by = is_woken_by_timer(ctx, t) ? BY_TIMER : BY_THREAD;
        if (d->is_sampled && is_member(bpf_get_current_task_btf()))
            d->waker_stack = user_stack_of(ctx, 1);
        add_blocked(t, d, now_ns);
    }
    /* The first switch of a CPU in this window resets the cost of the last one. */
    if (c->window == gate.window)
        charge_event(c, c->wakings, now_ns);
    return 0;
}

/* Time after this event, in which the thread frees its resources, is not counted. */
SEC("?tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *t) {
    __u64 now_ns = bpf_ktime_get_ns();
    struct doer *d;

    if (!gate.is_open || !is_member(t))
        return 0;
    if (now_ns > gate.closes_ns)
        now_ns = gate.closes_ns;
    d = t->start_time < now_ns ? doer_of(t, 1, 0) : 0;
    /* The walk has already counted a thread that ends after it. */
    if (!d || d->is_summed)
        return 0;
    if (!d->is_closed)
        add_running(t, d, now_ns, 1);
    d->is_closed = d->is_summed = 1;
    __sync_fetch_and_add(&sums.threads_ns, passed(birth_or(t, gate.opened_ns), now_ns));
    return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(process_ended, struct task_struct *t) {
    __u32 pid = t->pid;

    bpf_map_delete_elem(&doers, &pid);
    forget_process(t);
    return 0;
}

/* The reader runs this program to begin and end windows, so that all programs see the change at
 * once. */
SEC("syscall")
int open_window(void *context) {
    gate.closes_ns = NEVER_NS;
    gate.opened_ns = bpf_ktime_get_ns();
    gate.window++;
    gate.is_open = 1;
    return 0;
}

SEC("syscall")
int close_window(void *context) {
    __u64 now_ns = bpf_ktime_get_ns();

    if (now_ns < gate.closes_ns)
        gate.closes_ns = now_ns;
    gate.ended_ns = now_ns;
    return 0;
}

/* After the end of the window: adds the state in progress of each thread, unless the thread's next event has done
   so. */
SEC("iter/task")
int walk_threads(struct bpf_iter__task *context) {
    struct task_struct *t = context->task;
    struct doer *d;
    __u64 now_ns;

    if (!t || t->exit_state || !is_member(t))
        return 0;
    now_ns = gate.closes_ns;
    /* A thread without a record did not switch: it ran, waited for a CPU, or was blocked the whole time. */
    d = t->start_time < now_ns ? doer_of(t, t->on_cpu, !t->__state) : 0;
    if (!d || d->is_summed)
        return 0;
    d->is_summed = 1;
    sums.threads++;
    sums.threads_ns += passed(birth_or(t, gate.opened_ns), now_ns);
    if (d->is_closed)
        return 0;
    d->is_closed = 1;
    if (d->is_running)
        add_running(t, d, now_ns, 1);
    else
        add_waiting(t, d, now_ns, 0, 0);
    return 0;
}

static __always_inline struct outgoing *outgoing_of(struct sock *sk) {
    struct task_struct *t = bpf_get_current_task_btf();
    struct connection key = {(__u64)sk, sk->__sk_common.skc_num};
    struct outgoing *o = bpf_map_lookup_elem(&outgoing, &key), *new;
    __u32 zero = 0;

    if (o && o->window == gate.window)
        return o;
    if (!is_member(t))
        return 0;
    new = bpf_map_lookup_elem(&outgoing_scratch, &zero);
    if (!new)
        return 0;
    __builtin_memset(new, 0, sizeof(*new));
    new->window = gate.window;
    new->tgid = t->tgid;
    new->family = BPF_CORE_READ(sk, __sk_common.skc_family);
    new->protocol = BPF_CORE_READ(sk, sk_protocol);
    if (new->family == AF_UNIX_FAMILY) {
        struct unix_address *name = name_of_peer(sk);
        if (!name)
            return 0;
        new->address[0] = (__u64)name;
        /* sockaddr_un: the family, then the path. */
        new->path_bytes = BPF_CORE_READ(name, len) - 2;
        bpf_core_read(new->path, sizeof(new->path), &name->name[0].sun_path);
    } else {
        new->port = read_other_end(sk, new->family, new->address);
    }
    if (bpf_map_update_elem(&outgoing, &key, new, 0)) {
        __sync_fetch_and_add(&sums.lost_calls, 1);
        return 0;
    }
    return bpf_map_lookup_elem(&outgoing, &key);
}

static __always_inline bool may_be_outgoing(const struct sock *sk) {
    return gate.is_open && !is_served(sk->__sk_common.skc_num) && bpf_ktime_get_ns() < gate.closes_ns;
}

SEC("?tp_btf/sock_send_length")
int BPF_PROG(on_call, struct sock *sk, int bytes, int flags) {
    struct outgoing *o;

    if (bytes <= 0 || !may_be_outgoing(sk))
        return 0;
    o = outgoing_of(sk);
    if (!o)
        return 0;
    if (!o->busy_since_ns)
        o->busy_since_ns = bpf_ktime_get_ns();
    else if (o->unanswered < 255)
        o->unanswered++;
    return 0;
}

SEC("?tp_btf/sock_recv_length")
int BPF_PROG(on_answer, struct sock *sk, int bytes, int flags) {
    struct connection key = {(__u64)sk, sk->__sk_common.skc_num};
    struct outgoing *o;
    __u64 ns;

    if (bytes < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE) || !may_be_outgoing(sk))
        return 0;
    o = bpf_map_lookup_elem(&outgoing, &key);
    if (!o || o->window != gate.window) {
        /* The first event of the connection is an answer: its call was sent before the window opened. */
        o = bytes ? outgoing_of(sk) : 0;
        if (!o)
            return 0;
        o->busy_since_ns = gate.opened_ns;
    }
    if (!o->busy_since_ns)
        return 0;
    ns = passed(o->busy_since_ns, bpf_ktime_get_ns());
    o->busy_since_ns = 0;
    o->busy_ns += ns;
    o->calls++;
    if (ns > o->longest_ns)
        o->longest_ns = ns;
    return 0;
}
