//! Stalls of the request rate, and their period if they come regularly, as in Figure 11 of Banga and Mogul (1998): a
//! proxy that stops every 30 seconds, when the system writes its buffers to disk.
//!
//! A **stall** is a run of intervals between readings with less than a twentieth of the usual rate, between intervals
//! with more. The usual interval must have at least 20 requests, because with fewer, silence is random.
//!
//! **Period**: for a period P the starts of n stalls are angles on a circle; the length R of their mean vector is 1
//! if all have the same phase. By Rayleigh's test n R^2 exceeds z by chance with probability exp(-z). That is far too
//! much for few stalls in nearly one phase: since 1 - cos a >= 2 (a / pi)^2, the angles then lie in a ball of radius
//! pi sqrt(n (1 - R) / 2), whose share of all angles bounds the probability. The smaller of the two, times the number
//! of periods tried (Bonferroni), must stay below 0.01. Starts are known only to an interval between readings, so n
//! of them coincide with at least probability (interval / period)^(n - 1).

use super::recording::Recording;
use crate::shown::in_brackets;
use record::Estimate;
use record::units::{count, format_nanos, format_si};
use serde::Serialize;
use statistics::regression::line;

const CONFIDENCE: f64 = 0.95;
const SILENT_RATIO: f64 = 0.05;
const FEWEST_REQUESTS: f64 = 20.0;
const FEWEST_INTERVALS: usize = 10;
const FEWEST_STALLS: usize = 4;
const SIGNIFICANCE: f64 = 0.01;
const MOST_STALLS: usize = 2000;
const TRIES: usize = 20_000;

/// Period without requests or answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Stall {
    /// Start of the stall, seconds since the watch began, accurate to an interval's length.
    pub at_s: f64,
    /// Length of the stall, seconds.
    pub length_s: f64,
}

/// Stalls that come regularly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Period {
    /// Seconds from the start of one stall to the next, with its interval if degrees of freedom are left.
    pub period_s: Estimate,
    /// Length of the mean vector of the starts' phases, 0 to 1.
    pub concentration: f64,
    /// Probability that a pattern this regular occurs by chance, corrected for the tried periods.
    pub p_value: f64,
}

/// The time between two readings.
struct RequestInterval {
    at_s: f64,
    seconds: f64,
    requests: f64,
}

impl RequestInterval {
    fn per_sec(&self) -> f64 {
        self.requests / self.seconds
    }
}

/// Request rate by interval, with the stalls and their period.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Stalls {
    /// Start of each interval (seconds) and requests per second in it.
    #[serde(skip)]
    pub rates: Vec<(f64, f64)>,
    /// Seconds at the start of the recording with less than a twentieth of the usual rate: no requests arrived or none
    /// were answered.
    pub silent_before_s: f64,
    /// Seconds at the end of the recording with less than a twentieth of the usual rate: no requests arrived or none
    /// were answered.
    pub silent_after_s: f64,
    /// Median length of an interval, seconds.
    pub interval_s: f64,
    /// Median rate over the intervals with requests.
    pub usual_per_sec: f64,
    /// Stalls, in order; at most 2,000.
    pub stalls: Vec<Stall>,
    /// Stalled share of the time from the first request to the last.
    pub stalled_ratio: f64,
    /// Period of the stalls; absent if they are irregular.
    pub period: Option<Period>,
}

/// Finds the stalls, or returns the reason why not.
pub fn find(recording: &Recording) -> Result<Stalls, String> {
    if !recording.has_requests {
        return Err("not measured: requests were not counted".into());
    }
    if recording.last.counted_ns.is_some() {
        return Err(
            "not measured: requests were counted in windows, and the time between them is unknown (watch with \
             --detail \
                    counts)"
                .into(),
        );
    }
    let mut intervals: Vec<RequestInterval> = Vec::new();
    for pair in recording.samples.windows(2) {
        let seconds = pair[1].seconds - pair[0].seconds;
        let requests = pair[1].requests.saturating_sub(pair[0].requests) as f64;
        if seconds > 0.0 {
            intervals.push(RequestInterval { at_s: pair[0].seconds, seconds, requests });
        }
    }
    let busy = intervals.iter().filter(|one| one.requests > 0.0).map(RequestInterval::per_sec);
    let Some(usual_per_sec) = statistics::median(busy) else {
        return Err("not measured: there was no request".into());
    };
    let is_silent = |one: &RequestInterval| one.per_sec() < SILENT_RATIO * usual_per_sec;
    // The ends are not stalls: it is not known whether requests came, and a load that begins or ends within an
    // interval leaves few requests in it.
    let (Some(first), Some(last)) =
        (intervals.iter().position(|one| !is_silent(one)), intervals.iter().rposition(|one| !is_silent(one)))
    else {
        return Err("not measured: there was no request".into());
    };
    let rates = intervals.iter().map(|one| (one.at_s, one.per_sec())).collect();
    // A sum of no numbers would be -0.
    let length_of = |intervals: &[RequestInterval]| intervals.iter().fold(0.0, |sum, one| sum + one.seconds);
    let (silent_before_s, silent_after_s) = (length_of(&intervals[..first]), length_of(&intervals[last + 1..]));
    let intervals = &intervals[first..=last];
    if intervals.len() < FEWEST_INTERVALS {
        return Err(format!(
            "not measured: {} intervals with load, at least {FEWEST_INTERVALS} are needed",
            intervals.len()
        ));
    }
    let lengths = intervals.iter().map(|one| one.seconds);
    let interval_s = statistics::median(lengths).unwrap_or(0.0);
    if usual_per_sec * interval_s < FEWEST_REQUESTS {
        return Err(format!(
            "not measured: {:.1} requests in a usual interval, {FEWEST_REQUESTS:.0} are needed to distinguish a stall \
             from chance: use a longer --interval",
            usual_per_sec * interval_s
        ));
    }
    let mut stalls: Vec<Stall> = Vec::new();
    let mut was_silent = false;
    for interval in intervals {
        let is_silent = is_silent(interval);
        if is_silent && was_silent {
            if let Some(stall) = stalls.last_mut() {
                stall.length_s += interval.seconds;
            }
        } else if is_silent {
            if stalls.len() == MOST_STALLS {
                break;
            }
            stalls.push(Stall { at_s: interval.at_s, length_s: interval.seconds });
        }
        was_silent = is_silent;
    }
    let span = intervals.last().map_or(0.0, |one| one.at_s + one.seconds) - intervals[0].at_s;
    Ok(Stalls {
        rates,
        silent_before_s,
        silent_after_s,
        interval_s,
        usual_per_sec,
        stalled_ratio: stalls.iter().map(|stall| stall.length_s).sum::<f64>() / span,
        period: period(&stalls, interval_s, span),
        stalls,
    })
}

fn concentration(begins: &[f64], period: f64) -> f64 {
    let (sin, cos) = begins.iter().fold((0.0, 0.0), |(sin, cos), begin| {
        let angle = std::f64::consts::TAU * begin / period;
        (sin + angle.sin(), cos + angle.cos())
    });
    (sin * sin + cos * cos).sqrt() / begins.len() as f64
}

fn period(stalls: &[Stall], interval_s: f64, span: f64) -> Option<Period> {
    let begins: Vec<f64> = stalls.iter().map(|stall| stall.at_s).collect();
    if begins.len() < FEWEST_STALLS {
        return None;
    }
    // Starts are read on a grid of intervals, so periods below three intervals are meaningless; beyond a third of the
    // time there are too few stalls. The step in frequency is a quarter of what the span can resolve.
    let (longest, shortest) = (span / 3.0, 3.0 * interval_s);
    if longest <= shortest {
        return None;
    }
    let (low, high) = (1.0 / longest, 1.0 / shortest);
    let tries = (((high - low) * span * 4.0).ceil() as usize).clamp(2, TRIES);
    let at = |index: usize| 1.0 / (low + (high - low) * index as f64 / (tries - 1) as f64);
    let tried: Vec<(f64, f64)> = (0..tries).map(|index| (at(index), concentration(&begins, at(index)))).collect();
    let best = tried.iter().map(|(_, r)| *r).fold(0.0, f64::max);
    // A fraction of the period is as concentrated as the period itself, so the longest of the best periods is chosen.
    let (period_s, _) = tried.iter().copied().filter(|(_, r)| *r > best - 0.1).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let period_s = refine(&begins, period_s)?;
    let concentration = concentration(&begins, period_s.value);
    let coincide = (interval_s / period_s.value).powi(begins.len() as i32 - 1);
    let p_value = (by_chance(begins.len() as f64, concentration).max(coincide) * tries as f64).min(1.0);
    (p_value < SIGNIFICANCE).then_some(Period { period_s, concentration, p_value })
}

/// Probability of at least this concentration for `n` starts at random times.
fn by_chance(n: f64, concentration: f64) -> f64 {
    let rayleigh = -n * concentration * concentration;
    let radius = std::f64::consts::PI * (n * (1.0 - concentration).max(0.0) / 2.0).sqrt();
    // Logarithm of the ratio of the volume of a ball in n - 1 dimensions to that of all angles.
    let half = (n - 1.0) / 2.0;
    let ball = half * std::f64::consts::PI.ln() - statrs::function::gamma::ln_gamma(half + 1.0)
        + (n - 1.0) * (radius.ln() - std::f64::consts::TAU.ln())
        + 0.5 * n.ln();
    rayleigh.min(ball).exp()
}

/// Fits a line through the starts by number; its slope is the period.
fn refine(begins: &[f64], guess: f64) -> Option<Estimate> {
    let mut period = Estimate::new(guess, None, CONFIDENCE, begins.len());
    for _ in 0..3 {
        let points: Vec<(f64, f64)> =
            begins.iter().map(|begin| (((begin - begins[0]) / period.value).round(), *begin)).collect();
        period = line(&points, CONFIDENCE)?.slope;
        if period.value <= 0.0 {
            return None;
        }
    }
    Some(period)
}

/// The findings in sentences.
pub fn sentences(found: &Stalls) -> Vec<String> {
    let usual = format!("{:.0} % of the usual {}/s", SILENT_RATIO * 100.0, format_si(found.usual_per_sec));
    let longest = found.stalls.iter().map(|stall| stall.length_s).fold(0.0, f64::max);
    let mut said = vec![match found.stalls.len() {
        0 => format!(
            "No stall between the load's begin and end: no interval of {} had less than {usual}.",
            format_nanos(found.interval_s * 1e9)
        ),
        stalls => format!(
            "{}, {:.1} % of the time, the longest of {longest:.1} s: the rate fell below {usual}.",
            count(stalls, "stall"),
            found.stalled_ratio * 100.0
        ),
    }];
    if let Some(period) = &found.period {
        said.push(format!(
            "They come every {:.2} s{}; the probability of such regularity by chance is at most {}: look for work with \
             that period (writing back to disk, log rotation, garbage collection, cron).",
            period.period_s.value,
            in_brackets(&period.period_s, |seconds| format!("{seconds:.2}")),
            if period.p_value < 1e-6 { "one in a million".to_string() } else { format!("{:.1e}", period.p_value) }
        ));
    } else if found.stalls.len() >= FEWEST_STALLS {
        said.push("No period fits them better than chance would.".into());
    }
    let ends: Vec<String> = [(found.silent_before_s, "first"), (found.silent_after_s, "last")]
        .into_iter()
        .filter(|(seconds, _)| *seconds > 0.95 * found.interval_s)
        .map(|(seconds, which)| format!("the {which} {}", format_nanos(seconds * 1e9)))
        .collect();
    if !ends.is_empty() {
        said.push(format!(
            "Less than {:.0} % of it came in {}: either there was no load, or the server did not answer.",
            SILENT_RATIO * 100.0,
            ends.join(" and ")
        ));
    }
    said
}
