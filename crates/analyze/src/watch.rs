//! The findings of a recording of `straingauge watch`: tables after Almeida, Almeida and Yates ("Measuring the
//! Behavior of a World-Wide Web Server", 1996), and what Banga and Mogul ("Scalable kernel performance for Internet
//! servers under realistic loads", 1998, section 6) drew from live servers: CPU time against request rate, and rates
//! per second, which show a server that stops periodically.
//!
//! [`headroom`] estimates how much more load the server can take, also during a watch. [`recording`] reads the lines,
//! [`lines`] fits idle, user and kernel time against the rate, [`stalls`] finds silences and their period, [`tables`]
//! has the tables, and `processes` the one by process. The crate `report` draws them.

pub mod headroom;
pub mod lines;
mod processes;
pub mod recording;
pub mod stalls;
pub mod tables;
mod thinned;

pub use recording::Recording;

use lines::Lines;
use record::watch::Headroom;
use serde::Serialize;
use stalls::Stalls;
use tables::Tables;

/// The findings of a recording.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct WatchFindings {
    /// Seconds from the first reading to the last.
    pub seconds: f64,
    /// Number of readable readings.
    pub readings: u64,
    /// Number of lines that could not be read.
    pub unreadable_lines: u64,
    /// The first unreadable line with its number and reason.
    pub first_unreadable: Option<String>,
    /// Requests per second over the whole recording.
    pub requests_per_sec: Option<f64>,
    /// Headroom: how much more load the server can take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// CPU time against the rate.
    pub lines: Result<Lines, String>,
    /// Stalls of the request rate.
    pub stalls: Result<Stalls, String>,
    /// Tables of classes, connections and losses.
    pub tables: Tables,
}

/// Derives all findings from a recording.
pub fn find(recording: &Recording) -> WatchFindings {
    let samples = &recording.samples;
    let span = samples.first().zip(samples.last());
    let seconds = span.map_or(0.0, |(first, last)| last.seconds - first.seconds);
    let requests = span.map(|(first, last)| last.requests.saturating_sub(first.requests));
    WatchFindings {
        seconds,
        readings: recording.readings,
        unreadable_lines: recording.unreadable_lines,
        first_unreadable: recording.first_unreadable.clone(),
        requests_per_sec: requests.filter(|_| seconds > 0.0 && recording.has_requests).map(|n| n as f64 / seconds),
        headroom: recording.headroom.clone(),
        lines: lines::find(recording),
        stalls: stalls::find(recording),
        tables: tables::tables(recording),
    }
}

/// The findings as sentences.
pub fn sentences(findings: &WatchFindings) -> Vec<String> {
    let mut said = Vec::new();
    if let Ok(lines) = &findings.lines {
        said.extend(lines::sentences(lines));
    }
    if let Ok(found) = &findings.stalls {
        said.extend(stalls::sentences(found));
    }
    if let Some(check) = &findings.tables.cpu_check {
        said.push(format!(
            "Requests, accepting and closing explain {:.1} % of the CPU time that the scheduler accounts to the server \
             ({:.3} CPUs).",
            check.explained_ratio * 100.0,
            check.scheduler_cpus
        ));
    }
    said
}
