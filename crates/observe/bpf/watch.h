/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the programs and their reader in src/watch/programs.rs. The reader's types are generated from these
 * structures, so all padding has names. All times are nanoseconds of CLOCK_MONOTONIC unless the name says
 * otherwise; all counts are cumulative since attach. */
#ifndef STRAINGAUGE_WATCH_H
#define STRAINGAUGE_WATCH_H

#include "counters.h" /* written by build.rs */

#define SIZE_CLASSES 8     /* maximum; the last class in use is unbounded */
#define BUCKETS 40         /* log2 of ns >> 6: bucket b is [2^(b+5), 2^(b+6)) ns, bucket 0 is below 64 ns */
#define WAYS 4             /* places in which a connection's record may be */
#define THREADS 4096       /* number of distinguished threads; a power of two */
#define OPEN_LISTED 256    /* maximum open requests that are listed one by one */
#define SYSCALLS 8         /* system calls that end the parse phase */
#define LOOKS 32           /* maximum samples until the reader fetches them */
#define LOOK_BYTES 1024    /* maximum bytes of each sample */
#define TIME_WAIT_SLOTS 64 /* steps of the kernel's timer wheel; a minute has fewer */

/* System calls that read or write, by what their second argument points to. */
enum { CALL_PLAIN, CALL_ADDRESSED, CALL_PIECES, CALL_MESSAGE, CALLS };

enum boundary { BOUNDARY_PARSED = 1, BOUNDARY_PROCESSED, BOUNDARY_LOGGED }; /* see pack.rs */
enum phase { PHASE_NONE, PHASE_PARSE, PHASE_PROCESS, PHASE_LOG, PHASES = 3 };

#pragma clang diagnostic push
#pragma clang diagnostic error "-Wpadded"

struct histogram {
    __u64 buckets[BUCKETS];
};

/* A connection and its request in progress. Counting touches only the first cache line. */
struct request {
    __u64 sk;       /* owner; 0 = free */
    __u64 begun_ns; /* first byte read; before that, when the connection was established */
    __u64 written;  /* position of the request's begin in the stream of responses */
    __s64 cpu_ns;
    __u64 bytes_in; /* 0 = connected, nothing read yet */
    __u64 disk_bytes;
    __u32 receives;
    __u32 window; /* window in which the request began; 0 = none */
    __u8 phase;
    __u8 is_split;    /* the parse phase ended at a system call, not at the first send */
    __u16 disk_reads; /* reads from block devices; saturates */
    __u32 pid;        /* thread that read last */
    /* Second line: phases, written only in windows. */
    __u64 parsed_ns, last_send_ns, end_ns;
    __s64 phase_cpu_ns[PHASES];
    __u32 sends;
    __u32 copied;     /* position in the stream of requests up to which events have counted it */
    __u64 bytes_sent; /* bytes sent in this window; after the server's end of the stream, by the last request */
} __attribute__((aligned(128)));

/* A thread of the server: the request it worked on last, and up to when its CPU time is charged. */
struct thread {
    __u32 pid, tgid;    /* `pid`: 0 = ended */
    __u32 slot;         /* slot of the record of `sk` */
    __u32 timed;        /* requests finished by the thread whose phases are summed below */
    __u64 sk;           /* socket of the last event; 0 = between connections */
    __s64 mark_ns;      /* the thread's CPU clock, up to a constant; 0 = its work so far belongs to no request */
    __s64 other_cpu_ns; /* CPU time of no request: accept, close */
    __u64 requests, bytes_in;
    __s64 charged_ns; /* CPU time between its events */
    /* Second line. */
    __u64 bytes_out;
    __u64 disk_mark_bytes; /* the thread's disk reads up to its last event in a window */
    __u32 disk_window;
    __u32 sends_in_windows;
    __u64 elapsed_ns[PHASES]; /* written only in windows */
    __s64 phase_cpu_ns[PHASES];
    /* Third line. */
    __u64 process_start_ticks; /* start of the process with the id `tgid` */
    __u64 reserved[6];
} __attribute__((aligned(64)));

/* When the server's own functions handled the request of a slot. */
struct mark {
    __u64 request_ns; /* `begun_ns` of its request */
    __u64 begun_ns;   /* equal to `request_ns`; for a later request of a read, when the one before was logged */
    __u64 parsed_ns, processed_ns; /* 0 = not yet */
    __s64 begun_cpu_ns, parsed_cpu_ns, processed_cpu_ns;
    __u32 window;
    __u32 reserved;
};

/* Finished requests of a size class on one CPU. */
struct class_row {
    __u64 requests, bytes_in, bytes_out, receives;
    __s64 cpu_ns;
    __u64 elapsed_ns, timed; /* `timed` counts the requests with an end time */
    __u64 reserved;
    struct histogram elapsed;
} __attribute__((aligned(64)));

/* Finished requests of a size class with phases, on one CPU. */
struct phase_row {
    __u64 requests, sends, disk_bytes, disk_reads;
    __u64 split; /* requests whose parse phase ended at a system call, not at the first send */
    __u64 elapsed_ns[PHASES];
    __s64 cpu_ns[PHASES];
    __u64 reserved[5];
} __attribute__((aligned(64)));

/* Connections of the port: counted on each transition. */
struct port_counts {
    /* Sockets that entered and left each state since attach, by the kernel's number of the state. */
    __u64 entered[16], left[16];
    /* Sockets that entered TIME_WAIT since attach, by the step of the timer wheel at which they leave. The step's
     * number is in the upper half, a signed count in the lower half. Valid until that step. */
    __u64 time_waits[TIME_WAIT_SLOTS];
    __u64 time_wait_entered;
    __u64 time_wait_reused;   /* sockets that left TIME_WAIT early because their client connected from the same port */
    __u64 counters[COUNTERS]; /* COUNT(NAME); declared in crates/record/src/watch/counters.rs */
    /* from establishment to the first byte read; CPU if the thread did nothing else between */
    __u64 connects, connect_elapsed_ns;
    __s64 connect_cpu_ns;
    __u64 connects_with_cpu;
    /* CPU time of threads whose place was taken by others */
    __s64 displaced_thread_other_cpu_ns;
    __u64 displaced_thread_requests, displaced_thread_bytes_in, displaced_thread_bytes_out;
    __u64 displaced_thread_timed, displaced_thread_elapsed_ns[PHASES];
    __s64 displaced_thread_phase_cpu_ns[PHASES];
    __u64 boundaries_seen; /* calls of the server's functions seen in windows */
};

/* Runs of programs on one CPU for events of any port: each run has a cost. */
struct run_row {
    __u64 receives, sends, switches, syscalls, disk_reads;
    __u64 others; /* states, retransmissions, resets; also in softirq */
    __u64 reserved[2];
} __attribute__((aligned(64)));

/* Fixed before the programs are loaded: the verifier sees constants. */
struct watch_options {
    __u64 class_below_bytes[SIZE_CLASSES - 1]; /* upper ends of the size classes; ~0 if unused */
    __u32 slots_mask;                          /* number of slots in the table of requests, minus 1 */
    __u32 state_bank;                          /* bank of rows for the state hook: the number of possible CPUs */
    __s32 split_syscalls[SYSCALLS];            /* numbers of the system calls that end the parse phase; -1 if unused */
    __s32 read_syscalls[CALLS];                /* read, recvfrom, readv, recvmsg */
    __s32 write_syscalls[CALLS];               /* write, sendto, writev, sendmsg */
    __u32 time_wait_jiffies;                   /* duration of TIME_WAIT */
    __u32 time_wait_shift;                     /* log2 of the jiffies in a step of the timer wheel for that duration */
};

/* Number of granted samples taken so far. */
struct look_count {
    __u32 taken, reserved;
};

/* The first bytes of a read that began a request. */
struct look {
    __u32 number; /* number of the sample, from 1; 0 = none yet */
    __u32 bytes;  /* bytes read */
    __u32 kept;   /* bytes kept in `head`; 0 = the buffer is unknown */
    __u32 reserved;
    __u8 head[LOOK_BYTES];
};

/* Written by the reader while the programs run. */
struct control {
    __u32 window;        /* number of the window that is open or draining; 0 = none */
    __u32 gate;          /* whether requests that begin now get phases */
    __u32 looks_granted; /* reads that may be sampled, since attach; grows */
    __u32 by_thread;     /* whether phases are summed by thread; not in windows of probes, which change the times */
    __u32 counts;        /* whether requests that begin now are counted */
    __u32 port;          /* the watched port */
    __u32 netns_inum;    /* network namespace of the port; 0 = any */
    __u32 reserved;
};

/* A request that no event has finished yet, found by a sweep. */
struct open_request {
    __u64 sk, begun_ns, bytes_in, bytes_out;
    __s64 cpu_ns;
    __u32 pid, is_sending;
};
struct sweep_row {
    __u64 requests, bytes_in, bytes_out, receives;
    __s64 cpu_ns;
};
struct sweep {
    struct sweep_row answered[SIZE_CLASSES]; /* responses that were written; the connection's next event ends them */
    __u64 waiting;                           /* request read, no response yet */
    __u64 sending;                           /* response written, but not fully acknowledged */
    __s64 waiting_cpu_ns;
    __u64 now_ns, now_jiffies;
    __u32 listed;
    __u32 reserved;
    struct open_request open[OPEN_LISTED];
};

#pragma clang diagnostic pop

_Static_assert(sizeof(struct request) == 128, "two cache lines");
_Static_assert(sizeof(struct thread) == 192, "three cache lines");

#endif
