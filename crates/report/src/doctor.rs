//! The machine's capabilities and the leftovers of killed runs, for a terminal.

use record::leftovers::Leftover;
use record::machine::{Capability, MachineFacts};

/// The machine, a line for each capability with its remedy if it is missing, and a count.
pub fn text(machine: &MachineFacts, capabilities: &[Capability]) -> String {
    let mut out = format!(
        "{} on {}, {} CPUs ({}){}\n\n",
        machine.kernel,
        machine.distribution,
        machine.cpus,
        machine.cpu_model,
        if machine.virtual_machine { ", a virtual machine" } else { "" }
    );
    let width = capabilities.iter().map(|capability| capability.name.len()).max().unwrap_or(0);
    for Capability { name, is_available, detail, remedy } in capabilities {
        out.push_str(&format!("{}  {name:width$}  {detail}\n", if *is_available { "yes" } else { "no " }));
        if !is_available && !remedy.is_empty() {
            out.push_str(&format!("     {:width$}  -> {remedy}\n", ""));
        }
    }
    let there = capabilities.iter().filter(|capability| capability.is_available).count();
    out + &format!(
        "\n{there} of {} available; missing figures are printed as \"not measured\", never as 0\n",
        capabilities.len()
    )
}

/// Leftovers of killed runs, removed and remaining, with their owners; then those that could not be removed or
/// checked.
pub fn leftovers(left: &[Leftover], removed: &[Leftover], not_removed: &[String], not_seen: &[String]) -> String {
    let mut out = String::new();
    for (title, things) in [("Removed", removed), ("Left behind", left)] {
        if things.is_empty() {
            continue;
        }
        let width = things.iter().map(|thing| thing.kind.len()).max().unwrap_or(0);
        out.push_str(&format!("{title}\n"));
        for Leftover { kind, name, detail, owner } in things {
            out.push_str(&format!("  {kind:width$}  {name} ({detail}), of process {}\n", owner.pid));
        }
    }
    not_removed.iter().for_each(|why| out.push_str(&format!("not removed: {why}\n")));
    if left.is_empty() {
        out.push_str("no leftovers\n");
    } else if not_removed.is_empty() {
        out.push_str("straingauge doctor --clean removes it\n");
    }
    not_seen.iter().for_each(|what| out.push_str(&format!("not checked: {what}\n")));
    out
}
