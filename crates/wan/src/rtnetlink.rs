//! rtnetlink requests.
//!
//! Message layout: include/uapi/linux/{netlink,rtnetlink,if_link,if_addr,neighbour,veth}.h. All fields are in host
//! byte order and padded to 4 bytes. netlink-packet-route is not used: it lacks netem, whose options and counters are
//! most of this module, and adds a megabyte to a program.

pub mod path;

pub use path::{LinkDrops, NetemCounts};

use crate::error::{DuringStep, WanError};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::IpAddr;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
pub const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
/// Attributes of a link that [`Route::set_link`] sets: the queue's length in packets, the alias, and the most segments
/// of a packet that TCP hands to it.
pub const IFLA_TXQLEN: u16 = 13;
pub const IFLA_IFALIAS: u16 = 20;
pub const IFLA_GSO_MAX_SEGS: u16 = 40;
pub const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Skips duplicate address detection, so that the address is usable at once.
const IFA_F_NODAD: u32 = 0x02;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const NLA_F_NESTED: u16 = 1 << 15;

/// The Ethernet address of end 0 or 1 of a veth. Each pair is alone on its link, so all pairs use the same two.
fn ethernet_address(end: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, end]
}

pub struct RouteRequest {
    pub bytes: Vec<u8>,
}

impl RouteRequest {
    pub fn new(kind: u16, flags: i32) -> Self {
        let mut request = RouteRequest { bytes: Vec::with_capacity(256) };
        request.words(&[0]);
        request.bytes.extend_from_slice(&kind.to_ne_bytes());
        request.bytes.extend_from_slice(&((flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
        request.words(&[1, 0]);
        request
    }

    /// A request about the link `name`.
    fn about_link(kind: u16, name: &str) -> io::Result<Self> {
        let mut request = RouteRequest::new(kind, 0);
        request.link(link_index(name)?, 0);
        Ok(request)
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.bytes.extend_from_slice(&word.to_ne_bytes()));
    }

    /// `struct ifinfomsg`, which sets these flags.
    pub fn link(&mut self, index: u32, flags: u32) {
        self.bytes.extend_from_slice(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        self.words(&[index, flags, flags]);
    }

    pub fn attribute(&mut self, kind: u16, payload: &[u8]) {
        self.bytes.extend_from_slice(&(4 + payload.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, text: &str) {
        let mut payload = text.as_bytes().to_vec();
        payload.push(0);
        self.attribute(kind, &payload);
    }

    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut RouteRequest)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
    }

    pub fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// An rtnetlink socket in the network namespace of the thread that connected it.
#[derive(Debug)]
pub struct Route {
    socket: OwnedFd,
}

impl Route {
    pub fn connect() -> Result<Self, WanError> {
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
        Ok(Route { socket: socket.during("talk to the kernel's rtnetlink")? })
    }

    /// Creates a veth pair with end 0, `name`, in this namespace and end 1, `peer_name`, in `peer_namespace`.
    pub fn add_veth(&self, name: &str, peer_name: &str, peer_namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mut request = RouteRequest::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        request.link(0, 0);
        request.text(IFLA_IFNAME, name);
        request.attribute(IFLA_ADDRESS, &ethernet_address(0));
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.link(0, 0);
                    peer.text(IFLA_IFNAME, peer_name);
                    peer.attribute(IFLA_ADDRESS, &ethernet_address(1));
                    peer.attribute(IFLA_NET_NS_FD, &peer_namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.execute(request)
    }

    /// Deletes a link in this namespace. Deleting one end of a veth deletes both.
    pub fn delete_link(&self, name: &str) -> io::Result<()> {
        self.execute(RouteRequest::about_link(libc::RTM_DELLINK, name)?)
    }

    pub fn set_up(&self, name: &str) -> io::Result<()> {
        let mut request = RouteRequest::new(libc::RTM_NEWLINK, 0);
        request.link(link_index(name)?, libc::IFF_UP as u32);
        self.execute(request)
    }

    pub fn set_link(&self, name: &str, attribute: u16, value: &[u8]) -> io::Result<()> {
        let mut request = RouteRequest::about_link(libc::RTM_NEWLINK, name)?;
        request.attribute(attribute, value);
        self.execute(request)
    }

    pub fn add_address(&self, name: &str, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let mut request = RouteRequest::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        let (family, octets) = family_and_octets(address);
        // `struct ifaddrmsg`.
        request.bytes.extend_from_slice(&[family as u8, prefix_bits, 0, 0]);
        request.words(&[link_index(name)?]);
        request.attribute(IFA_LOCAL, &octets);
        request.attribute(IFA_ADDRESS, &octets);
        if address.is_ipv6() {
            request.attribute(IFA_FLAGS, &IFA_F_NODAD.to_ne_bytes());
        }
        self.execute(request)
    }

    /// Adds a permanent neighbour entry for `address` at end `end` of the link's veth. So no neighbour request
    /// crosses the link, where it could be lost or late.
    pub fn add_neighbour(&self, name: &str, address: IpAddr, end: u8) -> io::Result<()> {
        let mut request = RouteRequest::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
        let (family, octets) = family_and_octets(address);
        // `struct ndmsg`.
        request.bytes.extend_from_slice(&[family as u8, 0, 0, 0]);
        request.words(&[link_index(name)?]);
        request.bytes.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        request.bytes.extend_from_slice(&[0, 0]);
        request.attribute(NDA_DST, &octets);
        request.attribute(NDA_LLADDR, &ethernet_address(end));
        self.execute(request)
    }

    fn execute(&self, request: RouteRequest) -> io::Result<()> {
        record::fault::step()?;
        rustix::net::send(&self.socket, &request.finish(), SendFlags::empty())?;
        let mut reply = [0u8; 4096];
        let (received, _) = rustix::net::recv(&self.socket, &mut reply[..], RecvFlags::empty())?;
        acknowledged(&reply[..received.min(4096)])
    }

    /// Returns the message of one object with its header.
    fn query(&self, request: RouteRequest) -> io::Result<Vec<u8>> {
        rustix::net::send(&self.socket, &request.finish(), SendFlags::empty())?;
        let mut answer = None;
        let mut reply = vec![0u8; 32 << 10];
        // The object comes in a separate datagram, or in the same one before the acknowledgement.
        loop {
            let (received, _) = rustix::net::recv(&self.socket, &mut reply[..], RecvFlags::empty())?;
            let mut rest = &reply[..received.min(reply.len())];
            while let Some(&[a, b, c, d, e, f, ..]) = rest.first_chunk::<16>() {
                let length = (u32::from_ne_bytes([a, b, c, d]) as usize).clamp(16, rest.len());
                if i32::from(u16::from_ne_bytes([e, f])) == libc::NLMSG_ERROR {
                    acknowledged(rest)?;
                    return answer.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
                }
                answer.get_or_insert_with(|| rest[..length].to_vec());
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

fn family_and_octets(address: IpAddr) -> (i32, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    }
}

/// Reads an acknowledgement: `NLMSG_ERROR` with 0 is success, with a negative number the error.
pub fn acknowledged(reply: &[u8]) -> io::Result<()> {
    let word = |at: usize| reply.get(at..at + 4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    let kind = reply.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    match (kind, word(16)) {
        (Some(kind), Some(0)) if i32::from(kind) == libc::NLMSG_ERROR => Ok(()),
        (Some(kind), Some(code)) if i32::from(kind) == libc::NLMSG_ERROR => {
            Err(io::Error::from_raw_os_error(code.checked_neg().unwrap_or(libc::EINVAL)))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "rtnetlink did not answer with an acknowledgement")),
    }
}

pub fn link_index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a live, NUL-terminated string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
