//! Tests of the remote crate.

mod faked;
mod fleet;
mod parts;
mod worker;
