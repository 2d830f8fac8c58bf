//! A client that knows exactly what it has sent and received.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

/// Traffic of the client's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub requests: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.requests += other.requests;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }
}

/// One connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    pub count: Count,
}

impl Connection {
    pub fn open(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server accepts");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
        Connection { stream, buffer: Vec::new(), count: Count::default() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the request leaves");
        self.count.bytes_sent += bytes.len() as u64;
    }

    /// Requests a document and reads the whole response.
    pub fn get(&mut self, path: &str, last: bool) {
        let close = if last { "Connection: close\r\n" } else { "" };
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n").as_bytes());
        self.receive();
        if last {
            let mut rest = Vec::new();
            self.stream.read_to_end(&mut rest).expect("the server closes");
            assert!(rest.is_empty(), "bytes behind the response");
        }
    }

    /// Reads an interim response, which is only a head and does not count as an answer.
    pub fn receive_interim(&mut self) {
        loop {
            if let Some(head) = find(&self.buffer, b"\r\n\r\n") {
                assert!(self.buffer.starts_with(b"HTTP/1.1 1"), "an interim response");
                self.buffer.drain(..head + 4);
                self.count.bytes_received += head as u64 + 4;
                return;
            }
            self.read_more();
        }
    }

    /// Reads exactly this many bytes of any protocol.
    pub fn receive_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            self.read_more();
        }
        self.count.bytes_received += count as u64;
        self.buffer.drain(..count).collect()
    }

    fn read_more(&mut self) {
        let mut chunk = [0; 65536];
        let read = self.stream.read(&mut chunk).expect("more");
        assert!(read > 0, "the server closed too early");
        self.buffer.extend_from_slice(&chunk[..read]);
    }

    /// Reads one response with a Content-Length.
    pub fn receive(&mut self) {
        let mut chunk = [0; 65536];
        let total = loop {
            if let Some(head) = find(&self.buffer, b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
                let length = text
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length:"))
                    .expect("a Content-Length")
                    .trim()
                    .parse::<usize>()
                    .expect("a number");
                break head + 4 + length;
            }
            let read = self.stream.read(&mut chunk).expect("a response");
            assert!(read > 0, "the server closed in the middle of a response");
            self.buffer.extend_from_slice(&chunk[..read]);
        };
        while self.buffer.len() < total {
            let read = self.stream.read(&mut chunk).expect("a body");
            assert!(read > 0, "the server closed in the middle of a body");
            self.buffer.extend_from_slice(&chunk[..read]);
        }
        self.buffer.drain(..total);
        self.count.requests += 1;
        self.count.bytes_received += total as u64;
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Opens several connections at once, each of which requests the paths in turn; they stay open.
pub fn keep_alive(
    port: u16,
    connections: usize,
    requests: usize,
    paths: &'static [&'static str],
) -> (Vec<Connection>, Count) {
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            std::thread::spawn(move || {
                let mut connection = Connection::open(port);
                for path in paths.iter().cycle().take(requests) {
                    connection.get(path, false);
                }
                connection
            })
        })
        .collect();
    let open: Vec<Connection> = threads.into_iter().map(|thread| thread.join().expect("the client lives")).collect();
    let mut count = Count::default();
    for connection in &open {
        count.add(connection.count);
    }
    (open, count)
}

/// Opens a connection per request.
pub fn close_each(port: u16, requests: usize, path: &str) -> Count {
    let mut count = Count::default();
    for _ in 0..requests {
        let mut connection = Connection::open(port);
        connection.get(path, true);
        count.add(connection.count);
    }
    count
}
