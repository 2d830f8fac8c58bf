//! The sockets of the server's port: by inet_diag, or without it by reading the text of /proc/net/tcp.

use crate::ObserveError;
use crate::namespace::in_namespace_of;
use crate::proc_text::parse_tcp_line;
use crate::sock_diag::{DiagSocket, ESTABLISHED, PortSockets, Scope, TcpSocket, UnixSocket};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};

/// Maximum length of a line; lines of /proc/net/tcp have 150 bytes.
const MAX_LINE_BYTES: u64 = 4096;

#[derive(Debug)]
pub enum PortReader {
    /// Reads by netlink.
    Diag(DiagSocket),
    /// Parses text: the kernel formats every socket of the namespace, which is several times more expensive.
    Text(Vec<BufReader<File>>),
}

impl PortReader {
    /// Opens the best reader that works in the namespace of `pid` (`None`: of the calling thread).
    pub fn open(pid: Option<u32>, port: u16) -> Result<Self, ObserveError> {
        in_namespace_of(pid, || {
            let diag = DiagSocket::connect().and_then(|mut diag| {
                diag.read_port(port, Scope::Listeners)?;
                Ok(diag)
            });
            diag.map(PortReader::Diag).or_else(|error| {
                let open = |name| File::open(format!("/proc/thread-self/net/{name}")).map(BufReader::new);
                let files: Vec<_> = ["tcp", "tcp6"].into_iter().filter_map(|name| open(name).ok()).collect();
                if files.is_empty() { Err(error) } else { Ok(PortReader::Text(files)) }
            })
        })?
        .map_err(|source| ObserveError::Sockets { port, source })
    }

    pub fn read(&mut self, port: u16, scope: Scope) -> io::Result<PortSockets> {
        match self {
            PortReader::Diag(diag) => diag.read_port(port, scope),
            PortReader::Text(files) => {
                let mut sockets = PortSockets::default();
                for file in files {
                    file.rewind()?;
                    read_text(file, port, &mut sockets)?;
                }
                Ok(sockets)
            }
        }
    }

    /// Calls `each` with the sockets of `scope`, which must be a scope of other ports.
    pub fn read_elsewhere(&mut self, port: u16, scope: Scope, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
        match self {
            PortReader::Diag(diag) => diag.read_elsewhere(port, scope, each),
            PortReader::Text(files) => files.iter_mut().try_for_each(|file| {
                file.rewind()?;
                each_line(file, |one| {
                    let is_wanted = one.is_listener() || scope == Scope::Elsewhere && one.state == ESTABLISHED;
                    if is_wanted && one.local.port() != port {
                        each(one);
                    }
                })
            }),
        }
    }

    /// Calls `each` with every Unix socket that is connected or listens. Text does not show which sockets are
    /// connected, so it returns none.
    pub fn read_unix(&mut self, each: impl FnMut(UnixSocket<'_>)) -> io::Result<()> {
        match self {
            PortReader::Diag(diag) => diag.read_unix(each),
            PortReader::Text(_) => Ok(()),
        }
    }

    /// Whether listeners include their number of drops, which the text lacks.
    pub fn knows_drops(&self) -> bool {
        matches!(self, PortReader::Diag(_))
    }

    pub fn method(&self) -> &'static str {
        match self {
            PortReader::Diag(_) => "inet_diag netlink",
            PortReader::Text(_) => "/proc/net/tcp",
        }
    }
}

/// Adds the sockets of `port` in the text of /proc/net/tcp or tcp6.
pub fn read_text(file: &mut impl BufRead, port: u16, sockets: &mut PortSockets) -> io::Result<()> {
    each_line(file, |socket| {
        if socket.local.port() == port {
            sockets.add(socket);
        }
    })
}

fn each_line(file: &mut impl BufRead, mut each: impl FnMut(TcpSocket)) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut *file, MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        parse_tcp_line(&line).into_iter().for_each(&mut each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn netlink_and_text_give_the_same_sockets() {
        let listener = TcpListener::bind("127.83.7.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _open: Vec<_> =
            (0..5).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap())).collect();
        let mut diag = PortReader::open(None, address.port()).unwrap();
        assert_eq!(diag.method(), "inet_diag netlink");
        let file = BufReader::new(File::open("/proc/thread-self/net/tcp").unwrap());
        let mut text = PortReader::Text(vec![file]);
        // The text is produced in pieces: while connections open and close, a line may be skipped or repeated.
        let (by_diag, by_text) = (0..100)
            .map(|_| {
                (diag.read(address.port(), Scope::AllStates).unwrap(), text.read(address.port(), Scope::AllStates))
            })
            .map(|(by_diag, by_text)| (by_diag, by_text.unwrap()))
            .find(|(by_diag, by_text)| by_diag.by_state == by_text.by_state)
            .expect("once in a hundred times nothing interferes");
        assert_eq!(by_diag.by_state[1], 5);
        let (diag, text) = (by_diag.listeners[0], by_text.listeners[0]);
        assert_eq!(TcpSocket { queue_limit: 0, ..diag }, text);
    }

    #[test]
    fn netlink_and_text_give_the_same_connections_to_other_ports() {
        let bound =
            |address: &str| TcpListener::bind((address, 0)).map(|one| (one.local_addr().unwrap(), one)).unwrap();
        let (served_at, served) = bound("127.83.7.2");
        // Two addresses may get the same free port.
        let others: Vec<_> = (0..5).map(|_| bound("127.83.7.3")).collect();
        let other_at = others.iter().map(|(at, _)| *at).find(|at| at.port() != served_at.port()).unwrap();
        let to_served = TcpStream::connect(served_at).unwrap();
        let accepted = served.accept().unwrap().0;
        let to_other: Vec<_> = (0..3).map(|_| TcpStream::connect(other_at).unwrap()).collect();
        let open = |name: &str| BufReader::new(File::open(format!("/proc/thread-self/net/{name}")).unwrap());
        let text = PortReader::Text(["tcp", "tcp6"].map(open).into());
        for mut reader in [PortReader::open(None, served_at.port()).unwrap(), text] {
            let mut found = std::collections::BTreeSet::new();
            let keep = |one: TcpSocket| found.extend([(one.inode, one.is_listener(), one.local, one.remote)]);
            reader.read_elsewhere(served_at.port(), Scope::Elsewhere, keep).unwrap();
            for (stream, remote) in to_other.iter().map(|stream| (stream, other_at)).chain([(&to_served, served_at)]) {
                let (inode, local) = (inode_of(stream), stream.local_addr().unwrap());
                let wanted = (inode, false, local, remote);
                assert!(found.contains(&wanted), "{}: {wanted:?} in {found:?}", reader.method());
            }
            assert!(found.iter().all(|one| one.0 != inode_of(&accepted)), "the port's own: {found:?}");
            assert!(found.iter().any(|one| one.1 && one.2 == other_at), "{found:?}");
        }
    }

    fn inode_of(stream: &TcpStream) -> u64 {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(stream));
        let link = std::fs::read_link(link).unwrap();
        crate::proc_text::parse_socket_link(link.as_os_str().as_encoded_bytes()).unwrap()
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let mut endless = BufReader::new(io::Read::take(io::repeat(b'x'), 1 << 20));
        let mut sockets = PortSockets::default();
        read_text(&mut endless, 80, &mut sockets).unwrap();
        assert_eq!(sockets, PortSockets::default());
    }
}
