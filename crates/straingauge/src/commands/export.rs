//! `--export`: the profile in the forms of other programs.

use crate::cli::Export;
use crate::failure::wrong_usage;
use crate::output;
use anyhow::Result;
use report::export::Recording;

/// Checks the files before anything is measured.
pub fn check(exports: &[Export]) -> Result<()> {
    for (place, export) in exports.iter().enumerate() {
        if exports[..place].iter().any(|before| before.file == export.file) {
            return Err(wrong_usage(format!("--export names {} twice", export.file.display())));
        }
        output::check(&export.file)?;
    }
    Ok(())
}

/// Whether standard output belongs to an export, so that nothing else may be printed.
#[cfg(feature = "bpf")]
pub fn is_printed(exports: &[Export]) -> bool {
    exports.iter().any(|export| output::is_standard_output(&export.file))
}

/// Writes the files.
pub fn write(exports: &[Export], recording: &Recording) -> Result<()> {
    exports.iter().try_for_each(|export| output::write(&export.file, &recording.export(export.format)))
}
