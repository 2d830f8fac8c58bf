//! What a load's result says of workers that were lost, before, in and after its window.

use super::OnLoss;
use super::faked::{at_start, fleet, plan};
use load::LoadResult;
use record::DoubtKind;
use std::time::Duration;

const MINUTE_NS: u64 = 60_000_000_000;

fn doubts(result: &LoadResult, kind: DoubtKind) -> Vec<&str> {
    result.doubts.iter().filter(|doubt| doubt.kind == kind).map(|doubt| doubt.what.as_str()).collect()
}

/// With a window that is over, and with one that goes on: a log's part may end early.
#[test]
fn a_worker_that_dies_after_its_result_takes_nothing_with_it() {
    for duration_ns in [1_000_000, MINUTE_NS] {
        let first = at_start(|plan, mouth| {
            mouth.give(plan, 30);
            mouth.end();
        });
        let second = at_start(|plan, mouth| {
            std::thread::sleep(Duration::from_millis(300));
            mouth.give(plan, 4);
        });
        let mut fleet = fleet(vec![first, second], OnLoss::End);
        let result = fleet.run_fake(&plan(4, duration_ns)).expect("a result");
        assert_eq!(result.counts.outcomes.ok, 34);
        assert!(doubts(&result, DoubtKind::WorkerLost).is_empty(), "{:?}", result.doubts);
        assert_eq!(fleet.uncounted, None);
        // It is missed in the next load.
        let next = fleet.run_fake(&plan(4, duration_ns)).expect_err("the run ends").to_string();
        assert!(next.contains("client 1") && next.contains("the run ends there"), "{next}");
    }
}
