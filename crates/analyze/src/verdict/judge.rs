//! One function for each rule of the table: it checks a run and returns the observation and the remedy, or nothing.

use super::Certainty;
use super::command::{again, more_descriptors, of_server, quoted, server_pid};
use super::evidence::{Evidence, at_least, pooled, typical};
use super::rules::*;
use crate::zones::{load_words, percent};
use record::text::plain;
use record::units::format_si;
use record::units::grouped;
use record::{Point, Sweep, names};

/// The finding of a rule.
#[derive(Clone)]
pub struct Finding {
    /// The cause with its evidence, one or two sentences.
    pub because: String,
    /// The remedy, one sentence with the commands in it.
    pub remedy: String,
    /// The commands in the remedy.
    pub commands: Vec<String>,
    /// Certainty of the cause.
    pub certainty: Certainty,
}

pub(super) fn finding(because: String, remedy: String, commands: &[String]) -> Option<Finding> {
    Some(Finding { because, remedy, commands: commands.to_vec(), certainty: Certainty::Cause })
}

/// The way down lies below the way up.
pub fn stays_down(evidence: &Evidence<'_>) -> Option<Finding> {
    let unloading = evidence.findings.unloading.as_ref()?;
    unloading.widest()?;
    let below = match (&unloading.recovery_point.held, &unloading.recovery_point.failed) {
        (Some(back), _) => {
            format!("until then it comes back when the load falls to {}", load_words(*back, Sweep::Connections))
        }
        _ if unloading.never_back => "until then only a restart brings it back".into(),
        _ => "until then only a load below the lowest one measured, or a restart, brings it back".into(),
    };
    let mut found = finding(
        format!("Overload outlives its cause here. {}", unloading.sentence()),
        format!(
            "To try: bound what waits (a limit of requests under way, a timeout for queued work), and give retries a \
             budget and a backoff; {below}."
        ),
        &[],
    )?;
    if unloading.never_back {
        let lowest = unloading.levels.first().map_or(1.0, |level| level.load);
        let url = quoted(&evidence.run.record.scenario.url());
        let command = again(evidence.run, &format!("load {url} --connections {lowest:.0}"));
        found.remedy = format!(
            "{} To decide: `{command}` against the server started anew; if it gives again what it gave before, the \
             load brought it down, else something came between.",
            found.remedy
        );
        found.commands = vec![command];
    }
    // The server came down once, so another event at that moment may be the cause.
    if unloading.never_back || !unloading.doubts.is_empty() {
        found.certainty = Certainty::Possibility;
    }
    Some(found)
}

/// The client had no port for requests.
pub fn client_ports(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.criteria().error_ratio;
    let share = |point: &Point| point.outcomes.local_limit as f64 / point.outcomes.requests().max(1) as f64;
    let (at, points) = evidence.first_level(|point| share(point) > limit)?;
    let most = points.iter().map(|point| share(point)).fold(0.0, f64::max);
    let range = evidence.run.record.machine.sysctls.get("net.ipv4.ip_local_port_range");
    let range = range.map(|range| format!(" (ports {})", plain(&range.replace(' ', " to "), 40))).unwrap_or_default();
    let command = "sysctl -w net.ipv4.ip_local_port_range='1024 65535' net.ipv4.tcp_tw_reuse=1".to_string();
    finding(
        format!(
            "The client had no local port or descriptor left{range}: {} of the requests at {at} could not be sent. A \
             port whose connection the client closed first waits for a minute in TIME_WAIT.",
            percent(most)
        ),
        format!("To try on the client's machine: `{command}`, more addresses with `--source-address`, or keep-alive."),
        &[command],
    )
}

/// The client had no CPU left, but the server had.
pub fn client(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep().filter(|sweep| sweep.yield_point.estimate.is_none())?;
    let level = sweep.levels.iter().find(|level| level.client_limited)?;
    let whose = if level.crowded { ", much of it with other work" } else { "" };
    let server = level
        .cpus_busy_ratio
        .map_or(String::new(), |busy| format!("; the server's CPUs were {} busy{whose}", percent(busy.median)));
    let url = quoted(&evidence.run.record.scenario.url());
    let command = again(evidence.run, &format!("find --client 'ssh HOST straingauge load --worker' {url}"));
    finding(
        format!("The client was the bottleneck from {} on{server}.", load_words(level.load, sweep.sweep)),
        format!("To try: more clients, `{command}`, or more CPUs for this one (`--cpus`, `--threads`)."),
        &[command],
    )
}

/// accept() fails because the process has no free descriptor.
pub fn descriptors(evidence: &Evidence<'_>) -> Option<Finding> {
    let criteria = *evidence.criteria();
    let is_full = |point: &Point| point.value(names::SERVER_DESCRIPTORS).is_some_and(|used| used >= DESCRIPTORS_RATIO);
    let waits = |point: &Point| point.value(names::ACCEPT_QUEUE_MAX).is_some_and(|queue| queue >= 1.0);
    // Without readings of the accept queue: the client sees connections that are not accepted, or closed at once.
    let lost = |point: &Point| {
        let seen = &point.outcomes;
        let lost = [seen.connect_timed_out, seen.connections_silent, seen.closed_early, seen.reset, seen.refused];
        lost.iter().any(|count| *count > 0) && crate::zones::fails(point, &criteria)
    };
    let (at, points) = evidence.first_level(|point| is_full(point) && (waits(point) || lost(point)))?;
    let used = points.iter().filter_map(|point| point.figures.get(names::SERVER_DESCRIPTORS)?.n).max()?;
    let share = typical(&points, names::SERVER_DESCRIPTORS)?;
    let (remedy, commands) = more_descriptors(evidence.run);
    finding(
        format!(
            "A process of the server had {} descriptors open at {at}, {} of its limit: it cannot accept more \
             connections.",
            grouped(used as f64),
            percent(share)
        ),
        remedy,
        &commands,
    )
}

/// The control group was stopped until the next period because it had used its limit of CPU time.
pub fn cpu_quota(evidence: &Evidence<'_>) -> Option<Finding> {
    let (points, lowest) = (evidence.strained(), evidence.lowest());
    let (share, periods) = pooled(&points, names::SERVER_THROTTLED)?;
    let used = typical(&points, names::SERVER_QUOTA_USED)?;
    let limit = typical(&points, names::SERVER_QUOTA)?;
    if periods < LEAST_PERIODS || at_least(share, periods, 2.0) < THROTTLED_RATIO || used < QUOTA_USED_RATIO {
        return None;
    }
    let before =
        pooled(&lowest, names::SERVER_THROTTLED).map(|(share, _)| format!(", {} at the lowest load", percent(share)));
    let command = format!("cat /proc/{}/cgroup", server_pid(evidence.run));
    finding(
        format!(
            "The server has used up its limit of CPU time: its control group may use {limit:.2} CPUs, used {} of that \
             beyond the yield point, and was stopped in {} of its periods (n = {}{}).",
            percent(used),
            percent(share),
            grouped(periods),
            before.unwrap_or_default()
        ),
        format!(
            "To try: a higher limit (`docker update --cpus`, `limits.cpu` of Kubernetes, `CPUQuota=` of systemd), or \
             less CPU time a request; `{command}` names the group, `cpu.max` in its folder (`cpu.cfs_quota_us` in \
             version 1) is the limit."
        ),
        &[command],
    )
}

/// Number of sampled sleeps in select or poll, and of all sampled sleeps.
fn sleeps(point: &Point) -> Option<(f64, f64)> {
    let figure = point.figures.get(names::SERVER_SELECT_WAITS)?;
    let n = figure.n? as f64;
    Some((figure.value? * n, n))
}

/// The server sleeps in select or poll over a large set (so few of it were ready), and either its requests cost more
/// with more connections or it held cold ones.
pub fn scalable_select(evidence: &Evidence<'_>) -> Option<Finding> {
    let run = evidence.run;
    if run.record.server_facts.contains_key("scalable_select") {
        return None;
    }
    let points = || run.points.iter().filter(|point| point.sweep != Sweep::Yardstick);
    let (in_select, seen) = points().filter_map(sleeps).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let set = points().filter_map(|point| point.value(names::SERVER_SELECT_SET)).fold(0.0, f64::max);
    if !(seen >= SELECT_SEEN && in_select >= SELECT_RATIO * seen && set >= SELECT_SET) {
        return None;
    }
    let cpu = evidence.findings.connections.as_ref().and_then(|closed| closed.cpu.as_ref());
    let grown = cpu.filter(|cpu| cpu.is_growth() && cpu.ratio >= GROWTH_RATIO);
    let cold = points().filter_map(|point| point.value(names::COLD)).fold(0.0, f64::max);
    let (because, idle) = match grown {
        Some(cpu) => {
            let at = load_words(cpu.highest_load, Sweep::Connections);
            (format!("a request cost {:.1} times as much CPU at {at}", cpu.ratio), cold.max(cpu.highest_load))
        }
        None if cold >= SELECT_SET => (format!("{} of them belonged to cold connections", grouped(cold)), cold),
        None => return None,
    };
    let server = of_server(run);
    let (scale, both) = (
        format!("straingauge scale -- {server}"),
        format!(
            "straingauge find {} --compare-with scale --cold {idle:.0} -- {server}",
            quoted(&run.record.scenario.url())
        ),
    );
    finding(
        format!(
            "The server sleeps in select or poll ({} of {} sleeps seen), over up to {} descriptors, and {because}: \
             each call costs what is open, not what is ready.",
            grouped(in_select),
            grouped(seen),
            grouped(set),
        ),
        format!("To try: `{scale}`; both side by side: `{both}`."),
        &[scale.clone(), both.clone()],
    )
}

/// One CPU does all receive processing and is full while another has idle time.
pub fn interrupts(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    let value = |name| typical(&points, name);
    let (busy, softirq) = (value(names::SERVER_SOFTIRQ_CPU_BUSY)?, value(names::SERVER_SOFTIRQ_CPU)?);
    let (share, ticks) = pooled(&points, names::SERVER_SOFTIRQ_CONCENTRATION)?;
    let idlest = value(names::SERVER_IDLEST_CPU_BUSY)?;
    let is_full = busy >= SOFTIRQ_CPU_BUSY;
    if ticks < LEAST_TICKS as f64
        || !is_full
        || softirq < SOFTIRQ_RATIO
        || share < SOFTIRQ_CONCENTRATION
        || idlest >= IDLE_CPU_BUSY
    {
        return None;
    }
    let record = &evidence.run.record;
    let cpus: Vec<usize> = match record.scenario.server() {
        Some(server) if !server.cpus.is_empty() => server.cpus.clone(),
        _ => (0..typical(&points, names::SERVER_CPUS).map_or(record.machine.cpus, |cpus| cpus as usize)).collect(),
    };
    let mask = cpus.iter().filter(|cpu| **cpu < 64).fold(0u64, |mask, cpu| mask | 1 << cpu);
    let command = format!("echo {mask:x} > /sys/class/net/DEVICE/queues/rx-0/rps_cpus");
    finding(
        format!(
            "One CPU takes the receive processing: {} of all softirq time, which is {} of that CPU's time; it was {} \
             busy while another of the server's was {} busy.",
            percent(share),
            percent(softirq),
            percent(busy),
            percent(idlest)
        ),
        format!(
            "To try: `{command}` for each receive queue, or more queues with `ethtool -L DEVICE combined {}`.",
            cpus.len()
        ),
        &[command],
    )
}

/// The kernel dropped SYNs because the server did not accept fast enough.
pub fn backlog(evidence: &Evidence<'_>) -> Option<Finding> {
    let criteria = *evidence.criteria();
    let value = |point: &Point, name| point.value(name).unwrap_or(0.0);
    // Connections that were dropped while opening are retried after a second, perhaps after the short window of a
    // search. If every request was answered sooner, the point failed for another reason.
    let is_late = |point: &Point| {
        let outcomes = &point.outcomes;
        let unanswered =
            [outcomes.timed_out, outcomes.connect_timed_out, outcomes.connections_silent, outcomes.unfinished];
        value(point, names::RESPONSE_MAX) >= SYN_RETRY_US || unanswered.iter().any(|count| *count > 0)
    };
    let fails = |point: &Point| is_late(point) && crate::zones::fails(point, &criteria);
    // The kernel counts all listeners of the namespace. If this load has too few connections to fill the queue,
    // another service dropped its own.
    let is_own = |point: &Point| {
        let most = point.connections as f64 + value(point, names::COLD);
        point.value(names::ACCEPT_QUEUE_LIMIT).is_none_or(|limit| most > limit)
    };
    let (at, points) = evidence.first_level(|point| {
        let has_lost = value(point, names::TCP_LISTEN_OVERFLOWS) >= LOST_PER_SEC
            || value(point, names::TCP_LISTEN_OVERFLOWS_BEFORE) >= 1.0 && fails(point);
        has_lost && is_own(point)
    })?;
    let rate = typical(&points, names::TCP_LISTEN_OVERFLOWS)?;
    let seen = if rate >= LOST_PER_SEC {
        format!("{}/s", format_si(rate))
    } else {
        format!("{} while connections were opened", grouped(typical(&points, names::TCP_LISTEN_OVERFLOWS_BEFORE)?))
    };
    let limit = typical(&points, names::ACCEPT_QUEUE_LIMIT);
    let most = evidence.run.record.machine.sysctls.get("net.core.somaxconn").and_then(|text| text.parse::<f64>().ok());
    let wanted = limit.map_or(4096.0, |limit| (limit * 8.0).clamp(1024.0, 65_535.0));
    let mut commands = Vec::new();
    if most.is_none_or(|most| most < wanted) {
        commands.push(format!("sysctl -w net.core.somaxconn={wanted:.0}"));
    }
    let sysctl = commands.first().map(|command| format!("`{command}` and ")).unwrap_or_default();
    finding(
        format!(
            "The accept queue overflowed from {at} on ({seen}): its limit is {}, and connections were dropped before \
             the server saw them; each is tried again after a second or more.",
            limit.map_or("not known".into(), grouped)
        ),
        format!(
            "To try: {sysctl}a larger backlog in the server's configuration (nginx `listen ... backlog={wanted:.0}`, \
             Apache `ListenBacklog {wanted:.0}`, HAProxy `backlog {wanted:.0}`)."
        ),
        &commands,
    )
}

/// Connections that skipped TIME_WAIT.
pub fn time_wait(evidence: &Evidence<'_>) -> Option<Finding> {
    let overflows = |point: &Point| point.value(names::TIME_WAIT_OVERFLOWS).unwrap_or(0.0);
    let (at, points) = evidence.first_level(|point| overflows(point) >= LOST_PER_SEC)?;
    let rate = typical(&points, names::TIME_WAIT_OVERFLOWS)?;
    let held = points.iter().filter_map(|point| point.connection_states.get("time-wait")?.value).fold(0.0, f64::max);
    let command = "sysctl -w net.ipv4.tcp_max_tw_buckets=262144".to_string();
    finding(
        format!(
            "The server's TIME_WAIT sockets reached their limit at {at}: {} of its port were there, and {}/s more \
             connections ended without that state.",
            grouped(held),
            format_si(rate)
        ),
        format!("To try: `{command}`, and keep-alive, so that clients close first."),
        &[command],
    )
}

/// A full link.
pub fn bandwidth(evidence: &Evidence<'_>) -> Option<Finding> {
    let points = evidence.strained();
    if points.is_empty() || evidence.is_saturated(&points) == Some(true) {
        return None;
    }
    let path = evidence.run.record.scenario.path().map(|path| path.bandwidth_bits_per_sec as f64);
    let received = typical(&points, names::RECEIVED).map(|bytes| bytes * 8.0);
    let on_path = match (path.filter(|bits| *bits > 0.0), received) {
        (Some(bits), Some(received)) => Some((received / bits, format!("the path's {}bit/s", format_si(bits)))),
        _ => None,
    };
    let lowest = evidence.lowest();
    let grew = |name| Some(typical(&points, name)? / typical(&lowest, name)?);
    // A device that is as full when the server answers little carries other traffic.
    let is_others = matches!((grew(names::RECEIVED), grew(names::NET_LINK_USED)),
        (Some(answers), Some(device)) if answers > 1.5 && device < answers.sqrt());
    let on_link = typical(&points, names::NET_LINK_USED).filter(|_| !is_others);
    let on_link = on_link.map(|share| (share, "a network device's speed".to_string()));
    let (share, of) = on_path.into_iter().chain(on_link).find(|(share, _)| *share >= LINK_RATIO)?;
    let command = "ethtool DEVICE".to_string();
    finding(
        format!(
            "The network is full: responses took {} of {of}, while no CPU of the server was saturated.",
            percent(share)
        ),
        format!(
            "To try: smaller answers (compression, caching by clients), or a faster link; `{command}` shows its speed."
        ),
        &[command],
    )
}
