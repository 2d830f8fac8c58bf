use crate::cli::{FleetArgs, FleetCommand};
use crate::failure::{refuse_if, wrong_usage};
use anyhow::Result;
use std::collections::BTreeSet;
use std::process::ExitCode;

pub fn run(args: FleetArgs) -> Result<ExitCode> {
    let ray = args.ray;
    refuse_if(
        ray.worker_cpus.is_some_and(|cpus| !(cpus.is_finite() && cpus >= 0.0)),
        "--worker-cpus must be a number of CPUs, as in 4",
    )?;
    refuse_twice("--worker-resource", ray.worker_resource.iter().map(|(name, _)| name))?;
    refuse_twice("--worker-label", ray.worker_label.iter().map(|(key, _)| key))?;
    match args.what {
        FleetCommand::Find(mut find) => {
            find.drive.options.fleet.ray = Some(ray);
            super::find::run(*find)
        }
        FleetCommand::Load(load) if load.worker => {
            Err(wrong_usage("fleet starts the workers itself: leave --worker out"))
        }
        FleetCommand::Load(mut load) => {
            if let Some((least, most)) = ray.workers.and_then(|workers| Some((workers.least, workers.most?))) {
                return Err(wrong_usage(format!(
                    "--workers {least}..{most} is for find: load has one point, so name one number"
                )));
            }
            load.drive.options.fleet.ray = Some(ray);
            super::load::run(*load)
        }
    }
}

fn refuse_twice<'a>(option: &str, mut names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    match names.find(|name| !seen.insert(*name)) {
        Some(name) => Err(wrong_usage(format!("{option} has '{name}' twice"))),
        None => Ok(()),
    }
}
