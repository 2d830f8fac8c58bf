//! Thin safe functions around the socket system calls, for raw descriptors that their caller owns.

use crate::ports::PortChoice;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeValLike as _;
use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) use rustix::io::Errno;

pub(crate) fn would_block(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR)
}

pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn last() -> Errno {
    errno(io::Error::last_os_error())
}

fn borrowed(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: the caller owns the descriptor and keeps it open during the call.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The caller owns the descriptor and closes it with [`close`].
pub(crate) fn stream_socket(is_ipv4: bool) -> Result<i32, Errno> {
    let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).map(IntoRawFd::into_raw_fd)
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
    let result = unsafe {
        libc::setsockopt(fd, level, name, std::ptr::from_ref(&value).cast(), size_of::<T>() as libc::socklen_t)
    };
    if result < 0 { Err(last()) } else { Ok(()) }
}

pub(crate) fn set_no_delay(fd: i32) -> Result<(), Errno> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1i32)
}

/// Turns the kernel's time stamps for received packets on or off. The kernel stamps while any socket of the machine
/// requests them, and switches with a short delay. (`SO_TIMESTAMPNS` would ask until its socket is closed.)
pub(crate) fn set_stamping(fd: i32, is_on: bool) -> Result<(), Errno> {
    let flags = if is_on { libc::SOF_TIMESTAMPING_RX_SOFTWARE } else { 0 };
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags)
}

/// Makes [`receive_stamped`] on this socket return the arrival time of the last byte, while packets are stamped.
pub(crate) fn set_stamps(fd: i32) -> Result<(), Errno> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, libc::SOF_TIMESTAMPING_SOFTWARE)
}

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

pub(crate) fn knows_port_range() -> bool {
    let Ok(fd) = stream_socket(true) else { return false };
    let known = set_port_range(fd, 40_000, 50_000).is_ok();
    close(fd);
    known
}

/// Without `source` the kernel chooses the address by its routes.
pub(crate) fn bind_source(
    fd: i32,
    source: Option<IpAddr>,
    port: PortChoice,
    range: (u16, u16),
    is_ipv4: bool,
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
    let any = if is_ipv4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    rustix::net::bind(borrowed(fd), &SocketAddr::new(source.unwrap_or(any), port))
}

/// Begins to connect. `Ok(true)`: established; `Ok(false)`: in progress.
pub(crate) fn connect(fd: i32, address: &SocketAddr) -> Result<bool, Errno> {
    match rustix::net::connect(borrowed(fd), address) {
        Ok(()) | Err(Errno::ISCONN) => Ok(true),
        Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn local_port(fd: i32) -> Option<u16> {
    let name = (fd >= 0).then(|| rustix::net::getsockname(borrowed(fd)).ok()).flatten()?;
    SocketAddr::try_from(name).ok().map(|address| address.port()).filter(|port| *port > 0)
}

pub(crate) fn take_error(fd: i32) -> Option<Errno> {
    sockopt::socket_error(borrowed(fd)).and_then(|pending| pending).err()
}

#[inline]
pub(crate) fn send(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(borrowed(fd), bytes, SendFlags::NOSIGNAL)
}

#[inline]
pub(crate) fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(borrowed(fd), buffer, RecvFlags::empty()).map(|(count, _)| count)
}

/// As [`receive`], with the arrival time of the last byte read, on the wall clock; `None` if the kernel did not stamp
/// it.
pub(crate) fn receive_stamped(fd: i32, buffer: &mut [u8]) -> Result<(usize, Option<u64>), Errno> {
    #[repr(align(8))]
    struct ControlBuffer([u8; 64]);
    let mut control = ControlBuffer([0; 64]);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg::<()>(fd, &mut parts, Some(&mut control.0), MsgFlags::empty());
    let message = received.map_err(|error| Errno::from_raw_os_error(error as i32))?;
    let stamp_ns = message.cmsgs().ok().and_then(|mut controls| match controls.next()? {
        // 0 = none.
        ControlMessageOwned::ScmTimestampsns(stamps) => u64::try_from(stamps.system.num_nanoseconds()).ok(),
        _ => None,
    });
    Ok((message.bytes, stamp_ns.filter(|nanos| *nanos > 0)))
}

/// Takes up to `limit` bytes off the socket without copying them (`MSG_TRUNC` on TCP, since Linux 2.4).
pub(crate) fn discard(fd: i32, limit: usize) -> Result<usize, Errno> {
    // SAFETY: with MSG_TRUNC the kernel does not write through the pointer; one that did would return EFAULT.
    let received = unsafe { libc::recv(fd, std::ptr::null_mut(), limit, libc::MSG_TRUNC) };
    usize::try_from(received).map_err(|_| last())
}
