//! Passes a worker's standard error on to the user: with its name before each line, without control characters, and
//! bounded.

use record::Outside;
use std::io::{BufRead, BufReader, Read, Write};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest line that is shown, and kept in memory.
const MOST_LINE_BYTES: usize = 500;
/// Lines that are shown of each worker.
const MOST_LINES: usize = 40;
/// The last lines of a worker that ended are waited for this long: its children may hold the pipe.
const PATIENCE: Duration = Duration::from_millis(200);

/// The thread that passes a worker's lines on.
#[derive(Debug)]
pub struct Complaints(JoinHandle<()>);

impl Complaints {
    /// Passes on what comes from this pipe until it ends. `name` stands before each line.
    pub fn pass_on(from: impl Read + Send + 'static, name: String) -> std::io::Result<Complaints> {
        let show = move |text: &str| {
            // An unread standard error is no reason to stop a load.
            let _ = writeln!(std::io::stderr().lock(), "{name}: {text}");
        };
        std::thread::Builder::new().name("complaints".into()).spawn(move || relay(from, show)).map(Complaints)
    }

    /// Waits a moment for the last lines of an ended worker.
    pub fn settle(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.0.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Reads to the end, so that no worker waits on a full pipe; shows the first lines.
fn relay(from: impl Read, mut show: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let (mut shown, mut line) = (0, Vec::new());
    loop {
        line.clear();
        // The part of a line beyond the limit becomes separate lines, which count like others.
        match (&mut from).take(MOST_LINE_BYTES as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = Outside::of_bytes(&line, MOST_LINE_BYTES);
        if text.is_empty() || shown > MOST_LINES {
            continue;
        }
        shown += 1;
        show(if shown > MOST_LINES { "(more on its standard error is not shown)" } else { &text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        relay(bytes, |line| lines.push(line.to_string()));
        lines
    }

    #[test]
    fn lines_are_text_alone_and_the_last_needs_no_end() {
        assert_eq!(shown(b"a\x1b[2Jb\r\n\n\x07\nbad \xff end"), ["a?[2Jb", "?", "bad \u{fffd} end"]);
    }

    #[test]
    fn a_flood_is_cut_and_said_once() {
        let flood = shown(&[b'x'; 10 << 20]);
        assert_eq!(flood.len(), MOST_LINES + 1);
        assert!(flood.iter().all(|line| line.len() <= MOST_LINE_BYTES));
        assert!(flood.last().unwrap().contains("not shown"), "{:?}", flood.last());
    }
}
