//! The numbers of an answer have the same order in every run, and no row of a table contradicts its own trials.

use crate::server::{Bench, Server};
use crate::{fixture, recorded};
use analyze::zones::{self, Findings, Zone};
use proptest::prelude::*;
use record::RunDir;

/// Tolerance for rounding of sums.
const EPSILON: f64 = 1.0 + 1e-9;

#[track_caller]
fn check(run: &RunDir) {
    let findings = zones::of_run(run);
    rows_follow_from_their_trials(&findings);
    let verdict = verdict::sentences(run, &findings);
    let Some(answer) = &verdict.answer else { return };
    let words = format!("{answer:#?}");
    assert_eq!(verdict.headline.split(" Sure: ").next(), answer.sentence.split(" Sure: ").next());
    let plan = answer.plan_per_sec;
    if let Some(plan) = plan {
        let held = answer.held_per_sec.expect(&words);
        assert!(plan.value <= held * EPSILON, "plan beyond what held: {words}");
        assert!(
            plan.low.is_none_or(|low| low <= plan.value) && plan.high.is_none_or(|high| high >= plan.value),
            "{words}"
        );
    }
    if let (Some(held), Some(capacity)) = (answer.held_per_sec, answer.capacity_per_sec) {
        assert!(held <= capacity.value * EPSILON, "held beyond the capacity: {words}");
        assert!(capacity.low.is_none_or(|low| low <= capacity.value), "{words}");
    }
    if let (Some(held), Some(breaks)) = (answer.held_per_sec, answer.breaks_per_sec) {
        assert!(breaks.value * EPSILON >= held, "breaks below what held: {words}");
    }
    if let (Some(peak), Some(capacity)) = (&answer.peak, answer.capacity_per_sec) {
        assert!(capacity.value <= peak.per_sec * EPSILON, "the most answered is above the peak: {words}");
    }
    if let Some(open) = &findings.rate {
        let (held, failed) = (open.failure_point.held, open.failure_point.failed);
        assert!(held.zip(failed).is_none_or(|(held, failed)| held < failed), "{words}");
        if let Some(capacity) = answer.capacity_per_sec {
            let most = open.levels.iter().filter_map(|level| level.throughput_per_sec).map(|spread| spread.median);
            assert!(most.fold(0.0, f64::max) <= capacity.value * EPSILON, "a row above the capacity: {words}");
        }
    }
    assert!(!answer.sentence.contains("NaN") && !answer.sentence.contains("inf"), "{words}");
}

#[track_caller]
fn rows_follow_from_their_trials(findings: &Findings) {
    for level in findings.sweeps().flat_map(|sweep| &sweep.levels) {
        match level.zone {
            Zone::Failure => assert!(2 * level.failing > level.points, "{level:#?}"),
            Zone::Elastic | Zone::Plastic => assert!(2 * level.failing < level.points, "{level:#?}"),
            Zone::Inconsistent | Zone::Unknown => {}
        }
        assert!(
            level.counted <= level.points && level.throughput_per_sec.is_none_or(|spread| spread.n <= level.counted)
        );
    }
}

#[test]
fn recorded_runs_keep_the_order() {
    for name in recorded::names() {
        check(&RunDir::open(&recorded::run(&name).path()).expect(&name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if crate::long_run() { 2_000 } else { 40 }))]
    #[test]
    fn generated_runs_keep_the_order(
        seed: u64,
        noise in 0.0f64..0.2,
        drift in 0.0f64..0.4,
        disturbed in prop_oneof![Just(0.0), 0.1f64..1.0],
        limit in prop_oneof![Just(f64::INFINITY), 1e3f64..1e5],
        rates in prop::collection::vec(0.3f64..2.0, 1..6),
        repeats in 1u32..4,
    ) {
        let server = Server { noise, drift, disturbed, hidden_limit: limit, is_poisson: true, ..Server::default() };
        let mut bench = Bench::new(server, seed);
        for repeat in 0..repeats {
            for load in [2, 8, 64] {
                bench.closed(load, repeat, 500_000_000);
            }
            for (at, rate) in rates.iter().enumerate() {
                // Not every repeat has every rate.
                if at as u32 % repeats <= repeat {
                    bench.open(rate * bench.server.capacity(), repeat, 500_000_000 << (at % 3));
                }
            }
        }
        let (path, record) = ("runs/test".into(), fixture::record());
        check(&RunDir { path, record, points: bench.points, reading_doubts: vec![] });
    }
}
