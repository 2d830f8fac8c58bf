//! The index of a folder of runs: the main figures of each run, which runs measured the same scenario, and whether
//! each is worse than the one before it by the test of [`analyze::compare`].

use crate::answer::Answer;
use analyze::compare::{self, Comparison, Conclusion, Difference, Outcome, THRESHOLD_RATIO};
use analyze::point::good_per_sec;
use analyze::zones::{self, Level, Peak, SweepFindings, cpu_us};
use record::owner::OwnerState;
use record::runs::FoundRuns;
use record::text::plain;
use record::{Point, RunDir, RunError, RunRecord, Severity, Status, Sweep, names};
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Runs of a folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Index {
    /// Path of the folder.
    #[serde(serialize_with = "shown")]
    pub folder: PathBuf,
    /// Runs, newest first.
    pub runs: Vec<RunRow>,
    /// Runs that could not be read, and places that were not searched.
    pub unreadable: Vec<Unreadable>,
    /// Runs that a filter left out.
    pub filtered_out: usize,
}

/// One run of the folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RunRow {
    /// The run directory.
    #[serde(serialize_with = "shown")]
    pub path: PathBuf,
    /// Whether the run has a `report.html`.
    pub has_report: bool,
    /// Start, Unix milliseconds.
    pub started_unix_ms: u64,
    /// `find`, `load`, `watch`, `profile`, or the name of the tool that made the run.
    pub kind: String,
    /// State of the run: `complete`, `interrupted`, `running`, `abandoned` (its process was killed) or `unfinished`
    /// (its process belongs to another machine, container or boot).
    pub state: &'static str,
    /// Name of the run. Untrusted text, made safe.
    pub name: String,
    /// URL or port of the server.
    pub url: String,
    /// Program of the server, if known.
    pub server: Option<String>,
    /// Versions that may differ between runs of one scenario: of the server or its executable, the kernel, and
    /// straingauge.
    pub versions: Vec<(&'static str, String)>,
    /// The request to the server: `GET /1k.bin`, `webstone`.
    pub request: String,
    /// Number of the scenario, equal for runs with equal scenarios; the newest run has scenario 1.
    pub scenario: usize,
    /// Sweep to which the figures belong.
    pub sweep: Option<Sweep>,
    /// Number to plan with, where the server breaks, and how certain that is; for `find`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Highest throughput of the sweep, or throughput of a single load.
    pub peak: Option<Peak>,
    /// The load of the next two figures: the highest up to the yield point, or the peak's.
    pub load: Option<f64>,
    /// 99th percentile of the response time at that load, microseconds.
    pub response_p99_us: Option<f64>,
    /// CPU time of the server per request at that load, microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// Doubts about the run and its points, of severity warning and above.
    pub doubts: usize,
    /// Comparison with the preceding run of the same scenario.
    pub before: Option<Before>,
}

/// Comparison of a run with the preceding one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Before {
    /// The preceding run.
    #[serde(serialize_with = "shown")]
    pub path: PathBuf,
    /// Conclusion of `compare`; absent if the runs have no load in common.
    pub conclusion: Option<Conclusion>,
    /// Figures that are worse, the largest change first.
    pub worse: Vec<Difference>,
    /// Figures that are better, the largest change first.
    pub better: Vec<Difference>,
    /// Reasons not to trust the comparison.
    pub doubts: Vec<String>,
}

/// A run that could not be read.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Unreadable {
    /// Path of the run directory.
    #[serde(serialize_with = "shown")]
    pub path: PathBuf,
    /// Reason in a sentence. Untrusted text, made safe.
    pub why: String,
}

/// Selects runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Earliest start of the runs, Unix milliseconds.
    pub since_unix_ms: Option<u64>,
    /// Words that must all occur in the run's text (kind, server, request, URL, name, folder, versions, result), in
    /// any case of letters.
    pub only: Vec<String>,
}

impl Filter {
    fn takes(&self, row: &RunRow) -> bool {
        let text = row.text().to_lowercase();
        self.since_unix_ms.is_none_or(|since| row.started_unix_ms >= since)
            && self.only.iter().all(|word| text.contains(&word.to_lowercase()))
    }
}

impl RunRow {
    fn text(&self) -> String {
        let versions: Vec<_> = self.versions.iter().map(|(what, version)| format!("{what} {version}")).collect();
        let before = self.before.as_ref().map_or(String::new(), Before::summary);
        let (path, server) = (self.path.display(), self.server.as_deref().unwrap_or_default());
        format!(
            "{} {server} {} {} {} {path} {} {before}",
            self.kind,
            self.request,
            self.url,
            self.name,
            versions.join(" ")
        )
    }
}

impl Before {
    /// The result in a few words: `worse: throughput 0.82 (0.78 to 0.87) of the run before at 64 conns`.
    pub fn summary(&self) -> String {
        let changed = |word: &str, differences: &[Difference]| {
            let first = differences.first()?;
            let ends = analyze::shown::in_brackets(&first.ratio, |ratio| format!("{ratio:.2}"));
            Some(format!("{word}: {} {:.2}{ends} of the previous run", first.word, first.ratio.value))
        };
        let found = changed("worse", &self.worse).or_else(|| changed("better", &self.better));
        found.unwrap_or_else(|| {
            match self.conclusion {
                Some(Conclusion::NoRegression) => "no worse than the previous run",
                Some(_) => "could not tell from the previous run",
                None => "no load in common with the previous run",
            }
            .into()
        })
    }

    /// Whether a figure is worse than in the preceding run.
    pub fn is_worse(&self) -> bool {
        !self.worse.is_empty()
    }
}

/// Reads the runs that were found in a folder. Holds at most two runs with their points at once.
pub fn index(folder: &Path, found: &FoundRuns, filter: &Filter) -> Index {
    let unreadable = |path: &Path, why: &str| Unreadable { path: path.into(), why: plain(why, 400) };
    let mut index = Index { folder: folder.into(), ..Index::default() };
    let left_out = found.left_out.iter().map(|(path, why)| unreadable(path, why));
    let mut scenarios: Vec<Vec<(PathBuf, RunRecord)>> = Vec::new();
    for path in &found.runs {
        match RunRecord::read(path) {
            Err(error) => index.unreadable.push(unreadable(path, &sentence(error))),
            Ok(record) => match scenarios.iter_mut().find(|same| compare::is_same_scenario(&same[0].1, &record)) {
                Some(same) => same.push((path.clone(), record)),
                None => scenarios.push(vec![(path.clone(), record)]),
            },
        }
    }
    index.unreadable.extend(left_out);
    let newest = |runs: &Vec<(PathBuf, RunRecord)>| runs.last().map(|(_, record)| record.started_unix_ms);
    for runs in &mut scenarios {
        runs.sort_by(|a, b| (a.1.started_unix_ms, &a.0).cmp(&(b.1.started_unix_ms, &b.0)));
    }
    scenarios.sort_by_key(|runs| std::cmp::Reverse(newest(runs)));
    for (number, runs) in scenarios.into_iter().enumerate() {
        let mut earlier: Option<RunDir> = None;
        for (path, _) in runs {
            let run = match RunDir::open(&path) {
                Ok(run) => run,
                Err(error) => {
                    index.unreadable.push(unreadable(&path, &sentence(error)));
                    continue;
                }
            };
            let mut row = row(&run, number + 1);
            row.before = earlier.as_ref().filter(|_| has_loads(&run)).map(|earlier| before(earlier, &run));
            index.runs.push(row);
            if has_loads(&run) {
                earlier = Some(run);
            }
        }
    }
    index.runs.sort_by(|a, b| (b.started_unix_ms, &b.path).cmp(&(a.started_unix_ms, &a.path)));
    let all = index.runs.len();
    index.runs.retain(|row| filter.takes(row));
    index.filtered_out = all - index.runs.len();
    index
}

/// The error without the path, which is shown separately.
fn sentence(error: RunError) -> String {
    match error {
        RunError::Malformed { path, why } => format!("{}: {why}", path.file_name().unwrap_or_default().display()),
        RunError::Read { source, .. } => format!("run.json: {source}"),
        RunError::Newer { found, .. } => {
            format!("schema {found} is from a newer straingauge; use that version")
        }
        other => other.to_string(),
    }
}

/// Whether the run has a comparable point; an interrupted run may have none.
fn has_loads(run: &RunDir) -> bool {
    run.points.iter().any(|point| matches!(point.sweep, Sweep::Connections | Sweep::Rate | Sweep::Single))
}

fn row(run: &RunDir, scenario: usize) -> RunRow {
    let record = &run.record;
    let findings = zones::of_run(run);
    let mut row = RunRow {
        path: run.path.clone(),
        has_report: std::fs::symlink_metadata(run.path.join("report.html")).is_ok_and(|there| there.is_file()),
        started_unix_ms: record.started_unix_ms,
        kind: plain(record.scenario.kind.command(), 40),
        state: match record.status {
            Status::Complete => "complete",
            Status::Interrupted => "interrupted",
            Status::Running => match run.writer_life() {
                OwnerState::Alive => "running",
                OwnerState::Ended => "abandoned",
                OwnerState::Elsewhere => "unfinished",
            },
        },
        name: plain(&record.scenario.name, 120),
        url: plain(&record.scenario.url(), 200),
        server: compare::program(record).map(|program| plain(&program, 60)),
        versions: versions(record),
        request: compare::request_words(record),
        scenario,
        answer: crate::sentences(run, &findings).answer,
        doubts: doubts(run),
        ..RunRow::default()
    };
    match findings.main() {
        Some(sweep) => row.take_sweep(sweep),
        None => row.take_single(run),
    }
    row
}

impl RunRow {
    fn take_sweep(&mut self, sweep: &SweepFindings) {
        let estimate = sweep.yield_point.estimate;
        let peak = sweep.peak.map(|peak| peak.load);
        let level: Option<&Level> = match estimate {
            Some(estimate) => sweep.levels.iter().rfind(|level| level.load <= estimate).or(sweep.levels.first()),
            None => sweep.levels.iter().find(|level| Some(level.load) == peak),
        };
        self.sweep = Some(sweep.sweep);
        self.peak = sweep.peak;
        self.load = level.map(|level| level.load);
        self.response_p99_us = level.and_then(|level| Some(level.response_p99_us?.median));
        self.cpu_us_per_request = level.and_then(|level| Some(level.cpu_us_per_request?.median));
    }

    fn take_single(&mut self, run: &RunDir) {
        let points: Vec<&Point> = run.points.iter().filter(|point| point.sweep == Sweep::Single).collect();
        let Some(first) = points.first() else { return };
        let of = |value: &dyn Fn(&Point) -> Option<f64>| zones::reduced(&points, value).map(|spread| spread.median);
        let load = first.load();
        self.sweep = Some(Sweep::Single);
        self.load = Some(load);
        self.peak = of(&good_per_sec).map(|per_sec| Peak { load, per_sec, low: None, high: None, end_ratio: None });
        self.response_p99_us = of(&|point| point.value(names::RESPONSE_P99));
        self.cpu_us_per_request = of(&cpu_us);
    }
}

fn versions(record: &RunRecord) -> Vec<(&'static str, String)> {
    let of_server = record.server_facts.get("version").map(|version| ("server", version));
    let all = [of_server, Some(("kernel", &record.machine.kernel)), Some(("straingauge", &record.machine.straingauge))];
    let known = all.into_iter().flatten().filter(|(_, version)| !version.is_empty());
    known.map(|(what, version)| (what, plain(version, 60))).collect()
}

fn doubts(run: &RunDir) -> usize {
    let points = run.points.iter().flat_map(|point| &point.doubts);
    let all = run.record.doubts.iter().chain(&run.reading_doubts).chain(points);
    all.filter(|doubt| doubt.severity >= Severity::Warning).count()
}

fn before(earlier: &RunDir, run: &RunDir) -> Before {
    let path = earlier.path.clone();
    let Ok(found) = compare::runs(earlier, run, THRESHOLD_RATIO) else {
        return Before { path, ..Before::default() };
    };
    let (worse, better) = (largest_first(&found, Outcome::Regression), largest_first(&found, Outcome::Improvement));
    Before { path, conclusion: Some(found.conclusion), worse, better, doubts: found.doubts }
}

fn largest_first(found: &Comparison, outcome: Outcome) -> Vec<Difference> {
    let mut same: Vec<Difference> = found.figures.iter().filter(|one| one.outcome == outcome).cloned().collect();
    same.sort_by(|a, b| b.ratio.value.ln().abs().total_cmp(&a.ratio.value.ln().abs()));
    same
}
