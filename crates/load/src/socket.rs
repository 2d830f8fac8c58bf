//! Thin safe functions around the socket system calls. Errors are raw `errno` values, which the hot path compares
//! directly.

use crate::ports::PortChoice;
use std::net::{IpAddr, SocketAddr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub i32);

impl Errno {
    pub(crate) fn last() -> Self {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    pub(crate) fn would_block(self) -> bool {
        self.0 == libc::EAGAIN || self.0 == libc::EWOULDBLOCK || self.0 == libc::EINTR
    }

    pub(crate) fn io(self) -> std::io::Error {
        std::io::Error::from_raw_os_error(self.0)
    }
}

fn check(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

#[derive(Clone, Copy)]
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    pub(crate) fn new(address: SocketAddr) -> Self {
        // SAFETY: all-zero bytes are a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let len = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in.
                unsafe { std::ptr::from_mut(&mut storage).cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in6.
                unsafe { std::ptr::from_mut(&mut storage).cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        RawAddress { storage, len: len as libc::socklen_t }
    }

    fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(&self.storage).cast()
    }

    pub(crate) fn family(&self) -> libc::c_int {
        libc::c_int::from(self.storage.ss_family)
    }
}

/// A new non-blocking TCP socket of the family. The caller owns the descriptor and closes it with [`close`].
pub(crate) fn stream_socket(family: libc::c_int) -> Result<i32, Errno> {
    // SAFETY: no pointers.
    check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) })
}

pub(crate) fn close(fd: i32) {
    // SAFETY: no pointers; every descriptor given here is owned by the caller and forgotten afterwards.
    unsafe { libc::close(fd) };
}

/// Lets a later close reset the connection, so that neither side keeps the port.
pub(crate) fn reset_at_close(fd: i32) {
    // If this fails, the port stays in TIME_WAIT, which is not an error.
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, libc::linger { l_onoff: 1, l_linger: 0 });
}

fn set_option<T: Copy>(fd: i32, level: libc::c_int, name: libc::c_int, value: T) -> Result<(), Errno> {
    // SAFETY: `value` lives through the call and its size is given.
    check(unsafe {
        libc::setsockopt(fd, level, name, std::ptr::from_ref(&value).cast(), size_of::<T>() as libc::socklen_t)
    })
    .map(drop)
}

pub(crate) fn set_no_delay(fd: i32) -> Result<(), Errno> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1i32)
}

/// Turns the kernel's time stamps for received packets on or off. The kernel stamps while any socket of the machine
/// asks for it, and switches with a short delay. (`SO_TIMESTAMPNS` would ask until its socket is closed.)
pub(crate) fn set_stamping(fd: i32, is_on: bool) -> Result<(), Errno> {
    let flags = if is_on { libc::SOF_TIMESTAMPING_RX_SOFTWARE } else { 0 };
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

/// Makes [`receive_stamped`] on this socket return the arrival time of the last byte, while packets are stamped.
pub(crate) fn set_stamps(fd: i32) -> Result<(), Errno> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, libc::SOF_TIMESTAMPING_SOFTWARE)
}

/// Sets whether the kernel probes a peer after each second of silence (keep-alive).
pub(crate) fn set_keepalive(fd: i32, is_on: bool) -> Result<(), Errno> {
    if is_on {
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1i32)?;
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1i32)?;
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, i32::from(is_on))
}

/// Time since the peer's last acknowledgement, exact to a few milliseconds.
pub(crate) fn acknowledged_ns_ago(fd: i32) -> Option<u64> {
    // SAFETY: all zeros are a valid tcp_info.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` is a live, writable buffer of the size given.
    let code = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, std::ptr::from_mut(&mut info).cast(), &raw mut size)
    };
    (code == 0).then(|| u64::from(info.tcpi_last_ack_recv) * 1_000_000)
}

/// Makes a socket limit its peer as a slow link would, also on loopback: with Ethernet-sized segments and a small
/// receive buffer. Must be called before connecting.
pub(crate) fn set_narrow(fd: i32, buffer_bytes: i32) -> Result<(), Errno> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1460i32)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, buffer_bytes)
}

/// `IP_LOCAL_PORT_RANGE` (Linux 6.3): both ends in one word, the high one in the upper half.
const IP_LOCAL_PORT_RANGE: libc::c_int = 51;

fn set_port_range(fd: i32, low: u16, high: u16) -> Result<(), Errno> {
    set_option(fd, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, u32::from(high) << 16 | u32::from(low))
}

/// Whether the kernel has `IP_LOCAL_PORT_RANGE`.
pub(crate) fn knows_port_range() -> bool {
    let Ok(fd) = stream_socket(libc::AF_INET) else { return false };
    let known = set_port_range(fd, 40_000, 50_000).is_ok();
    close(fd);
    known
}

/// Binds the local end. Without `source` the kernel chooses the address by its routes.
pub(crate) fn bind_source(
    fd: i32,
    source: Option<IpAddr>,
    port: PortChoice,
    range: (u16, u16),
    family: libc::c_int,
) -> Result<(), Errno> {
    let port = match port {
        PortChoice::Kernel => 0,
        PortChoice::Scan => {
            set_port_range(fd, range.0, range.1)?;
            0
        }
        PortChoice::Explicit(port) => port,
    };
    if source.is_none() && port == 0 {
        return Ok(());
    }
    // Connect chooses the port, so only the whole tuple must be unique.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1i32);
    if port != 0 {
        // An old connection of this port may be in TIME_WAIT.
        let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1i32);
    }
    let any = if family == libc::AF_INET6 {
        IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    };
    let address = RawAddress::new(SocketAddr::new(source.unwrap_or(any), port));
    // SAFETY: the address is valid for its length through the call.
    check(unsafe { libc::bind(fd, address.as_ptr(), address.len) }).map(drop)
}

/// Begins to connect. `Ok(true)`: established; `Ok(false)`: under way.
pub(crate) fn connect(fd: i32, address: &RawAddress) -> Result<bool, Errno> {
    // SAFETY: the address is valid for its length through the call.
    match check(unsafe { libc::connect(fd, address.as_ptr(), address.len) }) {
        Ok(_) => Ok(true),
        Err(Errno(libc::EINPROGRESS | libc::EALREADY | libc::EINTR)) => Ok(false),
        Err(Errno(libc::EISCONN)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The port of a socket's own end; `None` before it has one.
pub(crate) fn local_port(fd: i32) -> Option<u16> {
    // SAFETY: all-zero bytes are a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: both pointers are to live values of this frame, and the kernel writes at most `len` bytes.
    if unsafe { libc::getsockname(fd, std::ptr::from_mut(&mut storage).cast(), &mut len) } < 0 {
        return None;
    }
    // SAFETY: sockaddr_in and sockaddr_in6 have the port at the same place, and sockaddr_storage is at least as large
    // and as aligned as both.
    let port = u16::from_be(unsafe { (*std::ptr::from_ref(&storage).cast::<libc::sockaddr_in>()).sin_port });
    (port > 0).then_some(port)
}

/// The pending error of a socket, cleared by reading it.
pub(crate) fn take_error(fd: i32) -> Option<Errno> {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to live values of this frame with their sizes.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, std::ptr::from_mut(&mut error).cast(), &mut len)
    };
    if result < 0 {
        return Some(Errno::last());
    }
    (error != 0).then_some(Errno(error))
}

// The two calls of each request bypass the C library: its wrappers are thread cancellation points and cost about 15
// ns more.

#[inline]
pub(crate) fn send(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    let no_address = std::ptr::null::<libc::sockaddr>();
    // SAFETY: pointer and length are of a live slice; a null address is not read.
    let sent = unsafe {
        libc::syscall(libc::SYS_sendto, fd, bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL, no_address, 0usize)
    };
    usize::try_from(sent).map_err(|_| Errno::last())
}

#[inline]
pub(crate) fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let no_address = std::ptr::null_mut::<libc::sockaddr>();
    // SAFETY: pointer and length are of a live, writable slice; a null address is not written.
    let received = unsafe {
        libc::syscall(libc::SYS_recvfrom, fd, buffer.as_mut_ptr(), buffer.len(), 0usize, no_address, no_address)
    };
    usize::try_from(received).map_err(|_| Errno::last())
}

/// As [`receive`], with the arrival time of the last byte read, on the wall clock; `None` if the kernel did not stamp
/// it.
pub(crate) fn receive_stamped(fd: i32, buffer: &mut [u8]) -> Result<(usize, Option<u64>), Errno> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero bytes are a valid msghdr without name, parts and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), control.0.len() as _);
    // SAFETY: the message, its one part and its control buffer live through the call, with their sizes.
    let received = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &mut message, 0usize) };
    let count = usize::try_from(received).map_err(|_| Errno::last())?;
    // SAFETY: the kernel has set the length of the control data, which is aligned for a header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    if header.is_null() {
        return Ok((count, None));
    }
    // SAFETY: CMSG_FIRSTHDR gave a whole header inside of the control data.
    let found = unsafe { *header };
    // SAFETY: no access; the length of a header with so much data.
    let whole = unsafe { libc::CMSG_LEN(size_of::<[libc::timespec; 3]>() as libc::c_uint) } as usize;
    let is_stamp = (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING);
    if !is_stamp || (found.cmsg_len as usize) < whole {
        return Ok((count, None));
    }
    // SAFETY: the data after the header are three timespecs, as its type and length say.
    let [stamp, ..] = unsafe { libc::CMSG_DATA(header).cast::<[libc::timespec; 3]>().read_unaligned() };
    // The first is the kernel's stamp, 0 = none; the others are those of hardware.
    let stamp_ns = stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64;
    Ok((count, (stamp_ns > 0).then_some(stamp_ns)))
}

/// Takes up to `limit` bytes off the socket without copying them (`MSG_TRUNC` on TCP, since Linux 2.4).
pub(crate) fn discard(fd: i32, limit: usize) -> Result<usize, Errno> {
    // SAFETY: with MSG_TRUNC the kernel does not write through the pointer; one that did would return EFAULT.
    let received = unsafe { libc::recv(fd, std::ptr::null_mut(), limit, libc::MSG_TRUNC) };
    usize::try_from(received).map_err(|_| Errno::last())
}
