//! Size classes of requests, by bytes of response.
//!
//! Sizes on the web have heavy tails, so an average over all requests describes none of them, but requests of one
//! class use similar resources (Almeida, Almeida and Yates, "Measuring the Behavior of a World-Wide Web Server",
//! 1996, section 2.3.2).

use record::units::{UnitError, parse_bytes};
use record::watch::SizeClass;
use serde::Serialize;

pub const SIZE_CLASSES: usize = 8;

/// The classes, from small to large; at least one, at most eight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SizeClasses(Vec<SizeClass>);

/// The reason why boundaries are not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// A boundary is not a size.
    #[error("{0}")]
    NotASize(#[from] UnitError),
    /// There are too many boundaries.
    #[error("{0} boundaries make more than {SIZE_CLASSES} size classes: give at most {max}", max = SIZE_CLASSES - 1)]
    TooMany(usize),
    /// The boundaries are not ascending.
    #[error("size class boundaries must be above 0 and ascending: {0} is not")]
    NotAscending(u64),
}

impl Default for SizeClasses {
    /// The default boundaries: geometric means of the mean sizes of the paper's file types (its Table 1: HTML 7.5 KB,
    /// images 13.28 KB, sound 179 KB, video 2304 KB).
    fn default() -> Self {
        SizeClasses::between(&[10 << 10, 50 << 10, 640 << 10])
    }
}

impl SizeClasses {
    /// Parses boundaries such as `10KiB,50KiB,640KiB`; an empty text gives a single class.
    pub fn parse(text: &str) -> Result<Self, ClassError> {
        let mut bounds = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let bound = parse_bytes(part)?;
            if bound == 0 || bounds.last().is_some_and(|last| bound <= *last) {
                return Err(ClassError::NotAscending(bound));
            }
            bounds.push(bound);
        }
        if bounds.len() > SIZE_CLASSES - 1 {
            return Err(ClassError::TooMany(bounds.len()));
        }
        Ok(SizeClasses::between(&bounds))
    }

    fn between(bounds: &[u64]) -> Self {
        let starts = std::iter::once(0).chain(bounds.iter().copied());
        let ends = bounds.iter().copied().map(Some).chain(std::iter::once(None));
        SizeClasses(
            starts
                .zip(ends)
                .map(|(from_bytes, below_bytes)| SizeClass {
                    name: name(from_bytes, below_bytes),
                    from_bytes,
                    below_bytes,
                })
                .collect(),
        )
    }

    /// The classes in order.
    pub fn iter(&self) -> impl Iterator<Item = &SizeClass> {
        self.0.iter()
    }

    /// The number of classes.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The class of a response size.
    pub fn index_of(&self, bytes: u64) -> usize {
        self.0.iter().position(|class| class.below_bytes.is_none_or(|below| bytes < below)).unwrap_or(0)
    }

    /// Upper ends for the programs, `u64::MAX` for the last class.
    pub fn upper_ends(&self) -> [u64; SIZE_CLASSES - 1] {
        let mut ends = [u64::MAX; SIZE_CLASSES - 1];
        for (end, class) in ends.iter_mut().zip(&self.0) {
            *end = class.below_bytes.unwrap_or(u64::MAX);
        }
        ends
    }
}

fn name(from: u64, below: Option<u64>) -> String {
    use record::units::format_bytes;
    match below {
        _ if from == 0 && below.is_none() => "all".into(),
        Some(below) => format!("<{}", format_bytes(below as f64)),
        None => format!(">={}", format_bytes(from as f64)),
    }
}
