//! Small servers on `std::net`, one thread per connection, for tests of misbehaviour.

use load::{LoadEvents, LoadProgress, LoadResult};
use record::{Arrival, LoadPlan, Pace};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub const MS: u64 = 1_000_000;
pub const SMALL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
pub const SMALL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";

/// A listening server; stops accepting when dropped.
pub struct Server {
    pub address: SocketAddr,
    /// Number of complete requests; handlers that call [`read_request`] count them.
    pub requests: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves each connection with `handle` in a separate thread.
pub fn serve(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
    serve_on(Ipv4Addr::LOCALHOST.into(), handle)
}

pub fn serve_on(address: IpAddr, handle: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind((address, 0)).expect("a free port on loopback");
    let address = listener.local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, handle) = (stop.clone(), Arc::new(handle));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if seen.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let handle = handle.clone();
            std::thread::spawn(move || handle(stream));
        }
    });
    Server { address, requests: Arc::default(), stop }
}

/// Answers every request on a connection with `answer` until the client closes; once if the answer announces a close.
pub fn answering(answer: impl Into<Vec<u8>>) -> Server {
    let answer = answer.into();
    let says_close = answer.windows(17).any(|words| words == b"Connection: close");
    let requests = Arc::new(AtomicU64::new(0));
    let counted = requests.clone();
    let mut server = serve(move |mut stream| {
        while read_request(&mut stream).is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(&answer).is_err() || says_close {
                return;
            }
        }
    });
    server.requests = requests;
    server
}

/// Reads one request with its body; `None` when the client closed.
pub fn read_request(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
            if request.len() >= end + 4 + length.unwrap_or(0usize) {
                return Some(request);
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Closes with a reset instead of an orderly end.
pub fn reset(stream: TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the descriptor is open and the option's value lives through the call.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
}

/// The events in order.
pub fn plan(address: SocketAddr) -> LoadPlan {
    LoadPlan { connections: 2, duration_ns: 200 * MS, ..LoadPlan::simple(address) }
}

pub fn open(address: SocketAddr, rate_per_sec: f64, arrival: Arrival) -> LoadPlan {
    LoadPlan { pace: Pace::Open { rate_per_sec, arrival }, ..plan(address) }
}

/// The text of the events, in order.
#[derive(Default)]
pub struct Events {
    pub begins: u32,
    pub ends: u32,
    pub progress: Vec<LoadProgress>,
}

impl LoadEvents for Events {
    fn window_begins(&mut self) {
        self.begins += 1;
    }
    fn progress(&mut self, progress: &LoadProgress) {
        self.progress.push(*progress);
    }
    fn window_ends(&mut self) {
        self.ends += 1;
    }
}

/// Runs the plan and checks the invariants of every run.
pub fn run(plan: &LoadPlan) -> LoadResult {
    let result = load::run(plan, &AtomicBool::new(false), &mut Events::default()).expect("the load runs");
    assert_books(&result);
    result
}

/// Asserts that every request has exactly one outcome, and that the histograms have as many values as the outcomes.
pub fn assert_books(result: &LoadResult) {
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.sum(), outcomes.requests(), "{outcomes:?}");
    assert!(outcomes.connections_silent <= outcomes.connections_used, "{outcomes:?}");
    assert_eq!(result.counts.times.response.len(), outcomes.completed());
    assert_eq!(result.counts.times.service.len(), outcomes.completed());
    assert_eq!(result.counts.times.first_byte.len(), outcomes.completed());
    assert_eq!(result.counts.status_counts.values().sum::<u64>(), outcomes.completed());
    let censored = outcomes.unfinished + outcomes.timed_out + outcomes.connect_timed_out;
    assert_eq!(result.counts.times.unfinished_age.len(), censored, "{outcomes:?}");
    assert_eq!(result.counts.times.connect.len(), outcomes.connects);
}
