//! Decides which requests to send, of which size, and when: the part of a load that needs no network.
//!
//! Everything here is a pure function of its input and a seed: the same log, options and seed give the same requests.
//! Logs and rate series are untrusted input: they never cause a panic, a hang, or unbounded memory.

pub mod arrival;
pub mod files;
pub mod mix;
pub mod replay;
pub mod trace;

use std::fmt::Display;

/// Why a workload cannot be read or made: a sentence with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(String);

pub(crate) fn wrong(why: impl Display) -> WorkloadError {
    WorkloadError(why.to_string())
}

impl From<WorkloadError> for String {
    fn from(error: WorkloadError) -> Self {
        error.0
    }
}

/// Some programs write this before a text in UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// SipHash-1-3 with a zero key. It is equal on all machines and in all versions, so that replayers on several
/// machines split a log identically and documents get the same content everywhere.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}
