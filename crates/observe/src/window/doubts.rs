use super::ObservedWindow;
use super::neighbours::Neighbours;
use crate::group::clock_ticks_per_sec;
use record::PlainText;
use record::doubt::{Doubt, DoubtKind, Severity};
use record::units::percent;

/// A larger share of CPU time taken by the hypervisor raises a doubt.
const STEAL_LIMIT_RATIO: f64 = 0.02;
/// More other work than this, in CPUs, raises a doubt; above the second limit a serious one.
const OTHERS_LIMIT_CPUS: f64 = 0.05;
const OTHERS_SERIOUS_CPUS: f64 = 0.20;
/// Intended maximum cost of watching, in CPUs.
const OBSERVER_LIMIT_CPUS: f64 = 0.01;
/// The windows of observer and client may differ by this share.
const WINDOW_TOLERANCE_RATIO: f64 = 0.1;
/// Two accounts of the same CPU time may differ by this share, and by two ticks at each end.
const ACCOUNT_TOLERANCE_RATIO: f64 = 0.05;

pub(crate) fn tolerance_ns(cpu_ns: u64) -> u64 {
    (cpu_ns as f64 * ACCOUNT_TOLERANCE_RATIO) as u64 + 4_000_000_000 / clock_ticks_per_sec()
}

pub fn window_doubts(window: &ObservedWindow) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    doubts.extend(steal(window));
    doubts.extend(neighbours(window));
    doubts.extend(own_cost(window));
    not_watched(window, &mut doubts);
    sources(window, &mut doubts);
    doubts
}

/// `share`: length of the window as a multiple of the client's.
pub(crate) fn other_window(window: &ObservedWindow, share: f64) -> Option<Doubt> {
    ((share - 1.0).abs() > WINDOW_TOLERANCE_RATIO).then(|| {
        let elapsed_ms = window.elapsed_ns() as f64 / 1e6;
        DoubtKind::NotWatched.warning(
            format!(
                "the server was watched for {elapsed_ms:.0} ms, the client for {:.0} ms: reading {} processes takes \
                 time",
                elapsed_ms / share,
                window.commands.len()
            ),
            "use a longer window (--duration); costs per request are quotients of rates",
        )
    })
}

fn steal(window: &ObservedWindow) -> Option<Doubt> {
    let share = |cpus: crate::machine::CpuUse| cpus.share(cpus.times.steal).unwrap_or(0.0);
    let (machine, server) = (share(window.machine_use()), share(window.server_cpus_use()));
    let worst = machine.max(server);
    (worst > STEAL_LIMIT_RATIO).then(|| {
        DoubtKind::Steal.warning(
            format!(
                "the hypervisor took {} of the CPU time ({} of the server's CPUs)",
                percent(machine),
                percent(server)
            ),
            "repeat it when the host is quieter, or on a dedicated machine",
        )
    })
}

pub fn neighbours(window: &ObservedWindow) -> Option<Doubt> {
    let others = Neighbours::measure(window)?;
    if others.cpus <= OTHERS_LIMIT_CPUS {
        return None;
    }
    let (what, remedy) = if window.has_group && window.why_no_group().is_some() {
        let what = format!(
            "the server (its processes are not visible) and other work used {:.2} CPUs in the window",
            others.cpus
        );
        (what, "run straingauge as root to distinguish them")
    } else {
        // A tenth of the other work explains nothing.
        let largest = others.largest.filter(|(.., cpus)| *cpus >= 0.1 * others.cpus);
        let most = largest.map_or(String::new(), |(pid, command, cpus)| {
            let command = PlainText::new(&command, 40);
            format!("; most of it by {command} (process {pid}, {cpus:.2} CPUs)")
        });
        let what = format!("other work used {:.2} CPUs during the window{most}", others.cpus);
        (what, "stop the other work, or repeat it when the machine is quiet")
    };
    let severity = if others.cpus > OTHERS_SERIOUS_CPUS { Severity::Warning } else { Severity::Note };
    Some(Doubt::new(DoubtKind::NoisyNeighbour, severity, what, remedy))
}

fn own_cost(window: &ObservedWindow) -> Option<Doubt> {
    let elapsed_ns = window.elapsed_ns();
    let cpus = window.observer_cpu_ns() as f64 / elapsed_ns as f64;
    // In a short window, the readings at the ends alone cost more, which is not the cost of watching.
    (elapsed_ns >= 1_000_000_000 && cpus > OBSERVER_LIMIT_CPUS).then(|| {
        DoubtKind::NoisyNeighbour.note(
            format!("watching itself used {} of a CPU", percent(cpus)),
            "use longer windows or a longer watching interval",
        )
    })
}

fn not_watched(window: &ObservedWindow, doubts: &mut Vec<Doubt>) {
    if window.has_group {
        if let Some(why) = window.why_no_group() {
            doubts.push(DoubtKind::NotWatched.warning(
                format!("the server's processes were not watched: {why}"),
                "run straingauge as root, let it start the server itself (-- SERVER ...), or name the right port",
            ));
        } else if !window.has_accounts() {
            doubts.push(DoubtKind::NotWatched.note(
                "run-queue wait, context switches and the busiest thread were not watched: this kernel keeps no \
                 per-thread statistics",
                "use a kernel with CONFIG_SCHED_INFO (CONFIG_SCHEDSTATS or CONFIG_TASK_DELAY_ACCT)",
            ));
        }
        if window.missing.is_cut {
            doubts.push(DoubtKind::NotWatched.warning(
                "some of the server's threads were not watched individually: there are too many",
                "the server's CPU time is complete; do not quote run-queue wait and context switches",
            ));
        }
    }
    if window.samples.queue_readings == 0 && (window.missing.sockets.is_some() || window.samples.socket_error.is_some())
    {
        doubts.push(DoubtKind::NotWatched.note(
            format!("connection states and accept queue were not watched: {}", window.why_no_sockets()),
            "run straingauge as root, or load the kernel's module tcp_diag",
        ));
    }
}

fn sources(window: &ObservedWindow, doubts: &mut Vec<Doubt>) {
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    let by_clocks = window.by_clocks_ns();
    let (begin, end) = (&window.begin.group, &window.end.group);
    let ticks = (end.user_ticks - begin.user_ticks) + (end.system_ticks - begin.system_ticks);
    let by_ticks = ticks * 1_000_000_000 / clock_ticks_per_sec();
    if window.why_no_group().is_none() && by_ticks.abs_diff(by_clocks) > tolerance_of_ticks(window, by_clocks) {
        doubts.push(DoubtKind::SourcesDisagree.warning(
            format!(
                "the server's CPU time is {:.0} ms by the scheduler's clocks but {:.0} ms by /proc/PID/stat",
                milliseconds(by_clocks),
                milliseconds(by_ticks)
            ),
            "trust the scheduler; the split into user and system time is from /proc and may be off by the difference",
        ));
    }
    if let Some(by_cgroup) = window.by_cgroup_ns() {
        let tolerance = tolerance_ns(by_clocks);
        if by_cgroup > by_clocks + tolerance {
            doubts.push(DoubtKind::SourcesDisagree.note(
                format!(
                    "the server's control group used {:.0} ms of CPU, its processes account for {:.0} ms: some were \
                     too short-lived to be seen",
                    milliseconds(by_cgroup),
                    milliseconds(by_clocks)
                ),
                "no action needed: the control group's CPU time is used",
            ));
        } else if by_clocks > by_cgroup + tolerance {
            doubts.push(DoubtKind::SourcesDisagree.warning(
                format!(
                    "the server's processes used {:.0} ms of CPU but its control group only {:.0} ms: some of the \
                     processes are not in it",
                    milliseconds(by_clocks),
                    milliseconds(by_cgroup)
                ),
                "check with /proc/PID/cgroup whether processes that are not the server's were counted",
            ));
        }
    }
    let machine = window.machine_use();
    let (accounted, passed) = (machine.times.total() as f64, machine.elapsed_ticks * machine.cpus as f64);
    if (accounted - passed).abs() > passed * ACCOUNT_TOLERANCE_RATIO + 4.0 * machine.cpus as f64 {
        doubts.push(DoubtKind::SourcesDisagree.warning(
            format!(
                "the kernel accounted {} of the CPU time that passed on {} CPUs",
                percent(accounted / passed),
                machine.cpus
            ),
            "use the scheduler's figures (server.cpu_us_per_request) rather than the machine's shares by mode",
        ));
    }
    let servers = window.server_cpus_use();
    if let Some(busy) = servers.busy_cpus().filter(|_| !window.server_cpus.is_empty()) {
        let used = by_clocks as f64 / window.elapsed_ns() as f64;
        if used > busy * (1.0 + ACCOUNT_TOLERANCE_RATIO) + servers.busy_error_cpus() {
            doubts.push(DoubtKind::SourcesDisagree.warning(
                format!(
                    "the server used {used:.2} CPUs but the CPUs it is pinned to were busy for only {busy:.2}: it also \
                     runs on others"
                ),
                "pin the server to the CPUs it is meant to use, or name the CPUs it really uses",
            ));
        }
    }
}

/// The ticks of each process are rounded separately.
fn tolerance_of_ticks(window: &ObservedWindow, cpu_ns: u64) -> u64 {
    let rounding = 2_000_000_000 / clock_ticks_per_sec() * window.members.len() as u64;
    tolerance_ns(cpu_ns) + rounding
}
