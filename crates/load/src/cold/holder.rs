//! Holds established connections: in the file tables of io_uring rings, or as ordinary descriptors.
//!
//! A ring's table is limited to `RLIMIT_NOFILE` entries, but each ring has its own, and an entry is not a descriptor of
//! the process: so a few rings hold hundreds of thousands of connections. Each held connection has one armed poll that
//! fires when the server closes it or sends something.

use super::Keep;
use crate::poller::{Poller, READABLE};
use crate::socket::{self, Errno};
use io_uring::{IoUring, opcode, types};

/// Slots whose connections fired or ended.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// The server closed the connection, or sent something without a request: it is no longer cold.
    pub fired: Vec<u32>,
    /// Released on request.
    pub released: Vec<u32>,
}

pub(super) enum Holder {
    Rings(Rings),
    Descriptors(Descriptors),
}

impl Holder {
    /// Uses rings if they are wanted and the kernel allows one, else descriptors, and returns the reason.
    pub(super) fn new(poller: &Poller, per_ring: u32, keep: Keep) -> Result<(Self, Option<String>), Errno> {
        let plain = || Holder::Descriptors(Descriptors { fds: Vec::new(), free: Vec::new() });
        if keep != Keep::Best {
            return Ok((plain(), Some("io_uring is not used".into())));
        }
        match Ring::new(per_ring) {
            Ok(ring) => {
                let mut rings = Rings { rings: Vec::new(), per_ring };
                rings.add(ring, poller)?;
                Ok((Holder::Rings(rings), None))
            }
            Err(error) => {
                let why = format!("io_uring is not available ({})", error.io());
                Ok((plain(), Some(why)))
            }
        }
    }

    /// Takes over an established connection's descriptor; the slot identifies it from now on.
    pub(super) fn hold(&mut self, fd: i32, poller: &Poller) -> Result<u32, Errno> {
        match self {
            Holder::Rings(rings) => rings.hold(fd, poller),
            Holder::Descriptors(plain) => plain.hold(fd, poller),
        }
    }

    /// Closes a connection on our side; it appears in [`Gone::released`] once it is closed.
    pub(super) fn release(&mut self, slot: u32, gone: &mut Gone) -> Result<(), Errno> {
        match self {
            Holder::Rings(rings) => rings.release(slot),
            Holder::Descriptors(plain) => {
                plain.close(slot);
                gone.released.push(slot);
                Ok(())
            }
        }
    }

    pub(super) fn is_descriptors(&self) -> bool {
        matches!(self, Holder::Descriptors(_))
    }

    /// Closes the connections that the server ended. `event` is the poller's data of a descriptor that fired.
    pub(super) fn fired(&mut self, event: u64, gone: &mut Gone) {
        if let Holder::Descriptors(plain) = self {
            let slot = event as u32;
            plain.close(slot);
            gone.fired.push(slot);
        }
    }

    /// Submits the queued entries and takes the completions.
    pub(super) fn drain(&mut self, gone: &mut Gone) -> Result<(), Errno> {
        match self {
            Holder::Rings(rings) => rings.drain(gone),
            Holder::Descriptors(_) => Ok(()),
        }
    }
}

/// Data of the poller's events that mean "a ring has completions", not a connection.
pub(super) const RING_EVENT: u64 = 1 << 63;
/// Data of the poller's events of held descriptors.
pub(super) const HELD_EVENT: u64 = 1 << 62;

pub(super) struct Descriptors {
    fds: Vec<i32>,
    free: Vec<u32>,
}

impl Descriptors {
    fn hold(&mut self, fd: i32, poller: &Poller) -> Result<u32, Errno> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.fds.push(-1);
            self.fds.len() as u32 - 1
        });
        self.fds[slot as usize] = fd;
        poller.modify(fd, READABLE, HELD_EVENT | u64::from(slot))?;
        Ok(slot)
    }

    fn close(&mut self, slot: u32) {
        let fd = std::mem::replace(&mut self.fds[slot as usize], -1);
        if fd >= 0 {
            socket::close(fd);
            self.free.push(slot);
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for fd in self.fds.iter().filter(|fd| **fd >= 0) {
            socket::close(*fd);
        }
    }
}

pub(super) struct Rings {
    rings: Vec<Ring>,
    per_ring: u32,
}

struct Ring {
    uring: IoUring,
    free: Vec<u32>,
    /// Entries queued but not yet submitted.
    queued: usize,
}

const SUBMISSIONS: u32 = 1024;
/// User data of a poll: the slot. Of a cancellation: the slot with this bit.
const CANCEL: u64 = 1 << 40;

fn errno(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Ring {
    fn new(slots: u32) -> Result<Self, Errno> {
        let uring: IoUring =
            IoUring::builder().setup_cqsize(16 * SUBMISSIONS).build(SUBMISSIONS).map_err(|error| errno(&error))?;
        uring.submitter().register_files_sparse(slots).map_err(|error| errno(&error))?;
        Ok(Ring { uring, free: (0..slots).rev().collect(), queued: 0 })
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) -> Result<(), Errno> {
        loop {
            // SAFETY: the entries pushed (poll add, poll remove) refer to no memory of ours.
            let pushed = unsafe { self.uring.submission().push(entry) };
            if pushed.is_ok() {
                self.queued += 1;
                return Ok(());
            }
            self.submit()?;
        }
    }

    fn submit(&mut self) -> Result<(), Errno> {
        if self.queued == 0 {
            return Ok(());
        }
        match self.uring.submit() {
            Ok(_) => {
                self.queued = 0;
                Ok(())
            }
            // Completions are waiting to be taken first; queued entries go with the next call.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)) => Ok(()),
            Err(error) => Err(errno(&error)),
        }
    }
}

impl Rings {
    fn add(&mut self, ring: Ring, poller: &Poller) -> Result<(), Errno> {
        use std::os::fd::AsRawFd;
        // Level-triggered: completions that one round leaves are seen again.
        poller.add(ring.uring.as_raw_fd(), libc::EPOLLIN as u32, RING_EVENT | self.rings.len() as u64)?;
        self.rings.push(ring);
        Ok(())
    }

    fn hold(&mut self, fd: i32, poller: &Poller) -> Result<u32, Errno> {
        if self.rings.iter().all(|ring| ring.free.is_empty()) {
            let ring = Ring::new(self.per_ring)?;
            self.add(ring, poller)?;
        }
        let per_ring = self.per_ring;
        let (number, ring) =
            self.rings.iter_mut().enumerate().find(|(_, ring)| !ring.free.is_empty()).ok_or(Errno(libc::EMFILE))?;
        let Some(index) = ring.free.pop() else { return Err(Errno(libc::EMFILE)) };
        ring.uring.submitter().register_files_update(index, &[fd]).map_err(|error| errno(&error))?;
        // The ring's table holds the connection now; the descriptor is given back to the process.
        poller.remove(fd)?;
        socket::close(fd);
        let interest = (libc::POLLIN | libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) as u32;
        let poll = opcode::PollAdd::new(types::Fixed(index), interest).build().user_data(u64::from(index));
        ring.push(&poll)?;
        Ok(number as u32 * per_ring + index)
    }

    fn release(&mut self, slot: u32) -> Result<(), Errno> {
        let (number, index) = (slot / self.per_ring, slot % self.per_ring);
        let remove = opcode::PollRemove::new(u64::from(index)).build().user_data(u64::from(index) | CANCEL);
        self.rings[number as usize].push(&remove)
    }

    fn drain(&mut self, gone: &mut Gone) -> Result<(), Errno> {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            ring.submit()?;
            let base = number as u32 * self.per_ring;
            let mut ended: Vec<(u32, bool)> = Vec::new();
            for completion in ring.uring.completion() {
                if completion.user_data() & CANCEL == 0 {
                    ended.push((completion.user_data() as u32, completion.result() == -libc::ECANCELED));
                }
            }
            for (index, is_released) in ended {
                ring.uring.submitter().register_files_update(index, &[-1]).map_err(|error| errno(&error))?;
                ring.free.push(index);
                let list = if is_released { &mut gone.released } else { &mut gone.fired };
                list.push(base + index);
            }
        }
        Ok(())
    }
}
