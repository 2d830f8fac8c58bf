//! Tries network features in a namespace that vanishes with the thread that made it.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

#[derive(Debug, Clone, Copy)]
pub enum Probe {
    Loopback,
    /// A pair of virtual Ethernet devices.
    Veth,
    QueueDiscipline(&'static str),
}

const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = 0xffff_ffff;
const LOOPBACK_INDEX: u32 = 1;

/// Makes a namespace, tries `probe` in it, and drops it.
pub fn try_in_new_namespace(probe: Probe) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only the network namespace of this thread, which ends below, changes.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            match probe {
                Probe::Loopback => set_loopback_up(),
                Probe::Veth => create(libc::RTM_NEWLINK, &[0; 16], |message| {
                    let mut kind = Vec::new();
                    attribute(&mut kind, IFLA_INFO_KIND, b"veth");
                    attribute(message, IFLA_LINKINFO, &kind);
                }),
                Probe::QueueDiscipline(kind) => try_queue_discipline(kind),
            }
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the probe failed")))
    })
}

/// Moves the calling thread into a new network namespace and brings its loopback device up.
#[cfg(test)]
pub fn enter_new_namespace() -> io::Result<()> {
    // SAFETY: only the network namespace of this thread changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    set_loopback_up()
}

fn set_loopback_up() -> io::Result<()> {
    // struct ifinfomsg: family, padding and type, interface, flags, mask of the flags to change.
    let mut fixed = [0u8; 16];
    fixed[4..8].copy_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    fixed[8..12].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    fixed[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    ask(libc::RTM_NEWLINK, 0, &fixed, |_| {})
}

fn try_queue_discipline(kind: &str) -> io::Result<()> {
    // struct tcmsg: family and padding, interface, handle, parent, info.
    let mut fixed = [0u8; 20];
    fixed[4..8].copy_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    fixed[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    let mut name = kind.as_bytes().to_vec();
    name.push(0);
    match create(libc::RTM_NEWQDISC, &fixed, |message| attribute(message, TCA_KIND, &name)) {
        // The queueing discipline exists but needs options, as netem does.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}

fn attribute(message: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    message.extend_from_slice(&(4 + payload.len() as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(payload);
    message.resize(message.len().next_multiple_of(4), 0);
}

fn create(kind: u16, fixed: &[u8], fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    ask(kind, libc::NLM_F_CREATE | libc::NLM_F_EXCL, fixed, fill)
}

/// Sends one request to rtnetlink and reads its acknowledgement.
fn ask(kind: u16, flags: i32, fixed: &[u8], fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    let flags = flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let mut message = vec![0u8; 4];
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(flags as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(fixed);
    fill(&mut message);
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut reply = [0u8; 4096];
    let (received, _) = rustix::net::recv(&socket, &mut reply[..], RecvFlags::empty())?;
    match reply.get(16..20).filter(|_| received >= 20) {
        Some(code) => match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
            0 => Ok(()),
            negative => Err(io::Error::from_raw_os_error(negative.saturating_neg())),
        },
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}
