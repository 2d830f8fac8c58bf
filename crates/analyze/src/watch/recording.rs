//! Reads `watch.jsonl` of a run directory. Its last line may be cut off, and it may still grow.

use super::headroom::Estimator;
use super::thinned::Thinned;
use crate::Refused;
use record::watch::system::{CpuModes, SystemKind};
use record::watch::{ChargedCpu, CpuTotals, FILE, Headroom, Line, Reading, SizeClass};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longer lines are skipped.
const MOST_LINE_BYTES: u64 = 4 << 20;
/// With more readings, every second one is dropped. Counts are cumulative, so only resolution is lost.
const MOST_SAMPLES: usize = 200_000;
/// Limit on classes and states.
const MOST_ENTRIES: usize = 64;
/// A watch lists 64 processes, and one row for all others.
const MOST_PROCESSES: usize = 65;

/// The part of each reading that is kept.
#[derive(Debug, Clone, Default)]
pub struct KeptReading {
    /// Seconds since the watch began.
    pub seconds: f64,
    /// Requests so far.
    pub requests: u64,
    /// Time in which requests were counted, seconds; absent if all of it.
    pub counted_s: Option<f64>,
    /// The server's CPU time so far, seconds; absent if its processes were not visible.
    pub server_cpu_s: Option<f64>,
    /// User part of `server_cpu_s`, seconds.
    pub server_user_s: Option<f64>,
    /// The machine's CPU counters, with their time.
    pub machine: Option<(f64, CpuModes)>,
    /// Sockets by state; absent at the start of the watch.
    pub states: Option<BTreeMap<Cow<'static, str>, u64>>,
}

/// A recording.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Port of the server.
    pub port: u16,
    /// Size classes.
    pub classes: Vec<SizeClass>,
    /// Samples in order of time: the start of the watch, with all counts 0, then the readings, always including the
    /// last.
    pub samples: Vec<KeptReading>,
    /// The start of the watch: counts since boot from the first reading, all others 0.
    pub first: Reading,
    /// The last reading.
    pub last: Reading,
    /// Whether requests were counted.
    pub has_requests: bool,
    /// CPUs of the machine; 0 = not recorded.
    pub cpus: u64,
    /// The headroom over the whole recording; absent if the limits were not recorded.
    pub headroom: Option<Headroom>,
    /// Readings read, including those thinned out.
    pub readings: u64,
    /// Lines that could not be read.
    pub unreadable_lines: u64,
    /// The first unreadable line.
    pub first_unreadable: Option<String>,
}

impl Recording {
    /// The differences between two readings of a running watch.
    pub(super) fn between(first: &Reading, last: &Reading, classes: &[SizeClass]) -> Recording {
        Recording {
            classes: classes.to_vec(),
            first: first.clone(),
            last: last.clone(),
            has_requests: !last.classes.is_empty(),
            ..Recording::default()
        }
    }

    /// Whether a run directory contains a recording.
    pub fn is_in(run: &Path) -> bool {
        run.join(FILE).is_file()
    }

    /// Reads the recording of a run directory. Unreadable lines are counted, but not fatal; the first line must have
    /// the watch's settings.
    pub fn open(run: &Path) -> Result<Recording, Refused> {
        let path = run.join(FILE);
        let shown = record::text::plain(&path.display().to_string(), 300);
        let file = File::open(&path).map_err(|error| Refused(format!("{shown} cannot be read: {error}")))?;
        Recording::read(BufReader::new(file), &shown)
    }

    /// Reads the lines of a recording; `shown` is its name in errors.
    pub fn read(mut lines: impl BufRead, shown: &str) -> Result<Recording, Refused> {
        let unreadable = |error: std::io::Error| Refused(format!("{shown} cannot be read: {error}"));
        let not_a_watch = |why: &str| Err(Refused(format!("{shown}, line 1: {why}")));
        let mut recording = Recording::default();
        let (mut line, mut number, mut last_ns) = (Vec::new(), 0u64, None);
        let (mut samples, mut estimator) = (KeptSamples::default(), Estimator::whole());
        loop {
            line.clear();
            let count = lines.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line).map_err(unreadable)?;
            if count == 0 {
                break;
            }
            number += 1;
            if line.last() != Some(&b'\n') && count as u64 == MOST_LINE_BYTES {
                lines.skip_until(b'\n').map_err(unreadable)?;
                recording.refuse(number, "longer than 4 MiB");
                continue;
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match Line::parse(&line) {
                Ok(Line::Watch(beginning)) if number == 1 => {
                    recording.port = beginning.watching.port;
                    recording.classes = beginning.watching.classes;
                    recording.classes.truncate(MOST_ENTRIES);
                    for class in &mut recording.classes {
                        class.name = record::text::plain(&class.name, 40);
                    }
                }
                Ok(_) if number == 1 => {
                    return not_a_watch("its first line does not have the watch's settings");
                }
                Ok(Line::Watch(_)) => recording.refuse(number, "a second beginning"),
                Ok(Line::Reading(taken)) if last_ns.is_some_and(|last| taken.totals.elapsed_ns <= last) => {
                    recording.refuse(number, "not later than the reading before");
                }
                Ok(Line::Reading(taken)) => {
                    last_ns = Some(taken.totals.elapsed_ns);
                    estimator.add(&taken.totals);
                    recording.add(taken.totals, &mut samples);
                }
                Err(error) if number == 1 => return not_a_watch(&format!("not a watch's: {error}")),
                Err(error) => recording.refuse(number, &error.to_string()),
            }
        }
        if number == 0 {
            return not_a_watch("the file is empty");
        }
        recording.samples = samples.all();
        recording.headroom = recording.last.limits.is_some().then(|| estimator.headroom());
        Ok(recording)
    }

    fn refuse(&mut self, number: u64, why: &str) {
        self.unreadable_lines += 1;
        self.first_unreadable.get_or_insert_with(|| format!("line {number}: {}", record::text::plain(why, 200)));
    }

    fn add(&mut self, mut totals: Reading, samples: &mut KeptSamples) {
        totals.classes.truncate(MOST_ENTRIES);
        totals.phases.truncate(MOST_ENTRIES);
        totals.processes.truncate(MOST_PROCESSES);
        if let Some(pack) = &mut totals.pack {
            pack.by_functions.truncate(MOST_ENTRIES);
            pack.by_events.truncate(MOST_ENTRIES);
        }
        self.has_requests |= !totals.classes.is_empty();
        self.cpus = self.cpus.max(totals.system.cpus);
        let server_cpu_s = totals.cpu.map(|cpu| cpu.group_ns as f64 / 1e9);
        let user_ratio = totals.cpu.and_then(|cpu| cpu.user_ratio).filter(|ratio| (0.0..=1.0).contains(ratio));
        let sample = KeptReading {
            seconds: totals.elapsed_ns as f64 / 1e9,
            counted_s: totals.counted_ns.map(|ns| ns as f64 / 1e9),
            requests: totals.classes.iter().fold(0, |sum, class| sum.saturating_add(class.requests)),
            server_cpu_s,
            server_user_s: server_cpu_s.zip(user_ratio).map(|(cpu_s, ratio)| cpu_s * ratio),
            machine: totals
                .system
                .cpu
                .zip(totals.system.read_ns(SystemKind::Cpu))
                .map(|(modes, ns)| (ns as f64 / 1e9, modes)),
            states: Some(
                totals.connections.states.iter().take(MOST_ENTRIES).map(|(name, n)| (name.clone(), *n)).collect(),
            ),
        };
        if self.readings == 0 {
            // Counts cover the time since the watch began.
            let nothing = |cpu: CpuTotals| CpuTotals {
                charged: cpu.charged.map(|_| ChargedCpu::default()),
                ..Default::default()
            };
            self.first = Reading {
                at_ns: totals.at_ns.saturating_sub(totals.elapsed_ns),
                system: totals.system.clone(),
                io: totals.io,
                cpu: totals.cpu.map(nothing),
                ..Reading::default()
            };
            if totals.elapsed_ns > 0 {
                let server_user_s = sample.server_user_s.map(|_| 0.0);
                let server_cpu_s = server_cpu_s.map(|_| 0.0);
                let beginning =
                    KeptReading { server_cpu_s, server_user_s, machine: sample.machine, ..KeptReading::default() };
                samples.keep(beginning);
            }
        }
        self.readings += 1;
        self.last = totals;
        samples.keep(sample);
    }
}

#[derive(Default)]
struct KeptSamples {
    thinned: Thinned<KeptReading>,
    /// The last sample, if it was thinned out.
    newest: Option<KeptReading>,
}

impl KeptSamples {
    fn keep(&mut self, sample: KeptReading) {
        self.newest = self.thinned.push(sample, MOST_SAMPLES);
    }

    fn all(self) -> Vec<KeptReading> {
        self.thinned.kept.into_iter().chain(self.newest).collect()
    }
}
