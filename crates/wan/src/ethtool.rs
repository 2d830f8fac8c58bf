//! Switches off segmentation offload, so that a packet of the path is a packet on the wire (linux/ethtool.h).

use crate::tun::request_about;
use rustix::net::{AddressFamily, SocketType};
use std::io;
use std::os::fd::AsRawFd;

const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Makes the calling thread's namespace cut every packet on `link` to the MTU before it leaves.
pub(crate) fn segment_in_stack(link: &str) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    for command in [ETHTOOL_STSO, ETHTOOL_SGSO] {
        let mut value = EthtoolValue { command, data: 0 };
        let mut request = request_about(link)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: `request` is a live ifreq whose data points to a live ethtool_value, as these SIOCETHTOOL commands
        // require.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
