//! Stands in for the helper of `straingauge fleet --python` and all its workers, in one process. The workers send no
//! load; they keep the protocol's times and return a recorded result. bench/fleet uses it to measure the driver's own
//! cost with many workers.
//!
//! Environment: `FAKE_RESULT` names a file with the result line of a real worker, and `FAKE_END` a file for the
//! instant at which the last result left (nanoseconds of `CLOCK_MONOTONIC`).

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

/// Interval of progress reports, as in real workers.
const PROGRESS_NS: u64 = 200_000_000;
/// Event of a new worker.
const NEW: u64 = u64::MAX;
/// Event of the driver's end.
const END: u64 = u64::MAX - 1;

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Worker {
    socket: UnixStream,
    said: Vec<u8>,
    window_ns: u64,
    end_ns: u64,
    completed: u64,
}

impl Worker {
    fn say(&mut self, message: &Value) -> std::io::Result<()> {
        self.socket.write_all(format!("{message}\n").as_bytes())
    }

    /// Answers the received lines; returns the instant at which requests begin, if it was among them.
    fn answer(&mut self, line: &[u8]) -> Result<Option<u64>, Box<dyn Error>> {
        let message: Value = serde_json::from_slice(line)?;
        match message["type"].as_str() {
            Some("ping") => {
                self.say(&json!({ "type": "pong", "sent_ns": message["sent_ns"], "clock_ns": now_ns() }))?;
            }
            Some("plan") => {
                let span = |name: &str| message["plan"][name].as_u64().unwrap_or(0);
                self.window_ns = span("warmup_ns") + span("duration_ns");
                self.say(&json!({ "type": "ready" }))?;
            }
            Some("start") => {
                let start_ns = message["at_ns"].as_u64().unwrap_or(0);
                (self.end_ns, self.completed) = (start_ns + self.window_ns, 0);
                return Ok(Some(start_ns));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Sends progress or the result; returns when the worker is due again.
    fn report(&mut self, result: &[u8]) -> std::io::Result<Option<u64>> {
        let now = now_ns();
        if now >= self.end_ns {
            self.socket.write_all(result)?;
            return Ok(None);
        }
        self.completed += 200;
        let completed = self.completed;
        self.say(&json!({
            "type": "progress", "connected": 10, "completed": completed, "failed": 0, "throughput_per_sec": 1000.0,
        }))?;
        Ok(Some((now + PROGRESS_NS).min(self.end_ns)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let result = std::fs::read(std::env::var("FAKE_RESULT")?)?;
    let end_file = std::env::var("FAKE_END")?;
    let mut order = String::new();
    let mut input = std::io::stdin().lock();
    input.read_line(&mut order)?;
    let count = serde_json::from_str::<Value>(&order)?["workers"].as_u64().ok_or("no number of workers")?;
    let path = format!("{end_file}.socket");
    let listener = UnixListener::bind(&path)?;
    let nodes: Vec<Value> = (0..count).map(|_| json!({ "name": "fake", "socket": path })).collect();
    println!("{}", json!({ "type": "nodes", "nodes": nodes }));

    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(NEW), EventFlags::IN)?;
    epoll::add(&epoll, std::io::stdin(), EventData::new_u64(END), EventFlags::IN)?;
    let (mut workers, mut turns) = (HashMap::<u64, Worker>::new(), BTreeSet::<(u64, u64)>::new());
    let (mut next, mut ready, mut room) = (0, Vec::with_capacity(256), vec![0; 64 << 10]);
    let mut left = 0_u64;
    loop {
        let wait_ns = turns.first().map_or(1_000_000_000, |(at_ns, _)| at_ns.saturating_sub(now_ns()));
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait_ns.min(999_999_999) as i64 };
        ready.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&wait))?;
        for event in &ready {
            let key = event.data.u64();
            match key {
                END => return Ok(()),
                NEW => {
                    let (socket, _) = listener.accept()?;
                    epoll::add(&epoll, &socket, EventData::new_u64(next), EventFlags::IN)?;
                    let mut worker = Worker { socket, said: Vec::new(), window_ns: 0, end_ns: 0, completed: 0 };
                    let version = env!("CARGO_PKG_VERSION");
                    worker.say(&json!({ "type": "hello", "version": version, "host": "fake", "pid": 1 }))?;
                    workers.insert(next, worker);
                    next += 1;
                }
                _ => {
                    let Some(worker) = workers.get_mut(&key) else { continue };
                    let count = worker.socket.read(&mut room).unwrap_or(0);
                    if count == 0 {
                        workers.remove(&key);
                        continue;
                    }
                    for piece in room[..count].split_inclusive(|byte| *byte == b'\n') {
                        worker.said.extend_from_slice(piece);
                        if piece.ends_with(b"\n") {
                            let line = std::mem::take(&mut worker.said);
                            turns.extend(worker.answer(&line)?.map(|at_ns| (at_ns, key)));
                        }
                    }
                }
            }
        }
        // Handle only some of the due workers, so that pings do not wait for all.
        for _ in 0..256 {
            let Some((_, key)) = turns.first().copied().filter(|(at_ns, _)| *at_ns <= now_ns()) else { break };
            turns.pop_first();
            let Some(worker) = workers.get_mut(&key) else { continue };
            match worker.report(&result)? {
                Some(at_ns) => {
                    turns.insert((at_ns, key));
                }
                None => {
                    left += 1;
                    if left.is_multiple_of(count) {
                        std::fs::write(&end_file, now_ns().to_string())?;
                    }
                }
            }
        }
    }
}
