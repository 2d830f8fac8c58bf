//! Shows workers' standard error to the user: with the worker's name before each line, without control characters, and
//! bounded.

use record::Outside;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Longer lines are split.
const MOST_LINE_BYTES: usize = 500;
/// Maximum lines shown per worker.
const MOST_LINES: usize = 40;
/// Maximum queued lines; further lines are dropped.
const MOST_WAITING: usize = 1000;
/// Timeout for the last lines of a worker that ended: its children may hold the pipe.
const PATIENCE: Duration = Duration::from_millis(200);

/// A message to the thread that shows lines.
#[derive(Debug)]
pub enum Said {
    Line(String),
    /// The end of a worker's lines.
    Over(Arc<AtomicBool>),
}

/// Starts the thread that shows the lines of all workers. Only this thread blocks if stderr is not read.
pub fn start_to_show() -> std::io::Result<SyncSender<Said>> {
    let (show, said) = sync_channel(MOST_WAITING);
    std::thread::Builder::new().name("complaints".into()).spawn(move || show_all(&said))?;
    Ok(show)
}

fn show_all(said: &Receiver<Said>) {
    for said in said {
        match said {
            Said::Line(text) => {
                // A load goes on if stderr is not read.
                let _ = writeln!(std::io::stderr().lock(), "{text}");
            }
            Said::Over(is_over) => is_over.store(true, Ordering::Release),
        }
    }
}

/// The standard error of one worker.
#[derive(Debug)]
pub struct Complaints {
    name: String,
    show: SyncSender<Said>,
    line: Vec<u8>,
    shown: usize,
    is_over: Arc<AtomicBool>,
}

/// Whether the last line of a worker was shown.
#[derive(Debug)]
pub struct LastLine(Arc<AtomicBool>);

impl LastLine {
    pub fn is_there(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Waits briefly for the last lines of an ended worker.
    pub fn settle(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.is_there() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Complaints {
    /// `name` stands before each line.
    pub fn new(name: String, show: SyncSender<Said>) -> Complaints {
        Complaints { name, show, line: Vec::new(), shown: 0, is_over: Arc::default() }
    }

    pub fn last_line(&self) -> LastLine {
        LastLine(self.is_over.clone())
    }

    /// Takes more bytes, and shows whole lines.
    pub fn take(&mut self, bytes: &[u8]) {
        // A line beyond the limit becomes several, which count as such.
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' || self.line.len() == MOST_LINE_BYTES {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let text = Outside::of_bytes(&std::mem::take(&mut self.line), MOST_LINE_BYTES);
        if text.is_empty() || self.shown > MOST_LINES {
            return;
        }
        self.shown += 1;
        let text = if self.shown > MOST_LINES { "(more on its standard error is not shown)" } else { &text };
        let _ = self.show.try_send(Said::Line(format!("{}: {text}", self.name)));
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        self.end_line();
        if let Err(TrySendError::Full(Said::Over(is_over)) | TrySendError::Disconnected(Said::Over(is_over))) =
            self.show.try_send(Said::Over(self.is_over.clone()))
        {
            is_over.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> Vec<String> {
        let (show, said) = sync_channel(MOST_WAITING);
        let mut complaints = Complaints::new("c".into(), show);
        pieces.iter().for_each(|piece| complaints.take(piece));
        let last_line = complaints.last_line();
        drop(complaints);
        let lines = said.iter().filter_map(|said| match said {
            Said::Line(text) => Some(text.strip_prefix("c: ").unwrap().to_owned()),
            Said::Over(is_over) => {
                is_over.store(true, Ordering::Release);
                None
            }
        });
        let lines = lines.collect();
        assert!(last_line.is_there());
        lines
    }

    #[test]
    fn lines_are_text_alone_in_any_pieces_and_the_last_needs_no_end() {
        let lines = ["a?[2Jb", "?", "bad \u{fffd} end"];
        let bytes = b"a\x1b[2Jb\r\n\n\x07\nbad \xff end";
        assert_eq!(shown(&[bytes]), lines);
        assert_eq!(shown(&bytes.chunks(1).collect::<Vec<_>>()), lines);
    }

    #[test]
    fn a_flood_is_cut_and_said_once() {
        let flood = shown(&[&[b'x'; 1 << 20]]);
        assert_eq!(flood.len(), MOST_LINES + 1);
        assert!(flood.iter().all(|line| line.len() <= MOST_LINE_BYTES));
        assert!(flood.last().unwrap().contains("not shown"), "{:?}", flood.last());
    }

    #[test]
    fn a_queue_that_nobody_reads_holds_up_nothing() {
        let (show, said) = sync_channel(1);
        let mut complaints = Complaints::new("c".into(), show);
        complaints.take(b"one\ntwo\nthree\n");
        let last_line = complaints.last_line();
        drop(complaints);
        last_line.settle();
        assert!(last_line.is_there());
        assert_eq!(said.iter().count(), 1);
    }
}
