//! The capabilities of this machine, for `straingauge doctor`. Each one is tried, not derived from versions.
//! Those of the path between client and server are in the crate `wan`.

mod cpu;
mod kernel;
mod network;

use record::machine::Capability;

/// What is there, or else what is missing and its remedy.
type Found = Result<String, (String, &'static str)>;

type Look = (&'static str, fn() -> Found);

fn found(is_there: bool, detail: String, remedy: &'static str) -> Found {
    if is_there { Ok(detail) } else { Err((detail, remedy)) }
}

/// In the order of the report: processes, CPUs, network, kernel instruments, limits.
pub fn capabilities() -> Vec<Capability> {
    const LOOKS: [Look; 18] = [
        ("accounts of threads", kernel::thread_accounts),
        ("processes of other users", kernel::foreign_processes),
        ("control group for the server", kernel::control_groups),
        ("two CPUs", cpu::cpus),
        ("cores not shared by CPUs", cpu::threads_of_a_core),
        ("steady clock frequency", cpu::governor),
        ("fast clock", cpu::clock_source),
        ("stolen CPU time", cpu::steal),
        ("hardware counters", cpu::hardware_counters),
        ("connection states", network::socket_states),
        ("local ports", network::port_range),
        ("accept queue", network::accept_queue),
        ("open descriptors", network::descriptors),
        ("BTF", kernel::btf),
        ("BPF", kernel::bpf),
        ("requests of a server", kernel::requests),
        ("sampling of the kernel", kernel::sampling),
        ("hooks in kernel functions", kernel::exact_layers),
    ];
    let capability = |(name, look): &Look| match look() {
        Ok(detail) => Capability::there(name, detail),
        Err((detail, remedy)) => Capability::missing(name, detail.replace('\n', " "), remedy),
    };
    LOOKS.iter().map(capability).collect()
}
