//! A profile as tables for a terminal.

pub mod exact;

use crate::doubt;
use crate::text::not_measured;
use crate::text::table::Table;
use analyze::profile::Change;
use record::layers::Layer;
use record::profile::scaling::{Call, CallScaling, Growth, Scaling};
use record::profile::{Calibration, Estimate, FunctionRow, LayerRow, Profile};
use record::text::plain;
use record::units::{format_bytes, format_nanos, format_si};
use std::fmt::Write;

/// Functions printed.
const FUNCTIONS: usize = 25;
/// Changes printed.
const CHANGES: usize = 25;

/// All tables of a profile. Names of functions and programs come from outside: control characters are replaced.
pub fn text(profile: &Profile) -> String {
    let mut out = String::new();
    let seconds = profile.duration_ns as f64 / 1e9;
    let hertz = 1e9 / profile.period_ns as f64;
    let _ = writeln!(
        out,
        "{} (process {}) on port {}: {} by {} at {hertz:.0} Hz on {} CPUs for {seconds:.1} s",
        from_outside(&profile.command),
        profile.pid,
        profile.port,
        profile.method,
        profile.clock,
        profile.cpus
    );
    denominators(&mut out, profile);
    out.push('\n');
    layers(&mut out, profile);
    if let Some(calibration) = &profile.calibration {
        out.push('\n');
        corrections(&mut out, calibration);
    }
    out.push('\n');
    checks(&mut out, profile);
    out.push('\n');
    functions(&mut out, &profile.functions);
    if !profile.groups.is_empty() {
        out.push('\n');
        groups(&mut out, profile);
    }
    events(&mut out, profile);
    out + &doubt::text(&profile.doubts)
}

fn denominators(out: &mut String, profile: &Profile) {
    let packets = &profile.packets;
    let way = |index: usize| {
        let segments = packets.segments[index];
        let carried = if segments == packets.packets[index] {
            String::new()
        } else {
            format!(" ({} segments)", format_si(segments as f64))
        };
        format!(
            "{}{carried}, {}",
            format_si(packets.packets[index] as f64),
            format_bytes(packets.payload_bytes[index] as f64)
        )
    };
    let origin = if profile.requests_are_counted { "counted by the client" } else { "packets in with payload" };
    let _ = writeln!(
        out,
        "{} samples in the server's work; packets in {}; out {}; requests {} ({origin})",
        profile.samples.server(),
        way(0),
        way(1),
        format_si(profile.requests as f64)
    );
}

fn layers(out: &mut String, profile: &Profile) {
    let mut table = Table::new(&["layer", "samples", "share %", "us/packet", "us/request"], 1);
    for row in &profile.layers {
        if row.layer.is_none() && row.samples == 0 {
            table.row(vec![String::from("unattributed"), "0".into(), "0.0".into(), String::new(), String::new()]);
            continue;
        }
        let name = match (row.layer, row.part.is_empty()) {
            (Some(layer), true) => layer.word().to_string(),
            (Some(_), false) => format!("  {}", row.part),
            (None, _) => "unattributed".into(),
        };
        table.row(vec![
            name,
            row.samples.to_string(),
            estimate(row.share_ratio, 100.0, 1),
            estimate(row.us_per_packet, 1.0, 3),
            estimate(row.us_per_request, 1.0, 3),
        ]);
    }
    let whole = |of: &dyn Fn(&LayerRow) -> Option<Estimate>| {
        let values: Vec<f64> =
            profile.layers.iter().filter(|row| row.part.is_empty()).filter_map(|row| Some(of(row)?.value)).collect();
        if values.is_empty() { not_measured(None, 0) } else { format!("{:.3}", values.iter().sum::<f64>()) }
    };
    table.row(vec![
        "sum".into(),
        profile.samples.server().to_string(),
        "100.0".into(),
        whole(&|row| row.us_per_packet),
        whole(&|row| row.us_per_request),
    ]);
    out.push_str(&table.lines());
    let _ = writeln!(
        out,
        "network stack (System Call to Driver): {:.1} % of the server's CPU time; +- is the 95 % interval from the spread of tenths of the window",
        profile.stack_share() * 100.0
    );
    if !profile.unattributed_top.is_empty() {
        let _ = writeln!(out, "unattributed, by innermost function: {}", listed(&profile.unattributed_top));
    }
}

/// The corrections by bursts of the exact profile, and their cost.
fn corrections(out: &mut String, calibration: &Calibration) {
    let mut table = Table::new(&["corrected by bursts", "sampled %", "exact %", "difference"], 1);
    for correction in &calibration.corrections {
        table.row(vec![
            correction.layer.map_or("unattributed", Layer::word).to_string(),
            estimate(correction.sampled, 100.0, 1),
            estimate(correction.exact, 100.0, 1),
            estimate(correction.difference, 100.0, 1),
        ]);
    }
    out.push_str(&table.lines());
    let exact = &calibration.exact;
    let _ = writeln!(
        out,
        "{} bursts of together {:.2} s after the samples; the sampler's own {:.1} % and the hooks' {:.1} % of the server's time are taken out",
        exact.bursts,
        exact.measured_ns as f64 / 1e9,
        calibration.sampler_ratio * 100.0,
        exact.perturbation.share_ratio * 100.0
    );
    out.push_str("parts and functions are the samples', scaled with their layer\n");
}

fn checks(out: &mut String, profile: &Profile) {
    let sums = &profile.samples;
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    let _ = writeln!(
        out,
        "where the server's work ran: its own processes {:.1} %, other processes {:.1} %, idle CPUs {:.1} %",
        share(sums.server_in_own_process, sums.server()),
        share(sums.server_in_others, sums.server()),
        share(sums.server_on_idle, sums.server())
    );
    let _ = writeln!(
        out,
        "in the server's processes, but not its work: packets of the other end {:.1} %, other packets {:.1} %",
        share(sums.peer_in_server, sums.in_server()),
        share(sums.others_in_server, sums.in_server())
    );
    let check = &profile.cpu_check;
    let difference = check.difference_ratio.map_or(not_measured(None, 0), |ratio| format!("{:+.2} %", ratio * 100.0));
    let _ = writeln!(
        out,
        "check: samples in the server's processes {:.3} s, the scheduler's account of them {:.3} s ({difference}); a sample counts {:.3} ms{}; of the clock's interrupts {:.2} % were passed over by late ones, {:.2} % are missing (n = {:.0})",
        check.sampled_ns / 1e9,
        check.scheduler_ns / 1e9,
        profile.sample_ns / 1e6,
        check.steal_ratio.map_or(String::new(), |steal| format!("; steal {:.1} %", steal * 100.0)),
        check.arrivals.late_ratio() * 100.0,
        check.arrivals.missing_ratio() * 100.0,
        check.arrivals.expected,
    );
    let coverage = &profile.coverage;
    let _ = write!(
        out,
        "layer rule: {:.2} % of {} kernel samples of the machine have a layer; innermost function known in {:.2} %",
        share(coverage.attributed, coverage.kernel_samples),
        coverage.kernel_samples,
        share(coverage.classified, coverage.kernel_samples)
    );
    let missing = &coverage.not_classified[..coverage.not_classified.len().min(8)];
    let _ =
        writeln!(out, "{}", if missing.is_empty() { String::new() } else { format!(", not in {}", listed(missing)) });
    let _ = writeln!(
        out,
        "the machine: {:.1} % idle, {:.1} % the server's work, {:.1} % the rest",
        share(sums.idle, sums.all()),
        share(sums.server(), sums.all()),
        100.0 - share(sums.idle, sums.all()) - share(sums.server(), sums.all())
    );
}

fn functions(out: &mut String, rows: &[FunctionRow]) {
    let mut table = Table::new(&["function (own time)", "CPU %", "non-idle %", "server %", "mode", "layer"], 1);
    for row in rows.iter().take(FUNCTIONS) {
        let module = row.module.as_deref().map_or(String::new(), |module| format!(" [{module}]"));
        table.row(vec![
            from_outside(&format!("{}{module}", row.function)),
            format!("{:.2}", row.cpu_ratio * 100.0),
            format!("{:.2}", row.non_idle_ratio * 100.0),
            format!("{:.2}", row.server_ratio * 100.0),
            row.mode.word().into(),
            row.layer.map_or("unattributed", Layer::word).into(),
        ]);
    }
    out.push_str(&table.lines());
}

fn groups(out: &mut String, profile: &Profile) {
    let mut table = Table::new(&["group", "samples", "share %", "us/packet"], 1);
    for row in &profile.groups {
        table.row(vec![
            from_outside(row.group.as_deref().unwrap_or("in no group")),
            row.samples.to_string(),
            estimate(row.share_ratio, 100.0, 1),
            estimate(row.us_per_packet, 1.0, 3),
        ]);
    }
    out.push_str(&table.lines());
}

fn events(out: &mut String, profile: &Profile) {
    let measured: Vec<&str> =
        profile.events.iter().filter(|event| event.not_measured.is_none()).map(|event| event.event.as_str()).collect();
    if !measured.is_empty() {
        let header: Vec<&str> = ["events per packet"].into_iter().chain(measured.iter().copied()).collect();
        let mut table = Table::new(&header, 1);
        for row in profile.layers.iter().filter(|row| row.part.is_empty()) {
            let name = row.layer.map_or("unattributed", Layer::word).to_string();
            let cells = measured.iter().map(|event| estimate(row.events_per_packet.get(*event).copied(), 1.0, 2));
            table.row([name].into_iter().chain(cells).collect());
        }
        out.push('\n');
        out.push_str(&table.lines());
        for event in
            profile.events.iter().filter(|event| event.not_measured.is_none() && event.counter_ran_ratio < 0.99)
        {
            let _ = writeln!(
                out,
                "{}: its counter ran {:.0} % of the time, scaled up",
                event.event,
                event.counter_ran_ratio * 100.0
            );
        }
    }
    let mut reasons: Vec<&str> = profile.events.iter().filter_map(|event| event.not_measured.as_deref()).collect();
    reasons.dedup();
    for reason in reasons {
        let names: Vec<&str> = profile
            .events
            .iter()
            .filter(|event| event.not_measured.as_deref() == Some(reason))
            .map(|event| event.event.as_str())
            .collect();
        let _ = writeln!(out, "\nnot measured: {}: {reason}", names.join(", "));
    }
}

/// The table of changes between two profiles.
pub fn changes(changes: &[Change]) -> String {
    let mut out = String::new();
    let mut table = Table::new(&["function (own time)", "before %", "after %", "change"], 1);
    let clear = changes.iter().filter(|change| change.is_clear()).count();
    for change in changes.iter().filter(|change| change.is_clear()).take(CHANGES) {
        table.row(vec![
            from_outside(&change.function),
            format!("{:.2}", change.before_ratio * 100.0),
            format!("{:.2}", change.after_ratio * 100.0),
            format!(
                "{:+.2} +-{:.2}",
                (change.after_ratio - change.before_ratio) * 100.0,
                change.plus_minus_ratio * 100.0
            ),
        ]);
    }
    if clear > 0 {
        out.push_str(&table.lines());
    }
    let _ = writeln!(
        out,
        "{clear} functions changed by more than the samples' scatter (95 %), {} did not{}",
        changes.len() - clear,
        if clear > CHANGES { "; the largest changes are shown" } else { "" }
    );
    out.push_str("shares are of each profile's own samples, so what grows makes the rest shrink\n");
    out
}

/// The cost of calls by number of descriptors.
pub fn scaling(scaling: &Scaling) -> String {
    let mut out = format!(
        "Linux {}, at most {} descriptors a process; CPU time a call, median [quartiles]\n\n",
        from_outside(&scaling.kernel),
        scaling.descriptor_limit
    );
    let steps: Vec<String> = scaling
        .calls
        .first()
        .map_or(Vec::new(), |call| call.costs.iter().map(|cost| format!("{} idle", cost.descriptors)).collect());
    let header: Vec<&str> = ["call"].into_iter().chain(steps.iter().map(String::as_str)).chain(["exponent"]).collect();
    let mut table = Table::new(&header, 1);
    for call in &scaling.calls {
        let cells = call.costs.iter().map(|cost| {
            format!(
                "{} [{}, {}]",
                format_nanos(cost.median_ns),
                format_nanos(cost.lower_ns),
                format_nanos(cost.upper_ns)
            )
        });
        let exponent = call.exponent.map_or("-".into(), |exponent| format!("{exponent:.2}"));
        table.row([call.call.word().to_string()].into_iter().chain(cells).chain([exponent]).collect());
    }
    out.push_str(&table.lines());
    out.push('\n');
    for call in &scaling.calls {
        let _ = writeln!(out, "{}", verdict(call));
    }
    out
}

/// How a call's cost grows, in one sentence.
fn verdict(call: &CallScaling) -> String {
    let (Some(first), Some(last)) = (call.costs.first(), call.costs.last()) else {
        return format!("{}: not measured", call.call.word());
    };
    let lowest = record::units::format_nanos(first.median_ns);
    let mut ends = format!("{}: {lowest} at {} descriptors", call.call.word(), first.descriptors);
    if call.costs.len() > 1 {
        let highest = record::units::format_nanos(last.median_ns);
        ends.push_str(&format!(", {highest} at {}", last.descriptors));
    }
    let law = match call.growth {
        Growth::Faster => "grows faster than in proportion",
        _ => "grows in proportion",
    };
    match (call.growth, call.ns_per_descriptor) {
        (Growth::Proportional | Growth::Faster, Some(slope)) if matches!(call.call, Call::Select | Call::Poll) => {
            format!(
                "{ends}: {law} (on average {slope:.1} ns a descriptor); a server that calls it pays for every idle connection: use epoll, or run it under straingauge scale"
            )
        }
        (Growth::Proportional | Growth::Faster, Some(slope)) => {
            format!("{ends}: {law} (on average {slope:.1} ns a descriptor)")
        }
        (Growth::Slow, _) => format!("{ends}: grows, but less than in proportion"),
        (Growth::Flat, _) => format!("{ends}: does not grow with idle descriptors"),
        _ => format!("{ends}: how it grows shows from 1,024 descriptors on (ulimit -n 1280)"),
    }
}

fn listed(counts: &[(String, u64)]) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{} {count}", from_outside(name))).collect();
    words.join(", ")
}

pub(super) fn estimate(estimate: Option<Estimate>, scale: f64, decimals: usize) -> String {
    match estimate {
        None => not_measured(None, 0),
        Some(found) => crate::text::estimate(found.value * scale, found.plus_minus.map(|half| half * scale), decimals),
    }
}

/// A name from outside: of a function, a program, a kernel.
pub(super) fn from_outside(text: &str) -> String {
    plain(text, 300)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::profile::scaling::Cost;

    #[test]
    fn a_verdict_names_cost_and_remedy() {
        let cost = |descriptors: usize| {
            let median_ns = 300.0 + 25.0 * descriptors as f64;
            Cost { descriptors, median_ns, lower_ns: median_ns, upper_ns: median_ns, batches: 1 }
        };
        let sentence = verdict(&CallScaling {
            call: Call::Select,
            costs: vec![cost(16), cost(16384)],
            exponent: Some(1.0),
            growth: Growth::Proportional,
            ns_per_descriptor: Some(25.0),
        });
        assert!(sentence.contains("25.0 ns a descriptor") && sentence.contains("epoll"), "{sentence}");
    }

    #[test]
    fn one_cost_is_said_once_and_what_would_show_growth_with_it() {
        let cost = Cost { descriptors: 16, median_ns: 919.0, lower_ns: 919.0, upper_ns: 919.0, batches: 1 };
        let call = Call::Select;
        let one =
            CallScaling { call, costs: vec![cost], exponent: None, growth: Growth::Unknown, ns_per_descriptor: None };
        let sentence = verdict(&one);
        let wanted = "919 ns at 16 descriptors: how it grows shows from 1,024 descriptors on (ulimit -n 1280)";
        assert!(sentence.ends_with(wanted), "{sentence}");
    }
}
