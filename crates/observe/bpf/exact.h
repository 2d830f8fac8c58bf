/* SPDX-License-Identifier: Apache-2.0 */
/* Structures shared by the programs of the exact profile and their reader in src/profile/exact/programs.rs. The
 * reader's types are generated from these, so the padding has names. */
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
    LAYER_CALIBRATION, /* an empty function, to see what a pair of hooks costs */
    LAYERS = 16,
};
/* What runs. */
enum whose { WHOSE_SERVER, WHOSE_OTHERS, WHOSE_IDLE, WHOSE_TOOL, WHOSES };
/* A process's own work, or that of the packet that a network softirq handles (1 + enum side). */
enum { SIDE_PROCESS, PLACES_OF_WORK = 4 };
#define CELLS (WHOSES * PLACES_OF_WORK * LAYERS)

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* Time by what runs, whose work it is, and layer. */
struct cell {
    __u64 ns;
    __u64 pairs_in;  /* pairs of hooks whose inner part lies in here */
    __u64 pairs_out; /* pairs of hooks whose outer part lies in here */
    __u64 marks;     /* single hooks, once for the part before their time stamp and once for the part after */
};

/* A layer that was entered and not yet left. */
struct frame {
    __u64 id; /* the same at the function's begin and end, different for every call under way */
    __u8 layer;
    __u8 is_network; /* in a network softirq: the packet decides whose work it is */
    __u16 reserved;
    __u32 reserved2;
};

/* One CPU. */
struct exact_cpu {
    __u64 last_ns; /* the time up to here has been charged */
    __u32 depth;
    __u32 whose;
    __u32 side;     /* enum side of the packet that was taken up last */
    __u32 is_known; /* `whose` is set */
    __u64 system_calls[WHOSES];
    __u64 not_entered; /* ends of functions whose begin was not seen */
    __u64 not_left;    /* begins whose end was not seen */
    __u64 too_deep;
    __u64 lost_threads;        /* stacks overwritten by another thread's */
    __u64 hooks;               /* programs run while the gate was open */
    struct frame stack[DEPTH]; /* the first is the mode: user, kernel, idle */
    struct cell cells[CELLS];
};

/* A thread that does not run. */
struct exact_thread {
    __u32 pid; /* 0 = empty */
    __u32 depth;
    struct frame stack[DEPTH];
};

/* CLOCK_MONOTONIC, nanoseconds. Time counts from the first to the second. */
struct exact_gate {
    __u64 opens_ns;
    __u64 closes_ns;
};

/* Set when the programs are loaded. */
struct exact_options {
    __u32 tool_tgid; /* straingauge's process */
    __u32 reserved;
    __u8 layer[SLOTS];
    __u8 is_network[SLOTS];
};

#pragma clang diagnostic pop

#endif
