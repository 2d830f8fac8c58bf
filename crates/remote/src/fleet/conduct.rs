use super::{Fleet, OnLoss};
use crate::account::{WorkerPart, clock_doubt, loss_doubt, uncounted_words, worker_figures};
use crate::error::{Result, unusable};
use crate::link::{WorkerLink, WorkerState};
use crate::merge;
use crate::protocol::ToWorker;
use crate::shares;
use load::cold::ColdCounts;
use load::{LoadEvents, LoadProgress, LoadResult};
use record::time::{monotonic_ns, unix_ms};
use record::{DoubtKind, LoadPlan};
use std::sync::atomic::{AtomicBool, Ordering};

/// Time between sending the order to start and the start: this, and a little more for each worker.
const LEAD_NS: u64 = 50_000_000;
const LEAD_OF_EACH_NS: u64 = 50_000;
const PROGRESS_NS: u64 = 200_000_000;
/// Timeout for results after the window, which allows for requests that time out.
const RESULT_NS: u64 = 30_000_000_000;

#[derive(Default)]
struct Results {
    sum: merge::Sum,
    parts: Vec<WorkerPart>,
    late: Vec<(usize, f64)>,
}

pub(super) struct FleetConductor<'a> {
    pub fleet: &'a mut Fleet,
    pub plan: &'a LoadPlan,
    pub live: &'a [usize],
    pub stop: &'a AtomicBool,
    pub events: &'a mut dyn LoadEvents,
    pub began_ns: u64,
    /// Timeout for opening the workers' connections.
    pub opening_ns: u64,
    pub reported_ns: u64,
}

impl FleetConductor<'_> {
    pub fn conduct(mut self) -> Result<LoadResult> {
        let give_up_ns = self.began_ns.saturating_add(self.opening_ns).saturating_add(self.fleet.timeout_ns);
        let mut is_on = self.wait(give_up_ns, |state| !matches!(state, WorkerState::Preparing));
        for index in self.live {
            if matches!(self.fleet.links[*index].state, WorkerState::Preparing) && is_on {
                self.fleet.links[*index].lose("it did not get ready in time".into());
            }
        }
        let (live, stop) = (self.live, self.stop);
        is_on = is_on && self.fleet.compare_clocks(live, |fleet| must_end(fleet, live, stop));
        let mut window = (u64::MAX, u64::MAX);
        let mut started_unix_ms = unix_ms();
        let mut cold_before = ColdCounts::default();
        if is_on {
            let trip_ns = self.live.iter().filter_map(|index| self.fleet.links[*index].clock);
            let way_ns = 4 * trip_ns.map(|clock| clock.uncertainty_ns).max().unwrap_or(0);
            let lead_ns = LEAD_NS + LEAD_OF_EACH_NS * live.len() as u64 + way_ns;
            let start_ns = self.events.starts_at(monotonic_ns() + lead_ns);
            self.start_at(start_ns);
            window.0 = start_ns.saturating_add(self.plan.warmup_ns);
            window.1 = window.0.saturating_add(self.plan.duration_ns);
            is_on = self.wait_in(window.0, window.0);
        }
        if is_on {
            started_unix_ms = unix_ms();
            cold_before = self.fleet.cold().counts;
            self.events.window_begins();
            is_on = self.wait_in(window.0, window.1);
            self.events.window_ends();
        }
        let is_cut = self.stop.load(Ordering::Relaxed) && monotonic_ns() < window.1;
        if !is_on {
            for index in self.live {
                let link = &mut self.fleet.links[*index];
                link.is_asked_to_stop = true;
                link.send(&ToWorker::Stop {});
            }
        }
        let is_over =
            |state: &WorkerState| matches!(state, WorkerState::Done | WorkerState::Idle | WorkerState::Lost(_));
        let give_up_ns = monotonic_ns() + RESULT_NS;
        let mut results = Results::default();
        while !self.live.iter().all(|index| is_over(&self.fleet.links[*index].state)) && monotonic_ns() < give_up_ns {
            self.fleet.pump(5_000_000, 0);
            // Results are merged as they come, so that only one is held in memory.
            self.take_results(&mut results);
            self.report_progress(window.0);
        }
        self.take_results(&mut results);
        self.gather(results, started_unix_ms, is_cut, cold_before)
    }

    /// Returns false if the load must end before.
    fn wait(&mut self, until_ns: u64, wanted: impl Fn(&WorkerState) -> bool) -> bool {
        while monotonic_ns() < until_ns {
            if self.must_end() {
                return false;
            }
            if self.live.iter().all(|index| wanted(&self.fleet.links[*index].state)) {
                return true;
            }
            self.fleet.pump(2_000_000, 0);
            self.report_progress(u64::MAX);
        }
        true
    }

    fn wait_in(&mut self, begin_ns: u64, until_ns: u64) -> bool {
        loop {
            let now = monotonic_ns();
            if self.must_end() {
                return false;
            }
            // All workers may be done early, because a log ends.
            let are_done =
                |index: &usize| matches!(self.fleet.links[*index].state, WorkerState::Done | WorkerState::Lost(_));
            if now >= until_ns || self.live.iter().all(are_done) {
                return true;
            }
            self.fleet.pump((until_ns - now).min(20_000_000), 0);
            self.report_progress(begin_ns);
        }
    }

    fn must_end(&mut self) -> bool {
        must_end(self.fleet, self.live, self.stop) || self.events.should_abort()
    }

    fn start_at(&mut self, start_ns: u64) {
        for index in self.live {
            let link = &mut self.fleet.links[*index];
            if !matches!(link.state, WorkerState::Ready) {
                continue;
            }
            let Some(clock) = link.clock else {
                link.lose("it answered no ping".into());
                continue;
            };
            match u64::try_from(i128::from(start_ns) + clock.offset_ns) {
                Ok(at_ns) => {
                    (link.state, link.has_started) = (WorkerState::Running, true);
                    link.send(&ToWorker::Start { at_ns });
                }
                Err(_) => link.lose("its clock cannot be compared with the driver's".into()),
            }
        }
    }

    fn report_progress(&mut self, begin_ns: u64) {
        let now = monotonic_ns();
        if now < self.reported_ns + PROGRESS_NS {
            return;
        }
        self.reported_ns = now;
        let of = |pick: fn(&LoadProgress) -> u64| -> u64 {
            self.live.iter().fold(0, |sum, index| sum.saturating_add(pick(&self.fleet.links[*index].progress)))
        };
        let links = self.live.iter().map(|index| &self.fleet.links[*index]);
        let rates: Vec<(usize, f64)> = links.map(|link| (link.number, link.progress.throughput_per_sec)).collect();
        let by_rate = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
        let (least, most) = (rates.iter().min_by(by_rate), rates.iter().max_by(by_rate));
        let progress = LoadProgress {
            elapsed_ns: now - self.began_ns,
            connected: of(|progress| progress.connected),
            completed: of(|progress| progress.completed),
            failed: of(|progress| progress.failed),
            throughput_per_sec: rates.iter().map(|(_, rate)| rate).sum(),
            in_warmup: now < begin_ns,
            apart: least.zip(most).filter(|_| rates.len() > 1).map(|(least, most)| [*least, *most]),
        };
        self.events.progress(&progress);
    }

    fn take_results(&mut self, results: &mut Results) {
        for index in self.live {
            let link = &mut self.fleet.links[*index];
            let Some(wire) = link.result.take() else { continue };
            if matches!(link.state, WorkerState::Done) {
                link.state = WorkerState::Idle;
            }
            match wire.into_result() {
                Ok((result, late_ns)) => {
                    let (number, completed) = (link.number, result.counts.completed_in_window);
                    results.parts.push(WorkerPart { number, completed, window_s: result.window_s() });
                    results.late.push((*index, shares::lateness(&result)));
                    results.sum.add(&link.name(), result, clock_doubt(link, late_ns));
                }
                Err(error) => link.lose(error.to_string()),
            }
        }
    }

    fn gather(
        self,
        results: Results,
        started_unix_ms: u64,
        is_cut: bool,
        cold_before: ColdCounts,
    ) -> Result<LoadResult> {
        let (fleet, live) = (self.fleet, self.live);
        let mut doubts = Vec::new();
        let moved = |what: String| {
            let remedy = "compare only the server's own figures with earlier points";
            DoubtKind::SharesMoved.note(format!("from now on {what}"), remedy)
        };
        doubts.extend(
            fleet
                .relieved
                .take()
                .map(|names| moved(format!("{names} gets a smaller share of the load, because it could not keep up"))),
        );
        let has_part = |index: &mut usize| live.contains(index);
        let joined: Vec<String> =
            fleet.joined.extract_if(.., has_part).map(|index| fleet.links[index].name()).collect();
        if !joined.is_empty() {
            let names = joined.join(", ");
            doubts.push(moved(format!("{names} also sends a share of the load, because it joined the cluster")));
        }
        let before = std::mem::replace(&mut fleet.took_part, live.to_vec());
        let lost: Vec<String> = (before.iter())
            .filter(|index| fleet.links[**index].is_lost() && !live.contains(index))
            .map(|index| fleet.links[*index].name())
            .collect();
        if !lost.is_empty() {
            let names = lost.join(", ");
            doubts.push(moved(format!("the others send the share of {names}, which was lost")));
        }
        let Results { sum, mut parts, mut late } = results;
        parts.sort_by_key(|part| part.number);
        late.sort_by_key(|(index, _)| *index);
        // The loss of a worker after its result did not affect this load.
        let is_counted = |link: &WorkerLink| parts.binary_search_by_key(&link.number, |part| part.number).is_ok();
        let silent = live.iter().filter(|index| {
            let link = &fleet.links[**index];
            !link.is_lost() && !is_counted(link)
        });
        for index in silent.copied().collect::<Vec<_>>() {
            fleet.links[index].lose("it gave no result in time".into());
        }
        // The loop includes workers that were lost since the last load or while getting ready.
        for (index, link) in fleet.links.iter_mut().enumerate() {
            if let WorkerState::Lost(why) = &link.state
                && !link.is_excused
                && !is_counted(link)
                && !link.is_reported
            {
                doubts.push(loss_doubt(link, why, live.contains(&index).then_some(fleet.on_loss)));
                link.is_reported = true;
            }
        }
        fleet.relieve(&late);
        let uncounted: Vec<&WorkerLink> = (live.iter().map(|index| &fleet.links[*index]))
            .filter(|link| link.is_lost() && link.has_started && !is_counted(link))
            .collect();
        fleet.uncounted = uncounted_words(&uncounted);
        let figures = worker_figures(&fleet.links, &parts);
        let Some(mut all) = sum.finish() else {
            return Err(unusable(format!("no client gave a result: {}", fleet.lost().unwrap_or_default())));
        };
        all.started_unix_ms = started_unix_ms;
        // Workers stop after a loss, too. Only a stop by the user is an interruption.
        all.interrupted = is_cut;
        all.doubts.extend(doubts);
        fleet.figures = figures;
        if fleet.cold_most > 0 {
            let cold = fleet.cold();
            let more = load::cold::figures(cold.counts, cold_before, cold.kernel_bytes, all.window_ns);
            fleet.figures.extend(more);
        }
        Ok(all)
    }
}

/// Whether the load of these workers must end because the user stopped it, all workers are lost, or one is lost
/// without a result and the run does not continue.
fn must_end(fleet: &Fleet, live: &[usize], stop: &AtomicBool) -> bool {
    let lost =
        live.iter().map(|index| &fleet.links[*index]).filter(|link| link.is_lost() && link.result.is_none()).count();
    stop.load(Ordering::Relaxed) || lost == live.len() || (lost > 0 && fleet.on_loss == OnLoss::End)
}
