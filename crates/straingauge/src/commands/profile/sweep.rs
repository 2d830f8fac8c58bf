//! `straingauge profile --axis`: the experiments of Kim and Rixner (2005, sections 4 and 5), which show layers per
//! packet against the rate, the connections or the delay.
//!
//! Points are measured and kept as in `find --axis`, with other profiles and loads.

use super::frequency_hz;
use crate::cli::{
    AxisWord, FindOptions, LoadOptions, Method, Options, OutputOptions, PathOptions, ProfileArgs, ServerOptions,
    SweepWord,
};
use crate::commands::find::{Purpose, SearchPlan, search};
use crate::defaults;
use crate::failure::{refuse_if, wrong_usage};
use crate::plan::{RunOptions, sweep_plan};
use crate::quantity::Count;
use crate::url::Target;
use anyhow::Result;
use record::Axis;
use record::scenario::SweepPlan;
use std::process::ExitCode;
use std::time::Duration;

const SHORTEST_POINT: Duration = Duration::from_millis(200);
const SHORTEST_BUDGET: Duration = Duration::from_secs(1);

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
    let connections = typed.connections.map_or(defaults::PROFILE_HELD_CONNECTIONS, |count| count.0);
    let frequency_hz = frequency_hz(args)?.unwrap_or(defaults::FREQUENCY as u32);
    let sweep = sweep(args, axis, connections)?;
    let plan = SearchPlan {
        are_connections_typed: typed.connections.is_some(),
        is_full: true,
        ..SearchPlan::new(sweep, SweepWord::Both, Purpose::Profile { frequency_hz })
    };
    let options = Options {
        name: Some(format!("profile-{}", Axis::from(axis).word())),
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

fn sweep(args: &ProfileArgs, axis: AxisWord, connections: u64) -> Result<SweepPlan> {
    let typed = &args.sweep;
    let point = args.duration.map_or(defaults::PROFILE_POINT, |time| time.0);
    refuse_if(point < SHORTEST_POINT, "--duration must be at least 200ms")?;
    let budget = typed.budget.map_or(defaults::PROFILE_BUDGET, |time| time.0);
    refuse_if(budget < SHORTEST_BUDGET, "--budget must be at least 1s: less measures nothing")?;
    refuse_if(typed.rate.is_some_and(|rate| rate.0 <= 0.0), "--rate 0 would send nothing")?;
    let find = FindOptions {
        axis: Some(axis),
        axis_values: typed.axis_values.clone(),
        repeats: typed.repeats,
        ..FindOptions::default()
    };
    let load = LoadOptions { connections: typed.connections, rate: typed.rate, ..LoadOptions::default() };
    let mut sweep = sweep_plan(&find, &load)?;
    (sweep.point_duration_ns, sweep.budget_ns) = (point.as_nanos() as u64, budget.as_nanos() as u64);
    (sweep.connections_max, sweep.open_connections) = (connections, connections);
    let Some(plan) = &mut sweep.axis else { return Ok(sweep) };
    if typed.axis_values.is_none() {
        plan.values = match plan.axis {
            Axis::Connections => defaults::PROFILE_CONNECTIONS.iter().map(|count| *count as f64).collect(),
            // The run measures the capacity and uses shares of it.
            Axis::Rate => {
                plan.overload_ratio = 0.9;
                Vec::new()
            }
            _ => defaults::PROFILE_DELAYS.iter().map(|delay| delay.as_nanos() as f64).collect(),
        };
    }
    if plan.axis == Axis::Connections {
        sweep.connections_max = plan.values.iter().fold(1.0f64, |most, value| most.max(*value)) as u64;
    }
    Ok(sweep)
}
