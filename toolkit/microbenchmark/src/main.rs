//! The server of Kim and Rixner's microbenchmark (2005, section 5), which only sends full segments. Each request is
//! answered with one write of a segment's size. So a load generator sets the packet rate and the connections, and a
//! profile of the server is a profile of the network stack.

mod connection;

use anyhow::{Context, Result, bail};
use connection::Connection;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType, sockopt};
use rustix::{buffer::spare_capacity, net};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

const USAGE: &str = "usage: straingauge-microbenchmark [--bytes N] [PORT]

Answers each HTTP/1.1 request on PORT \
    (default 5001) with N bytes, header included (default 1448: a full segment on a link
of 1500 bytes, with time \
    stamps). One thread. It runs until it is killed.";
const PORT: u16 = 5001;
/// Payload of a full segment on a link of 1500 bytes, with time stamps.
const SEGMENT_BYTES: usize = 1448;
/// Range of sizes. The header needs some bytes, and a larger body is another experiment.
const BYTES: std::ops::RangeInclusive<usize> = 100..=16 << 20;
/// Length of the accept queue; the kernel lowers it to net.core.somaxconn.
const QUEUE: i32 = 65_535;
/// The token of the listener; connections have their descriptor's number.
const LISTENER: u64 = u64::MAX;
/// Events read at once.
const AT_ONCE: usize = 256;

fn main() -> Result<()> {
    let (mut port, mut bytes) = (PORT, SEGMENT_BYTES);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-h" | "--help" => {
                println!("{USAGE}");
                return Ok(());
            }
            "--bytes" => {
                let typed = words.next().unwrap_or_default();
                bytes = typed.parse().with_context(|| format!("--bytes '{typed}' is not a number"))?;
            }
            _ => port = word.parse().with_context(|| format!("'{word}' is not a port\n{USAGE}"))?,
        }
    }
    if !BYTES.contains(&bytes) {
        bail!("--bytes must be between {} and {}", BYTES.start(), BYTES.end());
    }
    serve(port, &answer(bytes))
}

/// An HTTP/1.1 response with this total size.
fn answer(bytes: usize) -> Vec<u8> {
    // The number has leading zeros, so that the header has the same length for every body.
    let header = |body: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {body:08}\r\n\r\n");
    let mut answer = header(bytes - header(0).len()).into_bytes();
    answer.resize(bytes, b'x');
    answer
}

fn serve(port: u16, answer: &[u8]) -> Result<()> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
        .with_context(|| format!("cannot listen on port {port}"))?;
    net::listen(&listener, QUEUE)?;
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poller, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut events = Vec::with_capacity(AT_ONCE);
    loop {
        events.clear();
        match epoll::wait(&poller, spare_capacity(&mut events), None::<&Timespec>) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                accept(&listener, &poller, &mut connections)?;
            } else if let Some(connection) = connections.get_mut(&number)
                && !connection.serve(answer)
            {
                connections.remove(&number);
            }
        }
    }
}

/// Accepts every waiting connection. Without free descriptors it leaves the rest in the queue.
fn accept(listener: &OwnedFd, poller: &OwnedFd, connections: &mut HashMap<u64, Connection>) -> Result<()> {
    loop {
        let stream = match net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(stream) => stream,
            Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        sockopt::set_tcp_nodelay(&stream, true)?;
        let number = stream.as_raw_fd() as u64;
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(poller, &stream, epoll::EventData::new_u64(number), wanted)?;
        connections.insert(number, Connection::new(stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_exactly_the_requested_bytes() {
        for bytes in [*BYTES.start(), SEGMENT_BYTES, *BYTES.end()] {
            let answer = answer(bytes);
            assert_eq!(answer.len(), bytes);
            let text = String::from_utf8(answer).unwrap();
            let (header, body) = text.split_once("\r\n\r\n").unwrap();
            let length: usize = header.rsplit_once(' ').unwrap().1.parse().unwrap();
            assert_eq!(body.len(), length, "{bytes}");
        }
    }
}
