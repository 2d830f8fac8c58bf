//! `--export`: writes the profile in the formats of other programs.

use crate::cli::Export;
use crate::output::{self, Named};
use anyhow::Result;
use report::export::Recording;

/// The files, to check before measuring that they can be written.
pub fn files(exports: &[Export]) -> Named<'_> {
    exports.iter().fold(Named::default(), |files, export| files.and("--export", Some(&export.file)))
}

pub fn write(exports: &[Export], recording: &Recording) -> Result<()> {
    exports.iter().try_for_each(|export| output::write(&export.file, &recording.export(export.format)?))
}
