/* SPDX-License-Identifier: Apache-2.0 */
/* Structures shared by the programs of the exact profile and their reader in src/profile/exact/programs.rs. The
 * reader's types are generated from these structures, so all padding has names. */
#ifndef STRAINGAUGE_EXACT_H
#define STRAINGAUGE_EXACT_H

#define SLOTS 96   /* boundary functions that can be hooked at once */
#define DEPTH 32   /* frames of a stack of layers; a power of two */
#define TASKS 4096 /* threads whose stacks are kept while they do not run; a power of two */

/* Numbers of record::layers::Layer in its order, and three more. */
enum layer {
    LAYER_USER,
    LAYER_SYSTEM_CALL,
    LAYER_TCP,
    LAYER_IP,
    LAYER_ETHERNET,
    LAYER_DRIVER,
    LAYER_OTHER,
    LAYER_IDLE,
    LAYER_UNKNOWN,     /* the thread was running before the programs were loaded */
    LAYER_MEASUREMENT, /* the work of the programs themselves */
    LAYER_CALIBRATION, /* an empty function, which measures the cost of a pair of hooks */
    LAYERS = 16,
};
enum whose { WHOSE_SERVER, WHOSE_OTHERS, WHOSE_IDLE, WHOSE_TOOL, WHOSES };
/* The process's own work, or that of a packet that a network softirq handles (1 + enum side). */
enum { SIDE_PROCESS, PLACES_OF_WORK = 4 };
#define CELLS (WHOSES * PLACES_OF_WORK * LAYERS)

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* Time by what runs, whose work it is, and layer. */
struct cell {
    __u64 ns;
    __u64 pairs_in;  /* pairs of hooks whose inner part is in this layer */
    __u64 pairs_out; /* pairs of hooks whose outer part is in this layer */
    __u64 marks;     /* single hooks: once for the part before their time stamp, once for the part after */
};

/* A layer that was entered and not yet left. */
struct frame {
    __u64 id; /* identifies the call: equal at its begin and end, different for all calls in progress */
    __u8 layer;
    __u8 is_network; /* in a network softirq, where the packet decides whose work it is */
    __u16 reserved;
    __u32 reserved2;
};

struct exact_cpu {
    __u64 last_ns; /* time up to here has been charged */
    __u32 depth;
    __u32 whose;
    __u32 side;     /* enum side of the current packet */
    __u32 is_known; /* whether `whose` is known */
    __u64 system_calls[WHOSES];
    __u64 not_entered; /* ends of functions whose begin was not seen */
    __u64 not_left;    /* begins whose end was not seen */
    __u64 too_deep;
    __u64 lost_threads;        /* stacks overwritten by those of other threads */
    __u64 hooks;               /* programs run while the gate was open */
    struct frame stack[DEPTH]; /* the first is the mode: user, kernel, idle */
    struct cell cells[CELLS];
};

/* The stack of a thread that does not run. */
struct exact_thread {
    __u32 pid; /* 0 = unused */
    __u32 depth;
    struct frame stack[DEPTH];
};

/* The window on CLOCK_MONOTONIC, nanoseconds: time counts between the two. */
struct exact_gate {
    __u64 opens_ns;
    __u64 closes_ns;
};

/* Set before the programs are loaded. */
struct exact_options {
    __u32 tool_tgid; /* straingauge's process */
    __u32 reserved;
    __u8 layer[SLOTS];
    __u8 is_network[SLOTS];
};

#pragma clang diagnostic pop

#endif
