//! Reads the TCP sockets of a local port by state, and the accept queues of its listeners, from the kernel's
//! inet_diag (netlink).
//!
//! A small program (INET_DIAG_REQ_BYTECODE) filters the port in the kernel, which saves copying; the kernel still
//! walks its hash of connections. A dump of listeners walks only the listeners, which is cheap. Message layout:
//! include/uapi/linux/{netlink,sock_diag,inet_diag}.h. netlink-packet-sock-diag is not used: its requests carry no
//! bytecode, it does not know the message that answers for both families, and it creates an object for each socket.

mod unix;

pub use unix::{SocketFile, UnixSocket};

use record::time::monotonic_ns;
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The message that answers for IPv4 and IPv6 with one walk (`struct inet_diag_req`).
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQ_BYTECODE: u16 = 1;
/// Attribute with a socket's memory and drops (INET_DIAG_SKMEMINFO).
const SKMEMINFO: u16 = 7;
const DROPS: usize = 8;
const BC_JMP: u8 = 1;
const BC_S_GE: u8 = 2;
const BC_S_LE: u8 = 3;
pub(crate) const ESTABLISHED: u8 = 1;
pub(crate) const TCP_LISTEN: u8 = 10;
const FIN_WAIT_2: u8 = 5;
const MESSAGE_BYTES: usize = 72;
const HEADER_BYTES: usize = 16;
/// Buffer for a datagram; the kernel fills at most 32 KiB.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum listeners; one per CPU and address is usual (SO_REUSEPORT).
const MAX_LISTENERS: usize = 4096;
/// Maximum sockets in TIME_WAIT that are listed; all are counted.
pub const MAX_TIMERS: usize = 131_072;
/// `idiag_timer` of a socket that is reduced to a timer.
const REDUCED_TO_TIMER: u8 = 3;

/// Names of the TCP states by number (include/net/tcp_states.h), as used in `connection_states`. The kernel reports
/// number 12, a request without a separate socket yet, as `syn-recv`.
pub const STATES: [&str; 12] = [
    "unknown",
    "established",
    "syn-sent",
    "syn-recv",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "close",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
];

/// A connection or a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// State number (include/net/tcp_states.h).
    pub state: u8,
    /// The local address.
    pub local: SocketAddr,
    /// The remote address.
    pub remote: SocketAddr,
    /// Inode, as in `/proc/PID/fd`; 0 for a socket that no process has.
    pub inode: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Bytes not yet read; for a listener, connections not yet accepted.
    pub queue: u32,
    /// Limit of a listener's `queue`: the smaller of listen()'s argument and net.core.somaxconn; 0 if unknown. For a
    /// connection, bytes not yet acknowledged.
    pub queue_limit: u32,
    /// Connections and SYNs dropped because a queue was full, since the socket listens; wraps.
    pub drops: u32,
}

impl TcpSocket {
    /// Whether it is a listener, which has no other end.
    pub fn is_listener(&self) -> bool {
        self.state == TCP_LISTEN
    }
}

/// The sockets of a port. Not a snapshot: with many connections, the walk takes milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortSockets {
    /// Number of sockets by state; indices as in [`STATES`].
    pub by_state: [u64; STATES.len()],
    /// Number of established sockets with bytes that the server has not read.
    pub unread: u64,
    /// Number of established sockets with bytes that the client has not acknowledged.
    pub unacknowledged: u64,
    /// The listeners among them.
    pub listeners: Vec<TcpSocket>,
    /// Sockets reduced to a timer: in TIME_WAIT, or in FIN_WAIT_2 after their server closed them. At most
    /// [`MAX_TIMERS`].
    pub timers: Vec<TimerSocket>,
    /// Number of timer sockets in FIN_WAIT_2.
    pub timers_in_fin_wait_2: u64,
}

/// A socket that the kernel has reduced to a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerSocket {
    /// Address family as in the kernel's message: an IPv4 connection of an IPv6 socket is IPv6.
    pub is_ipv6: bool,
    /// The client's port, in network byte order.
    pub client_port: u16,
    /// The client's address, in network byte order; an IPv4 address is the first word.
    pub client: [u32; 4],
    /// The server's address, like `client`.
    pub server: [u32; 4],
    /// When its timer is due (CLOCK_MONOTONIC); it fires at the next step of the timer wheel.
    pub due_ns: u64,
}

impl PortSockets {
    /// Adds a socket; listeners must be added first, in the kernel's order.
    ///
    /// A socket whose local address matches no listener belongs to a client that happens to use the same port number,
    /// so it is skipped. Without a listener all are counted, because they cannot be distinguished. Returns whether
    /// the socket belongs to the port.
    pub(crate) fn add(&mut self, socket: TcpSocket) -> bool {
        let index = match usize::from(socket.state) {
            12 => 3,
            known if known < STATES.len() => known,
            _ => 0,
        };
        if socket.is_listener() {
            if self.listeners.len() < MAX_LISTENERS {
                self.listeners.push(socket);
            }
        } else if !self.listeners.is_empty()
            && !self.listeners.iter().any(|listener| serves(listener.local.ip(), socket.local.ip()))
        {
            return false;
        }
        self.unread += u64::from(socket.state == ESTABLISHED && socket.queue > 0);
        self.unacknowledged += u64::from(socket.state == ESTABLISHED && socket.queue_limit > 0);
        self.by_state[index] += 1;
        true
    }
}

/// Whether a connection with local address `local` may come from a listener bound to `bound`. A listener on `::` may
/// serve IPv4, whose addresses are then shown as mapped or bare.
fn serves(bound: IpAddr, local: IpAddr) -> bool {
    match bound.to_canonical() {
        IpAddr::V6(any) if any.is_unspecified() => true,
        IpAddr::V4(any) if any.is_unspecified() => local.to_canonical().is_ipv4(),
        bound => bound == local.to_canonical(),
    }
}

/// The sockets that a dump requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only listeners, which is cheap.
    Listeners,
    /// Only sockets in TIME_WAIT.
    TimeWait,
    /// Every state.
    AllStates,
    /// Established sockets and listeners of all other ports.
    Elsewhere,
    /// Listeners of all other ports.
    ListenersElsewhere,
}

/// A netlink socket for inet_diag, in the namespace in which the thread was when it connected.
#[derive(Debug)]
pub struct DiagSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl DiagSocket {
    /// Opens the socket; no privilege is needed.
    pub fn connect() -> io::Result<Self> {
        record::fault::step()?;
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        // The kernel answers at once; the timeout matters only if a datagram is lost.
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(5)))?;
        Ok(DiagSocket { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Reads the IPv4 and IPv6 sockets whose local port is `port`.
    pub fn read_port(&mut self, port: u16, scope: Scope) -> io::Result<PortSockets> {
        let mut sockets = PortSockets::default();
        self.ask(|sequence| request(port, scope, sequence), &mut |datagram, sequence, filled_ns| {
            let known = sockets.timers.len();
            let progress = read_datagram(datagram, sequence, &mut sockets)?;
            sockets.timers[known..].iter_mut().for_each(|timer| timer.due_ns += filled_ns);
            Ok(progress)
        })?;
        Ok(sockets)
    }

    /// Calls `each` with the sockets of `scope`, which must be a scope of other ports.
    pub fn read_elsewhere(&mut self, port: u16, scope: Scope, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
        self.ask(|sequence| request(port, scope, sequence), &mut |datagram, sequence, _| {
            each_socket(datagram, sequence, |body| {
                tcp_socket(body).into_iter().filter(|socket| socket.local.port() != port).for_each(&mut each);
            })
        })
    }

    /// Passes every datagram of the answer to `read`, with its sequence number and the time at which the kernel
    /// filled it.
    pub(crate) fn ask(
        &mut self,
        request: impl FnOnce(u32) -> Vec<u8>,
        read: &mut impl FnMut(&[u8], u32, u64) -> io::Result<DumpProgress>,
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        rustix::net::send(&self.socket, &request(self.sequence), SendFlags::empty())?;
        // The kernel fills the next datagram before it returns from sending or receiving.
        let mut filled_ns = monotonic_ns();
        loop {
            let (received, length) = rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)?;
            let this_filled_ns = std::mem::replace(&mut filled_ns, monotonic_ns());
            if length > received {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "inet_diag sent more than a datagram holds"));
            }
            if read(&self.buffer[..received], self.sequence, this_filled_ns)? == DumpProgress::Complete {
                return Ok(());
            }
        }
    }
}

pub(crate) fn request(port: u16, scope: Scope, sequence: u32) -> Vec<u8> {
    let states: u32 = match scope {
        Scope::Listeners | Scope::ListenersElsewhere => 1 << TCP_LISTEN,
        Scope::TimeWait => 1 << 6,
        Scope::AllStates => 0xfff,
        Scope::Elsewhere => 1 << ESTABLISHED | 1 << TCP_LISTEN,
    };
    let extensions: u8 = if scope == Scope::Listeners { 1 << (SKMEMINFO - 1) } else { 0 };
    // struct inet_diag_sockid: source port first, all else 0 = any.
    let mut id = [0u8; 48];
    if !matches!(scope, Scope::Elsewhere | Scope::ListenersElsewhere) {
        id[..2].copy_from_slice(&port.to_be_bytes());
    }
    let mut body = Vec::with_capacity(96);
    body.extend_from_slice(&[0, 0, 0, extensions]);
    body.extend_from_slice(&id);
    body.extend_from_slice(&states.to_ne_bytes());
    body.extend_from_slice(&0u32.to_ne_bytes());
    // Each comparison of a port is followed by its operand; `yes` skips both, `no` jumps 4 bytes past the end, which
    // rejects. Kernels before 4.16 have no equality.
    let operation = |code: u8, no: u16, port: u16| {
        let [no_low, no_high] = no.to_ne_bytes();
        let [port_low, port_high] = port.to_ne_bytes();
        [code, 8, no_low, no_high, 0, 0, port_low, port_high]
    };
    let filter = match scope {
        // "source port > port, then to the end, or source port < port".
        Scope::Elsewhere | Scope::ListenersElsewhere => {
            let [to_end_low, to_end_high] = 12u16.to_ne_bytes();
            let above = operation(BC_S_GE, 12, port.saturating_add(1));
            let below = operation(BC_S_LE, 12, port.saturating_sub(1));
            [&above[..], &[BC_JMP, 4, to_end_low, to_end_high], &below].concat()
        }
        // "source port >= port and source port <= port".
        _ => [operation(BC_S_GE, 20, port), operation(BC_S_LE, 12, port)].concat(),
    };
    body.extend_from_slice(&(4 + filter.len() as u16).to_ne_bytes());
    body.extend_from_slice(&REQ_BYTECODE.to_ne_bytes());
    body.extend_from_slice(&filter);
    Message { kind: TCPDIAG_GETSOCK, sequence, body: &body }.bytes(libc::NLM_F_DUMP)
}

/// Whether the dump continues with another datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpProgress {
    /// More datagrams will come.
    More,
    /// The list is complete.
    Complete,
}

/// Reads one datagram of a dump and adds its sockets.
pub fn read_datagram(datagram: &[u8], sequence: u32, sockets: &mut PortSockets) -> io::Result<DumpProgress> {
    each_socket(datagram, sequence, |body| add_socket(body, sockets))
}

/// Calls `each` with the body of every socket's message. Skips messages with another sequence number (a late answer).
pub(crate) fn each_socket(datagram: &[u8], sequence: u32, mut each: impl FnMut(&[u8])) -> io::Result<DumpProgress> {
    for message in messages(datagram) {
        let Message { kind, sequence: of, body } = message?;
        if of != sequence {
            continue;
        }
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(DumpProgress::Complete),
            libc::NLMSG_ERROR if body.len() >= 4 => {
                let code = u32_at(body, 0) as i32;
                return match code.checked_neg() {
                    Some(errno) if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
                    _ => Ok(DumpProgress::Complete),
                };
            }
            _ if kind == TCPDIAG_GETSOCK || kind == SOCK_DIAG_BY_FAMILY => each(body),
            _ => {}
        }
    }
    Ok(DumpProgress::More)
}

pub(crate) struct Message<'a> {
    pub kind: u16,
    pub sequence: u32,
    pub body: &'a [u8],
}

impl Message<'_> {
    pub fn bytes(&self, flag: i32) -> Vec<u8> {
        let length = HEADER_BYTES + self.body.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&(length as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&((libc::NLM_F_REQUEST | flag) as u16).to_ne_bytes());
        bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(self.body);
        bytes
    }
}

fn messages(datagram: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.len() < HEADER_BYTES {
            return None;
        }
        let length = u32_at(rest, 0) as usize;
        if length < HEADER_BYTES || length > rest.len() {
            rest = &[];
            let what = "inet_diag sent a message that is cut short";
            return Some(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        let message = Message { kind, sequence: u32_at(rest, 8), body: &rest[HEADER_BYTES..length] };
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        Some(Ok(message))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn tcp_socket(message: &[u8]) -> Option<TcpSocket> {
    let attributes = message.get(MESSAGE_BYTES..)?;
    let end = |address_at, port_at: usize| {
        SocketAddr::new(address(message, address_at), u16::from_be_bytes([message[port_at], message[port_at + 1]]))
    };
    Some(TcpSocket {
        state: message[1],
        local: end(8, 4),
        remote: end(24, 6),
        queue: u32_at(message, 56),
        queue_limit: u32_at(message, 60),
        uid: u32_at(message, 64),
        inode: u64::from(u32_at(message, 68)),
        drops: drops(attributes),
    })
}

fn add_socket(message: &[u8], sockets: &mut PortSockets) {
    let Some(socket) = tcp_socket(message) else { return };
    if sockets.add(socket) && message[2] == REDUCED_TO_TIMER {
        sockets.timers_in_fin_wait_2 += u64::from(socket.state == FIN_WAIT_2);
        if sockets.timers.len() < MAX_TIMERS {
            let words = |at: usize| [0, 4, 8, 12].map(|offset| u32_at(message, at + offset));
            sockets.timers.push(TimerSocket {
                is_ipv6: i32::from(message[0]) == libc::AF_INET6,
                client_port: u16::from_ne_bytes([message[6], message[7]]),
                client: words(24),
                server: words(8),
                // The remaining time; the reader of the datagram adds the current time.
                due_ns: u64::from(u32_at(message, 52)) * 1_000_000,
            });
        }
    }
}

fn address(message: &[u8], at: usize) -> IpAddr {
    let words = &message[at..at + 16];
    if i32::from(message[0]) == libc::AF_INET6 {
        let mut octets = [0; 16];
        octets.copy_from_slice(words);
        Ipv6Addr::from(octets).into()
    } else {
        Ipv4Addr::new(words[0], words[1], words[2], words[3]).into()
    }
}

/// 0 if none were requested.
fn drops(attributes: &[u8]) -> u32 {
    let memory = attribute(attributes, SKMEMINFO).filter(|memory| memory.len() >= (DROPS + 1) * 4);
    memory.map_or(0, |memory| u32_at(memory, DROPS * 4))
}

fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while attributes.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([attributes[0], attributes[1]]));
        let kind = u16::from_ne_bytes([attributes[2], attributes[3]]);
        if length < 4 || length > attributes.len() {
            return None;
        }
        if kind == wanted {
            return Some(&attributes[4..length]);
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    None
}
