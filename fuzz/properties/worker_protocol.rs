//! Properties of the worker protocol's reader that hold for any bytes. The fuzz target searches for a counterexample,
//! and the tests try the seeds; both provide `protocol` as a sibling of this module.

use super::protocol::{FromWorker, LineReader, ToWorker, line};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No bytes from the other end make the reader panic, and every accepted message is accepted again when it is sent
/// again.
pub fn hold_for(bytes: &[u8]) {
    come_again::<ToWorker>(bytes);
    come_again::<FromWorker>(bytes);
}

fn come_again<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let mut lines = LineReader::new(bytes);
    while let Ok(Some(message)) = lines.next::<T>() {
        let again = line(&message);
        assert!(matches!(LineReader::new(again.as_bytes()).next::<T>(), Ok(Some(_))), "{again}");
    }
}
