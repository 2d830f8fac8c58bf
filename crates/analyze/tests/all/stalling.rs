//! The search over rate with servers that are simulated request by request: pools, servers that stall, and machines
//! that pause. The failing rate is within its interval, no trial is repeated needlessly, and the budget is kept.

use crate::server::plan;
use analyze::sweep::{Load, Planner, RateSearch, SweepStep, Trial};
use analyze::zones;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::scenario::SweepPlan;
use record::{Arrival, Criteria, Figure, Origin, Outcomes, Pace, Point, Sweep, names};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time from the end of a trial to the start of the next: connecting, writing.
const BETWEEN_S: f64 = 0.06;

/// Workers that take requests in order, for `time` each. Some requests take `stall` longer, and the whole machine
/// pauses now and then. Times in seconds.
#[derive(Debug, Clone, Copy)]
struct Law {
    workers: usize,
    time: f64,
    stall: Option<(u64, f64)>,
    /// Mean time between pauses of the machine, and their length.
    pauses: Option<(f64, f64)>,
}

impl Law {
    fn pool(workers: usize, time: f64) -> Law {
        Law { workers, time, stall: None, pauses: None }
    }

    fn stalling(time: f64, every: u64, stall: f64) -> Law {
        Law { stall: Some((every, stall)), ..Law::pool(1, time) }
    }

    fn capacity(&self) -> f64 {
        let mean = self.time + self.stall.map_or(0.0, |(every, stall)| stall / every as f64);
        self.workers as f64 / mean
    }

    /// A point of an open loop with Poisson arrivals.
    fn point(&self, rate: f64, (warmup, window): (f64, f64), random: &mut ChaCha8Rng) -> Point {
        let end = warmup + window;
        let mut exponential = |mean: f64| -(1.0 - random.random_range(0.0..1.0f64)).ln() * mean;
        let mut free: BinaryHeap<Reverse<u64>> = (0..self.workers).map(|_| Reverse(0)).collect();
        let mut pause_at = self.pauses.map_or(f64::INFINITY, |(mean, _)| exponential(mean));
        let (mut at, mut count, mut done) = (0.0, 0u64, Vec::new());
        loop {
            at += exponential(1.0 / rate);
            if at >= end {
                break;
            }
            let begin = at.max(free.pop().expect("a worker").0 as f64 / 1e9);
            count += 1;
            let mut ends = begin + self.time;
            if let Some((every, stall)) = self.stall
                && count.is_multiple_of(every)
            {
                ends += stall;
            }
            while let Some((mean, length)) = self.pauses
                && ends > pause_at
            {
                ends += length;
                pause_at += length + exponential(mean);
            }
            free.push(Reverse((ends * 1e9) as u64));
            done.push((at, ends));
        }
        let sent = done.iter().filter(|(at, _)| *at >= warmup).count() as u64;
        let mut answers: Vec<(f64, f64)> = done.iter().filter(|(_, ends)| *ends >= warmup).copied().collect();
        answers.sort_by(|a, b| a.1.total_cmp(&b.1));
        let answered = answers.iter().filter(|(_, ends)| *ends < end).count() as u64;
        let (mut last, mut longest) = (warmup, 0.0f64);
        for (at, ends) in &answers {
            longest = longest.max(ends.min(end) - last.max(*at).min(end));
            last = *ends;
        }
        let mut times: Vec<f64> = answers.iter().map(|(at, ends)| ends - at).collect();
        times.sort_by(f64::total_cmp);
        let quantile = |share: f64| times.get((times.len() as f64 * share) as usize).or(times.last());
        let pace = Pace::Open { rate_per_sec: rate, arrival: Arrival::Poisson };
        let mut point = Point {
            duration_ns: (window * 1e9) as u64,
            outcomes: Outcomes { sent, ok: answers.len() as u64, ..Outcomes::default() },
            ..Point::new(Sweep::Rate, 0, 64, pace)
        };
        let good = answered as f64 / window;
        let us = |value: Option<&f64>| value.copied().unwrap_or(0.0) * 1e6;
        let mean_us = times.iter().sum::<f64>() / times.len().max(1) as f64 * 1e6;
        for (name, value) in [
            (names::THROUGHPUT, good),
            (names::GOODPUT, good),
            (names::RESPONSE_MEAN, mean_us),
            (names::RESPONSE_P50, us(quantile(0.5))),
            (names::RESPONSE_P90, us(quantile(0.9))),
            (names::RESPONSE_P99, us(quantile(0.99))),
            (names::RESPONSE_MAX, us(times.last())),
            (names::STALL_MAX, longest * 1e6),
        ] {
            point.figures.set(name, Figure::new(value, "1", sent, Origin::Timed));
        }
        point
    }

    /// The lowest rate at which a window of 20 s fails.
    fn fails_from(&self) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut below, mut above) = (0.3 * self.capacity(), 1.5 * self.capacity());
        for _ in 0..9 {
            let middle = f64::sqrt(below * above);
            let fails = zones::fails(&self.point(middle, (0.2, 20.0), &mut random), &Criteria::default());
            *(if fails { &mut above } else { &mut below }) = middle;
        }
        (below * above).sqrt()
    }
}

/// Number of windows, of 200 with this length, that are behind. Requests begin 50 ms earlier and take 30 ms each.
fn behind(rate: f64, workers: usize, window_s: f64) -> usize {
    let (law, mut random) = (Law::pool(workers, 0.03), ChaCha8Rng::seed_from_u64(7));
    let is_behind = |point: Point| {
        let crossed = zones::crossed(&point, &Criteria::default()).unwrap_or_default();
        crossed.iter().any(|why| why.contains("of the offered load was answered in time"))
    };
    (0..200).filter(|_| is_behind(law.point(rate, (0.05, window_s), &mut random))).count()
}

#[test]
fn requests_in_flight_at_the_end_of_a_short_window_are_no_backlog() {
    for (rate, window_s) in [(50.0, 0.25), (200.0, 0.25), (200.0, 1.0), (2000.0, 0.25), (20_000.0, 0.1)] {
        let found = behind(rate, 10_000, window_s);
        assert!(found <= 2, "{found} of 200 windows of {window_s} s at {rate}/s");
    }
    // Ten workers serve 333/s.
    for (rate, window_s, least) in [(400.0, 1.0, 150), (500.0, 0.25, 100), (500.0, 1.0, 198), (360.0, 5.0, 150)] {
        let found = behind(rate, 10, window_s);
        assert!(found >= least, "{found} of 200 windows of {window_s} s at {rate}/s");
    }
}

/// A whole search with a hint of `off` times the capacity: its points, its trials, and its duration.
fn searched(law: &Law, plan: &SweepPlan, off: f64, seed: u64) -> (Vec<Point>, Vec<Trial>, u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut points, mut asked, mut elapsed_ns) = (Vec::<Point>::new(), Vec::new(), 0u64);
    let mut search = RateSearch::new(plan, Some(off * law.capacity()), seed);
    for _ in 0..1000 {
        match search.next(&points, elapsed_ns) {
            SweepStep::Measure(trial) => {
                let Load::Rate(rate) = trial.load else { panic!("{trial:?}") };
                let times = (trial.warmup_ns as f64 / 1e9, trial.duration_ns as f64 / 1e9);
                let point = law.point(rate, times, &mut random);
                points.push(Point { repeat: trial.repeat, index: points.len() as u32, ..point });
                asked.push(trial);
                elapsed_ns += trial.warmup_ns + trial.duration_ns + (BETWEEN_S * 1e9) as u64;
            }
            SweepStep::Yardstick => elapsed_ns += 400_000_000,
            SweepStep::Done { .. } => return (points, asked, elapsed_ns),
            SweepStep::Serve { .. } => panic!("there is one server"),
        }
    }
    panic!("it does not end");
}

/// Maximum consecutive trials with the same rate and length.
fn in_a_row(asked: &[Trial]) -> usize {
    let same = asked.chunk_by(|a, b| a.load == b.load && a.duration_ns == b.duration_ns);
    same.map(<[Trial]>::len).max().unwrap_or(0)
}

/// A server with the smallest and the largest open-loop budget of `find --budget 30s`.
const BUDGET_S: u64 = 15;

#[test]
fn the_failing_rate_is_found_within_a_find_of_half_a_minute() {
    let paused = |law: Law| Law { pauses: Some((0.7, 0.02)), ..law };
    let laws = [
        ("pool", Law::pool(8, 20e-3)),
        ("thread", Law::pool(1, 0.7e-3)),
        ("slow", Law::pool(1, 1.0 / 467.0)),
        ("node", Law::stalling(0.01e-3, 200, 60e-3)),
        ("garbage", Law::stalling(0.2e-3, 500, 40e-3)),
        ("thread on a machine that pauses", paused(Law::pool(1, 0.7e-3))),
        ("pool on a machine that pauses", paused(Law::pool(8, 20e-3))),
    ];
    let seeds = if crate::long_run() { 40 } else { 10 };
    let mut wrong = Vec::new();
    for (name, law) in laws {
        let (truth, mut covered, mut widths, mut missed) = (law.fails_from(), 0, Vec::new(), Vec::new());
        for seed in 0..seeds {
            let (points, _, _) = searched(&law, &plan(BUDGET_S), [0.8, 1.0, 1.1][seed as usize % 3], seed);
            let found = zones::find(&points, &Criteria::default()).rate.expect("rates").failure_point;
            let (low, high) = (found.low.unwrap_or(0.0), found.high.unwrap_or(f64::INFINITY));
            widths.push(high / low);
            // The criterion itself has a tolerance of 2 %.
            if low * 0.98 <= truth && truth <= high * 1.02 {
                covered += 1;
            } else {
                missed.push(format!("{low:.0} to {high:.0}"));
            }
        }
        let width = statistics::median(&widths).expect("widths");
        println!("{name}: {truth:.0} covered {covered} of {seeds}, high/low {width:.3}; missed: {missed:?}");
        if 10 * covered < 9 * seeds || width > 1.5 {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if crate::long_run() { 256 } else { 24 }))]

    #[test]
    fn no_trial_is_repeated_needlessly_and_the_budget_is_kept(
        workers in 1usize..12,
        time_ms in 0.3f64..30.0,
        stall in prop::option::of((50u64..400, 0.02f64..0.4)),
        pauses in prop::option::of((0.3f64..3.0, 0.005f64..0.2)),
        off in 0.2f64..3.0,
        budget_s in 6u64..40,
        seed in any::<u64>(),
    ) {
        let law = Law { workers, time: time_ms / 1e3, stall, pauses };
        let (points, asked, elapsed_ns) = searched(&law, &plan(budget_s), off, seed);
        prop_assert!(in_a_row(&asked) <= 2, "{asked:?}");
        let over_ns = elapsed_ns.saturating_sub(budget_s * 1_000_000_000);
        prop_assert!(over_ns <= 500_000_000, "{over_ns} ns over the budget: {asked:?}");
        // Every trial that was too short to judge was lengthened, as far as the budget permits.
        let last = points.last().expect("a trial");
        prop_assert!(last.duration_ns > 0);
    }
}
