//! epoll with timeouts in nanoseconds: `epoll_pwait2`, or where a sandbox refuses it (old seccomp profiles of
//! containers, gVisor, valgrind) `epoll_wait` with its milliseconds rounded up.

use crate::socket::Errno;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Events of an established connection: readable, and peer's half closed, edge-triggered. Without "writable", because
/// each acknowledgement would then be an event.
pub const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// [`READABLE`] and writable, for a connect in progress or a partly sent request.
pub(crate) const WRITABLE_TOO: u32 = READABLE | libc::EPOLLOUT as u32;

const BATCH: usize = 512;

/// An epoll instance with room for the events of a wait.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    has_pwait2: bool,
}

// Both are the kernel's epoll_event.
const _: () = assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>());

// SAFETY: the data of all events are numbers, not pointers.
unsafe impl Send for Poller {}

impl Poller {
    /// Opens the epoll instance.
    pub fn new() -> Result<Self, Errno> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: vec![none; BATCH], has_pwait2: true })
    }

    /// Adds a file descriptor; `data` comes back with its events.
    pub fn add(&self, fd: i32, interest: u32, data: u64) -> Result<(), Errno> {
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
    pub fn wait(&mut self, timeout_ns: u64) -> Result<usize, Errno> {
        const SECOND: u64 = 1_000_000_000;
        if !self.has_pwait2 {
            return self.wait_ms(timeout_ns.div_ceil(1_000_000));
        }
        let timeout = Timespec { tv_sec: (timeout_ns / SECOND) as i64, tv_nsec: (timeout_ns % SECOND) as i64 };
        match epoll::wait(&self.epoll, &mut self.events[..], Some(&timeout)) {
            Err(Errno::INTR) => Ok(0),
            Err(Errno::NOSYS | Errno::PERM) => {
                self.has_pwait2 = false;
                self.wait(timeout_ns)
            }
            waited => waited,
        }
    }

    fn wait_ms(&mut self, timeout_ms: u64) -> Result<usize, Errno> {
        let events = self.events.as_mut_ptr().cast::<libc::epoll_event>();
        let (most, timeout_ms) = (self.events.len() as i32, timeout_ms.min(i32::MAX as u64) as i32);
        // SAFETY: the buffer has room for `most` events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events, most, timeout_ms) };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL) {
                Errno::INTR => Ok(0),
                error => Err(error),
            },
        }
    }

    /// Whether timeouts are in nanoseconds, not in milliseconds.
    pub fn is_exact(&self) -> bool {
        self.has_pwait2
    }

    pub(crate) fn is_full(&self, count: usize) -> bool {
        count == self.events.len()
    }

    /// Conditions and data of an event of the last wait.
    #[inline]
    pub fn event(&self, index: usize) -> (u32, u64) {
        let epoll::Event { flags, data } = self.events[index];
        (flags.bits(), data.u64())
    }
}
