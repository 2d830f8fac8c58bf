//! Samples where the goroutines of a Go server wait. Go's scheduler parks them without a system call, so their waits
//! are not seen from the kernel. Its list of goroutines and their stacks are read from the process's memory, while the
//! server runs on.
//!
//! Go does not promise a layout. The list, the names of its reasons and the offsets are found by their contents, which
//! were the same in Go 1.19 to 1.26, and in stripped programs (runtime/runtime2.go, type g). Where they are not
//! found, nothing is sampled.

use crate::go_file::GoFile;
use crate::memory::{Memory, word};
use crate::parked::{ParkedCounts, Place, Program, Stack};
use std::collections::HashMap;

/// Maximum goroutines that are read at once.
const MOST_GOROUTINES: usize = 1 << 16;
/// Maximum entries for which the program's list has room.
const MOST_LISTED: u64 = 1 << 24;
/// Bytes of a goroutine's descriptor that are read.
const DESCRIPTOR: usize = 232;
/// Offsets of the fields that were the same in all versions: bounds of the stack, stack pointer and program counter.
const STACK_LOW: usize = 0;
const STACK_HIGH: usize = 8;
const STACK_POINTER: usize = 56;
const PROGRAM_COUNTER: usize = 64;
/// Offsets between which the goroutine's number is.
const NUMBERS: std::ops::Range<usize> = 136..200;
/// Offsets at which the frame pointer is; the other word is 0 (the link register).
const FRAME_POINTERS: [usize; 2] = [96, 104];
/// From the number back to the state, and on to the reason for the wait.
const TO_STATE: usize = 8;
const TO_REASON: usize = 24;
/// States: runnable, waiting. A bit says that the garbage collector reads the stack.
const RUNNABLE: u32 = 1;
const WAITING: u32 = 4;
const STATES: u32 = 0xfff;
/// The first reason has no name; this is the second.
const SECOND_REASON: &[u8] = b"GC assist marking";
const MOST_REASONS: usize = 128;
const LONGEST_REASON: u64 = 64;
/// Reasons of requests that wait for each other or for a time.
const REASONS: [&str; 10] = [
    "chan receive",
    "chan send",
    "select",
    "semacquire",
    "sleep",
    "sync.Cond.Wait",
    "sync.Mutex.Lock",
    "sync.RWMutex.Lock",
    "sync.RWMutex.RLock",
    "sync.WaitGroup.Wait",
];
/// Bytes of a stack, and functions on it, that are read.
const STACK_BYTES: usize = 4096;
const STACK_FRAMES: usize = 32;

/// The places of Go's variables in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoProgram {
    memory: Memory,
    /// Address of the list of goroutines: address, length, capacity.
    list: u64,
    /// Offset of a goroutine's number.
    number_at: usize,
    /// The reasons of [`REASONS`], by number.
    reasons: HashMap<u8, &'static str>,
}

impl GoProgram {
    /// Searches a process's variables: address and words of each part.
    pub fn search(pid: u32, variables: &[(u64, Vec<u64>)]) -> Option<GoProgram> {
        let memory = Memory::of(pid);
        let (mut list, mut reasons) = (None, None);
        for (start, words) in variables {
            for (at, some) in words.windows(4).enumerate() {
                let [one, two, three, four] = [some[0], some[1], some[2], some[3]];
                if list.is_none() && one != 0 && (3..=MOST_LISTED).contains(&three) && (3..=three).contains(&two) {
                    list = memory.number_at(one).map(|number_at| (start + 8 * at as u64, number_at));
                }
                if reasons.is_none() && (one, two, four) == (0, 0, SECOND_REASON.len() as u64) {
                    reasons = memory.reasons(&words[at..], three);
                }
            }
        }
        let (list, number_at) = list?;
        Some(GoProgram { memory, list, number_at, reasons: reasons? })
    }

    /// The state of a goroutine, and the reason of its wait if that is one of [`REASONS`].
    fn state(&self, descriptor: &[u8]) -> Option<(u32, Option<&'static str>)> {
        let state = word(descriptor, self.number_at - TO_STATE)? as u32 & STATES;
        let reason = descriptor.get(self.number_at + TO_REASON)?;
        Some((state, self.reasons.get(reason).copied()))
    }
}

impl Program for GoProgram {
    fn open(tid: u32) -> Option<GoProgram> {
        let program = GoFile::open(tid)?;
        let variables: Vec<_> = [".data", ".bss"].into_iter().filter_map(|name| program.variables(name)).collect();
        GoProgram::search(tid, &variables)
    }

    /// Counts the goroutines that wait or could run.
    fn read(&self, pid: u32, all: &mut ParkedCounts) -> Option<()> {
        let list = self.memory.words(self.list, 2)?;
        let count = (list[1] as usize).min(MOST_GOROUTINES);
        all.lost += list[1] - count as u64;
        let addresses = self.memory.words(list[0], count)?;
        let descriptors: Vec<(u64, usize)> = addresses.iter().map(|address| (*address, DESCRIPTOR)).collect();
        let mut waiting = Vec::new();
        for (descriptor, at) in self.memory.read(&descriptors).into_iter().zip(&descriptors) {
            match self.state(&descriptor) {
                Some((RUNNABLE, _)) => all.count(Place { pid, reason: String::new(), stack: Stack::default() }),
                Some((WAITING, Some(reason))) => waiting.push((*at, reason, descriptor)),
                _ => {}
            }
        }
        let stacks: Vec<(u64, usize)> = waiting.iter().map(|(.., one)| stack_of(one)).collect();
        let stacks = self.memory.read(&stacks);
        let at: Vec<(u64, usize)> = waiting.iter().map(|(at, ..)| *at).collect();
        // A stack belongs to the wait only if the goroutine did not run in between.
        for (((_, reason, before), stack), after) in waiting.iter().zip(stacks).zip(self.memory.read(&at)) {
            let until = self.number_at + TO_REASON + 1;
            if before.get(..until) == after.get(..until) {
                all.count(Place {
                    pid,
                    reason: (*reason).into(),
                    stack: Stack::Addresses(addresses_of(before, &stack)),
                });
            }
        }
        Some(())
    }
}

/// The part of a waiting goroutine's stack that is read.
fn stack_of(descriptor: &[u8]) -> (u64, usize) {
    let field = |at| word(descriptor, at).unwrap_or(0);
    let (low, high, pointer) = (field(STACK_LOW), field(STACK_HIGH), field(STACK_POINTER));
    let length = if (low..high).contains(&pointer) { high - pointer } else { 0 };
    (pointer, (length as usize).min(STACK_BYTES))
}

/// The addresses on a goroutine's stack, by its frame pointers.
fn addresses_of(descriptor: &[u8], stack: &[u8]) -> Vec<u64> {
    let field = |at| word(descriptor, at).unwrap_or(0);
    let pointer = field(STACK_POINTER);
    let into = |address: u64| usize::try_from(address.checked_sub(pointer)?).ok();
    let mut addresses = vec![field(PROGRAM_COUNTER)];
    let mut frame = FRAME_POINTERS.map(field).into_iter().find(|at| into(*at).is_some_and(|at| at < stack.len()));
    while let Some(at) = frame.and_then(into) {
        let (Some(next), Some(address)) = (word(stack, at), word(stack, at + 8)) else { break };
        if addresses.len() == STACK_FRAMES {
            break;
        }
        addresses.push(address);
        // Frames lie at ascending addresses.
        frame = Some(next).filter(|next| frame.is_some_and(|frame| *next > frame));
    }
    addresses
}

/// What Go's variables contain.
impl Memory {
    /// The offset of the number in the goroutines that this list begins with: the main one has number 1.
    fn number_at(self, list: u64) -> Option<usize> {
        let first: Vec<(u64, usize)> = self.words(list, 3)?.iter().map(|address| (*address, DESCRIPTOR)).collect();
        let first = self.read(&first);
        let has_stack = |one: &Vec<u8>| word(one, STACK_LOW) < word(one, STACK_HIGH);
        let is_number = |at: &usize| {
            let [main, second, third] = [0, 1, 2].map(|index: usize| word(&first[index], *at).unwrap_or(0));
            main == 1 && second > 1 && third > 1 && second != third && second.max(third) < 1 << 32
        };
        NUMBERS.step_by(8).find(is_number).filter(|_| first.iter().all(has_stack))
    }

    /// The reasons of [`REASONS`] by their numbers, if a table of names begins with these words; `second` is where its
    /// second name should be.
    fn reasons(self, table: &[u64], second: u64) -> Option<HashMap<u8, &'static str>> {
        let text = |at: u64, length: u64| self.read(&[(at, length as usize)]).pop();
        text(second, SECOND_REASON.len() as u64).filter(|name| name == SECOND_REASON)?;
        let names = table.as_chunks::<2>().0.iter().take(MOST_REASONS).skip(1);
        let names =
            names.map_while(|[at, length]| text(*at, (*length).min(LONGEST_REASON)).filter(|name| !name.is_empty()));
        let number = |(index, name): (usize, Vec<u8>)| {
            let reason = REASONS.iter().find(|reason| reason.as_bytes() == name)?;
            Some((u8::try_from(index + 1).ok()?, *reason))
        };
        Some(names.enumerate().filter_map(number).collect())
    }
}
