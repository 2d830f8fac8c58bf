//! epoll with timeouts in nanoseconds: `epoll_pwait2`, or where a sandbox refuses it (old seccomp profiles of
//! containers, gVisor, valgrind) `epoll_wait` with its milliseconds rounded up.

use crate::socket::Errno;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Events of an established connection: readable, and peer's half closed, edge-triggered. Without "writable", because
/// each acknowledgement would then be an event.
pub(crate) const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// [`READABLE`] and writable, for a connect in progress or a partly sent request.
pub(crate) const WRITABLE_TOO: u32 = READABLE | libc::EPOLLOUT as u32;

const BATCH: usize = 512;

pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    has_pwait2: bool,
}

// Both are the kernel's epoll_event.
const _: () = assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>());

// SAFETY: the data of all events are numbers, not pointers.
unsafe impl Send for Poller {}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, events: vec![none; BATCH], has_pwait2: true })
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

    pub(crate) fn is_full(&self, count: usize) -> bool {
        count == self.events.len()
    }

    #[inline]
    pub(crate) fn event(&self, index: usize) -> (u32, u64) {
        let epoll::Event { flags, data } = self.events[index];
        (flags.bits(), data.u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes this thread's calls of `epoll_pwait2` fail, as in a sandbox.
    fn refuse_pwait2() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = [
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_epoll_pwait2 as u32),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the program lives through the call, which copies it.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn a_sandbox_without_epoll_pwait2_gets_milliseconds() {
        let waiting = std::thread::spawn(|| {
            refuse_pwait2();
            let mut poller = Poller::new().unwrap();
            let (mine, other) = std::os::unix::net::UnixStream::pair().unwrap();
            poller.add(mine.as_raw_fd(), READABLE, 7).unwrap();
            assert_eq!(poller.wait(1_500_000), Ok(0));
            std::io::Write::write_all(&mut &other, b"x").unwrap();
            assert_eq!(poller.wait(1_500_000), Ok(1));
            assert_eq!(poller.event(0).1, 7);
            assert!(!poller.has_pwait2);
        });
        waiting.join().unwrap();
    }
}
