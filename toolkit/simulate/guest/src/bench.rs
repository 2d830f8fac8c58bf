//! The microbenchmark of Kim and Rixner (2005, section 5). A server sends full segments over several connections in
//! turn at a constant rate, and the other end acknowledges each.

use crate::network::{self, CLIENT, SERVER, SERVER_ADDRESS};
use crate::{Outcome, because, host, sys};
use model::job::Bench;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const PORT: u16 = 5001;
/// Payload of a full segment on a link of 1500 bytes, with time stamps.
const SEGMENT: [u8; 1448] = [0; 1448];
/// Timeout for a lost wake-up before the count begins, and for the last acknowledgements.
const SETTLE_NS: u64 = 300_000_000;

pub fn run(bench: &Bench) -> Outcome<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            sys::mark::<4>();
            sys::enter_namespace(SERVER)?;
            let listener = TcpListener::bind((SERVER_ADDRESS, PORT)).map_err(because("the server cannot listen"))?;
            ready.send(()).map_err(because("the client is gone"))?;
            let accept = |_| listener.accept().map(|(stream, _)| stream).map_err(because("the server cannot accept"));
            let mut streams = (0..bench.connections).map(accept).collect::<Outcome<Vec<TcpStream>>>()?;
            let outcome = serve(bench, &mut streams);
            // The client ends when its connections do.
            drop(streams);
            outcome
        });
        let client = scope.spawn(move || {
            sys::mark::<5>();
            sys::enter_namespace(CLIENT)?;
            is_ready.recv().map_err(because("the server is gone"))?;
            receive(bench.connections)
        });
        let end = |thread: std::thread::ScopedJoinHandle<'_, Outcome<()>>| {
            thread.join().unwrap_or_else(|_| Err("a thread of the guest died".into()))
        };
        end(server).and(end(client))
    })
}

fn serve(bench: &Bench, streams: &mut [TcpStream]) -> Outcome<()> {
    let mut pace = Pace { next_ns: sys::now_ns() + SETTLE_NS, interval_ns: 1_000_000_000 / bench.rate_per_sec.max(1) };
    let mut turn = 0;
    let mut send = |count: u64, pace: &mut Pace| -> Outcome<()> {
        for _ in 0..count {
            pace.wait();
            let stream = &mut streams[turn];
            turn = (turn + 1) % bench.connections as usize;
            stream.write_all(&SEGMENT).map_err(because("the server cannot send"))?;
        }
        Ok(())
    };
    send(bench.warmup_packets, &mut pace)?;
    let before = network::packets()?;
    let began = sys::now_ns();
    sys::mark::<2>();
    send(bench.packets, &mut pace)?;
    sys::mark::<3>();
    let elapsed = sys::now_ns() - began;
    let after = network::packets()?;
    let (received, sent) = (after.0 - before.0, after.1 - before.1);
    host::say(&format!("received {received}\nsent {sent}\nwindow_ns {elapsed}\n"));
    sys::sleep_until(sys::now_ns() + SETTLE_NS);
    Ok(())
}

/// The rate is constant: a late server sends at once and keeps the schedule.
struct Pace {
    next_ns: u64,
    interval_ns: u64,
}

impl Pace {
    fn wait(&mut self) {
        if sys::now_ns() < self.next_ns {
            sys::sleep_until(self.next_ns);
        }
        self.next_ns += self.interval_ns;
    }
}

fn receive(connections: u64) -> Outcome<()> {
    let poller = sys::Poller::new()?;
    let mut streams = Vec::new();
    for number in 0..connections {
        let stream = TcpStream::connect((SERVER_ADDRESS, PORT)).map_err(because("the client cannot connect"))?;
        poller.watch(stream.as_raw_fd(), number)?;
        streams.push(Some(stream));
    }
    let mut open = connections;
    let mut buffer = vec![0; 1 << 16];
    while open > 0 {
        poller.wait(|number| {
            let stream = &mut streams[number as usize];
            let is_over = stream.as_mut().is_none_or(|stream| !matches!(stream.read(&mut buffer), Ok(1..)));
            // Closing removes the descriptor from the epoll.
            if is_over && stream.take().is_some() {
                open -= 1;
            }
        })?;
    }
    Ok(())
}
