//! One load point: the engine drives, the observer watches the same window, both become one [`Point`].

use crate::cold::Cold;
use crate::layers::LayerGauge;
use crate::progress::Progress;
use crate::requests::{RequestGauge, client_side};
use crate::signals::Stop;
use crate::time_wait::TimeWait;
use crate::watching::{Ended, Watch};
use crate::workload::Supplied;
use anyhow::{Context, Result, bail};
use load::cold::ColdCounts;
use load::{LoadEvents, LoadResult, microbenchmark};
use record::point::Sweep;
use record::run::{PointFiles, SCHEMA};
use record::units::{format_nanos, format_si};
use record::{Doubt, DoubtKind, LoadPlan, Pace, Point, RunWriter, Severity};
use remote::{Fleet, leave_out_uncounted};
use wan::{PathMeter, PathTally};

/// Length of the yardstick's arithmetic.
const ARITHMETIC: std::time::Duration = std::time::Duration::from_millis(50);
/// How long no new cold connection may be established before the herd is given up.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// What measures: who watches the server, if it can be watched, and the signal that ends it.
pub struct Gauge {
    /// Absent when the server is not on this machine and nobody watches it there, with the doubt that says so.
    watch: Result<Watch, Doubt>,
    stop: Stop,
    /// CPU on which the yardstick runs: one of the server's.
    yardstick_cpu: Option<usize>,
    /// Cold connections held beside every point, where asked for.
    cold: Option<Cold>,
    /// The rate series or log that the points follow.
    supplied: Supplied,
    /// Samples the server's layers in every point, where asked for and possible.
    layers: Option<LayerGauge>,
    /// Counts the requests of every point from the server's side, where asked for.
    requests: Option<RequestGauge>,
    /// TIME_WAIT sockets held on the server's side, where asked for.
    time_wait: Option<TimeWait>,
    /// A process of the server's network namespace, where it has one of its own.
    pub server_pid: Option<u32>,
    /// The emulated path, where there is one.
    path: Option<PathMeter>,
    /// Workers that send the load instead of this process.
    fleet: Option<Fleet>,
    /// The server is the microbenchmark's sender, and the load is what it sends.
    pub is_microbenchmark: bool,
    /// That sender has a CPU to itself.
    pub sender_polls: bool,
}

/// A point and the engine's full result (histograms, series).
pub struct Measured {
    pub point: Point,
    pub result: LoadResult,
    /// What crossed the path in the window.
    pub path: Option<PathTally>,
}

impl Measured {
    /// Writes the point into a run directory.
    pub fn keep(&mut self, writer: &mut RunWriter) -> Result<()> {
        let lateness = self.path.as_ref().and_then(|path| path.lateness.as_ref());
        let latencies =
            self.result.latencies().into_iter().chain(lateness.map(|late| ("path-lateness", late))).collect();
        let files = PointFiles { latencies, series_csv: self.result.series_csv.clone() };
        writer.add_point(&mut self.point, &files)?;
        Ok(())
    }
}

/// Forwards the window's edges to the observer while the engine runs.
struct Watching<'a> {
    watch: Option<&'a mut Watch>,
    cold: Option<&'a Cold>,
    cold_before: ColdCounts,
    layers: Option<&'a mut LayerGauge>,
    requests: Option<&'a mut RequestGauge>,
    planned_ns: u64,
    path: Option<&'a PathMeter>,
    crossed: Option<PathTally>,
    window: Option<Ended>,
    trouble: Option<String>,
    progress: &'a mut Progress,
    label: String,
}

impl LoadEvents for Watching<'_> {
    fn window_begins(&mut self) {
        // First, and without waiting: its thread reads while the others do.
        if let Some(requests) = self.requests.as_deref_mut() {
            requests.window_begins(self.planned_ns);
        }
        self.cold_before = self.cold.map(Cold::counts).unwrap_or_default();
        if let Some(path) = self.path {
            path.take();
        }
        // What went wrong before the load stands, and is told instead of a window.
        if let Some(watch) = self.watch.as_deref_mut()
            && self.trouble.is_none()
        {
            self.trouble = watch.window_begins(self.planned_ns).err();
        }
        if let Some(layers) = self.layers.as_deref_mut() {
            layers.begin();
        }
    }

    fn window_ends(&mut self) {
        if let Some(requests) = self.requests.as_deref_mut() {
            requests.window_ends();
        }
        self.crossed = self.path.map(PathMeter::take);
        if let Some(watch) = self.watch.as_deref_mut()
            && self.trouble.is_none()
        {
            match watch.window_ends() {
                Ok(window) => self.window = Some(window),
                Err(why) => self.trouble = Some(why),
            }
        }
        if let Some(layers) = self.layers.as_deref_mut() {
            layers.end();
        }
    }

    fn progress(&mut self, now: &load::Progress) {
        let phase = if now.in_warmup { "warm-up" } else { "measuring" };
        let failed = if now.failed > 0 { format!(", {} failed", format_si(now.failed as f64)) } else { String::new() };
        self.progress.show(&format!(
            "{}: {phase} {:.1} s, {} connected, {} requests/s{failed}",
            self.label,
            now.elapsed_ns as f64 / 1e9,
            now.connected,
            format_si(now.interval_throughput_per_sec),
        ));
    }
}

impl Gauge {
    /// A gauge for a server that is watched, or for one that cannot be (then every point carries the doubt).
    pub fn new(watch: Result<Watch, Doubt>, stop: Stop, yardstick_cpu: Option<usize>) -> Self {
        Gauge {
            watch,
            stop,
            yardstick_cpu,
            cold: None,
            supplied: Supplied::default(),
            time_wait: None,
            server_pid: None,
            layers: None,
            requests: None,
            path: None,
            fleet: None,
            is_microbenchmark: false,
            sender_polls: false,
        }
    }

    /// Gives the points a rate series or a log to follow.
    pub fn supply(&mut self, supplied: Supplied) {
        self.supplied = supplied;
    }

    /// Has these workers send the load.
    pub fn send_from(&mut self, fleet: Fleet) {
        self.fleet = Some(fleet);
    }

    /// Whether the server is watched at all.
    pub fn watches_server(&self) -> bool {
        self.watch.is_ok()
    }

    /// Whether workers send the load.
    pub fn has_clients(&self) -> bool {
        self.fleet.is_some()
    }

    /// What each client did in the last point, in a line each.
    pub fn client_lines(&self) -> Vec<String> {
        self.fleet.as_ref().map(Fleet::lines).unwrap_or_default()
    }

    /// The loss of a client that ends the run, in a sentence.
    pub fn lost_client(&self) -> Option<String> {
        self.fleet.as_ref().and_then(Fleet::failure)
    }

    /// Fits a sweep's plan to the log, where one is replayed.
    pub fn adapt(&self, plan: &mut LoadPlan) {
        self.supplied.adapt(plan);
    }

    /// Counts what crosses the path during every point.
    pub fn meter_path(&mut self, meter: Option<PathMeter>) {
        self.path = meter;
    }

    /// Opens `count` cold connections, which stay through all points, and waits until they are established.
    pub fn hold_cold(&mut self, plan: &LoadPlan, count: u64, progress: &mut Progress) -> Result<()> {
        let mut herd = Cold::begin(plan, count)?;
        herd.resize(count, PATIENCE, self.stop.flag(), |established| {
            progress.show(&format!("opening cold connections: {established} of {count}"));
        })?;
        let counts = herd.counts();
        progress.say(&format!(
            "{} cold connections established; {} of kernel memory each (both ends, where the server is on this machine), {:.1} us CPU to open one",
            format_si(counts.established as f64),
            herd.kernel_bytes_per_connection().map_or("not measurable".into(), record::units::format_bytes),
            counts.cpu_ns as f64 / 1e3 / counts.opened.max(1) as f64,
        ));
        self.cold = Some(herd);
        Ok(())
    }

    /// A yardstick without load: the fixed piece of arithmetic alone.
    pub fn arithmetic(&self, repeat: u32) -> Measured {
        let figure = observe::yardstick(self.yardstick_cpu, ARITHMETIC);
        let window_ns = ARITHMETIC.as_nanos() as u64;
        let result = LoadResult::from(microbenchmark::Outcome { window_ns, ..Default::default() });
        let mut point = Point {
            schema: SCHEMA,
            index: 0,
            sweep: Sweep::Yardstick,
            repeat,
            axis: None,
            connections: 0,
            pace: Pace::Closed,
            started_unix_ms: result.started_unix_ms,
            warmup_ns: 0,
            duration_ns: result.window_ns,
            outcomes: result.counts.outcomes,
            figures: Default::default(),
            connection_states: Default::default(),
            workload: Default::default(),
            watched: None,
            functions: Vec::new(),
            doubts: Vec::new(),
        };
        point.figures.set(record::names::YARDSTICK_CPU, figure);
        Measured { point, result, path: None }
    }

    /// From now on every point but a yardstick says what the server's layers cost.
    pub fn profile_layers(&mut self, layers: LayerGauge) {
        self.layers = Some(layers);
    }

    /// From now on every point says what the server's side saw of its requests.
    pub fn watch_requests(&mut self, requests: RequestGauge) {
        self.requests = Some(requests);
    }

    /// Brings the cold connections to `count`; `most` will be asked for later.
    pub fn resize_cold(&mut self, plan: &LoadPlan, count: u64, most: u64, progress: &mut Progress) -> Result<()> {
        let herd = match &mut self.cold {
            Some(herd) => herd,
            None if count == 0 => return Ok(()),
            None => self.cold.insert(Cold::begin(plan, most)?),
        };
        herd.resize(count, PATIENCE, self.stop.flag(), |established| {
            progress.show(&format!("cold connections: {established}, on the way to {count}"));
        })?;
        Ok(())
    }

    /// Brings the server's TIME_WAIT sockets to `count`.
    pub fn hold_time_wait(&mut self, plan: &LoadPlan, count: u64, progress: &mut Progress) -> Result<()> {
        let time_wait = match &mut self.time_wait {
            Some(time_wait) => time_wait,
            None => self.time_wait.insert(TimeWait::new(plan, self.server_pid)?),
        };
        time_wait.hold(count, &self.stop, progress)
    }

    /// Delays the path by another time from now on.
    pub fn set_path_delay(&mut self, delay_ns: u64) -> Result<()> {
        match &self.path {
            Some(path) => path.set_delay(delay_ns).map_err(anyhow::Error::from),
            None => Ok(()),
        }
    }

    /// Facts about the server's processes.
    pub fn server_facts(&self) -> std::collections::BTreeMap<String, String> {
        self.watch.as_ref().map(Watch::server_facts).unwrap_or_default()
    }

    /// Measures one point.
    pub fn point(&mut self, plan: &LoadPlan, sweep: Sweep, repeat: u32, progress: &mut Progress) -> Result<Measured> {
        let time_wait = match sweep {
            Sweep::Yardstick => None,
            _ => self.time_wait.as_mut().map(TimeWait::figures),
        };
        if let Some(requests) = &mut self.requests {
            requests.load_begins();
        }
        let before = self.watch.as_mut().ok().map(Watch::load_begins);
        let mut events = Watching {
            watch: self.watch.as_mut().ok(),
            cold: self.cold.as_ref(),
            cold_before: ColdCounts::default(),
            layers: self.layers.as_mut().filter(|_| sweep != Sweep::Yardstick),
            requests: self.requests.as_mut(),
            planned_ns: plan.duration_ns,
            path: self.path.as_ref(),
            crossed: None,
            window: None,
            trouble: before.and_then(Result::err),
            progress,
            label: if self.is_microbenchmark { segments_label(plan) } else { label(plan) },
        };
        let mut own_figures = None;
        let result = match &mut self.fleet {
            Some(fleet) => fleet.run(plan, self.stop.flag(), &mut events)?,
            None if self.is_microbenchmark => {
                let outcome = microbenchmark::run(&segments(plan, self.sender_polls)?, self.stop.flag(), &mut events)
                    .context("the microbenchmark stopped")?;
                own_figures = Some(outcome.figures());
                outcome.into()
            }
            None => load::run_supplied(plan, &self.supplied, self.stop.flag(), &mut events)
                .context("the load engine stopped")?,
        };
        let (window, trouble, cold_before) = (events.window.take(), events.trouble.take(), events.cold_before);
        let crossed = events.crossed.take();
        progress.clear();
        let mut point = Point {
            schema: SCHEMA,
            index: 0,
            sweep,
            repeat,
            axis: None,
            connections: plan.connections,
            pace: pace_of(plan, &result),
            started_unix_ms: result.started_unix_ms,
            warmup_ns: result.warmup_ns,
            duration_ns: result.window_ns,
            outcomes: result.counts.outcomes,
            figures: own_figures.unwrap_or_else(|| result.figures(plan)),
            connection_states: Default::default(),
            workload: result.workload.clone(),
            functions: Vec::new(),
            watched: None,
            doubts: result.doubts.clone(),
        };
        let seen = match (&mut self.watch, window) {
            (Ok(watch), Some(window)) => watch.seen(window, client_side(&result)),
            (Ok(_), None) => Err(trouble.unwrap_or_else(|| "the window never began".into())),
            (Err(doubt), _) => Err(doubt.what.clone()),
        };
        match (&self.watch, seen) {
            (_, Ok(seen)) => {
                point.figures.extend(seen.figures);
                point.connection_states = seen.connection_states;
                point.doubts.extend(seen.doubts);
                point.watched = seen.watched;
            }
            (Err(doubt), _) => point.doubts.push(doubt.clone()),
            (Ok(_), Err(why)) => point.doubts.push(Doubt::new(
                DoubtKind::NotWatched,
                Severity::Warning,
                format!("the server was not watched: {why}"),
                "run straingauge doctor on the server's machine to see what is missing",
            )),
        }
        if let Some(layers) = &mut self.layers {
            layers.note(&mut point);
        }
        if let Some(requests) = &mut self.requests {
            requests.note(&mut point, &result);
        }
        if let Some(figures) = time_wait {
            point.figures.extend(figures);
        }
        if let Some(crossed) = &crossed {
            point.figures.extend(crossed.figures());
            point.doubts.extend(crossed.doubts());
        }
        if let Some(fleet) = &self.fleet {
            point.figures.extend(fleet.figures.clone());
            if let Some(why) = &fleet.uncounted {
                leave_out_uncounted(&mut point, why);
            }
        }
        if let Some(herd) = &self.cold {
            point.figures.extend(herd.figures(cold_before, result.window_ns));
        }
        if sweep == Sweep::Yardstick {
            let figure = observe::yardstick(self.yardstick_cpu, ARITHMETIC);
            point.figures.set(record::names::YARDSTICK_CPU, figure);
        }
        if result.interrupted {
            point.doubts.push(Doubt::new(
                DoubtKind::Interrupted,
                Severity::Warning,
                format!("the point was interrupted after {}", format_nanos(result.window_ns as f64)),
                "run it again to its end",
            ));
        }
        Ok(Measured { point, result, path: crossed })
    }
}

/// The microbenchmark's part of a plan.
fn segments(plan: &LoadPlan, polls: bool) -> Result<microbenchmark::Plan> {
    let sender = *plan.addresses.first().context("the sender has no address")?;
    let Pace::Open { rate_per_sec, .. } = plan.pace else { bail!("the microbenchmark sends at a rate") };
    Ok(microbenchmark::Plan {
        sender,
        connections: plan.connections,
        rate_per_sec,
        warmup_ns: plan.warmup_ns,
        duration_ns: plan.duration_ns,
        polls,
        cpus: plan.cpus.clone(),
    })
}

/// `512 connections, 8.33k segments/s`.
fn segments_label(plan: &LoadPlan) -> String {
    match plan.pace {
        Pace::Open { rate_per_sec, .. } => {
            format!("{} connections, {} segments/s", plan.connections, format_si(rate_per_sec))
        }
        Pace::Closed => label(plan),
    }
}

/// The plan's pace; of a log that is replayed once the rate that it turned out to have.
fn pace_of(plan: &LoadPlan, result: &LoadResult) -> Pace {
    let is_single_replay = plan.workload.trace.as_ref().is_some_and(|trace| !trace.is_repeated);
    match plan.pace {
        Pace::Open { arrival, .. } if is_single_replay && result.window_ns > 0 && result.counts.outcomes.sent > 0 => {
            Pace::Open { rate_per_sec: result.counts.outcomes.sent as f64 / result.window_s(), arrival }
        }
        pace => pace,
    }
}

/// A point's load in words: `64 connections` or `20.0k requests/s`.
pub fn label(plan: &LoadPlan) -> String {
    if let Some(trace) = plan.workload.trace.as_ref().filter(|trace| !trace.is_repeated) {
        return trace.speed.map_or("log as fast as possible".into(), |speed| format!("log at speed {speed}"));
    }
    match plan.pace {
        Pace::Closed => format!("{} connection{}", plan.connections, if plan.connections == 1 { "" } else { "s" }),
        Pace::Open { rate_per_sec, .. } => format!("{} requests/s offered", format_si(rate_per_sec)),
    }
}
