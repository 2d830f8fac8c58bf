//! `straingauge fleet`: `find` and `load` with workers on the nodes of a Ray cluster; all else is theirs.

use crate::cli::{FleetArgs, FleetCommand};
use crate::failure::wrong_usage;
use anyhow::Result;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: FleetArgs) -> Result<ExitCode> {
    let ray = args.ray;
    if ray.worker_cpus.is_some_and(|cpus| !(cpus.is_finite() && cpus >= 0.0)) {
        return Err(wrong_usage("--worker-cpus must be a number of CPUs, as in 4"));
    }
    match args.what {
        FleetCommand::Find(mut find) => {
            find.drive.options.fleet.ray = Some(ray);
            super::find::run(*find)
        }
        FleetCommand::Load(load) if load.worker => {
            Err(wrong_usage("fleet starts the workers itself: leave --worker out"))
        }
        FleetCommand::Load(mut load) => {
            load.drive.options.fleet.ray = Some(ray);
            super::load::run(*load)
        }
    }
}
