//! Converts the readings around a load into the data of its point: figures in total and by size class.

mod phases;

use super::classes::SizeClasses;
use super::point_watch::PointReadings;
use super::shares::Shares;
use record::figure::{Figures, Origin};
use record::watch::system::SystemKind;
use record::watch::{ClassTotals, Counter, Mean, Mode, Reading};
use record::{ClientSide, Doubt, DoubtKind, Watched, WatchedClass, WatchedProcess, names};
use std::collections::BTreeMap;

/// The data of a watch that a point keeps.
#[derive(Debug, Clone, Default)]
pub struct WatchedPoint {
    /// Figures of all classes together, and of the machine.
    pub figures: Figures,
    /// Data by class.
    pub watched: Watched,
    /// Reasons to doubt the figures.
    pub doubts: Vec<Doubt>,
}

/// The main figures of watched requests; one without a value has the reason.
pub const MAIN: [&str; 10] = [
    names::WATCH_REQUESTS,
    names::WATCH_RATE,
    names::WATCH_CLIENT_DIFFERENCE,
    names::WATCH_CPU,
    names::WATCH_ELAPSED,
    names::WATCH_PARSE,
    names::WATCH_PROCESS,
    names::WATCH_LOG,
    names::WATCH_IN_FLIGHT,
    names::WATCH_COST,
];

/// The data of a point whose requests were not watched, with the reason.
pub fn not_watched(why: &str) -> WatchedPoint {
    let mut seen = WatchedPoint::default();
    for name in MAIN {
        seen.figures.not_measured(name, why);
    }
    seen.watched.why_not = Some(why.into());
    seen
}

/// Converts the readings. `why_not`: why there are no programs.
pub fn watched_point(
    readings: &PointReadings,
    sizes: &SizeClasses,
    client: &ClientSide,
    why_not: Option<&str>,
) -> WatchedPoint {
    let why_nothing = match (why_not, readings.mode, readings.shares) {
        (Some(why), ..) => Some(why.to_string()),
        _ if readings.end.at_ns == 0 => Some("the window never began".into()),
        (_, Some(Mode::Zero), _) => Some("only connections were watched, as requested".into()),
        (_, _, Some(Shares { counted, .. })) if counted <= 0.0 => {
            Some("requests of this server are so cheap that counting them would exceed the budget of the watch".into())
        }
        _ => readings.failure.clone().filter(|_| readings.counted.classes.is_empty()),
    };
    let mut seen = match &why_nothing {
        Some(why) => not_watched(why),
        None => WatchedPoint::default(),
    };
    if readings.end.at_ns == 0 {
        return seen;
    }
    seen.watched.mode = readings.mode.map_or("", Mode::word).into();
    if why_nothing.is_none() {
        requests(&mut seen, readings, sizes, client);
    }
    if why_not.is_none() {
        connections(&mut seen.figures, readings);
    }
    let started = readings.end.system.started.zip(readings.begin.system.started);
    let seconds = readings.end.system.seconds_since(&readings.begin.system, SystemKind::Cpu);
    let (counts, seconds) = (started.filter(|_| seconds.is_some()), seconds.unwrap_or(1.0));
    seen.figures.rate(names::MACHINE_STARTED, counts, seconds, "/proc/stat cannot be read");
    seen
}

fn requests(seen: &mut WatchedPoint, readings: &PointReadings, sizes: &SizeClasses, client: &ClientSide) {
    let (begin, counted, end) = (&readings.begin, &readings.counted, &readings.end);
    let classes = counted.classes_since(begin);
    let all = ClassTotals::sum(&classes);
    let span_ns = counted.at_ns.saturating_sub(begin.at_ns).max(1);
    let window_ns = end.at_ns.saturating_sub(begin.at_ns).max(1);
    let counted_ratio = (span_ns as f64 / window_ns as f64).min(1.0);
    let user = user_share(begin, end);
    let figures = &mut seen.figures;
    class_figures(figures, &all, span_ns, user);
    let group_ns = group_between(begin, end);
    let added = |reading: &Reading| reading.cost.added.map_or(0.0, |added| added.added_ns);
    let added_ns = added(counted) - added(begin);
    let cost = group_ns.ok().filter(|_| added_ns > 0.0 || all.receives == 0).map(|group_ns| added_ns / group_ns);
    let hidden = "other work disturbed the calibration of an event's cost";
    let why_not = group_ns.err().unwrap_or(hidden);
    figures.found(names::WATCH_COST, cost, (all.receives, Origin::Modelled), why_not);
    figures.measured(names::WATCH_COUNTED, counted_ratio, 1, Origin::Timed);
    let explained = |reading: &Reading| {
        reading.charged().map(|charged| charged.requests_ns + charged.connect_ns + charged.between_ns)
    };
    let explained_ns = explained(counted).zip(explained(begin)).map(|(after, before)| (after - before) as f64);
    let counted_group_ns = group_between(begin, counted);
    let share = explained_ns.zip(counted_group_ns.ok()).map(|(explained_ns, group_ns)| explained_ns / group_ns);
    let why_not = counted_group_ns.err().unwrap_or(UNSEEN);
    figures.found(names::WATCH_EXPLAINED, share, (all.requests, Origin::Timed), why_not);
    against_client(seen, readings, client, &all, counted_ratio);
    in_flight(&mut seen.figures, readings);
    phases::of_all(&mut seen.figures, readings, &classes);
    phases::by_pack(&mut seen.figures, readings);
    let [lost_before, lost_after] = [begin, end].map(|reading| reading.count(Counter::DisplacedOpen).unwrap_or(0));
    let lost = lost_after.saturating_sub(lost_before);
    seen.watched.classes = by_class(&classes, readings, sizes, span_ns, user);
    seen.watched.processes = by_process(begin, counted, span_ns);
    if counted_ratio < 0.98 {
        seen.watched.why_not = Some(
            "requests were counted in the first part of the window only: all of it would exceed the budget of the watch"
                .into(),
        );
    }
    doubts(&mut seen.doubts, readings, &all, lost);
}

fn by_process(begin: &Reading, end: &Reading, span_ns: u64) -> Vec<WatchedProcess> {
    let requests = |reading: &Reading, pid: u32| {
        let process = reading.processes.iter().find(|process| process.pid == pid);
        process.and_then(|process| process.counted).map_or(0, |counted| counted.requests)
    };
    let pids = end.processes.iter().map(|process| process.pid).filter(|pid| *pid != 0);
    let of = |pid: u32| {
        let requests = requests(end, pid).saturating_sub(requests(begin, pid));
        WatchedProcess { pid, requests, per_sec: requests as f64 * 1e9 / span_ns as f64 }
    };
    let mut all: Vec<WatchedProcess> = pids.map(of).filter(|process| process.requests > 0).collect();
    all.sort_by_key(|process| std::cmp::Reverse(process.requests));
    if all.len() > 1 { all } else { Vec::new() }
}

/// The reason if the clock, which ticks only a hundred to a thousand times per second, did not count.
pub const NO_TICK: &str = "the kernel counted no CPU time of the server in this window";

const UNSEEN: &str = "the server's processes may not be inspected";

fn group_between(begin: &Reading, end: &Reading) -> Result<f64, &'static str> {
    let (after, before) = end.group_ns().zip(begin.group_ns()).ok_or(UNSEEN)?;
    let group_ns = after.saturating_sub(before);
    if group_ns > 0 { Ok(group_ns as f64) } else { Err(NO_TICK) }
}

fn user_share(begin: &Reading, end: &Reading) -> Option<f64> {
    let user_ns = |reading: &Reading| Some(reading.cpu?.user_ratio? * reading.group_ns()? as f64);
    let whole_ns = group_between(begin, end).ok()?;
    let share = (user_ns(end)? - user_ns(begin).unwrap_or(0.0)) / whole_ns;
    Some(share.clamp(0.0, 1.0))
}

fn class_figures(figures: &mut Figures, class: &ClassTotals, span_ns: u64, user: Option<f64>) {
    let n = class.requests;
    let each = |total: f64| total / n as f64;
    let mut set = |name: &str, value: f64, n: u64, origin| figures.measured(name, value, n, origin);
    set(names::WATCH_REQUESTS, n as f64, n, Origin::Counted);
    set(names::WATCH_RATE, n as f64 * 1e9 / span_ns as f64, n, Origin::Counted);
    set(names::WATCH_BYTES_IN, each(class.bytes_in as f64), n, Origin::Counted);
    set(names::WATCH_BYTES_OUT, each(class.bytes_out as f64), n, Origin::Counted);
    let cpu_us = each(class.cpu_ns as f64 / 1e3);
    set(names::WATCH_CPU, cpu_us, n, Origin::Timed);
    set(names::WATCH_ELAPSED, class.elapsed_ns as f64 / 1e3 / class.timed as f64, class.timed, Origin::Timed);
    for (name, share) in [(names::WATCH_CPU_USER, user), (names::WATCH_CPU_SYSTEM, user.map(|user| 1.0 - user))] {
        let why_not = "the kernel's clock ticked too rarely to divide the CPU time";
        figures.found(name, share.map(|share| cpu_us * share), (n, Origin::Sampled), why_not);
    }
    let us = class.elapsed.quantile_at_most_ns(0.99).map(|ns| ns as f64 / 1e3);
    figures.found(names::WATCH_ELAPSED_P99, us, (class.timed, Origin::Timed), "no request ended");
}

fn against_client(
    seen: &mut WatchedPoint,
    readings: &PointReadings,
    client: &ClientSide,
    all: &ClassTotals,
    counted_ratio: f64,
) {
    let figures = &mut seen.figures;
    let why = "requests were counted in a part of the window only, to stay within the budget";
    if readings.is_whole && counted_ratio > 0.999 {
        let window_ns = readings.end.at_ns.saturating_sub(readings.begin.at_ns).max(1) as f64;
        // The windows' lengths differ slightly, so rates are compared.
        let theirs = client.completed_in_window as f64 / client.window_ns.max(1) as f64;
        let difference = all.requests as f64 / window_ns / theirs - 1.0;
        let n = client.completed_in_window;
        figures.measured(names::WATCH_CLIENT_DIFFERENCE, difference, n, Origin::Counted);
    } else {
        figures.not_measured(names::WATCH_CLIENT_DIFFERENCE, why);
    }
    let whole: u64 = readings.after.classes_since(&readings.before).iter().map(|class| class.requests).sum();
    let name = names::WATCH_WHOLE_DIFFERENCE;
    let answered = client.answered_in_all;
    let difference = answered.filter(|_| readings.is_whole).map(|answered| whole as f64 - answered as f64);
    let why_not = answered.map_or("the load came from other machines, which count only within their windows", |_| why);
    figures.found(name, difference, (answered.unwrap_or(0), Origin::Counted), why_not);
    if let Some((difference, answered)) = difference.zip(answered) {
        let allowed = client.given_up as f64;
        let relative = difference.abs() / answered.max(1) as f64;
        // Requests that the client gave up may have been answered, and requests of other clients count, too.
        if (difference < 0.0 || difference > allowed) && relative > 0.001 {
            seen.doubts.push(DoubtKind::SourcesDisagree.note(
                format!("the server answered {whole} requests of the whole load, the client counts {answered}"),
                "others may use the port, or requests are pipelined, upgraded or in HTTP/2 (docs/watching.md, what a \
                 request is)",
            ));
        }
    }
}

fn in_flight(figures: &mut Figures, readings: &PointReadings) {
    let n = readings.samples;
    let mean = readings.in_flight_sum as f64 / n as f64;
    for (name, value) in [(names::WATCH_IN_FLIGHT, mean), (names::WATCH_IN_FLIGHT_MAX, readings.in_flight_max as f64)] {
        let value = (n > 0).then_some(value);
        figures.found(name, value, (n, Origin::Sampled), "the window was too short for a reading");
    }
}

fn by_class(
    classes: &[ClassTotals],
    readings: &PointReadings,
    sizes: &SizeClasses,
    span_ns: u64,
    user: Option<f64>,
) -> Vec<WatchedClass> {
    let origin = if readings.mode == Some(Mode::Exact) { Origin::Timed } else { Origin::Sampled };
    classes
        .iter()
        .zip(sizes.iter())
        .enumerate()
        .filter(|(_, (class, _))| class.requests > 0)
        .map(|(index, (class, size))| {
            let mut figures = Figures::default();
            let mut half_widths = BTreeMap::new();
            class_figures(&mut figures, class, span_ns, user);
            let mut set = |name: &str, scale: f64, estimate: Option<Mean>| {
                let Some(estimate) = estimate else { return };
                figures.measured(name, estimate.mean * scale, estimate.requests, origin);
                if let Some(half) = estimate.half_width.filter(|half| half.is_finite()) {
                    half_widths.insert(name.to_string(), half * scale);
                }
            };
            if let Some(phases) = readings.phases.get(index) {
                for (phase, (elapsed, cpu)) in phases::PHASES.into_iter().enumerate() {
                    set(elapsed, 1e-3, phases.elapsed_ns[phase]);
                    set(cpu, 1e-3, phases.cpu_ns[phase]);
                }
                set(names::WATCH_DISK, 1.0, phases.disk_bytes);
            }
            WatchedClass {
                name: size.name.clone(),
                from_bytes: size.from_bytes,
                below_bytes: size.below_bytes,
                figures,
                half_widths,
            }
        })
        .collect()
}

fn connections(figures: &mut Figures, readings: &PointReadings) {
    let (begin, end) = (&readings.begin, &readings.end);
    let window_ns = end.at_ns.saturating_sub(begin.at_ns).max(1) as f64;
    for counter in Counter::ALL {
        let Some(name) = counter.declaration().figure else { continue };
        let counts = end.count(counter).zip(begin.count(counter));
        figures.rate(name, counts, window_ns / 1e9, "this kernel has no tracepoint for it");
    }
    let mut each = |name: &str, total_ns: f64, n: u64| {
        let mean_us = (n > 0).then(|| total_ns / 1e3 / n as f64);
        figures.found(name, mean_us, (n, Origin::Timed), "no new connection was read from in the window");
    };
    let (begin, end) = [begin, end].map(|reading| reading.connections.connects.clone().unwrap_or_default()).into();
    let connects = end.connects.saturating_sub(begin.connects);
    let elapsed_ns = end.connect_elapsed_ns.saturating_sub(begin.connect_elapsed_ns);
    each(names::WATCH_CONNECT, elapsed_ns as f64, connects);
    let with_cpu = end.connects_with_cpu.saturating_sub(begin.connects_with_cpu);
    each(names::WATCH_CONNECT_CPU, (end.connect_cpu_ns - begin.connect_cpu_ns) as f64, with_cpu);
}

fn doubts(doubts: &mut Vec<Doubt>, readings: &PointReadings, all: &ClassTotals, lost: u64) {
    if lost > 0 {
        doubts.push(DoubtKind::LostEvents.warning(
            format!("{lost} requests were lost to the watch of {}: too many connections for its table", all.requests),
            "use fewer connections, or --detail off",
        ));
    }
    let timed: u64 = readings.phases.iter().map(|phases| phases.requests).sum();
    if readings.late > 0 && readings.late * 20 > timed {
        doubts.push(DoubtKind::TooFewSamples.note(
            format!(
                "{} of {} requests had no response when their window of phases was closed: the phases are those of the \
                 faster ones",
                readings.late,
                timed + readings.late
            ),
            "use --detail exact, which times every request",
        ));
    }
    if let Some(failure) = &readings.failure {
        doubts.push(
            DoubtKind::NotWatched.note(format!("parts of the watch failed: {failure}"), "see straingauge doctor"),
        );
    }
}
