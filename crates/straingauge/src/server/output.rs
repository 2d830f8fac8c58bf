//! The output of a program that straingauge started. Its end is kept, because it may explain why the program ended.

use record::PlainText;
use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEPT_BYTES: usize = 64 << 10;

pub struct ServerOutput {
    kept: Arc<Mutex<VecDeque<u8>>>,
    /// Processes that the kernel had killed for memory when the program started.
    killed_before: Option<u64>,
}

impl ServerOutput {
    /// Starts reading the child's pipes.
    pub fn capture(child: &mut Child) -> ServerOutput {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        keep_tail(child.stdout.take(), &kept);
        keep_tail(child.stderr.take(), &kept);
        ServerOutput { kept, killed_before: observe::limits::killed_for_memory() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.kept.lock().map(|kept| kept.iter().copied().collect()).unwrap_or_default()
    }

    /// The last line, made safe to print.
    pub fn last_words(&self) -> Option<PlainText> {
        let bytes = self.bytes();
        let line = bytes.split(|byte| *byte == b'\n').rev().find(|line| !line.trim_ascii().is_empty())?;
        Some(PlainText::of_bytes(line, 300))
    }

    /// The last line of a program that has ended.
    pub fn final_words(&self) -> Option<PlainText> {
        // The reader threads end when the pipe closes; give them time for that.
        std::thread::sleep(Duration::from_millis(50));
        self.last_words()
    }

    /// How the program ended: `exited with code 1, saying: cannot bind`.
    pub fn exit_words(&self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(libc::SIGKILL)) if observe::limits::killed_for_memory() > self.killed_before => {
                "was ended by signal 9 while the kernel killed a process because memory ran out, a control group's or \
                 the machine's (`oom_kill` in /proc/vmstat grew)"
                    .to_string()
            }
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_string(),
        };
        match self.final_words() {
            Some(words) => format!("{how}, saying: {words}"),
            None => format!("{how} without output"),
        }
    }
}

/// Reads a pipe to its end in a separate thread and keeps the last [`KEPT_BYTES`]. So a program with much output
/// neither blocks nor fills memory or disk.
fn keep_tail(pipe: Option<impl Read + Send + 'static>, kept: &Arc<Mutex<VecDeque<u8>>>) {
    let Some(mut pipe) = pipe else { return };
    let kept = kept.clone();
    std::thread::spawn(move || {
        let mut buffer = [0u8; 4096];
        while let Ok(count) = pipe.read(&mut buffer) {
            if count == 0 {
                break;
            }
            let Ok(mut kept) = kept.lock() else { break };
            kept.extend(&buffer[..count]);
            let excess = kept.len().saturating_sub(KEPT_BYTES);
            kept.drain(..excess);
        }
    });
}
