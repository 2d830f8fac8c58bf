//! The machine's counters on the screen: means between two readings, in the order of Almeida, Almeida and Yates (1996),
//! Table 2, and those of the server's group.

use record::text::plain;
use record::units::{format_bytes, format_si};
use record::watch::Reading;
use record::watch::system::{CpuModes, Kind, SystemTotals};
use std::fmt::Write;

/// Shown until a counter has been read twice.
const YET: &str = "not yet";

/// Writes nothing before there are two readings.
pub(super) fn screen(out: &mut String, then: &SystemTotals, now: &Reading) {
    let system = &now.system;
    let seconds = system.at_ns.saturating_sub(then.at_ns) as f64 / 1e9;
    if seconds <= 0.0 {
        return;
    }
    let _ = writeln!(out, "\nmachine, means over {seconds:.1} s (counted by the kernel; CPU by its ticks)");
    cpu(out, then, system);
    // Each kind of counter has its own interval, so one kind may have been read only once.
    let per_sec = |kind: Kind, now: u64, before: u64| {
        system.seconds_since(then, kind).map(|seconds| now.saturating_sub(before) as f64 / seconds)
    };
    let rate = |kind: Kind, now: Option<u64>, then: Option<u64>| match (now, then) {
        (Some(now), Some(then)) => per_sec(kind, now, then).map_or(YET.into(), format_si),
        _ => "not measured".into(),
    };
    let bytes = |kind: Kind, now: u64, then: u64| per_sec(kind, now, then).map_or(YET.into(), format_bytes);
    if let (Some(now), Some(then)) = (&system.disk, &then.disk) {
        let _ = writeln!(
            out,
            "  disk  {} reads/s, {}/s  {} writes/s, {}/s  busy {} % of {} devices",
            rate(Kind::Disk, Some(now.reads), Some(then.reads)),
            bytes(Kind::Disk, now.read_bytes, then.read_bytes),
            rate(Kind::Disk, Some(now.writes), Some(then.writes)),
            bytes(Kind::Disk, now.written_bytes, then.written_bytes),
            per_sec(Kind::Disk, now.busy_ms, then.busy_ms)
                .map_or(YET.into(), |ms| format!("{:.1}", ms / 10.0 / now.devices.max(1) as f64)),
            now.devices,
        );
    } else {
        let _ = writeln!(out, "  disk  not measured: no device that is not a part of another");
    }
    if let (Some(now), Some(then)) = (&system.paging, &then.paging) {
        let _ = writeln!(
            out,
            "  paging  in {}/s  out {}/s  faults {}/s, of them {} major  swapped in {}, out {} pages/s",
            bytes(Kind::Paging, now.in_bytes, then.in_bytes),
            bytes(Kind::Paging, now.out_bytes, then.out_bytes),
            rate(Kind::Paging, Some(now.faults), Some(then.faults)),
            rate(Kind::Paging, Some(now.major_faults), Some(then.major_faults)),
            rate(Kind::Paging, Some(now.swapped_in), Some(then.swapped_in)),
            rate(Kind::Paging, Some(now.swapped_out), Some(then.swapped_out)),
        );
    }
    let _ = write!(out, "  interrupts {}/s", rate(Kind::Cpu, system.interrupts, then.interrupts));
    for (kind, count) in most_frequent(system, then).into_iter().take(4) {
        let _ = write!(out, "  {} {}/s", plain(&kind, 24), rate(Kind::Interrupts, Some(count), Some(0)));
    }
    let now_number = |value: Option<u64>| value.map_or("not measured".to_string(), |value| value.to_string());
    let _ = writeln!(
        out,
        "\n  context switches {}/s  started {}/s  running {}  waiting for disks {}",
        rate(Kind::Cpu, system.context_switches, then.context_switches),
        rate(Kind::Cpu, system.started, then.started),
        now_number(system.running),
        now_number(system.blocked),
    );
    if let Some(memory) = &system.memory {
        let _ = writeln!(
            out,
            "  memory  {} available of {}, {} of files, {} to be written",
            format_bytes(memory.available_bytes as f64),
            format_bytes(memory.total_bytes as f64),
            format_bytes(memory.cached_bytes as f64),
            format_bytes(memory.dirty_bytes as f64),
        );
    }
    group(out, now);
}

fn cpu(out: &mut String, then: &SystemTotals, system: &SystemTotals) {
    if system.seconds_since(then, Kind::Cpu).is_none() {
        let _ = writeln!(out, "  CPU  {YET}");
        return;
    }
    let (Some(now), Some(then)) = (&system.cpu, &then.cpu) else {
        let _ = writeln!(out, "  CPU  not measured: /proc/stat cannot be read");
        return;
    };
    type Part = (&'static str, fn(&CpuModes) -> u64);
    let parts: [Part; 7] = [
        ("user", |cpu| cpu.user_ms),
        ("system", |cpu| cpu.system_ms),
        ("irq", |cpu| cpu.irq_ms),
        ("softirq", |cpu| cpu.softirq_ms),
        ("idle", |cpu| cpu.idle_ms),
        ("iowait", |cpu| cpu.iowait_ms),
        ("steal", |cpu| cpu.steal_ms),
    ];
    let spent = parts.map(|(name, part)| (name, part(now).saturating_sub(part(then))));
    let total: u64 = spent.iter().map(|(_, ms)| ms).sum();
    let _ = write!(out, "  CPU of {}", system.cpus);
    for (name, ms) in spent {
        let _ = write!(out, "  {name} {:.1} %", ms as f64 * 100.0 / total.max(1) as f64);
    }
    let _ = writeln!(out);
}

fn most_frequent(system: &SystemTotals, then: &SystemTotals) -> Vec<(String, u64)> {
    let mut kinds: Vec<(String, u64)> = system
        .interrupts_by_kind
        .iter()
        .map(|(kind, now)| (kind.clone(), now.saturating_sub(then.interrupts_by_kind.get(kind).copied().unwrap_or(0))))
        .filter(|(_, count)| *count > 0)
        .collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    kinds
}

fn group(out: &mut String, now: &Reading) {
    match &now.io {
        Some(io) => {
            let _ = writeln!(
                out,
                "server's disk bytes  read {}  written {}  ({} read and {} write calls, sockets included)",
                format_bytes(io.read_bytes as f64),
                format_bytes(io.written_bytes as f64),
                format_si(io.reads as f64),
                format_si(io.writes as f64),
            );
        }
        None => {
            let _ = writeln!(
                out,
                "server's disk bytes  not measured: its processes may not be looked into, or there are none"
            );
        }
    }
    let Some(cgroup) = &now.control_group else { return };
    let us = |value: Option<u64>| value.map_or("not measured".to_string(), |us| format!("{:.1} s", us as f64 / 1e6));
    let bytes = |value: Option<u64>| value.map_or("not measured".to_string(), |value| format_bytes(value as f64));
    let _ = writeln!(
        out,
        "control group  CPU {} (user {}, system {})  memory {}  disk read {}, written {}  tasks {}",
        us(cgroup.cpu_us),
        us(cgroup.user_us),
        us(cgroup.system_us),
        bytes(cgroup.memory_bytes),
        bytes(cgroup.read_bytes),
        bytes(cgroup.written_bytes),
        cgroup.tasks.map_or("not measured".to_string(), |tasks| tasks.to_string()),
    );
}
