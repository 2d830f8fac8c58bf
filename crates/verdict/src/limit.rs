//! Limits for `--fail-if`: `p99 > 50ms`, `errors > 0.1%`, `throughput < 10k`, or the name of any figure.
//!
//! A limit is crossed when its comparison is true. A figure that was not measured also counts as crossed, with the
//! reason, because a check must not pass silently if nothing was measured.

use analyze::Refused;
use analyze::point::{cpu_figure, lost_ratio};
use analyze::shown::{nanos_against, percent_against};
use record::units::{self, exact_percent, format_nanos, format_si, percent};
use record::{Figures, Outcomes, Point, RunDir, Sweep, names};
use std::fmt;

const SHORT: &[(&str, &str)] = &[
    ("throughput", names::THROUGHPUT),
    ("goodput", names::GOODPUT),
    ("mean", names::RESPONSE_MEAN),
    ("p50", names::RESPONSE_P50),
    ("p90", names::RESPONSE_P90),
    ("p95", names::RESPONSE_P95),
    ("p99", names::RESPONSE_P99),
    ("p999", names::RESPONSE_P999),
    ("p99.9", names::RESPONSE_P999),
    ("max", names::RESPONSE_MAX),
    ("cpu", names::SERVER_CPU),
    ("memory", names::SERVER_MEMORY),
    ("steal", names::MACHINE_STEAL),
    ("peak", names::FIND_PEAK),
    ("yield_connections", names::FIND_YIELD_CONNECTIONS),
    ("failure_connections", names::FIND_FAILURE_CONNECTIONS),
    ("plan", names::FIND_PLAN),
    ("breaks", names::FIND_BREAKS),
];
const SAME_RATE: f64 = 1.01;
/// Failed requests as a share, including connections without an answer: computed from the outcomes, not a figure.
const ERRORS: &str = "errors";

record::worded! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Operator {
        Below = "<",
        AtMost = "<=",
        Above = ">",
        AtLeast = ">=",
    }
}

impl Operator {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Operator::Below => value < limit,
            Operator::AtMost => value <= limit,
            Operator::Above => value > limit,
            Operator::AtLeast => value >= limit,
        }
    }
}

/// A parsed limit.
#[derive(Debug, Clone, PartialEq)]
pub struct FailLimit {
    typed: String,
    figure: &'static str,
    unit: &'static str,
    operator: Operator,
    value: f64,
    /// The offered rate at which the figure is checked, as typed and as a number: `p99@20k > 50ms`.
    at_per_sec: Option<(String, f64)>,
}

/// The result of checking a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitCheck {
    /// Whether the run must be reported as failed (exit code 3). A missing figure counts as crossed.
    pub is_crossed: bool,
    /// The comparison with the value: `p99 > 50ms: it was 62.1 ms`.
    pub words: String,
}

fn quoted(text: &str) -> String {
    record::text::plain(text.trim(), 60)
}

/// Parses a limit such as `p99 > 50ms`.
pub fn parse(expression: &str) -> Result<FailLimit, Refused> {
    let wrong =
        || Refused(format!("'{}' is not a limit: write e.g. 'p99 > 50ms' (<, <=, > or >=)", quoted(expression)));
    let at = expression.find(['<', '>']).ok_or_else(wrong)?;
    let (name, rest) = expression.split_at(at);
    // The longer ones are later in the list.
    let operator = Operator::ALL.into_iter().rfind(|operator| rest.starts_with(operator.word())).ok_or_else(wrong)?;
    let value = &rest[operator.word().len()..];
    if name.trim().is_empty() || value.trim().is_empty() {
        return Err(wrong());
    }
    let (name, at_per_sec) = match name.split_once('@') {
        Some((name, rate)) => {
            let per_sec = units::parse_rate(rate.trim().trim_end_matches("/s")).ok().filter(|rate| *rate > 0.0);
            let per_sec = per_sec.ok_or_else(|| {
                let rate = quoted(rate);
                Refused(format!("'{rate}' is not a rate: write e.g. 'p99@20k > 50ms'"))
            })?;
            (name, Some((quoted(rate), per_sec)))
        }
        None => (name, None),
    };
    let (figure, unit) = figure(name.trim())?;
    let value = parse_value(value.trim(), figure, unit)?;
    Ok(FailLimit { typed: quoted(expression), figure, unit, operator, value, at_per_sec })
}

/// Finds a figure by its short name, full name, or full name without prefix and unit (`lag_p99`).
fn figure(typed: &str) -> Result<(&'static str, &'static str), Refused> {
    let name = typed.to_ascii_lowercase().replace('-', "_");
    if name == ERRORS {
        return Ok((ERRORS, "ratio"));
    }
    let full = SHORT.iter().find(|(short, _)| *short == name).map(|(_, full)| *full);
    let known = |full: &str| names::ALL.iter().find(|(known, ..)| *known == full).map(|(name, unit, _)| (*name, *unit));
    if let Some(found) = known(full.unwrap_or(&name)) {
        return Ok(found);
    }
    let bare = |full: &'static str| full.split_once('.').map_or(full, |(_, bare)| bare);
    let matches = |full: &'static str| {
        let bare = bare(full);
        let stem = ["_us_per_request", "_per_request", "_per_sec", "_ratio", "_bytes", "_us"]
            .iter()
            .find_map(|suffix| bare.strip_suffix(suffix))
            .unwrap_or(bare);
        bare == name || stem == name
    };
    let found: Vec<_> = names::ALL.iter().filter(|(full, ..)| matches(full)).collect();
    let typed = quoted(typed);
    match found[..] {
        [(name, unit, _)] => Ok((name, unit)),
        [(first, ..), (second, ..), ..] => {
            Err(Refused(format!("'{typed}' could be {first} or {second}: write the full name")))
        }
        [] => {
            let like = names::ALL.iter().find(|(full, ..)| name.len() > 2 && full.contains(&name));
            let example = like.map_or(names::LAG_P99, |(full, ..)| full);
            Err(Refused(format!(
                "'{typed}' is not a figure: use errors, throughput, p50, p95, p99, max, lag_p99, cpu, or a name such \
                 as {example}"
            )))
        }
    }
}

fn parse_value(text: &str, figure: &'static str, unit: &'static str) -> Result<f64, Refused> {
    // A bare 5 would be 500 %, which no share exceeds, so it is refused.
    let share = |text: &str| match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok().filter(|share| *share < 1.0),
    };
    let (value, example) = match unit {
        "us" => (units::parse_duration(text).ok().map(|time| time.as_nanos() as f64 / 1e3), "50ms or 800us"),
        "ratio" => (share(text), "1% or 0.01"),
        "1/s" => (units::parse_rate(text).ok(), "10k or 250"),
        "bytes" => (units::parse_bytes(text).ok().map(|bytes| bytes as f64), "64MiB or 512"),
        "bytes/s" => (units::parse_bytes(text.trim_end_matches("/s")).ok().map(|bytes| bytes as f64), "10MB or 64KiB"),
        _ => (units::parse_rate(text).ok(), "100 or 1.5"),
    };
    value.filter(|value| value.is_finite() && *value >= 0.0).ok_or_else(|| {
        let text = quoted(text);
        Refused(format!("'{text}' is not a value for {figure} ({unit}): write e.g. {example}"))
    })
}

fn in_words(value: f64, unit: &str) -> String {
    match unit {
        "us" => format_nanos(value * 1e3),
        "ratio" => exact_percent(value),
        "1/s" => format!("{}/s", format_si(value)),
        "bytes" => units::format_bytes(value),
        "bytes/s" => format!("{}/s", units::format_bytes(value)),
        _ => format_si(value),
    }
}

impl FailLimit {
    /// The figure to check.
    pub fn figure(&self) -> &'static str {
        self.figure
    }

    /// Whether the limit applies at one offered rate.
    pub fn is_at_a_rate(&self) -> bool {
        self.at_per_sec.is_some()
    }

    /// Checks a figure of a run of `find`: of its answer, or at the highest measured rate up to the typed one.
    pub fn check_run(&self, run: &RunDir, figures: &Figures) -> LimitCheck {
        let Some((typed, per_sec)) = &self.at_per_sec else { return self.check_figures(figures) };
        let offered = |point: &Point| point.offered_per_sec().filter(|_| point.sweep == Sweep::Rate);
        let rates = run.points.iter().filter_map(offered).filter(|rate| *rate <= per_sec * SAME_RATE);
        let Some(rate) = rates.reduce(f64::max) else {
            return self.judge(None, Some(format!("no rate up to {typed}/s was offered")), "");
        };
        let points: Vec<&Point> = run.points.iter().filter(|point| offered(point) == Some(rate)).collect();
        let value = |point: &Point| match self.figure {
            ERRORS => Some(lost_ratio(&point.outcomes)),
            figure => point.value(figure),
        };
        let value = analyze::zones::reduced(&points, value).map(|spread| spread.median);
        self.judge(value, None, &format!(", at {}/s", format_si(rate)))
    }

    /// Compares a point's figure with the limit.
    pub fn check(&self, point: &Point) -> LimitCheck {
        if let Some((typed, per_sec)) = &self.at_per_sec {
            let offered = point.offered_per_sec();
            if offered.is_none_or(|rate| !(per_sec / SAME_RATE..=per_sec * SAME_RATE).contains(&rate)) {
                return self.judge(None, Some(format!("this load did not offer {typed}/s: use --rate {typed}")), "");
            }
        }
        let outcomes = &point.outcomes;
        if self.figure == names::SERVER_CPU {
            let cpu = cpu_figure(point);
            let why = cpu.as_ref().and_then(|figure| figure.not_measured.clone());
            return self.judge(cpu.and_then(|figure| figure.value), why, "");
        }
        if self.figure != ERRORS {
            let check = self.check_figures(&point.figures);
            return if check.is_crossed { check } else { self.check_censored(outcomes).unwrap_or(check) };
        }
        let finished = outcomes.completed().saturating_add(outcomes.errors());
        let silent = match outcomes.connections_silent {
            0 => String::new(),
            silent => format!(" ({silent} of {} connections got no answer)", outcomes.connections_used),
        };
        let value = (finished > 0).then(|| lost_ratio(outcomes));
        self.judge(value, Some("no request was finished".into()), &silent)
    }

    /// A quantile that is only a lower bound counts as crossed.
    fn check_censored(&self, outcomes: &Outcomes) -> Option<LimitCheck> {
        let (_, quantile) = names::CENSORED.iter().find(|(name, _)| *name == self.figure)?;
        let (requests, connections) = (outcomes.censored_ratio(), outcomes.silent_ratio().unwrap_or(0.0));
        outcomes.is_lower_bound(*quantile).then(|| {
            let of = if requests >= connections { "requests had no response" } else { "connections got no answer" };
            let share = percent(requests.max(connections));
            self.judge(None, Some(format!("{share} of the {of}, so the true value is higher")), "")
        })
    }

    /// Checks figures of a run, e.g. [`crate::answer::figures`].
    pub fn check_figures(&self, figures: &Figures) -> LimitCheck {
        let figure = figures.get(self.figure);
        self.judge(figure.and_then(|figure| figure.value), figure.and_then(|figure| figure.not_measured.clone()), "")
    }

    fn judge(&self, value: Option<f64>, why: Option<String>, note: &str) -> LimitCheck {
        match value.filter(|value| value.is_finite()) {
            Some(value) => {
                let was = match self.unit {
                    "us" => nanos_against(value * 1e3, self.value * 1e3).0,
                    "ratio" => percent_against(value, self.value).0,
                    unit => in_words(value, unit),
                };
                let words = format!("{self}: it was {was}{note}");
                LimitCheck { is_crossed: self.operator.holds(value, self.value), words }
            }
            None => {
                let why = record::text::plain(&why.unwrap_or_else(|| "this run does not have it".into()), 120);
                let figure = self.figure;
                let words = format!("{self}: {figure} was not measured ({why}), which counts as crossed");
                LimitCheck { is_crossed: true, words }
            }
        }
    }
}

impl fmt::Display for FailLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at_per_sec.as_ref().map_or(String::new(), |(typed, _)| format!("@{typed}"));
        write!(f, "{}{at} {} {}", self.figure, self.operator.word(), in_words(self.value, self.unit))
    }
}
