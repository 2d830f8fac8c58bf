//! One connection: counts incoming requests and sends an answer for each.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;

/// The end of a request's header. Requests have no body.
const END: &[u8; 4] = b"\r\n\r\n";
/// Maximum bytes that are read at once, far more than a request.
const CHUNK_BYTES: usize = 16 << 10;

/// A client's connection.
pub struct Connection {
    stream: OwnedFd,
    /// Number of bytes of [`END`] that came in last.
    seen: usize,
    /// Answers that are not completely sent.
    owed: u64,
    /// Sent bytes of the current answer.
    sent: usize,
}

impl Connection {
    /// Takes an accepted connection.
    pub fn new(stream: OwnedFd) -> Self {
        Connection { stream, seen: 0, owed: 0, sent: 0 }
    }

    /// Reads and answers requests. Returns false if the connection has ended. Events are edge-triggered, so it
    /// continues until the socket has no more bytes or accepts no more.
    pub fn serve(&mut self, answer: &[u8]) -> bool {
        let mut chunk = [0u8; CHUNK_BYTES];
        loop {
            match recv(&self.stream, &mut chunk[..], RecvFlags::empty()) {
                Ok((_, 0)) => return false,
                Ok((_, length)) => {
                    self.owed += self.requests(&chunk[..length]);
                    if !self.answer(answer) {
                        return false;
                    }
                    // A stream that returned less than the buffer's size has no more bytes.
                    if length < CHUNK_BYTES {
                        return true;
                    }
                }
                Err(Errno::AGAIN) => return self.answer(answer),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Counts the requests that end in these bytes.
    fn requests(&mut self, bytes: &[u8]) -> u64 {
        let mut count = 0;
        for byte in bytes {
            self.seen = if *byte == END[self.seen] { self.seen + 1 } else { usize::from(*byte == END[0]) };
            if self.seen == END.len() {
                (self.seen, count) = (0, count + 1);
            }
        }
        count
    }

    /// Sends pending answers as far as the socket accepts them. Returns false if the connection has ended.
    fn answer(&mut self, answer: &[u8]) -> bool {
        while self.owed > 0 {
            match send(&self.stream, &answer[self.sent..], SendFlags::NOSIGNAL) {
                Ok(length) => self.sent += length,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            if self.sent == answer.len() {
                (self.sent, self.owed) = (0, self.owed - 1);
            }
        }
        true
    }
}
