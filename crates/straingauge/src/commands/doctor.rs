//! `straingauge doctor`: shows what this machine can and cannot measure, and how to change that. Also shows and
//! removes leftovers of killed runs.

use crate::cli::DoctorArgs;
use crate::failure::{self, print_either, refuse_if, wrong_usage};
use crate::leftovers::{self, Removal};
use anyhow::Result;
use record::leftovers::SearchScope;
use record::machine::{Capability, MachineFacts};
use serde::Serialize;
use std::process::ExitCode;

/// The output of `--json`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Shown<'a> {
    capabilities: &'a [Capability],
    machine: &'a MachineFacts,
}

fn leave_nothing(args: &DoctorArgs) -> Result<ExitCode> {
    let folders = if args.runs.is_empty() { vec![crate::defaults::RUNS.into()] } else { args.runs.clone() };
    if let Some(missing) = args.runs.iter().find(|folder| !folder.is_dir()) {
        let shown = record::text::plain(&missing.display().to_string(), 300);
        return Err(wrong_usage(format!("folder {shown} does not exist: name a folder of runs after --runs")));
    }
    let shown = if args.clean {
        leftovers::remove(&folders, None)
    } else {
        let found = leftovers::find(&SearchScope::new(folders));
        Removal { leftovers: found.left, not_seen: found.not_seen, ..Removal::default() }
    };
    let text = || report::doctor::leftovers(&shown.leftovers, &shown.removed, &shown.not_removed, &shown.not_seen);
    print_either(args.json, || &shown, text)?;
    Ok(ExitCode::from(if shown.leftovers.is_empty() { failure::DONE } else { failure::FAILED }))
}

pub fn run(args: DoctorArgs) -> Result<ExitCode> {
    if args.leftovers || args.clean {
        return leave_nothing(&args);
    }
    refuse_if(!args.runs.is_empty(), "--runs says where --leftovers or --clean searches: add one of them")?;
    let machine = MachineFacts::read();
    let mut capabilities = observe::capabilities();
    capabilities.extend(wan::capabilities());
    let shown = Shown { capabilities: &capabilities, machine: &machine };
    print_either(args.json, || &shown, || report::doctor::text(&machine, &capabilities))?;
    Ok(ExitCode::from(failure::DONE))
}
