//! Scalable select: which programs it can help, and the library that does it (native/scalable-select).

pub mod library;
pub mod target;
