//! `find --compare-with`: two server commands in turn, round by round, at the same loads.
//!
//! In each round both servers are started, measured over all loads in one random order, and stopped; the order of the two turns
//! round (A B, B A, ...), so that what drifts falls on both. The run of the first lies in the run directory as always, that of the
//! second in its folder [`compare::BESIDE`].

use super::{Ended, Search, greet};
use crate::cli::ProfileWord;
use crate::commands::report::write_report;
use crate::commands::session::Session;
use crate::failure::{self, print, wrong_usage};
use crate::plan::{LoadKind, RunOptions};
use analyze::limit::Limit;
use analyze::{compare, verdict, zones};
use anyhow::{Context, Result, bail};
use record::run::{RunDir, RunWriter};
use record::scenario::{FindRun, SweepPlan};
use record::{LoadPlan, Outside, Pace, Point, RunKind, Status, Sweep};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What is asked for beside the drive and the sweep.
pub(super) struct Asked<'a> {
    /// `scale`, or a command as typed for a shell.
    pub with: &'a str,
    /// Worse by more than this ends with the code of a crossed limit.
    pub threshold_ratio: f64,
    pub limits: &'a [Limit],
    pub profile: ProfileWord,
}

/// Rounds needed for an interval.
const LEAST_ROUNDS: u32 = 2;

/// One of the two servers: its command, and what was measured of it.
struct Side {
    command: Vec<String>,
    writer: Option<RunWriter>,
    points: Vec<Point>,
}

/// Runs the whole comparison.
pub(super) fn run(drive: &RunOptions, sweep: &SweepPlan, asked: &Asked<'_>) -> Result<ExitCode> {
    let commands = [drive.command.clone(), second_command(asked.with, &drive.command)?];
    RunWriter::check(Path::new("runs"), drive.output.out.as_deref())?;
    let [a, b] = commands.map(|command| Side { command, writer: None, points: Vec::new() });
    let mut both = Both { drive, sweep, asked, sides: [a, b], loads: Vec::new(), started: Instant::now() };
    let ended = both.rounds();
    both.conclude(ended)
}

/// The second server's words: `scale` stands for the first server under scalable select.
fn second_command(with: &str, first: &[String]) -> Result<Vec<String>> {
    if first.is_empty() {
        return Err(wrong_usage("--compare-with needs the first server, too: add -- SERVER ..."));
    }
    if with.trim() == "scale" {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let program = program.into_os_string().into_string().map_err(|_| {
            wrong_usage(
                "this program lies in a folder whose name is no text: put it elsewhere for --compare-with scale",
            )
        })?;
        let found = crate::scale::target::inspect(&crate::scale::target::find_program(&first[0])?)?;
        if let Err(hindrance) = found {
            bail!("scalable select cannot help: {hindrance}");
        }
        crate::scale::library::find(None)?;
        let words = [program, "scale".into(), "--".into()];
        return Ok(words.into_iter().chain(first.iter().cloned()).collect());
    }
    match shlex::split(with) {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(wrong_usage(format!(
            "--compare-with '{}' is no command: give 'scale', or the second server's words as for a shell",
            Outside::new(with, 120)
        ))),
    }
}

/// The loads: doublings from the fewest connections to the most.
fn ladder(sweep: &SweepPlan) -> Vec<u64> {
    let mut loads = vec![sweep.connections_min];
    while let Some(last) = loads.last().copied().filter(|last| *last < sweep.connections_max) {
        loads.push(last.saturating_mul(2).min(sweep.connections_max));
    }
    loads
}

/// The same for both servers of a round, another one in the next.
fn shuffled(loads: &[u64], seed: u64, round: u32) -> Vec<u64> {
    let mut order = loads.to_vec();
    // xorshift64* (Vigna 2016): an order needs no more.
    let mut state = seed ^ (u64::from(round) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..order.len()).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        order.swap(at, (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % (at + 1));
    }
    order
}

struct Both<'a> {
    drive: &'a RunOptions,
    sweep: &'a SweepPlan,
    asked: &'a Asked<'a>,
    sides: [Side; 2],
    /// What both measure: found by the first server in the first round.
    loads: Vec<u64>,
    started: Instant,
}

impl Both<'_> {
    fn rounds(&mut self) -> Result<Ended> {
        let mut longest = Duration::ZERO;
        for round in 0..self.sweep.repeats.max(LEAST_ROUNDS) {
            let spent = self.started.elapsed();
            let is_over = spent + longest > Duration::from_nanos(self.sweep.budget_ns);
            if round >= LEAST_ROUNDS && is_over {
                eprintln!("rounds: {round}, as the next would not fit into the budget");
                return Ok(Ended::Complete);
            }
            for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                match self.turn(side, round)? {
                    Ended::Complete => {}
                    other => return Ok(other),
                }
            }
            longest = longest.max(self.started.elapsed() - spent);
        }
        Ok(Ended::Complete)
    }

    /// One server through all loads, from its start to its end.
    fn turn(&mut self, side: usize, round: u32) -> Result<Ended> {
        let drive = self.drive;
        let command = self.sides[side].command.clone();
        let mut session = Session::open(&RunOptions { command, ..drive.clone() }, LoadKind::Sweep)?;
        greet(&session, drive.output.any_status)?;
        session.profile_layers(drive.target.port, self.asked.profile)?;
        let writer = match self.sides[side].writer.take() {
            Some(writer) => writer,
            None => self.create(side, &session)?,
        };
        let points = std::mem::take(&mut self.sides[side].points);
        let mut search = Search {
            session,
            writer,
            sweep: self.sweep.clone(),
            is_microbenchmark: false,
            points,
            place: None,
            started: self.started,
        };
        let ended = if self.loads.is_empty() {
            self.first_turn(&mut search)
        } else {
            all(&mut search, &shuffled(&self.loads, drive.load.seed.unwrap_or(1), round), round)
        };
        let facts = search.session.runner.server_facts();
        search.writer.record_mut().server_facts.extend(facts);
        let output = search.session.server.as_ref().map(|server| server.output()).unwrap_or_default();
        search.session.server = None;
        search.session.progress.clear();
        if !output.is_empty() {
            let _ = record::run::write_whole(&search.writer.path().join("server.log"), &output);
        }
        self.sides[side].points = search.points;
        self.sides[side].writer = Some(search.writer);
        ended
    }

    fn create(&self, side: usize, session: &Session) -> Result<RunWriter> {
        let drive = self.drive;
        let (sweep, what_ifs) = (self.sweep.clone(), drive.what_ifs.clone());
        let kind = RunKind::Find(FindRun { base: session.loaded(drive), sweep, what_ifs });
        let scenario = session.scenario(drive, kind);
        let beside: Option<PathBuf> = match (&self.sides[0].writer, side) {
            (Some(first), 1) => Some(first.path().join(compare::BESIDE)),
            _ => drive.output.out.clone(),
        };
        Ok(RunWriter::create(Path::new("runs"), beside.as_deref(), session.record(scenario))?)
    }

    /// Upward until two loads in a row failed: what was measured then is what both are compared at.
    fn first_turn(&mut self, search: &mut Search) -> Result<Ended> {
        let mut failing = 0;
        for load in ladder(self.sweep) {
            if let Some(ended) = measure(search, load, 0)? {
                return Ok(ended);
            }
            self.loads.push(load);
            let crossed = search.points.last().and_then(|point| zones::crossed(point, &self.sweep.criteria));
            failing = if crossed.is_some_and(|reasons| !reasons.is_empty()) { failing + 1 } else { 0 };
            if failing == 2 {
                break;
            }
        }
        Ok(search.yardstick()?.unwrap_or(Ended::Complete))
    }

    fn conclude(mut self, ended: Result<Ended>) -> Result<ExitCode> {
        let (status, why) = match &ended {
            Ok(Ended::Complete) => (Status::Complete, None),
            Ok(Ended::Interrupted) => (Status::Interrupted, Some("a signal".to_string())),
            Ok(Ended::ServerGone(how)) => (Status::Interrupted, Some(format!("the server {how}"))),
            Ok(Ended::ClientLost(lost)) => (Status::Interrupted, Some(lost.clone())),
            Err(error) => (Status::Interrupted, Some(format!("{error:#}"))),
        };
        let mut runs = Vec::new();
        for side in &mut self.sides {
            let Some(mut writer) = side.writer.take() else { continue };
            writer.finish(status, why.clone())?;
            runs.push(RunDir {
                path: writer.path().to_path_buf(),
                record: writer.record().clone(),
                points: std::mem::take(&mut side.points),
                reading_doubts: Vec::new(),
            });
        }
        let written = runs.first().map(|run| write_report(run, None)).transpose();
        let [a, b] = runs.as_slice() else {
            ended?;
            bail!("the second server was not measured");
        };
        let crossed: Vec<String> = [("A", a), ("B", b)]
            .into_iter()
            .flat_map(|(name, run)| {
                let crossed = super::crossed_limits(self.asked.limits, &zones::of_run(run));
                crossed.into_iter().map(move |text| format!("{name}: {text}"))
            })
            .collect();
        let compared = compare::interleaved(a, b, self.asked.threshold_ratio);
        if self.drive.output.json {
            let of = |run: &RunDir| {
                let findings = zones::of_run(run);
                report::json::run(run, &findings, &verdict::sentences(run, &findings))
            };
            let mut value = report::json::side_by_side(of(a), of(b), compared.as_ref().ok());
            value["limits_crossed"] = serde_json::to_value(&crossed)?;
            print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
        } else {
            print(&report::text::side_by_side(a, b, compared.as_ref()))?;
        }
        eprintln!("report: {}\nrun:    {}", a.path.join("report.html").display(), a.path.display());
        let ended = ended?;
        written?;
        match ended {
            Ended::Interrupted => return Ok(ExitCode::from(failure::INTERRUPTED)),
            Ended::ServerGone(_) | Ended::ClientLost(_) => {
                bail!("{}; what was measured until then is kept in {}", why.unwrap_or_default(), a.path.display())
            }
            Ended::Complete => {}
        }
        let comparison = compared?;
        for text in &crossed {
            eprintln!("straingauge: {text}");
        }
        let code = crate::commands::compare::code(&comparison);
        Ok(ExitCode::from(if crossed.is_empty() { code } else { failure::LIMIT_CROSSED }))
    }
}

/// All loads in this order, then the yardstick.
fn all(search: &mut Search, loads: &[u64], round: u32) -> Result<Ended> {
    for load in loads {
        if let Some(ended) = measure(search, *load, round)? {
            return Ok(ended);
        }
    }
    Ok(search.yardstick()?.unwrap_or(Ended::Complete))
}

fn measure(search: &mut Search, connections: u64, round: u32) -> Result<Option<Ended>> {
    let duration_ns = search.sweep.point_duration_ns;
    let warmup_ns = search.session.plan.warmup_ns;
    let plan = LoadPlan { connections, pace: Pace::Closed, duration_ns, warmup_ns, ..search.session.plan.clone() };
    search.measure(plan, Sweep::Connections, round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_doubles_and_ends_at_the_most() {
        let sweep = |min, max| {
            let options = crate::cli::FindOptions::default();
            SweepPlan {
                connections_min: min,
                connections_max: max,
                ..crate::plan::sweep_plan(&options, &Default::default()).unwrap()
            }
        };
        assert_eq!(ladder(&sweep(1, 20)), [1, 2, 4, 8, 16, 20]);
        assert_eq!(ladder(&sweep(7, 7)), [7]);
    }

    #[test]
    fn orders_are_whole_and_differ_from_round_to_round() {
        let loads: Vec<u64> = (0..12).collect();
        let orders: Vec<Vec<u64>> = (0..6).map(|round| shuffled(&loads, 1, round)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, loads);
        }
        assert!(orders.windows(2).all(|pair| pair[0] != pair[1]), "{orders:?}");
        assert_eq!(orders[3], shuffled(&loads, 1, 3), "the same again");
    }

    #[test]
    fn the_second_server_is_read_as_a_shell_would() {
        let first = vec!["nginx".to_string()];
        let words = second_command("nginx -c '/a b/c.conf' -g \"daemon off;\"", &first).unwrap();
        assert_eq!(words, ["nginx", "-c", "/a b/c.conf", "-g", "daemon off;"]);
        for wrong in ["", "  ", "nginx 'open"] {
            assert!(second_command(wrong, &first).is_err(), "{wrong}");
        }
        assert!(second_command("nginx", &[]).unwrap_err().to_string().contains("-- SERVER"));
    }
}
