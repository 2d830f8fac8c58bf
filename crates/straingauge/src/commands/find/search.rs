//! The loop of every search: it asks the planner for a step, carries it out, keeps the point, and repeats.

use super::beside::BesideCommand;
use super::live::LiveReport;
use super::second::Second;
use super::{Purpose, SearchPlan, axis, open_loop};
use crate::cli::SweepWord;
use crate::commands::session::Session;
use crate::measure::label;
use crate::metrics::Loads;
use crate::plan::{LoadKind, RunOptions, axis as places};
use crate::shift::{self, Shift};
use analyze::compare::BESIDE as SECOND_FOLDER;
use analyze::sweep::{Load, Planner, SweepStep, Trial, capacity};
use anyhow::{Context, Result, bail};
use record::run::{RunRecord, RunWriter};
use record::scenario::{FindRun, ProfileRun};
use record::units::{format_si, grouped};
use record::{Axis, AxisPlace, AxisPlan, DoubtKind, LoadPlan, Pace, Point, RunDir, RunKind, Scenario, Sweep};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connections of the yardstick: enough to keep a server busy, few enough to be elastic on most servers.
const YARDSTICK_CONNECTIONS: u64 = 8;
/// Bounds of the yardstick's length, which otherwise is that of a point.
const YARDSTICK_NS: RangeInclusive<u64> = 100_000_000..=300_000_000;
/// The place at which the yardstick runs, so that its work is always the same: value 0 of an axis that changes the
/// server's work.
fn rest(axis: Option<&AxisPlan>) -> Option<AxisPlace> {
    let axis = axis.filter(|axis| matches!(axis.axis, Axis::Delay | Axis::SlowDown))?.axis;
    Some(AxisPlace { axis, value: 0.0, slowed: None })
}

pub(super) enum SearchEnd {
    Complete,
    Interrupted,
    /// The server, a client or the command was lost, so the run ends; the text is a sentence.
    Lost(String),
}

pub(super) struct ServerUnderTest {
    pub writer: RunWriter,
    pub points: Vec<Point>,
}

impl ServerUnderTest {
    pub fn run(&self) -> RunDir {
        RunDir {
            path: self.writer.path().to_path_buf(),
            record: self.writer.record().clone(),
            points: self.points.clone(),
            reading_doubts: Vec::new(),
        }
    }
}

pub(super) struct Search<'a> {
    pub drive: &'a RunOptions,
    pub plan: &'a SearchPlan,
    /// The servers: one, or two for a comparison.
    pub sides: Vec<ServerUnderTest>,
    /// The live page of the first server's run.
    pub live: Option<LiveReport>,
    /// Index of the current side.
    pub(super) now: usize,
    session: Option<Session>,
    metrics: Option<Loads>,
    beside: Option<BesideCommand>,
    /// CPUs of the started server, if the sweep varies their number.
    on_cpus: Option<usize>,
    /// The highest value of the axis, if known.
    pub highest_value: f64,
    /// Connections of the open loop once known, equal for both sides.
    open_connections: Option<u64>,
    /// The most connections that do not slow the server down, if a closed loop showed it.
    most_served: Option<u64>,
    /// Whether a try showed that more connections do not increase the throughput.
    has_enough_connections: bool,
    /// Whether each server needs a warm-up after a start; `None` if unknown.
    pub(super) is_slow_at_first: [Option<bool>; 2],
    started: Instant,
}

impl<'a> Search<'a> {
    /// Starts the first server and creates the run directory.
    pub fn begin(drive: &'a RunOptions, plan: &'a SearchPlan, live: Option<LiveReport>) -> Result<Self> {
        let started = Instant::now();
        let metrics = Loads::open(&drive.output.metrics, &drive.target)?;
        let mut search = Search {
            drive,
            plan,
            sides: Vec::new(),
            live,
            metrics,
            now: 0,
            session: None,
            beside: None,
            on_cpus: fewest_cpus(plan),
            highest_value: 0.0,
            open_connections: None,
            most_served: None,
            has_enough_connections: false,
            is_slow_at_first: [None; 2],
            started,
        };
        search.serve(0)?;
        search.started = Instant::now();
        Ok(search)
    }

    /// The seed of all random choices, which the run records.
    pub fn seed(&self) -> u64 {
        self.session.as_ref().map_or(1, |session| session.plan.seed)
    }

    pub fn points(&self) -> &[Point] {
        &self.sides[self.now].points
    }

    pub fn run(&mut self, planner: &mut dyn Planner) -> Result<SearchEnd> {
        loop {
            let elapsed_ns = self.elapsed_ns();
            let ended = match planner.next(self.points(), elapsed_ns) {
                SweepStep::Serve { server } => self.change(server)?,
                SweepStep::Measure(trial) => self.trial(trial)?,
                SweepStep::Yardstick => {
                    if let Some(known) = planner.known() {
                        self.announce(&[format!("{}: {known}", planner.subject())])?;
                    }
                    self.yardstick()?
                }
                SweepStep::Done { reason } => {
                    self.session()?.progress.say(&format!("{}: {reason}", planner.subject()));
                    return Ok(SearchEnd::Complete);
                }
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    pub fn announce(&mut self, said: &[String]) -> Result<()> {
        let progress = &mut self.session()?.progress;
        said.iter().for_each(|line| progress.say(line));
        Ok(())
    }

    fn elapsed_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    pub fn record_mut(&mut self) -> &mut RunRecord {
        self.sides[self.now].writer.record_mut()
    }

    pub(super) fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().context("no server is being measured")
    }

    fn change(&mut self, server: usize) -> Result<Option<SearchEnd>> {
        if self.plan.beside().is_some() {
            return self.change_beside(server);
        }
        let stop = self.session()?.stop.clone();
        self.close();
        // The next session installs its own signal handlers, so check this one first.
        if stop.is_set() {
            return Ok(Some(SearchEnd::Interrupted));
        }
        self.serve(server)?;
        self.warm_up()
    }

    /// Continues with the same server: side 1 with the command, started for each turn, side 0 without it.
    fn change_beside(&mut self, side: usize) -> Result<Option<SearchEnd>> {
        self.end_beside();
        let Some((command, settle)) = self.plan.beside() else { bail!("--beside has no command") };
        let port = self.drive.target.port;
        let session = self.session.take().context("no server is being measured")?;
        self.turn_to(side, &session)?;
        let session = self.session.insert(session);
        if side == 1 {
            session.progress.show(&format!("starting {} next to the server", command[0]));
            match BesideCommand::start(command, port, session) {
                Ok(beside) => self.beside = Some(beside),
                Err(error) => return Ok(Some(SearchEnd::Lost(format!("{error:#}")))),
            }
        }
        let until = Instant::now() + settle;
        while Instant::now() < until {
            if session.stop.is_set() {
                return Ok(Some(SearchEnd::Interrupted));
            }
            if let Some(how) = self.beside.as_mut().and_then(|beside| beside.end_reason(&mut session.runner)) {
                return Ok(Some(SearchEnd::Lost(format!("{how} before it was measured"))));
            }
            std::thread::sleep(self.beside.as_ref().map_or(Duration::from_millis(10), BesideCommand::check_interval));
        }
        if let Some(beside) = &self.beside {
            beside.is_known_to(&mut session.runner);
        }
        Ok(None)
    }

    fn end_beside(&mut self) {
        let Some(beside) = self.beside.take() else { return };
        let output = beside.end(self.session.as_mut().map(|session| &mut session.runner));
        if let Some(side) = self.sides.get(1) {
            let _ = record::run::write_whole(&side.writer.path().join("beside.log"), &output);
        }
    }

    fn serve(&mut self, server: usize) -> Result<()> {
        let command = match &self.plan.second {
            Some(Second { command, settle: None, .. }) if server == 1 => command,
            _ => &self.drive.options.server.command,
        };
        let session = self.open(command)?;
        self.turn_to(server, &session)?;
        self.session = Some(session);
        Ok(())
    }

    /// Makes this side current, and creates its run if it has none.
    fn turn_to(&mut self, side: usize, session: &Session) -> Result<()> {
        if self.sides.len() <= side {
            let folder = match self.sides.first() {
                Some(first) => Some(first.writer.path().join(SECOND_FOLDER)),
                None => self.drive.output.out.clone(),
            };
            let record = session.record(self.scenario(session, side));
            let writer = RunWriter::create(Path::new(crate::defaults::RUNS), folder.as_deref(), record)?;
            self.sides.push(ServerUnderTest { writer, points: Vec::new() });
        }
        self.now = side;
        Ok(())
    }

    fn open(&self, command: &[String]) -> Result<Session> {
        let (drive, plan) = (self.drive, self.plan);
        let mut run = drive.clone();
        run.options.server.command = command.to_vec();
        if let (Some(cpus), Some(count)) = (&plan.cpus, self.on_cpus) {
            cpus.give(&mut run.options, count);
        }
        let mut session = Session::open(&run, LoadKind::Sweep)?;
        session.runner.metrics = self.metrics.clone();
        let connections = most_connections(plan, &session.plan);
        if session.runner.has_clients() {
            crate::fleet::can_hold(&run.options.fleet, connections)?;
        } else {
            load::check(&LoadPlan { connections, ..session.plan.clone() }).map_err(anyhow::Error::from)?;
        }
        if let Some(axis) = &plan.sweep.axis {
            if axis.axis == Axis::SlowDown {
                session.slow_down(drive.target.port, axis)?;
            }
            if axis.axis == Axis::Delay {
                let undelayed = AxisPlace { axis: Axis::Delay, value: 0.0, slowed: None };
                session.runner.hold(&session.plan, undelayed, 0.0, &mut session.progress)?;
                let words = |path: record::PathPlan| format!("{}; the delay is varied", path.description());
                session.path = session.path_plan().map_or(String::new(), words);
            }
            let round_trip_ns = session.round_trip_ns();
            axis::adapt(&mut session.plan, axis, &drive.options.load, round_trip_ns)?;
        }
        match &plan.shift {
            Some(shift) => {
                let criteria = plan.sweep.criteria;
                session.runner.live = Some(Box::new(Shift::start(drive.target.port, shift, criteria)?));
                // Live traffic comes from other machines, so no CPUs are shared with clients.
                session.doubts.retain(|doubt| doubt.kind != DoubtKind::SharedCpus);
                session.doubts.push(shift::seen_from_the_server());
            }
            None => check_answer(&mut session, drive.output.any_status)?,
        }
        match plan.purpose {
            Purpose::Zones(when) => session.profile_layers(drive.target.port, when)?,
            Purpose::Profile { frequency_hz } => session.profile_packets(drive.target.port, frequency_hz)?,
        }
        Ok(session)
    }

    fn scenario(&self, session: &Session, side: usize) -> Scenario {
        let mut base = session.loaded(self.drive);
        if let (Some(cpus), Some(server)) = (&self.plan.cpus, &mut base.server) {
            server.argv.clone_from(&self.drive.options.server.command);
            server.cpus.clone_from(&cpus.server);
        }
        let sweep = self.plan.sweep.clone();
        let kind = match self.plan.purpose {
            Purpose::Zones(_) => {
                let beside =
                    self.plan.beside().filter(|_| side == 1).map_or(Vec::new(), |(command, _)| command.to_vec());
                RunKind::Find(FindRun {
                    base,
                    sweep,
                    what_ifs: self.drive.options.predict.0.clone(),
                    beside,
                    shift: self.plan.shift.clone(),
                })
            }
            Purpose::Profile { .. } => RunKind::Profile(ProfileRun { base, sweep }),
        };
        session.scenario(self.drive, kind)
    }

    /// Stops the server, its clients and the watch, and keeps the server's output.
    pub fn close(&mut self) {
        self.end_beside();
        let Some(mut session) = self.session.take() else { return };
        // First, return live traffic to the usual share.
        session.runner.live = None;
        // With --beside, both sides have the same server.
        let side = if self.plan.beside().is_some() { 0 } else { self.now };
        let Some(ServerUnderTest { writer, .. }) = self.sides.get_mut(side) else { return };
        writer.record_mut().server_facts.extend(session.runner.companions.server_facts());
        let output = session.server_output();
        session.server = None;
        session.progress.clear();
        if !output.is_empty() {
            let _ = record::run::write_whole(&writer.path().join(record::run::SERVER_LOG), &output);
        }
    }

    /// Starts the server anew on this number of CPUs, unless it runs on them.
    fn serve_on(&mut self, cpus: usize) -> Result<Option<SearchEnd>> {
        if self.on_cpus.replace(cpus) == Some(cpus) {
            return Ok(None);
        }
        let ended = self.change(self.now)?;
        let doubts = self.session.as_ref().map(|session| session.doubts.clone()).unwrap_or_default();
        let known = &mut self.record_mut().doubts;
        for doubt in doubts {
            if known.iter().all(|known| known.what != doubt.what) {
                known.push(doubt);
            }
        }
        Ok(ended)
    }

    fn trial(&mut self, trial: Trial) -> Result<Option<SearchEnd>> {
        if let Load::Place(AxisPlace { axis: Axis::Cpus, value, .. }) = trial.load
            && let Some(ended) = self.serve_on(value as usize)?
        {
            return Ok(Some(ended));
        }
        let arrival = self.plan.sweep.arrival;
        let open = match trial.load {
            Load::Rate(_) | Load::Place(AxisPlace { axis: Axis::Rate, .. }) => self.open_connections(trial.load)?,
            _ => self.plan.sweep.open_connections,
        };
        let expected_per_sec = match (trial.load, &mut self.session()?.runner.live) {
            (Load::Share(share), Some(live)) => {
                if let Err(error) = live.turn_to(share) {
                    return Ok(Some(SearchEnd::Lost(format!("{error:#}"))));
                }
                live.expected_per_sec(share)
            }
            _ => 0.0,
        };
        let (mut plan, mut place) = (self.session()?.plan.clone(), None);
        match trial.load {
            Load::Connections(connections) | Load::Unloading(connections) | Load::Capacity(connections) => {
                (plan.connections, plan.pace) = (connections, Pace::Closed);
            }
            Load::Rate(rate_per_sec) => {
                (plan.connections, plan.pace) = (open, Pace::Open { rate_per_sec, arrival });
            }
            Load::Share(_) => plan.pace = Pace::Open { rate_per_sec: expected_per_sec, arrival },
            Load::Place(at) => {
                let holds_rate = self.drive.options.load.rate.is_some();
                places::turn_to(&mut plan, at, arrival, open, holds_rate);
                place = Some(at);
            }
        }
        (plan.duration_ns, plan.warmup_ns) = (trial.duration_ns, trial.warmup_ns);
        let most = self.highest_value;
        if let Some(at) = place
            && let Some(ended) = axis::prepare(self.session()?, at, most)?
        {
            return Ok(Some(ended));
        }
        // The first response on a new connection takes two round trips; each further one of a closed loop takes one.
        let (sweep, round_trip_ns) = (&self.plan.sweep, self.session()?.round_trip_ns());
        let typed = &self.drive.options.load;
        if typed.warmup.is_none() {
            plan.warmup_ns += 2 * round_trip_ns;
        }
        let most_ns = if typed.duration.is_some() { sweep.point_duration_ns } else { u64::MAX };
        plan.duration_ns = plan.duration_ns.max(round_trip_ns.min(most_ns));
        if matches!(plan.pace, Pace::Open { .. }) {
            plan.seed = drawn_anew(plan.seed, self.points().len() as u64);
        }
        self.measure(plan, trial.load.sweep(), trial.repeat, place)
    }

    /// Connections of the open loop (see [`open_loop`]), unless their number was typed.
    fn open_connections(&mut self, load: Load) -> Result<u64> {
        let most = self.plan.sweep.open_connections;
        if self.has_fixed_connections() {
            return Ok(most);
        }
        if let Some(known) = self.open_connections {
            return Ok(known);
        }
        let is_searched = matches!(load, Load::Rate(_));
        if is_searched && let Some((needed, most)) = open_loop::needed(self.points(), self.most_open_connections()) {
            self.open_connections = Some(needed);
            self.most_served = Some(most);
            self.announce(&[format!("open loop: {} connections", grouped(needed as f64))])?;
            return Ok(needed);
        }
        let most = if is_searched { most.min(open_loop::UNKNOWN) } else { most };
        let known = self.points().iter().filter(|point| open_loop::is_heard(point)).map(|point| point.connections);
        let known = known.max().unwrap_or(0);
        let session = self.session()?;
        session.progress.show(&format!("{} connections: checking that the server serves them", format_si(most as f64)));
        // Includes all companions of a point, so that they count nothing from before it.
        let round_trip_ns = session.round_trip_ns();
        let mut load = |plan: &LoadPlan| {
            let plan = LoadPlan { timeout_ns: plan.timeout_ns + round_trip_ns, ..plan.clone() };
            session.runner.point(&plan, Sweep::Rate, 0, &mut session.progress)
        };
        let tried =
            open_loop::served(&session.plan, most, known, |plan| load(plan).map(|said| said.result.counts.outcomes))?;
        let connections = match tried {
            None => most,
            Some([more, served]) => {
                let doubt = served.doubt(&more);
                session.progress.say(&doubt.what);
                self.record_mut().doubts.push(doubt);
                served.connections
            }
        };
        self.open_connections = Some(connections);
        Ok(connections)
    }

    fn has_fixed_connections(&self) -> bool {
        let has_log = |session: &Session| session.plan.workload.trace.is_some();
        self.plan.are_connections_typed || self.session.as_ref().is_some_and(has_log)
    }

    /// Connections that must be possible; checked before the search.
    fn most_open_connections(&self) -> u64 {
        let SearchPlan { sweep, which, .. } = self.plan;
        let fits = if *which == SweepWord::Both { sweep.connections_max } else { 0 };
        self.most_served.unwrap_or(fits.max(sweep.open_connections))
    }

    fn yardstick(&mut self) -> Result<Option<SearchEnd>> {
        let earlier = self.points().iter().filter(|point| point.sweep == Sweep::Yardstick).count() as u32;
        let rest = rest(self.plan.sweep.axis.as_ref());
        let duration_ns = self.plan.sweep.point_duration_ns.clamp(*YARDSTICK_NS.start(), *YARDSTICK_NS.end());
        if let Some(cpus) = fewest_cpus(self.plan)
            && let Some(ended) = self.serve_on(cpus)?
        {
            return Ok(Some(ended));
        }
        let session = self.session()?;
        if let Some(rest) = rest {
            session.runner.hold(&session.plan, rest, 0.0, &mut session.progress)?;
        }
        let round_trip_ns = session.round_trip_ns();
        let mut plan = LoadPlan {
            connections: YARDSTICK_CONNECTIONS,
            pace: Pace::Closed,
            duration_ns: duration_ns + round_trip_ns,
            warmup_ns: 50_000_000 + round_trip_ns,
            threads: 1,
            ..session.plan.clone()
        };
        // The reference load is plain and fast, whatever the run's clients are.
        plan.clients.bandwidth = None;
        plan.clients.read_bytes_per_sec = 0;
        self.measure(plan, Sweep::Yardstick, earlier, None)
    }

    /// Returns whether that ends the search.
    fn measure(
        &mut self,
        mut plan: LoadPlan,
        sweep: Sweep,
        repeat: u32,
        place: Option<AxisPlace>,
    ) -> Result<Option<SearchEnd>> {
        let (started, budget_ns) = (self.started, self.plan.sweep.budget_ns);
        let may_widen = sweep == Sweep::Rate && !self.has_fixed_connections();
        let most = self.most_open_connections();
        let Some(session) = &mut self.session else { bail!("no server is being measured") };
        let side = &mut self.sides[self.now];
        plan.threads = plan.threads.min(usize::try_from(plan.connections).unwrap_or(usize::MAX)).max(1);
        session.runner.supplied.adapt(&mut plan);
        if session.stop.is_set() {
            return Ok(Some(SearchEnd::Interrupted));
        }
        let mut measured = match session.runner.point(&plan, sweep, repeat, &mut session.progress) {
            Err(error) if self.plan.shift.is_some() => return Ok(Some(SearchEnd::Lost(format!("{error:#}")))),
            measured => measured?,
        };
        if measured.result.interrupted {
            // Drops the incomplete point, keeps earlier ones.
            return Ok(Some(SearchEnd::Interrupted));
        }
        let at = label(&plan);
        while may_widen
            && !self.has_enough_connections
            && let Some(more) = open_loop::more(&measured.point, capacity(&side.points), most)
        {
            let (few, many) = (grouped(plan.connections as f64), grouped(more as f64));
            session.progress.say(&format!("{at}: requests waited for one of {few} connections; again with {many}"));
            let threads = session.plan.threads.min(usize::try_from(more).unwrap_or(usize::MAX)).max(1);
            let wider = LoadPlan { connections: more, threads, ..plan.clone() };
            let again = session.runner.point(&wider, sweep, repeat, &mut session.progress)?;
            if again.result.interrupted {
                return Ok(Some(SearchEnd::Interrupted));
            }
            self.has_enough_connections = !open_loop::is_more(&again.point, &measured.point);
            if self.has_enough_connections {
                session.progress.say(&format!("{many} connections did not increase the answers: {few} from here on"));
            } else {
                (measured, plan) = (again, wider);
                self.open_connections = Some(more);
            }
        }
        if may_widen {
            // More connections were tried and do not help, because requests then wait in the server.
            measured.point.doubts.retain(|doubt| doubt.kind != DoubtKind::ConnectionWait);
        }
        if let Some(how) = self.beside.as_mut().and_then(|beside| beside.end_reason(&mut session.runner)) {
            // The command ran for only a part of the point.
            return Ok(Some(SearchEnd::Lost(format!("{how} at {at}"))));
        }
        // The server vanished, which is not a failure under load, so the point is dropped.
        let is_doubtful = measured.point.outcomes.completed() == 0 || measured.point.outcomes.refused > 0;
        let gone = session.server_end_reason().map(|how| format!("the server {how} at {at}"));
        let refuses = || is_doubtful.then(|| session.takes_no_connection()).flatten();
        let gone = gone.or_else(|| Some(format!("{}, since {at}", refuses()?)));
        if let Some(gone) = gone {
            return Ok(Some(SearchEnd::Lost(gone)));
        }
        measured.point.axis = place;
        let kept = measured.keep(&mut side.writer);
        if sweep != Sweep::Yardstick {
            let elapsed_ns = started.elapsed().as_nanos() as u64;
            let line = report::run::progress_line(&measured.point, elapsed_ns, budget_ns);
            session.progress.say(&shift::stepped_back(&measured.point, &self.plan.sweep.criteria).unwrap_or(line));
        }
        side.points.push(measured.point);
        kept?;
        if let Some(live) = &mut self.live {
            live.show(|| self.sides[0].run());
        }
        Ok(session.runner.lost_client().map(SearchEnd::Lost))
    }
}

/// The smallest number on an axis of CPUs. The yardstick always runs with it.
fn fewest_cpus(plan: &SearchPlan) -> Option<usize> {
    let axis = plan.sweep.axis.as_ref().filter(|axis| axis.axis == Axis::Cpus)?;
    axis.values.first().map(|count| *count as usize)
}

/// Seed of a trial's arrival times, small enough for a double, so that JSON readers keep it exactly.
fn drawn_anew(seed: u64, trial: u64) -> u64 {
    seed.wrapping_add(trial.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 11
}

fn most_connections(plan: &SearchPlan, base: &LoadPlan) -> u64 {
    let sweep = &plan.sweep;
    if let Some(axis) = &sweep.axis {
        let most = axis.values.iter().fold(0.0f64, |most, value| most.max(*value)) as u64;
        return match axis.axis {
            Axis::Connections | Axis::Conforming if axis.values.is_empty() => sweep.connections_max,
            Axis::Connections | Axis::Conforming => most,
            Axis::Rate => sweep.open_connections,
            _ => base.connections,
        };
    }
    match plan.which {
        SweepWord::Connections => sweep.connections_max,
        SweepWord::Rate => sweep.open_connections,
        SweepWord::Both => sweep.connections_max.max(sweep.open_connections),
    }
}

fn check_answer(session: &mut Session, any_status: bool) -> Result<()> {
    let answer = session.probe()?;
    if any_status {
        return Ok(());
    }
    match answer.status {
        status if !session.plan.protocol.has_status_codes() => match answer.error {
            Some(error) => {
                let why = session.why_isolated(status).unwrap_or_else(|| "check the request".into());
                bail!("the server answers '{error}': {why}, or pass --any-status")
            }
            None if (200..400).contains(&status) => Ok(()),
            None => bail!("the server answers with an error: check the request, or pass --any-status"),
        },
        status if load::is_redirect(status) => {
            let location = answer.location.unwrap_or_default();
            let to = if location.is_empty() { String::new() } else { format!(" to {location}") };
            bail!("the server answers with a redirect (status {status}){to}: name the final URL, or pass --any-status")
        }
        status if !(200..400).contains(&status) => {
            let why = session.why_isolated(status).unwrap_or_else(|| "check the path".into());
            bail!(
                "the server answers {} with status {status}: {why}, or pass --any-status",
                session.plan.targets[0].path
            )
        }
        _ => Ok(()),
    }
}
