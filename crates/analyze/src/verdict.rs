//! Puts the findings into plain words, always with the doubts.

mod cause;
mod command;
mod doubts;
mod evidence;
mod facts;
mod growth;
mod judge;
mod layout;
mod one_at_a_time;
pub mod rules;
mod sure;
mod waits;

pub use growth::{UserGrowth, user_times};
pub use layout::{Remedy, SLAB_SHARE, USUAL_CACHE_BYTES, Won, remedy};

use crate::growth::Growth;
use crate::shown;
use crate::zones::{Drift, Findings, Level, Place, SweepFindings, Zone, estimate_words, percent};
use record::text::plain;
use record::units::grouped;
use record::units::{format_nanos, format_si};
use record::{Criteria, Doubt, Point, RunDir, RunKind, Sweep, names};
use serde::{Deserialize, Serialize};

/// The verdict on a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verdict {
    /// One line.
    pub headline: String,
    /// A few sentences: what saturated, cost, limits; then the causes with what to try.
    pub sentences: Vec<String>,
    /// The causes that the rules found, the one to fix first at the front; none for a server that is simply full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Every reason not to trust it: of the run, of reading it, of the sweeps, of the points (one of each kind).
    pub doubts: Vec<Doubt>,
}

/// How sure a cause is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The evidence excludes chance, and other explanations.
    #[default]
    Cause,
    /// The observations fit it, and something else, too: the remedy includes a command that decides.
    Possibility,
}

/// A cause that a rule of the table ([`rules::RULES`]) found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cause {
    /// The rule's name.
    pub rule: String,
    /// The cause in a few words.
    pub cause: String,
    /// How sure it is.
    #[serde(default)]
    pub certainty: Certainty,
    /// The observation.
    pub because: String,
    /// The remedy.
    pub remedy: String,
    /// The commands in the remedy.
    pub commands: Vec<String>,
    /// The source of the rule.
    pub source: String,
}

impl Cause {
    /// The observation and the remedy, as one of the sentences of a verdict.
    pub fn sentence(&self) -> String {
        match self.certainty {
            Certainty::Cause => format!("{} {}", self.because, self.remedy),
            Certainty::Possibility => format!("Possible, not proven: {}. {} {}", self.cause, self.because, self.remedy),
        }
    }
}

impl Verdict {
    /// The sentences without those of [`Verdict::causes`].
    pub fn without_causes(&self) -> impl Iterator<Item = &str> {
        let causes: Vec<String> = self.causes.iter().map(Cause::sentence).collect();
        self.sentences.iter().map(String::as_str).filter(move |sentence| !causes.iter().any(|cause| cause == sentence))
    }
}

/// The causes by the rules, without those that are a consequence of another.
fn causes(run: &RunDir, findings: &Findings) -> Vec<Cause> {
    let seen = evidence::Evidence { run, findings };
    let holding: Vec<_> = rules::RULES.iter().filter_map(|rule| Some((rule, (rule.judge)(&seen)?))).collect();
    // What is only possible leaves alone what is certain.
    let hides = |id: &str, hidden: &judge::Finding| {
        let outranks = |finding: &judge::Finding| {
            [finding.certainty, hidden.certainty] != [Certainty::Possibility, Certainty::Cause]
        };
        holding.iter().any(|(rule, finding)| rule.id == id && outranks(finding))
    };
    let free = holding.iter().filter(|(rule, finding)| !rule.hidden_by.iter().any(|id| hides(id, finding)));
    let is_unquiet = seen.unquiet().is_some();
    let mut causes: Vec<Cause> = free
        .map(|(rule, finding)| Cause {
            rule: rule.id.into(),
            cause: rule.cause.into(),
            certainty: if is_unquiet && !rule.is_counted { Certainty::Possibility } else { finding.certainty },
            because: finding.because.clone(),
            remedy: finding.remedy.clone(),
            commands: finding.commands.clone(),
            source: rule.source.into(),
        })
        .collect();
    causes.sort_by_key(|cause| cause.certainty == Certainty::Possibility);
    causes
}

/// The sentence for a run in which every point that a cause could rest on was disturbed.
fn unquiet_sentence(run: &RunDir, findings: &Findings) -> Option<String> {
    let (points, why) = evidence::Evidence { run, findings }.unquiet()?;
    let which =
        if points == 1 { "the only point".to_string() } else { format!("all {} points", grouped(points as f64)) };
    Some(format!(
        "The machine was not quiet enough to name a cause: {which} beyond the yield point or where the server fails \
         were disturbed (the last: {why}). Repeat it on a quiet machine."
    ))
}

/// Puts findings into words.
pub fn sentences(run: &RunDir, findings: &Findings) -> Verdict {
    let run = &*crate::zones::polling::told_apart_in(run, &findings.criteria);
    let mut said = Vec::new();
    let causes = causes(run, findings);
    if let Some(closed) = &findings.connections {
        closed_sentences(run, findings, closed, &causes, &mut said);
    }
    if let Some(open) = &findings.rate {
        open_sentences(open, &mut said);
        said.extend(
            findings.connections.as_ref().and_then(|closed| definitions_sentence(closed, open, &findings.criteria)),
        );
    }
    if let Some(unloading) = &findings.unloading
        && !causes.iter().any(|cause| cause.rule == "stays-down")
    {
        said.push(unloading.sentence());
    }
    said.extend(sure::sentence(run, findings));
    said.extend(unquiet_sentence(run, findings));
    said.extend(causes.iter().map(Cause::sentence));
    said.extend(findings.axes.iter().flat_map(crate::axis::sentences));
    said.extend(findings.drift.as_ref().and_then(drift_sentence));
    Verdict { headline: headline(run, findings), sentences: said, causes, doubts: doubts::collect(run, findings) }
}

fn drift_sentence(drift: &Drift) -> Option<String> {
    let parts: Vec<String> = [("arithmetic", drift.cpu_cv_ratio), ("reference load", drift.load_cv_ratio)]
        .into_iter()
        .filter_map(|(name, cv)| Some(format!("{name} by {}", percent(cv?))))
        .collect();
    let whose = if drift.is_of_server() {
        "The machine computes as fast: the server changed, or memory, disks or other work did. "
    } else {
        ""
    };
    (!parts.is_empty()).then(|| {
        format!(
            "Between repeats the yardstick's speed varied: its {} (coefficient of variation, n = {}). {whose}Loads are \
             compared within repeats, so the zones depend little on it; the absolute rates do.",
            parts.join(", its "),
            drift.n
        )
    })
}

fn headline(run: &RunDir, findings: &Findings) -> String {
    let mut parts = Vec::new();
    if let Some(closed) = &findings.connections {
        parts.push(closed_headline(closed));
    }
    if let Some(open) = &findings.rate {
        parts.push(open_headline(open, findings.connections.is_some()));
    }
    // Of the places that were slowed down the first would help most.
    let first = |at: &usize| *at == 0 || findings.axes[*at].slowed.is_none();
    let axes = (0..findings.axes.len()).filter(first).map(|at| &findings.axes[at]);
    parts.extend(axes.filter_map(crate::axis::headline));
    if parts.is_empty() {
        parts.extend(single_headline(run));
    }
    if parts.is_empty() {
        let why = match &run.record.ended_by {
            Some(why) => format!(": {}", plain(why, 200)),
            None if run.is_abandoned() => ": the process that wrote the run was killed".into(),
            None => String::new(),
        };
        return format!("No point was measured{why}.");
    }
    parts.join(" ")
}

fn client_limited(sweep: &SweepFindings) -> bool {
    sweep.yield_point.estimate.is_none() && sweep.levels.iter().any(|level| level.client_limited)
}

fn closed_headline(closed: &SweepFindings) -> String {
    let unit = Sweep::Connections;
    if client_limited(closed) {
        let at_least = closed.peak.map(|peak| format!("; the server can do at least {}/s", format_si(peak.per_sec)));
        return format!("The client was the limit, not the server{}.", at_least.unwrap_or_default());
    }
    if let (None, Some(failed)) = (closed.failure_point.held, closed.failure_point.failed) {
        let level = closed.levels.iter().find(|level| level.load == failed);
        let why = level.and_then(|level| level.crossed.first().cloned());
        let why = why.unwrap_or_else(|| closed.failure_point.reason.clone());
        return format!("The server failed already at {}: {why}.", words(failed, unit));
    }
    let found = &closed.yield_point;
    let yields = match estimate_words(found, unit) {
        Some(words) => format!("Elastic up to about {words}"),
        None if found.place == Place::Beyond => format!("Elastic throughout: the yield point was {}", found.reason),
        None => format!("No yield point: {}", found.reason),
    };
    let found = &closed.failure_point;
    let fails = match estimate_words(found, unit) {
        Some(words) => format!("; fails from about {words}"),
        None => found.held.map(|held| format!("; no failure up to {}", words(held, unit))).unwrap_or_default(),
    };
    let peak = closed.peak.map(|peak| format!("; peak {}/s", format_si(peak.per_sec))).unwrap_or_default();
    format!("{yields}{fails}{peak}.")
}

fn open_headline(open: &SweepFindings, is_second: bool) -> String {
    let unit = Sweep::Rate;
    let start = if is_second { "At fixed rates it" } else { "The server" };
    let found = &open.failure_point;
    match estimate_words(found, unit) {
        Some(words) => format!("{start} fails from about {words}."),
        None => match (found.held, found.failed) {
            (Some(held), _) if client_limited(open) => {
                format!("{start} held {}; the client could not offer more.", words(held, unit))
            }
            (Some(held), _) => format!("{start} held every rate up to {}.", words(held, unit)),
            (None, Some(failed)) => format!("{start} failed already at {}.", words(failed, unit)),
            _ => "No rate could be judged.".into(),
        },
    }
}

fn single_headline(run: &RunDir) -> Option<String> {
    // The load is not what a profile measures.
    if matches!(run.record.scenario.kind, RunKind::Profile(_)) && !run.points.is_empty() {
        let why = crate::profile::why_not_sampled(run).unwrap_or_else(|| "no point was sampled".into());
        return Some(format!("What the layers cost was not measured: {why}."));
    }
    let point = run.points.iter().find(|point| point.sweep != Sweep::Yardstick)?;
    let pace = match point.offered_per_sec() {
        Some(rate) => format!("{}/s offered", format_si(rate)),
        None => words(point.connections as f64, Sweep::Connections),
    };
    let throughput =
        point.value(names::THROUGHPUT).map_or("no throughput".into(), |value| format!("{}/s", format_si(value)));
    let p99 = point
        .value(names::RESPONSE_P99)
        .map(|us| format!(", response time p99 {}", format_nanos(us * 1e3)))
        .unwrap_or_default();
    Some(format!("{throughput} at {pace}{p99}, {} failed.", percent(point.outcomes.failed_ratio())))
}

fn words(load: f64, sweep: Sweep) -> String {
    crate::zones::load_words(load, sweep)
}

fn closed_sentences(
    run: &RunDir,
    findings: &Findings,
    closed: &SweepFindings,
    causes: &[Cause],
    said: &mut Vec<String>,
) {
    let unit = Sweep::Connections;
    let evidence = evidence::Evidence { run, findings };
    said.extend(cause::saturated_first(&evidence, closed, causes));
    if let Some(peak) = &closed.peak
        && let Some(last) = closed.levels.last()
        && let Some(end) = last.throughput_per_sec
    {
        let of_medians = shown::rate(end.median) / shown::rate(peak.per_sec);
        let (change, compared) = match peak.end_ratio {
            Some(within) if !crate::zones::are_comparable(of_medians, within) => {
                (Some(within - 1.0), " in the same repeats")
            }
            within => (within.map(|_| of_medians - 1.0), ""),
        };
        let after = if last.load <= peak.load {
            ", the most that was tried".into()
        } else {
            let end = words(last.load, unit);
            match change {
                Some(change) if change < -0.05 => format!("; at {end} it was {} lower{compared}", percent(-change)),
                Some(_) => format!(" and was about the same at {end}"),
                None => String::new(),
            }
        };
        said.push(format!(
            "Throughput peaked at {}/s with {}{after}.",
            format_si(peak.per_sec),
            words(peak.load, unit)
        ));
    }
    cost_sentence(closed, &findings.criteria, said);
    said.extend(layer_sentence(run, closed, &findings.criteria));
    said.extend(facts::short_connections(&evidence, closed));
    said.extend(facts::slow_requests(&evidence, closed));
    said.extend(facts::stalls(&evidence));
    failure_sentence(closed, findings.criteria.p99_limit_ns, said);
}

fn cost_sentence(sweep: &SweepFindings, criteria: &Criteria, said: &mut Vec<String>) {
    let Some(cpu) = &sweep.cpu else { return };
    let (low, high) = (words(cpu.lowest_load, sweep.sweep), words(cpu.highest_load, sweep.sweep));
    if cpu.highest_load <= cpu.lowest_load {
        said.push(format!(
            "The server's CPU time for a request did not grow with load: {:.1} us at {low}.",
            cpu.lowest_us
        ));
        return;
    }
    if !cpu.is_growth() && !cpu.is_comparable() {
        said.push(
            "The server's CPU time for a request did not grow with load in the same repeats; it changed between them."
                .into(),
        );
        return;
    }
    if !cpu.is_growth() {
        said.push(format!(
            "The server's CPU time for a request did not grow with load beyond the machine's own drift: {:.1} us at \
             {low}, {:.1} us at {high}.",
            cpu.lowest_us, cpu.highest_us
        ));
        return;
    }
    if !cpu.is_comparable() {
        said.push(format!(
            "A request cost {} more server CPU at {high} than at {low} in the same repeats. The table has medians over \
             all repeats, and between these its cost changed by more.",
            percent(cpu.times() - 1.0)
        ));
        return;
    }
    let most = match &cpu.grew_most {
        Some((part, before, after)) => {
            let is_most = after - before > 0.5 * (cpu.highest_us - cpu.lowest_us);
            let which = if is_most { "most of it" } else { "the part that grew most is" };
            format!("; {which} {part} time, from {before:.1} to {after:.1} us")
        }
        None => String::new(),
    };
    let at = match estimate_words(&sweep.efficiency_point, sweep.sweep) {
        Some(words) if cpu.ratio - 1.0 >= criteria.efficiency_loss_ratio => {
            format!(" Efficiency is lost from about {words}.")
        }
        _ => String::new(),
    };
    said.push(format!(
        "A request cost {:.1} us of server CPU at {low} and {:.1} us at {high} (+{}){most}.{at}",
        cpu.lowest_us,
        cpu.highest_us,
        percent(cpu.ratio - 1.0)
    ));
}

/// Explains an apparent contradiction between a closed and an open loop.
fn definitions_sentence(closed: &SweepFindings, open: &SweepFindings, criteria: &Criteria) -> Option<String> {
    let fails_open_only = closed.failure_point.failed.is_none() && open.failure_point.failed.is_some();
    let elastic = closed.levels.iter().filter(|level| level.zone == Zone::Elastic);
    let busiest = elastic.filter_map(Level::own_busy_ratio).fold(0.0, f64::max);
    let zones_differ = open.yield_point.estimate.is_some() && busiest >= criteria.saturation_ratio;
    let fails = "connections wait for their answers and so never ask for more than the server gives, but requests at a \
                 fixed rate keep coming: that is why only the open loop fails";
    let zones = "plastic begins where more connections bring no more throughput in the closed loop, and where a CPU is \
                 busy to the limit in the open one: the same busy share can belong to two zones";
    match (fails_open_only, zones_differ) {
        (true, true) => Some(format!("The two loops differ by definition: {fails}; {zones}.")),
        (true, false) => Some(format!("The two loops differ by definition: {fails}.")),
        (false, true) => Some(format!("The two loops differ by definition: {zones}.")),
        (false, false) => None,
    }
}

/// The layers and functions that grew from the cheapest load to the most expensive, if points were profiled.
fn layer_sentence(run: &RunDir, closed: &SweepFindings, criteria: &Criteria) -> Option<String> {
    /// Named at most; the rest is in the table.
    const NAMED: usize = 3;
    let cpu = closed.cpu.as_ref().filter(|cpu| cpu.is_growth())?;
    let at = |load: f64| -> Vec<&Point> {
        let is_there = |point: &&Point| point.sweep == closed.sweep && point.connections as f64 == load;
        run.points.iter().filter(is_there).collect()
    };
    let (low, high) = (at(cpu.lowest_load), at(cpu.highest_load));
    let words = |grown: &[Growth]| {
        let one = |growth: &Growth| {
            let ends = growth.difference_us.interval();
            let by = ends.map_or(String::new(), |(low, high)| format!(" (by {low:.1} to {high:.1})"));
            let name = plain(&growth.name, 60);
            format!("{name} from {:.1} to {:.1} us{by}", growth.low_us, growth.high_us)
        };
        grown.iter().take(NAMED).map(one).collect::<Vec<_>>().join(", ")
    };
    let layers = crate::growth::layers(&low, &high, criteria.confidence_ratio);
    if layers.is_empty() {
        return None;
    }
    let functions = crate::growth::functions(&low, &high, criteria.confidence_ratio);
    let inside = match functions.as_slice() {
        [] => String::new(),
        grown => format!(" Of the functions, without their callees: {}.", words(grown)),
    };
    Some(format!("By layer of the network stack, sampled, it grew in {}.{inside}", words(&layers)))
}

fn failure_sentence(sweep: &SweepFindings, limit_ns: u64, said: &mut Vec<String>) {
    let found = &sweep.failure_point;
    if found.estimate.is_some() {
        said.push(format!("Failure: {}.", found.reason));
    } else if found.failed.is_none() && found.held.is_some() {
        said.push(format!("The failure point was {}.", found.reason));
    } else {
        let lowest = sweep.levels.iter().find(|level| Some(level.load) == found.failed);
        let is_slow =
            lowest.and_then(|level| level.response_p99_us).is_some_and(|p99| p99.median * 1e3 > limit_ns as f64);
        let remedy = if is_slow && found.held.is_none() {
            " If it takes that long by itself, set another limit with `--p99-limit`."
        } else {
            ""
        };
        said.push(format!("No failure point: {}.{remedy}", found.reason));
    }
}

fn open_sentences(open: &SweepFindings, said: &mut Vec<String>) {
    let found = &open.failure_point;
    match (found.estimate, found.held, found.failed) {
        (Some(_), Some(_), Some(_)) => said.push(format!("At fixed rates (open loop) {}.", found.reason)),
        _ => said.push(format!("At fixed rates (open loop) the failure point was {}.", found.reason)),
    }
    if let Some(found) = &open.capacity
        && let Some(words) = estimate_words(found, Sweep::Rate)
    {
        said.push(format!("Its capacity is about {words}: {}.", found.reason));
    }
    let point = &open.yield_point;
    said.push(match estimate_words(point, Sweep::Rate) {
        Some(words) => format!("Its yield point is about {words}: {}.", point.reason),
        None => format!("Open-loop yield point: {}.", point.reason),
    });
}
