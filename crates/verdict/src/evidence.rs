//! The evidence for the rules: the points below and beyond the yield point, and figures over them.

use super::rules::server_log::{self, MatchedLines};
use super::rules::{Finding, one_at_a_time};
use super::stage::{self, FoundLimit};
use analyze::account::{AccountLevel, levels};
use analyze::disturbance::{self, counted};
use analyze::point::{allowed_cpus, is_crowded, most, own_limit, points_at};
use analyze::zones::{Findings, Level, PointPlace, SweepFindings, Zone, load_words, softirq_beside_us};
use record::text::plain;
use record::{Criteria, Point, RunDir, Sweep, names};
use statistics::median;
use std::cell::OnceCell;

/// Least share of the server's own work at which full CPUs count as filled by the server.
const OWN_WORK_RATIO: f64 = 0.7;

/// Shares of the CPUs that a server may use.
pub struct CpuShares {
    /// The share of the server's own work.
    pub own: f64,
    /// The share of its backend's work.
    pub backend: f64,
}

/// A run with the derived figures that rules read.
pub struct Evidence<'a> {
    /// The run.
    pub run: &'a RunDir,
    /// The findings of the run.
    pub findings: &'a Findings,
    /// The account of each load; computed on first use.
    accounts: OnceCell<Vec<AccountLevel>>,
    /// Log lines about limits; read on first use. `None` if the server's output was not kept.
    log: OnceCell<Option<Vec<MatchedLines>>>,
    /// The limit that the account shows; found on first use.
    limit: OnceCell<Option<FoundLimit>>,
}

impl<'a> Evidence<'a> {
    pub fn new(run: &'a RunDir, findings: &'a Findings) -> Self {
        Evidence { run, findings, accounts: OnceCell::new(), log: OnceCell::new(), limit: OnceCell::new() }
    }

    /// The account of each load of the sweep in which causes are searched. Loads without an account are left out.
    pub fn accounts(&self) -> &[AccountLevel] {
        self.accounts.get_or_init(|| self.sweep().map_or(Vec::new(), |sweep| levels(self.run, sweep)))
    }

    pub(super) fn limit(&self) -> Option<&FoundLimit> {
        self.limit.get_or_init(|| stage::limit(self)).as_ref()
    }

    /// The finding of a rule, if the account shows that it is the limit.
    pub(super) fn limit_by(&self, rule: &str) -> Option<Finding> {
        self.limit().filter(|limit| limit.rule == rule).map(|limit| limit.finding.clone())
    }

    /// The accounts of the lowest load and of the highest under strain.
    pub fn account_under_strain(&self) -> Option<(&AccountLevel, &AccountLevel)> {
        let from = self.strained_from()?;
        Some((self.accounts().first()?, self.accounts().iter().rfind(|level| level.load >= from)?))
    }

    /// Log lines about limits, one of each kind; `None` if the server's output was not kept.
    pub(super) fn log(&self) -> Option<&[MatchedLines]> {
        self.log.get_or_init(|| self.run.server_log().map(|log| server_log::matched_lines(&log))).as_deref()
    }

    /// Answers from the start of the run until a point began.
    pub fn served_before(&self, index: u32) -> f64 {
        let earlier = self.run.points.iter().filter(|point| point.index < index);
        earlier.map(|point| point.outcomes.completed() as f64).sum()
    }

    pub fn criteria(&self) -> &Criteria {
        &self.findings.criteria
    }

    /// The sweep in which rules search for causes: the closed loop if it ran. The open loop instead if other work
    /// disturbed all points under strain of the closed loop, but not all of the open loop's.
    pub fn sweep(&self) -> Option<&'a SweepFindings> {
        let is_quiet = |sweep: &&SweepFindings| !self.strained_in(sweep).is_empty() && !self.is_unquiet(sweep);
        let closed = self.findings.connections.as_ref().filter(|closed| !self.is_unquiet(closed));
        closed.or(self.findings.rate.as_ref().filter(is_quiet)).or(self.findings.sweeps().next())
    }

    /// The points of a sweep at one load.
    pub(super) fn points_at(&self, sweep: Sweep, load: f64) -> impl Iterator<Item = &'a Point> {
        points_at(&self.run.points, sweep, load)
    }

    /// The first load at which the server is under strain: clearly beyond the yield point, or where it fails.
    pub fn strained_from(&self) -> Option<f64> {
        self.sweep().and_then(strained_from)
    }

    /// The points under strain; without disturbed ones, if there are others.
    pub fn strained(&self) -> Vec<&'a Point> {
        counted(&self.sweep().map(|sweep| self.strained_in(sweep)).unwrap_or_default())
    }

    fn strained_in(&self, sweep: &SweepFindings) -> Vec<&'a Point> {
        let Some(from) = strained_from(sweep) else { return Vec::new() };
        let loads = sweep.levels.iter().map(|level| level.load).filter(|load| *load >= from);
        loads.flat_map(|load| self.points_at(sweep.sweep, load)).collect()
    }

    /// Whether other work disturbed all points under strain of a sweep that has any.
    pub fn is_unquiet(&self, sweep: &SweepFindings) -> bool {
        let points = self.strained_in(sweep);
        !points.is_empty() && points.iter().all(|point| disturbance::is_disturbed(point))
    }

    /// If other work disturbed every point under strain in all sweeps: how many there are, and what disturbed the last.
    pub fn unquiet(&self) -> Option<(usize, String)> {
        let points: Vec<&Point> = self.findings.sweeps().flat_map(|sweep| self.strained_in(sweep)).collect();
        let whys: Vec<&str> = points.iter().filter_map(|point| disturbance::reason(point)).collect();
        let last = plain(whys.last().filter(|_| whys.len() == points.len())?, 200);
        Some((points.len(), last))
    }

    /// The points of the sweep at a load; without disturbed ones, if there are others.
    pub fn quiet_at(&self, sweep: Sweep, load: f64) -> Vec<&'a Point> {
        counted(&self.points_at(sweep, load).collect::<Vec<_>>())
    }

    /// The points at the lowest load, and at others up to a quarter of the load where strain begins.
    pub fn relaxed(&self) -> Vec<&'a Point> {
        let (Some(sweep), Some(from)) = (self.sweep(), self.strained_from()) else { return Vec::new() };
        let first = sweep.levels.first().map_or(0.0, |level| level.load);
        let loads = sweep.levels.iter().map(|level| level.load);
        let loads = loads.filter(|load| *load < from && (*load == first || *load <= from / 4.0));
        counted(&loads.flat_map(|load| self.points_at(sweep.sweep, load)).collect::<Vec<_>>())
    }

    /// The points at the lowest load; none if the server is already under strain there.
    pub fn lowest(&self) -> Vec<&'a Point> {
        let (Some(sweep), Some(from)) = (self.sweep(), self.strained_from()) else { return Vec::new() };
        let first = sweep.levels.first().map(|level| level.load).filter(|load| *load < from);
        first.map(|load| self.quiet_at(sweep.sweep, load)).unwrap_or_default()
    }

    /// The first load of any sweep from which a condition holds in most points, as text, with its points. It must also
    /// hold at most higher loads: an effect at a single load has another origin.
    pub fn first_level(&self, holds: impl Fn(&Point) -> bool) -> Option<(String, Vec<&'a Point>)> {
        self.findings.sweeps().find_map(|sweep| {
            let points_of = |level: &Level| (level.load, self.points_at(sweep.sweep, level.load).collect::<Vec<_>>());
            let levels: Vec<_> = sweep.levels.iter().map(points_of).filter(|(_, points)| !points.is_empty()).collect();
            let held: Vec<bool> = levels.iter().map(|(_, points)| most(points, |point| holds(point))).collect();
            let stays = |from: &usize| most(&held[*from..], |held| *held);
            let from = (0..levels.len()).filter(|at| held[*at]).find(stays)?;
            let (load, points) = levels.into_iter().nth(from)?;
            Some((load_words(load, sweep.sweep), points))
        })
    }

    /// Whether, in most of the points, the server filled a thread, its CPU time limit, a process whose threads run one
    /// at a time, or with its own work most of its CPUs. `None` if not measured. CPUs filled by other work are not the
    /// server's limit: on a quiet machine the limit would be another.
    pub fn is_saturated(&self, points: &[&Point]) -> Option<bool> {
        if one_at_a_time::held(self).is_some_and(|held| held.is_proven) {
            return Some(true);
        }
        let limit = self.criteria().saturation_ratio;
        let of_point = |point: &&Point| {
            let thread = own_limit(point).map(|share| share >= limit);
            let cpus = self.is_cpu_full(point);
            match (thread, cpus) {
                // The busiest thread was not measured.
                (_, cpus) if analyze::zones::polling::polls(point) => cpus.filter(|is_full| *is_full),
                (Some(thread), Some(cpus)) => Some(thread || cpus),
                (thread, cpus) => thread.or(cpus),
            }
        };
        most_known(points.iter().filter_map(of_point))
    }

    /// Whether the server's own work filled the CPUs that it may use, in most of the points.
    pub fn are_cpus_full(&self, points: &[&Point]) -> Option<bool> {
        most_known(points.iter().filter_map(|point| self.is_cpu_full(point)))
    }

    fn is_cpu_full(&self, point: &Point) -> Option<bool> {
        let busy = point.value(names::SERVER_CPU_BUSY)?;
        Some(busy >= self.criteria().saturation_ratio && self.is_own_work(point))
    }

    /// Whether most of the work on the server's CPUs was the run's: the server's threads and softirq, its backend, the
    /// client. Unknown counts as yes.
    fn is_own_work(&self, point: &Point) -> bool {
        match point.value(names::SERVER_CPUS_TAKEN) {
            Some(_) => !is_crowded(point),
            None => self.own_share(point).is_none_or(|own| own + self.backend_share(point) >= OWN_WORK_RATIO),
        }
    }

    /// Shares of full CPUs that the server and its backend took, if neither the server nor other work filled them.
    pub fn shares(&self, points: &[&Point]) -> Option<CpuShares> {
        let own = self.own_typical(points).filter(|own| *own < OWN_WORK_RATIO)?;
        let backend: Vec<f64> = points.iter().map(|point| self.backend_share(point)).collect();
        Some(CpuShares { own, backend: median(&backend)? })
    }

    /// CPU time of the backend's processes on this machine, as a share of the CPUs that the server may use.
    fn backend_share(&self, point: &Point) -> f64 {
        point.value(names::BACKEND_CPUS).unwrap_or(0.0) / allowed_cpus(self.run, point)
    }

    /// The server's own work as a share of the CPUs that it may use.
    fn own_share(&self, point: &Point) -> Option<f64> {
        let cpus = allowed_cpus(self.run, point);
        let softirq_cpus =
            softirq_beside_us(point).unwrap_or(0.0) * 1e-6 * point.value(names::THROUGHPUT).unwrap_or(0.0);
        Some((point.value(names::SERVER_CPUS_USED)? + softirq_cpus) / cpus)
    }

    /// The server's own share of its CPUs at a load, if other work filled them.
    pub fn crowded_out(&self, sweep: Sweep, load: f64) -> Option<f64> {
        let points: Vec<&Point> = self.points_at(sweep, load).collect();
        self.own_typical(&points).filter(|_| most(&points, |point| !self.is_own_work(point)))
    }

    /// Median over points of the server's own share of its CPUs.
    pub fn own_typical(&self, points: &[&Point]) -> Option<f64> {
        median(points.iter().filter_map(|point| self.own_share(point)))
    }
}

/// The value that more than half of the items have; `None` without items.
fn most_known(all: impl Iterator<Item = bool>) -> Option<bool> {
    let all: Vec<bool> = all.collect();
    (!all.is_empty()).then(|| most(&all, |holds| *holds))
}

/// The first load at which the server is under strain: clearly beyond the yield point, or where it fails.
pub(crate) fn strained_from(sweep: &SweepFindings) -> Option<f64> {
    let failing = sweep.levels.iter().find(|level| level.zone == Zone::Failure).map(|level| level.load);
    let beyond = match sweep.yield_point.estimate {
        Some(_) => sweep.beyond_yield().map(|level| level.load),
        None if sweep.yield_point.place == PointPlace::Below => sweep.levels.get(1).map(|level| level.load),
        None => None,
    };
    beyond.into_iter().chain(failing).reduce(f64::min)
}

/// Median of a figure over points.
pub fn typical(points: &[&Point], name: &str) -> Option<f64> {
    median(points.iter().filter_map(|point| point.value(name)))
}

/// A sampled share over all samples of the points: value and number of samples.
pub fn pooled(points: &[&Point], name: &str) -> Option<(f64, f64)> {
    let each = points.iter().filter_map(|point| {
        let figure = point.figures.get(name)?;
        let (value, n) = (figure.value.filter(|value| value.is_finite())?, figure.n? as f64);
        (n > 0.0).then_some((value * n, n))
    });
    let (sum, n) = each.fold((0.0, 0.0), |(sum, n), (value, count)| (sum + value, n + count));
    (n > 0.0).then(|| (sum / n, n))
}

/// The share of the server's CPU time that a sampled figure per request has over points, and the samples of the server.
pub fn cpu_share(points: &[&Point], name: &str) -> Option<(f64, f64)> {
    let (mut part_us, mut all_us, mut samples) = (0.0, 0.0, 0.0);
    for point in points {
        let Some((part, cpu)) = point.value(name).zip(point.value(names::SERVER_CPU)) else { continue };
        let completed = point.outcomes.completed() as f64;
        part_us += part * completed;
        all_us += cpu * completed;
        let counted = point.figures.get(name).and_then(|figure| figure.n).unwrap_or(0) as f64;
        samples += counted * cpu / part.max(f64::MIN_POSITIVE);
    }
    (all_us > 0.0).then(|| ((part_us / all_us).min(1.0), samples))
}

/// The lower end of the interval of a share that was sampled `n` times (Wilson's, `errors` standard errors wide).
pub fn at_least(share: f64, n: f64, errors: f64) -> f64 {
    let share = share.clamp(0.0, 1.0);
    let squared = errors * errors;
    let centre = share + squared / (2.0 * n);
    let spread = errors * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
    ((centre - spread) / (1.0 + squared / n)).max(0.0)
}
