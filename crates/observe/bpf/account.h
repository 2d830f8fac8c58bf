/* SPDX-License-Identifier: Apache-2.0 */
/* Structures shared by the programs of the account and their reader in src/account. The reader's types are
 * generated from these structures, so all padding has names. Times are nanoseconds of CLOCK_MONOTONIC. */
#ifndef STRAINGAUGE_ACCOUNT_H
#define STRAINGAUGE_ACCOUNT_H

#define ACCOUNT_CPUS 1024 /* a power of two; further CPUs share rows */
#define SYSCALLS_KNOWN 512
#define NAME_BYTES 16  /* length of a thread's name, TASK_COMM_LEN */
#define SUN_PATH 108   /* length of a Unix socket's path */
#define WAIT_FRAMES 24 /* innermost first */

enum doing {
    RUNNING = 1,
    READY_OWN,     /* runnable while its CPU ran another thread of the server */
    READY_OTHERS,  /* runnable while its CPU ran something else */
    READY_STOPPED, /* runnable while its CPU was idle: its control group was stopped, or it was about to run */
    READY_MOVED,   /* runnable before it ran on another CPU; the reason is not known */
    BLOCKED,
};

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

/* A place in a state, for the threads of one name in one process. */
struct place {
    __u32 tgid;
    __s32 call;     /* number of the system call; -1 = none; STOPPED_THREAD */
    __u8 doing;     /* enum doing; FIRST_THREAD marks the process's first thread */
    __u8 file_type; /* type of the descriptor that the call names, as stat's mode >> 12; 0 = none. Of futex:
                      BY_TIMER, BY_THREAD; 0 = not ended */
    __u16 port;     /* port of a socket's other end; of a served socket: what sending waited for */
    __u32 device;   /* device of a file; for a socket its family, and SERVED for the served port; IN_PROGRESS for a wait
                      at a Unix socket that did not end */
    __u64 object[2]; /* a file's inode; the address of a socket's other end, or the kernel's record of its name; for
                        futex the address and the call */
    char name[NAME_BYTES];
};
#define SERVED 0x80000000u
#define IN_PROGRESS 0x40000000u
#define STOPPED_THREAD (-2)
#define WINDOW_CLOSED 1    /* unsent data waited mostly for the receiver's window */
#define SEND_BUFFER_FULL 2 /* all of a full send buffer was sent and waited to be acknowledged */
#define BY_TIMER 0xf       /* the call's timeout ended the wait */
#define BY_THREAD 0xe      /* something else ended the wait */
#define FIRST_THREAD 0x80

/* Use of a place. For RUNNING, `times` and `longest_ns` are of the work between two waits, including preemptions. */
struct wait_use {
    __u64 ns, times, longest_ns;
};

/* A thread's record. */
struct doer {
    __u64 since_ns;
    __u64 woken_ns;                              /* 0 = not woken yet */
    __u64 own_ns, others_ns;                     /* its CPU's clocks when it became runnable */
    __u64 kernel_stack, user_stack, waker_stack; /* hashes of stacks; 0 = not sampled */
    __u64 start_ns;                              /* start of the thread, because its id may have belonged to another */
    __u64 work_ns;                               /* time on a CPU since its last wait */
    __u32 window;
    __u32 cpu;
    __u8 is_running, is_sampled;
    __u8 is_closed;  /* time is counted up to the end of the window */
    __u8 is_summed;  /* its lifetime is in the sums */
    __u8 ended_by;   /* BY_TIMER or BY_THREAD: how its wait ended; 0 = not yet */
    __u8 is_stopped; /* it is blocked by a signal or a debugger, wherever it was */
    __u8 reserved[2];
};

/* One CPU's time with threads of the server, and with other tasks, up to `since_ns`. */
struct cpu_clock {
    __u64 own_ns, others_ns, since_ns;
    __u64 switches, wakings; /* events seen while a window was open */
    __u64 cost_ns;           /* cost of the programs on this CPU in this window, estimated from every sixteenth event */
    __u64 stack_at_ns;       /* when the last stack was taken */
    __u32 ran;               /* what ran last: 0 = idle, 1 = the server, 2 = something else */
    __u32 window;
} __attribute__((aligned(64)));

/* Sampled waits at one place with one stack. */
struct wait_sample {
    struct place place;
    __u64 kernel_stack, user_stack, waker_stack;
};
struct wait_stack {
    __u64 count;
    __u64 frames[WAIT_FRAMES];
};

/* The kernel uses a closed socket's memory for the next one, which has another port. */
struct connection {
    __u64 sk, own_port;
};

/* A connection that the server opened, and the calls on it: a call lasts from the first byte sent after an answer
 * to the first byte of the next answer. */
struct outgoing {
    __u64 busy_since_ns; /* 0 = not busy */
    __u64 busy_ns, calls, longest_ns;
    __u64 address[2]; /* of a Unix socket: the kernel's record of the other end's name, 0 */
    __u32 tgid;
    __u32 window;
    __u16 family, port;
    __u8 protocol;
    __u8 unanswered; /* messages sent after the first one of a call without an answer, at most 255 */
    __u8 reserved[2];
    char path[SUN_PATH];
    __u32 path_bytes;
};

struct account_gate {
    __u64 opened_ns;
    __u64 closes_ns;    /* later events do not count; the programs set it when their cost exceeds the budget */
    __u64 budget_ns;    /* maximum cost of the programs on a CPU in this window */
    __u64 ended_ns;     /* when the reader ended the window */
    __u64 stack_gap_ns; /* minimum time between two stacks on a CPU */
    __u32 window;       /* number of the last window */
    __u32 is_open;      /* set until the window has been read */
    __u32 port;
    __u32 reserved;
};

/* Sums of the closing walk over all threads, and losses. */
struct account_sums {
    __u64 threads_ns; /* lifetime of the threads within the window */
    __u64 threads;
    __u64 lost_places, lost_threads, lost_stacks, lost_calls;
};

#pragma clang diagnostic pop

#endif
