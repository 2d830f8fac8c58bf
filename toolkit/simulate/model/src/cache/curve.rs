//! Computes reuse distances and from them the misses of every cache size at once (Mattson et al., *Evaluation
//! techniques for storage hierarchies*, 1970), on a sample of the lines (Waldspurger et al., *Efficient MRC
//! construction with SHARDS*, 2015).

use std::collections::HashMap;

/// Maximum number of followed lines. Beyond it, the sample is halved.
const MOST_FOLLOWED: usize = 1 << 18;
/// Number of times after which the tree is renumbered.
const TIMES: usize = 1 << 20;
/// Distances of at least this many lines count as infinite.
const LONGEST: usize = 1 << 20;

/// Follows a stream of lines.
#[derive(Debug)]
pub struct StackDistances {
    shift: u32,
    last: HashMap<u64, u32>,
    /// Fenwick tree over times, with 1 where a line was last used.
    tree: Vec<u32>,
    now: u32,
    /// Estimated accesses by distance in lines, scaled from the sample.
    by_distance: Vec<u64>,
    first_uses: u64,
    total: u64,
}

/// Misses by cache size.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Bytes of a fully associative LRU cache, and the share of accesses that miss it.
    pub points: Vec<(u64, f64)>,
    /// Accesses on which the curve is based.
    pub accesses: u64,
}

impl StackDistances {
    /// Follows one of 2^`shift` lines.
    pub fn new(shift: u32) -> StackDistances {
        StackDistances {
            shift: shift.min(32),
            last: HashMap::new(),
            tree: vec![0; TIMES + 1],
            now: 0,
            by_distance: vec![0; LONGEST],
            first_uses: 0,
            total: 0,
        }
    }

    /// Starts counting. The times of last use are kept, so that lines do not count as first uses again.
    pub fn restart(&mut self) {
        self.by_distance.iter_mut().for_each(|count| *count = 0);
        (self.first_uses, self.total) = (0, 0);
    }

    /// Call it when a line was used.
    pub fn access(&mut self, line: u64) {
        if !self.is_followed(line) {
            return;
        }
        if self.now as usize >= TIMES {
            self.renumber();
        }
        let weight = 1 << self.shift;
        self.total += weight;
        self.now += 1;
        match self.last.insert(line, self.now) {
            Some(before) => {
                // Lines last used after `before`; each stands for 2^shift others.
                let between = self.last.len() as u64 - u64::from(self.up_to(before));
                let distance = (between << self.shift) as usize;
                match self.by_distance.get_mut(distance) {
                    Some(count) => *count += weight,
                    None => self.first_uses += weight,
                }
                self.add(before, u32::MAX);
            }
            None => self.first_uses += weight,
        }
        self.add(self.now, 1);
        if self.last.len() > MOST_FOLLOWED {
            self.shift += 1;
            self.renumber();
        }
    }

    /// The curve at these sizes in bytes, ascending, for lines of `line_bytes`, without sizes of more lines than are
    /// distinguished. `None` without an access.
    pub fn curve(&self, sizes_bytes: &[u64], line_bytes: u64) -> Option<Curve> {
        if self.total == 0 {
            return None;
        }
        let mut points = Vec::new();
        for size in sizes_bytes {
            // A reuse at distance d hits if more than d lines fit.
            let fits = (size / line_bytes) as usize;
            if fits > LONGEST {
                break;
            }
            let hits: u64 = self.by_distance[..fits].iter().sum();
            points.push((*size, (self.total - hits) as f64 / self.total as f64));
        }
        Some(Curve { points, accesses: self.total })
    }

    fn is_followed(&self, line: u64) -> bool {
        // The upper bits of a product with an odd constant are well mixed.
        let mixed = line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        mixed & ((1 << self.shift) - 1) == 0
    }

    fn add(&mut self, time: u32, what: u32) {
        let mut at = time as usize;
        while at <= TIMES {
            self.tree[at] = self.tree[at].wrapping_add(what);
            at += at & at.wrapping_neg();
        }
    }

    fn up_to(&self, time: u32) -> u32 {
        let (mut at, mut sum) = (time as usize, 0_u32);
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }

    /// Gives the lines that are still followed the times 1, 2, ... in their order.
    fn renumber(&mut self) {
        let mut kept: Vec<(u32, u64)> = self.last.drain().map(|(line, time)| (time, line)).collect();
        kept.sort_unstable();
        self.tree.iter_mut().for_each(|count| *count = 0);
        self.now = 0;
        for (_, line) in kept {
            if self.is_followed(line) {
                self.now += 1;
                self.last.insert(line, self.now);
                self.add(self.now, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(lines: &[u64], fits: u64) -> f64 {
        let mut distances = StackDistances::new(0);
        lines.iter().for_each(|line| distances.access(*line));
        distances.curve(&[fits * 64], 64).unwrap().points[0].1
    }

    #[test]
    fn distances_equal_those_computed_by_hand() {
        // In a b c a, the second a comes after two others, so it hits if three lines fit.
        assert_eq!(ratio(&[1, 2, 3, 1], 2), 1.0);
        assert_eq!(ratio(&[1, 2, 3, 1], 3), 0.75);
        // An immediate reuse hits if one line fits.
        assert_eq!(ratio(&[1, 1], 1), 0.5);
        assert_eq!(ratio(&[1, 2, 2, 2, 1], 1), 0.6);
        assert_eq!(ratio(&[1, 2, 2, 2, 1], 2), 0.4);
    }

    #[test]
    fn renumbering_changes_no_distance() {
        let mut long = StackDistances::new(0);
        for at in 0..(TIMES as u64 + 5000) {
            long.access(at % 1000);
        }
        let curve = long.curve(&[999 * 64, 1000 * 64], 64).unwrap();
        assert_eq!(curve.points[0].1, 1.0);
        assert_eq!(curve.points[1].1, 1000.0 / curve.accesses as f64);
    }

    #[test]
    fn a_sample_of_the_lines_shows_the_same_knee() {
        let mut sampled = StackDistances::new(4);
        for at in 0..2_000_000_u64 {
            sampled.access(at % 20_000);
        }
        let curve = sampled.curve(&[14_000 * 64, 26_000 * 64], 64).unwrap();
        assert!(curve.points[0].1 > 0.99 && curve.points[1].1 < 0.02, "{curve:?}");
    }

    #[test]
    fn sizes_with_unknown_misses_are_left_out() {
        let (mut distances, mib) = (StackDistances::new(4), 1 << 20);
        for _ in 0..2 {
            distances.restart();
            (0..80 * mib / 64).for_each(|line| distances.access(line));
        }
        // A cache of 96 MiB would have no misses.
        assert_eq!(distances.curve(&[64 * mib, 96 * mib], 64).unwrap().points, [(64 * mib, 1.0)]);
    }

    #[test]
    fn memory_stays_bounded_for_any_number_of_lines() {
        let mut many = StackDistances::new(0);
        for line in 0..2_000_000_u64 {
            many.access(line);
        }
        assert!(many.last.len() <= MOST_FOLLOWED && many.shift > 0);
        assert_eq!(many.curve(&[64], 64).unwrap().points[0].1, 1.0);
    }
}
