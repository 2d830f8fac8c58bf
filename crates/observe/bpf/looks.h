/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies the protocol on the port. Requests are counted by changes of direction, which is wrong if a read has
 * several of them or none. So at each reading, the reader grants some samples: for the next reads that begin a
 * request, the first bytes are copied from the server's buffer, which the arguments of its system call name. Reads
 * of io_uring name no buffer there: `kept` stays 0. */
#ifndef STRAINGAUGE_LOOKS_H
#define STRAINGAUGE_LOOKS_H

MAPPED(looks, LOOKS, struct look);

struct look_count look_count SEC(".bss.looks");

/* The buffer of the current system call; 0 if unknown. */
static __always_inline __u64 buffer_of_read(struct task_struct *t) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(t);
    __s64 number = (__s32)SYSCALL_NUMBER(regs);
    __u64 at = SECOND_ARGUMENT(regs);

    if (number == options.read_syscalls[READ_PLAIN] || number == options.read_syscalls[READ_FROM])
        return at;
    /* struct msghdr: the third word points to the pieces. */
    if (number == options.read_syscalls[READ_MESSAGE] && bpf_probe_read_user(&at, sizeof(at), (void *)(at + 16)))
        return 0;
    if (number == options.read_syscalls[READ_MESSAGE] || number == options.read_syscalls[READ_PIECES]) {
        /* struct iovec: the first word is the address. */
        if (!bpf_probe_read_user(&at, sizeof(at), (void *)at))
            return at;
    }
    return 0;
}

/* Samples a read of `bytes` that begins a request. */
static __always_inline void look(struct task_struct *t, __u32 bytes) {
    __u32 number, i;
    struct look *l;
    __u64 at, length = bytes;

    if ((__s32)(control.looks_granted - look_count.taken) <= 0)
        return;
    number = __sync_fetch_and_add(&look_count.taken, 1);
    i = number % LOOKS;
    l = bpf_map_lookup_elem(&looks, &i);
    if (!l)
        return;
    l->bytes = bytes;
    l->kept = 0;
    at = buffer_of_read(t);
    /* Bounded here, so that older verifiers still track the bound. */
    asm volatile("" : "+r"(length));
    if (length > LOOK_BYTES)
        length = LOOK_BYTES;
    if (at && !bpf_probe_read_user(l->head, length, (void *)at))
        l->kept = length;
    l->number = number + 1;
}

#endif
