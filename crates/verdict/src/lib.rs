//! Puts the findings of a run into plain words, always with the doubts: [`answer`] (the number to plan with), the
//! causes by a table of [`rules`], [`index`] (many runs), and [`limit`] for `--fail-if`. Pure functions, without
//! network or kernel.

pub mod answer;
mod cause;
mod checked;
pub mod command;
mod concurrency;
mod doubts;
mod evidence;
mod facts;
mod hot_function;
pub mod index;
mod layout;
pub mod limit;
pub mod proof;
pub mod rules;
mod stage;
mod sure;
mod user_time;

pub use cause::NEARLY_FULL;
pub use checked::CheckedStage;
pub(crate) use doubts::ending;
use evidence::Evidence;
pub(crate) use evidence::strained_from;
pub use layout::{PossibleGain, Remedy, SLAB_SHARE, USUAL_CACHE_BYTES, UserTimeSaving, remedy};
use rules::{Finding, server_log};
pub use user_time::{UserGrowth, user_times};

use crate::answer::Answer;
use analyze::growth::CpuChange;
use analyze::zones::{Drift, Findings, PointPlace, SweepFindings, estimate_words, load_words, percent};
use record::text::plain;
use record::units::{format_nanos, format_si, grouped};
use record::{Doubt, DoubtKind, Point, RunDir, RunKind, Sweep, names};
use serde::Serialize;

/// The verdict on a run.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Verdict {
    /// First line: the number to plan with, or the main finding.
    pub headline: String,
    /// The number to plan with, where the server breaks, and the saturated resource. Absent without a sweep over
    /// connections or rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// The saturated resource, the cost of a request, the limits; then the causes with remedies to try.
    pub sentences: Vec<String>,
    /// Causes that rules found, the one to fix first in front. Empty for a server that is simply full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Why no cause could be named: the machine was disturbed, or the waits of the server's threads were not traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_no_cause: Option<String>,
    /// The function that fills a CPU of the server; absent with a cause, or if no function takes much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturated: Option<String>,
    /// Stages of the server, its client and its backends that could be the limit, and how full each was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checked: Vec<CheckedStage>,
    /// Every reason to distrust the run: one doubt of each kind, from the run, its files, the sweeps and the points.
    pub doubts: Vec<Doubt>,
}

/// Certainty of a cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// The evidence excludes chance, and other explanations.
    #[default]
    Cause,
    /// The observations fit this cause and another one; the remedy includes a command that decides.
    Possibility,
}

/// A cause that a rule of the table ([`rules::RULES`]) found.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Cause {
    /// Name of the rule that found the cause.
    pub rule: String,
    /// The cause in a few words.
    pub cause: String,
    /// Whether the cause explains the limit of throughput, not only the cost or the time of a request.
    pub is_limit: bool,
    /// Certainty of the cause.
    pub certainty: Certainty,
    /// The evidence for the cause.
    pub because: String,
    /// Change that removes the cause.
    pub remedy: String,
    /// The commands in the remedy.
    pub commands: Vec<String>,
    /// The source of the rule.
    pub source: String,
    /// How the full stage is made dearer, if that is known.
    #[serde(skip)]
    pub dearer: Option<proof::Dearer>,
}

impl Cause {
    /// The cause with its evidence and remedy, as a sentence of the verdict.
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

/// Causes that the rules found, without consequences of other causes.
fn causes(evidence: &Evidence<'_>) -> Vec<Cause> {
    let holding: Vec<_> = rules::RULES.iter().filter_map(|rule| Some((rule, (rule.judge)(evidence)?))).collect();
    // A possibility does not hide a cause.
    let hides = |id: &str, hidden: &Finding| {
        let outranks =
            |finding: &Finding| [finding.certainty, hidden.certainty] != [Certainty::Possibility, Certainty::Cause];
        holding.iter().any(|(rule, finding)| rule.id == id && outranks(finding))
    };
    let free = holding.iter().filter(|(rule, finding)| !rule.hidden_by.iter().any(|id| hides(id, finding)));
    let is_unquiet = evidence.unquiet().is_some();
    let mut causes: Vec<Cause> = free
        .map(|(rule, finding)| Cause {
            rule: rule.id.into(),
            cause: rule.cause.into(),
            is_limit: rule.is_limit && !finding.is_beyond_limit,
            certainty: if is_unquiet && !rule.is_counted { Certainty::Possibility } else { finding.certainty },
            because: format!("{}{}", finding.because, server_log::quote(evidence, rule.id)),
            remedy: finding.remedy.clone(),
            commands: finding.commands.clone(),
            source: rule.source.into(),
            dearer: finding.dearer.clone(),
        })
        .collect();
    // A log line that supports another cause is quoted there.
    if causes.iter().any(|cause| !server_log::quote(evidence, &cause.rule).is_empty()) {
        causes.retain(|cause| cause.rule != "server-log");
    }
    causes.sort_by_key(|cause| cause.certainty == Certainty::Possibility);
    causes
}

/// The sentence for a run in which other work disturbed every point that could show a cause.
fn unquiet_sentence(evidence: &Evidence<'_>) -> Option<String> {
    let (points, why) = evidence.unquiet()?;
    let which =
        if points == 1 { "the only point".to_string() } else { format!("all {} points", grouped(points as f64)) };
    Some(format!(
        "The machine was not quiet enough to name a cause: {which} beyond the yield point or where the server fails \
         were disturbed (the last: {why}). Repeat it on a quiet machine."
    ))
}

/// Puts findings into words.
pub fn sentences(run: &RunDir, findings: &Findings) -> Verdict {
    let run = &*analyze::zones::polling::without_polling_in(run, &findings.criteria);
    let evidence = &Evidence::new(run, findings);
    let mut said = Vec::new();
    let mut causes = causes(evidence);
    // What the headline names is explained first.
    let named = crate::answer::full(run, findings, &causes).and_then(|full| full.rule);
    causes.sort_by_key(|cause| named.as_ref().is_some_and(|named| *named != cause.rule));
    if let Some(closed) = &findings.connections {
        closed_sentences(evidence, closed, &causes, &mut said);
    }
    if let Some(open) = &findings.rate {
        open_sentences(open, &mut said);
    }
    if let Some(unloading) = &findings.unloading
        && !causes.iter().any(|cause| cause.rule == "stays-down")
    {
        said.push(unloading.sentence());
    }
    said.extend(sure::sentence(run, findings));
    let unquiet = unquiet_sentence(evidence);
    let unseen = cause::unseen(evidence, &causes);
    let doubts = doubts::collect(run, findings);
    let always = fails_at_every_load(findings, &doubts).filter(|_| causes.is_empty());
    let why_no_cause = || unquiet.iter().chain(&always).chain(&unseen);
    said.extend(why_no_cause().cloned());
    said.extend(causes.iter().map(Cause::sentence));
    said.extend(findings.axes.iter().flat_map(analyze::axis::sentences));
    said.extend(findings.drift.as_ref().and_then(drift_sentence));
    let mut answer = crate::answer::derive(run, findings, &causes);
    let full = cause::saturated(evidence, &causes, unquiet.is_none() && unseen.is_none());
    if let (Some(answer), Some(experiment)) = (&mut answer, full.as_ref().and_then(|full| full.experiment.clone())) {
        answer.settings.push(experiment);
    }
    Verdict {
        headline: headline(run, findings, answer.as_ref()),
        answer,
        sentences: said,
        saturated: full.map(|full| full.because),
        why_no_cause: why_no_cause().next().cloned().filter(|_| causes.is_empty()),
        causes,
        checked: checked::stages(evidence),
        doubts,
    }
}

/// The remedy for requests that fail whatever the load.
fn fails_at_every_load(findings: &Findings, doubts: &[Doubt]) -> Option<String> {
    let found = &findings.main()?.failure_point;
    let failed = doubts.iter().find(|doubt| doubt.kind == DoubtKind::ServerErrors)?;
    (found.held.is_none() && found.failed.is_some())
        .then(|| format!("Requests fail at every load. To try: {}.", failed.remedy))
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

fn headline(run: &RunDir, findings: &Findings, answer: Option<&Answer>) -> String {
    let mut parts: Vec<String> = answer.map(|answer| answer.sentence.clone()).into_iter().collect();
    // The first of the slowed places, which would help most if it were cheaper.
    let first = |at: &usize| *at == 0 || findings.axes[*at].slowed.is_none();
    let axes = (0..findings.axes.len()).filter(first).map(|at| &findings.axes[at]);
    parts.extend(axes.filter_map(analyze::axis::headline));
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

fn single_headline(run: &RunDir) -> Option<String> {
    // The load is not what a profile measures.
    if matches!(run.record.scenario.kind, RunKind::Profile(_)) && !run.points.is_empty() {
        let why = analyze::profile::why_not_sampled(run).unwrap_or_else(|| "no point was sampled".into());
        return Some(format!("What the layers cost was not measured: {why}."));
    }
    let point = run.points.iter().find(|point| point.sweep != Sweep::Yardstick)?;
    let pace = match point.offered_per_sec() {
        Some(rate) => format!("{}/s offered", format_si(rate)),
        None => load_words(point.connections as f64, Sweep::Connections),
    };
    let throughput =
        point.value(names::THROUGHPUT).map_or("no throughput".into(), |value| format!("{}/s", format_si(value)));
    let p99 = point
        .figures
        .get(names::RESPONSE_P99)
        .and_then(|figure| Some((figure.value?, if figure.at_least { "at least " } else { "" })))
        .map(|(us, bound)| format!(", response time p99 {bound}{}", format_nanos(us * 1e3)))
        .unwrap_or_default();
    Some(format!("{throughput} at {pace}{p99}, {} failed.", percent(point.outcomes.failed_ratio())))
}

fn closed_sentences(evidence: &Evidence<'_>, closed: &SweepFindings, causes: &[Cause], said: &mut Vec<String>) {
    let unit = Sweep::Connections;
    said.extend(cause::saturated_first(evidence, closed, causes));
    if let Some(peak) = &closed.peak
        && let Some(last) = closed.levels.last()
    {
        let change = peak.end_ratio.map(|within| within - 1.0);
        let after = if last.load <= peak.load {
            ", the highest load tried".into()
        } else {
            let end = load_words(last.load, unit);
            match change {
                Some(change) if change < -0.05 => format!("; at {end} it was {} lower", percent(-change)),
                Some(_) => format!(" and was about the same at {end}"),
                None => String::new(),
            }
        };
        said.push(format!(
            "Throughput peaked at {}/s with {}{after}.",
            format_si(peak.per_sec),
            load_words(peak.load, unit)
        ));
    }
    said.extend(cost_sentence(closed));
    said.extend(layer_sentence(evidence, closed));
    said.extend(facts::short_connections(evidence, closed));
    said.push(failure_sentence(closed, evidence.criteria().p99_limit_ns));
}

fn cost_sentence(sweep: &SweepFindings) -> Option<String> {
    let cpu = sweep.cpu.as_ref()?;
    let (low, high) = (load_words(cpu.lowest_load, sweep.sweep), load_words(cpu.highest_load, sweep.sweep));
    if !cpu.is_growth() {
        return Some(format!("A request's CPU time did not grow with load: {:.1} us at {low}.", cpu.lowest_us));
    }
    let most = cpu.grew_most.as_ref().map_or(String::new(), |part| format!("; most of the growth is {part} time"));
    let lost = &sweep.efficiency_point;
    let from = match (estimate_words(lost, sweep.sweep), lost.high) {
        (Some(words), Some(_)) => format!(" It grows from about {words} on."),
        _ => String::new(),
    };
    Some(format!(
        "A request cost {} more CPU at {high} than at {low}, compared within repeats{most}.{from}",
        percent(cpu.ratio - 1.0)
    ))
}

/// Layers and functions whose CPU time grew from the cheapest load to the most expensive; empty without a profile.
fn layer_sentence(evidence: &Evidence<'_>, closed: &SweepFindings) -> Option<String> {
    /// Functions named; the table has the rest.
    const NAMED: usize = 3;
    let cpu = closed.cpu.as_ref().filter(|cpu| cpu.is_growth())?;
    let at = |load: f64| -> Vec<&Point> { evidence.points_at(closed.sweep, load).collect() };
    let (low, high) = (at(cpu.lowest_load), at(cpu.highest_load));
    let confidence = evidence.criteria().confidence_ratio;
    let words = |grown: &[CpuChange]| {
        let one = |growth: &CpuChange| {
            let ends = growth.difference_us.interval();
            let by = ends.map_or(String::new(), |(low, high)| format!(" (by {low:.1} to {high:.1})"));
            let name = plain(&growth.name, 60);
            format!("{name} from {:.1} to {:.1} us{by}", growth.from_us, growth.to_us)
        };
        grown.iter().take(NAMED).map(one).collect::<Vec<_>>().join(", ")
    };
    let layers = analyze::growth::layers(&low, &high, confidence);
    if layers.is_empty() {
        return None;
    }
    let functions = analyze::growth::functions(&low, &high, confidence);
    let inside = match functions.as_slice() {
        [] => String::new(),
        grown => format!(" These functions grew, callees excluded: {}.", words(grown)),
    };
    Some(format!("By layer of the network stack, sampled, it grew in {}.{inside}", words(&layers)))
}

fn failure_sentence(sweep: &SweepFindings, limit_ns: u64) -> String {
    let found = &sweep.failure_point;
    match found.place {
        PointPlace::Within => format!("Failure: {}.", found.reason),
        PointPlace::Beyond => format!("No failure: it was {}.", found.reason),
        PointPlace::Unknown => format!("The load at which it fails is {}.", found.reason),
        PointPlace::Below => {
            let lowest = sweep.levels.iter().find(|level| Some(level.load) == found.failed);
            let is_slow =
                lowest.and_then(|level| level.response_p99_us).is_some_and(|p99| p99.median * 1e3 > limit_ns as f64);
            let remedy = if is_slow { " If requests normally take that long, set `--p99-limit`." } else { "" };
            format!("It fails {}.{remedy}", found.reason)
        }
    }
}

fn open_sentences(open: &SweepFindings, said: &mut Vec<String>) {
    let found = &open.failure_point;
    said.push(match found.place {
        PointPlace::Within => format!("At fixed rates {}.", found.reason),
        PointPlace::Beyond => format!("At fixed rates the failure point was {}.", found.reason),
        PointPlace::Below => format!("At fixed rates it fails {}.", found.reason),
        PointPlace::Unknown => format!("At fixed rates the failure point is {}.", found.reason),
    });
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
