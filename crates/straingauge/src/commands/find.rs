//! `straingauge find`: sweeps the load, finds the zones, explains them, and writes a run directory with a report.

pub mod axis;
mod beside;
mod conclude;
pub mod live;
pub mod open_loop;
mod prove;
mod search;
pub mod second;
mod warm_up;

use super::load::parse_limits;
use crate::cli::{FindArgs, FindOptions, IfPermitted, Overlay, SweepWord, WatchWord};
use crate::failure::{refuse_typed, wrong_usage};
use crate::plan::{self, RunOptions};
use analyze::sweep::{
    AxisSweep, CapacityPlanner, ConnectionSweep, RateSearch, ShareSearch, TurnSweep, capacity, held_goodput, least_ns,
};
use anyhow::Result;
use live::LiveReport;
use record::run::RunWriter;
use record::scenario::{ShiftPlan, SweepPlan};
use record::units::{exact_percent, format_nanos, format_si};
use record::{Arrival, Axis, names};
use search::{Search, SearchEnd};
use second::Second;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use verdict::limit::FailLimit;

pub fn run(args: FindArgs) -> Result<ExitCode> {
    let (drive, plan, limits) = planned(args)?;
    search(drive, plan, &limits)
}

pub fn planned(args: FindArgs) -> Result<(RunOptions, SearchPlan, Vec<FailLimit>)> {
    let mut drive = plan::run_options(args.drive, "straingauge find http://127.0.0.1:8080/ -- SERVER ...")?;
    let mut options = args.find.over(std::mem::take(&mut drive.options.find));
    let mut sweep = plan::sweep_plan(&options, &drive.options.load)?;
    if options.p99_limit.is_none()
        && let Some(path) = plan::path_plan(&drive.options.path, 0)?
    {
        sweep.criteria.p99_limit_ns += path.full_round_trip_ns();
    }
    let mut which = options.sweep.unwrap_or_default();
    if let Some(second) = second::option(&options) {
        refuse_beside_a_second(second, &sweep, options.sweep, &drive)?;
        which = SweepWord::Connections;
    }
    if options.prove {
        refuse_beside_a_proof(&options, &drive)?;
    }
    let shift = plan::shift_plan(&options, &drive)?;
    if shift.is_some() {
        which = SweepWord::Rate;
        // The live-traffic watch already counts the requests.
        drive.options.watching.detail = Some(WatchWord::Off);
        options.profile.get_or_insert(IfPermitted::Never);
    }
    let limits = parse_limits(&args.fail_if, |limit| is_found(limit, which, sweep.axis.is_some()))?;
    if sweep.unload && which == SweepWord::Rate {
        return Err(wrong_usage("--unload needs the closed loop, which --sweep rate leaves out"));
    }
    if drive.options.workload.rate_series.is_some() {
        sweep.arrival = Arrival::Series;
    }
    let has_open_loop = match &sweep.axis {
        Some(axis) => axis.axis == Axis::Rate || drive.options.load.rate.is_some(),
        None => which != SweepWord::Connections,
    };
    if drive.options.load.arrival.is_some() && !has_open_loop {
        return Err(wrong_usage("--arrival applies to the open loop, which is not measured here: leave it out"));
    }
    let second = second::second(&options, &drive)?;
    let mut profile = options.profile.unwrap_or_default();
    if second.as_ref().is_some_and(|second| second.settle.is_some()) {
        // The sampler's probes would hide part of the command's cost, because the second probe at a place costs less
        // than the first.
        profile = options.profile.unwrap_or(IfPermitted::Never);
        drive.options.watching.detail.get_or_insert(WatchWord::Off);
    }
    let plan = SearchPlan {
        second,
        are_connections_typed: options.open_connections.is_some() || shift.is_some(),
        shift,
        live: args.live,
        is_full: args.full,
        proves: options.prove,
        ..SearchPlan::new(sweep, which, Purpose::Zones(profile))
    };
    Ok((drive, plan, limits))
}

/// Checks that a search finds this figure of `--fail-if`; the error is the reason why not.
fn is_found(limit: &FailLimit, which: SweepWord, has_axis: bool) -> Result<(), &'static str> {
    let figure = limit.figure();
    let is_rate = limit.is_at_a_rate() || [names::FIND_PLAN, names::FIND_BREAKS].contains(&figure);
    let is_connections = [names::FIND_YIELD_CONNECTIONS, names::FIND_FAILURE_CONNECTIONS].contains(&figure);
    if !figure.starts_with("find.") && !limit.is_at_a_rate() {
        Err("say at which offered rate, as 'p99@20k > 50ms'; without one find takes plan, breaks, peak, \
             yield_connections and failure_connections")
    } else if figure.starts_with("find.") && limit.is_at_a_rate() {
        Err("it is found over all rates: leave the @ and its rate out")
    } else if has_axis {
        Err("--axis does not search for this figure")
    } else if is_rate && which == SweepWord::Connections {
        Err("--sweep connections, --compare-with and --beside measure no open loop")
    } else if is_connections && which == SweepWord::Rate {
        Err("--sweep rate measures no closed loop")
    } else {
        Ok(())
    }
}

/// Refuses options that do not work with two servers.
fn refuse_beside_a_second(second: &str, sweep: &SweepPlan, which: Option<SweepWord>, drive: &RunOptions) -> Result<()> {
    let fleet = &drive.options.fleet;
    let typed = [
        (sweep.unload, "--unload"),
        (which.is_some_and(|which| which != SweepWord::Connections), "--sweep"),
        (sweep.axis.is_some(), "--axis"),
        (second == "--compare-with" && fleet.watch_with.is_some(), "--watch-with"),
        (!drive.output.metrics.metrics.is_empty(), "--metrics"),
    ];
    refuse_typed(&typed, |option| format!("{second} sets this itself for both sides: leave {option} out"))
}

fn refuse_beside_a_proof(options: &FindOptions, drive: &RunOptions) -> Result<()> {
    let fleet = &drive.options.fleet;
    let typed = [
        (options.axis.is_some(), "--axis"),
        (options.compare_with.is_some(), "--compare-with"),
        (options.beside.is_some(), "--beside"),
        (options.shift.is_some(), "--shift"),
        (options.sweep == Some(SweepWord::Rate), "--sweep rate"),
        (crate::fleet::is_asked_for(fleet), "--client"),
        (fleet.watch_with.is_some(), "--watch-with"),
        (fleet.server_with.is_some(), "--server-with"),
    ];
    refuse_typed(&typed, |option| {
        format!("--prove slows a server of this machine down after a search over connections: leave {option} out")
    })
}

pub struct SearchPlan {
    pub sweep: SweepPlan,
    pub which: SweepWord,
    pub purpose: Purpose,
    /// The second side, measured in turn with the server.
    pub second: Option<Second>,
    /// CPUs of client and server if the sweep varies these.
    pub cpus: Option<axis::CpuSet>,
    pub are_connections_typed: bool,
    /// The command that moves live traffic, which then is the load.
    pub shift: Option<ShiftPlan>,
    /// Address at which the report is shown during the run.
    pub live: Option<SocketAddr>,
    /// Whether to print everything instead of one screen.
    pub is_full: bool,
    /// Whether the named limit is made dearer after the search.
    pub proves: bool,
}

impl SearchPlan {
    /// A search of one server.
    pub fn new(sweep: SweepPlan, which: SweepWord, purpose: Purpose) -> SearchPlan {
        SearchPlan {
            sweep,
            which,
            purpose,
            second: None,
            cpus: None,
            are_connections_typed: false,
            shift: None,
            live: None,
            is_full: false,
            proves: false,
        }
    }

    /// The command of the second side, if it runs with the server, and its time to start or end.
    fn beside(&self) -> Option<(&[String], Duration)> {
        let second = self.second.as_ref()?;
        Some((&second.command, second.settle?))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Zones; also layers if permitted.
    Zones(IfPermitted),
    /// The cost of the server's layers per packet.
    Profile {
        /// Samples per second.
        frequency_hz: u32,
    },
}

pub(super) fn search(mut drive: RunOptions, mut plan: SearchPlan, limits: &[FailLimit]) -> Result<ExitCode> {
    if let Some(axis) = plan.sweep.axis.as_mut().filter(|axis| axis.axis == Axis::Cpus) {
        plan.cpus = Some(axis::cpu_set(&drive, axis)?);
    }
    if let Some(axis) = plan.sweep.axis.as_ref().filter(|axis| axis.axis == Axis::Delay) {
        axis::make_room_for_delay(&mut drive.options.path, &axis.values)?;
    }
    RunWriter::check(Path::new(crate::defaults::RUNS), drive.output.out.as_deref())?;
    drive.output.summary.files().check(drive.output.json)?;
    let live = plan.live.map(|address| LiveReport::begin(address, &drive.target.typed)).transpose()?;
    let mut search = Search::begin(&drive, &plan, live)?;
    let ended = measure_all(&mut search, &plan);
    search.conclude(ended, limits)
}

/// Lines printed before the sweeps over connections and rate: their duration and parts.
fn announced(plan: &SearchPlan) -> Vec<String> {
    let sweep = &plan.sweep;
    let mut said = Vec::new();
    if let Some(width) = sweep.until_sure_ratio {
        let least_ns = least_ns(sweep, plan.which != SweepWord::Rate, plan.which != SweepWord::Connections);
        said.push(format!(
            "until intervals are at most {} wide: about {} with three repeats, at most {}",
            exact_percent(width),
            format_nanos(least_ns.min(sweep.budget_ns) as f64),
            format_nanos(sweep.budget_ns as f64)
        ));
    }
    if sweep.unload {
        said.push("each repeat over connections goes up and then down; half of its time is for the way down".into());
    }
    said
}

fn measure_all(search: &mut Search<'_>, plan: &SearchPlan) -> Result<SearchEnd> {
    let (sweep, seed) = (&plan.sweep, search.seed());
    if let Some(shift) = &plan.shift {
        search.announce(&[format!(
            "live traffic: no requests are sent; times are those of the server's machine; shares {} to {}",
            format_si(shift.usual),
            format_si(shift.most)
        )])?;
        return search.run(&mut ShareSearch::new(sweep, shift));
    }
    if plan.second.is_some() {
        if let Some(early) = search.warm_up()? {
            return Ok(early);
        }
        return search.run(&mut TurnSweep::new(sweep, seed));
    }
    if let Some(axis) = &sweep.axis {
        if axis.axis == Axis::Rate && axis.values.is_empty() {
            match search.run(&mut CapacityPlanner::new(sweep))? {
                SearchEnd::Complete => {}
                early => return Ok(early),
            }
        }
        if axis.axis == Axis::Cpus
            && let Some(early) = search.warm_up()?
        {
            return Ok(early);
        }
        let mut planner = AxisSweep::new(axis, sweep, capacity(search.points()), seed);
        search.highest_value = planner.most();
        if axis.axis == Axis::SlowDown {
            search.announce(&[format!(
                "{} slowed down in turn, {} repeats: about {}, at most {}",
                axis.slowed.iter().map(|place| place.word()).collect::<Vec<_>>().join(", "),
                sweep.repeats,
                format_nanos(planner.slow_down_ns().min(sweep.budget_ns) as f64),
                format_nanos(sweep.budget_ns as f64)
            )])?;
        }
        return search.run(&mut planner);
    }
    search.announce(&announced(plan))?;
    if let Some(early) = search.warm_up()? {
        return Ok(early);
    }
    if plan.which != SweepWord::Rate {
        let connections = ConnectionSweep::new(sweep, seed);
        let is_alone = plan.which != SweepWord::Both;
        match search.run(&mut if is_alone { connections.alone() } else { connections })? {
            SearchEnd::Complete if plan.which == SweepWord::Both => {}
            ended => return Ok(ended),
        }
    }
    let hint = held_goodput(search.points(), &sweep.criteria);
    search.run(&mut RateSearch::new(sweep, hint, seed))
}
