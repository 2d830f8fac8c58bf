//! The input of the models: readings of the points of one or more runs, and why some runs have none.

use crate::Refused;
use crate::compare;
use crate::point::{FAILED_RATIO_FOR_COST, costs_are_of_answers};
use record::text::plain;
use record::{Criteria, Pace, Point, RunDir, RunRecord, Sweep, names};
use statistics::median;
use statistics::server::ModelPoint;
use std::collections::BTreeSet;

/// With more other work, the busy share of the CPUs does not show the server's demand.
const OTHERS_CPUS: f64 = 0.1;

/// The readings of all runs together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// Closed loop, by ascending load.
    pub closed: Vec<ModelPoint>,
    /// Open loop, by ascending load.
    pub open: Vec<ModelPoint>,
    /// The number of CPUs that the server can keep busy at once.
    pub parallel_cpus: f64,
    /// The server's CPU limit, in CPUs.
    pub quota_cpus: Option<f64>,
    /// Whether connections end after some requests, so that connecting takes round trips, too.
    pub reconnects: bool,
    /// The threads or processes that do the work, if there are fewer of them than CPUs, or only one.
    pub workers: Option<WorkerCount>,
    /// CPUs used by other work, median over the points.
    pub others_cpus: f64,
    /// The criteria of the first run.
    pub criteria: Criteria,
    /// Reasons not to trust the points.
    pub doubts: Vec<String>,
}

/// Threads that do the work, or processes that run one thread at a time. Each uses at most one CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkerCount {
    /// Number of the workers.
    pub count: f64,
    /// Kind of worker: `thread` or `process`.
    pub kind: &'static str,
}

impl Readings {
    /// The highest measured throughput, requests per second.
    pub fn highest_per_sec(&self) -> f64 {
        self.typicals().map(|level| level.throughput_per_sec).fold(0.0, f64::max)
    }

    /// The largest measured busy share of the CPUs.
    pub fn most_busy_ratio(&self) -> f64 {
        self.typicals().map(|level| level.busy_cpus / self.parallel_cpus).fold(0.0, f64::max)
    }

    fn typicals(&self) -> impl Iterator<Item = ModelPoint> {
        typicals(&self.closed).into_iter().chain(typicals(&self.open))
    }
}

/// Reads the points of runs of one server.
pub fn read(runs: &[RunDir]) -> Result<Readings, Refused> {
    let first = &runs[0];
    let allowed = allowed_cpus(first);
    let mut all: Vec<(&RunDir, &Point)> = Vec::new();
    for run in runs {
        if allowed_cpus(run) != allowed {
            let words = format!(
                "the server had {1} CPUs in {0}, and {3} in {2}: predict from runs with the same CPUs, or from one run \
                 with --cores",
                first.path.display(),
                allowed,
                run.path.display(),
                allowed_cpus(run)
            );
            return Err(Refused(words));
        }
        let measures = |point: &&Point| matches!(point.sweep, Sweep::Connections | Sweep::Rate | Sweep::Single);
        let points: Vec<&Point> = run.points.iter().filter(measures).collect();
        let name = run.path.display();
        if !points.iter().any(|point| point.value(names::THROUGHPUT).is_some_and(|rate| rate > 0.0)) {
            return Err(Refused(format!("{name} has no point with a throughput: measure with find first")));
        }
        if !points.iter().any(|point| point.value(names::SERVER_CPU_BUSY).or(point.value(names::SERVER_CPU)).is_some())
        {
            return Err(Refused(format!(
                "{name} did not watch the server's CPU, so no service demand is known: run find with the server's \
                 command, or on the server's machine"
            )));
        }
        all.extend(points.into_iter().map(|point| (run, point)));
    }
    let criteria = first.record.scenario.sweep().map(|sweep| sweep.criteria).unwrap_or_default();
    let typical = |name: &str| median(all.iter().filter_map(|(_, point)| point.value(name)));
    let others_cpus = typical(names::MACHINE_OTHERS).unwrap_or(0.0);
    let workers = workers(&all, allowed);
    let quota_cpus = typical(names::SERVER_QUOTA).filter(|cpus| *cpus > 0.0);
    let mut readings = Readings {
        parallel_cpus: workers.map_or(allowed, |workers| workers.count).min(quota_cpus.unwrap_or(f64::INFINITY)),
        quota_cpus,
        reconnects: runs
            .iter()
            .any(|run| run.record.scenario.load().is_some_and(|load| load.requests_per_connection > 0)),
        workers,
        others_cpus,
        criteria,
        doubts: crate::disturbance::doubts_of_points(all.iter().map(|(_, point)| *point)),
        ..Readings::default()
    };
    let total = all.len();
    // A point with a saturated client shows nothing about the server.
    all.retain(|(_, point)| !crate::zones::client_limited(point, &criteria));
    if all.len() < total {
        readings.doubts.push(format!(
            "{} of {total} points are left out: the client was saturated, the server was not",
            total - all.len()
        ));
    }
    let closed = |all: &[(&RunDir, &Point)]| -> Vec<u64> {
        all.iter().filter(|(_, point)| point.pace == Pace::Closed).map(|(_, point)| point.connections).collect()
    };
    let measured = closed(&all);
    // Rate and cost of errors differ from those of good answers.
    all.retain(|(_, point)| point.pace != Pace::Closed || costs_are_of_answers(point));
    let left = closed(&all);
    if left.len() < measured.len() {
        let percent = FAILED_RATIO_FOR_COST * 100.0;
        let [loads, loads_left] = [&measured, &left].map(|list| list.iter().collect::<BTreeSet<_>>().len());
        if loads >= 3 && loads_left < 3 {
            return Err(Refused(format!(
                "{loads_left} of {loads} closed-loop loads are too few for a model (at least 3): at the others more \
                 than {percent} % of the requests failed, which changes their cost; measure lower loads with find"
            )));
        }
        readings.doubts.push(format!(
            "{} of {} points of the closed loop are left out: more than {percent} % of their requests failed, which \
             changes their cost",
            measured.len() - left.len(),
            measured.len()
        ));
    }
    for (run, point) in all {
        if let Some((is_open, reading)) = reading(run, point, allowed, others_cpus, &criteria)? {
            if is_open { readings.open.push(reading) } else { readings.closed.push(reading) }
        }
    }
    for list in [&mut readings.closed, &mut readings.open] {
        list.sort_by(|a, b| a.load.total_cmp(&b.load).then(a.throughput_per_sec.total_cmp(&b.throughput_per_sec)));
    }
    Ok(readings)
}

/// Refuses runs of different servers, and returns doubts about other differences. `mixes`: the requests may differ.
pub fn one_server(runs: &[RunDir], mixes: bool) -> Result<Vec<String>, Refused> {
    let first = &runs[0];
    let mut doubts = Vec::new();
    for run in &runs[1..] {
        let differ = |of: &dyn Fn(&RunRecord) -> Option<String>| {
            Some((of(&first.record)?, of(&run.record)?))
                .filter(|(a, b)| a != b)
                .map(|(a, b)| (plain(&a, 80), plain(&b, 80)))
        };
        if let Some((a, b)) = differ(&compare::program) {
            let (first, run) = (first.path.display(), run.path.display());
            return Err(Refused(format!(
                "{first} measured {a}, {run} measured {b}: the models need runs of one server"
            )));
        }
        if let Some((a, b)) = differ(&|run| Some(in_flight(run).to_string())) {
            let (first, run) = (first.path.display(), run.path.display());
            return Err(Refused(format!(
                "{first} had {a} requests in flight per connection, and {run} had {b}: the models need equal numbers"
            )));
        }
        let version = |run: &RunRecord| run.server_facts.get("version").cloned();
        let requests = |run: &RunRecord| (!mixes).then(|| compare::request_words(run));
        let machine = |run: &RunRecord| Some(run.machine.cpu_model.clone());
        let other = [differ(&version), differ(&requests), differ(&machine)].into_iter().flatten();
        let words: Vec<String> = other.map(|(a, b)| format!("{a} against {b}")).collect();
        if !words.is_empty() {
            doubts.push(format!("different runs are fitted as one server: {}", words.join(", ")));
        }
    }
    Ok(doubts)
}

fn workers(points: &[(&RunDir, &Point)], cpus: f64) -> Option<WorkerCount> {
    /// Threads with at most this share of a worker's CPU time do not count as workers.
    const BESIDE: f64 = 0.25;
    /// Busy share at which a worker shares its work with others if there are any.
    const BUSY: f64 = 0.5;
    /// Requests in flight per worker below which there may be more workers than observed.
    const IN_FLIGHT: f64 = 2.0;
    /// A process that uses more CPU runs several threads at once.
    const ONE_CPU: f64 = 1.15;
    let value = |point: &Point, name: &str| point.value(name).filter(|value| *value > 0.0);
    let is_held = points.iter().any(|(run, _)| crate::programs::runs_one_thread_at_a_time(&run.record))
        && !points
            .iter()
            .any(|(_, point)| point.value(names::SERVER_BUSIEST_PROCESS).is_some_and(|cpus| cpus > ONE_CPU));
    let (kind, busiest) =
        if is_held { ("process", names::SERVER_BUSIEST_PROCESS) } else { ("thread", names::SERVER_BUSIEST_THREAD) };
    let spread = |point: &Point| Some(value(point, names::SERVER_CPUS_USED)? / value(point, busiest)?);
    let all = points.iter().filter_map(|(_, point)| spread(point));
    let count = if median(all)? < 1.0 + BESIDE {
        1.0
    } else {
        let busy = points.iter().filter(|(_, point)| value(point, busiest).is_some_and(|cpus| cpus >= BUSY));
        let (most, requests) = busy
            .filter_map(|(run, point)| {
                Some((spread(point)?, point.connections as f64 * f64::from(in_flight(&run.record))))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let count = (most - BESIDE).ceil();
        if requests < IN_FLIGHT * count {
            return None;
        }
        count
    };
    (count < cpus || count == 1.0).then_some(WorkerCount { count, kind })
}

/// CPUs that the server may use: the maximum over the points.
fn allowed_cpus(run: &RunDir) -> f64 {
    run.points.iter().map(|point| crate::point::allowed_cpus(run, point)).fold(1.0, f64::max)
}

fn reading(
    run: &RunDir,
    point: &Point,
    cpus: f64,
    others_cpus: f64,
    criteria: &Criteria,
) -> Result<Option<(bool, ModelPoint)>, Refused> {
    let checked = |name: &'static str| match point.value(name) {
        Some(value) if !(value.is_finite() && value >= 0.0) => {
            let (run, index) = (run.path.display(), point.index);
            Err(Refused(format!(
                "point {index:03} of {run} has {name} = {value}, which is impossible: measure it again"
            )))
        }
        value => Ok(value),
    };
    let (completed, good) = (checked(names::THROUGHPUT)?, checked(names::GOODPUT)?);
    let (busy, own) = (checked(names::SERVER_CPU_BUSY)?, checked(names::SERVER_CPU)?);
    let (user, system) = (checked(names::SERVER_CPU_USER)?, checked(names::SERVER_CPU_SYSTEM)?);
    let softirq = checked(names::SERVER_SOFTIRQ_BESIDE)?.or(checked(names::SERVER_SOFTIRQ)?);
    let Some(completed) = completed.filter(|rate| *rate > 0.0) else { return Ok(None) };
    let rate = good.map_or(completed, |good| good.min(completed));
    // The busy time of the CPUs is the server's if nothing else runs there. Otherwise, the server's own account is
    // used.
    let own = own.map(|own| (own + softirq.unwrap_or(0.0)) * 1e-6 * completed);
    let used = match busy {
        Some(busy) if others_cpus < OTHERS_CPUS || own.is_none() => Some(busy * cpus),
        _ => own,
    };
    let Some(busy_cpus) = used.filter(|used| *used > 0.0) else { return Ok(None) };
    let load = point.load();
    let is_open = point.pace != Pace::Closed;
    if !(load.is_finite() && load > 0.0 && (is_open || rate > 0.0)) {
        return Ok(None);
    }
    let seconds = |name| point.value(name).filter(|us| us.is_finite() && *us > 0.0).map(|us| us * 1e-6);
    let as_cpus = |us: Option<f64>| us.map(|us| us * 1e-6 * completed);
    let reading = ModelPoint {
        load,
        in_flight: in_flight(&run.record).into(),
        is_in_order: run.record.scenario.load().is_none_or(|load| load.protocol.answers_in_order()),
        cold: point.value(names::COLD).filter(|cold| cold.is_finite()).unwrap_or(0.0).max(0.0),
        throughput_per_sec: rate,
        demand_s: busy_cpus / rate,
        busy_cpus,
        user_cpus: as_cpus(user),
        kernel_cpus: as_cpus(system.map(|system| system + softirq.unwrap_or(0.0))),
        mean_s: seconds(names::RESPONSE_MEAN),
        p50_s: seconds(names::RESPONSE_P50),
        p99_s: seconds(names::RESPONSE_P99),
        threads: checked(names::SERVER_THREADS)?,
        failed: crate::zones::fails(point, criteria),
    };
    let mean_s = reading.mean_s.or((!is_open).then(|| reading.cycle_s()));
    Ok(Some((is_open, ModelPoint { mean_s, ..reading })))
}

/// Requests in flight on each connection of a run.
pub fn in_flight(run: &RunRecord) -> u32 {
    run.scenario.load().map_or(1, |load| load.protocol.pipeline())
}

/// Groups readings by load and number of cold connections.
pub fn levels(readings: &[ModelPoint]) -> Vec<Vec<ModelPoint>> {
    let mut sorted = readings.to_vec();
    sorted.sort_by(|a, b| a.load.total_cmp(&b.load).then(a.cold.total_cmp(&b.cold)));
    sorted.chunk_by(|a, b| a.load == b.load && a.cold == b.cold).map(<[ModelPoint]>::to_vec).collect()
}

/// The medians of the levels.
pub fn typicals(readings: &[ModelPoint]) -> Vec<ModelPoint> {
    levels(readings).iter().map(|level| typical(level)).collect()
}

/// The medians of a level as one reading.
pub fn typical(level: &[ModelPoint]) -> ModelPoint {
    let middle = |value: &dyn Fn(&ModelPoint) -> Option<f64>| median(level.iter().filter_map(value));
    let sure = |value: fn(&ModelPoint) -> f64| middle(&|reading| Some(value(reading))).unwrap_or(0.0);
    ModelPoint {
        throughput_per_sec: sure(|r| r.throughput_per_sec),
        demand_s: sure(|r| r.demand_s),
        busy_cpus: sure(|r| r.busy_cpus),
        user_cpus: middle(&|r| r.user_cpus),
        kernel_cpus: middle(&|r| r.kernel_cpus),
        mean_s: middle(&|r| r.mean_s),
        p50_s: middle(&|r| r.p50_s),
        p99_s: middle(&|r| r.p99_s),
        threads: middle(&|r| r.threads),
        failed: 2 * level.iter().filter(|reading| reading.failed).count() > level.len(),
        ..level[0]
    }
}
