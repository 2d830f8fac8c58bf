//! What the BPF programs write and the reader reads: the same structures as in `bpf/watch.h`, which asserts the sizes on
//! its side, and says what each field means. All fields are whole numbers, so any bytes are a valid value.
#![allow(missing_docs)]

pub use record::watch::{BUCKETS, PHASES};

/// Size classes at most.
pub const SIZE_CLASSES: usize = 8;
/// Places where a connection's record may lie.
pub const WAYS: u32 = 4;
/// Open requests listed one by one.
pub const OPEN_LISTED: usize = 256;
/// System calls that may end the parse phase.
pub const SYSCALLS: usize = 8;
/// Reads looked into until they are fetched.
pub const LOOKS: usize = 32;
/// Bytes kept of each, at most.
pub const LOOK_BYTES: usize = 1024;
/// Steps of the kernel's timer wheel that are counted apart.
pub const TIME_WAIT_SLOTS: usize = 64;
/// `phase` of a record whose response is being written or was written.
pub const PHASE_LOG: u8 = 3;

/// Marks structures of plain numbers that may be read from memory shared with the kernel.
///
/// # Safety
/// Implementors are `repr(C)`, consist of whole numbers only and have no padding.
pub unsafe trait Shared: Copy {}

macro_rules! shared {
    ($($name:ident = $bytes:literal),+ $(,)?) => {$(
        // SAFETY: repr(C), whole numbers only; the size shows that there is no padding.
        unsafe impl Shared for $name {}
        const _: () = assert!(size_of::<$name>() == $bytes);
    )+};
}

/// `struct request`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RequestRecord {
    pub sk: u64,
    pub begun_ns: u64,
    pub written: u64,
    pub cpu_ns: i64,
    pub bytes_in: u64,
    pub disk_bytes: u64,
    pub receives: u32,
    pub window: u32,
    pub phase: u8,
    pub is_split: u8,
    pub disk_reads: u16,
    pub pid: u32,
    pub parsed_ns: u64,
    pub last_send_ns: u64,
    pub end_ns: u64,
    pub phase_cpu_ns: [i64; PHASES],
    pub sends: u32,
    pub copied: u32,
    pub bytes_sent: u64,
}

/// `struct thread`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ThreadRecord {
    pub pid: u32,
    pub tgid: u32,
    pub slot: u32,
    pub timed: u32,
    pub sk: u64,
    pub mark_ns: i64,
    pub other_cpu_ns: i64,
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub disk_mark_bytes: u64,
    pub disk_window: u32,
    pub sends_in_windows: u32,
    pub elapsed_ns: [u64; PHASES],
    pub phase_cpu_ns: [i64; PHASES],
}

/// `struct class_row`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ClassRow {
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub receives: u64,
    pub cpu_ns: i64,
    pub elapsed_ns: u64,
    pub timed: u64,
    pub reserved: u64,
    pub elapsed: [u64; BUCKETS],
}

/// `struct phase_row`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PhaseRow {
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub receives: u64,
    pub sends: u64,
    pub disk_bytes: u64,
    pub split: u64,
    pub disk_reads: u64,
    pub elapsed_ns: [u64; PHASES],
    pub cpu_ns: [i64; PHASES],
    pub reserved2: [u64; 2],
    pub elapsed: [[u64; BUCKETS]; PHASES],
    pub cpu: [[u64; BUCKETS]; PHASES],
}

/// `struct port_counts`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PortCounts {
    pub entered: [u64; 16],
    pub left: [u64; 16],
    pub time_waits: [u64; TIME_WAIT_SLOTS],
    pub states_missed: u64,
    pub accepted: u64,
    pub closed: u64,
    pub time_wait_entered: u64,
    pub time_wait_reused: u64,
    pub unanswered: u64,
    pub aborted: u64,
    pub retransmits: u64,
    pub resets_sent: u64,
    pub resets_received: u64,
    pub closed_bytes_received: u64,
    pub closed_bytes_acked: u64,
    pub closed_data_segs_in: u64,
    pub closed_data_segs_out: u64,
    pub closed_retransmits: u64,
    pub connects: u64,
    pub connect_elapsed_ns: u64,
    pub connect_cpu_ns: i64,
    pub connects_with_cpu: u64,
    pub connect_elapsed: [u64; BUCKETS],
    pub lost_open: u64,
    pub displaced: u64,
    pub displaced_thread_other_cpu_ns: i64,
    pub displaced_thread_requests: u64,
    pub displaced_thread_bytes_in: u64,
    pub displaced_thread_bytes_out: u64,
    pub displaced_thread_timed: u64,
    pub displaced_thread_elapsed_ns: [u64; PHASES],
    pub displaced_thread_phase_cpu_ns: [i64; PHASES],
    pub switches_seen: u64,
    pub syscalls_seen: u64,
    pub boundaries_seen: u64,
}

/// `struct run_row`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RunRow {
    pub receives: u64,
    pub sends: u64,
    pub switches: u64,
    pub syscalls: u64,
    pub disk_reads: u64,
    pub others: u64,
    pub reserved: [u64; 2],
}

/// `struct watch_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProgramOptions {
    pub class_below_bytes: [u64; SIZE_CLASSES - 1],
    pub netns_inum: u32,
    pub slots_mask: u32,
    pub state_bank: u32,
    pub split_syscalls: [i32; SYSCALLS],
    pub read_syscalls: [i32; 4],
    pub time_wait_jiffies: u32,
    pub time_wait_shift: u32,
    pub port: u16,
    pub reserved: u16,
}

/// `struct control`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Control {
    pub window: u32,
    pub gate: u32,
    pub looks_granted: u32,
    pub by_thread: u32,
}

/// `struct look_count`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LookCount {
    pub taken: u32,
    pub reserved: u32,
}

/// `struct look`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LookRecord {
    pub number: u32,
    pub bytes: u32,
    pub kept: u32,
    pub is_first: u32,
    pub head: [u8; LOOK_BYTES],
}

/// `struct open_request`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OpenRecord {
    pub sk: u64,
    pub begun_ns: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub cpu_ns: i64,
    pub pid: u32,
    pub is_sending: u32,
}

/// `struct sweep_row`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SweepRow {
    pub requests: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub receives: u64,
    pub cpu_ns: i64,
}

/// `struct sweep`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    pub answered: [SweepRow; SIZE_CLASSES],
    pub waiting: u64,
    pub sending: u64,
    pub waiting_cpu_ns: i64,
    pub connections: u64,
    pub now_ns: u64,
    pub now_jiffies: u64,
    pub listed: u32,
    pub reserved: u32,
    pub open: [OpenRecord; OPEN_LISTED],
}

shared! {
    RequestRecord = 128, ThreadRecord = 128, ClassRow = 384, PhaseRow = 2048, PortCounts = 1368, ProgramOptions = 128,
    RunRow = 64, Control = 16, LookCount = 8, LookRecord = 1040, OpenRecord = 48, SweepRow = 40, Sweep = 12664,
}

/// A value of all zeros.
pub fn zeroed<T: Shared>() -> T {
    // SAFETY: `Shared` types are whole numbers only, for which zero bytes are a value.
    unsafe { std::mem::zeroed() }
}

/// The bytes of a value.
pub fn bytes_of<T: Shared>(value: &T) -> &[u8] {
    // SAFETY: `Shared` types have no padding; the slice lives no longer than the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
