//! The report: one HTML file without external resources. The template engine escapes text, and a
//! Content-Security-Policy allows only the page's own style and script, by hash. The page is readable without script;
//! with it, the charts are interactive.

pub(crate) mod axis;
pub(crate) mod beside;
mod charts;
pub mod compare;
pub(crate) mod frame;
mod latency;
pub(crate) mod layers;
mod loads;
pub(crate) mod plain;
pub(crate) mod predicted;
mod slow_down;
pub(crate) mod tables;
pub mod tool;
pub(crate) mod watched;

use crate::chart::{ChartRow, Margins, Size};
use crate::doubt;
use crate::text::table::Table;
use crate::text::unbroken;
use analyze::zones::unloading::Unloading;
use analyze::zones::{self, Findings, PointFinding, PointPlace, SweepFindings, estimate_number, interval};
pub use charts::CaptionedChart;
use frame::PageFrame;
use record::owner::{ELSEWHERE, OwnerState};
use record::scenario::FindRun;
use record::units::{count, format_si};
use record::{Doubt, RunDir, RunKind, Status, Sweep};
use serde::Serialize;
use serde_json::{Value, json};
use verdict::answer::Answer;
use verdict::{self, Verdict};

/// Sizes of a chart on a wide page and on a phone.
pub(crate) const WIDE: Size = Size { width: 540.0, height: 300.0 };
const NARROW: Size = Size { width: 358.0, height: 270.0 };

#[derive(Serialize)]
struct RunPage {
    #[serde(flatten)]
    frame: PageFrame,
    causes: Vec<Value>,
    settings: Vec<String>,
    numbers: Vec<KeyNumber>,
    doubts: Vec<doubt::DoubtRow>,
    sections: Vec<Section>,
    workload: Option<Value>,
    slowest: Option<Table>,
    points: Vec<Value>,
    points_left_out: usize,
    criteria: Vec<(&'static str, String, &'static str)>,
}

#[derive(Serialize)]
pub(crate) struct DrawnFigure {
    title: &'static str,
    caption: String,
    wide: String,
    narrow: String,
    x_name: String,
    unit: &'static str,
    interval_name: &'static str,
    rows: Vec<ChartRow>,
}

#[derive(Serialize, Default)]
struct Section {
    title: &'static str,
    note: String,
    figures: Vec<DrawnFigure>,
    levels: Vec<Value>,
    load_name: &'static str,
    tables: Vec<Table>,
    loads: Vec<loads::LoadDetails>,
}

#[derive(Serialize)]
pub(crate) struct KeyNumber {
    pub name: &'static str,
    pub value: String,
    pub unit: &'static str,
    /// Both ends of the interval; may be empty.
    pub interval: String,
    pub detail: String,
}

impl KeyNumber {
    /// Interval and detail in one line.
    pub fn details(&self) -> String {
        let parts = [self.interval.as_str(), self.detail.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Value and unit in one line of text.
    pub fn value_and_unit(&self) -> String {
        let gap = if self.unit.is_empty() || self.unit.starts_with('/') { "" } else { " " };
        format!("{}{gap}{}", self.value, self.unit)
    }
}

/// The report of a run as one HTML document, also for an empty, interrupted or abandoned run.
pub fn html(run: &RunDir) -> String {
    let findings = zones::of_run(run);
    let mut verdict = verdict::sentences(run, &findings);
    let (mut counter, mut unreadable) = (0, Vec::new());
    let mut sections: Vec<Section> =
        planned_first(&findings).map(|sweep| section(run, sweep, &findings, &mut counter, &mut unreadable)).collect();
    sections.extend(slow_down::section(run, &findings.axes, &mut counter));
    let others = findings.axes.iter().filter(|found| found.slowed.is_none());
    sections.extend(others.map(|found| axis::section(run, found, &mut counter)));
    sections.extend(predicted::section(run, &mut counter));
    sections.extend(analyze::compare::compared_run(run).and_then(|other| beside::section(run, &other, &mut counter)));
    let singles = single_figures(run, &mut counter, &mut unreadable);
    verdict.doubts.extend(unreadable);
    if sections.is_empty() && !singles.is_empty() {
        sections.push(Section { title: "Latency", figures: singles, ..Section::default() });
    }
    let (points, left_out) = tables::points(run);
    let proof = verdict::proof::kept(run).map(|proof| crate::proof::sentence(&proof));
    let page = RunPage {
        frame: PageFrame::new(
            run,
            status(run),
            &verdict.headline,
            verdict.without_causes().map(str::to_string).chain(proof).collect(),
        ),
        causes: causes(&verdict),
        settings: verdict.answer.iter().flat_map(|answer| &answer.settings).map(|setting| unbroken(setting)).collect(),
        numbers: key_numbers(&findings, verdict.answer.as_ref())
            .into_iter()
            .map(|number| KeyNumber { detail: unbroken(&number.detail), ..number })
            .collect(),
        doubts: doubt::rows(&verdict.doubts),
        sections,
        workload: workload(run),
        slowest: crate::run::slowest::of_run(run, &findings),
        points,
        points_left_out: left_out,
        criteria: tables::criteria(&findings.criteria),
    };
    frame::render("report.html", &page, || crate::run::full(run, &findings, &verdict))
}

/// The open loop first, because its capacity is for planning.
fn planned_first(findings: &Findings) -> impl Iterator<Item = &SweepFindings> {
    findings.rate.iter().chain(&findings.connections)
}

fn status(run: &RunDir) -> String {
    let points = count(run.points.len(), "point");
    match run.record.status {
        Status::Complete => format!("complete, {points}"),
        Status::Interrupted => format!("interrupted, {points} kept"),
        Status::Running => match run.writer_life() {
            OwnerState::Alive => format!("still running, {points} so far"),
            OwnerState::Ended => format!("abandoned: its process was killed, {points} kept"),
            OwnerState::Elsewhere => format!("not finished; {ELSEWHERE}; {points} kept"),
        },
    }
}

/// Draws figures; on a wide page with equal margins, so that their plots are aligned.
pub(crate) fn draw(figures: Vec<CaptionedChart>, counter: &mut usize) -> Vec<DrawnFigure> {
    let margins = figures.iter().map(|figure| figure.chart.margins(WIDE.height)).fold(Margins::default(), Margins::max);
    figures
        .into_iter()
        .map(|figure| {
            *counter += 1;
            let narrow = figure.chart.margins(NARROW.height);
            DrawnFigure {
                title: figure.title,
                caption: unbroken(&figure.caption),
                wide: figure.chart.svg(&format!("c{counter}w"), WIDE, margins),
                narrow: figure.chart.svg(&format!("c{counter}n"), NARROW, narrow),
                x_name: figure.chart.x_name.clone(),
                unit: figure.chart.unit,
                interval_name: figure.chart.interval_name,
                rows: figure.chart.rows(),
            }
        })
        .collect()
}

fn section(
    run: &RunDir,
    sweep: &SweepFindings,
    findings: &Findings,
    counter: &mut usize,
    unreadable: &mut Vec<Doubt>,
) -> Section {
    let mut figures = charts::of_sweep(run, sweep, findings);
    figures.extend(latency::of_sweep(run, sweep, unreadable));
    figures.extend(watched::figures(run, sweep));
    let is_rate = sweep.sweep == Sweep::Rate;
    let is_live = matches!(&run.record.scenario.kind, RunKind::Find(FindRun { shift: Some(_), .. }));
    let what = if is_live {
        "Live requests, a share of which was moved to the server; times are measured on the server's machine."
    } else if is_rate {
        "Requests follow a schedule that does not wait for responses, like independent users."
    } else {
        "A fixed number of connections, each sending its next request when the response is complete."
    };
    Section {
        title: if is_rate { "Open loop over rate" } else { "Closed loop over connections" },
        note: unbroken(&format!(
            "{what} Yield point: {}. Failure point: {}.",
            sweep.yield_point.reason, sweep.failure_point.reason
        )),
        figures: draw(figures, counter),
        levels: tables::levels(sweep),
        load_name: if is_rate { "offered/s" } else { "connections" },
        tables: crate::run::account::page_table(run, sweep)
            .into_iter()
            .chain(watched::tables(run, sweep.sweep))
            .collect(),
        loads: loads::of_sweep(run, sweep),
    }
}

/// Results by class of the point with the highest throughput. The other points list their own.
fn workload(run: &RunDir) -> Option<Value> {
    let throughput = |point: &record::Point| point.value(record::names::THROUGHPUT).unwrap_or(0.0);
    let has_results = |point: &&record::Point| !point.workload.is_empty() && point.sweep != Sweep::Yardstick;
    let point = run.points.iter().filter(has_results).max_by(|a, b| throughput(a).total_cmp(&throughput(b)))?;
    let note = format!(
        "Point {:03}, with the highest throughput ({}/s); those of each point are listed with it below.",
        point.index,
        format_si(throughput(point))
    );
    Some(json!({
        "note": unbroken(&note),
        "classes": crate::run::class_tables(&point.workload),
        "replay": point.workload.replay.as_ref().map(crate::run::replay_facts).unwrap_or_default(),
    }))
}

fn single_figures(run: &RunDir, counter: &mut usize, unreadable: &mut Vec<Doubt>) -> Vec<DrawnFigure> {
    let points = run.points.iter().filter(|point| matches!(point.sweep, Sweep::Single | Sweep::Other)).take(4);
    draw(points.filter_map(|point| latency::of_point(run, point, unreadable)).collect(), counter)
}

pub(crate) fn key_numbers(findings: &Findings, answer: Option<&Answer>) -> Vec<KeyNumber> {
    let mut numbers = Vec::new();
    if let Some(answer) = answer {
        numbers.extend(crate::run::numbers(answer, findings));
    }
    let came_down = |unloading: &&Unloading| unloading.recovery_point.place != PointPlace::Beyond;
    if let Some(unloading) = findings.unloading.as_ref().filter(came_down) {
        numbers.push(key_point("recovery point", &unloading.recovery_point, Sweep::Connections));
    }
    for axis in &findings.axes {
        numbers.extend(axis::key_numbers(axis));
    }
    numbers
}

fn key_point(name: &'static str, point: &PointFinding, sweep: Sweep) -> KeyNumber {
    let is_rate = sweep == Sweep::Rate;
    let (value, unit) = match estimate_number(point, sweep) {
        Some(number) if is_rate => (number, "/s"),
        Some(number) => {
            let unit = if number == "1" { "connection" } else { "connections" };
            (number, unit)
        }
        None => ("none".into(), ""),
    };
    let (interval, detail) = match point.estimate {
        Some(_) => {
            let range = interval(point, sweep);
            (range.trim_matches([' ', '(', ')']).to_string(), format!("n = {}", point.n_repeats))
        }
        None => (String::new(), point.reason.clone()),
    };
    KeyNumber { name, value, unit, interval, detail }
}

fn causes(verdict: &Verdict) -> Vec<Value> {
    let parts = |text: &str| -> Vec<(String, bool)> {
        text.split('`').enumerate().map(|(at, part)| (part.to_string(), at % 2 == 1)).collect()
    };
    let row = |cause: &verdict::Cause| {
        json!({
            "cause": match cause.certainty {
                verdict::Certainty::Cause => cause.cause.clone(),
                verdict::Certainty::Possibility => format!("possible, not proven: {}", cause.cause),
            },
            "because": unbroken(&cause.because),
            "remedy": parts(&cause.remedy),
            "source": cause.source.clone(),
        })
    };
    verdict.causes.iter().map(row).collect()
}
