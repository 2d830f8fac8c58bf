use crate::ObserveError;
use crate::namespace::in_namespace_of;
use crate::port_sockets::PortReader;
use crate::sock_diag::{DiagSocket, Message, Scope, each_socket, request};
use std::io;

const TIME_WAIT: u8 = 6;
/// Message that ends a socket; needs CAP_NET_ADMIN and CONFIG_INET_DIAG_DESTROY.
const SOCK_DESTROY: u16 = 21;
const BATCH: usize = 4096;

/// Reads and ends the sockets of a port in one namespace.
#[derive(Debug)]
pub struct TimeWaitSockets {
    port: u16,
    reader: PortReader,
    diag: DiagSocket,
}

impl TimeWaitSockets {
    /// Opens the counter for a port in the namespace of `pid` (`None`: of the calling thread).
    pub fn open(pid: Option<u32>, port: u16) -> Result<Self, ObserveError> {
        let reader = PortReader::open(pid, port)?;
        let diag = in_namespace_of(pid, DiagSocket::connect)?;
        Ok(TimeWaitSockets { port, reader, diag: diag.map_err(|source| ObserveError::Sockets { port, source })? })
    }

    /// Current number of sockets.
    pub fn count(&mut self) -> io::Result<u64> {
        Ok(self.reader.read(self.port, Scope::AllStates)?.by_state[usize::from(TIME_WAIT)])
    }

    /// Kernel memory per socket, from the slab's object size; `None` if /proc/slabinfo cannot be read.
    pub fn bytes_each() -> Option<f64> {
        let slabs = std::fs::read_to_string("/proc/slabinfo").ok()?;
        object_bytes(&slabs)
    }

    /// Ends all sockets and returns their number. Fails if the kernel or our privileges do not allow it.
    pub fn end_all(&mut self) -> io::Result<u64> {
        let mut ended = 0;
        loop {
            let found = self.list()?;
            if found.is_empty() {
                return Ok(ended);
            }
            let mut progress = 0;
            for body in &found {
                match self.end(body) {
                    Ok(()) => progress += 1,
                    // The socket expired meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => progress += 1,
                    Err(error) => return Err(error),
                }
            }
            ended += progress;
        }
    }

    /// The requests (`struct inet_diag_req_v2`) that name up to a batch of sockets.
    fn list(&mut self) -> io::Result<Vec<[u8; 56]>> {
        let mut found = Vec::new();
        self.diag.ask(|sequence| request(self.port, Scope::TimeWait, sequence), &mut |datagram, sequence, _| {
            each_socket(datagram, sequence, |body| {
                if body.len() >= 52 && body[1] == TIME_WAIT && found.len() < BATCH {
                    let mut one = [0u8; 56];
                    one[..2].copy_from_slice(&[body[0], libc::IPPROTO_TCP as u8]);
                    one[4..8].copy_from_slice(&(1u32 << TIME_WAIT).to_ne_bytes());
                    one[8..].copy_from_slice(&body[4..52]);
                    found.push(one);
                }
            })
        })?;
        Ok(found)
    }

    fn end(&mut self, body: &[u8; 56]) -> io::Result<()> {
        record::fault::step()?;
        self.diag.ask(
            |sequence| Message { kind: SOCK_DESTROY, sequence, body }.bytes(libc::NLM_F_ACK),
            &mut |datagram, sequence, _| each_socket(datagram, sequence, |_| ()),
        )
    }
}

pub fn object_bytes(slabs: &str) -> Option<f64> {
    let line = slabs.lines().find(|line| line.starts_with("tw_sock_TCP "))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}
