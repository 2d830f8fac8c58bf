//! Checks that intervals match the actual spread between finds, on servers like those of `testbed/truth`.

use crate::server::{Bench, Server, plan};
use analyze::zones::{self, PointFinding};
use rand::{RngExt, SeedableRng};

/// Estimates and intervals of many finds, relative to the truth.
#[derive(Default)]
struct Finds {
    estimates: Vec<f64>,
    /// Standard deviations implied by the 95 % intervals.
    claimed: Vec<f64>,
    covered: usize,
    missed: usize,
}

impl Finds {
    fn add(&mut self, found: &PointFinding, truth: f64) {
        // A find without an estimate covers nothing.
        let (Some(estimate), Some(low)) = (found.estimate, found.low) else { return self.missed += 1 };
        let high = found.high.unwrap_or(2.0 * estimate);
        self.estimates.push(estimate / truth);
        self.claimed.push((high - low) / truth / 3.92);
        self.covered += usize::from(low <= truth && truth <= high);
    }

    /// Asserts that at least 85 of 100 intervals contain the truth, and that they are neither far too narrow nor far
    /// too wide.
    fn judge(&self, name: &str, ratios: std::ops::Range<f64>) {
        let n = self.estimates.len() as f64;
        let mean = self.estimates.iter().sum::<f64>() / n;
        let spread = (self.estimates.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let claimed = (self.claimed.iter().map(|claim| claim * claim).sum::<f64>() / n).sqrt();
        let ratio = spread / claimed;
        println!(
            "{name}: covered {} of {n}, {} without an estimate, bias {:+.2} %, spread {:.2} %, spread/claimed \
             {ratio:.2}",
            self.covered,
            self.missed,
            100.0 * (mean - 1.0),
            100.0 * spread
        );
        assert!(self.covered as f64 >= 0.85 * (n + self.missed as f64), "{name}: {} of {n}", self.covered);
        assert!(ratios.contains(&ratio), "{name}: {ratio}");
    }
}

fn seeds() -> u64 {
    if crate::long_run() { 100 } else { 14 }
}

#[test]
fn the_intervals_of_knees_match_the_spread_between_finds() {
    // A server that hardly varies has the minimum interval, for errors that repeats do not show.
    let kinds = [
        ("workers", Some(0.002), 0.0, 80, 0.02..1.3),
        ("workers, noisy", Some(0.02), 0.0, 80, 0.4..1.6),
        ("growing", Some(0.002), 0.004, 80, 0.1..1.3),
        // With few loads, the form of the bend between them is least certain if the cost grows.
        ("growing fast, in half a minute", Some(0.002), 0.01, 30, 0.1..1.3),
        ("exponential, in half a minute", None, 0.0, 30, 0.3..2.0),
    ];
    for (name, noise, growth, budget_s, ratios) in kinds {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let mut finds = Finds::default();
        for seed in 0..seeds() {
            let (workers, demand) = (f64::from(random.random_range(6..=32)), random.random_range(8e-3..16e-3));
            let is_exponential = noise.is_none();
            let noise = noise.unwrap_or(0.002);
            let server =
                Server { noise, growth, drift: noise, is_exponential, path: 2e-4, ..Server::pool(workers, demand) };
            let mut bench = Bench::new(server.clone(), seed);
            let plan = plan(budget_s);
            bench.sweep_connections(&plan, seed);
            let found = zones::find(&bench.points, &plan.criteria).connections.expect("a sweep").yield_point;
            finds.add(&found, server.true_yield());
        }
        finds.judge(name, ratios);
    }
}

#[test]
fn the_intervals_of_a_saturated_threads_rate_match_the_spread_between_finds() {
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    let mut finds = Finds::default();
    for seed in 0..seeds() {
        let demand = random.random_range(0.3e-3..1.2e-3);
        let server = Server { noise: 0.003, drift: 0.003, demand, is_poisson: true, ..Server::default() };
        let mut bench = Bench::new(server.clone(), seed);
        let plan = plan(80);
        bench.search_rate(&plan, Some(server.capacity()), seed);
        let found = zones::find(&bench.points, &plan.criteria).rate.expect("a search").yield_point;
        finds.add(&found, plan.criteria.saturation_ratio * server.capacity());
    }
    finds.judge("thread", 0.05..1.3);
}
