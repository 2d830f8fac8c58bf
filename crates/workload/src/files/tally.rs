//! What a log says about the size of each target.

use super::{FilesError, Limits, SizeOrigin};
use crate::trace::TraceReader;
use std::collections::HashMap;

/// Different sizes remembered for one target; beyond them the rarest gives way.
const SIZES: usize = 4;
/// Size where none was seen.
const ASSUMED_BYTES: u64 = 1024;
/// Bytes of targets for each target that the limit allows; a hostile log has long ones.
const TARGET_BYTES: usize = 256;

#[derive(Debug, Default)]
struct Tally {
    /// Sizes answered with status 200, and how often.
    sizes: Vec<(u64, u64)>,
    /// Answers with status 200 and a size.
    requests: u64,
    largest_partial: Option<u64>,
    /// Some answer showed that the document exists.
    exists: bool,
}

/// The tallies of a log.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    by_target: HashMap<Box<[u8]>, Tally>,
    target_bytes: usize,
    pub(super) requests: u64,
}

impl Tallies {
    pub(super) fn read(reader: &mut TraceReader, limits: &Limits) -> Result<Self, FilesError> {
        let mut tallies = Tallies::default();
        loop {
            let entry = match reader.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(tallies),
                Err(error) => return Err(error.into()),
            };
            if entry.method != b"GET" && entry.method != b"HEAD" {
                continue;
            }
            if !tallies.by_target.contains_key(entry.target) {
                tallies.target_bytes += entry.target.len();
                let is_full = tallies.by_target.len() >= limits.files
                    || tallies.target_bytes > limits.files.saturating_mul(TARGET_BYTES);
                if is_full {
                    return Err(FilesError::TooMany { limit: limits.files });
                }
                tallies.by_target.insert(entry.target.into(), Tally::default());
            }
            let Some(tally) = tallies.by_target.get_mut(entry.target) else { continue };
            let is_get = entry.method == b"GET";
            match (entry.status.unwrap_or(200), entry.bytes) {
                (200, Some(bytes)) if is_get => {
                    tally.exists = true;
                    tally.requests += 1;
                    tallies.requests += 1;
                    tally.add(bytes);
                }
                (206, Some(bytes)) if is_get => {
                    tally.exists = true;
                    tally.largest_partial = tally.largest_partial.max(Some(bytes));
                }
                (200 | 206 | 304, _) => tally.exists = true,
                _ => {}
            }
        }
    }

    /// Targets that need a file: target, size, origin.
    pub(super) fn wanted(&self) -> Vec<(Vec<u8>, u64, SizeOrigin)> {
        let existing = self.by_target.iter().filter(|(_, tally)| tally.exists);
        existing
            .map(|(target, tally)| {
                let (bytes, origin) = match (tally.most_often(), tally.largest_partial) {
                    (Some((bytes, _)), _) => (bytes, SizeOrigin::Log),
                    (None, Some(bytes)) => (bytes, SizeOrigin::Partial),
                    (None, None) => (ASSUMED_BYTES, SizeOrigin::Assumed),
                };
                (target.to_vec(), bytes, origin)
            })
            .collect()
    }

    pub(super) fn requests_of_other_size(&self) -> u64 {
        let tallies = self.by_target.values();
        tallies.map(|tally| tally.requests - tally.most_often().map_or(0, |(_, count)| count.min(tally.requests))).sum()
    }

    pub(super) fn without_file(&self) -> u64 {
        self.by_target.values().filter(|tally| !tally.exists).count() as u64
    }
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        if let Some((_, count)) = self.sizes.iter_mut().find(|(size, _)| *size == bytes) {
            *count += 1;
        } else if self.sizes.len() < SIZES {
            self.sizes.push((bytes, 1));
        } else if let Some(rarest) = self.sizes.iter_mut().min_by_key(|(_, count)| *count) {
            // The newcomer takes over the rarest one's count: a size that is frequent from now on still wins.
            *rarest = (bytes, rarest.1 + 1);
        }
    }

    /// The size answered most often (of equal ones the largest), and how often.
    fn most_often(&self) -> Option<(u64, u64)> {
        self.sizes.iter().copied().max_by_key(|(bytes, count)| (*count, *bytes))
    }
}
