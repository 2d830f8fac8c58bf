//! `straingauge find`: the main job. Sweep, find the zones, explain, leave a run directory and a report.

mod axis;
mod beside;

use super::load::parse_limits;
use super::report::write_report;
use super::session::Session;
use crate::cli::{FindArgs, ProfileWord, SweepWord};
use crate::failure::{self, print};
use crate::measure::{Sender, label};
use crate::plan::{self, LoadKind};
use analyze::limit::Limit;
use analyze::sweep::{ConnectionSweep, RateSearch, RateStep, Step};
use anyhow::{Result, bail};
use record::point::Sweep;
use record::run::{RunDir, RunWriter};
use record::scenario::{FindRun, ProfileRun, SweepPlan};
use record::units::format_si;
use record::{
    Arrival, Axis, AxisPlace, AxisPlan, Doubt, DoubtKind, LoadPlan, Pace, Point, RunKind, Severity, Status, names,
};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The yardstick's load: enough connections to keep a server busy, few enough to be elastic on most.
const YARDSTICK_CONNECTIONS: u64 = 8;
const YARDSTICK_NS: u64 = 300_000_000;
/// Connect timeout of an axis of rates, unless another is typed.
const OVERLOAD_CONNECT_TIMEOUT_NS: u64 = 500_000_000;

/// Runs the command.
pub fn run(args: FindArgs) -> Result<ExitCode> {
    let mut drive = plan::run_options(args.drive, "straingauge find http://127.0.0.1:8080/ -- SERVER ...")?;
    let find_options = args.find.over(std::mem::take(&mut drive.find_in_file));
    let mut sweep = plan::sweep_plan(&find_options, &drive.load)?;
    let has = |figure: &str| match figure {
        _ if !figure.starts_with("find.") => Err(
            "find takes peak, yield_connections, failure_connections, yield_rate and failure_rate; use load for others",
        ),
        _ if sweep.axis.is_some() => Err("with --axis no such point is searched for"),
        names::FIND_YIELD_RATE | names::FIND_FAILURE_RATE if find_options.compare_with.is_some() => {
            Err("--compare-with measures over connections alone")
        }
        names::FIND_YIELD_RATE | names::FIND_FAILURE_RATE if find_options.sweep == Some(SweepWord::Connections) => {
            Err("--sweep connections measures no rates")
        }
        names::FIND_YIELD_CONNECTIONS | names::FIND_FAILURE_CONNECTIONS
            if find_options.sweep == Some(SweepWord::Rate) =>
        {
            Err("--sweep rate measures over rates alone")
        }
        _ => Ok(()),
    };
    let limits = parse_limits(&args.fail_if, has)?;
    if drive.workload.rate_series.is_some() {
        sweep.arrival = Arrival::Series;
    }
    if let Some(with) = &find_options.compare_with {
        if let Some(axis) = sweep.axis.as_ref().filter(|axis| axis.axis == Axis::Delay) {
            axis::make_room_for_delay(&mut drive.path, &axis.values)?;
        }
        if find_options.sweep.is_some_and(|sweep| sweep != SweepWord::Connections) {
            return Err(crate::failure::wrong_usage(
                "--compare-with measures both servers over connections: leave --sweep out",
            ));
        }
        let threshold_ratio = find_options.threshold.map_or(analyze::compare::THRESHOLD_RATIO, |share| share.0);
        let profile = find_options.profile.unwrap_or(ProfileWord::Auto);
        return beside::run(&drive, &sweep, &beside::Asked { with, threshold_ratio, limits: &limits, profile });
    }
    let hunt = Hunt {
        sweep,
        which: find_options.sweep.unwrap_or(SweepWord::Both),
        purpose: Purpose::Zones(find_options.profile.unwrap_or(ProfileWord::Auto)),
    };
    search(drive, hunt, &limits)
}

/// What is searched for, and how.
pub(super) struct Hunt {
    pub sweep: SweepPlan,
    pub which: SweepWord,
    pub purpose: Purpose,
}

/// What the points are measured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "bpf"), allow(dead_code))]
pub(super) enum Purpose {
    /// Where the server yields; layers beside it.
    Zones(ProfileWord),
    /// What the layers of a web server cost per packet.
    Profile {
        /// Samples a second.
        frequency_hz: u32,
    },
    /// The same of the microbenchmark's sender.
    Microbenchmark {
        /// Samples a second.
        frequency_hz: u32,
    },
}

/// Measures all points into a run directory, and says what they mean.
pub(super) fn search(mut drive: plan::RunOptions, hunt: Hunt, limits: &[Limit]) -> Result<ExitCode> {
    let Hunt { sweep, which, purpose } = hunt;
    let is_microbenchmark = matches!(purpose, Purpose::Microbenchmark { .. });
    let is_delay_varied = sweep.axis.as_ref().is_some_and(|axis| axis.axis == Axis::Delay);
    if is_delay_varied {
        axis::make_room_for_delay(&mut drive.path, sweep.axis.as_ref().map_or(&[], |axis| &axis.values))?;
    }
    let output = &drive.output;
    RunWriter::check(Path::new("runs"), output.out.as_deref())?;
    let kind = if is_microbenchmark { LoadKind::Microbenchmark } else { LoadKind::Sweep };
    let mut session = Session::open(&drive, kind)?;
    let most = most_connections(&sweep, which, &session.plan);
    if !session.runner.has_clients() {
        load::check(&LoadPlan { connections: most, ..session.plan.clone() }).map_err(anyhow::Error::from)?;
    }
    if is_delay_varied {
        let undelayed = AxisPlace { axis: Axis::Delay, value: 0.0 };
        session.runner.hold(&session.plan, undelayed, 0.0, &mut session.progress)?;
        session.path =
            session.path_plan().map_or(String::new(), |path| format!("{}; the delay is varied", path.words()));
    }
    if let Some(axis) = &sweep.axis {
        suit(&mut session.plan, axis, &drive.load)?;
    }
    if is_microbenchmark {
        suit_sender(&mut session);
    } else {
        greet(&session, output.any_status)?;
    }
    match purpose {
        Purpose::Zones(when) => session.profile_layers(drive.target.port, when)?,
        Purpose::Profile { frequency_hz } | Purpose::Microbenchmark { frequency_hz } => {
            session.profile_packets(drive.target.port, frequency_hz)?
        }
    }
    let mut base = session.loaded(&drive);
    if is_microbenchmark {
        base.load.targets.clear();
    }
    let kind = match purpose {
        Purpose::Zones(_) => RunKind::Find(FindRun { base, sweep: sweep.clone(), what_ifs: drive.what_ifs.clone() }),
        _ => RunKind::Profile(ProfileRun { base, sweep: sweep.clone() }),
    };
    let scenario = session.scenario(&drive, kind);
    let writer = RunWriter::create(Path::new("runs"), output.out.as_deref(), session.record(scenario))?;
    let (points, started) = (Vec::new(), Instant::now());
    let mut search = Search { session, writer, sweep, is_microbenchmark, points, place: None, started };
    let ended = match search.sweep.axis.clone() {
        Some(axis) => search.axis(&axis),
        None => search.sweep(which),
    };
    search.conclude(ended, limits, output.json)
}

fn most_connections(sweep: &SweepPlan, which: SweepWord, plan: &LoadPlan) -> u64 {
    if let Some(axis) = &sweep.axis {
        let most = axis.values.iter().fold(0.0f64, |most, value| most.max(*value)) as u64;
        return match axis.axis {
            Axis::Connections | Axis::Conforming if axis.values.is_empty() => sweep.connections_max,
            Axis::Connections | Axis::Conforming => most,
            Axis::Rate => sweep.open_connections,
            _ => plan.connections,
        };
    }
    match which {
        SweepWord::Connections => sweep.connections_max,
        SweepWord::Rate => sweep.open_connections,
        SweepWord::Both => sweep.connections_max.max(sweep.open_connections),
    }
}

/// What an axis needs of the plan, where nothing else was typed.
fn suit(plan: &mut LoadPlan, axis: &AxisPlan, typed: &crate::cli::LoadOptions) -> Result<()> {
    match axis.axis {
        // An attempt of an overloaded client is given up early, and repeated for the next request (Banga and Druschel 1997).
        Axis::Rate if typed.connect_timeout.is_none() => plan.connect_timeout_ns = OVERLOAD_CONNECT_TIMEOUT_NS,
        Axis::Conforming if plan.clients.bandwidth.is_none() => {
            if plan.clients.read_bytes_per_sec > 0 {
                return Err(crate::failure::wrong_usage(
                    "--axis conforming needs a fixed bandwidth: give --asked-bandwidth instead of --read-rate",
                ));
            }
            plan.clients.bandwidth =
                Some(record::FixedBandwidth { asked_bits_per_sec: 400_000.0, demanded_bits_per_sec: 320_000.0 });
        }
        _ => {}
    }
    Ok(())
}

/// How the microbenchmark's sender waits: where it has a CPU to itself, by looking at the clock.
fn suit_sender(session: &mut Session) {
    let cpus = session.server_command.as_ref().map(|server| server.cpus.as_slice()).unwrap_or_default();
    let is_alone = !cpus.is_empty() && !cpus.iter().any(|cpu| session.plan.cpus.contains(cpu));
    session.runner.sender = Sender::Microbenchmark { polls: is_alone };
    if !is_alone {
        session.doubts.push(Doubt::new(
            DoubtKind::SharedCpus,
            Severity::Note,
            "the sender has no CPU to itself and sleeps between segments: what sleeping costs stands in System Call and Other",
            "use a machine with two CPUs, or keep --cpus and --server-cpus apart",
        ));
    }
}

/// One request before the sweep, so that a server that cannot be measured is told apart from a slow one.
fn greet(session: &Session, any_status: bool) -> Result<()> {
    let answer =
        load::probe(&session.plan, Duration::from_nanos(session.plan.timeout_ns)).map_err(anyhow::Error::from)?;
    if any_status {
        return Ok(());
    }
    match answer.status {
        status if load::is_redirect(status) => {
            let location = answer.location.unwrap_or_default();
            let to = if location.is_empty() { String::new() } else { format!(" to {location}") };
            bail!("the server answers with a redirect (status {status}){to}: name the final URL, or pass --any-status")
        }
        status if !(200..400).contains(&status) => {
            bail!(
                "the server answers {} with status {status}: check the path, or pass --any-status",
                session.plan.targets[0].path
            )
        }
        _ => Ok(()),
    }
}

/// How the sweeps ended.
enum Ended {
    Complete,
    Interrupted,
    ServerGone(String),
    /// A client was lost, and the run ends with it.
    ClientLost(String),
}

struct Search {
    session: Session,
    writer: RunWriter,
    sweep: SweepPlan,
    is_microbenchmark: bool,
    points: Vec<Point>,
    /// Where on the axis the next point lies.
    place: Option<AxisPlace>,
    started: Instant,
}

impl Search {
    fn sweep(&mut self, which: SweepWord) -> Result<Ended> {
        let seed = self.session.plan.seed;
        if which != SweepWord::Rate {
            let share = if which == SweepWord::Both { 0.5 } else { 1.0 };
            let mut planner = ConnectionSweep::new(&self.sweep, seed).with_budget_share(share);
            loop {
                let step = planner.next(&self.points, self.elapsed_ns());
                let ended = match step {
                    Step::Measure { connections, repeat, duration_ns, warmup_ns, .. } => {
                        let plan = LoadPlan {
                            connections,
                            pace: Pace::Closed,
                            duration_ns,
                            warmup_ns,
                            ..self.session.plan.clone()
                        };
                        self.measure(plan, Sweep::Connections, repeat)?
                    }
                    Step::Yardstick => self.yardstick()?,
                    Step::Done { reason } => {
                        self.session.progress.say(&format!("connections: {reason}"));
                        break;
                    }
                };
                if let Some(ended) = ended {
                    return Ok(ended);
                }
            }
        }
        if which != SweepWord::Connections {
            let mut planner = RateSearch::new(&self.sweep, self.capacity_hint(), seed);
            loop {
                let step = planner.next(&self.points, self.elapsed_ns());
                let ended = match step {
                    RateStep::Measure { rate_per_sec, duration_ns, warmup_ns, repeat, .. } => {
                        let pace = Pace::Open { rate_per_sec, arrival: self.sweep.arrival };
                        let connections = self.sweep.open_connections;
                        let plan = LoadPlan { connections, pace, duration_ns, warmup_ns, ..self.session.plan.clone() };
                        self.measure(plan, Sweep::Rate, repeat)?
                    }
                    RateStep::Yardstick => self.yardstick()?,
                    RateStep::Done { reason } => {
                        self.session.progress.say(&format!("rate: {reason}"));
                        break;
                    }
                };
                if let Some(ended) = ended {
                    return Ok(ended);
                }
            }
        }
        Ok(Ended::Complete)
    }

    fn elapsed_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Where the rate search starts: the best throughput that the closed loop saw.
    fn capacity_hint(&self) -> Option<f64> {
        self.points
            .iter()
            .filter(|point| point.sweep == Sweep::Connections)
            .filter_map(|point| point.value(record::names::GOODPUT))
            .max_by(f64::total_cmp)
    }

    fn yardstick(&mut self) -> Result<Option<Ended>> {
        let earlier = self.points.iter().filter(|point| point.sweep == Sweep::Yardstick).count();
        if self.is_microbenchmark {
            // Its rate is constant, so that a load would say nothing of the machine's speed.
            let mut measured = self.session.runner.arithmetic(earlier as u32);
            measured.keep(&mut self.writer)?;
            self.points.push(measured.point);
            return Ok(None);
        }
        let mut plan = LoadPlan {
            connections: YARDSTICK_CONNECTIONS,
            pace: Pace::Closed,
            duration_ns: YARDSTICK_NS,
            warmup_ns: 50_000_000,
            threads: 1,
            ..self.session.plan.clone()
        };
        // A reference is plain and fast, whatever the clients are.
        plan.clients.bandwidth = None;
        plan.clients.read_bytes_per_sec = 0;
        self.measure(plan, Sweep::Yardstick, earlier as u32)
    }

    /// Measures and keeps a point; says whether the sweep ends with it.
    fn measure(&mut self, mut plan: LoadPlan, sweep: Sweep, repeat: u32) -> Result<Option<Ended>> {
        plan.threads = plan.threads.min(usize::try_from(plan.connections).unwrap_or(usize::MAX)).max(1);
        self.session.runner.adapt(&mut plan);
        if self.session.stop.is_set() {
            return Ok(Some(Ended::Interrupted));
        }
        let mut measured = self.session.runner.point(&plan, sweep, repeat, &mut self.session.progress)?;
        if measured.result.interrupted {
            // A point cut short says nothing about its load; what was measured before is kept.
            return Ok(Some(Ended::Interrupted));
        }
        measured.point.axis = self.place.filter(|_| sweep == Sweep::Axis);
        measured.keep(&mut self.writer)?;
        if sweep != Sweep::Yardstick {
            let line = report::text::progress_line(&measured.point, self.elapsed_ns(), self.sweep.budget_ns);
            self.session.progress.say(&line);
        }
        self.points.push(measured.point);
        if let Some(lost) = self.session.runner.lost_client() {
            return Ok(Some(Ended::ClientLost(lost)));
        }
        if let Some(how) = self.session.server_gone() {
            return Ok(Some(Ended::ServerGone(format!("{how} at {}", label(&plan)))));
        }
        Ok(None)
    }

    /// Writes the verdict and the report from what was measured, however the sweep ended.
    fn conclude(mut self, ended: Result<Ended>, limits: &[Limit], as_json: bool) -> Result<ExitCode> {
        let (status, why) = match &ended {
            Ok(Ended::Complete) => (Status::Complete, None),
            Ok(Ended::Interrupted) => (Status::Interrupted, Some("a signal".to_string())),
            Ok(Ended::ServerGone(how)) => (Status::Interrupted, Some(format!("the server {how}"))),
            Ok(Ended::ClientLost(lost)) => (Status::Interrupted, Some(lost.clone())),
            Err(error) => (Status::Interrupted, Some(format!("{error:#}"))),
        };
        if let Some(why) = &why {
            let doubt = Doubt::new(
                DoubtKind::Interrupted,
                Severity::Warning,
                format!("the run ended early: {why}"),
                "the zones rest on the points measured until then; run it again to its end",
            );
            self.writer.record_mut().doubts.push(doubt);
        }
        let facts = self.session.runner.server_facts();
        self.writer.record_mut().server_facts.extend(facts);
        let output = self.session.server.as_ref().map(|server| server.output()).unwrap_or_default();
        // The server and its namespaces go before the slower work of drawing.
        self.session.server = None;
        self.session.progress.clear();
        let finished = self.writer.finish(status, why);
        if !output.is_empty() {
            let _ = record::run::write_whole(&self.writer.path().join("server.log"), &output);
        }
        // From memory, not from the directory: a full disk must not lose what was measured.
        let run = RunDir {
            path: self.writer.path().to_path_buf(),
            record: self.writer.record().clone(),
            points: self.points,
            reading_doubts: Vec::new(),
        };
        let findings = analyze::zones::of_run(&run);
        let verdict = analyze::verdict::sentences(&run, &findings);
        let crossed = crossed_limits(limits, &findings);
        if as_json {
            let mut value = report::json::run(&run, &findings, &verdict);
            value["limits_crossed"] = serde_json::to_value(&crossed)?;
            value["what_ifs"] = serde_json::to_value(analyze::predict::kept(&run))?;
            print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
        } else {
            print(&report::text::run(&run, &findings, &verdict))?;
            print(&report::predict::what_ifs_text(&analyze::predict::kept(&run)))?;
        }
        let written = finished.map_err(anyhow::Error::from).and_then(|()| write_report(&run, None));
        match &written {
            Ok(page) => {
                self.session.progress.say(&format!("report: {}\nrun:    {}", page.display(), run.path.display()))
            }
            Err(error) if ended.is_err() => self.session.progress.say(&failure::sentence(error)),
            Err(_) => {}
        }
        let ended = ended?;
        written?;
        match ended {
            Ended::Interrupted => Ok(ExitCode::from(failure::INTERRUPTED)),
            Ended::ServerGone(how) => bail!(
                "the server {how}; the {} points measured until then are kept in {}",
                format_si(run.points.len() as f64),
                run.path.display()
            ),
            Ended::ClientLost(lost) => bail!(
                "{lost}; the {} points measured until then are kept in {}",
                format_si(run.points.len() as f64),
                run.path.display()
            ),
            Ended::Complete => {
                for text in &crossed {
                    eprintln!("straingauge: {text}");
                }
                Ok(ExitCode::from(if crossed.is_empty() { failure::DONE } else { failure::LIMIT_CROSSED }))
            }
        }
    }
}

/// The limits that the findings cross, in words.
fn crossed_limits(limits: &[Limit], findings: &analyze::zones::Findings) -> Vec<String> {
    let figures = findings.figures();
    limits
        .iter()
        .map(|limit| (limit, limit.check_figures(&figures)))
        .filter(|(_, check)| check.is_crossed())
        .map(|(_, check)| format!("limit crossed: {check}"))
        .collect()
}
