use super::{Found, found};
use crate::proc_text::parse_machine_stat;
use record::machine::line;

pub fn cpus() -> Found {
    let allowed = record::machine::allowed_cpus();
    found(
        allowed.len() >= 2,
        format!("{} of {} may be used", allowed.len(), record::machine::online_cpus()),
        "client and server share a CPU and disturb each other: use a machine with two CPUs, or load from another \
         machine",
    )
}

pub fn threads_of_a_core() -> Found {
    let active = line("/sys/devices/system/cpu/smt/active");
    let said = match active.as_deref() {
        Some("1") => "simultaneous multithreading is on",
        Some("0") => "simultaneous multithreading is off",
        _ => "the kernel reports no simultaneous multithreading",
    };
    found(
        active.as_deref() != Some("1"),
        said.into(),
        "CPUs that share a core slow each other: give client and server different cores (lscpu -e), or switch \
         multithreading off in /sys/devices/system/cpu/smt/control",
    )
}

pub fn governor() -> Found {
    let Some(governor) = line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") else {
        return Ok("not controlled from here (usual in a virtual machine)".into());
    };
    found(
        governor == "performance",
        format!("governor {governor}"),
        "CPU time per request depends on the frequency: 'cpupower frequency-set -g performance'",
    )
}

pub fn clock_source() -> Found {
    let Some(source) = line("/sys/devices/system/clocksource/clocksource0/current_clocksource") else {
        return Ok("this kernel does not report its clock source".into());
    };
    found(
        matches!(source.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"),
        source,
        "reading the clock is a slow system call: see why the kernel rejected the TSC (dmesg | grep -i clocksource)",
    )
}

pub fn steal() -> Found {
    let is_virtual = record::machine::MachineFacts::read().virtual_machine;
    let Some(stat) = std::fs::read("/proc/stat").ok().and_then(|text| parse_machine_stat(&text)) else {
        return Err(("/proc/stat cannot be read".into(), "mount /proc"));
    };
    let (steal, total) = stat.cpus.iter().fold((0u64, 0u64), |(steal, total), (_, times)| {
        (steal.saturating_add(times.steal), total.saturating_add(times.total()))
    });
    match (is_virtual, steal) {
        (false, _) => Ok("no hypervisor, so no CPU time can be stolen".into()),
        (true, 0) => Err((
            "this virtual machine has reported none since boot".into(),
            "a hypervisor may take CPU time without reporting it: the yardstick shows that as drift",
        )),
        (true, _) => Ok(format!("reported: {:.2} % since boot", steal as f64 * 100.0 / total.max(1) as f64)),
    }
}

pub fn hardware_counters() -> Found {
    let absent = "cycles, instructions and cache misses cannot be counted: use a machine that is not virtual, or one \
                  whose hypervisor passes the PMU on";
    let Err(error) = crate::profile::events::PerfEvent::of_this_thread() else {
        return Ok("cycles can be counted".into());
    };
    Err(match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => (
            format!("refused: {error}"),
            "run straingauge as root, or 'sysctl kernel.perf_event_paranoid=2' and no seccomp filter on \
             perf_event_open",
        ),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            ("this machine has no such counters, or hides them".into(), absent)
        }
        _ => (format!("refused: {error}"), absent),
    })
}
