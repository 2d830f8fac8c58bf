//! The reading end: a thread that opens the connections, some at a time, and discards what arrives on them.

use crate::cost::pin_to;
use crate::error::LoadError;
use crate::poller::{Poller, READABLE, WRITABLE_TOO};
use crate::socket::{self, Errno, RawAddress};
use record::lock;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Connections under way at once: fewer than any listen backlog.
const AT_ONCE: u64 = 64;
/// Most bytes discarded in one call.
const CHUNK_BYTES: usize = 1 << 20;
const LOOK_NS: u64 = 50_000_000;

/// Reads until it is dropped.
pub(super) struct Receiver {
    is_over: Arc<AtomicBool>,
    trouble: Arc<Mutex<Option<LoadError>>>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Begins to connect; later failures are reported by [`trouble`](Self::trouble).
    pub fn start(sender: SocketAddr, connections: u64, cpus: &[usize]) -> Result<Self, LoadError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let trouble = Arc::new(Mutex::new(None));
        let (over, said, cpu) = (is_over.clone(), trouble.clone(), cpus.first().copied());
        let body = move || {
            let _ = cpu.map(pin_to);
            if let Err(Errno(errno)) = receive(sender, connections, &over) {
                let cause = std::io::Error::from_raw_os_error(errno);
                let error = LoadError::Machine { what: "read the sender's data", cause };
                *lock(&said) = Some(error);
            }
        };
        let thread = std::thread::Builder::new().name("receiver".into()).spawn(body);
        let thread = thread.map_err(|cause| LoadError::Machine { what: "start a thread", cause })?;
        Ok(Receiver { is_over, trouble, thread: Some(thread) })
    }

    /// The error that ended it early, once.
    pub fn trouble(&self) -> Option<LoadError> {
        lock(&self.trouble).take()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Descriptors that are closed with this value.
#[derive(Default)]
struct Open(Vec<i32>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.drain(..).for_each(socket::close);
    }
}

fn receive(sender: SocketAddr, connections: u64, is_over: &AtomicBool) -> Result<(), Errno> {
    let mut poller = Poller::new()?;
    let address = RawAddress::new(sender);
    let mut open = Open::default();
    let (mut is_established, mut under_way) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        while (open.0.len() as u64) < connections && under_way < AT_ONCE {
            let fd = socket::stream_socket(address.family())?;
            open.0.push(fd);
            is_established.push(false);
            socket::connect(fd, &address)?;
            poller.add(fd, WRITABLE_TOO, open.0.len() as u64 - 1)?;
            under_way += 1;
        }
        for index in 0..poller.wait(LOOK_NS)? {
            let (_, number) = poller.event(index);
            let Some(&fd) = open.0.get(number as usize) else { continue };
            if !is_established[number as usize] {
                if let Some(error) = socket::take_error(fd) {
                    return Err(error);
                }
                is_established[number as usize] = true;
                under_way -= 1;
                poller.modify(fd, READABLE, number)?;
            }
            drain(fd)?;
        }
    }
    Ok(())
}

/// Discards everything that arrives on a connection. The sender closes it when the point is over.
fn drain(fd: i32) -> Result<(), Errno> {
    loop {
        match socket::discard(fd, CHUNK_BYTES) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.would_block() => return Ok(()),
            Err(Errno(libc::ECONNRESET)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
