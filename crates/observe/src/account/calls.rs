//! The event that a blocked thread waits for, by its system call and the file that the call names.

use record::account::{STOPPED, WaitKind};

/// Meaning of a call's first argument, with the values in `bpf/account.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    Other = 0,
    Futex = 1,
    Descriptor = 2,
}

/// A system call that threads block in.
#[derive(Debug)]
pub struct Call {
    pub number: i64,
    pub name: &'static str,
    argument: Argument,
    kind: CallMeaning,
}

#[derive(Debug, Clone, Copy)]
enum CallMeaning {
    This(WaitKind),
    Reading,
    Writing,
}

macro_rules! calls {
    ($($argument:ident $means:expr => $($name:ident)+;)+) => {
        &[$($(Call {
            number: libc::$name,
            name: stringify!($name),
            argument: Argument::$argument,
            kind: $means,
        }),+),+]
    };
}

use CallMeaning::{Reading, This, Writing};
use WaitKind::{Backend, Children, Events, File, Input, Lock, Memory, Requests, Sleep};

static CALLS: &[Call] = calls! {
    Other This(Events) => SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6 SYS_io_uring_enter;
    Other This(Requests) => SYS_accept SYS_accept4;
    Other This(Children) => SYS_wait4 SYS_waitid;
    Other This(Input) => SYS_rt_sigtimedwait SYS_rt_sigsuspend;
    Futex This(Lock) => SYS_futex;
    Other This(Lock) => SYS_semop SYS_semtimedop;
    Descriptor This(Lock) => SYS_flock SYS_fcntl;
    Other This(Sleep) => SYS_nanosleep SYS_clock_nanosleep;
    Descriptor This(Backend) => SYS_connect;
    Descriptor Reading => SYS_read SYS_readv SYS_pread64 SYS_preadv SYS_preadv2 SYS_recvfrom SYS_recvmsg SYS_recvmmsg
        SYS_splice;
    Descriptor Writing => SYS_write SYS_writev SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_sendto SYS_sendmsg SYS_sendmmsg
        SYS_sendfile SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_syncfs SYS_ftruncate SYS_fallocate SYS_fstat
        SYS_getdents64;
    Other This(File) => SYS_openat SYS_openat2 SYS_newfstatat SYS_statx SYS_unlinkat SYS_renameat2 SYS_mkdirat
        SYS_close SYS_msync SYS_readlinkat SYS_faccessat SYS_linkat SYS_sync SYS_truncate;
    Other This(Memory) => SYS_mmap SYS_munmap SYS_mprotect SYS_madvise SYS_brk SYS_mremap;
};

/// Calls that newer architectures lack.
#[cfg(target_arch = "x86_64")]
static OLDER_CALLS: &[Call] = calls! {
    Other This(Events) => SYS_epoll_wait SYS_poll SYS_select;
    Other This(Input) => SYS_pause;
    Other This(File) => SYS_open SYS_stat SYS_lstat SYS_unlink SYS_rename SYS_mkdir SYS_access;
};
#[cfg(not(target_arch = "x86_64"))]
static OLDER_CALLS: &[Call] = &[];

pub fn all() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(OLDER_CALLS)
}

/// The meanings of first arguments, by the number of the call, for the BPF programs.
pub fn arguments<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut table = [0; LENGTH];
    for call in all() {
        if let Some(place) = usize::try_from(call.number).ok().and_then(|at| table.get_mut(at)) {
            *place = call.argument as u8;
        }
    }
    table
}

/// Kind of the descriptor that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorKind {
    /// No descriptor, or an unknown one.
    Nothing,
    /// A file or folder, or a disk.
    File,
    Pipe,
    /// A socket of the served port.
    Served,
    Socket,
    /// A Unix socket without a name, where no wait ended.
    Silent,
    /// A terminal, an eventfd or a timer.
    Source,
}

/// Number of a call that stands for a stop (account.h).
const STOPPED_THREAD: i32 = -2;

/// The event that a thread waits for in this call, and the call's name. A number below 0 means no call, or a stop.
pub fn meaning(number: i32, names: DescriptorKind) -> (WaitKind, String) {
    if number == STOPPED_THREAD {
        return (WaitKind::Other, STOPPED.into());
    }
    if number < 0 {
        return (Memory, String::new());
    }
    let Some(call) = all().find(|call| call.number == i64::from(number)) else {
        return (WaitKind::Other, format!("system call {number}"));
    };
    let kind = match (call.kind, names) {
        (This(Backend), DescriptorKind::Served) => Requests,
        (This(kind), _) => kind,
        (Reading, DescriptorKind::Served) => Requests,
        (Writing, DescriptorKind::Served) => WaitKind::Send,
        (Reading | Writing, DescriptorKind::Socket) | (Writing, DescriptorKind::Silent) => Backend,
        (Reading | Writing, DescriptorKind::File) => File,
        (Writing, DescriptorKind::Pipe | DescriptorKind::Source) => WaitKind::Pipe,
        (Reading, DescriptorKind::Pipe | DescriptorKind::Source | DescriptorKind::Silent) => Input,
        (Reading | Writing, _) => WaitKind::Other,
    };
    (kind, call.name.trim_start_matches("SYS_").to_string())
}
