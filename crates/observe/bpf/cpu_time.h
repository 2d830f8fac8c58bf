/* SPDX-License-Identifier: Apache-2.0 */
/* Charges CPU time to requests. A thread's time between two of its socket events belongs to the request of the
 * first of them.
 *
 * The thread's CPU clock needs no context-switch hook: clock_task + sum_exec_runtime - exec_start grows only while
 * it runs (kernel/sched/fair.c, update_curr). Each CPU has its own clock_task, which stops during interrupts and
 * stolen time. On a virtual machine these clocks differ by seconds, so their lag behind the common clock is read
 * from the runqueue. Times are signed, because stolen time is noticed late and a difference may be negative. */
#ifndef STRAINGAUGE_CPU_TIME_H
#define STRAINGAUGE_CPU_TIME_H

static __always_inline struct thread *thread_at(__u32 pid, __u32 way) {
    __u32 i = (pid & (THREADS / WAYS - 1)) * WAYS + way;

    return bpf_map_lookup_elem(&threads, &i);
}

/* A thread's record is in one of WAYS neighbouring places. */
static __always_inline struct thread *find_thread(__u32 pid) {
#pragma unroll
    for (__u32 way = 0; way < WAYS; way++) {
        struct thread *c = thread_at(pid, way);

        if (c && c->pid == pid)
            return c;
    }
    return 0;
}

/* Adds a thread to the sums of displaced threads. */
static __always_inline void fold_thread(struct thread *c) {
    if (c->tgid) {
        __sync_fetch_and_add(&counts.displaced_thread_requests, c->requests);
        __sync_fetch_and_add(&counts.displaced_thread_bytes_in, c->bytes_in);
        __sync_fetch_and_add(&counts.displaced_thread_bytes_out, c->bytes_out);
        __sync_fetch_and_add(&counts.displaced_thread_other_cpu_ns, c->other_cpu_ns);
        __sync_fetch_and_add(&counts.displaced_thread_timed, c->timed);
#pragma unroll
        for (int p = 0; p < PHASES; p++) {
            __sync_fetch_and_add(&counts.displaced_thread_elapsed_ns[p], c->elapsed_ns[p]);
            __sync_fetch_and_add(&counts.displaced_thread_phase_cpu_ns[p], c->phase_cpu_ns[p]);
        }
    }
    c->timed = 0;
#pragma unroll
    for (int p = 0; p < PHASES; p++)
        c->elapsed_ns[p] = c->phase_cpu_ns[p] = 0;
    c->requests = c->bytes_in = c->bytes_out = 0;
    c->other_cpu_ns = c->charged_ns = 0;
    c->disk_window = 0;
    c->sk = 0;
    c->mark_ns = 0;
    c->tgid = 0;
}

/* The record of a running thread. */
static __always_inline struct thread *thread_of(struct task_struct *t) {
    __u32 pid = t->pid;
    struct thread *c = find_thread(pid);

    if (c)
        return c;
#pragma unroll
    for (__u32 way = 0; way < WAYS; way++) {
        c = thread_at(pid, way);
        if (c && !c->pid && __sync_val_compare_and_swap(&c->pid, 0, pid) == 0)
            goto mine;
    }
    c = thread_at(pid, pid / (THREADS / WAYS) & (WAYS - 1));
    if (!c)
        return 0;
    COUNT(DISPLACED_THREADS);
    c->pid = pid;
mine:
    fold_thread(c);
    c->process_start_ticks = BPF_CORE_READ(t, group_leader, start_boottime) / TICK_NS;
    c->tgid = t->tgid;
    return c;
}

/* Phases are kept for requests that began in the window that is open or draining. */
static __always_inline bool has_phases(const struct request *r) {
    return r->phase != PHASE_NONE && r->window && r->window == control.window;
}

static __always_inline void charge_phase(struct request *r, struct thread *c, struct task_struct *t, __s64 spent) {
    switch (r->phase) {
    case PHASE_PARSE:
        r->phase_cpu_ns[0] += spent;
        break;
    case PHASE_PROCESS:
        r->phase_cpu_ns[1] += spent;
        break;
    case PHASE_LOG:
        r->phase_cpu_ns[2] += spent;
        /* The log phase has ended, because the thread went on to other work. Without a switch in between, the CPU
         * time used equals the elapsed time. */
        if (!r->end_ns)
            r->end_ns = r->last_send_ns + (spent > 0 ? spent : 0);
        break;
    }
    if (bpf_core_field_exists(t->ioac.read_bytes)) {
        __u64 read_bytes = t->ioac.read_bytes;

        if (c->disk_window == control.window)
            r->disk_bytes += read_bytes - c->disk_mark_bytes;
        c->disk_mark_bytes = read_bytes;
        c->disk_window = control.window;
    }
}

/* Correct up to a constant that is equal on all CPUs and cancels in differences. */
static __always_inline __s64 cpu_clock(struct task_struct *t, __u64 now_ns) {
    __s64 clock = now_ns + t->se.sum_exec_runtime - t->se.exec_start;

    if (bpf_core_field_exists(t->se.cfs_rq)) {
        struct rq *rq = t->se.cfs_rq->rq;

        clock -= rq->clock - rq->clock_task;
    }
    return clock;
}

/* Charges the current thread's CPU time since its last event. Returns the time that belongs to no request, because the
 * thread's last connection has ended or the thread is new. The verifier checks a global function once for each
 * program, and not again for each path to it. */
__noinline __s64 charge_until(struct thread *c, __u64 now_ns) {
    struct task_struct *t = bpf_get_current_task_btf();
    __s64 clock = cpu_clock(t, now_ns);
    __s64 other = 0;

    if (!c)
        return 0;
    if (c->mark_ns) {
        __s64 spent = clock - c->mark_ns;
        struct request *r = request_at(c->slot);

        c->charged_ns += spent;
        if (c->sk && r && r->sk == c->sk) {
            r->cpu_ns += spent;
            if (control.window && has_phases(r))
                charge_phase(r, c, t, spent);
        } else {
            c->other_cpu_ns += spent;
            other = spent;
        }
    }
    c->mark_ns = clock;
    return other;
}

/* Charges the time as above, and makes `sk` the thread's current request. */
static __always_inline __s64 charge(struct thread *c, __u64 sk, __u32 slot, __u64 now_ns) {
    __s64 other = charge_until(c, now_ns);

    c->sk = sk;
    c->slot = slot;
    return other;
}

#endif
