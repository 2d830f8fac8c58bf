//! A recording's findings for a terminal.

use crate::doubt;
use crate::text::table::Titled;
use crate::text::wrap;
use analyze::watch::WatchFindings;
use analyze::watch::tables::{Cell, FigureTable};
use record::RunDir;
use record::units::count;

/// Headline, sentences, tables, doubts.
pub fn run(run: &RunDir, findings: &WatchFindings) -> String {
    let mut out = format!("{}\n\n", headline(run, findings));
    for sentence in sentences(findings) {
        out.push_str(&wrap(&sentence, "- ", "  "));
    }
    for table in &findings.tables.tables {
        out.push('\n');
        out.push_str(&titled(table).text(true));
    }
    out.extend(unreadable(findings).map(|said| format!("\n{said}\n")));
    out.push_str(&doubt::text(&run.record.doubts));
    out
}

pub(super) fn sentences(findings: &WatchFindings) -> Vec<String> {
    let mut sentences = analyze::watch::sentences(findings);
    sentences.extend(findings.lines.as_ref().err().map(|why| format!("CPU against rate: {why}.")));
    sentences.extend(findings.stalls.as_ref().err().map(|why| format!("Stalls: {why}.")));
    sentences.extend(findings.headroom.iter().flat_map(super::headroom::sentences));
    sentences
}

/// The number of unreadable lines, and the first of them.
pub(super) fn unreadable(findings: &WatchFindings) -> Option<String> {
    let lines = count(findings.unreadable_lines, "line");
    findings.first_unreadable.as_ref().map(|first| format!("{lines} of watch.jsonl could not be read; {first}"))
}

/// The watched server, the rate of requests, and the duration.
pub(super) fn headline(run: &RunDir, findings: &WatchFindings) -> String {
    let rate = findings
        .requests_per_sec
        .map_or("requests not counted".to_string(), |rate| format!("{} requests/s", record::units::format_si(rate)));
    let program = run
        .record
        .server_facts
        .get("program")
        .map_or(String::new(), |program| format!(", {}", record::text::plain(program, 60)));
    format!(
        "{}{program}: {rate} over {:.0} s, {}",
        record::text::plain(&run.record.scenario.url(), 60),
        findings.seconds,
        count(findings.readings, "reading")
    )
}

pub(super) fn titled(table: &FigureTable) -> Titled {
    let row = |(label, cells): &(String, Vec<Cell>)| (label.clone(), cells.iter().map(super::cell_words).collect());
    Titled {
        title: table.title.into(),
        note: table.note.clone(),
        columns: Titled::columns(&table.columns),
        rows: table.rows.iter().map(row).collect(),
    }
}
