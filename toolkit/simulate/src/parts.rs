//! Finds the files of the program: the plugin that QEMU loads, and the guest's first process. They are next to it.

use crate::SimulateError;
use std::path::{Path, PathBuf};

/// The plugin.
pub const PLUGIN: &str = "libstraingauge_simulate_plugin.so";
/// The guest's first process.
pub const FIRST_PROCESS: &str = "simulate-guest-init";

/// Where this file is: next to the program, in `../lib/straingauge`, or where cargo puts it.
pub fn find(name: &str) -> Result<PathBuf, SimulateError> {
    let own = std::env::current_exe().map_err(SimulateError::system("cannot find this program's own file"))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let looked = ["", "../lib/straingauge", "..", "deps"].map(|place| folder.join(place).join(name));
    let found = looked.into_iter().find(|file| file.is_file());
    found.ok_or_else(|| SimulateError::NotInstalled { name: name.into(), folder: folder.into() })
}
