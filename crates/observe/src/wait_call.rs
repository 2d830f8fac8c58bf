//! Which call the server waits in. A server that waits in `select` or `poll` hands the kernel its whole set of descriptors
//! with every call, and the kernel looks at all of them; with epoll or io_uring it does not.

use crate::proc_text::{WaitCall, parse_wait_call};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Threads looked at in one reading.
const MAX_THREADS: usize = 64;

/// The waits that were seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    /// In select or poll.
    pub select_or_poll: u64,
    /// In epoll or io_uring.
    pub scalable: u64,
    /// Largest set of a select or poll.
    pub largest_set: u64,
    /// Why they cannot be seen, the last time.
    pub error: Option<String>,
}

impl Waits {
    /// Looks at threads of the server once.
    pub fn read(&mut self, threads: &[(u32, u32)]) {
        for (pid, tid) in threads.iter().take(MAX_THREADS) {
            match fs::read(format!("/proc/{pid}/task/{tid}/syscall")) {
                Ok(text) => self.count(parse_wait_call(&text)),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    self.error = Some("/proc/PID/syscall may be read by root or the server's own user only".into());
                }
                // The thread has ended.
                Err(error) if fs::exists("/proc/self/syscall").unwrap_or(false) => drop(error),
                Err(_) => self.error = Some("this kernel has no /proc/PID/syscall".into()),
            }
        }
    }

    fn count(&mut self, call: Option<WaitCall>) {
        match call {
            Some(WaitCall::SelectOrPoll { descriptors }) => {
                self.select_or_poll += 1;
                self.largest_set = self.largest_set.max(descriptors);
            }
            Some(WaitCall::Scalable) => self.scalable += 1,
            None => {}
        }
    }

    /// Adds a reading.
    pub fn add(&mut self, other: Waits) {
        self.select_or_poll += other.select_or_poll;
        self.scalable += other.scalable;
        self.largest_set = self.largest_set.max(other.largest_set);
        self.error = other.error.or_else(|| self.error.take());
    }

    /// Why there is no figure.
    pub fn why_none(&self) -> String {
        self.error.clone().unwrap_or_else(|| "no thread was seen waiting in select, poll, epoll or io_uring".into())
    }
}

/// Whether one of the processes has the library of `straingauge scale` in its memory; false where that cannot be read.
pub fn has_scalable_select(pids: &[u32]) -> bool {
    pids.iter().take(MAX_THREADS).any(|pid| {
        let Ok(entries) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return false };
        let files: HashSet<&str> = entries.lines().filter_map(|line| line.split_whitespace().nth(5)).collect();
        files.iter().any(|file| Path::new(file).file_name().is_some_and(|name| name == "libscalable-select.so"))
    })
}
