//! Writes the output files of the command line: completely or not at all, and never in place of a device.

use crate::failure::{print_bytes, refuse_if, wrong_usage};
use anyhow::{Context, Result};
use record::RunError;
use record::run::{is_replaced, write_whole};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Writes a file under another name, then renames it. Devices and pipes are written to directly. `-` is standard
/// output, at its current position.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if is_standard_output(path) {
        return print_bytes(bytes);
    }
    written(path, write_whole(path, bytes))
}

#[derive(Debug, Default)]
pub struct OutputFiles<'a>(Vec<(&'static str, &'a Path)>);

impl<'a> OutputFiles<'a> {
    pub fn and(mut self, option: &'static str, file: Option<&'a Path>) -> Self {
        self.0.extend(file.map(|file| (option, file)));
        self
    }

    /// Checks the files before measuring: each can be written, all are different, and only one uses standard output.
    pub fn check(&self, is_json: bool) -> Result<()> {
        for (place, (option, file)) in self.0.iter().enumerate() {
            if let Some((before, there)) = self.0[..place].iter().find(|(_, there)| is_same(there, file)) {
                let name = there.display();
                return Err(wrong_usage(if before == option {
                    format!("{option} names {name} twice")
                } else {
                    format!("{before} and {option} both name {name}")
                }));
            }
            refuse_if(
                is_json && is_standard_output(file),
                format!("{option} and --json both write to standard output: name a file for one"),
            )?;
            check(file)?;
        }
        Ok(())
    }

    /// Whether one of the files is standard output, so that nothing else may be printed.
    pub fn are_printed(&self) -> bool {
        self.0.iter().any(|(_, file)| is_standard_output(file))
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || (is_standard_output(a) && is_standard_output(b))
}

/// Checks early whether [`write()`] could succeed.
fn check(path: &Path) -> Result<()> {
    refuse_if(path.is_dir(), format!("{} is a folder: name a file", path.display()))?;
    if !is_replaced(path) || is_standard_output(path) {
        return Ok(());
    }
    let probe = path.with_file_name(record::unfinished::name_of("writable"));
    written(path, write_whole(&probe, b""))?;
    let _ = fs::remove_file(probe);
    Ok(())
}

/// The error without the advice for run directories, and with the path as typed.
fn written(path: &Path, result: Result<(), RunError>) -> Result<()> {
    match result {
        Err(RunError::Write { source, .. }) => Err(source).with_context(|| format!("cannot write {}", path.display())),
        other => Ok(other?),
    }
}

/// Whether a path is standard output: `-`, or another name of the same file.
pub fn is_standard_output(path: &Path) -> bool {
    if path.as_os_str() == "-" {
        return true;
    }
    let named = fs::metadata(path).map(|there| (there.dev(), there.ino()));
    let own = fs::metadata("/proc/self/fd/1").map(|there| (there.dev(), there.ino()));
    matches!((named, own), (Ok(named), Ok(own)) if named == own)
}
