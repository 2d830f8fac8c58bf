//! `straingauge doctor`: shows what this machine can and cannot measure, and how to change that.

use crate::cli::DoctorArgs;
use crate::failure::{self, print};
use anyhow::Result;
use std::fmt::Write;
use std::process::ExitCode;

/// Whether `simulate` finds its emulator and a kernel.
fn simulator() -> observe::Capability {
    let found = simulate::machine::Qemu::find(None)
        .and_then(|qemu| simulate::guest::Kernel::find(None).map(|kernel| (qemu.version, kernel.version)));
    let name = "cache simulation".to_string();
    match found {
        Ok((qemu, kernel)) => observe::Capability {
            name,
            is_available: true,
            detail: format!("{}, guest's kernel {kernel}", qemu.split(" (").next().unwrap_or_default()),
            remedy: String::new(),
        },
        Err(why) => observe::Capability {
            name,
            is_available: false,
            detail: "straingauge simulate cannot run".into(),
            remedy: why.to_string(),
        },
    }
}

/// Runs the command.
pub fn run(args: DoctorArgs) -> Result<ExitCode> {
    let machine = record::machine::MachineFacts::read();
    let mut capabilities = observe::capabilities();
    capabilities.push(simulator());
    if args.json {
        let value = serde_json::json!({ "machine": machine, "capabilities": capabilities });
        print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
        return Ok(ExitCode::from(failure::DONE));
    }
    let mut out = String::new();
    writeln!(
        out,
        "{} on {}, {} CPUs ({}){}",
        machine.kernel,
        machine.distribution,
        machine.cpus,
        machine.cpu_model,
        if machine.virtual_machine { ", a virtual machine" } else { "" }
    )?;
    writeln!(out)?;
    let width = capabilities.iter().map(|capability| capability.name.len()).max().unwrap_or(0);
    for capability in &capabilities {
        let mark = if capability.is_available { "yes" } else { "no " };
        writeln!(out, "{mark}  {:width$}  {}", capability.name, capability.detail)?;
        if !capability.is_available && !capability.remedy.is_empty() {
            writeln!(out, "     {:width$}  -> {}", "", capability.remedy)?;
        }
    }
    let missing = capabilities.iter().filter(|capability| !capability.is_available).count();
    writeln!(
        out,
        "\n{} of {} available; what is missing is printed as \"not measured\", never as 0",
        capabilities.len() - missing,
        capabilities.len()
    )?;
    print(&out)?;
    Ok(ExitCode::from(failure::DONE))
}
