//! Estimates how much more load a watched server can take from its current traffic: the distance to each visible
//! limit, over a sliding window of readings. [`full`] relates the use of a resource to the request rate.

pub mod full;

use super::thinned::Thinned;
use full::{ResourceUse, full_at};
use record::units::{format_nanos, grouped};
use record::watch::{ClassTotals, Headroom, Limit, LimitKind, LimitTotals, Range, Reading, UnknownLimit};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Readings in a sliding window.
const WINDOW: usize = 60;
/// Readings closer together than this are skipped, because idle time is counted in ticks of 10 ms.
const SHORTEST_NS: u64 = 190_000_000;
/// Maximum readings kept of a whole recording ([`Thinned`]).
const MOST_MARKS: usize = 240;
/// A class with fewer requests in the window gets no cost of its own.
const FEWEST_OF_CLASS: u64 = 30;
/// Wait above which a request waits for something unmeasured, if it also exceeds its CPU time.
const LONG_WAIT_NS: f64 = 1e6;
/// To compare limits, an open upper end counts as this multiple of the lower end.
const OPEN_END: f64 = 4.0;
const MOST_CLASSES: usize = 64;

#[derive(Debug, Clone, Default)]
struct Totals {
    at_ns: u64,
    counted_ns: Option<u64>,
    classes: Vec<ClassTotals>,
    server_ns: Option<u64>,
    threads: u64,
    processes: u64,
    established: u64,
    /// Length and limit of the accept queue.
    queue: Option<(u64, Option<u64>)>,
    /// Requests in progress that have no response yet.
    waiting: u64,
    is_shared: bool,
    limits: LimitTotals,
}

/// The costs of a class, extrapolated to a longer time.
fn scaled(class: &ClassTotals, times: f64) -> ClassTotals {
    let scaled = |count: u64| (count as f64 * times).round() as u64;
    ClassTotals {
        requests: scaled(class.requests),
        cpu_ns: (class.cpu_ns as f64 * times) as i64,
        elapsed_ns: scaled(class.elapsed_ns),
        timed: scaled(class.timed),
        ..ClassTotals::default()
    }
}

impl Totals {
    fn new(reading: &Reading, limits: &LimitTotals) -> Totals {
        let open = reading.open.clone().unwrap_or_default();
        let waiting: Vec<u32> = open.longest.iter().filter(|open| !open.is_sending).map(|open| open.thread).collect();
        let connections = &reading.connections;
        Totals {
            at_ns: reading.at_ns,
            counted_ns: reading.counted_ns.map(|_| reading.counted_time_ns()),
            classes: reading.classes.iter().take(MOST_CLASSES).cloned().collect(),
            server_ns: reading.group_ns(),
            threads: reading.cpu.map_or(0, |cpu| cpu.threads),
            processes: reading.cpu.map_or(0, |cpu| cpu.processes),
            established: connections.states.get("established").copied().unwrap_or(0),
            queue: connections.accept_queue.map(|queue| (queue, connections.accept_queue_limit)),
            waiting: open.waiting,
            is_shared: waiting.iter().collect::<BTreeSet<_>>().len() < waiting.len(),
            limits: limits.clone(),
        }
    }
}

/// Collects readings and estimates the headroom.
#[derive(Debug)]
pub struct Estimator {
    marks: Thinned<Totals>,
    is_sliding: bool,
}

impl Estimator {
    /// Uses the last 60 readings.
    pub fn sliding() -> Self {
        Estimator { marks: Thinned::default(), is_sliding: true }
    }

    /// Uses all readings of a recording.
    pub fn whole() -> Self {
        Estimator { is_sliding: false, ..Estimator::sliding() }
    }

    /// Adds a reading.
    pub fn add(&mut self, reading: &Reading) {
        let Some(limits) = &reading.limits else { return };
        let last = self.marks.kept.last();
        if last.is_some_and(|last| reading.at_ns < last.at_ns.saturating_add(SHORTEST_NS)) {
            return;
        }
        // The load between windows of counting is unknown.
        let counted = last.and_then(|mark| mark.counted_ns);
        if reading.counted_ns.is_some() && counted == reading.counted_ns {
            return;
        }
        self.marks.push(Totals::new(reading, limits), MOST_MARKS);
        if self.is_sliding && self.marks.kept.len() > WINDOW + 1 {
            self.marks.kept.remove(0);
        }
    }

    /// The headroom as of the last reading.
    pub fn headroom(&self) -> Headroom {
        let window = StepWindow::new(&self.marks.kept);
        let mut found = Headroom {
            now_per_sec: full::now(&window.uses(&window.by_cpu, |_| Some((0.0, 0.0))).unwrap_or_default()).rate,
            highest_per_sec: window.steps.iter().map(|step| step.rate()).fold(0.0, f64::max),
            readings: window.steps.len() as u64,
            window_s: window.steps.iter().map(|step| step.seconds).sum(),
            ..Headroom::default()
        };
        let Some(last) = self.marks.kept.last() else { return found };
        let limits = [
            (LimitKind::Cpus, window.cpus()),
            (LimitKind::CpuQuota, window.quota()),
            (LimitKind::BusiestThread, window.busiest_thread()),
            (LimitKind::ThreadPool, window.thread_pool()),
            (LimitKind::Descriptors, descriptors(last)),
            (LimitKind::Backlog, window.backlog()),
        ];
        for (kind, limit) in limits {
            match limit {
                Ok(limit) => found.limits.extend(limit.map(|limit| Limit { kind, ..limit })),
                Err(why) => found.unknown.push(UnknownLimit { kind, why: why.as_str().into() }),
            }
        }
        found.limits.sort_by(|a, b| middle(&a.times).total_cmp(&middle(&b.times)));
        let by_rate = || found.limits.iter().filter_map(|limit| limit.full_at_per_sec);
        let low = by_rate().map(|range| range.low).min_by(f64::total_cmp);
        let high = by_rate().filter_map(|range| range.high).min_by(f64::total_cmp);
        found.capacity_per_sec = low.map(|low| Range { low, high });
        let has_pool = found.limits.iter().any(|limit| limit.kind == LimitKind::ThreadPool);
        let waits = window.long_waits().filter(|_| !has_pool).map(|why| why.as_str().into());
        let of_cpus = |limit: &&UnknownLimit| limit.kind <= LimitKind::BusiestThread;
        let unknown = found.unknown.iter().find(of_cpus).filter(|_| found.capacity_per_sec.is_some());
        let full_before = |limit: &UnknownLimit| format!("{}: not measured: {}", limit.kind.word(), limit.why);
        found.unseen = waits.or_else(|| unknown.map(|limit| full_before(limit).as_str().into()));
        found
    }
}

fn middle(range: &Range) -> f64 {
    (range.low * range.high.unwrap_or(OPEN_END * range.low)).sqrt()
}

/// A limit with its distance; `None` if there is no such limit, or the reason why its distance is unknown.
type LimitOrReason = Result<Option<Limit>, String>;

struct HeadroomStep<'a> {
    seconds: f64,
    classes: Vec<ClassTotals>,
    before: &'a Totals,
    after: &'a Totals,
}

impl HeadroomStep<'_> {
    fn rate(&self) -> f64 {
        self.classes.iter().map(|class| class.requests).sum::<u64>() as f64 / self.seconds
    }

    /// Growth of a total per second.
    fn per_sec(&self, of: impl Fn(&Totals) -> Option<u64>) -> Option<f64> {
        let grown = of(self.after)?.checked_sub(of(self.before)?)?;
        Some(grown as f64 / 1e9 / self.seconds)
    }
}

/// The readings as steps, and the cost of each class relative to the mean. Rates are in requests of mean cost, so
/// that a change of the mix does not look like a change of the cost.
struct StepWindow<'a> {
    steps: Vec<HeadroomStep<'a>>,
    by_cpu: Vec<f64>,
    by_elapsed: Vec<f64>,
}

impl<'a> StepWindow<'a> {
    fn new(marks: &'a [Totals]) -> StepWindow<'a> {
        let step = |(before, after): (&'a Totals, &'a Totals)| {
            let seconds = after.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)? as f64 / 1e9;
            let none = ClassTotals::default();
            let earlier = before.classes.iter().chain(std::iter::repeat(&none));
            let counted = before.counted_ns.zip(after.counted_ns).map(|(before, after)| after.saturating_sub(before));
            let times = counted.filter(|ns| *ns > 0).map_or(1.0, |ns| seconds * 1e9 / ns as f64);
            let grown = |(after, before): (&ClassTotals, &ClassTotals)| scaled(&after.since(before), times);
            let classes = after.classes.iter().zip(earlier).map(grown).collect();
            Some(HeadroomStep { seconds, classes, before, after })
        };
        let steps: Vec<HeadroomStep<'a>> = marks.iter().zip(marks.iter().skip(1)).filter_map(step).collect();
        let classes = steps.iter().map(|step| step.classes.len()).max().unwrap_or(0);
        let sum = |class: usize| ClassTotals::sum(steps.iter().filter_map(|step| step.classes.get(class)));
        let sums: Vec<ClassTotals> = (0..classes).map(sum).collect();
        let weights = |requests: fn(&ClassTotals) -> u64, cost: fn(&ClassTotals) -> f64| -> Vec<f64> {
            let all = sums.iter().fold((0, 0.0), |(n, sum), class| (n + requests(class), sum + cost(class)));
            let mean = all.1 / all.0 as f64;
            let weight = |class: &ClassTotals| {
                let own = cost(class) / requests(class) as f64 / mean;
                if requests(class) >= FEWEST_OF_CLASS && own.is_finite() && own > 0.0 { own } else { 1.0 }
            };
            sums.iter().map(weight).collect()
        };
        StepWindow {
            by_cpu: weights(|class| class.requests, |class| class.cpu_ns as f64),
            by_elapsed: weights(|class| class.timed, |class| class.elapsed_ns as f64),
            steps,
        }
    }

    fn uses(
        &self,
        weights: &[f64],
        use_of: impl Fn(&HeadroomStep<'_>) -> Option<(f64, f64)>,
    ) -> Result<Vec<ResourceUse>, String> {
        uses(&self.steps.iter().collect::<Vec<_>>(), weights, use_of)
    }

    fn last(&self) -> Option<&Totals> {
        self.steps.last().map(|step| step.after)
    }

    fn is_constant<T: PartialEq>(&self, of: impl Fn(&Totals) -> T) -> bool {
        self.steps.iter().all(|step| of(step.before) == of(step.after))
    }

    /// Relates uses to the rate. `most`: the lowest and the highest amount that may be available.
    fn by_rate(uses: Result<Vec<ResourceUse>, String>, most: RangeInclusive<f64>, of: Option<String>) -> LimitOrReason {
        let uses = uses?;
        let low = full_at(&uses, *most.start())?;
        let full = Range { high: full_at(&uses, *most.end())?.high, ..low };
        let now = full::now(&uses);
        if now.rate <= 0.0 {
            return Err("there are no requests now".into());
        }
        let times = Range { low: full.low / now.rate, high: full.high.map(|high| high / now.rate) };
        Ok(Some(Limit { full_at_per_sec: Some(full), ..known(now.used, *most.start(), times, of) }))
    }

    fn cpus(&self) -> LimitOrReason {
        let last = self.last().ok_or("no two readings yet")?;
        let cpus =
            last.limits.cpus.filter(|_| last.server_ns.is_some()).ok_or("the server's processes are not visible")?;
        // A thread that slept during a reading may be allowed on other CPUs.
        let is_same =
            |step: &&HeadroomStep<'_>| step.before.limits.cpus == Some(cpus) && step.after.limits.cpus == Some(cpus);
        let same: Vec<&HeadroomStep<'_>> = self.steps.iter().filter(is_same).collect();
        if same.len() < self.steps.len() / 2 {
            return Err("the CPUs that it may use changed".into());
        }
        let most = cpus as f64;
        let uses = uses(&same, &self.by_cpu, |step| {
            let used = most - step.per_sec(|mark| mark.limits.idle_ns).unwrap_or(0.0).clamp(0.0, most);
            let own = step.per_sec(|mark| mark.server_ns)?;
            Some((used.max(own.min(most)), own.min(used.max(own))))
        });
        StepWindow::by_rate(uses, most..=most, None)
    }

    fn quota(&self) -> LimitOrReason {
        let quota = self.last().and_then(|last| last.limits.quota);
        let Some(quota) = quota.filter(|quota| quota.cpus.is_finite() && quota.cpus > 0.0) else { return Ok(None) };
        if !self.is_constant(|mark| mark.limits.quota.map(|quota| quota.cpus)) {
            return Err("it changed".into());
        }
        let uses = self.uses(&self.by_cpu, |step| {
            let used = step.per_sec(|mark| mark.limits.quota.and_then(|quota| quota.used_ns))?;
            Some((used, used))
        });
        StepWindow::by_rate(uses, quota.cpus..=quota.cpus, None)
    }

    /// One CPU for the busiest thread. If several threads share the work, the upper end is the rate at which all of
    /// them are full.
    fn busiest_thread(&self) -> LimitOrReason {
        let Some(last) = self.last() else { return Ok(None) };
        if last.limits.busiest_thread_ns.is_none() {
            return Err("the CPU time of threads cannot be read".into());
        }
        // A reading without requests has no busiest thread.
        let mut busiest = self.steps.iter().rev().filter_map(|step| step.after.limits.busiest_thread.as_ref());
        let Some(thread) = busiest.next() else { return Err("it has used no CPU time".into()) };
        let own =
            |of: fn(&Totals) -> Option<u64>| self.uses(&self.by_cpu, |step| step.per_sec(of).map(|used| (used, used)));
        let name = Some(format!("{} {}", thread.tid, thread.name));
        let alone = StepWindow::by_rate(own(|mark| mark.limits.busiest_thread_ns), 1.0..=1.0, name)?;
        let Some(mut alone) = alone else { return Ok(None) };
        let threads = last.limits.reading_threads.unwrap_or(1).max(thread.siblings);
        if threads > 1 {
            let all = own(|mark| mark.server_ns).and_then(|uses| full_at(&uses, threads as f64));
            let high = all.ok().and_then(|full| full.high);
            let now = alone.full_at_per_sec.map_or(0.0, |full| full.low) / alone.times.low;
            alone.full_at_per_sec = alone.full_at_per_sec.map(|full| Range { high, ..full });
            alone.times.high = high.map(|high| high / now);
        }
        Ok(Some(alone))
    }

    /// Threads that serve one request each; the pool is full when as many requests are in progress.
    fn thread_pool(&self) -> LimitOrReason {
        let Some(last) = self.last() else { return Ok(None) };
        if last.classes.is_empty() {
            return Err("requests are not counted".into());
        }
        let threads = last.limits.reading_threads.ok_or("the threads that read requests are not known")?;
        if threads < 2 || self.steps.iter().any(|step| step.after.is_shared) {
            // One thread, or several with many requests each, are event loops without such a limit.
            return Ok(None);
        }
        if !self.is_constant(|mark| mark.threads) {
            return Err("the number of threads changes, so there is no fixed pool".into());
        }
        if self.steps.iter().filter(|step| step.after.waiting >= 2).count() < 3 {
            return Err("too few concurrent requests to distinguish a pool of threads from event loops".into());
        }
        let uses = self.uses(&self.by_elapsed, |step| {
            let all = ClassTotals::sum(&step.classes);
            let each_ns = if all.timed > 0 { all.elapsed_ns as f64 / all.timed as f64 } else { 0.0 };
            let busy = all.requests as f64 * each_ns / 1e9 / step.seconds;
            Some((busy, busy))
        });
        StepWindow::by_rate(uses, threads as f64..=last.threads.max(threads) as f64, None)
    }

    /// The accept queue fills only once the server is full; before that it is empty, and its distance is unknown.
    fn backlog(&self) -> LimitOrReason {
        let most = match self.last().and_then(|last| last.queue) {
            Some((_, Some(most))) => most,
            Some((_, None)) => return Err("its length is not known".into()),
            None => return Err("nothing listens on the port".into()),
        };
        let last = &self.steps[self.steps.len().saturating_sub(full::LAST)..];
        let queued = last.iter().filter_map(|step| step.after.queue).map(|(queued, _)| queued);
        match queued.min().unwrap_or(0) {
            0 => Err(format!("empty (limit {}): it fills only once the server is full", grouped(most as f64))),
            queued => {
                let high = (most as f64 / queued as f64).max(1.0);
                let times = Range { low: 1.0, high: Some(high) };
                Ok(Some(known(queued as f64, most as f64, times, None)))
            }
        }
    }

    /// Why the server may become full before any measured limit: requests wait even at the lower half of the rates.
    fn long_waits(&self) -> Option<String> {
        let rates = self.steps.iter().map(HeadroomStep::rate);
        let middle = statistics::median(rates)?;
        let below = self.steps.iter().filter(|step| step.rate() <= middle);
        let calm = ClassTotals::sum(below.flat_map(|step| &step.classes));
        let elapsed_ns = (calm.timed > 0).then(|| calm.elapsed_ns as f64 / calm.timed as f64)?;
        let cpu_ns = (calm.requests > 0).then(|| (calm.cpu_ns as f64 / calm.requests as f64).max(0.0))?;
        let waited_ns = elapsed_ns - cpu_ns;
        (waited_ns > LONG_WAIT_NS && waited_ns > elapsed_ns / 2.0).then(|| {
            format!(
                "a request takes {}, of which {} is CPU time: its other waits (other work, a backend, a lock, a slow \
                 client) are not visible",
                format_nanos(elapsed_ns),
                format_nanos(cpu_ns)
            )
        })
    }
}

/// The use of a resource at each step. `use_of` returns the total and the server's part.
fn uses(
    steps: &[&HeadroomStep<'_>],
    weights: &[f64],
    use_of: impl Fn(&HeadroomStep<'_>) -> Option<(f64, f64)>,
) -> Result<Vec<ResourceUse>, String> {
    if steps.iter().any(|step| step.after.classes.is_empty()) {
        return Err("requests are not counted".into());
    }
    let of_step = |step: &&HeadroomStep<'_>| {
        let (used, own) = use_of(step)?;
        let weighted = step.classes.iter().zip(weights).map(|(class, weight)| class.requests as f64 * weight);
        Some(ResourceUse { rate: weighted.sum::<f64>() / step.seconds, used, own })
    };
    let uses: Option<Vec<ResourceUse>> = steps.iter().map(of_step).collect();
    uses.ok_or_else(|| "its usage was not read throughout".into())
}

/// A known limit; the caller sets its kind. `used`: share of `most`.
fn known(used: f64, most: f64, times: Range, of: Option<String>) -> Limit {
    let of = of.map(|name| name.as_str().into());
    Limit { kind: LimitKind::Cpus, used, most, times, full_at_per_sec: None, of }
}

/// At worst, all open descriptors grow with the load; at best, only one per connection.
fn descriptors(last: &Totals) -> LimitOrReason {
    let Some(seen) = last.limits.descriptors.filter(|seen| seen.limit > 0 && seen.open > 0) else {
        return Err("the server's processes are not visible, or have no limit".into());
    };
    let (open, limit, connections) = (seen.open as f64, seen.limit as f64, last.established as f64);
    if last.established == 0 {
        return Err(format!("{} of {} without any connection", grouped(open), grouped(limit)));
    }
    let others = (open - connections).max(0.0);
    let high = (last.processes == 1).then(|| ((limit - others) / connections).max(limit / open));
    let times = Range { low: limit / open, high };
    Ok(Some(known(open, limit, times, Some(format!("process {}", seen.pid)))))
}
