//! The capabilities of this machine, for `straingauge doctor`. Each one is tried, not derived from versions.
//! Those of the path between client and server are in the crate `wan`.

mod cpu;
mod kernel;
mod network;

use record::machine::Capability;

/// In the order of the report: processes, CPUs, network, kernel instruments, limits.
pub fn capabilities() -> Vec<Capability> {
    [
        kernel::thread_accounts,
        kernel::foreign_processes,
        kernel::control_groups,
        cpu::cpus,
        cpu::threads_of_a_core,
        cpu::governor,
        cpu::clock_source,
        cpu::steal,
        cpu::hardware_counters,
        network::socket_states,
        network::port_range,
        network::accept_queue,
        network::descriptors,
        kernel::btf,
        kernel::bpf,
        kernel::requests,
        kernel::sampling,
        kernel::exact_layers,
    ]
    .iter()
    .map(|look| look())
    .collect()
}

fn line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().replace('\t', " ")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_have_a_remedy_and_names_are_unique() {
        let all = capabilities();
        let mut names = std::collections::HashSet::new();
        for capability in &all {
            assert!(names.insert(capability.name.clone()), "{} appears twice", capability.name);
            assert_eq!(capability.is_available, capability.remedy.is_empty(), "{capability:?}");
            assert!(!capability.detail.is_empty() && !capability.detail.contains('\n'), "{capability:?}");
        }
    }
}
