//! Servers that misbehave on purpose, in threads of the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const HOSTILE: &str = "red\u{1b}[31m\u{202e}\u{9b}2J\u{7}\u{2066}end";

/// How a server misbehaves after it has read a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Answers with the greeting of another protocol.
    NotHttp,
    /// Announces 1000 bytes, sends 10, closes.
    BodyEndsEarly,
    /// Sends a header of 10 MB.
    HugeHeader,
    /// Redirects to another server.
    Redirect,
    /// Redirects to a name that reverses the direction of text; a control character would be refused.
    HostileRedirect,
    /// Answers 500.
    ServerError,
    /// Reads the request and closes without a byte.
    Closes,
    /// Reads the request and never answers.
    Silent,
}

/// A misbehaving server on its own port. Dropping it closes the listener.
pub struct BrokenServer {
    pub port: u16,
    is_over: Arc<AtomicBool>,
}

impl BrokenServer {
    pub fn start(fault: Fault) -> BrokenServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let over = over.clone();
                std::thread::spawn(move || {
                    // These servers expect clients that give up in the middle.
                    let _ = misbehave(connection, fault, &over);
                });
            }
        });
        BrokenServer { port, is_over }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

impl Drop for BrokenServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn misbehave(mut connection: TcpStream, fault: Fault, is_over: &AtomicBool) -> std::io::Result<()> {
    while read_request(&mut connection)? {
        match fault {
            Fault::NotHttp => connection.write_all(b"220 mail.example ESMTP ready\r\n")?,
            Fault::BodyEndsEarly => {
                connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789")?;
                return Ok(());
            }
            Fault::HugeHeader => {
                connection.write_all(b"HTTP/1.1 200 OK\r\nX-Fill: ")?;
                let piece = [b'a'; 64 << 10];
                for _ in 0..160 {
                    connection.write_all(&piece)?;
                }
                connection.write_all(b"\r\nContent-Length: 0\r\n\r\n")?;
            }
            Fault::Redirect => connection
                .write_all(b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/there\r\nContent-Length: 0\r\n\r\n")?,
            Fault::HostileRedirect => {
                let location =
                    "HTTP/1.1 301 Moved\r\nLocation: http://red\u{202e}\u{2066}end/\r\nContent-Length: 0\r\n\r\n";
                connection.write_all(location.as_bytes())?;
            }
            Fault::ServerError => connection.write_all(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n")?,
            Fault::Closes => return Ok(()),
            Fault::Silent => {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads to the end of a request's header; false if the client has closed.
fn read_request(connection: &mut TcpStream) -> std::io::Result<bool> {
    let mut last = [0u8; 4];
    let mut byte = [0u8; 1];
    while last != *b"\r\n\r\n" {
        if connection.read(&mut byte)? == 0 {
            return Ok(false);
        }
        last.rotate_left(1);
        last[3] = byte[0];
    }
    Ok(true)
}
