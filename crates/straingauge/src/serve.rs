//! A small HTTP/1.1 server that shows a running command: `GET` without keep-alive. One thread polls all connections.
//! Reads and the number of connections are limited; at the limit, a new connection replaces the oldest. Clients are
//! not trusted.
//!
//! A connection may follow the site (server-sent events): it gets news until it is closed. A slow follower gets only
//! the newest, and is dropped if it reads nothing for a while.

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MAX_HEAD_BYTES: usize = 8 << 10;
/// Timeout for the rest of a request, and for progress of a response.
pub const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of comments to followers without news, to notice lost connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(2);

pub struct HttpRequest<'a> {
    /// The path with its query; empty if the method is not `GET` or the head is malformed.
    pub target: &'a str,
    /// The `Host` header; `None` without one or with several.
    pub host: Option<&'a str>,
    /// The client's `Accept` headers, joined by commas.
    pub accept: String,
}

pub enum Response {
    Whole(Vec<u8>),
    /// The beginning of a stream; [`Site::news`] supplies the rest.
    Stream(Vec<u8>),
}

pub trait Site: Send + Sync + 'static {
    /// The response. Must be quick, because all connections wait for it.
    fn answer(&self, request: &HttpRequest<'_>) -> Response;

    /// The news after number `seen` (0 at first), with their number.
    fn news(&self, _seen: u64) -> Option<(u64, Vec<u8>)> {
        None
    }
}

#[derive(Default)]
struct HttpState {
    followers: AtomicUsize,
    ends: AtomicBool,
}

/// The server. Its thread ends with [`HttpServer::end`] or with the process.
pub struct HttpServer {
    listener: Option<TcpListener>,
    address: SocketAddr,
    most_clients: usize,
    shared: Arc<HttpState>,
    /// Writing a byte to it wakes the thread.
    waker: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens. Connections wait until [`HttpServer::serve`] is called.
    pub fn bind(address: SocketAddr, most_clients: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(HttpServer {
            listener: Some(listener),
            address,
            most_clients,
            shared: Arc::default(),
            waker: None,
            thread: None,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn serve(&mut self, name: &str, site: Arc<impl Site>) -> Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (shared, most_clients) = (Arc::clone(&self.shared), self.most_clients);
        let serving = Serving { listener, woken, shared, most_clients, clients: VecDeque::new(), ends: None };
        self.thread = Some(std::thread::Builder::new().name(name.into()).spawn(move || serving.run(&*site))?);
        self.waker = Some(waker);
        Ok(())
    }

    /// Makes the thread check for news.
    pub fn wake(&self) {
        // If the pipe is full, the thread will wake up anyway.
        let _ = self.waker.as_ref().map(|mut waker| waker.write(&[0]));
    }

    pub fn followers(&self) -> usize {
        self.shared.followers.load(Ordering::Relaxed)
    }

    /// Ends the server when all followers have left, at most [`GRACE`] later.
    pub fn end(mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(PartialEq)]
enum ClientState {
    Asking,
    Answered,
    /// Follows the news; this one was sent last.
    Following(u64),
}

/// A connection: the request read so far, then the rest of the response.
struct ClientConnection {
    stream: TcpStream,
    state: ClientState,
    /// When the connection began, then when it last made progress.
    since: Instant,
    head: Vec<u8>,
    out: Vec<u8>,
    written: usize,
}

impl ClientConnection {
    fn is_idle(&self) -> bool {
        self.written == self.out.len()
    }

    /// Returns whether there is more to do.
    fn step(&mut self, site: &impl Site) -> std::io::Result<bool> {
        let mut chunk = [0; 1024];
        while self.state == ClientState::Asking {
            match self.stream.read(&mut chunk)? {
                0 => return Ok(false),
                count => self.head.extend_from_slice(&chunk[..count]),
            }
            if self.head.windows(4).any(|window| window == b"\r\n\r\n") {
                (self.state, self.out) = match site.answer(&parsed(&self.head)) {
                    Response::Whole(bytes) => (ClientState::Answered, bytes),
                    Response::Stream(bytes) => (ClientState::Following(0), bytes),
                };
                self.since = Instant::now();
            } else if self.head.len() > MAX_HEAD_BYTES {
                return Ok(false);
            }
        }
        loop {
            while !self.is_idle() {
                self.written += self.stream.write(&self.out[self.written..])?;
                self.since = Instant::now();
            }
            let ClientState::Following(seen) = self.state else { return Ok(false) };
            let Some((number, news)) = site.news(seen).or_else(|| self.beat(seen)) else { break };
            (self.state, self.out, self.written, self.since) =
                (ClientState::Following(number), news, 0, Instant::now());
        }
        // Followers send nothing, so a read detects their end.
        self.stream.read(&mut chunk).map(|_| false)
    }

    fn beat(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
        (self.since.elapsed() >= KEEP_ALIVE).then(|| (seen, b":\n\n".to_vec()))
    }

    fn time_left(&self) -> Duration {
        let is_waiting = matches!(self.state, ClientState::Following(_)) && self.is_idle();
        (if is_waiting { KEEP_ALIVE } else { IO_TIMEOUT }).saturating_sub(self.since.elapsed())
    }
}

struct Serving {
    listener: TcpListener,
    woken: UnixStream,
    shared: Arc<HttpState>,
    most_clients: usize,
    clients: VecDeque<ClientConnection>,
    /// The latest end of the server's thread.
    ends: Option<Instant>,
}

impl Serving {
    fn run(mut self, site: &impl Site) {
        loop {
            self.wait();
            let mut bytes = [0; 64];
            while self.woken.read(&mut bytes).is_ok_and(|count| count > 0) {}
            self.accept();
            self.clients.retain_mut(|client| {
                let is_open = match client.step(site) {
                    Ok(is_open) => is_open,
                    Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
                };
                // A follower whose time is over has received a comment instead.
                is_open && !client.time_left().is_zero()
            });
            let followers =
                self.clients.iter().filter(|client| matches!(client.state, ClientState::Following(_))).count();
            self.shared.followers.store(followers, Ordering::Relaxed);
            if self.shared.ends.load(Ordering::Relaxed) {
                let ends = *self.ends.get_or_insert_with(|| Instant::now() + GRACE);
                let is_done = self.clients.iter().all(|client| client.state == ClientState::Asking);
                if is_done || Instant::now() >= ends {
                    return;
                }
            }
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.clients.len() == self.most_clients {
                        // Prefer to close a connection that has sent no request yet.
                        let oldest = self.clients.iter().position(|client| client.state == ClientState::Asking);
                        self.clients.remove(oldest.unwrap_or(0));
                    }
                    let (state, since) = (ClientState::Asking, Instant::now());
                    let client =
                        ClientConnection { stream, state, since, head: Vec::new(), out: Vec::new(), written: 0 };
                    self.clients.push_back(client);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Out of file descriptors: back off and close a connection.
                    self.clients.pop_front();
                    std::thread::sleep(Duration::from_millis(100));
                    return;
                }
            }
        }
    }

    /// Sleeps until a connection is ready or new, news come, or a timeout ends.
    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        fds.extend(
            self.clients.iter().map(|client| {
                PollFd::new(&client.stream, if client.is_idle() { PollFlags::IN } else { PollFlags::OUT })
            }),
        );
        let ends = self.ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        let least = self.clients.iter().map(ClientConnection::time_left).chain(ends).min();
        let timeout = least.and_then(|time| Timespec::try_from(time).ok());
        // The caller tries all connections, so ignore which are ready.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

pub fn parsed(head: &[u8]) -> HttpRequest<'_> {
    let text = std::str::from_utf8(head).unwrap_or_default();
    let mut lines = text.split("\r\n");
    let target = lines.next().and_then(|line| line.strip_prefix("GET ")).and_then(|rest| rest.split(' ').next());
    let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    let named = |wanted: &'static str| {
        fields.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    let mut hosts = named("host");
    let host = hosts.next().filter(|_| hosts.next().is_none());
    HttpRequest { target: target.unwrap_or_default(), host, accept: named("accept").collect::<Vec<_>>().join(",") }
}

/// Builds a complete response with a body of this type. Each of `headers` ends with a line break.
pub fn response(status: &str, content_type: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{headers}Connection: \
         close\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}
