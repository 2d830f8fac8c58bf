//! Samples where requests wait inside the server's programs, where the kernel does not see it: goroutines of Go,
//! threads of Java.

use crate::processes::{Process, living_thread};
use crate::profile::names::SymbolNames;
use record::account::Parked;
use record::profile::Frame;
use std::collections::{BTreeMap, HashMap};

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

/// A process whose program shows what waits inside it.
pub trait Program: Sized {
    /// Examines a living thread's process; none if it is of another kind.
    fn open(tid: u32) -> Option<Self>;
    /// Counts what waits; none if it cannot be read.
    fn read(&self, pid: u32, all: &mut ParkedCounts) -> Option<()>;
}

/// Reads those of the server's processes that are of one kind.
#[derive(Debug)]
pub struct ParkedReader<P> {
    known: HashMap<Process, Option<P>>,
}

impl<P> Default for ParkedReader<P> {
    fn default() -> Self {
        ParkedReader { known: HashMap::new() }
    }
}

impl<P: Program> ParkedReader<P> {
    /// Examines new processes, once; whether one of them can be read.
    pub fn learn(&mut self, processes: &[Process]) -> bool {
        let before = self.known.values().flatten().count();
        self.known.retain(|process, _| processes.contains(process));
        for process in processes {
            self.known.entry(*process).or_insert_with(|| P::open(living_thread(process.pid)));
        }
        self.known.values().flatten().count() > before
    }

    /// Samples the known processes once.
    pub fn read(&self) -> ParkedCounts {
        let mut all = ParkedCounts::default();
        for (process, program) in &self.known {
            if program.as_ref().is_some_and(|program| program.read(process.pid, &mut all).is_some()) {
                all.readings = 1;
            }
        }
        all
    }
}
