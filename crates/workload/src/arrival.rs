//! Turns a measured rate series into the arrivals of an open loop, to repeat a real surge on any server.
//!
//! The series gives the shape; the caller gives the mean rate and the total duration. Within each interval of the
//! series the arrivals are a Poisson process of constant rate, so the whole is a nonhomogeneous Poisson process whose
//! rate is a step function (Lewis & Shedler, Simulation of Nonhomogeneous Poisson Processes, 1979; here by inversion
//! of the cumulative rate, which for steps is exact and takes O(1) time and memory for each arrival).

mod process;
mod series;

pub use process::{Arrivals, SeriesPlan};
pub use series::RateSeries;

/// A rate series that cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// Opening or reading failed.
    #[error("{name}: the rate series cannot be read: {cause}")]
    Read {
        /// The file.
        name: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// A line is neither a count nor a time and a count.
    #[error("{name}:{line}: {reason}: {excerpt}")]
    Line {
        /// The file.
        name: String,
        /// Line, from 1.
        line: u64,
        /// Description of the expected value.
        reason: &'static str,
        /// Beginning of the line, made printable.
        excerpt: String,
    },
    /// The series has no intervals, or no interval with a request.
    #[error("{0} has no requests: a rate series needs at least one interval with a count above 0")]
    Empty(String),
    /// The series has more intervals than are kept.
    #[error("{name} has more than {limit} intervals: cut a part out of it, or sum it up to longer intervals")]
    TooLong {
        /// The file.
        name: String,
        /// The limit.
        limit: usize,
    },
}
