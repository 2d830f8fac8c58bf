//! The possible gain of a cache-aware memory layout for a server, computed from a run of `find` before its source is
//! edited. Meaning and limits: `toolkit/stingy/README.md`.
//!
//! Two bounds: Amdahl's (user time becomes 0), and the growth of user time with connections (user time stays as it is
//! at few connections). The second is never above the first.

use analyze::zones;
use record::{RunDir, RunKind, names};
use serde::Deserialize;
use verdict::{PossibleGain, Remedy, SLAB_SHARE, USUAL_CACHE_BYTES, remedy, user_times};

/// The used parts of memwalk's report.
#[derive(Debug, Clone, Deserialize)]
pub struct Memwalk {
    program: Program,
    stages: Vec<Stage>,
}

#[derive(Debug, Clone, Deserialize)]
struct Program {
    cache_line_bytes: u32,
}

#[derive(Debug, Clone, Deserialize)]
struct Stage {
    name: String,
    state: State,
}

#[derive(Debug, Clone, Deserialize)]
struct State {
    bytes: u64,
    lines: u64,
    /// Bytes per request with each bounded object at its smallest.
    least_bytes: Option<u64>,
    least_lines: Option<u64>,
    is_bound: bool,
}

/// The stage at which a request holds the most cache lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Largest {
    /// Name of the stage: untrusted text.
    pub stage: String,
    /// Least and greatest number of bytes of one request.
    pub bytes: (u64, u64),
    /// Least and greatest number of cache lines of one request.
    pub lines: (u64, u64),
    /// Bytes of these lines.
    pub lines_bytes: (f64, f64),
    /// Whether the greatest number is a real bound.
    pub is_bound: bool,
    /// Requests whose lines fit in half of the cache, if each holds the most lines, and the fewest.
    pub fit: (f64, f64),
}

impl Memwalk {
    /// Reads a report (`memwalk -o`).
    ///
    /// # Errors
    /// The reason why it is not a report.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let report: Self = serde_json::from_slice(bytes)?;
        let is_held = report.stages.iter().any(|stage| stage.state.lines > 0);
        anyhow::ensure!(is_held, "none of its stages holds memory of a request");
        Ok(report)
    }

    fn largest(&self, cache_bytes: u64) -> Option<Largest> {
        let Stage { name, state } = self.stages.iter().max_by_key(|stage| stage.state.lines)?;
        let bytes = (state.least_bytes.unwrap_or(state.bytes), state.bytes);
        let lines = (state.least_lines.unwrap_or(state.lines), state.lines);
        let lines_bytes = |lines: u64| lines as f64 * f64::from(self.program.cache_line_bytes);
        let fit = |lines: u64| (SLAB_SHARE * cache_bytes as f64 / lines_bytes(lines).max(1.0)).floor();
        Some(Largest {
            stage: name.clone(),
            bytes,
            lines,
            lines_bytes: (lines_bytes(lines.0), lines_bytes(lines.1)),
            is_bound: state.is_bound,
            fit: (fit(lines.1), fit(lines.0)),
        })
    }
}

/// The answer and the figures behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Connections at the cheap end and at the expensive end.
    pub loads: (f64, f64),
    /// User time of a request at these ends, microseconds.
    pub user_us: (f64, f64),
    /// User share of a request's CPU time at the expensive end.
    pub user_ratio: f64,
    /// Points at the expensive end.
    pub n: usize,
    /// The possible gain.
    pub won: PossibleGain,
    /// The change that would give the gain, if known.
    pub remedy: Option<Remedy>,
    /// Growth of resident memory between the ends, bytes per connection.
    pub memory_per_connection: Option<f64>,
    /// Largest stage according to memwalk.
    pub largest: Option<Largest>,
    /// Second-level cache of the machine, bytes.
    pub cache_bytes: Option<u64>,
    /// Sentences about missing measurements.
    pub not_measured: Vec<String>,
}

/// Why a run has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotChecked {
    /// The run is of another kind.
    #[error("this is a run of {0}, not of find: run straingauge find against the server, with many connections")]
    Kind(String),
    /// The run has no closed loop.
    #[error("the run has no sweep over connections: run find with --sweep connections or both")]
    NoSweep,
    /// The run has no CPU time.
    #[error(
        "the run does not have the server's CPU time at two loads or more: run find on the server's machine, or watch \
         it there"
    )]
    NoCpu,
    /// The cost of a request never rises.
    #[error(
        "a request costs least CPU time with the most connections ({0:.0}): no cost grows with connections that a \
         cache could explain, so neither a new loop nor the slab is worth it"
    )]
    NoGrowth(f64),
    /// The run has too few clock ticks.
    #[error("the server's CPU time is too short to be divided into user and system: run find with a longer --duration")]
    TooShort,
    /// There is only user time, or the figures are impossible.
    #[error(
        "the run shows no system time of the server, so the gain cannot be bounded: run find with a longer \
        --duration"
    )]
    NoBound,
}

/// Checks a run of `find`.
///
/// # Errors
/// [`NotChecked`]
pub fn of_run(run: &RunDir, memwalk: Option<&Memwalk>) -> Result<Check, NotChecked> {
    if !matches!(run.record.scenario.kind, RunKind::Find(_)) {
        return Err(NotChecked::Kind(run.record.scenario.kind.command().to_string()));
    }
    let findings = zones::of_run(run);
    let cpu = findings.connections.as_ref().ok_or(NotChecked::NoSweep)?.cpu.as_ref().ok_or(NotChecked::NoCpu)?;
    if cpu.highest_load <= cpu.lowest_load {
        return Err(NotChecked::NoGrowth(cpu.lowest_load));
    }
    let times = user_times(run, &findings).ok_or(NotChecked::TooShort)?;
    if times.is_high_at_most {
        return Err(NotChecked::TooShort);
    }
    let won = times.won().ok_or(NotChecked::NoBound)?;
    let cache_bytes = run.record.machine.l2_cache_bytes;
    let grown = times.memory().filter(|bytes| bytes.is_finite());
    // The most connections at the expensive end, when the most memory is held.
    let held = times.high.iter().map(|point| point.connections).max().unwrap_or(0) as f64;
    let largest = memwalk.and_then(|report| report.largest(cache_bytes.unwrap_or(USUAL_CACHE_BYTES)));
    let remedy_of = |lines_bytes: Option<f64>| remedy(won, grown, lines_bytes.map(|bytes| bytes * held), cache_bytes);
    let found = remedy_of(largest.as_ref().map(|largest| largest.lines_bytes.1));
    let is_found = remedy_of(largest.as_ref().map(|largest| largest.lines_bytes.0)) == found;
    let mut not_measured = vec![
        "Savings in the kernel (fewer calls of epoll_wait, edge-triggered events): they add to these \
         bounds."
            .to_string(),
        "Cache misses. Growth of user time with another cause, such as the search of a list, remains: straingauge \
         simulate counts the misses."
            .to_string(),
    ];
    if memwalk.is_none() {
        not_measured.push(
            "The lines that a stage holds for a request (--memwalk). Memory that the server allocated at \
                           its start does not show as growth."
                .into(),
        );
    }
    if !is_found {
        not_measured.push(
            "The size of objects with only bounds: the smallest size gives another answer than the largest. Give the \
             usual size (typical_bytes in stingy.toml), and run memwalk again."
                .into(),
        );
    }
    if grown.is_none() {
        not_measured.push(format!("Memory for each connection: the run has no {}.", names::SERVER_MEMORY));
    }
    if cache_bytes.is_none() {
        not_measured.push("The size of the second-level cache: 1 MiB is assumed.".into());
    }
    Ok(Check {
        loads: (times.low_load, held),
        user_us: (times.low_us, times.high_us),
        user_ratio: 1.0 - 1.0 / won.amdahl,
        n: times.high.len(),
        won,
        remedy: found.filter(|_| is_found),
        memory_per_connection: grown.map(|bytes| bytes / (held - times.low_load).max(1.0)),
        largest,
        cache_bytes,
        not_measured,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::server::{Bench, Server};
    use record::{Figure, Origin, Point};

    /// A server whose CPU time per request grows by the fraction `user` in user space, with this memory per
    /// connection.
    fn checked(user: f64, memory: f64, report: Option<&Memwalk>) -> Result<Check, NotChecked> {
        let grows = Server { path: 120e-6, doubles_at: 60.0, noise: 0.02, drift: 0.05, ..Server::default() };
        let mut bench = Bench::new(grows, 5);
        for repeat in 0..4 {
            for load in [1, 2, 4, 8, 16, 32, 64, 128] {
                bench.closed(load, repeat, 1_000_000_000);
            }
        }
        let set = |point: &mut Point, name: &str, value: f64, unit: &str| {
            point.figures.set(name, Figure::new(value, unit, 1000, Origin::Sampled));
        };
        for point in &mut bench.points {
            let cpu = point.value(names::SERVER_CPU).expect("the server is watched");
            set(point, names::SERVER_CPU_USER, 1.5 + user * (cpu - 12.0).max(0.0), "us");
            set(point, names::SERVER_MEMORY, memory * point.connections as f64, "bytes");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        of_run(&fixture::write(folder.path(), fixture::record(), &bench.points), report)
    }

    fn memwalk(lines: u64, least_lines: Option<u64>) -> Memwalk {
        let least = least_lines.map_or(String::new(), |lines| format!(r#""least_lines": {lines}, "#));
        let state = format!(r#"{{"bytes": {}, "lines": {lines}, {least}"is_bound": true}}"#, lines * 60);
        let report =
            format!(r#"{{"program": {{"cache_line_bytes": 64}}, "stages": [{{"name": "SEND", "state": {state}}}]}}"#);
        Memwalk::parse(report.as_bytes()).expect("a report")
    }

    /// A server with at most 128 connections whose requests cost this many microseconds.
    fn of_costs(cost_us: impl Fn(f64) -> Option<f64>) -> Result<Check, NotChecked> {
        let mut bench = Bench::new(Server { path: 500e-6, noise: 0.02, drift: 0.05, ..Server::default() }, 5);
        for repeat in 0..4 {
            for load in [1, 2, 4, 8, 16, 32, 64, 128] {
                bench.closed(load, repeat, 1_000_000_000);
            }
        }
        for point in &mut bench.points {
            match cost_us(point.connections as f64) {
                Some(us) => point.figures.set(names::SERVER_CPU, Figure::new(us, "us", 1000, Origin::Sampled)),
                None => point.figures.not_measured(names::SERVER_CPU, "the server is not watched"),
            }
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        of_run(&fixture::write(folder.path(), fixture::record(), &bench.points), None)
    }

    #[test]
    fn a_run_without_an_answer_names_the_missing_data() {
        // One call of select per request, or one for many.
        let falls = of_costs(|connections| Some(10.0 + 1000.0 / connections));
        assert_eq!(falls, Err(NotChecked::NoGrowth(128.0)));
        assert_eq!(of_costs(|_| None), Err(NotChecked::NoCpu));
    }

    #[test]
    fn runs_of_known_servers_give_an_answer() {
        let outgrown = checked(0.9, 65536.0, None).expect("a check");
        assert_eq!(outgrown.remedy, Some(Remedy::Loop), "{outgrown:?}");
        assert!(outgrown.won.at_least > 1.05 && outgrown.won.at_most <= outgrown.won.amdahl, "{outgrown:?}");
        assert!(outgrown.not_measured.iter().any(|what| what.contains("--memwalk")));
        let per_connection = outgrown.memory_per_connection.expect("memory is known");
        assert!((per_connection / 65536.0 - 1.0).abs() < 0.5, "{per_connection}");
        let kernel = checked(0.0, 65536.0, None).expect("a check");
        assert_eq!((kernel.remedy, kernel.won.at_least), (Some(Remedy::Neither), 1.0), "{kernel:?}");
        let dense = checked(0.9, 65536.0, Some(&memwalk(4, None))).expect("a check");
        assert_eq!(dense.remedy, Some(Remedy::Slab), "{dense:?}");
        let large = checked(0.9, 65536.0, Some(&memwalk(1000, None))).expect("a check");
        assert_eq!((large.remedy, large.largest.map(|largest| largest.fit)), (Some(Remedy::Loop), Some((16.0, 16.0))));
        // With one optional string of 64 KiB, the memory held lies between the two bounds.
        let between = checked(0.9, 65536.0, Some(&memwalk(1000, Some(4)))).expect("a check");
        assert_eq!((between.remedy, between.largest.map(|largest| largest.fit)), (None, Some((16.0, 4096.0))));
        assert!(between.not_measured.iter().any(|what| what.contains("typical_bytes")), "{:?}", between.not_measured);
    }
}
