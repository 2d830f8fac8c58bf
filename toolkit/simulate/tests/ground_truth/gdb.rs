//! A debugger for the guest: the part of gdb's remote protocol that stepping needs.

use simulate::SimulateError;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Memory is read in blocks of this size; QEMU answers with at most 2 KiB.
const BLOCK: u64 = 256;
const MOST_BYTES: u64 = 2048;
/// Timeout of a step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Side effects that a step may have, as QEMU's bits (`SSTEP_*` of `include/hw/core/cpu.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A pending interrupt may come first. The clock stands still: QEMU treats a machine that a debugger stopped as
    /// idle, and would advance its clock to the next timer at every step.
    Plain = 1 | 4,
    /// The clock advances to the next timer, so that its interrupt is pending.
    ToNextTimer = 1,
    /// No interrupt comes.
    WithoutInterrupt = 1 | 2 | 4,
}

/// Registers at an instruction that is about to run. The first 17 have gdb's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    all: [u64; 17],
}

impl Registers {
    pub const CX: usize = 2;
    pub const DX: usize = 3;
    pub const DI: usize = 5;
    pub const BP: usize = 6;
    pub const SP: usize = 7;
    pub const R10: usize = 10;
    pub const R13: usize = 13;
    pub const IP: usize = 16;

    /// Registers by gdb's numbers.
    pub fn new(all: [u64; 17]) -> Registers {
        Registers { all }
    }

    pub fn get(&self, number: usize) -> u64 {
        self.all[number]
    }

    pub fn ip(&self) -> u64 {
        self.all[Registers::IP]
    }

    pub fn sp(&self) -> u64 {
        self.all[Registers::SP]
    }

    pub fn is_kernel(&self) -> bool {
        self.ip() >> 63 != 0
    }
}

pub struct Gdb {
    socket: UnixStream,
    unread: Vec<u8>,
    /// Memory that was read since the last step.
    blocks: HashMap<u64, Option<Vec<u8>>>,
    step: Step,
}

fn failed(what: impl std::fmt::Display) -> SimulateError {
    SimulateError::Qemu { words: format!("its debugger's socket: {what}") }
}

impl Gdb {
    /// Connects to a stopped machine.
    pub fn new(socket: UnixStream) -> Result<Gdb, SimulateError> {
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut gdb = Gdb { socket, unread: Vec::new(), blocks: HashMap::new(), step: Step::Plain };
        gdb.prepare(Step::Plain)?;
        Ok(gdb)
    }

    fn send(&mut self, words: &str) -> Result<(), SimulateError> {
        let sum = words.bytes().fold(0_u8, u8::wrapping_add);
        // The next packet also acknowledges the last answer.
        self.socket.write_all(format!("${words}#{sum:02x}").as_bytes()).map_err(failed)
    }

    fn answer(&mut self) -> Result<String, SimulateError> {
        loop {
            let begin = self.unread.iter().position(|byte| *byte == b'$');
            if let Some(begin) = begin
                && let Some(length) = self.unread[begin..].iter().position(|byte| *byte == b'#')
                && self.unread.len() >= begin + length + 3
            {
                let text = String::from_utf8_lossy(&self.unread[begin + 1..begin + length]).into_owned();
                self.unread.drain(..begin + length + 3);
                return Ok(text);
            }
            let mut some = [0; 8192];
            match self.socket.read(&mut some).map_err(failed)? {
                0 => return Err(failed("QEMU closed it")),
                count => self.unread.extend(&some[..count]),
            }
        }
    }

    fn ask(&mut self, words: &str) -> Result<String, SimulateError> {
        self.send(words)?;
        self.answer()
    }

    fn order(&mut self, words: &str) -> Result<(), SimulateError> {
        match self.ask(words)?.as_str() {
            "OK" => Ok(()),
            other => Err(failed(format!("{words} is answered by '{other}'"))),
        }
    }

    /// Sets a breakpoint before this instruction.
    pub fn stop_at(&mut self, address: u64) -> Result<(), SimulateError> {
        self.order(&format!("Z0,{address:x},1"))
    }

    /// Removes the breakpoint.
    pub fn pass(&mut self, address: u64) -> Result<(), SimulateError> {
        self.order(&format!("z0,{address:x},1"))
    }

    /// Runs until the next stop.
    pub fn go_on(&mut self) -> Result<(), SimulateError> {
        self.blocks.clear();
        self.stopped("c")
    }

    /// Executes an instruction. If an interrupt comes first, the machine stops at its entry.
    pub fn step(&mut self, step: Step) -> Result<(), SimulateError> {
        if step != self.step {
            self.prepare(step)?;
        }
        self.blocks.clear();
        self.stopped("s")
    }

    fn prepare(&mut self, step: Step) -> Result<(), SimulateError> {
        self.step = step;
        self.order(&format!("Qqemu.sstep={:x}", step as u8))
    }

    fn stopped(&mut self, words: &str) -> Result<(), SimulateError> {
        let answer = self.ask(words)?;
        if answer.starts_with('T') || answer.starts_with('S') { Ok(()) } else { Err(failed(format!("'{answer}'"))) }
    }

    /// Lets the machine run to its end.
    pub fn let_go(mut self) -> Result<(), SimulateError> {
        self.order("D")
    }

    pub fn registers(&mut self) -> Result<Registers, SimulateError> {
        let text = self.ask("g")?;
        let mut all = [0; 17];
        for (index, register) in all.iter_mut().enumerate() {
            let bytes = text.get(16 * index..16 * (index + 1)).and_then(bytes_of);
            let bytes =
                bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| failed("it has other registers"))?;
            *register = u64::from_le_bytes(bytes);
        }
        Ok(Registers::new(all))
    }

    /// Bytes at a virtual address; `None` if no memory is mapped there.
    pub fn read(&mut self, address: u64, bytes: u64) -> Result<Option<Vec<u8>>, SimulateError> {
        let mut all = Vec::with_capacity(bytes as usize);
        while (all.len() as u64) < bytes {
            let some = (bytes - all.len() as u64).min(MOST_BYTES);
            let text = self.ask(&format!("m{:x},{some:x}", address.wrapping_add(all.len() as u64)))?;
            match bytes_of(&text) {
                Some(read) if read.len() as u64 == some => all.extend(read),
                _ => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// The word at an address. A word that was read is kept until the next step.
    pub fn word(&mut self, address: u64) -> Result<Option<u64>, SimulateError> {
        let mut bytes = [0; 8];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let place = address.wrapping_add(index as u64);
            let start = place & !(BLOCK - 1);
            if !self.blocks.contains_key(&start) {
                let block = self.read(start, BLOCK)?;
                self.blocks.insert(start, block);
            }
            match &self.blocks[&start] {
                Some(block) => *byte = block[(place - start) as usize],
                None => return Ok(None),
            }
        }
        Ok(Some(u64::from_le_bytes(bytes)))
    }
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}
