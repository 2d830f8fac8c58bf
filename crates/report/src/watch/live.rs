//! The screen of a terminal, the most important first. Rates are of the last interval.

use super::screen::{NOT_MEASURED, mode_words, number, size, states};
use super::{Screen, headroom, processes, screen};
use crate::doubt;
use crate::run::account;
use record::PlainText;
use record::units::{format_bytes, format_nanos, format_si};
use record::watch::Counter;
use record::watch::system::SystemTotals;
use std::fmt::Write;

/// Rows of the table of processes, besides that of all others.
const PROCESSES: usize = 4;

/// Text that draws a screen from the upper left corner and clears the rest. The last line has no newline, which would
/// scroll.
pub fn drawn(text: &str, (columns, rows): (usize, usize)) -> String {
    let lines: Vec<String> = text.lines().take(rows).map(|line| cut(line, columns) + "\x1b[K").collect();
    format!("\x1b[H{}\x1b[J", lines.join("\n"))
}

/// Cuts a line to the screen's width and marks the cut.
fn cut(line: &str, columns: usize) -> String {
    let plain = PlainText::new(line, usize::MAX);
    if plain.chars().count() <= columns {
        return plain.into();
    }
    let mut shown: String = plain.chars().take(columns.saturating_sub(1)).collect();
    shown.push('>');
    shown
}

/// The whole screen, of any length. `machine`: the machine's counters at their previous reading.
pub fn screen(frame: &Screen<'_>, machine: &SystemTotals) -> String {
    let mut out = String::new();
    head(&mut out, frame);
    requests(&mut out, frame);
    server(&mut out, frame);
    let _ = writeln!(out, "headroom  {}", headroom::line(frame.headroom));
    out.extend(frame.now.account.as_ref().map(account::of_profile));
    connections(&mut out, frame);
    out.extend(frame.doubts.iter().map(doubt::line));
    if frame.watch.classes.len() > 1 && frame.rates.all.as_ref().is_some_and(|all| all.requests_per_sec > 0.0) {
        screen::requests(&mut out, frame, "of the last interval");
    }
    screen::phases(&mut out, frame);
    processes::screen(&mut out, frame.now, PROCESSES);
    cost(&mut out, frame);
    // Counters that are read less often have no rate of the last interval.
    let mut read_at = frame.now.system.read_at_ns.iter();
    let is_whole = read_at.all(|(kind, at_ns)| machine.read_at_ns.get(kind).is_some_and(|before| before < at_ns));
    super::machine::screen(&mut out, if is_whole { machine } else { &frame.first.system }, frame.now);
    out
}

fn head(out: &mut String, frame: &Screen<'_>) {
    let (now, watch) = (frame.now, frame.watch);
    let seconds = frame.rates.duration_ns as f64 / 1e9;
    let _ = writeln!(
        out,
        ":{}  {:.0} s  (q ends)  rates of the last {seconds:.1} s  {}",
        watch.port,
        now.elapsed_ns as f64 / 1e9,
        mode_words(watch.mode, now),
    );
}

fn requests(out: &mut String, frame: &Screen<'_>) {
    let Some(all) = &frame.rates.all else {
        let _ = writeln!(out, "requests  {NOT_MEASURED}: they are not counted");
        return;
    };
    let each = frame.now.traffic.filter(|traffic| traffic.pipelined + traffic.http2 > 0);
    let each = each.and_then(|traffic| traffic.requests_per_read());
    let together =
        each.map(|each| format!(" (about {}/s: {each:.1} in a read)", format_si(each * all.requests_per_sec)));
    let _ = writeln!(
        out,
        "requests  {}/s{}  in {}/s  out {}/s  CPU {} us each",
        format_si(all.requests_per_sec),
        together.unwrap_or_default(),
        format_bytes(all.bytes_in_per_sec),
        format_bytes(all.bytes_out_per_sec),
        number(all.cpu_us_per_request),
    );
    let _ = write!(
        out,
        "  elapsed us  mean {}  p50 <= {}  p99 <= {}",
        number(all.elapsed_us_per_request),
        number(all.elapsed_p50_at_most_us),
        number(all.elapsed_p99_at_most_us),
    );
    if let Some(open) = &frame.now.open {
        let _ = write!(out, "  waiting {}  sending {}", open.waiting, open.sending);
        if let Some(longest) = open.longest.first() {
            let _ = write!(out, "  oldest {}", format_nanos(longest.age_ns as f64));
        }
    }
    let lost = frame.now.count(Counter::DisplacedOpen).filter(|lost| *lost > 0);
    let _ = writeln!(out, "{}", lost.map_or(String::new(), |lost| format!("  lost {lost}")));
}

fn server(out: &mut String, frame: &Screen<'_>) {
    let (Some(cpu), Some(cpus)) = (&frame.now.cpu, frame.rates.server_cpus) else {
        let _ = writeln!(out, "server  {NOT_MEASURED}: its processes are not seen");
        return;
    };
    let of_requests =
        frame.rates.request_cpus.map_or(String::new(), |requests| format!(", of them {requests:.2} for requests"));
    let _ = writeln!(out, "server  {cpus:.2} CPUs{of_requests}  {}", size(cpu));
}

fn connections(out: &mut String, frame: &Screen<'_>) {
    let (seen, rates) = (&frame.now.connections, frame.rates);
    let _ = writeln!(out, "connections  {}", states(frame.now));
    let rate = |rate: Option<f64>| rate.map_or(NOT_MEASURED.to_string(), |rate| format!("{}/s", format_si(rate)));
    let queue = super::screen::accept_queue(seen);
    let _ = writeln!(
        out,
        "  accepted {}  closed {}  accept queue {queue}  dropped {}",
        rate(rates.accepted_per_sec),
        rate(rates.closed_per_sec),
        seen.port_drops.map_or(NOT_MEASURED.to_string(), |drops| drops.to_string()),
    );
}

fn cost(out: &mut String, frame: &Screen<'_>) {
    let added = match frame.now.cost.added.and_then(|added| added.added_ratio) {
        Some(ratio) => format!("{:.2} % of the server's CPU time (modelled)", ratio * 100.0),
        None => NOT_MEASURED.into(),
    };
    let _ = writeln!(out, "watching adds {added}; itself {:.2} % of a CPU (timed)", frame.rates.own_cpus * 100.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_the_terminals_size_at_most() {
        let text: String = (0..50).map(|line| format!("{line} {}\n", "wide \x1b[2J".repeat(40))).collect();
        for (columns, rows) in [(80, 24), (20, 3), (300, 60)] {
            let drawn = drawn(&text, (columns, rows));
            let body = drawn.strip_prefix("\x1b[H").unwrap().strip_suffix("\x1b[J").unwrap();
            let lines: Vec<&str> = body.split('\n').collect();
            assert_eq!(lines.len(), rows.min(50));
            for line in lines {
                let line = line.strip_suffix("\x1b[K").unwrap();
                assert!(line.chars().count() <= columns && !line.contains('\x1b'), "{line:?}");
            }
        }
    }
}
