pub mod clocks;
mod conduct;

pub use crate::account::OnLoss;
use crate::account::worker_line;
use crate::cold::{self, Node};
use crate::error::{RemoteError, Result, unusable};
use crate::inputs::{FileParts, InputFiles};
use crate::link::{WorkerLink, WorkerSource, WorkerState};
use crate::protocol::{
    Capacity, ColdHeld, HostPlace, InputPiece, LEASE_NS, MAX_LINE_BYTES, PlanMessage, ToWorker, line,
};
use crate::ray::Nodes;
use crate::shares;
use crate::worker_io::{Listening, MessageQueue, WorkerEvent, WorkerEvents, show};
use conduct::FleetConductor;
use load::{LoadEvents, LoadProgress, LoadResult};
use record::figure::Figures;
use record::time::monotonic_ns;
use record::{LoadPlan, LoadShare, PlainText};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const GREETING_NS: u64 = 60_000_000_000;
const MOST_EVENTS: usize = 256;
/// Minimum time between two searches for new cluster nodes.
const CHECK_NS: u64 = 2_000_000_000;
/// Maximum number of groups in which the workers are pinged, spread over a second.
const MOST_LEASE_PARTS: usize = 100;
/// Maximum file pieces that a worker has not yet confirmed.
const MOST_PIECES: u32 = 4;
/// Timeout for each step of a worker: storing a piece of a file, reporting room for cold connections, making progress
/// with them, and getting ready.
const STEP_TIMEOUT_NS: u64 = 30_000_000_000;
const INTERRUPTED: RemoteError = RemoteError::Interrupted("the clients were given the file");

/// Several workers.
pub struct Fleet {
    /// Dropped first, so that no sender blocks on it.
    events: Receiver<(usize, WorkerEvent)>,
    #[doc(hidden)]
    pub links: Vec<WorkerLink>,
    new_events: WorkerEvents,
    listening: Listening,
    on_loss: OnLoss,
    /// Engine threads of each worker, if the user gave a number.
    threads: Option<usize>,
    /// Maximum cold connections planned for.
    cold_most: u64,
    /// A sentence about the workers that get a smaller share from the next load on.
    relieved: Option<String>,
    took_part: Vec<usize>,
    /// Workers that joined late and have not taken part in a load yet.
    joined: Vec<usize>,
    /// When to search for new cluster nodes again; `None` before the first load.
    #[doc(hidden)]
    pub next_check_ns: Option<u64>,
    /// The figures of each worker in the last load.
    pub figures: Figures,
    /// `STEP_TIMEOUT_NS`, or less in tests.
    #[doc(hidden)]
    pub timeout_ns: u64,
    /// Why not all requests of the last load are counted.
    pub uncounted: Option<String>,
    /// Dropped after the links, whose bytes it carries.
    nodes: Option<Nodes>,
}

impl Fleet {
    /// Starts the workers and waits for the hello of each.
    pub fn connect(
        sources: &[WorkerSource],
        nodes: Option<Nodes>,
        on_loss: OnLoss,
        threads: Option<usize>,
        stop: &AtomicBool,
    ) -> Result<Fleet> {
        let (new_events, events) = sync_channel(1024);
        let mut fleet = Fleet {
            links: Vec::with_capacity(sources.len()),
            new_events,
            listening: Listening::new(),
            events,
            on_loss,
            threads,
            cold_most: 0,
            relieved: None,
            took_part: Vec::new(),
            joined: Vec::new(),
            next_check_ns: None,
            figures: Figures::default(),
            timeout_ns: STEP_TIMEOUT_NS,
            uncounted: None,
            nodes,
        };
        fleet.greet(sources, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(RemoteError::Interrupted("the clients were starting"));
        }
        fleet.links.iter_mut().try_for_each(|link| link.greeted(GREETING_NS, "straingauge load --worker"))?;
        Ok(fleet)
    }

    fn greet(&mut self, sources: &[WorkerSource], stop: &AtomicBool) -> Result<()> {
        let first = self.links.len();
        for source in sources {
            self.links.push(WorkerLink::start(self.links.len(), "client", source, &self.new_events)?);
        }
        keep_leases(&self.links[first..]);
        let give_up_ns = monotonic_ns() + GREETING_NS;
        while self.links[first..].iter().any(|link| matches!(link.state, WorkerState::Greeting)) {
            self.pump(20_000_000, GREETING_NS);
            if stop.load(Ordering::Relaxed) || monotonic_ns() > give_up_ns {
                break;
            }
        }
        Ok(())
    }

    /// Adds workers on nodes that joined the cluster since the last load. An unusable one is no loss, because it had
    /// no share of any load.
    fn take_in(&mut self, plan: &LoadPlan, stop: &AtomicBool) -> Result<()> {
        let Some(next_check_ns) = self.next_check_ns else {
            // Nodes that join while the first load starts are found later: only the initial workers drive it.
            self.next_check_ns = Some(monotonic_ns() + CHECK_NS);
            return Ok(());
        };
        if monotonic_ns() < next_check_ns {
            return Ok(());
        }
        let sources = self.nodes.as_mut().map(|nodes| nodes.joined(stop)).unwrap_or_default();
        if let Some(why) = self.nodes.as_mut().and_then(Nodes::unreported_failure) {
            show(&format!("straingauge: continuing without nodes that join: {why}"));
        }
        let first = self.links.len();
        self.greet(&sources, stop)?;
        self.next_check_ns = Some(monotonic_ns() + CHECK_NS);
        let reaches = self.reach_one_target(plan, false).is_ok();
        for (index, link) in self.links.iter_mut().enumerate().skip(first) {
            if matches!(link.state, WorkerState::Greeting) || !reaches {
                link.lose("it joined later and cannot take part".into());
            }
            link.is_excused = link.is_lost();
            self.joined.extend((!link.is_excused).then_some(index));
        }
        Ok(())
    }

    /// Drives one load over all remaining workers. `inputs` reads the file that the plan names.
    pub fn run(
        &mut self,
        plan: &LoadPlan,
        inputs: &mut dyn InputFiles,
        stop: &AtomicBool,
        events: &mut dyn LoadEvents,
    ) -> Result<LoadResult> {
        self.take_in(plan, stop)?;
        let mut live = self.live(plan, stop)?;
        while !self.give_parts(&live, inputs, stop)? {
            live = self.live(plan, stop)?;
        }
        let mut opening_ns = 0;
        for (index, share) in &live {
            // Each worker chooses its threads and CPUs.
            let threads = self.threads.unwrap_or(0);
            let part = LoadPlan { threads, cpus: Vec::new(), ..plan.part(*share) };
            opening_ns = load::opening_limit_ns(&part).max(opening_ns);
            let text = line(&ToWorker::Plan(Box::new(PlanMessage::new(part))));
            if text.len() > MAX_LINE_BYTES {
                return Err(unusable(format!(
                    "the plan with its {} targets and its body is larger than the maximum of {} MB: use fewer or \
                     shorter targets",
                    plan.targets.len(),
                    MAX_LINE_BYTES >> 20
                )));
            }
            let link = &mut self.links[*index];
            (link.state, link.progress, link.has_started) = (WorkerState::Preparing, LoadProgress::default(), false);
            (link.share, link.is_asked_to_stop) = (*share, false);
            link.out().send(text);
        }
        let live: Vec<usize> = live.into_iter().map(|(index, _)| index).collect();
        let began_ns = monotonic_ns();
        let conduct =
            FleetConductor { fleet: self, plan, live: &live, stop, events, began_ns, opening_ns, reported_ns: 0 };
        let mut result = conduct.conduct()?;
        if let Some(replay) = &mut result.replay {
            inputs.account(replay);
        }
        Ok(result)
    }

    /// Whether cold connections were planned.
    pub fn has_planned_cold(&self) -> bool {
        self.cold_most > 0
    }

    /// Plans cold connections over the workers without opening them. If `most` connections do not fit, the error has
    /// a table of each worker's limits.
    pub fn plan_cold(&mut self, plan: &LoadPlan, most: u64, stop: &AtomicBool) -> Result<()> {
        let live = self.live(plan, stop)?;
        self.cold_most = most;
        for (index, _) in &live {
            let part = LoadPlan { threads: 0, cpus: Vec::new(), ..plan.clone() };
            self.links[*index].cold_room = None;
            self.links[*index].send(&ToWorker::ColdAsk(Box::new(PlanMessage::new(part))));
        }
        let give_up_ns = monotonic_ns() + self.timeout_ns;
        while live.iter().any(|(index, _)| self.links[*index].cold_room.is_none() && !self.links[*index].is_lost()) {
            if stop.load(Ordering::Relaxed) {
                return Err(RemoteError::Interrupted("the clients reported their room for cold connections"));
            }
            if monotonic_ns() > give_up_ns {
                for (index, _) in &live {
                    if self.links[*index].cold_room.is_none() {
                        self.links[*index].lose("it did not report its room for cold connections in time".into());
                    }
                }
            }
            self.pump(5_000_000, 0);
        }
        self.cold_parts(plan, most).map(drop)
    }

    fn cold_parts(&self, plan: &LoadPlan, count: u64) -> Result<Vec<(usize, u64)>> {
        if let Some(lost) = self.failure() {
            return Err(unusable(lost));
        }
        let live: Vec<usize> = (0..self.links.len())
            .filter(|index| !self.links[*index].is_lost() && self.links[*index].cold_room.is_some())
            .collect();
        if live.is_empty() {
            return Err(unusable(format!("no client is left: {}", self.lost().unwrap_or_default())));
        }
        let nodes: Vec<Node> = live
            .iter()
            .zip(self.shares(&live, plan))
            .map(|(index, share)| Node {
                name: self.links[*index].at_host(),
                place: self.place_of(*index),
                room: self.links[*index].cold_room.clone().unwrap_or_default(),
                hot: share.part(plan.connections),
            })
            .collect();
        let is_local = plan.addresses.iter().all(|address| address.ip().is_loopback());
        let parts = cold::divide(count, &nodes, is_local).map_err(RemoteError::NoRoom)?;
        Ok(live.into_iter().zip(parts).collect())
    }

    /// A worker that does not report its place counts as a separate machine.
    fn place_of(&self, index: usize) -> HostPlace {
        let link = &self.links[index];
        if link.place == HostPlace::default() {
            return HostPlace {
                machine: link.short_name().as_str().into(),
                network: link.short_name().as_str().into(),
            };
        }
        link.place.clone()
    }

    /// The machines of the workers.
    pub fn places(&self) -> Vec<HostPlace> {
        (0..self.links.len()).filter(|index| !self.links[*index].is_lost()).map(|index| self.place_of(index)).collect()
    }

    /// Refuses a loopback target if the workers (and the server, if `is_here`) are in several network namespaces,
    /// because each would load a different server.
    pub fn reach_one_target(&self, plan: &LoadPlan, is_here: bool) -> Result<()> {
        let here = Some(HostPlace::here().network).filter(|_| is_here);
        let networks: HashSet<&PlainText> = self
            .links
            .iter()
            .filter(|link| !link.is_lost())
            .map(|link| &link.place.network)
            .chain(&here)
            .filter(|network| !network.is_empty())
            .collect();
        match plan.addresses.first().filter(|address| address.ip().is_loopback()) {
            Some(address) if networks.len() > 1 => Err(unusable(format!(
                "{} is a different machine for each client: use an address of the server that all of them reach",
                address.ip()
            ))),
            _ => Ok(()),
        }
    }

    /// Opens or closes cold connections until the workers hold `count`, or `stop` is set.
    pub fn hold_cold(
        &mut self,
        plan: &LoadPlan,
        count: u64,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ColdHeld> {
        let parts = self.cold_parts(plan, count)?;
        let most = self.cold_parts(plan, self.cold_most.max(count))?;
        for ((index, part), (_, most)) in parts.iter().zip(&most) {
            let link = &mut self.links[*index];
            (link.cold_wanted, link.has_cold) = (*part, link.cold.counts.established == *part);
            link.send(&ToWorker::Cold { count: *part, most: *most.max(part) });
        }
        let distance = |link: &WorkerLink| link.cold.counts.established.abs_diff(link.cold_wanted);
        let mut waiting: Vec<usize> = parts.iter().map(|(index, _)| *index).collect();
        let (mut nearest, mut give_up_ns) = (u64::MAX, u64::MAX);
        loop {
            waiting.retain(|index| !self.links[*index].is_lost() && !self.links[*index].has_cold);
            let Some(first) = waiting.first().filter(|_| !stop.load(Ordering::Relaxed)) else { return Ok(self.cold()) };
            let far = waiting.iter().fold(0, |sum: u64, index| sum.saturating_add(distance(&self.links[*index])));
            if far < nearest {
                (nearest, give_up_ns) = (far, monotonic_ns() + self.timeout_ns);
            } else if monotonic_ns() > give_up_ns {
                let link = &self.links[*first];
                return Err(unusable(format!(
                    "{} holds {} of {} cold connections, and makes no progress",
                    link.name(),
                    link.cold.counts.established,
                    link.cold_wanted
                )));
            }
            self.pump(20_000_000, 0);
            if let Some(lost) = self.failure() {
                return Err(unusable(lost));
            }
            progress(self.cold().counts.established);
        }
    }

    fn cold(&self) -> ColdHeld {
        let mut all = ColdHeld::default();
        let live: Vec<&WorkerLink> = self.links.iter().filter(|link| !link.is_lost() && link.cold_wanted > 0).collect();
        live.iter().for_each(|link| all.counts.add(&link.cold.counts));
        // Workers on one machine report the same kernel memory.
        let machines: HashSet<&PlainText> = live.iter().map(|link| &link.place.machine).collect();
        if machines.len() == live.len() {
            let bytes = |link: &&WorkerLink| Some(link.cold.kernel_bytes? * link.cold.counts.established as f64);
            let sum: Option<f64> = live.iter().map(bytes).sum();
            all.kernel_bytes = sum.map(|sum| sum / all.counts.established as f64).filter(|bytes| bytes.is_finite());
        }
        all
    }

    fn live(&mut self, plan: &LoadPlan, stop: &AtomicBool) -> Result<Vec<(usize, LoadShare)>> {
        if self.on_loss == OnLoss::End
            && let Some(lost) = self.lost()
        {
            return Err(unusable(format!(
                "{lost}; the run ends (--set fleet.on-worker-loss=go-on continues with the others)"
            )));
        }
        self.outwait_the_lost(stop);
        let live: Vec<usize> = (0..self.links.len()).filter(|index| !self.links[*index].is_lost()).collect();
        if live.is_empty() {
            return Err(unusable(format!("no client is left: {}", self.lost().unwrap_or_default())));
        }
        // With fewer connections than workers, only as many workers as connections take part.
        let used = live.len().min(usize::try_from(plan.connections).unwrap_or(usize::MAX)).max(1);
        let live = &live[..used];
        Ok(live.iter().copied().zip(self.shares(live, plan)).collect())
    }

    fn shares(&self, live: &[usize], plan: &LoadPlan) -> Vec<LoadShare> {
        // Workers on one machine measured its speed at the same time. The highest result was disturbed least.
        let mut speeds: HashMap<&PlainText, f64> = HashMap::new();
        for link in &self.links {
            let speed = speeds.entry(&link.place.machine).or_default();
            *speed = speed.max(link.capacity.map_or(0.0, |capacity| capacity.speed_per_sec));
        }
        let capacity = |index: &usize| {
            let link = &self.links[*index];
            let speed_per_sec = speeds[&link.place.machine];
            Some(Capacity { speed_per_sec, ..link.capacity? }.total()? * link.worth)
        };
        shares::divide(&live.iter().map(capacity).collect::<Vec<_>>(), plan.connections)
    }

    /// Gives workers that fell behind a smaller share of the next load if others kept up. `late` holds each worker's
    /// lateness.
    fn relieve(&mut self, late: &[(usize, f64)]) {
        let lateness: Vec<f64> = late.iter().map(|(_, lateness)| *lateness).collect();
        let mut names = Vec::new();
        for place in shares::behind(&lateness) {
            let link = &mut self.links[late[place].0];
            link.worth = shares::relieved(link.worth);
            names.push(link.name());
        }
        self.relieved = (!names.is_empty()).then(|| names.join(", "));
    }

    /// Sends the plan's file to the workers that lack their part of it. Returns false if one was lost meanwhile.
    fn give_parts(
        &mut self,
        live: &[(usize, LoadShare)],
        inputs: &mut dyn InputFiles,
        stop: &AtomicBool,
    ) -> Result<bool> {
        let needed = |share: LoadShare| match inputs.file_parts() {
            FileParts::Nothing => None,
            FileParts::Alike => Some(LoadShare::WHOLE),
            FileParts::ByPart => Some(share),
        };
        let lacking: Vec<Option<usize>> = (live.iter())
            .map(|(index, share)| Some(*index).filter(|index| self.links[*index].input != needed(*share)))
            .collect();
        let wanted: Vec<Option<LoadShare>> = live.iter().map(|(_, share)| needed(*share)).collect();
        if lacking.iter().flatten().next().is_none() {
            return Ok(true);
        }
        let shares: Vec<LoadShare> = live.iter().map(|(_, share)| *share).collect();
        let mut give = |part: u32, piece: InputPiece| {
            let Some(Some(index)) = lacking.get(part as usize) else { return Ok(()) };
            self.wait_for_room(*index, MOST_PIECES - 1, stop)?;
            let link = &mut self.links[*index];
            link.pieces_under_way += 1;
            link.send(&ToWorker::Input(piece));
            Ok(())
        };
        // If the user stopped the run, the error says so.
        let failed = |why: String| if stop.load(Ordering::Relaxed) { INTERRUPTED } else { unusable(why) };
        inputs.give_parts(&shares, &mut give).map_err(failed)?;
        for (place, index) in lacking.iter().enumerate() {
            let Some(index) = *index else { continue };
            self.wait_for_room(index, 0, stop).map_err(failed)?;
            self.links[index].input = wanted[place];
        }
        if stop.load(Ordering::Relaxed) {
            return Err(INTERRUPTED);
        }
        Ok(live.iter().all(|(index, _)| !self.links[*index].is_lost()))
    }

    /// Waits until a worker has confirmed all but `under_way` pieces or is lost. Fails if the user stops the run.
    fn wait_for_room(&mut self, index: usize, under_way: u32, stop: &AtomicBool) -> Result<(), String> {
        let give_up_ns = monotonic_ns() + self.timeout_ns;
        while self.links[index].pieces_under_way > under_way && !self.links[index].is_lost() {
            if stop.load(Ordering::Relaxed) {
                return Err(INTERRUPTED.to_string());
            }
            if monotonic_ns() > give_up_ns {
                self.links[index].lose("it did not store a piece of the file in time".into());
            }
            self.pump(5_000_000, 0);
        }
        Ok(())
    }

    /// Handles events, waiting at most `wait_ns`, and gives up silent workers.
    #[doc(hidden)]
    pub fn pump(&mut self, wait_ns: u64, timeout_ns: u64) {
        self.listening.listening_since(monotonic_ns());
        if self.handle_events(wait_ns) {
            let now_ns = monotonic_ns();
            let since_ns = self.listening.listening_since(now_ns);
            self.links.iter_mut().for_each(|link| link.give_up_if_silent(now_ns, since_ns, timeout_ns));
        }
    }

    /// Handles events, waiting at most `wait_ns` for the first. Returns whether the queue is empty.
    fn handle_events(&mut self, wait_ns: u64) -> bool {
        let mut wait = Duration::from_nanos(wait_ns);
        // Results are merged between calls, so that only some of them are held in memory.
        for _ in 0..MOST_EVENTS {
            let Ok((index, event)) = self.events.recv_timeout(wait) else { return true };
            let link = &mut self.links[index];
            match (event, &mut self.nodes) {
                (WorkerEvent::Ended(None), Some(nodes)) if !link.is_lost() => link.lose(nodes.closed()),
                (event, _) => link.handle(event),
            }
            wait = Duration::ZERO;
        }
        false
    }

    /// Waits until the leases of lost workers have expired. They may send load until then, which must not fall into
    /// the next window.
    fn outwait_the_lost(&mut self, stop: &AtomicBool) {
        let lost = self.links.iter().filter(|link| link.is_lost() && link.has_started);
        let until_ns = lost.map(|link| link.lost_ns.saturating_add(LEASE_NS)).max().unwrap_or(0);
        while monotonic_ns() < until_ns && !stop.load(Ordering::Relaxed) {
            self.pump(20_000_000, 0);
        }
    }

    /// One sentence about the workers that were lost.
    pub fn lost(&self) -> Option<String> {
        let lost: Vec<String> = self
            .links
            .iter()
            .filter_map(|link| match &link.state {
                WorkerState::Lost(why) if !link.is_excused => Some(format!("{} was lost: {why}", link.name())),
                _ => None,
            })
            .collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }

    /// A line about each worker.
    pub fn lines(&self) -> Vec<String> {
        let part = self.links.iter().filter(|link| !link.is_excused);
        part.map(|link| worker_line(link, &self.figures)).collect()
    }

    /// Why the run ends because of a lost worker, if it does.
    pub fn failure(&self) -> Option<String> {
        self.lost().filter(|_| self.on_loss == OnLoss::End)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Closes all inputs first, so that all workers end at the same time.
        self.links.iter().for_each(WorkerLink::leave);
    }
}

/// Pings every worker each second while this process lives. A worker without pings ends its load. The pings of many
/// workers are spread over the second, so that their pongs do not queue.
pub(crate) fn keep_leases(links: &[WorkerLink]) {
    let outs: Vec<MessageQueue> = links.iter().map(WorkerLink::out).collect();
    let parts = outs.len().clamp(1, MOST_LEASE_PARTS);
    std::thread::spawn(move || {
        loop {
            let mut is_any_open = false;
            for part in outs.chunks(outs.len().div_ceil(parts).max(1)) {
                let ping = line(&ToWorker::Ping { sent_ns: monotonic_ns() });
                is_any_open |= part.iter().filter(|out| out.send(ping.clone())).count() > 0;
                std::thread::sleep(Duration::from_nanos(LEASE_NS / 5) / parts as u32);
            }
            if !is_any_open {
                return;
            }
        }
    });
}
