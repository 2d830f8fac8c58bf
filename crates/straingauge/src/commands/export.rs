//! `--export`: the profile in the forms of other programs.

use crate::cli::Export;
use crate::output::{self, Named};
use anyhow::Result;
use report::export::Recording;

/// The files, for the checks before anything is measured.
pub fn files(exports: &[Export]) -> Named<'_> {
    exports.iter().fold(Named::default(), |files, export| files.and("--export", Some(&export.file)))
}

/// Writes the files.
pub fn write(exports: &[Export], recording: &Recording) -> Result<()> {
    exports.iter().try_for_each(|export| output::write(&export.file, &recording.export(export.format)?))
}
