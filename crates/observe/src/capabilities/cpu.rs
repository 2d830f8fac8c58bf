use super::{Capability, line};
use crate::proc_text::parse_machine_stat;

pub fn cpus() -> Capability {
    let allowed = record::machine::allowed_cpus();
    Capability::new(
        "two CPUs",
        allowed.len() >= 2,
        format!("{} of {} may be used", allowed.len(), record::machine::online_cpus()),
        "client and server share a CPU and disturb each other: use a machine with two CPUs, or load from another \
         machine",
    )
}

pub fn threads_of_a_core() -> Capability {
    let name = "cores not shared by CPUs";
    match line("/sys/devices/system/cpu/smt/active").as_deref() {
        Some("1") => Capability::missing(
            name,
            "simultaneous multithreading is on",
            "CPUs that share a core slow each other: give client and server different cores (lscpu -e), or switch \
             multithreading off in /sys/devices/system/cpu/smt/control",
        ),
        Some("0") => Capability::there(name, "simultaneous multithreading is off"),
        _ => Capability::there(name, "the kernel reports no simultaneous multithreading"),
    }
}

pub fn governor() -> Capability {
    let name = "steady clock frequency";
    match line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Capability::there(name, "not controlled from here (usual in a virtual machine)"),
        Some(governor) => Capability::new(
            name,
            governor == "performance",
            format!("governor {governor}"),
            "CPU time per request depends on the frequency: 'cpupower frequency-set -g performance'",
        ),
    }
}

pub fn clock_source() -> Capability {
    let name = "fast clock";
    match line("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        None => Capability::there(name, "this kernel does not report its clock source"),
        Some(source) => Capability::new(
            name,
            matches!(source.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"),
            source,
            "reading the clock is a slow system call: see why the kernel rejected the TSC (dmesg | grep -i \
             clocksource)",
        ),
    }
}

pub fn steal() -> Capability {
    let name = "stolen CPU time";
    let is_virtual = record::machine::MachineFacts::read().virtual_machine;
    let Some(stat) = std::fs::read("/proc/stat").ok().and_then(|text| parse_machine_stat(&text)) else {
        return Capability::missing(name, "/proc/stat cannot be read", "mount /proc");
    };
    let (steal, total) = stat.cpus.iter().fold((0u64, 0u64), |(steal, total), (_, times)| {
        (steal.saturating_add(times.steal), total.saturating_add(times.total()))
    });
    match (is_virtual, steal) {
        (false, _) => Capability::there(name, "no hypervisor, so no CPU time can be stolen"),
        (true, 0) => Capability::missing(
            name,
            "this virtual machine has reported none since boot",
            "a hypervisor may take CPU time without reporting it: the yardstick shows that as drift",
        ),
        (true, _) => {
            Capability::there(name, format!("reported: {:.2} % since boot", steal as f64 * 100.0 / total.max(1) as f64))
        }
    }
}

pub fn hardware_counters() -> Capability {
    let name = "hardware counters";
    let remedy_absent = "cycles, instructions and cache misses cannot be counted: use a machine that is not virtual, \
                         or one whose hypervisor passes the PMU on";
    let Err(error) = crate::profile::events::PerfEvent::of_this_thread() else {
        return Capability::there(name, "cycles can be counted");
    };
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Capability::missing(
            name,
            format!("refused: {error}"),
            "run straingauge as root, or 'sysctl kernel.perf_event_paranoid=2' and no seccomp filter on \
            perf_event_open",
        ),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            Capability::missing(name, "this machine has no such counters, or hides them", remedy_absent)
        }
        _ => Capability::missing(name, format!("refused: {error}"), remedy_absent),
    }
}
