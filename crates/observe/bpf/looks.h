/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies the protocol on the port. Requests are counted by changes of direction, which is wrong if a read has
 * several of them or none. So at each reading, the reader grants some samples: for the next reads that begin a
 * request, the first bytes are copied from the server's buffer, which the arguments of its system call name. Calls
 * of io_uring name no buffer there: `kept` stays 0.
 *
 * The first bytes of what is sent show the status of a response. */
#ifndef STRAINGAUGE_LOOKS_H
#define STRAINGAUGE_LOOKS_H

MAPPED(looks, LOOKS, struct look);

struct look_count look_count SEC(".bss.looks");

/* The buffer of the current system call, if it is one of these; 0 if unknown. */
static __always_inline __u64 buffer_of(struct task_struct *t, const volatile __s32 *calls) {
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(t);
    __s64 number = (__s32)SYSCALL_NUMBER(regs);
    __u64 at = SECOND_ARGUMENT(regs);

    if (number == calls[CALL_PLAIN] || number == calls[CALL_ADDRESSED])
        return at;
    /* struct msghdr: the third word points to the pieces. */
    if (number == calls[CALL_MESSAGE] && bpf_probe_read_user(&at, sizeof(at), (void *)(at + 16)))
        return 0;
    if (number == calls[CALL_MESSAGE] || number == calls[CALL_PIECES]) {
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
    at = buffer_of(t, options.read_syscalls);
    /* Bounded here, so that older verifiers still track the bound. */
    asm volatile("" : "+r"(length));
    if (length > LOOK_BYTES)
        length = LOOK_BYTES;
    if (at && !bpf_probe_read_user(l->head, length, (void *)at))
        l->kept = length;
    l->number = number + 1;
}

/* Counts the status of a response whose status line begins the sent bytes. */
static __always_inline void note_status(struct task_struct *t, __u32 bytes) {
    char line[12]; /* HTTP/1.1 200 */
    __u64 at;

    if (bytes < sizeof(line))
        return;
    at = buffer_of(t, options.write_syscalls);
    if (!at || bpf_probe_read_user(line, sizeof(line), (void *)at))
        return;
    if (line[0] != 'H' || line[1] != 'T' || line[2] != 'T' || line[3] != 'P' || line[4] != '/' || line[9] == '1')
        return;
    COUNT(STATUS_LINES);
    if (line[9] == '5' || (line[9] == '4' && line[10] == '2' && line[11] == '9'))
        COUNT(SERVER_ERRORS);
    else if (line[9] == '4')
        COUNT(CLIENT_ERRORS);
}

#endif
