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
const PAUSE_NS: u64 = 1_000_000_000;

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
    since_ns: u64,
    last_ns: u64,
}

impl Listening {
    pub fn new() -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MAX_LINE_BYTES;
    use std::os::unix::net::UnixStream;

    const LONG: Duration = Duration::from_secs(60);

    fn next(events: &Receiver<(usize, WorkerEvent)>) -> Result<Vec<u8>, String> {
        match events.recv_timeout(LONG).unwrap().1 {
            WorkerEvent::Line(line, _) => Ok(line),
            WorkerEvent::Ended(why) => Err(why.map_or(String::new(), |why| why.to_string())),
        }
    }

    #[test]
    fn lines_are_reassembled_from_any_pieces_and_the_end_is_reported_once() {
        let (sender, events) = sync_channel(4);
        let (mut worker, here) = UnixStream::pair().unwrap();
        read(&sender, 7, here).unwrap();
        for piece in ["on", "e\ntwo\n\nth", "ree", "\n"] {
            worker.write_all(piece.as_bytes()).unwrap();
        }
        for expected in ["one", "two", "", "three"] {
            assert_eq!(next(&events).unwrap(), expected.as_bytes());
        }
        worker.write_all(b"fou").unwrap();
        drop(worker);
        assert_eq!(next(&events).unwrap_err(), ProtocolError::Torn.to_string());
        assert!(events.recv_timeout(Duration::from_millis(20)).is_err());
        read(&sender, 1, io::repeat(b'x').take(4 * MAX_LINE_BYTES as u64)).unwrap();
        assert_eq!(next(&events).unwrap_err(), ProtocolError::TooLong.to_string());
    }

    #[test]
    fn a_slow_reader_gets_all_lines_in_order_and_then_the_end() {
        let (mut worker, here) = UnixStream::pair().unwrap();
        let out = MessageQueue::start(here).unwrap();
        let long = "x".repeat(1 << 20);
        assert!((0..4).all(|number| out.send(format!("{number}{long}\n"))));
        out.close();
        assert!(!out.send("too late\n".into()));
        let mut all = String::new();
        worker.read_to_string(&mut all).unwrap();
        let begins: Vec<u8> = all.lines().map(|line| line.as_bytes()[0]).collect();
        assert_eq!((begins.as_slice(), all.len()), (b"0123".as_slice(), 4 * (long.len() + 2)));
    }

    #[test]
    fn a_worker_that_never_reads_blocks_no_one_and_a_gone_one_closes_the_queue() {
        let (worker, here) = UnixStream::pair().unwrap();
        let out = MessageQueue::start(here).unwrap();
        assert!((0..1000).all(|_| out.send(format!("{}\n", "x".repeat(10_000)))));
        drop(worker);
        let until = std::time::Instant::now() + LONG;
        while out.send("x\n".into()) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!out.send("x\n".into()));
    }

    #[test]
    fn a_worker_is_not_silent_while_the_driver_does_not_listen() {
        let mut listening = Listening { since_ns: 5, last_ns: 5 };
        for now_ns in [PAUSE_NS, 2 * PAUSE_NS] {
            assert_eq!(listening.listening_since(now_ns), 5);
        }
        assert_eq!(listening.listening_since(4 * PAUSE_NS), 4 * PAUSE_NS);
        assert_eq!(listening.listening_since(4 * PAUSE_NS + 9), 4 * PAUSE_NS);
    }
}
