//! The answer of a run of `find`: the number to plan with, where the server breaks, what limits it, and how certain
//! that is. Every output begins with its sentence and shows its numbers.
//!
//! In an open loop plan <= held <= capacity, and every failed rate is above the held one. If the points contradict
//! each other, a number is absent and the reason is given.

use crate::command::again;
use crate::proof::Dearer;
use crate::{Cause, Certainty};
use analyze::disturbance::DISTURBED_RATIO;
use analyze::point::points_at;
use analyze::programs;
use analyze::shown::in_brackets;
use analyze::zones::{
    Findings, FullResource, Peak, PointFinding, PointPlace, SweepFindings, Zone, doubts, estimate_words, load_words,
};
use record::text::plain;
use record::units::{format_nanos, format_si, grouped};
use record::{DoubtKind, Estimate, Figures, Origin, RunDir, SlowPlace, Status, Sweep, names};
use serde::Serialize;
use statistics::median;

record::worded! {
    /// Certainty of an answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Sure {
        /// Most points were disturbed, repeats disagree, or a number is not known.
        Low = "low",
        /// Some points were disturbed, or an interval is wide.
        Fair = "fair",
        /// Undisturbed points, repeats that agree, and narrow intervals.
        High = "high",
    }
}

/// Ratios from which on the certainty is at most fair, and from which on it is low.
struct SureUpTo {
    fair: f64,
    low: f64,
}

/// For the share of disturbed points.
const DISTURBED_RATIOS: SureUpTo = SureUpTo { fair: DISTURBED_RATIO, low: 0.5 };
/// For the ratio of the ends of the plan's interval, and for failed over held rate.
const WIDTH_RATIOS: SureUpTo = SureUpTo { fair: 1.25, low: 2.0 };

/// Answer of a run in one sentence, and the numbers in it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Answer {
    /// The first line of every output.
    pub sentence: String,
    /// Rate to plan with, requests per second: the open loop's yield point, or the highest rate that held if that is
    /// lower. Absent without an open loop, or if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_per_sec: Option<Estimate>,
    /// Reason for `plan_per_sec`, or for its absence.
    pub plan_why: String,
    /// The highest rate that was sent and answered in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_per_sec: Option<f64>,
    /// The rate from which on requests are late, refused or lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaks_per_sec: Option<Estimate>,
    /// Reason for `breaks_per_sec`, or for its absence.
    pub breaks_why: String,
    /// Highest rate answered at fixed rates, whatever was offered; absent if the server answered all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_per_sec: Option<Estimate>,
    /// Whether the server takes more connections, in a few words; empty without a closed loop.
    pub connections: String,
    /// Highest throughput of all points, at fixed rates or with a fixed number of connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<MostAnswered>,
    /// Full stage or limit at which the server breaks; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// Certainty of the numbers.
    pub sure: Sure,
    /// Most important reason for a low certainty; empty if it is high.
    pub sure_why: String,
    /// Settings for a configuration that keep the load below the plan, and an experiment with the function that fills
    /// a CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
}

/// Highest throughput, and the load at which it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct MostAnswered {
    /// Good answers per second.
    pub per_sec: f64,
    /// Connections, or offered requests per second.
    pub load: f64,
    /// Sweep of the load.
    pub sweep: Sweep,
}

/// The answer of a run with at least one sweep over connections or rate.
pub fn derive(run: &RunDir, findings: &Findings, causes: &[Cause]) -> Option<Answer> {
    let open = findings.rate.as_ref();
    let main = findings.main()?;
    let held_per_sec = open.and_then(SweepFindings::highest_held);
    let (plan_per_sec, plan_why) = match (open.and_then(SweepFindings::plan), open) {
        (Some((estimate, why)), _) => (Some(estimate), why),
        // Another sentence already gives this reason.
        (None, Some(open)) if breaks(&open.failure_point).is_some() => (None, "no rate held".into()),
        (None, Some(open)) => (None, open.failure_point.reason.clone()),
        (None, None) => (None, "no rate was offered".into()),
    };
    let (breaks_per_sec, breaks_why) = match open {
        Some(open) => (breaks(&open.failure_point), open.failure_point.reason.clone()),
        None => (None, "no rate was offered".into()),
    };
    let capacity = open.and_then(|open| open.capacity.as_ref());
    let mut answer = Answer {
        sentence: String::new(),
        plan_per_sec,
        plan_why,
        held_per_sec,
        breaks_per_sec,
        breaks_why,
        capacity_per_sec: capacity.and_then(PointFinding::estimated),
        connections: findings.connections.as_ref().map_or(String::new(), connections),
        peak: peak(findings),
        full: full(run, findings, causes).map(|full| full.words),
        sure: Sure::High,
        sure_why: String::new(),
        settings: Vec::new(),
    };
    (answer.sure, answer.sure_why) = certainty(run, findings, main, &answer);
    answer.settings = settings(run, findings, &answer);
    answer.sentence = sentence(findings, &answer);
    Some(answer)
}

/// The answer's numbers as figures, for limits and other programs. If a point was not reached, its measured bound is
/// used: a server that held 60k/s does not cross `breaks < 50k`.
pub fn figures(findings: &Findings, answer: Option<&Answer>) -> Figures {
    let mut figures = Figures::default();
    let yields: fn(&SweepFindings) -> &PointFinding = |sweep| &sweep.yield_point;
    let failures: fn(&SweepFindings) -> &PointFinding = |sweep| &sweep.failure_point;
    for (name, find) in [(names::FIND_YIELD_CONNECTIONS, yields), (names::FIND_FAILURE_CONNECTIONS, failures)] {
        match findings.connections.as_ref().map(find) {
            Some(point) => {
                let load = point.estimate.or(point.low);
                figures.found(name, load, (point.n_repeats, Origin::Modelled), &point.reason);
            }
            None => figures.not_measured(name, "this sweep was not run"),
        }
    }
    let Some(answer) = answer else {
        for name in [names::FIND_PLAN, names::FIND_BREAKS, names::FIND_PEAK] {
            figures.not_measured(name, "no sweep over connections or rate was run");
        }
        return figures;
    };
    let repeats = findings.rate.as_ref().map_or(0, |open| open.repeats);
    let plan = answer.plan_per_sec.map(|plan| plan.value);
    figures.found(names::FIND_PLAN, plan, (repeats, Origin::Modelled), &answer.plan_why);
    let breaks = answer.breaks_per_sec.map(|breaks| breaks.value).or(answer.held_per_sec);
    figures.found(names::FIND_BREAKS, breaks, (repeats, Origin::Modelled), &answer.breaks_why);
    let peak = answer.peak.as_ref().map(|peak| peak.per_sec);
    let repeats = findings.sweeps().map(|sweep| sweep.repeats).max().unwrap_or(0);
    figures.found(names::FIND_PEAK, peak, (repeats, Origin::Counted), "no request was completed");
    figures
}

fn breaks(failure_point: &PointFinding) -> Option<Estimate> {
    failure_point.estimated().or_else(|| {
        let failed = failure_point.failed.filter(|_| failure_point.held.is_none())?;
        Some(Estimate::new(failed, None, failure_point.confidence, failure_point.n_repeats as usize))
    })
}

fn connections(closed: &SweepFindings) -> String {
    let found = &closed.failure_point;
    let first = |load: f64| first_reason(closed, Some(load));
    match (estimate_words(found, Sweep::Connections), found.held, found.failed) {
        (Some(words), _, Some(failed)) => format!("fails from about {words}: {}", first(failed)),
        (None, None, Some(failed)) => {
            format!("already fails at {}: {}", load_words(failed, Sweep::Connections), first(failed))
        }
        (None, Some(held), None) if found.place == PointPlace::Beyond => {
            format!("no failure up to {}", load_words(held, Sweep::Connections))
        }
        _ => found.reason.clone(),
    }
}

fn peak(findings: &Findings) -> Option<MostAnswered> {
    let of =
        |sweep: &SweepFindings, Peak { load, per_sec, .. }: Peak| MostAnswered { per_sec, load, sweep: sweep.sweep };
    let peaks = findings.sweeps().filter_map(|sweep| Some(of(sweep, sweep.peak?)));
    peaks.max_by(|a, b| a.per_sec.total_cmp(&b.per_sec))
}

fn program(run: &RunDir) -> String {
    match programs::executable(&run.record) {
        "" => "the server".into(),
        name => plain(name, 40),
    }
}

/// Busy share of a CPU at the lowest rate that failed, from which on a CPU that is full at higher loads explains it.
const LEAST_BUSY_WHERE_IT_BREAKS: f64 = 0.5;

/// Whether the server's CPUs were idle at the lowest rate that failed. A CPU that is full at higher loads does not
/// explain that failure.
pub(crate) fn breaks_while_idle(findings: &Findings) -> bool {
    let failed = findings.rate.as_ref().and_then(|open| open.level(open.failure_point.failed?));
    failed.is_some_and(|level| level.cpus_busy_ratio.is_some() && level.full(LEAST_BUSY_WHERE_IT_BREAKS).is_none())
}

/// The limit of the server, and how it is made dearer if that is known.
pub(crate) struct FullStage {
    pub words: String,
    /// The rule that names it, if it is a cause.
    pub rule: Option<String>,
    pub dearer: Option<Dearer>,
}

/// The limit of the server: a certain cause, else the CPU, thread or CPU limit that is full above the planned load,
/// else a possible cause.
pub(crate) fn full(run: &RunDir, findings: &Findings, causes: &[Cause]) -> Option<FullStage> {
    let limits = || causes.iter().filter(|cause| cause.is_limit);
    let of_cause = |cause: &Cause, sure: &str| FullStage {
        words: format!("{sure}{}", cause.cause),
        rule: Some(cause.rule.clone()),
        dearer: cause.dearer.clone(),
    };
    if let Some(cause) = limits().find(|cause| cause.certainty == Certainty::Cause) {
        return Some(of_cause(cause, ""));
    }
    let full = || {
        findings.rate.iter().chain(&findings.connections).flat_map(|sweep| {
            let from = crate::strained_from(sweep).unwrap_or(f64::INFINITY);
            let strained = sweep.levels.iter().filter(move |level| level.load >= from);
            strained.filter_map(move |level| {
                Some((sweep.sweep, level.load, level.full(findings.criteria.saturation_ratio)?))
            })
        })
    };
    let name = program(run);
    let of_resource = |(sweep, load, resource): (Sweep, f64, FullResource)| {
        let figure = |name: &str| median(points_at(&run.points, sweep, load).filter_map(|point| point.value(name)));
        let (words, at_once) = match resource {
            FullResource::Quota(_) => (format!("{name}'s CPU time limit is used up"), figure(names::SERVER_QUOTA)),
            FullResource::Cpus(_) => (format!("{name}'s CPUs are full"), figure(names::SERVER_CPUS)),
            FullResource::Thread(of_cpu) => {
                // The threads may be a little less busy than the busiest.
                let full = figure(names::SERVER_CPUS_USED).map(|used| ((used + 0.1) / of_cpu).floor().max(1.0));
                (format!("one thread of {name} is full"), full)
            }
            FullResource::CrowdedCpus(_) => return None,
        };
        let dearer = at_once.map(|at_once| Dearer { place: SlowPlace::Request, function: None, at_once });
        Some(FullStage { words, rule: None, dearer })
    };
    let saturated = full().find_map(of_resource).filter(|_| !breaks_while_idle(findings));
    let possible = || limits().next().map(|cause| of_cause(cause, "possibly "));
    let is_crowded = |resource: FullResource| matches!(resource, FullResource::CrowdedCpus(_));
    let crowded = || {
        let words = "its CPUs were full, much of it with other work".into();
        full().any(|(.., resource)| is_crowded(resource)).then_some(FullStage { words, rule: None, dearer: None })
    };
    saturated.or_else(possible).or_else(crowded)
}

fn certainty(run: &RunDir, findings: &Findings, sweep: &SweepFindings, answer: &Answer) -> (Sure, String) {
    let mut reasons: Vec<(Sure, String)> = Vec::new();
    if run.record.status != Status::Complete {
        let known = run.record.doubts.iter().find(|doubt| doubt.kind == DoubtKind::Interrupted).cloned();
        let why = known.or_else(|| crate::ending(run)).map(|doubt| doubt.what);
        reasons.push((Sure::Low, why.unwrap_or("the run did not end".into())));
    }
    if findings.rate.is_some() && answer.plan_per_sec.is_none() {
        reasons.push((Sure::Low, answer.plan_why.clone()));
    } else if sweep.failure_point.place == PointPlace::Unknown {
        reasons.push((Sure::Low, sweep.failure_point.reason.clone()));
    }
    let is_short = |point: &&record::Point| {
        let response_us = point.value(names::RESPONSE_P50).filter(|_| point.sweep == sweep.sweep);
        response_us.is_some_and(|us| us * 1e3 > point.duration_ns as f64)
    };
    if let Some(point) = run.points.iter().find(is_short) {
        let (response_us, window_ns) = (point.value(names::RESPONSE_P50).unwrap_or(0.0), point.duration_ns as f64);
        let (response, window) = (format_nanos(response_us * 1e3), format_nanos(window_ns));
        let why = format!("a response took {response} (p50), a window {window}: repeat it with a longer --duration");
        reasons.push((Sure::Low, why));
    }
    if let Some(level) = sweep.levels.iter().find(|level| level.client_limited) {
        let at = load_words(level.load, sweep.sweep);
        reasons.push((Sure::Low, format!("from {at} on the client was the limit, not the server")));
    }
    let (disturbed, points) = doubts::disturbed(&sweep.levels);
    let so_many = |SureUpTo { fair, low }: SureUpTo, ratio: f64| match ratio {
        ratio if ratio >= low => Some(Sure::Low),
        ratio if ratio >= fair => Some(Sure::Fair),
        _ => None,
    };
    if let Some(sure) = so_many(DISTURBED_RATIOS, disturbed as f64 / points.max(1) as f64) {
        let words = format!("{disturbed} of {points} points were disturbed by other work on the machine");
        reasons.push((sure, words));
    }
    let inconsistent = sweep.levels.iter().filter(|level| level.zone == Zone::Inconsistent).map(|level| level.load);
    let inconsistent: Vec<String> = inconsistent.take(3).map(|load| load_words(load, sweep.sweep)).collect();
    if !inconsistent.is_empty() {
        reasons.push((Sure::Fair, format!("trials disagree at {}", inconsistent.join(", "))));
    }
    match answer.plan_per_sec {
        Some(Estimate { low: Some(low), high: Some(high), .. }) => {
            if let Some(sure) = so_many(WIDTH_RATIOS, high / low.max(f64::MIN_POSITIVE)) {
                let (low, high) = (format_si(low), format_si(high));
                let words = format!("the number to plan with is only known to be between {low} and {high}/s");
                reasons.push((sure, words));
            }
        }
        Some(_) => reasons.push((Sure::Fair, "too few repeats for an interval".into())),
        None => {}
    }
    if let Some((held, failed)) = sweep.failure_point.held.zip(sweep.failure_point.failed)
        && let Some(sure) = so_many(WIDTH_RATIOS, failed / held)
    {
        let (held, failed) = (load_words(held, sweep.sweep), load_words(failed, sweep.sweep));
        reasons.push((sure, format!("nothing was measured between {held}, which held, and {failed}, which failed")));
    }
    if findings.drift.is_some_and(|drift| drift.is_of_server()) {
        reasons.push((Sure::Fair, "the server's speed at the same load differed between repeats".into()));
    }
    reasons.into_iter().min_by_key(|(sure, _)| *sure).unwrap_or((Sure::High, String::new()))
}

/// Formats the interval of a rate: `34.0k to 47.2k`; empty without one.
pub fn interval_words(estimate: &Estimate) -> String {
    estimate.interval().map_or(String::new(), |(low, high)| format!("{} to {}", format_si(low), format_si(high)))
}

fn settings(run: &RunDir, findings: &Findings, answer: &Answer) -> Vec<String> {
    if let Some(another) = another_limit(run, findings) {
        return vec![another];
    }
    let Some(plan) = answer.plan_per_sec.filter(|_| answer.sure > Sure::Low) else { return Vec::new() };
    let safe = plan.low.unwrap_or(plan.value).min(plan.value);
    let mut said = vec![format!("replicas for R requests/s: R / {} rounded up, plus one spare", grouped(safe.floor()))];
    let mut levels = findings.rate.iter().flat_map(|open| &open.levels);
    let Some(level) = levels.rfind(|level| level.load <= plan.value * 1.01) else { return said };
    if let Some((cost, sent)) = level.cpu_us_per_request.zip(level.throughput_per_sec) {
        said.push(format!(
            "CPU request of a replica: {} (used at {}/s)",
            millicores(cost.median * sent.median / 1e6),
            format_si(sent.median)
        ));
    }
    if let Some((p99, sent)) = level.response_p99_us.zip(level.throughput_per_sec) {
        let at_once = (sent.median * p99.median / 1e6).ceil().max(2.0);
        said.push(format!(
            "limit of the proxy in front: {} concurrent requests (HAProxy maxconn, Envoy max_requests): {}/s for {}",
            grouped(at_once),
            format_si(sent.median),
            format_nanos(p99.median * 1e3)
        ));
    }
    said.extend(more_workers(run, answer));
    said
}

/// A command with a higher limit of the response time, if a request takes about that long at the lowest load, too.
fn another_limit(run: &RunDir, findings: &Findings) -> Option<String> {
    /// Share of the limit from which on a single request leaves no room for a load.
    const NEARLY: f64 = 0.5;
    /// Room for a load in the suggested limit.
    const ROOM: f64 = 3.0;
    let limit_ns = findings.criteria.p99_limit_ns as f64;
    if findings.sweeps().any(|sweep| sweep.highest_held().is_some()) {
        return None;
    }
    let level =
        findings.sweeps().find_map(|sweep| sweep.levels.iter().find(|level| level.response_p50_us.is_some()))?;
    let alone_ns = level.response_p50_us?.median * 1e3;
    if alone_ns < NEARLY * limit_ns {
        return None;
    }
    let size = 10f64.powf((ROOM * alone_ns).log10().floor());
    let suggested = format_nanos((ROOM * alone_ns / size).ceil() * size).replace(' ', "");
    Some(format!(
        "a request took {} (p50) at the lowest load, with a limit of {}; another limit: {}",
        format_nanos(alone_ns),
        format_nanos(limit_ns),
        again(run, "find", &format!("--p99-limit {suggested}"))
    ))
}

fn millicores(cpus: f64) -> String {
    format!("{}m", (cpus * 1e3).ceil())
}

fn more_workers(run: &RunDir, answer: &Answer) -> Option<String> {
    answer.full.as_ref().filter(|full| full.starts_with("one thread of "))?;
    let (name, setting) = programs::another_cpu(&run.record)?;
    let predicted = plain(&run.path.display().to_string(), 200);
    Some(format!("another CPU for {name}: {setting} (to estimate the gain: straingauge predict {predicted} --cores 2)"))
}

fn sentence(findings: &Findings, answer: &Answer) -> String {
    let sure = format!(" Sure: {}.", answer.sure.word());
    let full = answer.full.as_ref().map_or(String::new(), |full| format!(": {full}"));
    let Some(open) = &findings.rate else {
        let closed =
            findings.connections.as_ref().map_or(String::new(), |closed| closed_sentence(closed, answer, &full));
        return closed + &sure;
    };
    let failure_point = &open.failure_point;
    let breaks = match (answer.breaks_per_sec, failure_point.place) {
        (Some(breaks), _) => format!(" It breaks at {}/s{full}.", format_si(breaks.value)),
        (None, PointPlace::Beyond) => format!(" It held every rate that was offered{full}."),
        (None, _) => format!(" Where it breaks is not known{full}."),
    };
    match answer.plan_per_sec {
        Some(plan) => {
            let at_least = if failure_point.place == PointPlace::Beyond && open.yield_point.estimate.is_none() {
                "at least "
            } else {
                ""
            };
            let ends = in_brackets(&plan, format_si);
            format!("Plan for {at_least}{}/s{ends}.{breaks}{sure}", format_si(plan.value))
        }
        None => match answer.breaks_per_sec {
            Some(breaks) => format!(
                "No rate held: it already breaks at {}/s{full}: {}.{sure}",
                format_si(breaks.value),
                first_reason(open, failure_point.failed)
            ),
            None => format!("The number to plan with is {}.{sure}", or_not_known(&answer.plan_why)),
        },
    }
}

fn or_not_known(why: &str) -> String {
    if why.starts_with("not known") { why.into() } else { format!("not known: {why}") }
}

fn first_reason(sweep: &SweepFindings, load: Option<f64>) -> String {
    let level = load.and_then(|load| sweep.level(load));
    let crossed = level.and_then(|level| level.crossed.first().cloned());
    crossed.unwrap_or_else(|| sweep.failure_point.reason.clone())
}

fn closed_sentence(closed: &SweepFindings, answer: &Answer, full: &str) -> String {
    let limited = closed.yield_point.estimate.is_none() && closed.levels.iter().any(|level| level.client_limited);
    let most = closed.peak.map_or(String::new(), |peak| {
        format!("{}/s with {}", format_si(peak.per_sec), load_words(peak.load, Sweep::Connections))
    });
    if limited {
        return format!("The client was the limit, not the server: at least {most}.");
    }
    if closed.failure_point.place == PointPlace::Below {
        return format!("No load held: it {}{full}.", answer.connections);
    }
    let grows = match (estimate_words(&closed.yield_point, Sweep::Connections), closed.yield_point.place) {
        (Some(words), _) => format!("Throughput grows up to about {words}{full}; the highest was {most}"),
        (None, PointPlace::Beyond) => {
            format!("Throughput grows up to the most connections tried; the highest was {most}")
        }
        (None, _) if most.is_empty() => match closed.levels.iter().any(|level| level.response_p50_us.is_some()) {
            true => "Every response took longer than a window".into(),
            false => "No request was answered".into(),
        },
        (None, _) => format!("The highest throughput was {most}{full}"),
    };
    let mut connections = answer.connections.clone();
    if let Some(rest) = connections.strip_prefix("not known") {
        connections = format!("whether it holds more connections is not known{rest}");
    }
    format!("{grows}; {connections}.")
}
