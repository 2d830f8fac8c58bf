//! TUN devices: a link whose packets a process reads and writes (Documentation/networking/tuntap.rst).

use crate::error::WanError;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;

/// Size of the header of every packet, `struct virtio_net_hdr`, which is passed on unread.
pub(crate) const HEADER_BYTES: usize = 10;
/// Maximum size of a packet with merged segments: 64 KiB of IP.
pub(crate) const LONGEST_MERGED: usize = HEADER_BYTES + 65_535;
/// Maximum size of a packet without merged segments: the link's MTU and some room.
pub(crate) const LONGEST_SINGLE: usize = HEADER_BYTES + 2_048;

#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
}

impl Tun {
    /// Creates the device `name` in the calling thread's network namespace. The receiver computes checksums. With
    /// `merges_segments` it also does TCP segmentation, so that up to 64 KiB cross as one packet.
    pub fn create(name: &str, merges_segments: bool) -> Result<Self, WanError> {
        record::fault::step().map_err(|error| cannot(name, error))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| cannot(name, errno.into()))?;
        let mut request = request_about(name).map_err(|error| cannot(name, error))?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: `request` is a live ifreq with a terminated name, as TUNSETIFF requires.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } != 0 {
            return Err(cannot(name, io::Error::last_os_error()));
        }
        let mut offloads = libc::TUN_F_CSUM;
        if merges_segments {
            offloads |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        }
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) } != 0 {
            return Err(cannot(name, io::Error::last_os_error()));
        }
        Ok(Tun { file })
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            return match rustix::io::read(&self.file, &mut *buffer) {
                Ok(length) => Ok(Some(length)),
                Err(rustix::io::Errno::AGAIN) => Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Delivers a packet to the device's namespace. Without steering, its stack has received the packet when this
    /// returns.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.file, packet)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

pub(crate) fn request_about(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn cannot(name: &str, source: io::Error) -> WanError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => WanError::NotPermitted,
        Some(libc::EBUSY) => WanError::TunTaken { name: name.into() },
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => WanError::Unsupported {
            what: "make a TUN device",
            remedy: "load the module with 'modprobe tun', and provide /dev/net/tun (in a container: --device \
                     /dev/net/tun), or use a kernel with netem",
            source,
        },
        _ => WanError::Step { what: format!("make the TUN device {name}"), source },
    }
}
