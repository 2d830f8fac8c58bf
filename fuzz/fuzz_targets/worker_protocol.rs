//! The worker protocol's reader: no bytes from the other end may panic it, make it keep more than a line, or become a
//! message that does not come through the protocol again.

#![no_main]

use libfuzzer_sys::fuzz_target;

// The messages are no part of what the crate offers; this file stands alone for this.
#[allow(dead_code)]
#[path = "../../crates/remote/src/protocol.rs"]
mod protocol;

#[path = "../properties/worker_protocol.rs"]
mod properties;

fuzz_target!(|bytes: &[u8]| properties::hold_for(bytes));
