//! An exact profile as tables for a terminal.

use super::{estimate, from_outside};
use crate::doubt;
use crate::run::after_empty_line;
use crate::text::not_measured;
use crate::text::table::Table;
use record::boundaries::Boundary;
use record::layers::Layer;
use record::profile::exact::{ExactProfile, SumCheck};
use record::units::{format_bytes, format_nanos, format_si};

const NAMED: usize = 12;

/// All tables of an exact profile.
pub fn text(profile: &ExactProfile) -> String {
    let machine = &profile.machine;
    let mut out = format!(
        "{} (process {}) on port {}: exact, {} functions hooked (fentry, fexit), {} bursts of together {:.2} s on {} \
         CPUs\n",
        from_outside(&machine.command),
        machine.pid,
        machine.port,
        machine.hooked.len(),
        profile.bursts,
        profile.measured_ns as f64 / 1e9,
        machine.cpus
    );
    let packets = &profile.packets;
    out += &format!(
        "packets in {} ({}); out {} ({}); requests {} (packets in with payload); system calls {}\n",
        format_si(packets.packets[0] as f64),
        format_bytes(packets.payload_bytes[0] as f64),
        format_si(packets.packets[1] as f64),
        format_bytes(packets.payload_bytes[1] as f64),
        format_si(profile.requests as f64),
        format_si(profile.system_calls as f64)
    );
    out + &after_empty_line(layers(profile)) + &after_empty_line(checks(profile)) + &doubt::text(&profile.doubts)
}

fn layers(profile: &ExactProfile) -> String {
    let mut table = Table::new(["layer", "entries", "share %", "us/packet", "us/request", "hooks' part ms"], 1);
    for row in &profile.layers {
        table.row(vec![
            row.layer.map_or("unattributed", Layer::word).to_string(),
            row.entries.to_string(),
            estimate(row.share_ratio, 100.0, 1),
            estimate(row.us_per_packet, 1.0, 3),
            estimate(row.us_per_request, 1.0, 3),
            format!("{:.2}", (row.measured_ns as f64 - row.cpu_ns) / 1e6),
        ]);
    }
    let per = |count: u64| match count {
        0 => not_measured(None, 0),
        count => format!("{:.3}", profile.cpu_ns / 1e3 / count as f64),
    };
    table.row(vec![
        "sum".into(),
        profile.layers.iter().map(|row| row.entries).sum::<u64>().to_string(),
        "100.0".into(),
        per(profile.packets.total()),
        per(profile.requests),
        String::new(),
    ]);
    table.lines() + "+- is the 95 % interval from the spread of the bursts; the layers exclude the hooks' part\n"
}

fn checks(profile: &ExactProfile) -> String {
    let difference = |check: &SumCheck| {
        let ratio = check.difference_ratio.map_or(not_measured(None, 0), |ratio| format!("{:+.2} %", ratio * 100.0));
        format!("{:.4} s against {:.4} s ({ratio})", check.summed_ns as f64 / 1e9, check.expected_ns as f64 / 1e9)
    };
    let mut out = format!(
        "check: server's processes by layers (including hooks) compared with the scheduler: {}\n",
        difference(&profile.scheduler_check)
    );
    out += &format!("check: sum of all CPUs compared with the clock: {}\n", difference(&profile.clock_check));
    let cost = &profile.perturbation;
    out += &format!(
        "measuring took {:.1} % of the server's CPU time in the bursts: {} inside programs, {} around them ({} hooks \
         on all CPUs){}\n",
        cost.share_ratio * 100.0,
        format_nanos(cost.programs_ns as f64),
        format_nanos(cost.around_ns),
        format_si(cost.hooks as f64),
        cost.ns_per_packet.map_or(String::new(), |ns| format!("; {} a packet", format_nanos(ns)))
    );
    let costs = &cost.costs;
    out += &format!(
        "calibrated: an empty pair {} inside and {} outside (n = {}); an empty system call {} with hooks, {} without \
         (n = {})\n",
        format_nanos(costs.pair_inner_ns),
        format_nanos(costs.pair_outer_ns),
        costs.pairs,
        format_nanos(costs.call_user_ns + costs.call_kernel_ns),
        format_nanos(costs.bare_call_ns),
        costs.calls
    );
    let unpaired = &profile.unpaired;
    out += &format!(
        "unmatched: {} ends, {} begins; calls too deep: {}; threads forgotten: {}\n",
        unpaired.not_entered, unpaired.not_left, unpaired.too_deep, unpaired.lost_threads
    );
    let machine = &profile.machine;
    let names: Vec<&str> = machine.unhooked.iter().take(NAMED).map(|lost| lost.function.as_str()).collect();
    let more = if machine.unhooked.len() > NAMED { ", ..." } else { "" };
    out += &format!(
        "not hooked: {} of the table's {} functions{}{}{more}\n",
        machine.unhooked.len(),
        machine.unhooked.len() + machine.hooked.len(),
        if names.is_empty() { "" } else { ": " },
        from_outside(&names.join(", "))
    );
    let stands_in = |boundary: &&Boundary| machine.hooked.contains(&boundary.function);
    let standing: Vec<String> = record::boundaries::built_in()
        .iter()
        .filter(stands_in)
        .filter_map(|boundary| Some(format!("{} for {}", boundary.function, boundary.instead_of.as_ref()?)))
        .collect();
    if !standing.is_empty() {
        out += &format!("hooked instead: {}\n", standing.join(", "));
    }
    out + &format!(
        "hooking took {}, unhooking {}\n",
        format_nanos(machine.attach_ns as f64),
        format_nanos(machine.detach_ns as f64)
    )
}
