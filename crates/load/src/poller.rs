//! epoll with timeouts in nanoseconds.

use crate::socket::Errno;
use rustix::event::{Timespec, epoll};
use rustix::fd::{BorrowedFd, OwnedFd};

/// Events of an established connection: readable, and peer's half closed, edge-triggered. Without "writable", because
/// each acknowledgement would then be an event.
pub(crate) const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// [`READABLE`] and writable, for a connect in progress or a partly sent request.
pub(crate) const WRITABLE_TOO: u32 = READABLE | libc::EPOLLOUT as u32;

/// Maximum events per call.
const BATCH: usize = 512;

pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

// SAFETY: the data of all events are numbers, not pointers.
unsafe impl Send for Poller {}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: vec![none; BATCH] })
    }

    pub(crate) fn add(&self, fd: i32, interest: u32, data: u64) -> Result<(), Errno> {
        let flags = epoll::EventFlags::from_bits_retain(interest);
        // SAFETY: the caller owns the descriptor and keeps it open during the call.
        epoll::add(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) }, epoll::EventData::new_u64(data), flags)
    }

    pub(crate) fn modify(&self, fd: i32, interest: u32, data: u64) -> Result<(), Errno> {
        let flags = epoll::EventFlags::from_bits_retain(interest);
        // SAFETY: as in `add`.
        epoll::modify(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) }, epoll::EventData::new_u64(data), flags)
    }

    /// Waits for at most `timeout_ns` (0: polls once). Returns the number of events for [`Poller::event`].
    #[inline]
    pub(crate) fn wait(&mut self, timeout_ns: u64) -> Result<usize, Errno> {
        const SECOND: u64 = 1_000_000_000;
        let timeout = Timespec { tv_sec: (timeout_ns / SECOND) as i64, tv_nsec: (timeout_ns % SECOND) as i64 };
        match epoll::wait(&self.epoll, &mut self.events[..], Some(&timeout)) {
            Err(Errno::INTR) => Ok(0),
            waited => waited,
        }
    }

    pub(crate) fn is_full(&self, count: usize) -> bool {
        count == self.events.len()
    }

    #[inline]
    pub(crate) fn event(&self, index: usize) -> (u32, u64) {
        let epoll::Event { flags, data } = self.events[index];
        (flags.bits(), data.u64())
    }
}
