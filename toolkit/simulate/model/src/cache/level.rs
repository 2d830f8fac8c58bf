//! One cache level: sets of lines, and their replacement.

use super::{Geometry, Replacement};

/// No line. An address has at most 64 bits, so a line number shifted by the flags never has this value.
const EMPTY: u64 = u64::MAX;
const DIRTY: u64 = 1;
const PREFETCHED: u64 = 2;
const FLAGS: u32 = 2;

/// The result of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The line was present.
    pub is_hit: bool,
    /// The line was present because it was prefetched, and was not used before.
    pub was_prefetched: bool,
    /// Address of the dirty line that was replaced and must be written back.
    pub written_back: Option<u64>,
}

/// Data for a branch-free [`Level::is_latest`], which never returns true if the number of sets is not a power of two
/// or if lines stay in their ways.
#[derive(Debug, Clone, Copy)]
struct Short {
    mask: u64,
    /// A clean latest line differs from `number << FLAGS` by this, and a dirty one only by [`DIRTY`].
    differs: u64,
}

/// Above all line numbers.
const NEVER: u64 = 1 << 63;

/// A cache of one level. An address stands for its whole line.
#[derive(Debug, Clone)]
pub struct Level {
    ways: usize,
    sets: u64,
    mask: Option<u64>,
    line_shift: u32,
    is_lru: bool,
    short: Short,
    /// Set after set. With LRU the most recently used line comes first.
    lines: Vec<u64>,
    /// Tree-PLRU has a tree per set. The bit of node k (from 1) says which half was used longer ago (1 = the upper
    /// half).
    trees: Vec<u64>,
}

impl Level {
    /// An empty cache.
    pub fn new(geometry: Geometry) -> Level {
        let ways = geometry.ways() as usize;
        let sets = geometry.sets();
        let is_lru = geometry.replacement() == Replacement::Lru;
        let has_short = is_lru && sets.is_power_of_two();
        Level {
            ways,
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
            line_shift: geometry.line_bytes().trailing_zeros(),
            is_lru,
            short: Short {
                mask: if has_short { sets - 1 } else { 0 },
                differs: if has_short { DIRTY } else { DIRTY | NEVER },
            },
            lines: vec![EMPTY; ways * sets as usize],
            trees: if is_lru { Vec::new() } else { vec![0; sets as usize] },
        }
    }

    /// Number of bits by which an address is shifted to give its line number.
    pub fn line_shift(&self) -> u32 {
        self.line_shift
    }

    #[inline(always)]
    fn set_of(&self, number: u64) -> usize {
        (match self.mask {
            Some(mask) => number & mask,
            None => number % self.sets,
        }) as usize
    }

    /// Whether the line was the last used one of its set, so that reading it changes nothing. May wrongly return false.
    #[inline(always)]
    pub fn is_latest(&self, address: u64, is_write: bool) -> bool {
        self.is_latest_line(address >> self.line_shift, is_write)
    }

    /// Like [`Level::is_latest`], for the line with this number.
    #[inline(always)]
    pub fn is_latest_line(&self, number: u64, is_write: bool) -> bool {
        let first = self.lines[(number & self.short.mask) as usize * self.ways];
        // A prefetched line takes the slow path at its first use, which counts it. One comparison suffices, because
        // it is unpredictable which line is dirty: the difference is 0 if the line is dirty, 1 if it is clean, and
        // more for another line.
        (first ^ number << FLAGS ^ self.short.differs) <= u64::from(!is_write)
    }

    /// Uses a line, which is present afterwards.
    pub fn access(&mut self, address: u64, is_write: bool) -> Outcome {
        self.place(address, if is_write { DIRTY } else { 0 }, true)
    }

    /// Loads a line before it is used. A hit changes nothing.
    pub fn prefetch(&mut self, address: u64) -> Outcome {
        if self.holds(address) {
            Outcome { is_hit: true, ..Outcome::default() }
        } else {
            self.place(address, PREFETCHED, false)
        }
    }

    /// Whether the line is present. Changes nothing.
    pub fn holds(&self, address: u64) -> bool {
        let number = address >> self.line_shift;
        let start = self.set_of(number) * self.ways;
        self.lines[start..start + self.ways].iter().any(|line| *line != EMPTY && line >> FLAGS == number)
    }

    /// Makes a line dirty if it is present, without using it; returns whether it was present.
    pub fn mark_dirty(&mut self, address: u64) -> bool {
        let number = address >> self.line_shift;
        let start = self.set_of(number) * self.ways;
        let set = &mut self.lines[start..start + self.ways];
        let found = set.iter_mut().find(|line| **line != EMPTY && **line >> FLAGS == number);
        found.map(|line| *line |= DIRTY).is_some()
    }

    #[inline(always)]
    fn place(&mut self, address: u64, flags: u64, is_use: bool) -> Outcome {
        let number = address >> self.line_shift;
        let index = self.set_of(number);
        let set = &mut self.lines[index * self.ways..(index + 1) * self.ways];
        match (self.is_lru, &mut *set) {
            (true, [first, second]) => place_of_two(first, second, number, flags, is_use, self.line_shift),
            (true, set) => place_first(set, number, flags, is_use, self.line_shift),
            (false, set) => place_by_tree(set, &mut self.trees[index], number, flags, is_use, self.line_shift),
        }
    }
}

/// The number of the line in a way. An empty way has a number that no line has.
#[inline(always)]
fn number_of(line: u64) -> u64 {
    line >> FLAGS
}

/// A hit on `line`, and the new value of the line.
#[inline(always)]
fn hit(line: u64, flags: u64, is_use: bool) -> (Outcome, u64) {
    let outcome = Outcome { is_hit: true, was_prefetched: is_use && line & PREFETCHED != 0, written_back: None };
    (outcome, if is_use { line & !PREFETCHED } else { line } | flags)
}

/// A miss that replaced `line`.
#[inline(always)]
fn miss(line: u64, line_shift: u32) -> Outcome {
    let is_dirty = line != EMPTY && line & DIRTY != 0;
    Outcome { written_back: is_dirty.then_some(number_of(line) << line_shift), ..Outcome::default() }
}

/// Like [`place_first`] for two ways, as L1 caches had.
#[inline(always)]
fn place_of_two(first: &mut u64, second: &mut u64, number: u64, flags: u64, is_use: bool, line_shift: u32) -> Outcome {
    if number_of(*first) == number {
        let (outcome, kept) = hit(*first, flags, is_use);
        *first = kept;
        return outcome;
    }
    let line = std::mem::replace(second, *first);
    if number_of(line) == number {
        let (outcome, kept) = hit(line, flags, is_use);
        *first = kept;
        return outcome;
    }
    *first = number << FLAGS | flags;
    miss(line, line_shift)
}

/// LRU: the line moves to the front, and those before it move one way back, in the same pass that searches it.
#[inline(never)]
fn place_first(set: &mut [u64], number: u64, flags: u64, is_use: bool, line_shift: u32) -> Outcome {
    let mut moving = number << FLAGS | flags;
    for way in 0..set.len() {
        let line = std::mem::replace(&mut set[way], moving);
        if number_of(line) == number {
            let (outcome, kept) = hit(line, flags, is_use);
            set[0] = kept;
            return outcome;
        }
        moving = line;
    }
    miss(moving, line_shift)
}

/// Tree-PLRU: lines stay in their ways.
fn place_by_tree(set: &mut [u64], tree: &mut u64, number: u64, flags: u64, is_use: bool, line_shift: u32) -> Outcome {
    let found = set.iter().position(|line| number_of(*line) == number);
    let way = found.unwrap_or_else(|| victim(set, *tree));
    let (outcome, line) = match found {
        Some(_) => hit(set[way], flags, is_use),
        None => (miss(set[way], line_shift), number << FLAGS | flags),
    };
    set[way] = line;
    touch(tree, set.len(), way);
    outcome
}

/// The way to which the tree points; empty ways come first.
fn victim(set: &[u64], tree: u64) -> usize {
    if let Some(empty) = set.iter().position(|line| *line == EMPTY) {
        return empty;
    }
    let mut node = 1;
    while node < set.len() {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - set.len()
}

/// All nodes from the way up to the root then point away from it.
fn touch(tree: &mut u64, ways: usize, way: usize) {
    let mut node = way + ways;
    while node > 1 {
        let is_upper = node & 1;
        node /= 2;
        *tree = *tree & !(1 << node) | ((is_upper as u64 ^ 1) << node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(size: u64, ways: u32, replacement: Replacement) -> Level {
        Level::new(Geometry::new(size, ways, 64, replacement).unwrap())
    }

    fn misses(level: &mut Level, addresses: impl IntoIterator<Item = u64>) -> usize {
        addresses.into_iter().filter(|address| !level.access(*address, false).is_hit).count()
    }

    #[test]
    fn a_fitting_array_misses_once_and_one_line_more_misses_always() {
        let walk = |lines: u64| (0..10 * lines).map(move |at| at % lines * 64);
        // 1 KiB, fully associative: 16 lines fit, and 17 in a circle defeat LRU.
        assert_eq!(misses(&mut level(1024, 16, Replacement::Lru), walk(16)), 16);
        assert_eq!(misses(&mut level(1024, 16, Replacement::Lru), walk(17)), 170);
        // Direct mapped: of 17 lines only the two that share set 0 replace each other.
        assert_eq!(misses(&mut level(1024, 1, Replacement::Lru), walk(17)), 15 + 20);
    }

    #[test]
    fn a_stride_of_all_sets_uses_only_one_set() {
        // 64 sets of 2 ways: addresses that are 4096 apart share a set.
        let mut two_way = level(8192, 2, Replacement::Lru);
        assert_eq!(misses(&mut two_way, [0, 4096, 0, 4096, 8192, 0, 4096]), 5);
        let mut three_sets = Level::new(Geometry::new(3 * 2 * 64, 2, 64, Replacement::Lru).unwrap());
        assert_eq!(misses(&mut three_sets, [0, 3 * 64, 0, 3 * 64, 6 * 64, 0]), 4, "sets need not be a power of two");
    }

    #[test]
    fn tree_plru_evicts_the_line_that_its_tree_points_at() {
        let mut plru = level(256, 4, Replacement::TreePlru);
        assert_eq!(misses(&mut plru, [0, 64, 128, 192]), 4);
        // The tree now points to 0, and after using 0 to the older line of the other half, 128.
        assert!(plru.access(0, false).is_hit);
        assert!(!plru.access(256, false).is_hit);
        assert!(!plru.holds(128) && plru.holds(0) && plru.holds(64) && plru.holds(192));
        // LRU would have replaced 64.
        let mut lru = level(256, 4, Replacement::Lru);
        misses(&mut lru, [0, 64, 128, 192, 0, 256]);
        assert!(!lru.holds(64) && lru.holds(128));
    }

    #[test]
    fn only_dirty_lines_are_written_back() {
        let mut cache = level(128, 2, Replacement::Lru);
        cache.access(0, true);
        cache.access(64, false);
        assert_eq!(cache.access(128, false).written_back, Some(0));
        assert_eq!(cache.access(192, false).written_back, None);
        assert!(cache.mark_dirty(128) && !cache.mark_dirty(0));
        assert_eq!(cache.access(0, false).written_back, Some(128));
    }

    #[test]
    fn the_fast_path_agrees_with_the_slow_one() {
        let mut cache = level(256, 2, Replacement::Lru);
        cache.access(0, false);
        assert!(cache.is_latest(0, false) && !cache.is_latest(0, true), "a first write makes the line dirty");
        cache.access(0, true);
        assert!(cache.is_latest(0, true) && cache.is_latest(63, false) && !cache.is_latest(64, false));
        cache.prefetch(64);
        assert!(!cache.is_latest(64, false), "the first use of a prefetched line counts");
        assert!(cache.access(64, false).was_prefetched);
        assert!(!cache.access(64, false).was_prefetched);
        for mut long in
            [level(256, 2, Replacement::TreePlru), Level::new(Geometry::new(384, 2, 64, Replacement::Lru).unwrap())]
        {
            long.access(0, true);
            assert!(!long.is_latest(0, false) && !long.is_latest(0, true), "there is no short way");
        }
    }
}
