//! `straingauge doctor`: shows what this machine can and cannot measure, and how to change that.

use crate::cli::DoctorArgs;
use crate::failure::{self, print_either};
use anyhow::Result;
use record::machine::{Capability, MachineFacts};
use serde::Serialize;
use std::process::ExitCode;

/// The output of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Shown<'a> {
    /// What is there, and what is missing.
    capabilities: &'a [Capability],
    /// The machine.
    machine: &'a MachineFacts,
}

/// Whether `simulate` finds its emulator and a kernel.
fn simulator() -> Capability {
    let found = simulate::machine::Qemu::find(None)
        .and_then(|qemu| simulate::guest::Kernel::find(None).map(|kernel| (qemu.version, kernel.version)));
    let name = "cache simulation";
    match found {
        Ok((qemu, kernel)) => {
            let qemu = qemu.split(" (").next().unwrap_or_default();
            Capability::there(name, format!("{qemu}, guest's kernel {kernel}"))
        }
        Err(why) => Capability::missing(name, "straingauge simulate cannot run", why.to_string()),
    }
}

/// Runs the command.
pub fn run(args: DoctorArgs) -> Result<ExitCode> {
    let machine = MachineFacts::read();
    let mut capabilities = observe::capabilities();
    capabilities.push(simulator());
    let shown = Shown { capabilities: &capabilities, machine: &machine };
    print_either(args.json, || &shown, || report::doctor::text(&machine, &capabilities))?;
    Ok(ExitCode::from(failure::DONE))
}
