//! TIME_WAIT sockets on the server: it closes first after one request per connection.
//!
//! Almeida, Almeida and Yates ("Measuring the behavior of a World-Wide Web server", 1996, section 5.5) found that a
//! server of their day slowed down with the number of such sockets. A new connection from the same address and port
//! replaces such a socket, so ports are used in turn.

use crate::check::port_rules;
use crate::error::{LoadError, refuse_if, wrong};
use crate::ports::PortChoice;
use crate::request::Requests;
use crate::socket::{self, Errno, errno};
use record::{CloseFirst, LoadPlan};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The lowest port used on addresses other than loopback; servers usually listen on lower ones.
const LOWEST_PORT: u16 = 10_000;
/// After this many consecutive failures, the server is assumed not to close or not to answer.
const MOST_FAILURES: u32 = 50;

/// Makes the sockets; remembers the last port used.
#[derive(Debug)]
pub struct TimeWaitMaker {
    plan: LoadPlan,
    sources: Vec<Option<IpAddr>>,
    ports: (u16, u16),
    next: u64,
}

impl TimeWaitMaker {
    /// Opens the counter for the plan's first address.
    pub fn new(plan: &LoadPlan) -> Result<Self, LoadError> {
        refuse_if(
            plan.clients.tls.is_some(),
            "TIME_WAIT sockets are made over plain http only: name the server's http port",
        )?;
        let rules = port_rules(plan);
        let target = plan.addresses[0].ip();
        let is_loopback = target.is_loopback() && target.is_ipv4();
        let sources = match &plan.source_addresses[..] {
            [] if is_loopback => (2..=250).map(|last| Some(IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)))).collect(),
            [] => vec![None],
            given => given.iter().copied().map(Some).collect(),
        };
        let ports = if is_loopback { (rules.low, rules.high) } else { (LOWEST_PORT, u16::MAX) };
        let mut plan = plan.clone();
        plan.clients.close_first = Some(CloseFirst::Server);
        Ok(TimeWaitMaker { plan, sources, ports, next: 0 })
    }

    /// Maximum sockets that can exist at once.
    pub fn capacity(&self) -> u64 {
        self.sources.len() as u64 * self.range()
    }

    fn range(&self) -> u64 {
        u64::from(self.ports.1 - self.ports.0) + 1
    }

    /// Makes `count` more sockets, one after another. Returns early when `stop` is set.
    pub fn make(&mut self, count: u64, stop: &AtomicBool, mut progress: impl FnMut(u64)) -> Result<(), LoadError> {
        let requests = Requests::new(&self.plan);
        let request = requests.targets[0].bytes(true);
        let (mut made, mut failures) = (0, 0);
        while made < count && !stop.load(Ordering::Relaxed) {
            let port = self.ports.0 + (self.next % self.range()) as u16;
            let source = self.sources[(self.next / self.range()) as usize % self.sources.len()];
            self.next += 1;
            match self.one(source, port, request) {
                Ok(()) => (made, failures) = (made + 1, 0),
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => failures += 1,
                Err(Errno::AGAIN) => {
                    return Err(wrong(
                        "the server ignored a request to close the connection, so it leaves no TIME_WAIT sockets",
                    ));
                }
                Err(_) => failures += 1,
            }
            if failures > MOST_FAILURES {
                return Err(wrong(format!(
                    "only {made} of {count} TIME_WAIT sockets could be made: the server refuses connections, or no \
                     port is left"
                )));
            }
            if made % 512 == 0 {
                progress(made);
            }
        }
        Ok(())
    }

    fn one(&self, source: Option<IpAddr>, port: u16, request: &[u8]) -> Result<(), Errno> {
        let address = self.plan.addresses[0];
        let fd = socket::stream_socket(address.is_ipv4())?;
        // SAFETY: the descriptor is new and has no other owner; the stream closes it.
        let mut stream = unsafe { TcpStream::from_raw_fd(fd) };
        stream.set_nonblocking(false).map_err(errno)?;
        let timeout = Some(Duration::from_nanos(self.plan.timeout_ns));
        stream.set_read_timeout(timeout).map_err(errno)?;
        stream.set_write_timeout(timeout).map_err(errno)?;
        socket::bind_source(fd, source, PortChoice::Explicit(port), self.ports, address.is_ipv4())?;
        socket::connect(fd, &address)?;
        stream.write_all(request).map_err(errno)?;
        let mut buffer = [0; 16 * 1024];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(error)),
            }
        }
    }
}
