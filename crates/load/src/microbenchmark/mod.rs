//! The microbenchmark of Kim and Rixner (2005, section 5): one end sends segments of the largest size over a number of
//! connections in turn, at a constant total rate; the other end reads them. `straingauge profile --axis` profiles the
//! sender, `straingauge simulate` counts the same in a guest.
//!
//! [`sender`] is a separate process, which is profiled; [`run`] drives it for one point and reads what it sends. They
//! agree over a control connection on the port after the data's, so that only segments and their acknowledgements cross
//! the data's port.

mod order;
mod receiver;
pub mod sender;

pub use order::{Order, Reply};

use crate::error::LoadError;
use crate::{LoadEvents, LoadResult, Progress};
use receiver::Receiver;
use record::Outside;
use record::time::{monotonic_ns, unix_ms};
use record::{Doubt, DoubtKind, Figure, Figures, Latency, Origin, Severity, names};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The payload of a full segment on a link of 1500 bytes, with time stamps.
pub const SEGMENT_BYTES: usize = 1448;
/// Full segments a second for 400 Mbit/s. The paper's 100 Mbit/s took a quarter of its processor; of a modern one they
/// take 1 %, too little to sample.
pub const RATE_PER_SEC: u64 = 33_333;
/// The port that the sender listens on.
pub const PORT: u16 = 5001;

/// How often the caller's thread checks for events.
const LOOK: Duration = Duration::from_millis(20);
const PROGRESS_NS: u64 = 200_000_000;
/// A sender that is silent for this long is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Less than this share of the planned rate is another experiment.
const RATE_KEPT: f64 = 0.99;

/// One point.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The sender's address.
    pub sender: SocketAddr,
    /// Open connections.
    pub connections: u64,
    /// Segments a second over all connections.
    pub rate_per_sec: f64,
    /// Load before the window; each connection has sent twice by then, however long that takes.
    pub warmup_ns: u64,
    /// Length of the window.
    pub duration_ns: u64,
    /// The sender has a dedicated CPU and polls the clock until a segment is due. Sleeping would cost more than sending
    /// in a virtual machine, where setting a timer leaves the guest, and would be counted in System Call and Other.
    pub polls: bool,
    /// CPUs of the reading thread; empty = not pinned.
    pub cpus: Vec<usize>,
}

/// The result of one point; at first there is none, and it was not stopped.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// When the window began, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Length of the window; shorter than planned if interrupted, 0 if it was never reached.
    pub window_ns: u64,
    /// Load before the window.
    pub warmup_ns: u64,
    /// Segments that the sender handed to the kernel in its window.
    pub segments: u64,
    /// Length of the sender's window, by its clock.
    pub counted_ns: u64,
    /// Lateness of each segment against its schedule.
    pub lag: Latency,
    /// The caller stopped it early.
    pub interrupted: bool,
    /// Reasons not to trust it.
    pub doubts: Vec<Doubt>,
}

impl Outcome {
    /// Segments sent per second.
    fn per_sec(&self) -> f64 {
        self.segments as f64 * 1e9 / self.counted_ns as f64
    }

    /// The sender's figures by the names in [`record::names`].
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        figures.set(names::MICRO_SENT, Figure::new(self.per_sec(), "1/s", self.segments, Origin::Counted));
        let us = |nanos: Option<u64>| match nanos {
            Some(nanos) => Figure::new(nanos as f64 / 1e3, "us", self.lag.len(), Origin::Timed),
            None => Figure::not_measured("us", "no segment was sent"),
        };
        figures.set(names::MICRO_LATE_P50, us(self.lag.quantile_ns(0.5)));
        figures.set(names::MICRO_LATE_P99, us(self.lag.quantile_ns(0.99)));
        figures.set(names::MICRO_LATE_MAX, us(self.lag.max_ns()));
        figures
    }
}

impl From<Outcome> for LoadResult {
    /// A load without requests: the window's times, for a point that keeps them with the figures.
    fn from(outcome: Outcome) -> LoadResult {
        let mut result = LoadResult {
            started_unix_ms: outcome.started_unix_ms,
            window_ns: outcome.window_ns,
            warmup_ns: outcome.warmup_ns,
            interrupted: outcome.interrupted,
            doubts: outcome.doubts,
            ..LoadResult::default()
        };
        result.counts.times.lag = outcome.lag;
        result
    }
}

/// The connection that carries orders to the sender.
struct Control {
    stream: BufReader<TcpStream>,
}

impl Control {
    fn connect(sender: SocketAddr) -> Result<Self, LoadError> {
        let address = SocketAddr::new(sender.ip(), sender.port().wrapping_add(1));
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(cannot("connect to the sender"))?;
        stream.set_nodelay(true).map_err(cannot("talk to the sender"))?;
        stream.set_read_timeout(Some(LOOK)).map_err(cannot("talk to the sender"))?;
        Ok(Control { stream: BufReader::new(stream) })
    }

    fn say(&mut self, order: &Order) -> Result<(), LoadError> {
        let line = order.to_line();
        self.stream.get_mut().write_all(line.as_bytes()).map_err(cannot("give the sender an order"))
    }

    /// The sender's next message; `None` if `stop` came first.
    fn receive(&mut self, stop: &AtomicBool) -> Result<Option<Reply>, LoadError> {
        let began_ns = monotonic_ns();
        let mut line = String::new();
        loop {
            match self.stream.read_line(&mut line) {
                Ok(0) => return Err(gone("ended")),
                Ok(_) if line.ends_with('\n') => return Reply::from_line(&line).map(Some).map_err(|why| gone(&why)),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(gone(&error.to_string())),
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if monotonic_ns() - began_ns > PATIENCE.as_nanos() as u64 {
                return Err(gone("said nothing for a minute"));
            }
        }
    }

    /// As [`receive`](Self::receive), for a message that means success.
    fn expect(&mut self, wanted: &Reply, stop: &AtomicBool) -> Result<bool, LoadError> {
        match self.receive(stop)? {
            None => Ok(false),
            Some(reply) if reply == *wanted => Ok(true),
            Some(Reply::Trouble(why)) => Err(gone(&why)),
            Some(other) => Err(gone(&format!("answered {other:?}"))),
        }
    }
}

fn cannot(what: &'static str) -> impl Fn(std::io::Error) -> LoadError {
    move |cause| LoadError::Machine { what, cause }
}

fn gone(why: &str) -> LoadError {
    LoadError::Plan(format!("the microbenchmark's sender {}", Outside::new(why, 300)))
}

/// Drives one point: opens the connections, waits until each has sent twice, and calls `events` where the window begins
/// and ends. Threads that it starts inherit the caller's network namespace. Everything is closed when it returns.
pub fn run(plan: &Plan, stop: &AtomicBool, events: &mut dyn LoadEvents) -> Result<Outcome, LoadError> {
    let mut outcome = Outcome { started_unix_ms: unix_ms(), interrupted: true, ..Outcome::default() };
    let mut control = Control::connect(plan.sender)?;
    control.say(&Order::Open {
        connections: plan.connections,
        rate_per_sec: plan.rate_per_sec,
        warmup_ns: plan.warmup_ns,
        polls: plan.polls,
    })?;
    if !control.expect(&Reply::Listening, stop)? {
        return Ok(outcome);
    }
    let began_ns = monotonic_ns();
    let receiver = Receiver::start(plan.sender, plan.connections, &plan.cpus)?;
    let ready = control.expect(&Reply::Ready, stop);
    if let Some(trouble) = receiver.trouble() {
        return Err(trouble);
    }
    if !ready? {
        return Ok(outcome);
    }
    outcome.warmup_ns = monotonic_ns() - began_ns;
    outcome.started_unix_ms = unix_ms();
    control.say(&Order::Begin)?;
    events.window_begins();
    let opened_ns = monotonic_ns();
    let mut told_ns = opened_ns;
    let mut now_ns = opened_ns;
    while now_ns - opened_ns < plan.duration_ns && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK.min(Duration::from_nanos(plan.duration_ns - (now_ns - opened_ns))));
        now_ns = monotonic_ns();
        if now_ns - told_ns >= PROGRESS_NS {
            told_ns = now_ns;
            events.progress(&Progress {
                elapsed_ns: now_ns - began_ns,
                connected: plan.connections,
                ..Progress::default()
            });
        }
    }
    // The handlers at the end of the window are not part of it: reading a profile takes a while.
    outcome.window_ns = now_ns - opened_ns;
    events.window_ends();
    outcome.interrupted = stop.load(Ordering::Relaxed);
    control.say(&Order::End)?;
    match control.receive(&AtomicBool::new(false))? {
        Some(Reply::Sent { segments, window_ns, lag }) => {
            (outcome.segments, outcome.counted_ns) = (segments, window_ns);
            outcome.lag = Latency::from_base64(&lag, 0).map_err(|error| gone(&error.to_string()))?;
        }
        Some(Reply::Trouble(why)) => return Err(gone(&why)),
        other => return Err(gone(&format!("answered {other:?}"))),
    }
    if let Some(trouble) = receiver.trouble() {
        return Err(trouble);
    }
    outcome.doubts.extend(doubt(plan, &outcome));
    Ok(outcome)
}

/// The doubt about a sender that did not keep its rate.
fn doubt(plan: &Plan, outcome: &Outcome) -> Option<Doubt> {
    let rate = outcome.per_sec();
    (!outcome.interrupted && rate < RATE_KEPT * plan.rate_per_sec).then(|| {
        Doubt::new(
            DoubtKind::ScheduleLag,
            Severity::Warning,
            format!(
                "the sender sent {rate:.0} segments/s instead of {:.0}: its CPU or the path was the limit",
                plan.rate_per_sec
            ),
            "ask for a lower --rate, or give the sender a dedicated CPU (--server-cpus)",
        )
    })
}
