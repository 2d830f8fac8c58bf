//! Samples the call in which the server waits. With `select` or `poll`, each call passes the whole set of descriptors
//! and the kernel examines all of them; with epoll or io_uring it does not.

use crate::group::ThreadId;
use crate::maps;
use crate::memory::Memory;
use crate::proc_text::{WaitCall, parse_wait_call};
use crate::processes::living_thread;
use std::fs;
use std::io::ErrorKind;

const MAX_THREADS: usize = 64;
/// Maximum descriptors counted for a select: the kernel's default limit per process (fs.nr_open, proc(5)).
const MAX_SELECTED: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitCalls {
    pub select_or_poll: u64,
    /// Samples in epoll or io_uring.
    pub scalable: u64,
    /// Largest set of a select or poll.
    pub largest_set: u64,
    /// The latest reason why the calls could not be read.
    pub error: Option<String>,
}

impl WaitCalls {
    /// Samples the server's threads once.
    pub fn read(&mut self, threads: &[ThreadId]) {
        for ThreadId { pid, tid } in threads.iter().take(MAX_THREADS) {
            let path = format!("/proc/{pid}/task/{tid}/syscall");
            match fs::read(&path) {
                Ok(text) => {
                    let call = parse_wait_call(&text);
                    self.count(call);
                    if let Some(WaitCall::Select { limit, sets }) = call
                        && let Some(size) = selected(*tid, limit, sets)
                        // The sets belong to the call only if it was still the same afterwards.
                        && fs::read(&path).is_ok_and(|after| after == text)
                    {
                        self.largest_set = self.largest_set.max(size);
                    }
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    self.error = Some("/proc/PID/syscall may be read by root or the server's own user only".into());
                }
                Err(error) if fs::exists("/proc/self/syscall").unwrap_or(false) => drop(error),
                Err(_) => self.error = Some("this kernel has no /proc/PID/syscall".into()),
            }
        }
    }

    fn count(&mut self, call: Option<WaitCall>) {
        match call {
            Some(WaitCall::Poll { descriptors }) => {
                self.select_or_poll += 1;
                self.largest_set = self.largest_set.max(descriptors);
            }
            Some(WaitCall::Select { .. }) => self.select_or_poll += 1,
            Some(WaitCall::Scalable) => self.scalable += 1,
            None => {}
        }
    }

    pub fn add(&mut self, other: WaitCalls) {
        self.select_or_poll += other.select_or_poll;
        self.scalable += other.scalable;
        self.largest_set = self.largest_set.max(other.largest_set);
        self.error = other.error.or_else(|| self.error.take());
    }

    pub fn why_none(&self) -> String {
        self.error.clone().unwrap_or_else(|| "no thread was seen waiting in select, poll, epoll or io_uring".into())
    }
}

/// Number of descriptors in a process's select sets, whatever their numbers.
fn selected(tid: u32, limit: u64, sets: [u64; 3]) -> Option<u64> {
    let memory = Memory::of(tid);
    let words = usize::try_from(limit.min(MAX_SELECTED)).ok()?.div_ceil(64);
    let mut all = vec![0u64; words];
    for address in sets.into_iter().filter(|address| *address != 0) {
        for (all, word) in all.iter_mut().zip(memory.words(address, words)?) {
            *all |= word;
        }
    }
    if let Some(last) = all.last_mut()
        && !limit.is_multiple_of(64)
        && limit < MAX_SELECTED
    {
        *last &= (1 << (limit % 64)) - 1;
    }
    Some(all.iter().map(|word| u64::from(word.count_ones())).sum())
}

/// Whether one of the processes has loaded the library of `straingauge scale`; false if that cannot be read.
pub fn has_scalable_select(pids: &[u32]) -> bool {
    let mappings = |pid: &u32| maps::of_process(living_thread(*pid)).unwrap_or_default();
    let mut all = pids.iter().take(MAX_THREADS).flat_map(mappings);
    all.any(|mapping| mapping.file_name() == "libscalable-select.so")
}
