/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel structures that the programs read, with only the fields that they read. The offsets do not matter:
 * clang records each access, and libbpf adapts it to the running kernel's layout (CO-RE) from its BTF. A field that
 * some kernel since 5.15 lacks is checked with bpf_core_field_exists before it is read. */
#ifndef STRAINGAUGE_KERNEL_TYPES_H
#define STRAINGAUGE_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

/* include/uapi/linux/bpf.h */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024 };
enum { ONLY_NEW = 1 /* BPF_NOEXIST */, OF_USER = 1 << 8 /* BPF_F_USER_STACK */ };

#define MAP(name, kind, flags, entries, key_type, value_type) \
    struct {                                                  \
        __uint(type, BPF_MAP_TYPE_##kind);                    \
        __uint(map_flags, flags);                             \
        __uint(max_entries, entries);                         \
        __type(key, key_type);                                \
        __type(value, value_type);                            \
    } name SEC(".maps")
#define TABLE(name, entries, key_type, value_type) MAP(name, HASH, 0, entries, key_type, value_type)
/* An array that the reader maps into its memory. */
#define MAPPED(name, entries, value_type) MAP(name, ARRAY, BPF_F_MMAPABLE, entries, __u32, value_type)

/* include/net/tcp_states.h */
enum {
    TCP_ESTABLISHED = 1,
    TCP_SYN_SENT,
    TCP_SYN_RECV,
    TCP_FIN_WAIT1,
    TCP_FIN_WAIT2,
    TCP_TIME_WAIT,
    TCP_CLOSE,
    TCP_CLOSE_WAIT,
    TCP_LAST_ACK,
    TCP_LISTEN,
    TCP_CLOSING,
};
enum { IPPROTO_TCP = 6, IPPROTO_MPTCP = 262, AF_INET6 = 10 };
enum { MSG_PEEK = 0x2, MSG_ERRQUEUE = 0x2000 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
    unsigned int inum;
};
struct net {
    struct ns_common ns;
};
typedef struct {
    struct net *net;
} possible_net_t;

struct in6_addr {
    union {
        __be32 u6_addr32[4];
    } in6_u;
};

struct sock_common {
    __be32 skc_daddr;
    __be32 skc_rcv_saddr;
    unsigned int skc_hash;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    volatile unsigned char skc_state;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
};
struct sock {
    struct sock_common __sk_common;
    int sk_err;
    __u16 sk_protocol;
};
struct socket {
    struct sock *sk;
};
struct sockaddr_un {
    unsigned short sun_family;
    char sun_path[108];
};
struct unix_address {
    int len;
    struct sockaddr_un name[];
};
struct unix_sock {
    struct sock sk;
    struct unix_address *addr;
    struct sock *peer;
};
struct inet_sock {
    struct sock sk;
    __be16 inet_sport;
};
struct inet_connection_sock {
    struct inet_sock icsk_inet;
};
struct tcp_sock {
    struct inet_connection_sock inet_conn;
    __u32 copied_seq;
    __u32 write_seq;
    __u32 snd_una;
    __u32 snd_nxt;
    __u32 data_segs_in;
    __u32 data_segs_out;
    __u32 total_retrans;
    __u64 bytes_received;
    __u64 bytes_acked;
    __u64 tcp_clock_cache; /* CLOCK_MONOTONIC, ns */
    __u64 tcp_wstamp_ns;   /* when the last segment left */
    __u64 first_tx_mstamp; /* when the last acknowledged segment left, microseconds */
    /* time with data to send, jiffies: on the path, limited by the receiver's window, limited by the send buffer */
    __u32 chrono_stat[3];
    bool is_mptcp; /* whether this is a path of an MPTCP connection */
};
struct mptcp_sock {
    struct inet_connection_sock sk;
    __u64 write_seq;    /* position in the stream of responses */
    struct sock *first; /* the first path */
};

struct rq {
    __u64 clock;
    __u64 clock_task; /* like `clock`, without interrupts and stolen time */
};
struct cfs_rq {
    struct rq *rq;
};
struct sched_entity {
    __u64 exec_start;
    __u64 sum_exec_runtime;
    struct cfs_rq *cfs_rq; /* CONFIG_FAIR_GROUP_SCHED */
};
struct task_io_accounting {
    __u64 read_bytes;
};
struct super_block {
    __u32 s_dev;
};
struct inode {
    unsigned short i_mode;
    struct super_block *i_sb;
    unsigned long i_ino;
};
struct file {
    struct inode *f_inode;
    void *private_data;
};
struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};
struct files_struct {
    struct fdtable *fdt;
};
struct signal_struct {
    __u64 sum_sched_runtime; /* CPU time of ended threads */
};
struct task_struct {
    unsigned int __state;
    int on_cpu;
    struct sched_entity se;
    int pid;
    int tgid;
    int exit_state;
    struct task_struct *group_leader;
    __u64 start_time; /* CLOCK_MONOTONIC */
    __u64 start_boottime;
    char comm[16];
    struct files_struct *files;
    struct signal_struct *signal;
    struct task_io_accounting ioac;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long r10;
    unsigned long si;
    unsigned long di;
    unsigned long orig_ax;
    unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
    __u64 regs[31];
    __u64 orig_x0;
    __s32 syscallno;
};
#endif
struct net_device {
    possible_net_t nd_net;
};
struct sk_buff {
    struct net_device *dev;
    __u16 transport_header;
    unsigned char *head;
};
struct bpf_map;

struct bio {
    unsigned int bi_opf;
};

struct bpf_iter__task {
    struct task_struct *task;
};

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NUMBER(regs) ((regs)->orig_ax)
#define FIRST_ARGUMENT_OF(regs) ((regs)->di)
#define SECOND_ARGUMENT(regs) ((regs)->si)
#define FOURTH_ARGUMENT(regs) ((regs)->r10)
#define FUNCTION_ARGUMENT(regs) ((regs)->di)
/* Reads the return address of a function without a frame that makes a system call. In other functions the stack pointer
 * is at any word, and each would make another stack: so this is only for glibc's way to return from a call, which is
 * followed by `cmp $-4095, %rax; jae; ret`. */
#define READ_RETURN_ADDRESS(to, regs, after_call)                           \
    do {                                                                    \
        __u64 code = 0;                                                     \
        bpf_probe_read_user(&code, sizeof(code), (void *)(after_call) + 1); \
        if (code == 0xc30173fffff0013dULL)                                  \
            bpf_probe_read_user(to, sizeof(*(to)), (void *)(regs)->sp);     \
    } while (0)
#elif defined(__TARGET_ARCH_arm64)
#define SYSCALL_NUMBER(regs) ((regs)->syscallno)
#define FIRST_ARGUMENT_OF(regs) ((regs)->orig_x0)
#define SECOND_ARGUMENT(regs) ((regs)->regs[1])
#define FOURTH_ARGUMENT(regs) ((regs)->regs[3])
#define FUNCTION_ARGUMENT(regs) ((regs)->regs[0])
#define READ_RETURN_ADDRESS(to, regs, after_call) (*(to) = (regs)->regs[30])
#else
#error "no rule yet for the registers of this architecture"
#endif
#endif
