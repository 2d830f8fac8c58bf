//! QEMU's control socket, with one line of JSON per message. The crate qapi has types for all of QEMU's commands, of
//! which eight are used here. But it cannot pass files over the socket, and a wait that is interrupted to check on
//! QEMU would lose the part of a line that was read.

use crate::SimulateError;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Interval of other checks during a wait.
const LOOK: Duration = Duration::from_millis(50);
/// Number of checks until a QEMU that hung up counts as ended.
const LOOKS_AT_THE_END: usize = 40;
/// Maximum length of a line; QEMU sends no longer ones.
const LONGEST: usize = 1 << 20;

/// A connection. `alive` is called between checks, so that no wait is endless.
pub(super) struct Qmp {
    socket: UnixStream,
    unread: Vec<u8>,
    events: VecDeque<String>,
}

impl Qmp {
    /// Takes this end of the socket and does the greeting.
    pub fn new(socket: UnixStream, alive: &mut dyn FnMut() -> Result<(), SimulateError>) -> Result<Qmp, SimulateError> {
        socket
            .set_read_timeout(Some(LOOK))
            .map_err(SimulateError::system("QEMU's control socket cannot be prepared"))?;
        let mut qmp = Qmp { socket, unread: Vec::new(), events: VecDeque::new() };
        qmp.line(alive)?;
        qmp.command("qmp_capabilities", json!({}), alive)?;
        Ok(qmp)
    }

    /// Sends a command and waits for its answer.
    pub fn command(
        &mut self,
        name: &str,
        arguments: Value,
        alive: &mut dyn FnMut() -> Result<(), SimulateError>,
    ) -> Result<Value, SimulateError> {
        let line = format!("{}\n", json!({ "execute": name, "arguments": arguments }));
        if let Err(why) = self.socket.write_all(line.as_bytes()) {
            return Err(self.broken(why, alive));
        }
        self.answer(name, alive)
    }

    /// Passes an open file to QEMU under a name.
    pub fn give_file(
        &mut self,
        name: &str,
        file: BorrowedFd<'_>,
        alive: &mut dyn FnMut() -> Result<(), SimulateError>,
    ) -> Result<(), SimulateError> {
        let line = format!("{}\n", json!({ "execute": "getfd", "arguments": { "fdname": name } }));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut extra = SendAncillaryBuffer::new(&mut space);
        let files = [file];
        extra.push(SendAncillaryMessage::ScmRights(&files));
        if let Err(why) =
            sendmsg(self.socket.as_fd(), &[IoSlice::new(line.as_bytes())], &mut extra, SendFlags::NOSIGNAL)
        {
            return Err(self.broken(why.into(), alive));
        }
        self.answer("getfd", alive).map(drop)
    }

    /// Waits for an event.
    pub fn event(
        &mut self,
        name: &str,
        alive: &mut dyn FnMut() -> Result<(), SimulateError>,
    ) -> Result<(), SimulateError> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event == name {
                    return Ok(());
                }
            }
            let value = self.line(alive)?;
            self.note(&value);
        }
    }

    /// Why the connection broke: QEMU's last output if it ended, which may take a moment.
    fn broken(&self, why: std::io::Error, alive: &mut dyn FnMut() -> Result<(), SimulateError>) -> SimulateError {
        for _ in 0..LOOKS_AT_THE_END {
            if let Err(ended) = alive() {
                return ended;
            }
            std::thread::sleep(LOOK);
        }
        SimulateError::Qemu { words: format!("it closed its control socket ({why})") }
    }

    fn answer(
        &mut self,
        name: &str,
        alive: &mut dyn FnMut() -> Result<(), SimulateError>,
    ) -> Result<Value, SimulateError> {
        loop {
            let mut value = self.line(alive)?;
            if let Some(answer) = value.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = value.get("error") {
                let why = error["desc"].as_str().unwrap_or("without a reason");
                return Err(SimulateError::Qemu { words: format!("it refused {name}: {why}") });
            }
            self.note(&value);
        }
    }

    fn note(&mut self, value: &Value) {
        if let Some(event) = value["event"].as_str() {
            self.events.push_back(event.to_string());
        }
    }

    fn line(&mut self, alive: &mut dyn FnMut() -> Result<(), SimulateError>) -> Result<Value, SimulateError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .map_err(|why| SimulateError::Qemu { words: format!("it sent something unreadable: {why}") });
            }
            let mut some = [0; 4096];
            match self.socket.read(&mut some) {
                Ok(0) => {
                    // QEMU is ending; the caller that checks on it reports its last output.
                    alive()?;
                    std::thread::sleep(LOOK);
                }
                Ok(count) if self.unread.len() + count <= LONGEST => self.unread.extend(&some[..count]),
                Ok(_) => return Err(SimulateError::Qemu { words: "it sent a line without end".into() }),
                Err(why)
                    if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
                {
                    alive()?;
                }
                Err(why) => return Err(self.broken(why, alive)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_hangs_up_is_reported_with_its_last_words() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // Unread bytes turn the end into a reset, as when QEMU dies within a command.
        ours.try_clone().unwrap().write_all(b"unread").unwrap();
        drop(theirs);
        let mut looks = 0;
        let mut alive = || {
            looks += 1;
            if looks < 3 { Ok(()) } else { Err(SimulateError::Qemu { words: "no space left".into() }) }
        };
        let error = Qmp::new(ours, &mut alive).err().expect("there is no answer").to_string();
        assert_eq!(error, "QEMU ended before the guest had finished its work: no space left");
    }
}
