//! `straingauge profile --axis`: the experiments of Kim and Rixner (2005, sections 4 and 5), which show layers per
//! packet against the rate, the connections or the delay.
//!
//! Points are measured and kept as in `find --axis`, with other profiles and loads.

use super::frequency_hz;
use crate::cli::{
    AxisWord, LoadOptions, Method, Options, OutputOptions, PathOptions, ProfileArgs, ServerOptions, SweepArgs,
    SweepWord,
};
use crate::commands::find::{Purpose, SearchPlan, search};
use crate::defaults;
use crate::failure::{refuse_if, wrong_usage};
use crate::plan::{RunOptions, axis as places};
use crate::quantity::Count;
use crate::url::Target;
use anyhow::Result;
use load::MOST_CONNECTIONS;
use record::scenario::SweepPlan;
use record::{Arrival, Axis, AxisPlan, Criteria};
use std::process::ExitCode;
use std::time::Duration;

const SHORTEST_POINT: Duration = Duration::from_millis(200);
const SHORTEST_BUDGET: Duration = Duration::from_secs(1);
/// Maximum rate; higher than any client can send.
const MOST_RATE: f64 = 1e7;

pub(super) fn run(args: &ProfileArgs, axis: AxisWord) -> Result<ExitCode> {
    refuse_if(
        !matches!(args.accounting, None | Some(Method::Sampled)),
        "--axis always samples: leave --accounting out",
    )?;
    let typed = &args.sweep;
    let Some(url) = args.port.clone().filter(|_| !typed.command.is_empty()) else {
        return Err(wrong_usage(
            "--axis starts the server: give its URL and its command, as in: straingauge profile --axis connections \
             http://127.0.0.1:8080/ -- SERVER ...",
        ));
    };
    let axis = Axis::from(axis);
    let (values, connections) = values(typed, axis)?;
    let frequency_hz = frequency_hz(args)?.unwrap_or(defaults::FREQUENCY as u32);
    let plan = SearchPlan {
        sweep: sweep(args, axis, values, connections)?,
        which: SweepWord::Both,
        purpose: Purpose::Profile { frequency_hz },
        second: None,
        cpus: None,
        shift: None,
        are_connections_typed: typed.connections.is_some(),
        live: None,
        is_full: true,
    };
    let options = Options {
        name: Some(format!("profile-{}", axis.word())),
        url: Some(url.clone()),
        load: LoadOptions {
            connections: Some(Count(connections)),
            rate: typed.rate,
            duration: args.duration,
            cpus: typed.cpus.clone(),
            ..LoadOptions::default()
        },
        path: PathOptions { delay: typed.delay.filter(|delay| delay.0 > Duration::ZERO), ..PathOptions::default() },
        server: ServerOptions {
            server_cpus: typed.server_cpus.clone(),
            command: typed.command.clone(),
            ..Default::default()
        },
        ..Options::default()
    };
    let output =
        OutputOptions { out: typed.out.clone(), json: args.json, quiet: typed.quiet, ..OutputOptions::default() };
    search(RunOptions { target: Target::parse(&url)?, options, output }, plan, &[])
}

/// The values of the axis (empty: found during the run), and the connections to hold with it.
fn values(typed: &SweepArgs, axis: Axis) -> Result<(Vec<f64>, u64)> {
    if let Some(Count(wrong)) = typed.connections.filter(|count| !(1..=MOST_CONNECTIONS).contains(&count.0)) {
        return Err(wrong_usage(format!("--connections {wrong} is out of range: give 1 to {MOST_CONNECTIONS}")));
    }
    let held = match axis {
        Axis::Connections => (typed.connections.is_some(), "--connections"),
        Axis::Rate => (typed.rate.is_some(), "--rate"),
        _ => (typed.delay.is_some(), "--delay"),
    };
    places::refuse_what_is_varied(axis, &[held])?;
    let values = match &typed.axis_values {
        Some(text) => places::values(text, axis)?,
        None => match axis {
            Axis::Connections => defaults::PROFILE_CONNECTIONS.iter().map(|count| *count as f64).collect(),
            // The run measures the capacity and uses shares of it.
            Axis::Rate => Vec::new(),
            _ => defaults::PROFILE_DELAYS.iter().map(|delay| delay.as_nanos() as f64).collect(),
        },
    };
    let most = match axis {
        Axis::Connections => MOST_CONNECTIONS as f64,
        Axis::Rate => MOST_RATE,
        _ => f64::INFINITY,
    };
    let largest = values.iter().copied().fold(0.0, f64::max);
    let rate = typed.rate.map_or(1.0, |rate| rate.0);
    refuse_if(rate <= 0.0, "--rate 0 would send nothing")?;
    for (option, value, most) in [("--axis-values", largest, most), ("--rate", rate, MOST_RATE)] {
        refuse_if(value > most, format!("{option} {value:.0} is more than {most:.0}"))?;
    }
    Ok((values, typed.connections.map_or(defaults::PROFILE_HELD_CONNECTIONS, |count| count.0)))
}

fn sweep(args: &ProfileArgs, axis: Axis, values: Vec<f64>, connections: u64) -> Result<SweepPlan> {
    let point = args.duration.map_or(defaults::PROFILE_POINT, |time| time.0);
    refuse_if(point < SHORTEST_POINT, "--duration must be at least 200ms")?;
    let budget = args.sweep.budget.map_or(defaults::PROFILE_BUDGET, |time| time.0);
    refuse_if(budget < SHORTEST_BUDGET, "--budget must be at least 1s: less measures nothing")?;
    let repeats = args.sweep.repeats.map_or(defaults::REPEATS, |count| count.0);
    refuse_if(!(1..=1000).contains(&repeats), "--repeats must be 1 to 1000")?;
    let connections_max = match axis {
        Axis::Connections => values.iter().fold(1.0f64, |most, value| most.max(*value)) as u64,
        _ => connections,
    };
    Ok(SweepPlan {
        connections_min: 1,
        connections_max,
        repeats: repeats as u32,
        point_duration_ns: point.as_nanos() as u64,
        warmup_ns: None,
        budget_ns: budget.as_nanos() as u64,
        open_connections: connections,
        arrival: Arrival::Poisson,
        criteria: Criteria::default(),
        until_sure_ratio: None,
        unload: false,
        axis: Some(AxisPlan {
            slowed: Vec::new(),
            function: None,
            axis,
            values,
            // Rates that are found during the run are bounded by the server's capacity.
            overload_ratio: if axis == Axis::Rate { 0.9 } else { 1.0 },
            conforming_ratio: 1.0,
        }),
    })
}
