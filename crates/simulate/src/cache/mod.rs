//! A model of a processor's caches: what would have hit, and what would have missed.
//!
//! It knows addresses, reads and writes, and nothing of an emulator: the plugin feeds it, the tests feed it patterns whose
//! misses can be computed by hand, and Valgrind's cachegrind counts the same on the same trace (`tests/cachegrind.rs`).
//!
//! The levels are non-inclusive: a level sees exactly what the one before it missed. So the misses of several L2 geometries
//! follow from one pass. Write-backs are counted and make the line dirty one level further where it is present; they move no
//! line, as in cachegrind. There is no time in the model: it counts, it does not say how long a miss takes.
//!
//! These files are part of the plugin too, which has no dependencies; they use the standard library alone.

mod counts;
mod curve;
mod geometry;
mod hierarchy;
mod level;

pub use counts::{Counts, LevelCounts, MOST_L2, Misses};
pub use curve::{Curve, StackDistances};
pub use geometry::{Geometry, GeometryError, Replacement};
pub use hierarchy::{Hierarchy, Setup};
pub use level::{Level, Outcome};
