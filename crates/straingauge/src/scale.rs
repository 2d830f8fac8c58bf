//! Scalable select: the programs that it applies to, and its library (toolkit/scalable-select).

pub mod library;
pub mod target;
