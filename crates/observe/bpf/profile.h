/* SPDX-License-Identifier: Apache-2.0 */
/* Structures shared by the sampler's programs and their reader in src/profile/sampler.rs. The reader's types are
 * generated from these structures, so all padding has names. */
#ifndef STRAINGAUGE_PROFILE_H
#define STRAINGAUGE_PROFILE_H

#define KERNEL_FRAMES 96 /* innermost first; a deeper stack loses its outermost frames */
#define USER_FRAMES 24
#define CPUS 1024 /* a power of two; further CPUs share rows, which then count too little */

/* Receiver of the packet that a CPU handled last in its network softirq. */
enum side {
    SIDE_NOBODY, /* no packet of the port yet */
    SIDE_SERVER, /* received by the server's end */
    SIDE_PEER,   /* received by the other end, on this machine */
};

enum { IN, OUT, DIRECTIONS };
enum { TGID_IDLE = 0, TGID_OTHERS = 0xffffffff };

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* Samples with equal keys are counted together. */
struct sample {
    __u64 kernel_stack; /* hash of the stack; 0 = none */
    __u64 user_stack;
    __u32 tgid;  /* process of the server; else TGID_IDLE, TGID_OTHERS */
    __u32 image; /* process with the same program in memory */
    __u32 reserved;
    __u8 event; /* number of the perf event */
    __u8 side;
    __u8 is_user;
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

/* Packets of the port on one CPU, as the interface counts them: with segmentation offload, a packet has several
 * segments. */
struct cpu_row {
    __u64 side;
    __u64 packets[DIRECTIONS];
    __u64 segments[DIRECTIONS];
    __u64 data_packets[DIRECTIONS]; /* packets with payload */
    __u64 payload_bytes[DIRECTIONS];
    __u64 unread;      /* packets whose header is outside the linear part */
    __u64 lost_stacks; /* stacks lost because the table was full */
    __u64 lost_samples;
    __u64 peer_packets; /* packets received by the other end on this machine */
    __u64 last_ns;      /* time of the clock's last interrupt */
    __u64 arrived;      /* interrupts of the clock */
    __u64 late;         /* periods without an interrupt: it came late, and the timer skipped them */
};

/* Written by the reader: samples and packets count only while the gate is open. */
struct gate {
    __u32 is_open;
    __u32 block;
    __u64 opened_ns; /* interrupts are expected from this time on */
};
struct target {
    __u32 port;
    __u32 netns;     /* inode number of the server's network namespace */
    __u64 period_ns; /* period of the clock */
};

#pragma clang diagnostic pop

#endif
