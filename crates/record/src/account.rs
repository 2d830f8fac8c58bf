//! The account of a window: what the server's threads did in each nanosecond of it, and how long its connections to
//! other servers waited for an answer.

use crate::profile::Frame;
use crate::text::PlainText;
use serde::{Deserialize, Serialize};

crate::worded! {
    /// What a blocked thread waits for.
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
        /// A child process, in a thread that waits for nothing else.
        Children = "child processes",
        /// A child process, in a thread that serves requests as well.
        Child = "a child process to end",
        /// Another thread to hand out work: a condition variable, a semaphore.
        Work = "work",
        /// Another thread to release a lock: futex, flock, semaphore.
        Lock = "a lock",
        /// Time to pass.
        Sleep = "time to pass",
        /// A file or its disk.
        File = "a file",
        /// A reader of a full pipe.
        Pipe = "the reader of a pipe",
        /// Another server, at a socket.
        Backend = "another server",
        /// A client to take an answer.
        Send = "a client to read",
        /// Memory: a page that is not there, a mapping in use.
        Memory = "memory",
        /// A system call that is none of these.
        Other = "another system call",
    }
}

impl WaitKind {
    /// Whether a thread without work waits so.
    pub fn is_idle(self) -> bool {
        matches!(self, WaitKind::Events | WaitKind::Requests | WaitKind::Input | WaitKind::Children | WaitKind::Work)
    }
}

/// The program of a group of processes that ended within the window.
pub const ENDED: &str = "ended processes";

/// The account of one window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Account {
    /// Time that was accounted for, nanoseconds. Shorter than the point's window where the whole would have cost too
    /// much.
    pub window_ns: u64,
    /// Sum of the threads' lives within that time, nanoseconds: what the groups' times add up to.
    pub threads_ns: u64,
    /// Threads alive at its end.
    pub threads: u64,
    /// Threads by program and name; those with the most time at work first.
    pub groups: Vec<ThreadGroup>,
    /// Connections that the server opened, by the other end; the busiest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendUse>,
    /// Why connections to other servers were not timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_no_backends: Option<String>,
    /// CPU time of the programs that kept the account, nanoseconds, by every sixteenth event.
    pub cost_ns: u64,
    /// Events, threads or places that had no room.
    #[serde(default, skip_serializing_if = "crate::account::is_zero")]
    pub lost: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Threads of one name in processes of one program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThreadGroup {
    /// The program. Untrusted text.
    pub program: PlainText,
    /// The threads' name. Untrusted text.
    pub name: PlainText,
    /// Whether these are the threads that their processes began with; those that they started are another group.
    pub is_first: bool,
    /// On a CPU, nanoseconds.
    pub running_ns: u64,
    /// Stretches of work between two waits of a thread.
    #[serde(default)]
    pub works: u64,
    /// CPU time of the longest of them, nanoseconds.
    #[serde(default)]
    pub longest_work_ns: u64,
    /// Runnable while another thread of the server had the CPU, nanoseconds.
    pub ready_own_ns: u64,
    /// Runnable while something else had the CPU, nanoseconds.
    pub ready_others_ns: u64,
    /// Runnable while the CPU was idle: a limit of CPU time had stopped it, or it was about to run. Nanoseconds.
    pub ready_stopped_ns: u64,
    /// Runnable before running on another CPU than before, nanoseconds: what ran meanwhile is not known.
    pub ready_moved_ns: u64,
    /// Blocked, by what for; the longest first.
    pub waits: Vec<Wait>,
    /// Processes of the group, the one that ran most first.
    pub processes: Vec<ProcessUse>,
}

/// Blocked time at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Wait {
    /// Purpose of the wait: a lock, a file, another server, new work.
    pub kind: WaitKind,
    /// System call; empty where there is none.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub call: PlainText,
    /// The lock's function or address, the file's path, the other server's address. Untrusted text.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub object: PlainText,
    /// Time, nanoseconds, summed over the threads.
    pub ns: u64,
    /// Number of waits.
    pub times: u64,
    /// The longest one, nanoseconds.
    pub longest_ns: u64,
    /// Sampled stacks of it; those with the most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<WaitStack>,
}

/// A stack that waits were sampled with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WaitStack {
    /// From the system call inwards, innermost first: the kernel's functions, then the program's.
    pub frames: Vec<Frame>,
    /// The program's functions of the thread that ended the wait, innermost first; empty where that was not seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken_by: Vec<Frame>,
    /// Time of the sampled waits, nanoseconds.
    pub ns: u64,
    /// Number of the sampled waits.
    pub samples: u64,
}

/// One process's part of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessUse {
    /// Number of the process.
    pub pid: u32,
    /// On a CPU, nanoseconds.
    pub running_ns: u64,
    /// Blocked as a thread without work is, nanoseconds.
    pub idle_ns: u64,
    /// All its threads' time in this group, nanoseconds.
    pub ns: u64,
}

/// Connections to one other server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BackendUse {
    /// Address of the other server. Untrusted text.
    pub address: PlainText,
    /// Connections on which something was sent.
    pub connections: u64,
    /// Time from the first byte sent to the first byte received after it, summed over the connections, nanoseconds.
    pub busy_ns: u64,
    /// Number of completed times in `busy_ns`.
    pub calls: u64,
    /// Longest time in `busy_ns`, nanoseconds.
    pub longest_ns: u64,
}

impl ThreadGroup {
    /// Runnable, without a CPU, nanoseconds.
    pub fn ready_ns(&self) -> u64 {
        self.ready_own_ns + self.ready_others_ns + self.ready_stopped_ns + self.ready_moved_ns
    }

    /// Blocked time of the kinds that `is_wanted` names, nanoseconds.
    pub fn blocked_ns(&self, is_wanted: impl Fn(WaitKind) -> bool) -> u64 {
        self.waits.iter().filter(|wait| is_wanted(wait.kind)).map(|wait| wait.ns).sum()
    }

    /// All of its time, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.running_ns + self.ready_ns() + self.blocked_ns(|_| true)
    }
}

impl Account {
    /// The mean number of threads that a time is the sum of.
    pub fn mean(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// A sum over all groups.
    pub fn sum(&self, of: impl Fn(&ThreadGroup) -> u64) -> u64 {
        self.groups.iter().map(of).sum()
    }

    /// The share of the threads' time in which they were blocked in one of these ways, and the number of these waits;
    /// no share where no thread lived.
    pub fn blocked(&self, kinds: &[WaitKind]) -> (Option<f64>, u64) {
        let waits = self.groups.iter().flat_map(|group| &group.waits).filter(|wait| kinds.contains(&wait.kind));
        let (ns, times) = waits.fold((0, 0), |(ns, times), wait| (ns + wait.ns, times + wait.times));
        ((self.threads_ns > 0).then(|| ns as f64 / self.threads_ns as f64), times)
    }

    /// By how much the groups' times differ from the threads' lives, as a share of these: 0 = the account closes.
    pub fn open_ratio(&self) -> f64 {
        self.sum(ThreadGroup::total_ns) as f64 / self.threads_ns.max(1) as f64 - 1.0
    }
}
