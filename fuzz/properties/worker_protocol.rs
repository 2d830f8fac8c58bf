//! What must hold of the worker protocol's reader for any bytes. The fuzz target searches for a counterexample, the tests try
//! the seeds; both bring `protocol` as a sibling of this module.

use super::protocol::{FromWorker, Lines, ToWorker, WireResult, line};

/// No bytes from the other end panic the reader, and what it took is taken again when it is said again.
pub fn hold_for(bytes: &[u8]) {
    let mut lines = Lines::new(bytes);
    while let Ok(Some(message)) = lines.next::<ToWorker>() {
        let again = line(&message);
        assert!(matches!(Lines::new(again.as_bytes()).next::<ToWorker>(), Ok(Some(_))), "{again}");
        if let ToWorker::Plan(plan) = message {
            let _ = plan.into_plan();
        }
    }
    let mut lines = Lines::new(bytes);
    while let Ok(Some(message)) = lines.next::<FromWorker>() {
        match message {
            FromWorker::Result(result) => {
                let Ok((result, _)) = result.into_result() else { continue };
                assert!(result.first_errors.len() <= 8 && result.doubts.len() <= 50);
                let again = WireResult::new(result, 0).expect("it was read");
                let again = line(&FromWorker::Result(Box::new(again)));
                assert!(matches!(Lines::new(again.as_bytes()).next::<FromWorker>(), Ok(Some(FromWorker::Result(_)))));
            }
            FromWorker::Observation(seen) => {
                let seen = seen.bounded();
                assert!(seen.figures.0.len() <= 500 && seen.doubts.len() <= 50 && seen.server_facts.len() <= 500);
                let is_fit = |text: &String| !text.chars().any(char::is_control);
                assert!(seen.server_facts.iter().all(|(name, fact)| is_fit(name) && is_fit(fact)));
                for class in seen.watched.iter().flat_map(|watched| &watched.classes) {
                    assert!(class.figures.0.len() <= 500 && is_fit(&class.name));
                    assert!(class.half_widths.keys().all(is_fit));
                }
                // Bounds are bounds: a second time changes nothing.
                assert_eq!(line(&seen), line(&seen.clone().bounded()));
            }
            _ => {}
        }
    }
}
