/* SPDX-License-Identifier: Apache-2.0 */
/* Phases by the server's own functions: uprobes at the functions that end parsing, processing
 * and logging. A probe traps, which costs microseconds, so probes are attached only in few and
 * short windows.
 *
 * The thread's last socket event determines its request. One read may contain several requests
 * (pipelining); the end of one is then the start of the next. */
#ifndef STRAINGAUGE_BOUNDARIES_H
#define STRAINGAUGE_BOUNDARIES_H

/* Marks parallel to the table of requests, slot by slot; a single slot without a pack. */
MAP(marks, ARRAY, 0, 1, __u32, struct mark); /* set by the reader */

MAPPED(boundary_phases, SIZE_CLASSES, struct phase_row);

/* Probes may be preempted, so rows are shared by all CPUs and written atomically. */
static __always_inline void record_boundaries(struct request *r, struct mark *m, __u64 bytes_out, __u64 now_ns) {
    __u32 i = class_of(bytes_out);
    struct phase_row *row = bpf_map_lookup_elem(&boundary_phases, &i);

    if (!row)
        return;
    __sync_fetch_and_add(&row->requests, 1);
    __sync_fetch_and_add(&row->elapsed_ns[0], m->parsed_ns > m->begun_ns ? m->parsed_ns - m->begun_ns : 0);
    __sync_fetch_and_add(&row->elapsed_ns[1], m->processed_ns - m->parsed_ns);
    __sync_fetch_and_add(&row->elapsed_ns[2], now_ns - m->processed_ns);
    __sync_fetch_and_add(&row->cpu_ns[0], m->parsed_cpu_ns - m->begun_cpu_ns);
    __sync_fetch_and_add(&row->cpu_ns[1], m->processed_cpu_ns - m->parsed_cpu_ns);
    __sync_fetch_and_add(&row->cpu_ns[2], r->cpu_ns - m->processed_cpu_ns);
}

SEC("?uprobe")
int on_boundary(struct pt_regs *regs) {
    __u64 boundary = bpf_get_attach_cookie(regs);
    struct task_struct *t = bpf_get_current_task_btf();
    struct thread *c = find_thread(t->pid);
    struct request *r;
    struct mark *m;
    __u64 now_ns, end_ns, sent_ns;
    __u32 slot, unacked;

    if (!control.window || !c || !c->sk)
        return 0;
    slot = c->slot;
    r = request_at(slot);
    m = bpf_map_lookup_elem(&marks, &slot);
    if (!r || !m || r->sk != c->sk || !has_phases(r))
        return 0;
    __sync_fetch_and_add(&counts.boundaries_seen, 1);
    now_ns = bpf_ktime_get_ns();
    /* This event ends no phase that is based on reads and sends. */
    end_ns = r->end_ns;
    charge(c, c->sk, slot, now_ns);
    r->end_ns = end_ns;
    if (m->window != r->window || m->request_ns != r->begun_ns) {
        m->window = r->window;
        m->request_ns = m->begun_ns = r->begun_ns;
        m->begun_cpu_ns = 0;
        m->parsed_ns = m->processed_ns = 0;
    }
    switch (boundary) {
    case BOUNDARY_PARSED:
        if (!m->parsed_ns) {
            m->parsed_ns = now_ns;
            m->parsed_cpu_ns = r->cpu_ns;
        }
        break;
    case BOUNDARY_PROCESSED:
        if (m->parsed_ns && !m->processed_ns) {
            m->processed_ns = now_ns;
            m->processed_cpu_ns = r->cpu_ns;
        }
        break;
    case BOUNDARY_LOGGED:
        if (!m->processed_ns)
            break;
        record_boundaries(r, m, written_position_of(r->sk, &sent_ns, &unacked) - r->written, now_ns);
        m->begun_ns = now_ns;
        m->begun_cpu_ns = r->cpu_ns;
        m->parsed_ns = m->processed_ns = 0;
        break;
    }
    return 0;
}

#endif
