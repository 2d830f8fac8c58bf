//! Unix sockets, by unix_diag over the same netlink socket.

use super::{DiagSocket, ESTABLISHED, Message, SOCK_DIAG_BY_FAMILY, TCP_LISTEN, attribute, each_socket, u32_at};
use std::io;

const MESSAGE_BYTES: usize = 16;
const NAME: u16 = 0;
const FILE: u16 = 1;
const PEER: u16 = 2;
/// Attribute that is always present: one byte with a bit for each direction.
const SHUTDOWN: u16 = 6;
const BOTH_WAYS: u8 = 3;

/// A Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixSocket<'a> {
    /// Whether the socket listens.
    pub is_listener: bool,
    /// Inode, as in `/proc/PID/fd`.
    pub inode: u64,
    /// The inode of the other end; 0 if not accepted yet.
    pub peer: Option<u64>,
    /// The path to which it is bound, or for an accepted socket that of its listener; empty for most clients' ends.
    pub name: &'a [u8],
    /// The file at that path.
    pub file: Option<SocketFile>,
}

/// A socket's file, independent of path and network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketFile {
    inode: u32,
    device: u32,
}

impl DiagSocket {
    /// Calls `each` with every Unix socket of the namespace that is connected or listens (unix_diag, a kernel
    /// module).
    pub fn read_unix(&mut self, mut each: impl FnMut(UnixSocket<'_>)) -> io::Result<()> {
        self.ask(request, &mut |datagram, sequence, _| {
            each_socket(datagram, sequence, |body| {
                if let Some(socket) = socket(body) {
                    each(socket);
                }
            })
        })
    }
}

/// A request for the Unix sockets that are connected or listen (`struct unix_diag_req`), with their names, files and
/// peers.
fn request(sequence: u32) -> Vec<u8> {
    let states: u32 = 1 << ESTABLISHED | 1 << TCP_LISTEN;
    let show: u32 = 1 << NAME | 1 << FILE | 1 << PEER;
    let mut body = vec![libc::AF_UNIX as u8, 0, 0, 0];
    body.extend([states, 0, show, !0, !0].iter().flat_map(|word| word.to_ne_bytes()));
    Message { kind: SOCK_DIAG_BY_FAMILY, sequence, body: &body }.bytes(libc::NLM_F_DUMP)
}

/// Reads a `struct unix_diag_msg`. `None` for a socket whose other end is closed: it also has no inode, so it would
/// look like one not accepted yet. Java keeps such a socket.
fn socket(message: &[u8]) -> Option<UnixSocket<'_>> {
    let attributes = message.get(MESSAGE_BYTES..)?;
    if attribute(attributes, SHUTDOWN).is_some_and(|bits| bits.first() == Some(&BOTH_WAYS)) {
        return None;
    }
    let word = |bytes: &[u8]| (bytes.len() >= 4).then(|| u64::from(u32_at(bytes, 0)));
    Some(UnixSocket {
        is_listener: message[2] == TCP_LISTEN,
        inode: u64::from(u32_at(message, 4)),
        peer: attribute(attributes, PEER).and_then(word),
        name: attribute(attributes, NAME).unwrap_or_default(),
        file: attribute(attributes, FILE)
            .filter(|file| file.len() >= 8)
            .map(|file| SocketFile { inode: u32_at(file, 0), device: u32_at(file, 4) }),
    })
}
