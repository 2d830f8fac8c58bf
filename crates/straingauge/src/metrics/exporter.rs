//! The Prometheus endpoint: `GET /metrics`, in the format that the client asks for (`report::metrics::text`), without
//! keep-alive. One thread waits for all connections at once, so a silent one delays no other. Reads are bounded, and so
//! is the number of connections: at the limit the newest replaces the oldest. Clients are not trusted.

use anyhow::{Context, Result};
use report::metrics::Metrics;
use report::metrics::text::{Format, page};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MAX_HEAD_BYTES: usize = 8 << 10;
/// A connection that has not been answered after this long is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once.
const MOST_CLIENTS: usize = 64;

type Shared = Arc<Mutex<Arc<Metrics>>>;

/// The endpoint; its thread ends with the process.
pub struct Exporter {
    listener: Option<TcpListener>,
    metrics: Shared,
}

impl Exporter {
    /// Listens; connections wait until [`Exporter::serve`].
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot serve metrics on {address}"))?;
        listener.set_nonblocking(true)?;
        eprintln!("metrics on http://{}/metrics", listener.local_addr()?);
        Ok(Exporter { listener: Some(listener), metrics: Shared::default() })
    }

    /// Answers from now on. Privileges belong to threads, so this one is begun when they are given up.
    pub fn serve(&mut self) -> Result<()> {
        if let Some(listener) = self.listener.take() {
            let metrics = Arc::clone(&self.metrics);
            std::thread::Builder::new().name("metrics".into()).spawn(move || serve(&listener, &metrics))?;
        }
        Ok(())
    }

    /// Replaces what is served.
    pub fn publish(&self, metrics: Arc<Metrics>) {
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }
}

/// A connection: the request read so far, then the rest of the answer to write.
struct Client {
    stream: TcpStream,
    since: Instant,
    head: Vec<u8>,
    answer: Option<(Vec<u8>, usize)>,
}

impl Client {
    /// Reads or writes as much as possible without waiting. Returns whether there is more to do.
    fn step(&mut self, metrics: &Shared) -> std::io::Result<bool> {
        let mut chunk = [0; 1024];
        while self.answer.is_none() {
            match self.stream.read(&mut chunk)? {
                0 => return Ok(false),
                count => self.head.extend_from_slice(&chunk[..count]),
            }
            if self.head.windows(4).any(|window| window == b"\r\n\r\n") {
                let metrics = Arc::clone(&metrics.lock().unwrap_or_else(PoisonError::into_inner));
                self.answer = Some((answer(&self.head, &metrics), 0));
            } else if self.head.len() > MAX_HEAD_BYTES {
                return Ok(false);
            }
        }
        while let Some((bytes, written)) = &mut self.answer {
            if *written == bytes.len() {
                break;
            }
            *written += self.stream.write(&bytes[*written..])?;
        }
        Ok(false)
    }
}

fn serve(listener: &TcpListener, metrics: &Shared) {
    let mut clients: VecDeque<Client> = VecDeque::new();
    loop {
        wait(listener, &clients);
        loop {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if clients.len() == MOST_CLIENTS {
                        clients.pop_front();
                    }
                    clients.push_back(Client { stream, since: Instant::now(), head: Vec::new(), answer: None });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Out of file descriptors: back off, and make room.
                    clients.pop_front();
                    std::thread::sleep(Duration::from_millis(100));
                    break;
                }
            }
        }
        clients.retain_mut(|client| {
            let is_open = match client.step(metrics) {
                Ok(is_open) => is_open,
                Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
            is_open && client.since.elapsed() < PATIENCE
        });
    }
}

/// Sleeps until a connection comes, one is ready, or the oldest has timed out.
fn wait(listener: &TcpListener, clients: &VecDeque<Client>) {
    let poll = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
    let mut fds = vec![poll(listener.as_raw_fd(), libc::POLLIN)];
    fds.extend(clients.iter().map(|client| {
        poll(client.stream.as_raw_fd(), if client.answer.is_some() { libc::POLLOUT } else { libc::POLLIN })
    }));
    let timeout_ms = clients
        .front()
        .map_or(-1, |oldest| PATIENCE.saturating_sub(oldest.since.elapsed()).as_millis() as libc::c_int + 1);
    // SAFETY: `fds` is a live array of that many; its descriptors are open. What became ready is found out by trying.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
}

/// The format that the head's `Accept` asks for.
fn format_of(head: &[u8]) -> Format {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let accepts: Vec<&str> =
        fields.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value).collect();
    Format::accepted(&accepts.join(","))
}

fn answer(head: &[u8], metrics: &Metrics) -> Vec<u8> {
    let is_known = head.starts_with(b"GET /metrics ") || head.starts_with(b"GET /metrics?");
    let (status, kind, body) = match format_of(head) {
        format if is_known => ("200 OK", format.content_type(), page(metrics, format)),
        _ => ("404 Not Found", "text/plain; charset=utf-8", "see /metrics\n".to_string()),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nVary: Accept\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No wait in this test ends except by an answer: none of the idle connections sends or closes anything.
    #[test]
    fn idle_connections_hold_up_no_scrape() {
        let mut exporter = Exporter::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = exporter.listener.as_ref().expect("it listens").local_addr().expect("its address");
        exporter.serve().expect("a thread");
        let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let began = Instant::now();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
            assert!(began.elapsed() < PATIENCE, "it did not wait for the idle ones to be given up");
        }
        drop(idle);
    }
}
