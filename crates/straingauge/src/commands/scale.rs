//! `straingauge scale`: runs an unmodified select or poll server with scalable select.

use crate::cli::ScaleArgs;
use crate::failure::{self, print, wrong_usage};
use crate::scale::{library, target};
use anyhow::{Result, anyhow, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

const STATS: &str = "SCALABLE_SELECT_STATS";

/// Runs the command: this process becomes the server, so it returns only on failure.
pub fn run(args: ScaleArgs) -> Result<ExitCode> {
    let Some(name) = args.command.first() else {
        return Err(wrong_usage("scale needs a server: straingauge scale -- SERVER ..."));
    };
    let path = target::find_program(name)?;
    let found = match target::inspect(&path)? {
        Ok(found) => found,
        Err(hindrance) => bail!("scalable select does not apply: {hindrance}"),
    };
    for note in &found.notes {
        eprintln!("straingauge: note: {name}: {note}");
    }
    let library = library::find(args.library.as_deref())?;
    if args.check {
        let imports: Vec<&str> = found.imports.iter().map(String::as_str).collect();
        print(&format!(
            "{}: scalable select applies (imports {}), with {}\n",
            found.program.display(),
            if imports.is_empty() { "no such function itself".to_string() } else { imports.join(", ") },
            library.display()
        ))?;
        return Ok(ExitCode::from(failure::DONE));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(&args.command[1..]).env("LD_PRELOAD", preload(&library));
    if args.stats {
        command.env(STATS, "stderr");
    }
    Err(anyhow!(command.exec()).context(format!("the server '{name}' cannot be started")))
}

/// The value of LD_PRELOAD: the library, then what the caller preloads already.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}
