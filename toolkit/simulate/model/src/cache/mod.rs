//! A model of a processor's caches: computes which accesses would hit or miss.
//!
//! It takes addresses, reads and writes, and does not depend on an emulator: the plugin feeds it, the tests feed it
//! patterns whose misses can be computed by hand, and Valgrind's cachegrind counts the same on the same trace
//! (`tests/cachegrind.rs`).
//!
//! The levels are non-inclusive: a level sees exactly the misses of the one before it. So the misses of several L2
//! geometries follow from one pass. Write-backs are counted and make the line dirty one level further if it is present;
//! they move no line, as in cachegrind. The model has no time: it counts, but not how long a miss takes.

mod counts;
mod curve;
mod hierarchy;
mod level;

pub use crate::geometry::{Geometry, GeometryError, Replacement};
pub use counts::{Counts, LevelCounts, MOST_L2, Misses};
pub use curve::{Curve, StackDistances};
pub use hierarchy::{Hierarchy, Setup};
pub use level::{Level, Outcome};
