//! One load point: the engine or workers send the load, companions observe it, and their results become one point.

use crate::companions::cold::{HeldCold, established_words, opening_words};
use crate::companions::{AxisMove, Companions, TimeWait, UpcomingLoad};
use crate::fleet;
use crate::measured::{MeasuredPoint, measured};
use crate::metrics::Loads;
use crate::progress::Progress;
use crate::shift::Shift;
use crate::signals::Stop;
use crate::workload::WorkloadFiles;
use analyze::disturbance::is_without_others;
use anyhow::{Context, Result};
use load::LoadResult;
use record::units::{format_nanos, format_si};
use record::{Axis, AxisPlace, DoubtKind, LoadPlan, Pace, Sweep, names};
use remote::{Fleet, leave_out_uncounted};

const ARITHMETIC: std::time::Duration = std::time::Duration::from_millis(50);

pub struct Runner {
    fleet: Option<Box<Fleet>>,
    pub supplied: WorkloadFiles,
    /// Live traffic, in place of a load.
    pub live: Option<Box<Shift>>,
    pub companions: Companions,
    pub metrics: Option<Loads>,
    stop: Stop,
    yardstick_cpu: Option<usize>,
    /// A process in the server's network namespace, if that is a separate one.
    server_pid: Option<u32>,
    pub is_apart: bool,
}

impl Runner {
    /// A runner that uses this process's engine, or workers. `server_pid`: a process in the server's network
    /// namespace, if that is a separate one.
    pub fn new(
        fleet: Option<Fleet>,
        supplied: WorkloadFiles,
        stop: Stop,
        yardstick_cpu: Option<usize>,
        server_pid: Option<u32>,
    ) -> Self {
        Runner {
            fleet: fleet.map(Box::new),
            supplied,
            live: None,
            companions: Companions::default(),
            metrics: None,
            stop,
            yardstick_cpu,
            server_pid,
            is_apart: false,
        }
    }

    /// Whether workers send the load.
    pub fn has_clients(&self) -> bool {
        self.fleet.is_some()
    }

    pub fn client_lines(&self) -> Vec<String> {
        self.fleet.as_ref().map(|fleet| fleet.lines()).unwrap_or_default()
    }

    /// The loss of a client that ends the run, as a sentence.
    pub fn lost_client(&self) -> Option<String> {
        self.fleet.as_ref()?.failure()
    }

    /// Opens `count` cold connections, which stay through all points.
    pub fn hold_cold(&mut self, plan: &LoadPlan, count: u64, progress: &mut Progress) -> Result<()> {
        if let Some(fleet) = &mut self.fleet {
            let held = fleet.hold_cold(plan, count, self.stop.flag(), &mut |established| {
                progress.show(&opening_words(established, count));
            })?;
            progress.say(&established_words(held.counts, held.kernel_bytes));
            return Ok(());
        }
        let held = HeldCold::open(count, &mut AxisMove { plan, stop: &self.stop, progress })?;
        self.companions.join(held);
        Ok(())
    }

    /// Changes the held connections or sockets to a value of an axis; `most` is its largest value.
    pub fn hold(&mut self, plan: &LoadPlan, place: AxisPlace, most: f64, progress: &mut Progress) -> Result<()> {
        if let (Some(fleet), Axis::Cold) = (&mut self.fleet, place.axis) {
            if !fleet.has_planned_cold() {
                fleet::plan_cold(fleet, plan, most as u64, &self.stop)?;
            }
            let count = place.value as u64;
            fleet.hold_cold(plan, count, self.stop.flag(), &mut |established| {
                progress.show(&opening_words(established, count));
            })?;
            return Ok(());
        }
        let mut with = AxisMove { plan, stop: &self.stop, progress };
        if self.companions.hold(place, &mut with)? {
            return Ok(());
        }
        match place.axis {
            Axis::Cold if place.value > 0.0 => self.companions.join(HeldCold::none(plan, most as u64)?),
            Axis::TimeWait => self.companions.join(TimeWait::new(plan, self.server_pid, self.companions.watcher())?),
            _ => return Ok(()),
        }
        self.companions.hold(place, &mut with).map(drop)
    }

    pub fn point(
        &mut self,
        plan: &LoadPlan,
        sweep: Sweep,
        repeat: u32,
        progress: &mut Progress,
    ) -> Result<MeasuredPoint> {
        let load = UpcomingLoad { plan, sweep, is_live: self.live.is_some() };
        let label = label(plan);
        let metrics = self.metrics.clone();
        if let Some(metrics) = &metrics {
            metrics.begins(plan);
        }
        let mut show = |now: &load::LoadProgress| {
            progress.show(&progress_line(&label, now));
            if let Some(metrics) = &metrics {
                metrics.update(now);
            }
        };
        let measured = self.companions.accompany(&load, &mut show, |events| {
            if let Some(live) = &mut self.live {
                return live.measure(plan, repeat, &self.stop, events);
            }
            let mut result = match &mut self.fleet {
                Some(fleet) => fleet.run(plan, &mut self.supplied, self.stop.flag(), events)?,
                None => load::run_supplied(plan, &self.supplied, self.stop.flag(), events)
                    .context("the load engine stopped")?,
            };
            result.doubts.extend(load::replay_doubts(&result, plan));
            let figures = result.figures(plan);
            let workload = result.workload(plan);
            let mut measured = measured(sweep, repeat, (plan.connections, pace_of(plan, &result)), result, figures);
            measured.point.workload = workload;
            measured.point.seed = matches!(plan.pace, Pace::Open { .. }).then_some(plan.seed);
            Ok(measured)
        });
        if let (Err(_), Some(metrics)) = (&measured, &metrics) {
            metrics.ends(None);
        }
        let mut measured = measured?;
        progress.clear();
        let MeasuredPoint { point, result, .. } = &mut measured;
        if let Some(fleet) = &self.fleet {
            point.figures.extend(fleet.figures.clone());
            if let Some(why) = &fleet.uncounted {
                leave_out_uncounted(point, why);
            }
        }
        if point.value(names::LIVE_STEPPED_BACK).is_some() {
            // A guard may step back before the watched window begins.
            point.doubts.retain(|doubt| doubt.kind != DoubtKind::NotWatched);
        }
        if sweep == Sweep::Yardstick {
            point.figures.set(names::YARDSTICK_CPU, observe::yardstick(self.yardstick_cpu, ARITHMETIC));
        }
        if self.is_apart && !self.has_clients() && is_without_others(point) {
            // With an idle CPU, the client did not wait for other programs.
            point.doubts.retain(|doubt| doubt.kind != DoubtKind::SharedCpus);
        }
        if result.interrupted {
            point.doubts.push(DoubtKind::Interrupted.warning(
                format!("the point was interrupted after {}", format_nanos(result.window_ns as f64)),
                "repeat it to its end",
            ));
        }
        if let Some(metrics) = &metrics {
            metrics.ends(Some(&measured));
        }
        Ok(measured)
    }
}

/// `64 connections: measuring 1.2 s, 64 connected, 12.3k requests/s`; with several clients also the lowest and
/// highest rate.
pub fn progress_line(label: &str, now: &load::LoadProgress) -> String {
    let elapsed = format!("{:.1} s", now.elapsed_ns as f64 / 1e9);
    let rate = format_si(now.throughput_per_sec);
    let failed = if now.failed > 0 { format!(", {} failed", format_si(now.failed as f64)) } else { String::new() };
    // The terminal may cut this line off, so the least important part comes last.
    if let Some([(number, least), (_, most)]) = now.apart.filter(|_| !now.in_warmup) {
        let apart = format!("{} (client {number}) to {}", format_si(least), format_si(most));
        return format!("{label}: {elapsed}, {rate} requests/s: {apart}{failed}");
    }
    let phase = if now.in_warmup { "warm-up" } else { "measuring" };
    format!("{label}: {phase} {elapsed}, {} connected, {rate} requests/s{failed}", now.connected)
}

/// The plan's pace, or for a log replayed once its measured rate.
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
