//! epoll with nanosecond timeouts: `epoll_pwait2` (Linux 5.11), else `epoll_wait` with its milliseconds rounded up.

use crate::socket::Errno;

/// Events of an established connection: readable, and peer's half closed, edge-triggered. Without "writable", because
/// each acknowledgement would then be an event.
pub(crate) const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
/// [`READABLE`] and writable, for a connect in progress or a partly sent request.
pub(crate) const WRITABLE_TOO: u32 = READABLE | libc::EPOLLOUT as u32;

/// Maximum events per call.
const BATCH: usize = 512;

pub(crate) struct Poller {
    fd: i32,
    events: Vec<libc::epoll_event>,
    has_pwait2: bool,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        Ok(Poller { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH], has_pwait2: true })
    }

    fn control(&self, operation: libc::c_int, fd: i32, interest: u32, data: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events: interest, u64: data };
        // SAFETY: the event lives through the call; a closed or foreign descriptor only gives an error.
        let result = unsafe { libc::epoll_ctl(self.fd, operation, fd, &mut event) };
        if result < 0 { Err(Errno::last()) } else { Ok(()) }
    }

    pub(crate) fn add(&self, fd: i32, interest: u32, data: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, data)
    }

    pub(crate) fn modify(&self, fd: i32, interest: u32, data: u64) -> Result<(), Errno> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, data)
    }

    /// Waits for at most `timeout_ns` (0: polls once). Returns the number of events for [`Poller::event`].
    #[inline]
    pub(crate) fn wait(&mut self, timeout_ns: u64) -> Result<usize, Errno> {
        let capacity = self.events.len() as libc::c_int;
        let count = if self.has_pwait2 && timeout_ns > 0 {
            let timeout = libc::timespec {
                tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
            };
            // SAFETY: the event buffer has `capacity` entries, the timespec lives through the call, no signal mask.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.fd,
                    self.events.as_mut_ptr(),
                    capacity,
                    std::ptr::from_ref(&timeout),
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            };
            if count < 0 && Errno::last().0 == libc::ENOSYS {
                self.has_pwait2 = false;
                return self.wait(timeout_ns);
            }
            count
        } else {
            let millis = timeout_ns.div_ceil(1_000_000).min(i32::MAX as u64) as libc::c_int;
            // SAFETY: the event buffer has `capacity` entries.
            libc::c_long::from(unsafe { libc::epoll_wait(self.fd, self.events.as_mut_ptr(), capacity, millis) })
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match Errno::last() {
                Errno(libc::EINTR) => Ok(0),
                error => Err(error),
            },
        }
    }

    pub(crate) fn is_full(&self, count: usize) -> bool {
        count == self.events.len()
    }

    #[inline]
    pub(crate) fn event(&self, index: usize) -> (u32, u64) {
        let event = self.events[index];
        (event.events, event.u64)
    }

    pub(crate) fn method(&self) -> &'static str {
        if self.has_pwait2 { "epoll_pwait2" } else { "epoll_wait (milliseconds: no epoll_pwait2)" }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        crate::socket::close(self.fd);
    }
}
