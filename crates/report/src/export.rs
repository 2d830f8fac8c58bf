//! Profiles in the formats of other programs: pprof, the Firefox Profiler, speedscope, folded stacks. Sums by layer
//! equal those of the table of layers, to the nanosecond if the format has times.

mod firefox;
mod pprof;
mod speedscope;

use analyze::Refused;
use analyze::axis::value_words;
use analyze::zones::{Findings, Zone, load_words};
use record::account::Account;
use record::profile::{Folded, Frame, Profile, Stack, Stacks};
use record::{Doubt, DoubtKind, PlainText, Point, RunDir, RunKind, Sweep};
use std::cmp::Ordering;
use std::collections::BTreeSet;

const PRODUCT: &str = concat!("straingauge ", env!("CARGO_PKG_VERSION"));

record::worded! {
    /// A format, with its word on the command line.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ExportFormat {
        /// profile.proto of pprof, compressed by gzip.
        Pprof = "pprof",
        /// The processed profile of the Firefox Profiler.
        Firefox = "firefox",
        /// speedscope's own file format.
        Speedscope = "speedscope",
        /// Folded stacks.
        Folded = "folded",
        /// Folded stacks with the layer as the frame after the program.
        FoldedLayers = "folded-layers",
        /// Folded stacks of the threads' time in microseconds: running, ready, blocked by place.
        FoldedWaits = "folded-waits",
        /// Folded stacks of the change from the lowest load, in nanoseconds per request: two numbers per line.
        FoldedWaitsChange = "folded-waits-change",
    }
}

impl ExportFormat {
    /// Parses the word of a format.
    pub fn from_word(word: &str) -> Option<ExportFormat> {
        ExportFormat::ALL.into_iter().find(|format| format.word() == word)
    }
}

/// Windows of samples of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct StackRecording {
    /// Names the server or the run.
    pub title: PlainText,
    /// In the order of measurement.
    pub windows: Vec<ExportedWindow>,
    /// The threads' time, by point.
    pub accounts: Vec<Accounted>,
    /// Files that could not be read.
    pub doubts: Vec<Doubt>,
}

/// Samples of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedWindow {
    /// The sampled stacks.
    pub stacks: Stacks,
    /// The load; `None` in a profile, which has only one.
    pub load: Option<ExportedLoad>,
}

/// The threads' time in one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Accounted {
    /// The load; `None` in a profile, which has only one.
    pub load: Option<ExportedLoad>,
    /// Number of requests in the account's window; 0 if unknown.
    pub requests: f64,
    /// The account of the threads.
    pub account: Account,
}

/// The load of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedLoad {
    /// Sweep of the point.
    pub sweep: Sweep,
    /// Connections, requests per second, or the value of the axis.
    pub value: f64,
    /// The load in words, e.g. `64 connections`.
    pub words: String,
    /// Zone of the load, if known.
    pub zone: Option<Zone>,
    /// Index of the point.
    pub point: u32,
}

impl ExportedLoad {
    /// The load and its zone: `64 connections, plastic`.
    fn with_zone(&self) -> String {
        match self.zone {
            Some(zone) => format!("{}, {}", self.words, zone.word()),
            None => self.words.clone(),
        }
    }

    fn order(&self, other: &ExportedLoad) -> Ordering {
        let place = |sweep: Sweep| match sweep {
            Sweep::Connections => 0,
            Sweep::Unloading => 1,
            Sweep::Rate => 2,
            _ => 3,
        };
        place(self.sweep).cmp(&place(other.sweep)).then(self.value.total_cmp(&other.value))
    }
}

fn not_measured(why: impl std::fmt::Display) -> Refused {
    Refused(format!("not measured: {why}"))
}

impl StackRecording {
    /// The recording of a profile.
    pub fn of_profile(profile: &Profile) -> Result<StackRecording, Refused> {
        let stacks = profile.weighed_stacks();
        let of_all = |account: &Account| Accounted { load: None, requests: 0.0, account: account.clone() };
        let accounts: Vec<_> = profile.account.iter().map(of_all).collect();
        if stacks.samples() == 0 && accounts.is_empty() {
            let why = "no sample of the server's work: load it while it is profiled, or profile for longer";
            return Err(not_measured(why));
        }
        let title = PlainText::from(format!("{} on port {}", profile.command, profile.port).as_str());
        let windows = Vec::from_iter((stacks.samples() > 0).then_some(ExportedWindow { stacks, load: None }));
        Ok(StackRecording { title, windows, accounts, doubts: Vec::new() })
    }

    /// The recording of the points in a run directory.
    pub fn of_run(run: &RunDir) -> Result<StackRecording, Refused> {
        if let RunKind::Watch(_) | RunKind::Tool(_) = run.record.scenario.kind {
            let command = record::text::plain(run.record.scenario.kind.command(), 40);
            return Err(not_measured(format!("{command} samples no stacks; use profile or find")));
        }
        let findings = analyze::zones::of_run(run);
        let mut recording = StackRecording {
            title: PlainText::from(&*run.record.scenario.url()),
            windows: Vec::new(),
            accounts: Vec::new(),
            doubts: Vec::new(),
        };
        for point in &run.points {
            recording.accounts.extend(point.account.clone().map(|account| Accounted {
                load: Some(load_of(point, &findings)),
                requests: point.outcomes.completed() as f64 * account.window_ns as f64
                    / point.duration_ns.max(1) as f64,
                account,
            }));
            match run.stacks(point.index) {
                Ok(Some(stacks)) if stacks.samples() > 0 => {
                    recording.windows.push(ExportedWindow { stacks, load: Some(load_of(point, &findings)) });
                }
                Ok(_) => {}
                Err(why) => recording.doubts.push(Doubt::new(
                    DoubtKind::Unreadable,
                    record::Severity::Warning,
                    format!("{why}; the point was left out"),
                    "measure that point again",
                )),
            }
        }
        if recording.windows.is_empty() && recording.accounts.is_empty() {
            let unreadable = recording.doubts.first().map(|doubt| doubt.what.clone());
            return Err(not_measured(unreadable.unwrap_or_else(|| analyze::profile::why_no_stacks(run))));
        }
        recording.windows.sort_by_key(|window| window.stacks.started_unix_ms);
        Ok(recording)
    }

    /// The file's content.
    pub fn export(&self, format: ExportFormat) -> Result<Vec<u8>, Refused> {
        match format {
            ExportFormat::FoldedWaits | ExportFormat::FoldedWaitsChange if self.accounts.is_empty() => {
                return Err(not_measured("the account of the server's threads needs root and BPF"));
            }
            ExportFormat::FoldedWaits | ExportFormat::FoldedWaitsChange => {}
            _ if self.windows.is_empty() => {
                return Err(not_measured("no stack was sampled; --export folded-waits has the threads' states"));
            }
            _ => {}
        }
        Ok(match format {
            ExportFormat::Pprof => pprof::bytes(self),
            ExportFormat::Firefox => firefox::json(self),
            ExportFormat::Speedscope => speedscope::json(self),
            ExportFormat::Folded => self.folded(false).into_bytes(),
            ExportFormat::FoldedLayers => self.folded(true).into_bytes(),
            ExportFormat::FoldedWaits => self.folded_waits().into_bytes(),
            ExportFormat::FoldedWaitsChange => self.folded_waits_change()?.into_bytes(),
        })
    }

    fn folded_waits(&self) -> String {
        let mut folded = Folded::default();
        for Accounted { load, account, .. } in &self.accounts {
            let load = load.as_ref().map(ExportedLoad::with_zone);
            each_state(account, |words, ns| {
                folded.add(load.iter().cloned().chain(words), (ns / 1e3).round() as u64);
            });
        }
        folded.to_text()
    }

    /// The time of each state at the lowest load of the sweep and at this load, in nanoseconds per request. A state's
    /// stack begins with its load: `grep '^64 connections' | flamegraph.pl` draws one load.
    fn folded_waits_change(&self) -> Result<String, Refused> {
        let counted = self.accounts.iter().filter(|one| one.requests >= 1.0);
        let by_load = grouped(counted.map(|one| (one.load.as_ref(), one)));
        let sums = by_load.into_iter().filter_map(|(load, of_load)| {
            let (mut requests, mut states) = (0.0, Folded::default());
            for one in of_load {
                requests += one.requests;
                each_state(&one.account, |words, ns| states.add(words, ns as u64));
            }
            Some((load?, requests, states))
        });
        let loads: Vec<(&ExportedLoad, f64, Folded)> = sums.collect();
        let mut text = String::new();
        for of_sweep in loads.chunk_by(|(a, ..), (b, ..)| a.sweep == b.sweep) {
            let Some(((_, of_lowest, lowest), others)) = of_sweep.split_first() else { continue };
            for (load, requests, states) in others {
                let each = |states: &Folded, requests: f64, state: &Vec<String>| {
                    (states.0.get(state).copied().unwrap_or(0) as f64 / requests).round() as u64
                };
                let names: BTreeSet<&Vec<String>> = lowest.0.keys().chain(states.0.keys()).collect();
                for state in names {
                    let (before, after) = (each(lowest, *of_lowest, state), each(states, *requests, state));
                    if before + after > 0 {
                        text += &format!("{};{} {before} {after}\n", load.with_zone(), state.join(";"));
                    }
                }
            }
        }
        if text.is_empty() {
            return Err(not_measured("a change needs accounts at two loads"));
        }
        Ok(text)
    }

    /// Folded stacks. Those of a run begin with the load, so that `grep '^64 connections'` selects one.
    fn folded(&self, with_layers: bool) -> String {
        let mut folded = Folded::default();
        for window in &self.windows {
            let load = window.load.as_ref().map(ExportedLoad::with_zone);
            window.stacks.fold_into(&mut folded, load.as_deref(), with_layers);
        }
        folded.to_text()
    }

    fn by_load(&self) -> Vec<(Option<&ExportedLoad>, Vec<&Stacks>)> {
        grouped(self.windows.iter().map(|window| (window.load.as_ref(), &window.stacks)))
    }
}

/// Groups by load, lowest first, with repeats together.
fn grouped<'a, T>(
    items: impl Iterator<Item = (Option<&'a ExportedLoad>, T)>,
) -> Vec<(Option<&'a ExportedLoad>, Vec<T>)> {
    let mut groups: Vec<(Option<&ExportedLoad>, Vec<T>)> = Vec::new();
    for (load, item) in items {
        match groups.iter_mut().find(|(known, _)| same_load(*known, load)) {
            Some((_, all)) => all.push(item),
            None => groups.push((load, vec![item])),
        }
    }
    groups.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => a.order(b),
        _ => a.is_some().cmp(&b.is_some()),
    });
    groups
}

/// Calls `each` with every state of the threads and of what waits inside programs, as the frames of a stack, and its
/// time in nanoseconds. The time of a place is divided among its sampled stacks.
fn each_state(account: &Account, mut each: impl FnMut(Vec<String>, f64)) {
    for parked in &account.parked {
        let state = if parked.reason.is_empty() { "ready" } else { parked.reason.as_str() };
        let frames = parked.frames.iter().rev().map(|frame| frame.function.to_string());
        let mean = parked.count as f64 / account.parked_readings.max(1) as f64;
        let words = ["in the program", state].map(String::from).into_iter().chain(frames);
        each(words.collect(), mean * account.window_ns as f64);
    }
    for group in &account.groups {
        let mut add = |words: Vec<String>, ns: f64| {
            each([group.program.to_string(), group.name.to_string()].into_iter().chain(words).collect(), ns);
        };
        add(vec!["running".into()], group.running_ns as f64);
        add(vec!["ready: own threads have the CPU".into()], group.ready_own_ns as f64);
        add(vec!["ready: other work has the CPU".into()], group.ready_others_ns as f64);
        add(vec!["ready".into()], (group.ready_stopped_ns + group.ready_moved_ns) as f64);
        for wait in &group.waits {
            let state = if wait.kind.is_idle() { "idle" } else { "blocked" };
            let place = format!("{state}: {} {} {}", wait.kind.word(), wait.call, wait.object);
            let sampled: u64 = wait.stacks.iter().map(|stack| stack.ns).sum();
            if sampled == 0 {
                add(vec![place], wait.ns as f64);
                continue;
            }
            for stack in &wait.stacks {
                let mark = |frame: &Frame| {
                    let mark = if frame.is_kernel { record::profile::folded::KERNEL_MARK } else { "" };
                    format!("{}{mark}", frame.function)
                };
                let frames = stack.frames.iter().rev().map(mark);
                add(
                    std::iter::once(place.clone()).chain(frames).collect(),
                    wait.ns as f64 * stack.ns as f64 / sampled as f64,
                );
            }
        }
    }
}

fn same_load(a: Option<&ExportedLoad>, b: Option<&ExportedLoad>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.words == b.words && a.sweep == b.sweep,
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn load_of(point: &Point, findings: &Findings) -> ExportedLoad {
    let (value, words) = match (point.sweep, point.axis, point.offered_per_sec()) {
        (Sweep::Axis, Some(place), _) => (place.value, value_words(place.value, place.axis)),
        (_, _, Some(rate)) => (rate, load_words(rate, Sweep::Rate)),
        _ => (point.connections as f64, load_words(point.connections as f64, Sweep::Connections)),
    };
    let way_down = if point.sweep == Sweep::Unloading { ", unloading" } else { "" };
    let sweep = findings.sweeps().find(|found| found.sweep == point.sweep);
    let level = sweep.and_then(|found| found.levels.iter().find(|level| level.load == value));
    ExportedLoad {
        sweep: point.sweep,
        value,
        words: words + way_down,
        zone: level.map(|level| level.zone),
        point: point.index,
    }
}

/// The file of a function: a module of the kernel, the kernel, or an object file; `None` if unknown.
fn file_words(frame: &Frame) -> Option<String> {
    match (&frame.module, frame.is_kernel) {
        (Some(module), true) => Some(format!("[kernel module {module}]")),
        (Some(module), false) => Some(module.to_string()),
        (None, is_kernel) => is_kernel.then(|| "[kernel]".into()),
    }
}

/// The process of a stack: `nginx (4711)`, or the place outside the server's processes.
fn process_words(stacks: &Stacks, stack: &Stack) -> String {
    match stack.process.and_then(|place| stacks.processes.get(place as usize)) {
        Some(process) => format!("{} ({})", stacks.root(stack), process.pid),
        None => stacks.root(stack).to_string(),
    }
}
