//! The index as one HTML page: the table, a filter, and trends of each scenario with several runs.

use super::{began, cells, headline, shown, trends};
use crate::page::frame::{SCRIPT, STYLE, render, source_hash};
use crate::page::{DrawnFigure, draw};
use crate::text::unbroken;
use record::units::format_si;
use serde::Serialize;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use verdict::index::{Index, RunRow};

const OWN_STYLE: &str = include_str!("style.css");
const OWN_SCRIPT: &str = include_str!("filter.js");
/// Maximum scenarios with charts; each has up to four charts in two sizes.
const MOST_TRENDS: usize = 40;
/// Maximum runs in a scenario's charts; the newest ones are shown.
const MOST_IN_CHART: usize = 500;
const MOST_LISTED: usize = 60;

#[derive(Serialize)]
struct RunsPage {
    style: String,
    style_hash: String,
    scripts: [&'static str; 2],
    script_hashes: [String; 2],
    folder: String,
    headline: String,
    rows: Vec<Value>,
    unreadable: Vec<Value>,
    trends: Vec<Trend>,
    trends_left_out: usize,
    version: &'static str,
}

#[derive(Serialize)]
struct Trend {
    number: usize,
    title: String,
    note: String,
    figures: Vec<DrawnFigure>,
    /// Runs that are worse or better than the preceding one, newest first.
    changes: Vec<Value>,
    changes_left_out: usize,
}

/// The page. Links are relative to `folder`, the absolute path of its directory.
pub fn html(index: &Index, folder: &Path) -> String {
    let style = format!("{STYLE}{OWN_STYLE}");
    let (trends, trends_left_out) = all_trends(index);
    let has_trend = |row: &RunRow| trends.iter().any(|trend| trend.number == row.scenario);
    let page = RunsPage {
        style_hash: source_hash(&style),
        style,
        scripts: [SCRIPT, OWN_SCRIPT],
        script_hashes: [SCRIPT, OWN_SCRIPT].map(source_hash),
        folder: shown(&index.folder),
        headline: headline(index),
        rows: index.runs.iter().map(|run| row(run, folder, has_trend(run))).collect(),
        unreadable: index.unreadable.iter().map(|one| json!({ "path": shown(&one.path), "why": one.why })).collect(),
        trends,
        trends_left_out,
        version: env!("CARGO_PKG_VERSION"),
    };
    render("runs.html", &page, || super::text(index))
}

fn row(run: &RunRow, folder: &Path, has_trend: bool) -> Value {
    let [kind, plan, breaks, peak, p99, cpu] = cells(run);
    let before = run.before.as_ref();
    let (tag, result) = match before {
        None => ("", ""),
        Some(before) if before.is_worse() => ("failure", "worse"),
        Some(before) if !before.better.is_empty() => ("elastic", "better"),
        Some(before) => match before.conclusion {
            Some(analyze::compare::Conclusion::NoRegression) => ("unknown", "no worse"),
            _ => ("unknown", "could not tell"),
        },
    };
    let interval = run.peak.and_then(|peak| peak.low.zip(peak.high));
    json!({
        "began": began(run),
        "kind": kind,
        "state": if run.state == "complete" { "" } else { run.state },
        "server": run.server,
        "versions": versions(run),
        "request": run.request,
        "scenario": run.scenario,
        "has_trend": has_trend,
        "plan": plan,
        "breaks": breaks,
        "peak": peak,
        "peak_interval": interval.map(|(low, high)| format!("({} to {})", format_si(low), format_si(high))),
        "p99": unbroken(&p99),
        "cpu": cpu,
        "tag": tag,
        "result": result,
        "words": before.map(|before| before.summary()),
        "doubts": run.doubts,
        "name": run.name,
        "path": shown(&run.path),
        "report": run.has_report.then(|| link(folder, &run.path.join("report.html"))),
    })
}

fn versions(run: &RunRow) -> String {
    run.versions.iter().map(|(what, version)| format!("{what} {version}")).collect::<Vec<_>>().join(", ")
}

/// Scenarios with several runs, and the number left out.
fn all_trends(index: &Index) -> (Vec<Trend>, usize) {
    let mut numbers: Vec<usize> = index.runs.iter().map(|row| row.scenario).collect();
    numbers.sort_unstable();
    let (mut counter, mut trends, mut left_out) = (0, Vec::new(), 0);
    for number in numbers.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).map(|same| same[0]) {
        if trends.len() == MOST_TRENDS {
            left_out += 1;
            continue;
        }
        let newest_first = index.runs.iter().filter(|row| row.scenario == number);
        let mut runs: Vec<&RunRow> = newest_first.take(MOST_IN_CHART).collect();
        runs.reverse();
        trends.push(trend(number, &runs, &mut counter));
    }
    (trends, left_out)
}

fn trend(number: usize, runs: &[&RunRow], counter: &mut usize) -> Trend {
    let (first, last) = (runs[0], runs[runs.len() - 1]);
    let server = last.server.as_ref().map(|server| format!("{server}, ")).unwrap_or_default();
    let changes: Vec<Value> = runs.iter().rev().filter_map(|run| change(run)).collect();
    let changes_left_out = changes.len().saturating_sub(MOST_LISTED);
    Trend {
        number,
        title: format!("Scenario {number}: {server}{} ({})", last.request, last.kind),
        note: format!(
            "{} runs from {} to {} UTC. Each is compared with the previous one, as by straingauge compare.",
            runs.len(),
            began(first),
            began(last)
        ),
        figures: draw(trends::figures(runs), counter),
        changes: changes.into_iter().take(MOST_LISTED).collect(),
        changes_left_out,
    }
}

/// Describes a run that is worse or better than the preceding one.
fn change(run: &RunRow) -> Option<Value> {
    let before = run.before.as_ref().filter(|before| before.is_worse() || !before.better.is_empty())?;
    let words = ["straingauge", "compare"].map(String::from).into_iter();
    let paths = [&before.path, &run.path].map(|path| path.to_string_lossy().into_owned());
    let command = record::shell::joined(words.chain(paths).collect::<Vec<_>>().iter().map(String::as_str));
    Some(json!({
        "began": began(run),
        "words": before.summary(),
        "doubts": before.doubts,
        "command": record::text::plain(&command, 2000),
    }))
}

/// A percent-encoded relative link; both paths are absolute.
fn link(folder: &Path, to: &Path) -> String {
    let (from, to): (Vec<Component<'_>>, Vec<Component<'_>>) =
        (folder.components().collect(), to.components().collect());
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from[same..].iter().map(|_| "..".to_string());
    let down = to[same..].iter().map(|part| encoded(part.as_os_str().as_bytes()));
    let parts: Vec<String> = up.chain(down).collect();
    // Without `./`, a first name with a colon would look like a scheme.
    format!("./{}", parts.join("/"))
}

fn encoded(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => (*byte as char).to_string(),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(letter).collect()
}
