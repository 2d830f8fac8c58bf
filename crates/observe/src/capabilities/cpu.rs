use super::{Capability, line};
use crate::proc_text::parse_machine_stat;
use std::io;

pub fn cpus() -> Capability {
    let allowed = record::machine::allowed_cpus();
    Capability::of(
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
            "CPUs that share a core slow each other: give client and server different cores (lscpu -e), or switch it \
             off in /sys/devices/system/cpu/smt/control",
        ),
        Some("0") => Capability::there(name, "simultaneous multithreading is off"),
        _ => Capability::there(name, "the kernel reports no simultaneous multithreading"),
    }
}

pub fn governor() -> Capability {
    let name = "steady clock frequency";
    match line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        None => Capability::there(name, "not controlled from here (usual in a virtual machine)"),
        Some(governor) => Capability::of(
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
        Some(source) => Capability::of(
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
        (false, _) => Capability::there(name, "no hypervisor: none can be stolen"),
        (true, 0) => Capability::missing(
            name,
            "this virtual machine reports none since boot",
            "a hypervisor that does not report it can still take it: trust the yardstick, which shows it as drift",
        ),
        (true, _) => {
            Capability::there(name, format!("reported: {:.2} % since boot", steal as f64 * 100.0 / total.max(1) as f64))
        }
    }
}

/// Opens a counter of this thread's CPU cycles in user mode, which any CPU with counters allows.
pub fn hardware_counters() -> Capability {
    let name = "hardware counters";
    let remedy_absent = "cycles, instructions and cache misses cannot be counted: use a machine that is not virtual, \
                         or one whose hypervisor passes the PMU on";
    // struct perf_event_attr, version 0 (64 bytes): type 0 = hardware, config 0 = cycles, then the flags.
    let mut attributes = [0u8; 64];
    attributes[4..8].copy_from_slice(&64u32.to_ne_bytes());
    let (disabled, exclude_kernel, exclude_hypervisor) = (1u64, 1 << 5, 1 << 6);
    attributes[40..48].copy_from_slice(&(disabled | exclude_kernel | exclude_hypervisor).to_ne_bytes());
    // SAFETY: the pointer is to 64 readable bytes that contain this size; the other arguments are numbers.
    let opened = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
    if opened >= 0 {
        // SAFETY: the descriptor was just opened here and is used nowhere else.
        drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(opened as i32) });
        return Capability::there(name, "cycles can be counted");
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Capability::missing(
            name,
            format!("refused: {error}"),
            "run it as root, or 'sysctl kernel.perf_event_paranoid=2' and no seccomp filter on perf_event_open",
        ),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            Capability::missing(name, "this machine shows none", remedy_absent)
        }
        _ => Capability::missing(name, format!("refused: {error}"), remedy_absent),
    }
}
