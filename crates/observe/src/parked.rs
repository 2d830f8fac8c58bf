//! Samples where requests wait inside the server's programs, where the kernel does not see it: goroutines of Go,
//! threads of Java.

use crate::goroutines::GoProgram;
use crate::java::JavaMachine;
use crate::processes::{Process, living_thread};
use crate::profile::names::SymbolNames;
use record::account::Parked;
use record::profile::Frame;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Maximum places that are counted.
const MOST_PLACES: usize = 1024;

/// The functions at a place, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stack {
    Addresses(Vec<u64>),
    Names(Vec<String>),
}

impl Default for Stack {
    fn default() -> Stack {
        Stack::Names(Vec::new())
    }
}

/// A place where something waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub pid: u32,
    /// Why it waits; empty if it can run and has no thread.
    pub reason: String,
    pub stack: Stack,
}

/// What waits, by place, summed over readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParkedCounts {
    /// Readings of all processes; 0 if none can be read.
    pub readings: u64,
    pub places: HashMap<Place, u64>,
    /// Those at places for which there was no room.
    pub lost: u64,
}

impl ParkedCounts {
    pub fn count(&mut self, place: Place) {
        if self.places.len() < MOST_PLACES || self.places.contains_key(&place) {
            *self.places.entry(place).or_default() += 1;
        } else {
            self.lost += 1;
        }
    }

    /// Names the places, those with most first. `names` keeps what it learns.
    pub fn named(self, names: &mut SymbolNames<'_>) -> Vec<Parked> {
        let mut places: Vec<(Place, u64)> = self.places.into_iter().collect();
        places.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut stacks: BTreeMap<u32, Vec<&Vec<u64>>> = BTreeMap::new();
        for (place, _) in &places {
            if let Stack::Addresses(stack) = &place.stack {
                stacks.entry(place.pid).or_default().push(stack);
            }
        }
        for (pid, stacks) in stacks {
            names.learn_user(pid, &stacks);
        }
        let frame = |name: &String| Frame {
            function: name.as_str().into(),
            module: Some(record::account::JAVA.into()),
            is_kernel: false,
        };
        let named = |(place, count): &(Place, u64)| Parked {
            reason: place.reason.as_str().into(),
            frames: match &place.stack {
                Stack::Addresses(stack) => names.user_stack(place.pid, stack),
                Stack::Names(functions) => functions.iter().map(frame).collect(),
            },
            count: *count,
        };
        places.iter().map(named).collect()
    }

    pub fn add(&mut self, other: ParkedCounts) {
        self.readings += other.readings;
        self.lost += other.lost;
        for (place, count) in other.places {
            *self.places.entry(place).or_default() += count;
        }
    }
}

/// A program that shows what waits inside it.
#[derive(Debug)]
enum Program {
    Go(GoProgram),
    Java(JavaMachine),
}

/// Reads the server's processes.
#[derive(Debug, Default)]
pub struct ParkedReader {
    /// What each process is; none if it is neither.
    known: HashMap<Process, Option<Program>>,
    /// Time for which programs answered in the last reading; they may have stopped for it.
    pub answered: Duration,
}

impl ParkedReader {
    /// Examines new processes, once.
    pub fn learn(&mut self, processes: &[Process]) {
        self.known.retain(|process, _| processes.contains(process));
        for process in processes {
            self.known.entry(*process).or_insert_with(|| {
                let living = living_thread(process.pid);
                let go = || GoProgram::find(living).map(Program::Go);
                go().or_else(|| JavaMachine::open(living).map(Program::Java))
            });
        }
    }

    /// Samples the known processes once.
    pub fn read(&mut self) -> ParkedCounts {
        let mut all = ParkedCounts::default();
        self.answered = Duration::ZERO;
        for (process, program) in &self.known {
            let read = match program {
                Some(Program::Go(program)) => program.read(process.pid, &mut all),
                Some(Program::Java(machine)) => {
                    let asked = Instant::now();
                    let threads = machine.waiting();
                    self.answered += asked.elapsed();
                    threads.map(|threads| {
                        for thread in threads {
                            let stack = Stack::Names(thread.functions);
                            all.count(Place { pid: process.pid, reason: thread.reason, stack });
                        }
                    })
                }
                None => None,
            };
            all.readings = all.readings.max(u64::from(read.is_some()));
        }
        all
    }
}
