//! The process that owns something, as a word that can be part of a name. With the name, anybody can check later
//! whether the process still runs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

/// Process id and start time, and the machine on which both are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Owner {
    /// Number of the process.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of /proc/PID/stat). Distinguishes the process from a later one
    /// with the same id.
    pub start_ticks: u64,
    /// Hash of the machine's boot and the PID namespace in which id and start time are valid.
    pub place: u32,
}

/// State of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// The process runs.
    Alive,
    /// The process has ended.
    Ended,
    /// The process belongs to another boot, container or machine, so its state is unknown.
    Elsewhere,
}

/// Words for [`OwnerState::Elsewhere`] of the process that writes a run.
pub const ELSEWHERE: &str = "its process is on another machine, in another container, or was before a restart";

impl Owner {
    /// This process.
    pub fn of_this_process() -> Self {
        static THIS: LazyLock<(u64, u32)> =
            LazyLock::new(|| (start_ticks(std::process::id()).unwrap_or(0), this_place()));
        let (start_ticks, place) = *THIS;
        Owner { pid: std::process::id(), start_ticks, place }
    }

    /// Whether the process still runs. A zombie has ended.
    pub fn life(&self) -> OwnerState {
        if self.place != this_place() {
            return OwnerState::Elsewhere;
        }
        match start_ticks(self.pid) {
            Some(ticks) if ticks == self.start_ticks => OwnerState::Alive,
            _ => OwnerState::Ended,
        }
    }

    /// Parses the word that [`Display`](fmt::Display) writes: `1234-9f3c21-0a1b2c3d`.
    pub fn parse(word: &str) -> Option<Self> {
        let mut parts = word.split('-');
        let (pid, start, place) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_whole = parts.next().is_none() && pid.bytes().all(|byte| byte.is_ascii_digit());
        if !is_whole || !is_hex(start) || !is_hex(place) {
            return None;
        }
        Some(Owner {
            pid: pid.parse().ok().filter(|pid| *pid > 0)?,
            start_ticks: u64::from_str_radix(start, 16).ok()?,
            place: u32::from_str_radix(place, 16).ok()?,
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{:x}-{:08x}", self.pid, self.start_ticks, self.place)
    }
}

/// The hash of this boot (/proc/sys/kernel/random/boot_id) and this process-id namespace (FNV-1a).
fn this_place() -> u32 {
    static PLACE: LazyLock<u32> = LazyLock::new(|| {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |facts| facts.ino());
        let text = format!("{}{namespace}", boot_id());
        text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    });
    *PLACE
}

/// The id of this boot; empty if it cannot be read.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

/// [`Owner::start_ticks`] of a process.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let fields = stat_fields(pid)?;
    if matches!(fields.first()?.as_str(), "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The fields of /proc/PID/stat from the state on, which is the third. The command before it, in parentheses, may
/// contain spaces and parentheses.
pub(crate) fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_string).collect())
}
