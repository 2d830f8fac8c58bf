//! Estimates the rate at which a resource is full from its use at lower rates: the zero of Banga and Mogul's line of
//! idle time against the request rate ("Scalable kernel performance for Internet servers under realistic loads",
//! 1998, section 6). They warn that the cost of a request depends on the rate. So the interval also covers other
//! models that fit the same readings (a fixed cost for each request; a cost that is a power of the rate), and widens
//! with each doubling above the highest measured rate.

use crate::predict::regression::{Line, line};
use crate::statistics::student;
use crate::statistics::{mean, quantile};
use record::units::format_si;
use record::watch::Range;
use std::ops::RangeInclusive;

const CONFIDENCE: f64 = 0.95;
/// Fewer readings give no line.
pub const FEWEST: usize = 10;
/// Minimum ratio of the ninth decile of the rates to the first.
const LEAST_VARIATION: f64 = 1.2;
/// Relative widening of the interval at the highest measured rate, and for each doubling above it.
const PER_DOUBLING: f64 = 0.08;
/// Upper ends above this multiple of the highest measured rate are left open.
const FARTHEST: f64 = 10.0;
const FULL: f64 = 0.95;
/// If a resource is full at rates that differ by this factor, its use does not depend on the rate.
const FULL_APART: f64 = 1.5;
/// Number of last readings that count as "now".
pub const LAST: usize = 5;
const EXPONENTS: RangeInclusive<f64> = 0.5..=1.5;

/// The use of a resource between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceUse {
    /// Requests per second.
    pub rate: f64,
    /// Use by all programs.
    pub used: f64,
    /// Use by the server.
    pub own: f64,
}

/// The mean over the last readings.
pub fn now(uses: &[ResourceUse]) -> ResourceUse {
    let last = &uses[uses.len().saturating_sub(LAST)..];
    let of = |value: fn(&ResourceUse) -> f64| mean(last.iter().map(value)).unwrap_or(0.0);
    ResourceUse { rate: of(|at| at.rate), used: of(|at| at.used), own: of(|at| at.own) }
}

/// The rate at which all of `most` is in use.
///
/// # Errors
/// The reason why the rate is unknown, in words that follow the resource's name.
pub fn full_at(uses: &[ResourceUse], most: f64) -> Result<Range, String> {
    if uses.len() < FEWEST {
        return Err(format!("{} so far, at least {FEWEST} are needed", record::units::count(uses.len(), "reading")));
    }
    let now = now(uses);
    let rates = uses.iter().map(|at| at.rate);
    if now.used >= FULL * most {
        let full = uses.iter().filter(|at| at.used >= FULL * most).map(|at| at.rate);
        let decile = |at| quantile(full.clone(), at).unwrap_or(now.rate);
        let (low, high) = (decile(0.1), decile(0.9));
        return match now.own {
            own if own >= most / 2.0 && high >= FULL_APART * low => Err(format!(
                "it is as busy at {}/s as at {}/s: the server polls, or its requests differ",
                format_si(low),
                format_si(high)
            )),
            own if own >= most / 2.0 => Ok(Range { low: now.rate * FULL, high: Some(now.rate / FULL) }),
            _ => Err("other work fills it, and may or may not yield to the server".into()),
        };
    }
    let decile = |at| quantile(rates.clone(), at).unwrap_or(0.0);
    let (low, high) = (decile(0.1), decile(0.9));
    if high <= 0.0 {
        return Err("there are no requests".into());
    }
    if high < LEAST_VARIATION * low {
        return Err(format!(
            "the rate varied by only {:.0} %; {:.0} % are needed ({} to {}/s)",
            (high / low - 1.0) * 100.0,
            (LEAST_VARIATION - 1.0) * 100.0,
            format_si(low),
            format_si(high)
        ));
    }
    let idle: Vec<(f64, f64)> = uses.iter().map(|at| (at.rate, most - at.used)).collect();
    let fitted = line(&idle, CONFIDENCE);
    let (x, reach) =
        fitted.as_ref().and_then(|line| zero(line, &idle)).ok_or("its usage does not clearly grow with the rate")?;
    let others = mean(uses.iter().map(|at| at.used - at.own)).unwrap_or(0.0);
    let left = most - others;
    let also: Vec<f64> = [ratio(uses, left), power(uses, left)].into_iter().flatten().collect();
    let seen = decile(0.95);
    let doublings = |to: f64| 1.0 + PER_DOUBLING * (1.0 + (to / seen).max(1.0).log2());
    let low = also.iter().fold(x - reach.0, |low, x| low.min(*x));
    let high = reach.1.map(|reach| also.iter().fold(x + reach, |high, x| high.max(*x)));
    let low = low / doublings(low);
    let high = high.filter(|high| *high <= FARTHEST * seen).map(|high| high * doublings(high));
    // The limit is above a rate that was served.
    let low = low.max(seen.min(x));
    Ok(Range { low, high: high.map(|high| high.max(low)) })
}

/// The rate at which the line of idle time reaches zero, and the distance of its interval's ends (the upper one may
/// be open). Autocorrelated residuals widen it like the interval of a mean.
fn zero(line: &Line, points: &[(f64, f64)]) -> Option<(f64, (f64, Option<f64>))> {
    let x = line.x_intercept?;
    let (low, high) = x.interval()?;
    let residuals: Vec<f64> = points.iter().map(|(x, y)| y - line.intercept.value - line.slope.value * x).collect();
    let widening = widening(&residuals);
    let (flattest, steepest) = line.slope.interval()?;
    let share = widening * (steepest - flattest) / 2.0 / line.slope.value.abs();
    // From a share of one on, the slope may be zero.
    if line.slope.value >= 0.0 || share >= 1.0 || x.value <= 0.0 {
        return None;
    }
    let up = (share < 0.5).then_some((high - x.value) * widening);
    Some((x.value, ((x.value - low) * widening, up)))
}

/// The square root of the ratio of readings to independent readings with the same information.
fn widening(residuals: &[f64]) -> f64 {
    let all: f64 = residuals.iter().map(|one| one * one).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    // The correlation is underestimated by about 1/n for each parameter of the line and for the mean.
    let n = residuals.len() as f64;
    let correlation = if all > 0.0 { (neighbours / all + 3.0 / n).clamp(0.0, 0.9) } else { 0.0 };
    ((1.0 + correlation) / (1.0 - correlation)).sqrt()
}

/// The capacity if the server's use is a fixed cost for each request.
fn ratio(uses: &[ResourceUse], left: f64) -> Option<f64> {
    let (own, rate) = uses.iter().fold((0.0, 0.0), |(own, rate), at| (own + at.own, rate + at.rate));
    Some(left * rate / own).filter(|x| x.is_finite() && *x > 0.0)
}

/// The capacity if the server's use is a power of the rate, and clearly differs from the fixed cost.
fn power(uses: &[ResourceUse], left: f64) -> Option<f64> {
    let logs: Vec<(f64, f64)> =
        uses.iter().filter(|at| at.rate > 0.0 && at.own > 0.0).map(|at| (at.rate.ln(), at.own.ln())).collect();
    let line = line(&logs, CONFIDENCE).filter(|_| logs.len() >= FEWEST && left > 0.0)?;
    student(CONFIDENCE, logs.len() as f64 - 2.0)?;
    let (low, high) = line.slope.interval().filter(|(low, high)| !(low..=high).contains(&&1.0))?;
    let exponent = ((low + high) / 2.0).clamp(*EXPONENTS.start(), *EXPONENTS.end());
    let mean_of = |value: fn(&(f64, f64)) -> f64| logs.iter().map(value).sum::<f64>() / logs.len() as f64;
    let scale = mean_of(|(_, y)| *y) - exponent * mean_of(|(x, _)| *x);
    Some(((left.ln() - scale) / exponent).exp()).filter(|x| x.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::random;
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
}
