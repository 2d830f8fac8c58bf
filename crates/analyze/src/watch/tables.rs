//! The tables of a running or recorded watch, as numbers. After Almeida, Almeida and Yates (1996): requests by class
//! (their Table 5), the machine (Table 8), comparison of sources (Tables 6 and 9), connections by state (Table 10).

use super::recording::Recording;
use record::units::format_bytes;
use record::watch::system::{CpuModes, DiskCounts, GroupIo, Paging, SystemKind};
use record::watch::{Counter, Mean, PhaseTotals, Reading, SizeClass};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A number and half of its 95 % interval; absent = not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Cell {
    /// Value of the cell; absent if it was not measured.
    pub value: Option<f64>,
    /// Half of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Cell {
        Cell { value: value.filter(|value| value.is_finite()), half_width: None }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Some(value).into()
    }
}

impl Cell {
    fn scaled(estimate: Option<Mean>, scale: f64) -> Cell {
        Cell {
            value: estimate.map(|estimate| estimate.mean * scale).filter(|value| value.is_finite()),
            half_width: estimate.and_then(|estimate| estimate.half_width).map(|half| half * scale),
        }
    }
}

/// Table of figures, one row per class or period.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct FigureTable {
    /// Title of the table.
    pub title: &'static str,
    /// How the table's numbers were obtained.
    pub note: String,
    /// Name and unit of each column of numbers.
    pub columns: Vec<(&'static str, &'static str)>,
    /// Label and numbers of each row.
    pub rows: Vec<(String, Vec<Cell>)>,
}

/// CPU time by the scheduler compared with the time charged to requests and connections.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct ExplainedCpu {
    /// CPU time of the server's processes by the scheduler, in CPUs.
    pub scheduler_cpus: f64,
    /// Share of that time charged to requests, accepting and closing.
    pub explained_ratio: f64,
}

/// Tables of a watch's report.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct Tables {
    /// Tables in the order in which they are shown.
    pub tables: Vec<FigureTable>,
    /// CPU time from two sources; see [`ExplainedCpu`].
    pub cpu_check: Option<ExplainedCpu>,
}

struct ReadingSpan<'a> {
    first: &'a Reading,
    last: &'a Reading,
    seconds: f64,
}

impl ReadingSpan<'_> {
    fn per_sec(&self, first: u64, last: u64) -> f64 {
        last.saturating_sub(first) as f64 / self.seconds
    }
}

/// The tables of a running watch from its first reading to its last.
pub fn of_watch(first: &Reading, last: &Reading, classes: &[SizeClass]) -> Tables {
    tables(&Recording::between(first, last, classes))
}

/// The tables for a screen: requests by class and the machine since an earlier reading, phases and processes since the
/// watch began.
pub fn on_screen(earlier: &Reading, now: &Reading, classes: &[SizeClass]) -> Vec<FigureTable> {
    let recording = Recording::between(earlier, now, classes);
    let Some(span) = span(&recording) else { return Vec::new() };
    let by_class = (recording.has_requests && classes.len() > 1).then(|| self::classes(&recording, &span));
    [by_class, phases(&recording), super::processes::table(now), machine(&span)].into_iter().flatten().collect()
}

fn span(recording: &Recording) -> Option<ReadingSpan<'_>> {
    let (first, last) = (&recording.first, &recording.last);
    let seconds = last.elapsed_ns.saturating_sub(first.elapsed_ns) as f64 / 1e9;
    (seconds > 0.0).then_some(ReadingSpan { first, last, seconds })
}

/// The tables of a recording.
pub fn tables(recording: &Recording) -> Tables {
    let Some(span) = span(recording) else { return Tables::default() };
    let mut tables = Vec::new();
    if recording.has_requests {
        tables.push(classes(recording, &span));
        tables.extend(phases(recording));
        tables.extend(pack(recording));
        tables.push(demands(recording, &span));
    }
    tables.extend(super::processes::table(span.last));
    tables.extend(machine(&span));
    tables.extend(states(recording));
    tables.extend(counters(&span));
    let (check, cpu_check) = sources(recording, &span);
    tables.extend(check);
    Tables { tables, cpu_check }
}

fn name(recording: &Recording, index: usize) -> String {
    recording.classes.get(index).map_or_else(|| format!("class {}", index + 1), |class| class.name.clone())
}

fn ratio(sum: f64, count: u64) -> Cell {
    (count > 0).then(|| sum / count as f64).into()
}

fn classes(recording: &Recording, span: &ReadingSpan<'_>) -> FigureTable {
    let classes = span.last.classes_since(span.first);
    let all: u64 = classes.iter().map(|class| class.requests).sum();
    let counted_s = match span.last.counted_ns {
        None => span.seconds,
        Some(_) => span.last.counted_time_ns().saturating_sub(span.first.counted_time_ns()) as f64 / 1e9,
    };
    let rows = classes.iter().enumerate().map(|(index, class)| {
        let cells = vec![
            (class.requests as f64).into(),
            ratio(class.requests as f64 * 100.0, all),
            (class.requests as f64 / counted_s).into(),
            ratio(class.bytes_in as f64, class.requests),
            ratio(class.bytes_out as f64, class.requests),
            ratio(class.receives as f64, class.requests),
            ratio(class.cpu_ns as f64 / 1e3, class.requests),
            ratio(class.elapsed_ns as f64 / 1e3, class.timed),
            class.elapsed.quantile_at_most_ns(0.5).map(|ns| ns as f64 / 1e3).into(),
            class.elapsed.quantile_at_most_ns(0.99).map(|ns| ns as f64 / 1e3).into(),
        ];
        (name(recording, index), cells)
    });
    FigureTable {
        title: "Requests by size class",
        note: "All requests, bytes and reads are counted; CPU and elapsed times of every request are timed.".into(),
        columns: vec![
            ("requests", "n"),
            ("share", "%"),
            ("rate", "1/s"),
            ("in", "B/request"),
            ("out", "B/request"),
            ("reads", "/request"),
            ("CPU", "us/request"),
            ("elapsed", "us/request"),
            ("p50 <=", "us"),
            ("p99 <=", "us"),
        ],
        rows: rows.collect(),
    }
}

/// Elapsed and CPU times of the phases, further columns, and the number of requests and windows.
fn phase_columns(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let of_phases = |unit| super::processes::PHASE_NAMES.map(|phase| (phase, unit));
    [&of_phases("us elapsed")[..], &of_phases("us CPU"), more, &[("requests", "n"), ("windows", "n")]].concat()
}

fn phase_cells(phases: &PhaseTotals, more: &[Option<Mean>]) -> Vec<Cell> {
    let times = phases.elapsed_ns.iter().chain(&phases.cpu_ns).map(|mean| Cell::scaled(*mean, 1e-3));
    let counts = [phases.requests, phases.windows].map(|count| (count as f64).into());
    times.chain(more.iter().map(|mean| Cell::scaled(*mean, 1.0))).chain(counts).collect()
}

fn phases(recording: &Recording) -> Option<FigureTable> {
    let phases = &recording.last.phases;
    let rows: Vec<(String, Vec<Cell>)> = phases
        .iter()
        .enumerate()
        .filter(|(_, phases)| phases.requests > 0)
        .map(|(index, phases)| (name(recording, index), phase_cells(phases, &[phases.sends, phases.disk_reads])))
        .collect();
    (!rows.is_empty()).then(|| FigureTable {
        title: "Phases",
        note: format!(
            "Means of the requests in windows, +- half of the 95 % interval over windows; CPU divides the class's \
             exact CPU time.{}",
            connecting(&recording.last).unwrap_or_default()
        ),
        columns: phase_columns(&[("sends", "/request"), ("disk reads", "/request")]),
        rows,
    })
}

fn connecting(last: &Reading) -> Option<String> {
    let connects = last.connections.connects.as_ref().filter(|connects| connects.connects > 0)?;
    let mean_us = |ns: f64, n: u64| format!("{:.1}", ns / 1e3 / n as f64);
    let with_cpu = connects.connects_with_cpu;
    let cpu = (with_cpu > 0).then(|| format!(", {} us of CPU", mean_us(connects.connect_cpu_ns as f64, with_cpu)));
    Some(format!(
        " Connecting: {} us from establishment to the first read, including the client's delay{} (n = {} connections).",
        mean_us(connects.connect_elapsed_ns as f64, connects.connects),
        cpu.unwrap_or_default(),
        connects.connects
    ))
}

fn pack(recording: &Recording) -> Option<FigureTable> {
    let pack = recording.last.pack.as_ref()?;
    let mut rows = Vec::new();
    for (index, (functions, events)) in pack.by_functions.iter().zip(&pack.by_events).enumerate() {
        for (by, phases) in [("functions", functions), ("reads and sends", events)] {
            if phases.requests > 0 {
                rows.push((format!("{}, by {by}", name(recording, index)), phase_cells(phases, &[])));
            }
        }
    }
    (!rows.is_empty()).then(|| FigureTable {
        title: "Phases by the server's own functions",
        note: format!(
            "Pack {}: the same requests in windows with probes. Both rows include the probes' {:.1} us per request.",
            record::text::plain(&pack.server, 40),
            pack.request_ns / 1e3
        ),
        columns: phase_columns(&[]),
        rows,
    })
}

fn demands(recording: &Recording, span: &ReadingSpan<'_>) -> FigureTable {
    let user = span.last.cpu.and_then(|cpu| cpu.user_ratio).filter(|ratio| (0.0..=1.0).contains(ratio));
    let classes = span.last.classes_since(span.first);
    let rows = classes.iter().enumerate().filter(|(_, class)| class.requests > 0).map(|(index, class)| {
        let cpu_us = class.cpu_ns as f64 / 1e3 / class.requests as f64;
        let disk = span.last.phases.get(index).and_then(|phases| phases.disk_bytes);
        let cells = vec![
            user.map(|user| cpu_us * user).into(),
            user.map(|user| cpu_us * (1.0 - user)).into(),
            Cell::scaled(disk, 1.0),
            ratio(class.bytes_out as f64, class.requests),
        ];
        (name(recording, index), cells)
    });
    FigureTable {
        title: "Service demands",
        note: "Per request. CPU is exact by class, split into user and system like the whole group's; disk bytes come \
               from windows."
            .into(),
        columns: vec![("CPU user", "us"), ("CPU system", "us"), ("disk", "B"), ("network", "B")],
        rows: rows.collect(),
    }
}

/// The title of the machine's table.
pub const MACHINE: &str = "Machine";

type MachinePart<T> = (&'static str, fn(&T) -> u64);

fn machine(span: &ReadingSpan<'_>) -> Option<FigureTable> {
    let (first, last) = (&span.first.system, &span.last.system);
    let seconds = last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
    if seconds <= 0.0 {
        return None;
    }
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    let mut share = |name: String, percent: Option<f64>| rows.push((name, vec![Cell::default(), percent.into()]));
    if let (Some(before), Some(after)) = (&first.cpu, &last.cpu) {
        let modes: [MachinePart<CpuModes>; 7] = [
            ("CPU user", |cpu| cpu.user_ms),
            ("CPU system", |cpu| cpu.system_ms),
            ("CPU interrupts", |cpu| cpu.irq_ms),
            ("CPU softirq", |cpu| cpu.softirq_ms),
            ("CPU idle", |cpu| cpu.idle_ms),
            ("CPU waiting for disks", |cpu| cpu.iowait_ms),
            ("CPU stolen", |cpu| cpu.steal_ms),
        ];
        let modes = modes.map(|(name, part)| (name, part(after).saturating_sub(part(before))));
        let all: u64 = modes.iter().map(|(_, ms)| ms).sum();
        for (name, ms) in modes {
            share(format!("{name}, % of {} CPUs", last.cpus), (all > 0).then(|| ms as f64 * 100.0 / all as f64));
        }
    }
    if let Some(memory) = last.memory {
        for (name, bytes) in [
            ("memory available", memory.available_bytes),
            ("memory of files", memory.cached_bytes),
            ("dirty memory", memory.dirty_bytes),
        ] {
            let of = memory.total_bytes as f64;
            share(format!("{name}, % of {}", format_bytes(of)), Some(bytes as f64 * 100.0 / of));
        }
    }
    if let (Some(before), Some(after), Some(seconds)) =
        (&first.disk, &last.disk, last.seconds_since(first, SystemKind::Disk))
    {
        let busy = after.busy_ms.saturating_sub(before.busy_ms) as f64 / 10.0 / seconds / after.devices as f64;
        share(format!("disks busy, % of {} devices", after.devices), Some(busy));
    }
    // The kinds of counters may have been read at different intervals.
    let mut rate = |name: &str, kind: SystemKind, before: Option<u64>, after: Option<u64>| {
        let counts = before.zip(after).zip(last.seconds_since(first, kind));
        let per_sec = counts.map(|((before, after), seconds)| after.saturating_sub(before) as f64 / seconds);
        if per_sec.is_some() {
            rows.push((name.to_string(), vec![per_sec.into(), Cell::default()]));
        }
    };
    let disk: [MachinePart<DiskCounts>; 4] = [
        ("disk reads", |disk| disk.reads),
        ("disk bytes read", |disk| disk.read_bytes),
        ("disk writes", |disk| disk.writes),
        ("disk bytes written", |disk| disk.written_bytes),
    ];
    for (words, part) in disk {
        rate(words, SystemKind::Disk, first.disk.as_ref().map(part), last.disk.as_ref().map(part));
    }
    let paging: [MachinePart<Paging>; 6] = [
        ("bytes paged in", |paging| paging.in_bytes),
        ("bytes paged out", |paging| paging.out_bytes),
        ("faults", |paging| paging.faults),
        ("major faults", |paging| paging.major_faults),
        ("pages swapped in", |paging| paging.swapped_in),
        ("pages swapped out", |paging| paging.swapped_out),
    ];
    for (words, part) in paging {
        rate(words, SystemKind::Paging, first.paging.as_ref().map(part), last.paging.as_ref().map(part));
    }
    rate("interrupts", SystemKind::Cpu, first.interrupts, last.interrupts);
    let before = |kind: &String| first.interrupts_by_kind.get(kind).copied().unwrap_or(0);
    let mut kinds: Vec<(&String, u64, u64)> =
        last.interrupts_by_kind.iter().map(|(kind, now)| (kind, before(kind), *now)).collect();
    kinds.retain(|(_, before, now)| now > before);
    kinds.sort_by_key(|(_, before, now)| std::cmp::Reverse(now - before));
    for (kind, before, now) in kinds.into_iter().take(5) {
        let name = format!("interrupts of {}", record::text::plain(kind, 40));
        rate(&name, SystemKind::Interrupts, Some(before), Some(now));
    }
    rate("context switches", SystemKind::Cpu, first.context_switches, last.context_switches);
    rate("processes and threads started", SystemKind::Cpu, first.started, last.started);
    let io: [MachinePart<GroupIo>; 2] =
        [("server: disk bytes read", |io| io.read_bytes), ("server: disk bytes written", |io| io.written_bytes)];
    for (words, part) in io {
        rate(words, SystemKind::Server, span.first.io.as_ref().map(part), span.last.io.as_ref().map(part));
    }
    // These counters are read with every reading.
    let seconds_of_all = span.last.at_ns.saturating_sub(span.first.at_ns) as f64 / 1e9;
    if let (Some(before), Some(after)) = (&span.first.cpu, &span.last.cpu) {
        let switches = after.switches_since(before);
        let seen = if switches.is_some() { "" } else { " (some threads not visible)" };
        for (words, n) in [
            (format!("server: context switches{seen}"), switches),
            ("server: major faults".into(), Some(after.major_faults.saturating_sub(before.major_faults))),
        ] {
            if seconds_of_all > 0.0 {
                rows.push((words, vec![n.map(|n| n as f64 / seconds_of_all).into(), Cell::default()]));
            }
        }
    }
    (!rows.is_empty()).then(|| FigureTable {
        title: MACHINE,
        note: format!("Means over {seconds:.0} s; counted by the kernel, CPU by its ticks of 10 ms."),
        columns: vec![("rate", "1/s"), ("share", "%")],
        rows,
    })
}

fn states(recording: &Recording) -> Option<FigureTable> {
    let samples: Vec<_> = recording.samples.iter().filter_map(|sample| sample.states.as_ref()).collect();
    let names: BTreeSet<&Cow<'_, str>> = samples.iter().flat_map(|states| states.keys()).collect();
    let rows: Vec<(String, Vec<Cell>)> = names
        .into_iter()
        .take(16)
        .map(|name| {
            let of = |states: &&BTreeMap<Cow<'static, str>, u64>| states.get(name).copied().unwrap_or(0);
            let mean = samples.iter().map(|states| of(states) as f64).sum::<f64>() / samples.len() as f64;
            let most = samples.iter().map(of).max().unwrap_or(0);
            (record::text::plain(name, 20), vec![mean.into(), (most as f64).into()])
        })
        .collect();
    (!rows.is_empty()).then(|| FigureTable {
        title: "Connections by state",
        note: format!(
            "Means and maxima over {} readings; counted at each transition. Sockets leave TIME_WAIT by the kernel's \
             timers, which are computed.",
            samples.len()
        ),
        columns: vec![("mean", "sockets"), ("most", "sockets")],
        rows,
    })
}

fn counters(span: &ReadingSpan<'_>) -> Option<FigureTable> {
    let row = |counter: Counter| {
        let count = span.last.count(counter);
        let cells = vec![count.map(|n| n as f64).into(), count.map(|n| span.per_sec(0, n)).into()];
        (counter.declaration().help.trim_end_matches('.').into(), cells)
    };
    Counter::ALL.iter().any(|counter| span.last.count(*counter).is_some()).then(|| FigureTable {
        title: "Counters",
        note: "Since the watch began; each event is counted.".into(),
        columns: vec![("total", "n"), ("rate", "1/s")],
        rows: Counter::ALL.into_iter().map(row).collect(),
    })
}

fn sources(recording: &Recording, span: &ReadingSpan<'_>) -> (Option<FigureTable>, Option<ExplainedCpu>) {
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    let (before, after) = (span.first.cpu.unwrap_or_default(), span.last.cpu.unwrap_or_default());
    let group = after.group_ns.saturating_sub(before.group_ns) as f64;
    let mut cpu_check = None;
    if group > 0.0 && recording.has_requests && after.charged.is_some() {
        let of = |now: i64, then: i64| now.saturating_sub(then) as f64;
        let (before, after) = (before.charged.unwrap_or_default(), after.charged.unwrap_or_default());
        let explained = of(after.requests_ns, before.requests_ns)
            + of(after.connect_ns, before.connect_ns)
            + of(after.between_ns, before.between_ns);
        let cpus = |ns: f64| ns / 1e9 / span.seconds;
        cpu_check = Some(ExplainedCpu { scheduler_cpus: cpus(group), explained_ratio: explained / group });
        let difference = (explained - group) / group * 100.0;
        rows.push((
            "server's CPU time, CPUs: charged against the scheduler's".into(),
            vec![cpus(explained).into(), cpus(group).into(), difference.into()],
        ));
    }
    if let Some(scans) = span.last.connections.reconciliation.filter(|scans| scans.scans > 0) {
        let (seen, off) = (scans.last_scan as f64, scans.last_difference as f64);
        let ratio = (seen > 0.0).then(|| off / seen * 100.0);
        rows.push(("sockets at the last scan: off against seen".into(), vec![off.into(), seen.into(), ratio.into()]));
    }
    if let (Some(added), true) = (span.last.cost.added.and_then(|added| added.added_ratio), group > 0.0) {
        rows.push((
            "added by watching, CPUs (modelled), against the server's".into(),
            vec![
                (added * group / 1e9 / span.seconds).into(),
                (group / 1e9 / span.seconds).into(),
                (added * 100.0).into(),
            ],
        ));
    }
    let count = |counter| span.last.count(counter);
    if let Some((accepted, closed)) = count(Counter::Accepted).zip(count(Counter::Closed)) {
        let (accepted, closed) = (span.per_sec(0, accepted), span.per_sec(0, closed));
        rows.push((
            "connections per second: closed against accepted".into(),
            vec![closed.into(), accepted.into(), (accepted > 0.0).then(|| (closed / accepted - 1.0) * 100.0).into()],
        ));
    }
    let table = FigureTable {
        title: "Comparison of sources",
        note: "Each line compares two sources of the same figure; their difference is in the last column.".into(),
        columns: vec![("one", ""), ("other", ""), ("difference", "%")],
        rows,
    };
    ((!table.rows.is_empty()).then_some(table), cpu_check)
}
