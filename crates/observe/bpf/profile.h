/* SPDX-License-Identifier: Apache-2.0 */
/* Structures shared by the sampler's programs and their reader in src/profile/sampler.rs. The reader's types are
 * generated from these, so the padding has names. */
#ifndef STRAINGAUGE_PROFILE_H
#define STRAINGAUGE_PROFILE_H

#define KERNEL_FRAMES 96 /* innermost first; a deeper stack loses its outermost frames */
#define USER_FRAMES 24
#define CPUS 1024 /* a power of two; CPUs beyond share rows, which then count too little */

/* The end whose packet a CPU handled last in its network softirq. */
enum side {
    SIDE_NOBODY, /* none yet, or none of the port */
    SIDE_SERVER, /* received by the server's end */
    SIDE_PEER,   /* received by the other end, on this machine */
};

enum { SAMPLE_USER = 1, SAMPLE_STACK_LOST = 2 };
enum { IN, OUT, DIRECTIONS };
enum { TGID_IDLE = 0, TGID_OTHERS = 0xffffffff };

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* Samples with equal keys are counted together. */
struct sample {
    __u64 kernel_stack; /* hash; 0 = none */
    __u64 user_stack;
    __u32 tgid;  /* of the server's processes; else TGID_IDLE, TGID_OTHERS */
    __u32 image; /* process with the same program in memory */
    __u32 reserved;
    __u8 event; /* number of the perf event */
    __u8 side;
    __u8 flags;
    __u8 block; /* tenth of the window */
};

struct kernel_stack {
    __u64 count;
    __u64 frames[KERNEL_FRAMES];
};
struct user_stack {
    __u64 count;
    __u64 frames[USER_FRAMES];
};

/* One CPU's packets of the port, as the interface counts them: with segmentation offload a packet carries several
 * segments. */
struct cpu_row {
    __u64 side;
    __u64 packets[DIRECTIONS];
    __u64 segments[DIRECTIONS];
    __u64 data_packets[DIRECTIONS]; /* with payload */
    __u64 payload_bytes[DIRECTIONS];
    __u64 unread;      /* headers that lie outside the linear part */
    __u64 lost_stacks; /* table full */
    __u64 lost_samples;
    __u64 peer_packets; /* received by the other end on this machine */
    __u64 last_ns;      /* the clock's last interrupt */
    __u64 arrived;      /* interrupts of the clock */
    __u64 late;         /* periods without one: the interrupt came late, and the timer skips missed periods */
};

/* Written by the reader: samples and packets count only while the gate is open. */
struct gate {
    __u32 is_open;
    __u32 block;
    __u64 opened_ns; /* interrupts are expected from then on */
};
struct target {
    __u32 port;
    __u32 netns;     /* inode number of the server's network namespace */
    __u64 period_ns; /* of the clock */
};

#pragma clang diagnostic pop

#endif
