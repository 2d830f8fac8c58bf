/* SPDX-License-Identifier: Apache-2.0 */
/* Time by layer, without sampling: programs at the begin and end of the functions where one layer calls another
 * maintain a stack of layers on every CPU, and each change charges the time since the last change to the layer on
 * top.
 *
 * No events are logged. Time is handed over by exchanging `last_ns`, so an interrupt between two instructions of a
 * program takes only its own part. A function's end finds its begin by the address of their common frame on the
 * kernel's stack, so a missed end or begin does not disturb other frames. */
#include "packets.h"
#include "exact.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct exact_options options SEC(".rodata.options");
volatile struct exact_gate gate SEC(".bss.gate") = {};

MAP(cpus, PERCPU_ARRAY, 0, 1, __u32, struct exact_cpu);
MAP(threads, ARRAY, 0, TASKS, __u32, struct exact_thread);

/* Frame ids that no function's address can equal. */
enum { ID_BASE = 1, ID_INTERRUPT, ID_TIMER, ID_CALL, ID_CALL_SINGLE, ID_RESCHEDULE, ID_IRQ_WORK, ID_SOFTIRQ };

static __always_inline struct exact_cpu *this_cpu(void) {
    __u32 zero = 0;
    return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline void set_whose(struct exact_cpu *cpu, __u32 pid, __u32 tgid) {
    cpu->whose = !pid                                   ? WHOSE_IDLE
                 : tgid == options.tool_tgid            ? WHOSE_TOOL
                 : bpf_map_lookup_elem(&members, &tgid) ? WHOSE_SERVER
                                                        : WHOSE_OTHERS;
    cpu->is_known = 1;
}

/* Runs at the first event of this CPU. Only the idle loop is known to have run before it. */
static __noinline int meet(struct exact_cpu *cpu) {
    if (!cpu)
        return 0;
    __u64 pid_tgid = bpf_get_current_pid_tgid();
    cpu->stack[0].id = ID_BASE;
    cpu->stack[0].layer = (__u32)pid_tgid ? LAYER_UNKNOWN : LAYER_IDLE;
    set_whose(cpu, pid_tgid, pid_tgid >> 32);
    return 0;
}

static __always_inline struct cell *cell_of(struct exact_cpu *cpu) {
    struct frame *top = &cpu->stack[cpu->depth & (DEPTH - 1)];
    __u32 place = top->is_network ? 1 + cpu->side : SIDE_PROCESS;
    return &cpu->cells[((cpu->whose * PLACES_OF_WORK + place) * LAYERS + top->layer) & (CELLS - 1)];
}

static __always_inline void add(struct cell *cell, __u64 from_ns, __u64 to_ns) {
    __u64 opens_ns = gate.opens_ns, closes_ns = gate.closes_ns;
    from_ns = from_ns > opens_ns ? from_ns : opens_ns;
    to_ns = to_ns < closes_ns ? to_ns : closes_ns;
    if (to_ns > from_ns)
        __sync_fetch_and_add(&cell->ns, to_ns - from_ns);
}

/* Charges the time up to now. An interrupt may already have charged part or all of it. */
static __always_inline void charge(struct exact_cpu *cpu, struct cell *cell, __u64 now_ns) {
    __u64 last_ns = *(volatile __u64 *)&cpu->last_ns;
    for (int i = 0; i < 4 && now_ns > last_ns; i++) {
        __u64 found_ns = __sync_val_compare_and_swap(&cpu->last_ns, last_ns, now_ns);
        if (found_ns == last_ns) {
            add(cell, last_ns, now_ns);
            return;
        }
        last_ns = found_ns;
    }
}

/* Time after a program's time stamp is charged to the program. */
static __always_inline void charge_program(struct exact_cpu *cpu, __u64 began_ns) {
    __u64 now_ns = bpf_ktime_get_ns();
    /* If this fails, an interrupt has charged the time to the layer that it interrupted. */
    if (__sync_val_compare_and_swap(&cpu->last_ns, began_ns, now_ns) == began_ns)
        add(&cpu->cells[((cpu->whose * PLACES_OF_WORK) * LAYERS + LAYER_MEASUREMENT) & (CELLS - 1)], began_ns, now_ns);
}

static __always_inline bool is_open(__u64 now_ns) {
    return now_ns >= gate.opens_ns && now_ns < gate.closes_ns;
}

/* Runs at the beginning of every program. */
static __always_inline struct exact_cpu *begin(__u64 *now_ns, struct cell **cell) {
    struct exact_cpu *cpu = this_cpu();
    if (!cpu)
        return 0;
    *now_ns = bpf_ktime_get_ns();
    if (!cpu->is_known) {
        meet(cpu);
        cpu->last_ns = *now_ns;
    }
    *cell = cell_of(cpu);
    charge(cpu, *cell, *now_ns);
    cpu->hooks += is_open(*now_ns);
    return cpu;
}

static __always_inline void mark(struct exact_cpu *cpu, struct cell *before, __u64 now_ns) {
    if (is_open(now_ns)) {
        before->marks++;
        cell_of(cpu)->marks++;
    }
}

/* Increases the depth first, so that an interrupt pushes above it. Returns false if the stack is full. */
static __always_inline bool push(struct exact_cpu *cpu, __u64 id, __u8 layer, __u8 is_network) {
    __u32 depth = cpu->depth + 1;
    if (depth >= DEPTH) {
        cpu->too_deep++;
        return 0;
    }
    struct frame *frame = &cpu->stack[depth & (DEPTH - 1)];
    *(volatile __u32 *)&cpu->depth = depth;
    frame->layer = layer;
    frame->is_network = is_network;
    *(volatile __u64 *)&frame->id = id;
    return 1;
}

static __always_inline void pop(struct exact_cpu *cpu, __u64 id) {
    __u32 depth = cpu->depth;
    for (__u32 i = 0; i < DEPTH; i++) {
        if (i >= depth)
            break;
        __u32 at = depth - i;
        if (cpu->stack[at & (DEPTH - 1)].id != id)
            continue;
        cpu->not_left += i;
        *(volatile __u32 *)&cpu->depth = at - 1;
        return;
    }
    cpu->not_entered++;
}

static __always_inline bool is_network_now(const struct exact_cpu *cpu) {
    return cpu->stack[cpu->depth & (DEPTH - 1)].is_network;
}

/* A boundary function begins. */
static __noinline int entered(__u64 id, __u32 slot) {
    __u64 now_ns;
    struct cell *caller;
    struct exact_cpu *cpu = begin(&now_ns, &caller);
    if (!cpu || slot >= SLOTS)
        return 0;
    if (push(cpu, id, options.layer[slot], options.is_network[slot] | is_network_now(cpu)) && is_open(now_ns)) {
        caller->pairs_out++;
        cell_of(cpu)->pairs_in++;
    }
    charge_program(cpu, now_ns);
    return 0;
}

/* The end of a boundary function. */
static __noinline int left(__u64 id) {
    __u64 now_ns;
    struct cell *cell;
    struct exact_cpu *cpu = begin(&now_ns, &cell);
    if (!cpu)
        return 0;
    pop(cpu, id);
    charge_program(cpu, now_ns);
    return 0;
}

/* A section that begins and ends at tracepoints. Interrupts belong to no packet. */
static __noinline int section(__u64 id, __u32 layer, __u32 begins) {
    __u64 now_ns;
    struct cell *before;
    struct exact_cpu *cpu = begin(&now_ns, &before);
    if (!cpu)
        return 0;
    if (begins)
        push(cpu, id, layer, layer == LAYER_OTHER ? 0 : is_network_now(cpu));
    else
        pop(cpu, id);
    mark(cpu, before, now_ns);
    charge_program(cpu, now_ns);
    return 0;
}

/* At the begin and end of a function, its arguments are at the same place on the kernel's stack, which no other
 * call shares. */
#define SLOT(n)                                   \
    SEC("fentry") int enter_##n(__u64 *context) { \
        return entered((__u64)context, n);        \
    }                                             \
    SEC("fexit") int leave_##n(__u64 *context) {  \
        return left((__u64)context);              \
    }
#define SLOTS_8(d) SLOT(d##0) SLOT(d##1) SLOT(d##2) SLOT(d##3) SLOT(d##4) SLOT(d##5) SLOT(d##6) SLOT(d##7)
/* Numbers in the names are octal with a leading digit; C also reads 0NN as octal. */
SLOTS_8(00)
SLOTS_8(01)
SLOTS_8(02)
SLOTS_8(03)
SLOTS_8(04)
SLOTS_8(05)
SLOTS_8(06)
SLOTS_8(07)
SLOTS_8(010)
SLOTS_8(011)
SLOTS_8(012)
SLOTS_8(013)

#define SECTION(name, id, layer)                                      \
    SEC("tp_btf/" #name "_entry") int name##_begins(__u64 *context) { \
        return section(id, layer, 1);                                 \
    }                                                                 \
    SEC("tp_btf/" #name "_exit") int name##_ends(__u64 *context) {    \
        return section(id, layer, 0);                                 \
    }
SECTION(irq_handler, ID_INTERRUPT, LAYER_OTHER)
SECTION(local_timer, ID_TIMER, LAYER_OTHER)
SECTION(call_function, ID_CALL, LAYER_OTHER)
SECTION(call_function_single, ID_CALL_SINGLE, LAYER_OTHER)
SECTION(reschedule, ID_RESCHEDULE, LAYER_OTHER)
SECTION(irq_work, ID_IRQ_WORK, LAYER_OTHER)
SECTION(softirq, ID_SOFTIRQ, LAYER_OTHER)

/* Between these two tracepoints, the packet belongs to the driver of any interface. */
SEC("tp_btf/net_dev_start_xmit")
int driver_begins(__u64 *context) {
    return section(context[0], LAYER_DRIVER, 1);
}

SEC("tp_btf/net_dev_xmit")
int driver_ends(__u64 *context) {
    return section(context[0], LAYER_DRIVER, 0);
}

static __always_inline int set_mode(__u8 mode, bool is_call) {
    __u64 now_ns;
    struct cell *before;
    struct exact_cpu *cpu = this_cpu();
    if (!cpu)
        return 0;
    /* A thread that makes a system call was in user mode, which is known even if nothing else
     * is. */
    if (is_call && cpu->is_known && cpu->stack[0].layer == LAYER_UNKNOWN)
        cpu->stack[0].layer = LAYER_USER;
    cpu = begin(&now_ns, &before);
    if (!cpu)
        return 0;
    cpu->not_left += cpu->depth;
    cpu->depth = 0;
    cpu->stack[0].layer = mode;
    if (is_open(now_ns) && is_call)
        cpu->system_calls[cpu->whose & (WHOSES - 1)]++;
    charge_program(cpu, now_ns);
    return 0;
}

SEC("tp_btf/sys_enter")
int call_begins(__u64 *context) {
    return set_mode(LAYER_SYSTEM_CALL, 1);
}

SEC("tp_btf/sys_exit")
int call_ends(__u64 *context) {
    return set_mode(LAYER_USER, 0);
}

static __always_inline void copy_stack(struct frame *to, const struct frame *from, __u32 depth) {
    for (__u32 i = 0; i < DEPTH; i++) {
        if (i > depth)
            break;
        to[i] = from[i];
    }
}

static __always_inline struct exact_thread *thread(__u32 pid) {
    __u32 place = pid & (TASKS - 1);
    return bpf_map_lookup_elem(&threads, &place);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool is_preempted, struct task_struct *previous, struct task_struct *next) {
    __u64 now_ns;
    struct cell *before;
    struct exact_cpu *cpu = begin(&now_ns, &before);
    if (!cpu)
        return 0;
    __u32 pid = previous->pid;
    struct exact_thread *kept;
    if (pid && (kept = thread(pid))) {
        cpu->lost_threads += kept->pid && kept->pid != pid;
        kept->pid = pid;
        kept->depth = cpu->depth;
        copy_stack(kept->stack, cpu->stack, cpu->depth);
    }
    pid = next->pid;
    cpu->depth = 0;
    cpu->stack[0].id = ID_BASE;
    cpu->stack[0].is_network = 0;
    cpu->stack[0].layer = pid ? LAYER_UNKNOWN : LAYER_IDLE;
    if (pid && (kept = thread(pid)) && kept->pid == pid) {
        copy_stack(cpu->stack, kept->stack, kept->depth);
        cpu->depth = kept->depth & (DEPTH - 1);
        kept->pid = 0;
    }
    set_whose(cpu, pid, next->tgid);
    mark(cpu, before, now_ns);
    charge_program(cpu, now_ns);
    return 0;
}

static __always_inline bool counts_now(void) {
    return is_open(bpf_ktime_get_ns());
}

static __always_inline void take_up(struct cpu_row *own, enum side side) {
    struct exact_cpu *cpu = this_cpu();
    own->side = side;
    if (cpu)
        cpu->side = side;
}

static __always_inline __u64 hook_begins(void) {
    __u64 now_ns;
    struct cell *cell;
    struct exact_cpu *cpu = begin(&now_ns, &cell);
    if (!cpu)
        return 0;
    mark(cpu, cell, now_ns);
    return now_ns;
}

static __always_inline void hook_ends(__u64 began_ns) {
    struct exact_cpu *cpu = this_cpu();
    if (cpu && began_ns)
        charge_program(cpu, began_ns);
}
