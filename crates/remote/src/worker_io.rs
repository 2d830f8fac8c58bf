//! Moves the bytes of workers. Each worker has threads that read its messages and standard error and write its
//! orders, so that a worker that neither reads nor writes blocks only these.

use crate::protocol::{LineReader, ProtocolError};
use record::PlainText;
use record::lock;
use record::time::monotonic_ns;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum queued messages to a worker; further ones are dropped.
const MOST_WAITING: usize = 64;
/// Longer lines of standard error are split.
const MOST_LINE_BYTES: usize = 500;
const MOST_LINES: usize = 40;
/// Timeout for the last lines of a worker that ended, because its children may hold the pipe.
const LAST_LINES: Duration = Duration::from_millis(200);
/// A driver that did not listen for longer than this cannot tell which worker was silent.
pub const PAUSE_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub enum WorkerEvent {
    /// A line without its line end, and the time when it came on the driver's monotonic clock.
    Line(Vec<u8>, u64),
    /// The worker's output ended or broke the protocol, for this reason if known.
    Ended(Option<ProtocolError>),
}

/// Receives each worker's events with its index.
pub type WorkerEvents = SyncSender<(usize, WorkerEvent)>;

/// The queue of messages to a worker; `None` once it is closed.
#[derive(Debug, Clone)]
pub struct MessageQueue(Arc<Mutex<Option<SyncSender<String>>>>);

/// Disconnected when the last line of a worker's standard error was shown.
#[derive(Debug)]
pub struct LastLine(Receiver<()>);

/// Shows a line on standard error.
pub fn show(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Sends a worker's lines as events.
pub fn read(events: &WorkerEvents, index: usize, from: impl Read + Send + 'static) -> io::Result<()> {
    let events = events.clone();
    spawn("worker", move || {
        let mut lines = LineReader::new(from);
        loop {
            let event = match lines.line() {
                Ok(Some(line)) => WorkerEvent::Line(line, monotonic_ns()),
                Ok(None) => WorkerEvent::Ended(None),
                Err(error) => WorkerEvent::Ended(Some(error)),
            };
            let is_over = matches!(event, WorkerEvent::Ended(_));
            if events.send((index, event)).is_err() || is_over {
                return;
            }
        }
    })
}

/// Shows a worker's standard error, with `name` in front of each line.
pub fn show_all(from: impl Read + Send + 'static, name: String) -> io::Result<LastLine> {
    let (over, last_line) = channel();
    spawn("worker-stderr", move || {
        show_lines(from, |text| show(&format!("{name}: {text}")));
        drop(over);
    })?;
    Ok(LastLine(last_line))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Passes the lines to `show` as printable text up to a limit, and reads to the end.
fn show_lines(from: impl Read, mut show: impl FnMut(&str)) {
    let (mut from, mut line, mut shown) = (BufReader::new(from), Vec::new(), 0);
    while let Ok(1..) = (&mut from).take(MOST_LINE_BYTES as u64).read_until(b'\n', &mut line) {
        let text = PlainText::of_bytes(&std::mem::take(&mut line), MOST_LINE_BYTES);
        if text.is_empty() || shown > MOST_LINES {
            continue;
        }
        shown += 1;
        show(if shown > MOST_LINES { "(more on its standard error is not shown)" } else { &text });
    }
}

impl LastLine {
    /// Waits briefly for the last lines of an ended worker.
    pub fn wait(&self) {
        let _ = self.0.recv_timeout(LAST_LINES);
    }
}

impl MessageQueue {
    /// Starts a thread that writes messages to `to`, which is closed after the last one.
    pub fn start(mut to: impl Write + Send + 'static) -> io::Result<MessageQueue> {
        let (queue, texts) = sync_channel::<String>(MOST_WAITING);
        spawn("to-worker", move || {
            for text in texts {
                if to.write_all(text.as_bytes()).is_err() {
                    return;
                }
            }
        })?;
        Ok(MessageQueue(Arc::new(Mutex::new(Some(queue)))))
    }

    /// Sends a line; returns false when the queue is closed. It never blocks: a full queue drops the line, and the
    /// silence that follows is noticed.
    pub fn send(&self, text: String) -> bool {
        let mut queue = lock(&self.0);
        let sent = queue.as_ref().map(|queue| queue.try_send(text));
        let is_open = matches!(sent, Some(Ok(()) | Err(TrySendError::Full(_))));
        if !is_open {
            *queue = None;
        }
        is_open
    }

    pub fn close(&self) {
        *lock(&self.0) = None;
    }
}

/// The time since which the driver has handled events without a pause. A silence before that time may be the
/// driver's.
#[derive(Debug)]
pub struct Listening {
    pub since_ns: u64,
    pub last_ns: u64,
}

impl Listening {
    pub(crate) fn new() -> Self {
        Listening { since_ns: monotonic_ns(), last_ns: monotonic_ns() }
    }

    /// Call it before and after events are handled, at `now_ns`. It returns the time since which there was no pause.
    pub fn listening_since(&mut self, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.last_ns) > PAUSE_NS {
            self.since_ns = now_ns;
        }
        self.last_ns = now_ns;
        self.since_ns
    }
}
