//! The account of a window: the state of each of the server's threads in every nanosecond, and the time of its calls
//! to other servers.

use crate::profile::Frame;
use crate::text::PlainText;
use serde::{Deserialize, Serialize};

crate::worded! {
    /// The event that a blocked thread waits for.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema
    )]
    #[serde(rename_all = "kebab-case")]
    pub enum WaitKind {
        /// Events of several descriptors: epoll, poll, select, io_uring.
        Events = "events",
        /// A new connection or the next request on one.
        Requests = "requests",
        /// Bytes from a pipe, terminal, timer or signal.
        Input = "input",
        /// A child process, in a thread with no other work.
        Children = "child processes",
        /// A child process, in a thread that also serves requests.
        Child = "a child process to end",
        /// Work from another thread: a condition variable, a semaphore.
        Work = "work",
        /// The release of a lock by another thread: futex, flock, semaphore.
        Lock = "a lock",
        /// A sleep until a time.
        Sleep = "time to pass",
        /// A file or the disk under it.
        File = "a file",
        /// The reader of a full pipe, or of a socket on which it answers nothing.
        Pipe = "the reader of a pipe",
        /// Response of another server, at a socket.
        Backend = "another server",
        /// A client that reads the answer.
        Send = "a client to read",
        /// Memory: a missing page, or a mapping in use.
        Memory = "memory",
        /// Any other system call.
        Other = "another system call",
    }
}

impl WaitKind {
    /// Whether a thread without work waits in this way.
    pub fn is_idle(self) -> bool {
        matches!(self, WaitKind::Events | WaitKind::Requests | WaitKind::Input | WaitKind::Children | WaitKind::Work)
    }
}

/// The program name for a group of processes that ended within the window.
pub const ENDED: &str = "ended processes";

/// The call of a thread that a signal or a debugger stopped.
pub const STOPPED: &str = "a stop by a signal or a debugger";

/// The object of a wait for the lock of a process's address space.
pub const ADDRESS_SPACE: &str = "its address space";

/// The object of a send that waits for the receiver's window and not for the path.
pub const CLOSED_WINDOW: &str = "to a client that does not read";

/// The object of a send that waits for the acknowledgement of all that a full send buffer holds.
pub const SEND_BUFFER: &str = "with a full send buffer";

/// The module of functions that a Java machine named.
pub const JAVA: &str = "java";

/// Account of a window: the state of each of the server's threads at every moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Account {
    /// Length of the account's window, nanoseconds. Shorter than the point's window if the whole would have cost too
    /// much.
    pub window_ns: u64,
    /// Sum of the threads' lifetimes in the window, nanoseconds. The groups' times add up to it.
    pub threads_ns: u64,
    /// Number of threads alive at the end of the window.
    pub threads: u64,
    /// Threads by program and name; those with the most time at work first.
    pub groups: Vec<ThreadGroup>,
    /// Connections that the server opened, by the other end; the busiest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendUse>,
    /// Goroutines of a Go server, or threads of a Java server, that wait inside it, by place; the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<Parked>,
    /// Number of readings in which they were counted.
    #[serde(default, skip_serializing_if = "crate::sum::is_zero")]
    pub parked_readings: u64,
    /// Why connections to other servers were not timed; absent if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_no_backends: Option<String>,
    /// CPU time of the programs that kept the account, nanoseconds; every sixteenth event is measured.
    pub cost_ns: u64,
    /// Events, threads or places for which the tables had no room.
    #[serde(default, skip_serializing_if = "crate::sum::is_zero")]
    pub lost: u64,
}

/// What waits at one place inside a program; the kernel does not see why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Parked {
    /// Go's name of the reason, or the Java class; empty if they could run and had no thread. Untrusted text.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: PlainText,
    /// Functions, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Number of goroutines or threads, summed over the readings.
    pub count: u64,
}

/// Threads of one name in processes of one program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadGroup {
    /// Name of the program. Untrusted text.
    pub program: PlainText,
    /// Name of the threads. Untrusted text.
    pub name: PlainText,
    /// Whether these are the first threads of their processes. Threads that a process started later form another
    /// group.
    pub is_first: bool,
    /// Time on a CPU, nanoseconds.
    pub running_ns: u64,
    /// Number of stretches of work between two waits of a thread.
    #[serde(default)]
    pub works: u64,
    /// CPU time of the longest stretch of work between two waits of a thread, nanoseconds.
    #[serde(default)]
    pub longest_work_ns: u64,
    /// Time runnable while another thread of the server had its CPU, nanoseconds.
    pub ready_own_ns: u64,
    /// Time runnable while other work had its CPU, nanoseconds.
    pub ready_others_ns: u64,
    /// Time runnable while its CPU was idle, nanoseconds: stopped by a CPU time limit, or about to run.
    pub ready_stopped_ns: u64,
    /// Time runnable before running on another CPU than before, nanoseconds. The work on the earlier CPU is not
    /// known.
    pub ready_moved_ns: u64,
    /// Blocked time by place; the longest first.
    pub waits: Vec<Wait>,
    /// Processes of the group; the one with most CPU time first.
    pub processes: Vec<ProcessUse>,
}

/// Blocked time at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Wait {
    /// Purpose of the wait: a lock, a file, another server, new work.
    pub kind: WaitKind,
    /// System call of the wait; empty if there is none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub call: PlainText,
    /// The lock's function or address, the file's path, the other server's address. Untrusted text.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub object: PlainText,
    /// Time of the waits, summed over the threads, nanoseconds.
    pub ns: u64,
    /// Number of waits.
    pub times: u64,
    /// Longest wait, nanoseconds.
    pub longest_ns: u64,
    /// Sampled stacks of the waits; those with the most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<WaitStack>,
}

/// A stack that was sampled in waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WaitStack {
    /// Functions, innermost first: the kernel's from the system call inwards, then the program's.
    pub frames: Vec<Frame>,
    /// Functions of the program's thread that ended the wait, innermost first; empty if not seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken_by: Vec<Frame>,
    /// Time of the sampled waits with this stack, nanoseconds.
    pub ns: u64,
    /// Number of the sampled waits with this stack.
    pub samples: u64,
}

/// One process's part of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessUse {
    /// Id of the process.
    pub pid: u32,
    /// Time of the process's threads on a CPU, nanoseconds.
    pub running_ns: u64,
    /// Time of the process's threads blocked without work, nanoseconds.
    pub idle_ns: u64,
    /// Time of all of the process's threads in this group, nanoseconds.
    pub ns: u64,
}

/// Connections to one other server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BackendUse {
    /// Address of the other server. Untrusted text.
    pub address: PlainText,
    /// Whether a process of the measured server listens there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
    /// Connections on which the server sent something.
    pub connections: u64,
    /// Time of the calls, from the first byte sent to the first byte received after it, summed over the connections,
    /// nanoseconds.
    pub busy_ns: u64,
    /// Number of calls in `busy_ns`.
    pub calls: u64,
    /// Longest call, nanoseconds.
    pub longest_ns: u64,
}

impl ThreadGroup {
    /// Runnable time without a CPU, nanoseconds.
    pub fn ready_ns(&self) -> u64 {
        self.ready_own_ns + self.ready_others_ns + self.ready_stopped_ns + self.ready_moved_ns
    }

    /// Blocked time of the kinds that `is_wanted` names, nanoseconds.
    pub fn blocked_ns(&self, is_wanted: impl Fn(WaitKind) -> bool) -> u64 {
        self.waits.iter().filter(|wait| is_wanted(wait.kind)).map(|wait| wait.ns).sum()
    }

    /// All time of the group, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.running_ns + self.ready_ns() + self.blocked_ns(|_| true)
    }
}

impl Account {
    /// Converts a sum of times into a mean number of threads.
    pub fn mean(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// A sum over all groups.
    pub fn sum(&self, of: impl Fn(&ThreadGroup) -> u64) -> u64 {
        self.groups.iter().map(of).sum()
    }

    /// The share of the threads' time blocked in these kinds of waits, and the number of waits. No share if there was
    /// no thread.
    pub fn blocked(&self, kinds: &[WaitKind]) -> (Option<f64>, u64) {
        let waits = self.groups.iter().flat_map(|group| &group.waits).filter(|wait| kinds.contains(&wait.kind));
        let (ns, times) = waits.fold((0, 0), |(ns, times), wait| (ns + wait.ns, times + wait.times));
        ((self.threads_ns > 0).then(|| ns as f64 / self.threads_ns as f64), times)
    }

    /// Difference between the groups' times and the threads' lifetimes, as a share of the lifetimes: 0 = the account
    /// adds up exactly.
    pub fn open_ratio(&self) -> f64 {
        self.sum(ThreadGroup::total_ns) as f64 / self.threads_ns.max(1) as f64 - 1.0
    }
}
