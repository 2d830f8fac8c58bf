//! Estimates the rate at which a resource is full from its use at lower rates: the zero of Banga and Mogul's line of
//! idle time against the request rate ("Scalable kernel performance for Internet servers under realistic loads",
//! 1998, section 6). They warn that the cost of a request depends on the rate. So the interval also covers other
//! models that fit the same readings (a fixed cost for each request; a cost that is a power of the rate), and widens
//! with each doubling above the highest measured rate.

use record::units::format_si;
use record::watch::Range;
use statistics::regression::{FittedLine, line};
use statistics::student;
use statistics::{mean, quantile};
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
fn zero(line: &FittedLine, points: &[(f64, f64)]) -> Option<(f64, (f64, Option<f64>))> {
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
