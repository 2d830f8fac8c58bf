//! Idle descriptors: accepted TCP connections over loopback, whose other ends live in another descriptor table.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Connections opened before they are accepted; less than any listen queue.
const BATCH: usize = 64;

/// Raises the soft limit of descriptors to the hard one and returns it.
pub fn raise_limit() -> io::Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })?;
    Ok(most)
}

/// Open this many connections, to be kept, or to be closed at the next order.
#[derive(Clone, Copy)]
struct Order {
    count: usize,
    is_kept: bool,
}

/// The descriptors that the calls check.
pub struct IdleSet {
    listener: TcpListener,
    /// The descriptor to duplicate. Not one of those that epoll watches: epoll watches the open file description.
    source: OwnedFd,
    /// Opened before the others, so that there is a low number to free.
    low: Option<OwnedFd>,
    /// Idle connections.
    pub sockets: Vec<TcpStream>,
    /// Always readable, and higher than any of them.
    pub ready: OwnedFd,
    /// Every socket and `ready` are registered.
    pub epoll: OwnedFd,
    orders: Option<Sender<Order>>,
    done: Receiver<io::Result<()>>,
    other_ends: Option<JoinHandle<()>>,
}

impl IdleSet {
    /// None yet.
    pub fn new() -> io::Result<Self> {
        let source: OwnedFd = std::fs::File::open("/dev/null")?.into();
        let low = source.try_clone()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        let (orders, received) = channel();
        let (finished, done) = channel();
        let other_ends = std::thread::Builder::new()
            .name("other ends".into())
            .spawn(move || hold_other_ends(address, &received, &finished))?;
        // Until this answer the new thread still shares this table.
        done.recv().map_err(|_| io::Error::other("the thread of the other ends ended"))??;
        let ready = ready_descriptor()?;
        let set = IdleSet {
            listener,
            source,
            low: Some(low),
            sockets: Vec::new(),
            ready,
            epoll,
            orders: Some(orders),
            done,
            other_ends: Some(other_ends),
        };
        set.register(set.ready.as_raw_fd())?;
        Ok(set)
    }

    /// More idle connections, up to `count`.
    pub fn grow_to(&mut self, count: usize) -> io::Result<()> {
        while self.sockets.len() < count {
            let batch = (count - self.sockets.len()).min(BATCH);
            self.order(Order { count: batch, is_kept: true })?;
            for _ in 0..batch {
                let (socket, _) = self.listener.accept()?;
                // A reset instead of TIME_WAIT when it is over.
                rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))?;
                self.register(socket.as_raw_fd())?;
                self.sockets.push(socket);
            }
        }
        // The ready one is last again: a scan in order finds it after all others.
        self.ready = ready_descriptor()?;
        self.register(self.ready.as_raw_fd())
    }

    /// Lets `count` connections wait to be accepted; their other ends are closed at the next order.
    pub fn queue_connections(&mut self, count: usize) -> io::Result<()> {
        self.order(Order { count, is_kept: false })
    }

    fn order(&mut self, order: Order) -> io::Result<()> {
        let gone = || io::Error::other("the thread of the other ends ended");
        self.orders.as_ref().ok_or_else(gone)?.send(order).map_err(|_| gone())?;
        self.done.recv().map_err(|_| gone())?
    }

    /// Where they wait.
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Frees the low descriptor, takes it again, and takes one more, which the kernel must search for; then frees that.
    pub fn search_descriptor(&mut self) -> io::Result<()> {
        self.low = None;
        self.low = Some(self.source.try_clone()?);
        drop(self.source.try_clone()?);
        Ok(())
    }

    fn register(&self, descriptor: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the event outlives the call.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for IdleSet {
    fn drop(&mut self) {
        self.orders = None;
        self.sockets.clear();
        if let Some(thread) = self.other_ends.take() {
            let _ = thread.join();
        }
    }
}

/// Always readable: an event counter that is never read.
fn ready_descriptor() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC)?)
}

/// The thread: switches to a separate descriptor table, then opens connections as ordered and keeps them.
fn hold_other_ends(address: SocketAddr, orders: &Receiver<Order>, finished: &Sender<io::Result<()>>) {
    // SAFETY: only this thread's view of descriptors changes; what it inherits it neither uses nor closes.
    let unshared = unsafe { libc::unshare(libc::CLONE_FILES) };
    let unshared = if unshared == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let is_usable = unshared.is_ok();
    if finished.send(unshared).is_err() || !is_usable {
        return;
    }
    let (mut kept, mut passing) = (Vec::new(), Vec::new());
    while let Ok(order) = orders.recv() {
        passing.clear();
        let ends = if order.is_kept { &mut kept } else { &mut passing };
        let opened = (0..order.count).try_for_each(|_| {
            ends.push(TcpStream::connect(address)?);
            Ok(())
        });
        if finished.send(opened).is_err() {
            return;
        }
    }
}
