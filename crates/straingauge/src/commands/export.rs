//! `--export`: writes the profile in the formats of other programs.

use crate::cli::Export;
use crate::output::{self, OutputFiles};
use anyhow::Result;
use report::export::StackRecording;

/// The files, to check before measuring that they can be written.
pub fn files(exports: &[Export]) -> OutputFiles<'_> {
    exports.iter().fold(OutputFiles::default(), |files, export| files.and("--export", Some(&export.file)))
}

pub fn write(exports: &[Export], recording: &StackRecording) -> Result<()> {
    exports.iter().try_for_each(|export| output::write(&export.file, &recording.export(export.format)?))
}
