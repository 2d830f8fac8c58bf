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
