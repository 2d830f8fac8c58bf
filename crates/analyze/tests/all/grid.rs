//! The search over rate uses one grid, so that repeats can be pooled, and its intervals still contain the truth. The
//! servers are simulated request by request.

use crate::server::{Bench, Server, plan};
use analyze::sweep::{Load, Planner, RateSearch, SweepStep};
use analyze::zones;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::scenario::SweepPlan;
use record::{Figure, Origin, names};
use statistics::median;

/// Maximum rates of a search, however many blocks it has: those of a block and those of the way there, without those
/// that the bounds move over.
const MOST_RATES: f64 = 34.0;

/// The rates and repeats that a search requests.
fn history(bench: &mut Bench, plan: &SweepPlan, hint: Option<f64>, seed: u64) -> Vec<(f64, u32)> {
    let mut search = RateSearch::new(plan, hint, seed);
    let mut asked = Vec::new();
    for _ in 0..5000 {
        match search.next(&bench.points, bench.elapsed_ns) {
            SweepStep::Measure(trial) => {
                let Load::Rate(rate) = trial.load else { panic!("{trial:?}") };
                asked.push((rate, trial.repeat));
                bench.measure(trial);
            }
            SweepStep::Yardstick => bench.yardstick(0),
            SweepStep::Done { .. } => return asked,
            SweepStep::Serve { .. } => panic!("there is one server"),
        }
    }
    panic!("it does not end");
}

fn distinct(rates: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    rates
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if crate::long_run() { 256 } else { 40 }))]

    #[test]
    fn repeats_use_earlier_rates_again(
        noise in 0.0..0.05f64,
        drift in 0.0..0.25f64,
        disturbed in 0.0..0.3f64,
        hint in prop::option::of(0.2..5.0f64),
        repeats in 2..20u32,
        bracket in prop::sample::select(vec![0.02, 0.05, 0.2]),
        seed in 0..1000u64,
    ) {
        let server = Server { noise, drift, disturbed, ..Server::default() };
        let mut plan = SweepPlan { repeats, ..plan(3600) };
        plan.criteria.bracket_ratio = bracket;
        let hint = hint.map(|factor| factor * server.capacity());
        let asked = history(&mut Bench::new(server, seed), &plan, hint, seed);
        let rates = distinct(asked.iter().map(|(rate, _)| *rate));
        // No two rates are closer than a step of the grid, and all are on the grid.
        for pair in rates.windows(2) {
            prop_assert!(pair[1] / pair[0] > 1.0 + 0.4 * bracket.min(0.05), "{pair:?} of {rates:?}");
        }
        let in_octave = if bracket < 0.04 { 64.0 } else { 16.0 };
        let moved_over = ((1.0 + drift) / (1.0 - drift)).log2() * in_octave;
        let words = format!("{} rates in {} trials: {rates:?}", rates.len(), asked.len());
        // A disturbed trial may lead the search astray for a rate or two.
        let led_astray = 20.0 * disturbed;
        prop_assert!(rates.len() as f64 <= MOST_RATES + moved_over + led_astray, "{words}");
        let later: Vec<usize> = (0..asked.len()).filter(|at| asked[*at].1 >= 2).collect();
        let is_new = |at: &&usize| !asked[..**at].iter().any(|(rate, _)| *rate == asked[**at].0);
        let new = later.iter().filter(is_new).count();
        prop_assert!(10 * new <= 3 * later.len() + 50, "{new} of {} later trials have rates of their own", later.len());
    }
}

/// A server that serves one request at a time, for `time` each: the bucket (burst 1) and the thread of `testbed/truth`.
/// Each request of a trial is simulated, with Poisson arrivals.
struct Law {
    time: f64,
}

impl Law {
    /// A trial: requests answered in the window, requests sent in it, and the 99th percentile of the response time in
    /// seconds.
    fn trial(&self, rate: f64, (warmup, window): (f64, f64), random: &mut ChaCha8Rng) -> (u64, u64, f64) {
        let (mut at, mut free, mut times) = (0.0f64, 0.0f64, Vec::new());
        let (mut answered, mut sent) = (0, 0);
        loop {
            at -= (1.0 - random.random_range(0.0..1.0f64)).ln() / rate;
            if at >= warmup + window {
                break;
            }
            free = free.max(at) + self.time;
            sent += u64::from(at >= warmup);
            answered += u64::from(free >= warmup && free < warmup + window);
            if free >= warmup {
                times.push(free - at);
            }
        }
        times.sort_by(f64::total_cmp);
        let p99 = times.get((times.len().max(1) - 1) * 99 / 100).copied().unwrap_or(0.0);
        (answered, sent, p99)
    }

    fn fails(&self, rate: f64, random: &mut ChaCha8Rng) -> bool {
        let (answered, sent, p99) = self.trial(rate, (0.2, 1.0), random);
        (answered as f64) < 0.98 * (sent as f64).min(rate) || p99 > 0.1
    }

    /// The rate at which half of the trials fail, as `testbed/truth` finds it.
    fn truth(&self) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut below, mut above) = (0.5 / self.time, 1.5 / self.time);
        for _ in 0..12 {
            let middle = f64::sqrt(below * above);
            let failed = (0..400).filter(|_| self.fails(middle, &mut random)).count();
            *(if failed < 200 { &mut below } else { &mut above }) = middle;
        }
        (below * above).sqrt()
    }

    /// A whole search: the failure point and the rows of its table.
    fn searched(&self, plan: &SweepPlan, seed: u64) -> (zones::PointFinding, usize, usize) {
        let server = Server { demand: self.time, path: 0.0, ..Server::default() };
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut bench = Bench::new(server, seed);
        let hint = random.random_range(0.9..1.1) / self.time;
        let mut search = RateSearch::new(plan, Some(hint), seed);
        loop {
            match search.next(&bench.points, bench.elapsed_ns) {
                SweepStep::Measure(trial) => {
                    let Load::Rate(rate) = trial.load else { panic!("{trial:?}") };
                    bench.measure(trial);
                    let times = (trial.warmup_ns as f64 / 1e9, trial.duration_ns as f64 / 1e9);
                    let (answered, sent, p99) = self.trial(rate, times, &mut random);
                    let point = bench.points.last_mut().unwrap();
                    (point.outcomes.sent, point.outcomes.ok) = (sent, answered);
                    let good = answered as f64 / times.1;
                    for (name, value, unit) in [
                        (names::THROUGHPUT, good, "1/s"),
                        (names::GOODPUT, good, "1/s"),
                        (names::RESPONSE_P99, p99 * 1e6, "us"),
                    ] {
                        point.figures.set(name, Figure::new(value, unit, sent, Origin::Counted));
                    }
                }
                SweepStep::Yardstick => {}
                SweepStep::Done { .. } => break,
                SweepStep::Serve { .. } => panic!("there is one server"),
            }
        }
        let found = zones::find(&bench.points, &plan.criteria).rate.unwrap();
        (found.failure_point, found.levels.len(), bench.points.len())
    }
}

#[test]
fn the_failing_rate_of_a_simulated_bucket_and_thread_lies_within_its_interval() {
    let seeds = if crate::long_run() { 100 } else { 10 };
    for (name, law) in [("bucket", Law { time: 1.0 / 2000.0 }), ("thread", Law { time: 700e-6 })] {
        let (truth, mut covered, mut widths, mut rows, mut points) = (law.truth(), 0, Vec::new(), Vec::new(), 0);
        for seed in 0..seeds {
            let (found, levels, measured) = law.searched(&plan(120), seed);
            let (Some(low), Some(high)) = (found.low, found.high) else { panic!("{name}, seed {seed}: {found:?}") };
            covered += usize::from(low <= truth && truth <= high);
            widths.push(high / low);
            rows.push(levels as f64);
            points += measured;
        }
        println!(
            "{name}: truth {truth:.0}, covered {covered} of {seeds}, high/low {:.3}, {} rows of {} points",
            median(&widths).unwrap(),
            median(&rows).unwrap(),
            points / seeds as usize
        );
        assert!(10 * covered >= 9 * seeds as usize, "{name}: {covered} of {seeds}");
    }
}
