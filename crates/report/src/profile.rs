//! A profile as tables for a terminal.

pub mod exact;

use crate::doubt;
use crate::run::after_empty_line;
use crate::text::not_measured;
use crate::text::table::Table;
use analyze::profile::FunctionChange;
use record::layers::Layer;
use record::profile::{FunctionRow, LayerRow, Profile, SampledEstimate};
use record::text::plain;
use record::units::{format_bytes, format_si};

const FUNCTIONS: usize = 25;
const CHANGES: usize = 25;

/// All tables of a profile.
pub fn text(profile: &Profile) -> String {
    let seconds = profile.duration_ns as f64 / 1e9;
    let hertz = 1e9 / profile.period_ns as f64;
    let mut out = format!(
        "{} (process {}) on port {}: {} by {} at {hertz:.0} Hz on {} CPUs for {seconds:.1} s\n",
        from_outside(&profile.command),
        profile.pid,
        profile.port,
        profile.method,
        profile.clock,
        profile.cpus
    );
    out += &denominators(profile);
    out += &after_empty_line(layers(profile));
    out += &after_empty_line(checks(profile));
    out += &after_empty_line(functions(&profile.functions));
    if !profile.groups.is_empty() {
        out += &after_empty_line(groups(profile));
    }
    out += &events(profile);
    if let Some(account) = &profile.account {
        out += "\n";
        out += &crate::run::account::of_profile(account);
    }
    out + &doubt::text(&profile.doubts)
}

fn denominators(profile: &Profile) -> String {
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
    format!(
        "{} samples in the server's work; packets in {}; out {}; requests {} ({origin})\n",
        profile.samples.server(),
        way(0),
        way(1),
        format_si(profile.requests as f64)
    )
}

fn layers(profile: &Profile) -> String {
    let mut table = Table::new(["layer", "samples", "share %", "us/packet", "us/request"], 1);
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
    let whole = |of: &dyn Fn(&LayerRow) -> Option<SampledEstimate>| {
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
    let mut out = table.lines();
    out += &format!(
        "network stack (System Call to Driver): {:.1} % of the server's CPU time; +- is the 95 % interval from the \
         spread of tenths of the window\n",
        profile.stack_share() * 100.0
    );
    if !profile.unattributed_top.is_empty() {
        out += &format!("unattributed, by innermost function: {}\n", listed(&profile.unattributed_top));
    }
    out
}

fn checks(profile: &Profile) -> String {
    let sums = &profile.samples;
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    let mut out = format!(
        "the server's work ran in: its own processes {:.1} %, other processes {:.1} %, idle CPUs {:.1} %\n",
        share(sums.server_in_own_process, sums.server()),
        share(sums.server_in_others, sums.server()),
        share(sums.server_on_idle, sums.server())
    );
    out += &format!(
        "other work in the server's processes: packets of the other end {:.1} %, other packets {:.1} %\n",
        share(sums.peer_in_server, sums.in_server()),
        share(sums.others_in_server, sums.in_server())
    );
    let check = &profile.cpu_check;
    let difference = check.difference_ratio.map_or(not_measured(None, 0), |ratio| format!("{:+.2} %", ratio * 100.0));
    out += &format!(
        "check: server's processes by samples {:.3} s, by the scheduler {:.3} s ({difference}); a sample counts {:.3} \
         ms{}; clock interrupts skipped {:.2} %, missing {:.2} % (n = {:.0})\n",
        check.sampled_ns / 1e9,
        check.scheduler_ns / 1e9,
        profile.sample_ns / 1e6,
        check.steal_ratio.map_or(String::new(), |steal| format!("; steal {:.1} %", steal * 100.0)),
        check.arrivals.late_ratio() * 100.0,
        check.arrivals.missing_ratio() * 100.0,
        check.arrivals.expected,
    );
    let coverage = &profile.coverage;
    out += &format!(
        "layer rule: {:.2} % of {} kernel samples of the machine have a layer; innermost function known in {:.2} %",
        share(coverage.attributed, coverage.kernel_samples),
        coverage.kernel_samples,
        share(coverage.classified, coverage.kernel_samples)
    );
    let missing = &coverage.not_classified[..coverage.not_classified.len().min(8)];
    out += &format!("{}\n", if missing.is_empty() { String::new() } else { format!(", not in {}", listed(missing)) });
    out + &format!(
        "the machine: {:.1} % idle, {:.1} % the server's work, {:.1} % the rest\n",
        share(sums.idle, sums.all()),
        share(sums.server(), sums.all()),
        100.0 - share(sums.idle, sums.all()) - share(sums.server(), sums.all())
    )
}

fn functions(rows: &[FunctionRow]) -> String {
    let mut table = Table::new(["function (own time)", "CPU %", "non-idle %", "server %", "mode", "layer"], 1);
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
    table.lines()
}

fn groups(profile: &Profile) -> String {
    let mut table = Table::new(["group", "samples", "share %", "us/packet"], 1);
    for row in &profile.groups {
        table.row(vec![
            from_outside(row.group.as_deref().unwrap_or("in no group")),
            row.samples.to_string(),
            estimate(row.share_ratio, 100.0, 1),
            estimate(row.us_per_packet, 1.0, 3),
        ]);
    }
    table.lines()
}

fn events(profile: &Profile) -> String {
    let mut out = String::new();
    let measured: Vec<&str> =
        profile.events.iter().filter(|event| event.not_measured.is_none()).map(|event| event.event.as_str()).collect();
    if !measured.is_empty() {
        let header: Vec<&str> = ["events per packet"].into_iter().chain(measured.iter().copied()).collect();
        let mut table = Table::new(header, 1);
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
            out += &format!(
                "{}: its counter ran {:.0} % of the time, scaled up\n",
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
        out += &format!("\nnot measured: {}: {reason}\n", names.join(", "));
    }
    out
}

/// The table of changes between two profiles.
pub fn changes(changes: &[FunctionChange]) -> String {
    let mut out = String::new();
    let mut table = Table::new(["function (own time)", "before %", "after %", "change"], 1);
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
    out += &format!(
        "{clear} functions changed by more than the samples' scatter (95 %), {} did not{}\n",
        changes.len() - clear,
        if clear > CHANGES { "; the largest changes are shown" } else { "" }
    );
    out.push_str("shares refer to each profile's own samples, so growth of one function reduces the others' shares\n");
    out
}

fn listed(counts: &[(String, u64)]) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{} {count}", from_outside(name))).collect();
    words.join(", ")
}

pub(super) fn estimate(estimate: Option<SampledEstimate>, scale: f64, decimals: usize) -> String {
    match estimate {
        None => not_measured(None, 0),
        Some(found) => crate::text::estimate(found.value * scale, found.plus_minus.map(|half| half * scale), decimals),
    }
}

/// The name of a function or program, without control characters.
pub(super) fn from_outside(text: &str) -> String {
    plain(text, 300)
}
