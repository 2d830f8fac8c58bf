//! The rate at which a resource is full, from its use at lower rates.

use analyze::statistics::random;
use analyze::watch::headroom::full::{ResourceUse, full_at};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// CPUs used at a rate, which is a share of 1,000/s.
type Used = fn(f64) -> f64;

const SERVERS: [(&str, Used); 6] = [
    ("linear", |at| at),
    ("with an idle cost", |at| 0.04 + 0.96 * at),
    ("batching", |at| at.powf(0.9)),
    ("waking up", |at| at * (0.8 + 0.2 * (1.0 - at)) / 0.8),
    ("contended", |at| at * (0.85 + 0.15 * at)),
    ("contended more", |at| at.powf(1.15)),
];

/// The share of 1,000/s at which the server fills the rest of its CPU.
fn capacity(used: Used, left: f64) -> f64 {
    let (mut low, mut high) = (0.0, 4.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if used(middle) < left { low = middle } else { high = middle }
    }
    low * 1000.0
}

/// A minute of readings, one per second: the rate swings slowly with noise, up to `peak` of the capacity. Other
/// work uses the CPU, too: on average `others`, more or less for seconds at a time.
fn readings(used: Used, peak: f64, others: f64, random: &mut ChaCha8Rng) -> Vec<ResourceUse> {
    let (mut drift, phase, swing) = (0.0, random.random_range(0.0..6.0), random.random_range(0.25..0.8));
    let period: f64 = random.random_range(15.0..90.0);
    (0..60)
        .map(|second| {
            let wave = (f64::from(second) * std::f64::consts::TAU / period + phase).sin();
            let at = peak * (1.0 - swing / 2.0 + swing / 2.0 * wave) * random.random_range(0.93..1.0);
            let own = used(at) * random.random_range(0.95..1.05);
            drift = 0.8 * drift + others * random.random_range(-0.15..0.15);
            // The kernel counts idle time in ticks of 10 ms.
            let used = ((own + others + drift) * 100.0 + random.random_range(-0.5..0.5)).round() / 100.0;
            ResourceUse { rate: at * 1000.0, used: used.clamp(0.0, 1.0), own }
        })
        .collect()
}

#[test]
fn the_interval_contains_the_capacity_of_most_servers_of_every_kind() {
    let mut random = random(3);
    let mut misses = Vec::new();
    for (name, used) in SERVERS {
        for others in [0.0, 0.1, 0.2] {
            let truth = capacity(used, 1.0 - others);
            let (mut held, mut said, mut width) = (0, 0, 0.0);
            for _ in 0..200 {
                let peak = random.random_range(0.15..0.6) * truth / 1000.0;
                let Ok(range) = full_at(&readings(used, peak, others, &mut random), 1.0) else { continue };
                said += 1;
                let high = range.high.unwrap_or(f64::INFINITY);
                held += usize::from(range.low <= truth && truth <= high);
                width += (high.min(4.0 * range.low) / range.low).ln();
            }
            assert!(said > 100, "{name}, others {others}: an estimate in {said} of 200");
            let width = (width / said as f64).exp();
            if (held as f64) < 0.9 * said as f64 || width > 3.0 {
                misses.push(format!("{name}, others {others}: held {held} of {said}, {width:.2} wide"));
            }
        }
    }
    assert!(misses.is_empty(), "{misses:#?}");
}

#[test]
fn a_rate_that_does_not_vary_and_usage_that_does_not_follow_it_are_refused() {
    let mut random = random(4);
    let why = |points: Vec<(f64, f64)>| {
        let uses: Vec<_> = points.into_iter().map(|(rate, used)| ResourceUse { rate, used, own: used }).collect();
        full_at(&uses, 1.0).err().unwrap_or_default()
    };
    let mut refused = 0;
    for _ in 0..200 {
        let usual = random.random_range(10.0..10_000.0);
        let rates: Vec<f64> = (0..60).map(|_| usual * random.random_range(0.95..1.05)).collect();
        let said = why(rates.into_iter().map(|rate| (rate, 3e-5 * rate)).collect());
        assert!(said.starts_with("the rate varied by") && said.contains("20 % are needed ("), "{said}");
        let mut any = || (random.random_range(100.0..1000.0), random.random_range(0.1..0.3));
        refused += usize::from(why((0..60).map(|_| any()).collect()).contains("does not clearly grow"));
    }
    assert!(refused >= 190, "{refused} of 200");
}

#[test]
fn a_full_resource_has_no_headroom_and_other_work_reduces_the_capacity() {
    let at = |rate: f64, used: f64, own: f64| ResourceUse { rate, used, own };
    let full: Vec<ResourceUse> = (0..20).map(|n| at(f64::from(n % 3) + 500.0, 0.99, 0.9)).collect();
    let range = full_at(&full, 1.0).unwrap();
    assert!(range.low < 501.0 && range.high.unwrap() > 500.0 && range.high.unwrap() < 540.0, "{range:?}");
    // A polling server uses as much CPU at a third of the rate.
    let polls: Vec<ResourceUse> = (0..20).map(|n| at(if n < 10 { 300.0 } else { 900.0 }, 1.0, 0.98)).collect();
    let why = full_at(&polls, 1.0).unwrap_err();
    assert!(why.contains("as busy at 300/s as at 900/s") && why.contains("polls"), "{why}");
    let other: Vec<ResourceUse> = (0..20).map(|n| at(f64::from(n) + 100.0, 1.0, 0.2)).collect();
    assert!(full_at(&other, 1.0).unwrap_err().contains("other work"));
    assert!(full_at(&full[..5], 1.0).unwrap_err().contains("5 readings"));
    let silent: Vec<ResourceUse> = (0..20).map(|_| at(0.0, 0.1, 0.1)).collect();
    assert_eq!(full_at(&silent, 1.0).unwrap_err(), "there are no requests");
}
