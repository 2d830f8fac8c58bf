//! The repair to try, with the exact command, where the run itself shows that it applies.

use crate::text::{grouped, plain};
use crate::zones::{Findings, load_words};
use record::{Point, RunDir, Sweep, names};

/// Of the sleeps that were seen, this share or more in select or poll; fewer sleeps than that say nothing.
const WAITS_RATIO: f64 = 0.9;
const WAITS_SEEN: f64 = 5.0;
/// The library leaves smaller sets to the kernel.
const SET_DESCRIPTORS: f64 = 64.0;
/// A request's CPU time grew by this much or more with connections.
const GROWTH_RATIO: f64 = 1.25;

/// Scalable select, for a server that sleeps in select or poll over a large set (so that few of it were ready), and either
/// grew dearer with connections or held cold ones.
pub(super) fn scalable_select(run: &RunDir, findings: &Findings) -> Option<String> {
    if run.record.server_facts.contains_key("scalable_select") {
        return None;
    }
    let points = || run.points.iter().filter(|point| point.sweep != Sweep::Yardstick);
    let (in_select, seen) = points().filter_map(waits).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let set = points().filter_map(|point| point.value(names::SERVER_SELECT_SET)).fold(0.0, f64::max);
    if seen < WAITS_SEEN || in_select < WAITS_RATIO * seen || set < SET_DESCRIPTORS {
        return None;
    }
    let cpu = findings.connections.as_ref().and_then(|closed| closed.cpu.as_ref());
    let grown = cpu.filter(|cpu| cpu.ratio >= GROWTH_RATIO && cpu.highest_load > cpu.lowest_load);
    let cold = points().filter_map(|point| point.value(names::COLD)).fold(0.0, f64::max);
    let (because, idle) = match grown {
        Some(cpu) => {
            let at = load_words(cpu.highest_load, Sweep::Connections);
            (format!("a request cost {:.1} times as much CPU at {at}", cpu.ratio), cold.max(cpu.highest_load))
        }
        None if cold >= SET_DESCRIPTORS => (format!("{} of them belonged to cold connections", grouped(cold)), cold),
        None => return None,
    };
    let server = server_command(run);
    Some(format!(
        "The server sleeps in select or poll ({} of {} sleeps seen), over up to {} descriptors, and {because}: each call \
         costs what is open, not what is ready. To try: `straingauge scale -- {server}`; both side by side: \
         `straingauge scale --compare {} --cold {idle:.0} -- {server}`.",
        grouped(in_select),
        grouped(seen),
        grouped(set),
        quoted(&run.record.scenario.url),
    ))
}

/// Sleeps in select or poll, and all that were seen.
fn waits(point: &Point) -> Option<(f64, f64)> {
    let figure = point.figures.get(names::SERVER_SELECT_WAITS)?;
    let n = figure.n? as f64;
    Some((figure.value? * n, n))
}

fn server_command(run: &RunDir) -> String {
    match (&run.record.scenario.server, run.record.server_facts.get("command")) {
        (Some(server), _) => plain(&server.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "), 300),
        (None, Some(command)) => plain(command, 300),
        (None, None) => "SERVER ...".into(),
    }
}

/// As a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    plain(&format!("'{}'", word.replace('\'', "'\\''")), 300)
}
