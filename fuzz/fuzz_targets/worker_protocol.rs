//! Reader of the worker protocol. No bytes from the other end may make it panic, keep more than a line, or become a
//! message that the protocol cannot carry again.

#![no_main]

use libfuzzer_sys::fuzz_target;

// The messages are private to the crate, so the file is included here; it depends on no other.
#[allow(dead_code)]
#[path = "../../crates/remote/src/protocol.rs"]
mod protocol;

#[path = "../properties/worker_protocol.rs"]
mod properties;

fuzz_target!(|bytes: &[u8]| properties::hold_for(bytes));
