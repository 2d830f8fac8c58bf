use super::{SizeOrigin, TreeLimits};
use crate::WorkloadError;
use crate::trace::TraceReader;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum number of counted pairs of target and size, per allowed target.
const SIZES: usize = 4;
/// Lower limit of that maximum.
const LEAST_SIZES: usize = 1 << 16;
const ASSUMED_BYTES: u64 = 1024;
/// Maximum bytes of targets, per allowed target. A hostile log has long targets.
const TARGET_BYTES: usize = 256;

/// How often a size was answered. Ordered by the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SizeCount {
    count: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct TargetTally {
    /// Position in the order in which targets were seen.
    number: usize,
    /// The size most often answered with status 200 (the largest of equally frequent ones).
    most_often: Option<SizeCount>,
    requests: u64,
    /// Answers whose size was not counted, because there were too many different ones.
    uncounted: u64,
    largest_partial: Option<u64>,
    /// Whether at least one answer showed that the document exists.
    exists: bool,
}

#[derive(Debug, Default)]
pub(super) struct Tallies {
    by_target: HashMap<Box<[u8]>, TargetTally>,
    /// How often each target was answered with each size.
    sizes: HashMap<(usize, u64), u64>,
    target_bytes: usize,
    pub(super) requests: u64,
}

impl Tallies {
    pub(super) fn read(reader: &mut TraceReader, limits: &TreeLimits) -> Result<Self, WorkloadError> {
        let mut tallies = Tallies::default();
        let most_sizes = limits.files.saturating_mul(SIZES).max(LEAST_SIZES);
        while let Some(entry) = reader.next_entry()? {
            if entry.method != b"GET" && entry.method != b"HEAD" {
                continue;
            }
            if !tallies.by_target.contains_key(entry.target) {
                tallies.target_bytes += entry.target.len();
                let is_full = tallies.by_target.len() >= limits.files
                    || tallies.target_bytes > limits.files.saturating_mul(TARGET_BYTES);
                if is_full {
                    return Err(limits.too_many());
                }
                let number = tallies.by_target.len();
                tallies.by_target.insert(entry.target.into(), TargetTally { number, ..TargetTally::default() });
            }
            let Some(tally) = tallies.by_target.get_mut(entry.target) else { continue };
            let is_get = entry.method == b"GET";
            match (entry.status.unwrap_or(200), entry.bytes) {
                (200, Some(bytes)) if is_get => {
                    tally.exists = true;
                    tally.requests += 1;
                    tallies.requests += 1;
                    tally.add(bytes, &mut tallies.sizes, most_sizes);
                }
                (206, Some(bytes)) if is_get => {
                    tally.exists = true;
                    tally.largest_partial = tally.largest_partial.max(Some(bytes));
                }
                (200 | 206 | 304, _) => tally.exists = true,
                _ => {}
            }
        }
        Ok(tallies)
    }

    pub(super) fn existing(&self) -> Vec<(Vec<u8>, u64, SizeOrigin)> {
        let existing = self.by_target.iter().filter(|(_, tally)| tally.exists);
        existing
            .map(|(target, tally)| {
                let (bytes, origin) = match (tally.most_often, tally.largest_partial) {
                    (Some(most), _) => (most.bytes, SizeOrigin::Log),
                    (None, Some(bytes)) => (bytes, SizeOrigin::Partial),
                    (None, None) => (ASSUMED_BYTES, SizeOrigin::Assumed),
                };
                (target.to_vec(), bytes, origin)
            })
            .collect()
    }

    pub(super) fn requests_of_other_size(&self) -> u64 {
        let tallies = self.by_target.values();
        tallies.map(|tally| tally.requests - tally.most_often.map_or(0, |most| most.count)).sum()
    }

    /// Targets for which another size may have been more frequent than the chosen one.
    pub(super) fn of_uncertain_size(&self) -> u64 {
        let is_uncertain = |tally: &&TargetTally| tally.uncounted > tally.most_often.map_or(0, |most| most.count);
        self.by_target.values().filter(is_uncertain).count() as u64
    }

    pub(super) fn without_file(&self) -> u64 {
        self.by_target.values().filter(|tally| !tally.exists).count() as u64
    }
}

impl TargetTally {
    /// Counts an answer. A pair that was counted once is counted to the end, so that every count is exact.
    fn add(&mut self, bytes: u64, sizes: &mut HashMap<(usize, u64), u64>, most_sizes: usize) {
        let has_room = sizes.len() < most_sizes;
        let count = match sizes.entry((self.number, bytes)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if has_room => new.insert(0),
            // The first size of each target is always counted, even when other targets have used up the limit.
            Entry::Vacant(new) if self.most_often.is_none() => new.insert(0),
            Entry::Vacant(_) => {
                self.uncounted += 1;
                return;
            }
        };
        *count += 1;
        self.most_often = self.most_often.max(Some(SizeCount { count: *count, bytes }));
    }
}
