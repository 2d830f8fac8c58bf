//! Reasons not to trust a window, each with its size and what to do.

use crate::group::clock_ticks_per_sec;
use crate::neighbours::Neighbours;
use crate::window::Window;
use record::doubt::{Doubt, DoubtKind, Severity};

/// More than this share of CPU time taken by the hypervisor is a doubt.
const STEAL_LIMIT_RATIO: f64 = 0.02;
/// Other work of more than this, in CPUs, is a doubt; beyond the second limit a serious one.
const OTHERS_LIMIT_CPUS: f64 = 0.05;
const OTHERS_SERIOUS_CPUS: f64 = 0.20;
/// Watching is meant to cost less than this, in CPUs.
const OBSERVER_LIMIT_CPUS: f64 = 0.01;
/// Two accounts of the same CPU time may differ by this share, and by two ticks at each end.
const ACCOUNT_TOLERANCE_RATIO: f64 = 0.05;

/// By how much two accounts of `cpu_ns` may differ.
pub(crate) fn tolerance_ns(cpu_ns: u64) -> u64 {
    (cpu_ns as f64 * ACCOUNT_TOLERANCE_RATIO) as u64 + 4_000_000_000 / clock_ticks_per_sec()
}

/// All doubts of a window.
pub(crate) fn of(window: &Window) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    doubts.extend(steal(window));
    doubts.extend(neighbours(window));
    doubts.extend(own_cost(window));
    not_watched(window, &mut doubts);
    sources(window, &mut doubts);
    doubts
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn steal(window: &Window) -> Option<Doubt> {
    let share = |cpus: crate::machine::CpuUse| cpus.share(cpus.times.steal).unwrap_or(0.0);
    let (machine, server) = (share(window.machine_use()), share(window.server_cpus_use()));
    let worst = machine.max(server);
    (worst > STEAL_LIMIT_RATIO).then(|| {
        Doubt::new(
            DoubtKind::Steal,
            Severity::Warning,
            format!(
                "the hypervisor took {} of the CPU time away ({} of the server's CPUs)",
                percent(machine),
                percent(server)
            ),
            "repeat it when the host is quieter, or on a machine of its own",
        )
    })
}

fn neighbours(window: &Window) -> Option<Doubt> {
    let others = Neighbours::of(window)?;
    if others.cpus <= OTHERS_LIMIT_CPUS {
        return None;
    }
    let most = match &others.largest {
        Some((pid, command, cpus)) => format!("; most of it by {} (process {pid}, {cpus:.2} CPUs)", printable(command)),
        None => String::new(),
    };
    let severity = if others.cpus > OTHERS_SERIOUS_CPUS { Severity::Warning } else { Severity::Note };
    Some(Doubt::new(
        DoubtKind::NoisyNeighbour,
        severity,
        format!("other work used {:.2} CPUs during the window{most}", others.cpus),
        "stop the other work, or repeat it when the machine is quiet",
    ))
}

fn own_cost(window: &Window) -> Option<Doubt> {
    let elapsed_ns = window.elapsed_ns();
    let cpus = window.observer_cpu_ns() as f64 / elapsed_ns as f64;
    // In a short window the two edges alone are more; that says nothing about the watching.
    (elapsed_ns >= 1_000_000_000 && cpus > OBSERVER_LIMIT_CPUS).then(|| {
        Doubt::new(
            DoubtKind::NoisyNeighbour,
            Severity::Note,
            format!("watching itself used {} of a CPU", percent(cpus)),
            "use longer windows or a longer watching interval",
        )
    })
}

fn not_watched(window: &Window, doubts: &mut Vec<Doubt>) {
    let mut add = |severity, what: String, remedy: &str| {
        doubts.push(Doubt::new(DoubtKind::NotWatched, severity, what, remedy));
    };
    if window.has_group {
        if let Some(why) = window.why_no_group() {
            add(
                Severity::Warning,
                format!("the server's processes were not watched: {why}"),
                "run straingauge as root, let it start the server itself (-- SERVER ...), or name the right port",
            );
        } else if !window.has_accounts() {
            add(
                Severity::Note,
                "run-queue wait, context switches and the busiest thread were not watched: this kernel keeps no accounts of threads".into(),
                "use a kernel with CONFIG_SCHED_INFO (CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT)",
            );
        }
        if window.missing.is_cut {
            add(
                Severity::Warning,
                "some of the server's threads were not watched one by one: there are too many".into(),
                "its CPU time is whole; do not quote run-queue wait and context switches",
            );
        }
    }
    if window.samples.queue_readings == 0 && (window.missing.sockets.is_some() || window.samples.socket_error.is_some())
    {
        add(
            Severity::Note,
            format!("connection states and accept queue were not watched: {}", window.why_no_sockets()),
            "run it as root, or load the kernel's module tcp_diag",
        );
    }
}

/// Two sources that should tell the same.
fn sources(window: &Window, doubts: &mut Vec<Doubt>) {
    let mut disagree = |severity, what: String, remedy: &str| {
        doubts.push(Doubt::new(DoubtKind::SourcesDisagree, severity, what, remedy));
    };
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let by_clocks = window.by_clocks_ns();
    let (begin, end) = (&window.begin.group, &window.end.group);
    let ticks = (end.user_ticks - begin.user_ticks) + (end.system_ticks - begin.system_ticks);
    let by_ticks = ticks * 1_000_000_000 / clock_ticks_per_sec();
    if window.why_no_group().is_none() && by_ticks.abs_diff(by_clocks) > tolerance_of_ticks(window, by_clocks) {
        disagree(
            Severity::Warning,
            format!(
                "the server's CPU time is {:.0} ms by the scheduler's clocks but {:.0} ms by /proc/PID/stat",
                milliseconds(by_clocks),
                milliseconds(by_ticks)
            ),
            "trust the clocks; the split into user and system comes from the other and is as wrong as they differ",
        );
    }
    if let Some(by_cgroup) = window.by_cgroup_ns() {
        let tolerance = tolerance_ns(by_clocks);
        if by_cgroup > by_clocks + tolerance {
            disagree(
                Severity::Note,
                format!(
                    "the server's control group used {:.0} ms of CPU, its processes account for {:.0} ms: some were too short-lived to be seen",
                    milliseconds(by_cgroup),
                    milliseconds(by_clocks)
                ),
                "nothing to do: the control group's account is used",
            );
        } else if by_clocks > by_cgroup + tolerance {
            disagree(
                Severity::Warning,
                format!(
                    "the server's processes used {:.0} ms of CPU but its control group only {:.0} ms: some of the processes are not in it",
                    milliseconds(by_clocks),
                    milliseconds(by_cgroup)
                ),
                "check with /proc/PID/cgroup whether processes that are not the server's were counted",
            );
        }
    }
    let machine = window.machine_use();
    let (accounted, passed) = (machine.times.total() as f64, machine.elapsed_ticks * machine.cpus as f64);
    if (accounted - passed).abs() > passed * ACCOUNT_TOLERANCE_RATIO + 4.0 * machine.cpus as f64 {
        disagree(
            Severity::Warning,
            format!(
                "the kernel accounted {} of the CPU time that passed on {} CPUs",
                percent(accounted / passed),
                machine.cpus
            ),
            "use the scheduler's figures (server.cpu_us_per_request) rather than the machine's shares by mode",
        );
    }
    let servers = window.server_cpus_use();
    if let Some(busy) = servers.busy_cpus().filter(|_| !window.server_cpus.is_empty()) {
        let used = by_clocks as f64 / window.elapsed_ns() as f64;
        if used > busy * (1.0 + ACCOUNT_TOLERANCE_RATIO) + servers.busy_error_cpus() {
            disagree(
                Severity::Warning,
                format!(
                    "the server used {used:.2} CPUs but the CPUs it is said to run on were busy for only {busy:.2}: it also runs on others"
                ),
                "pin the server to the CPUs it is meant to use, or name the CPUs it really uses",
            );
        }
    }
}

/// Each process's ticks are rounded on their own.
fn tolerance_of_ticks(window: &Window, cpu_ns: u64) -> u64 {
    let rounding = 2_000_000_000 / clock_ticks_per_sec() * window.members.len() as u64;
    tolerance_ns(cpu_ns) + rounding
}

/// Names of programs are anybody's text.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(40).collect()
}
