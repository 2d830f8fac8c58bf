//! The worker protocol's reader: no bytes from the other end may panic it, make it keep more than a line, or become a
//! plan or a result that does not come through the protocol again.

#![no_main]

use libfuzzer_sys::fuzz_target;

// The binary has no library; this file stands alone for this.
#[allow(dead_code)]
#[path = "../../src/worker/protocol.rs"]
mod protocol;

use protocol::{FromWorker, Lines, ToWorker, WireResult, line};

fuzz_target!(|bytes: &[u8]| {
    let mut lines = Lines::new(bytes);
    while let Ok(Some(message)) = lines.next::<ToWorker>() {
        if let ToWorker::Plan(plan) = message {
            let _ = plan.into_plan();
        }
    }
    let mut lines = Lines::new(bytes);
    while let Ok(Some(message)) = lines.next::<FromWorker>() {
        let FromWorker::Result(result) = message else { continue };
        let Ok(result) = result.into_result() else { continue };
        assert!(result.first_errors.len() <= 8 && result.doubts.len() <= 50);
        let again = line(&FromWorker::Result(Box::new(WireResult::new(&result, 0).expect("it was read"))));
        assert!(matches!(Lines::new(again.as_bytes()).next::<FromWorker>(), Ok(Some(FromWorker::Result(_)))));
    }
});
