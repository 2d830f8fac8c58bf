//! What a machine can and cannot measure, for a terminal.

use record::machine::{Capability, MachineFacts};

/// The machine, a line for each capability with the remedy where it is missing, and how many are there.
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
        "\n{there} of {} available; what is missing is printed as \"not measured\", never as 0\n",
        capabilities.len()
    )
}
