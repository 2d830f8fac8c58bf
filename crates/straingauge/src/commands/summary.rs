//! Writes what a CI system shows of a run: `--markdown` and `--junit`.

use crate::cli::SummaryOptions;
use crate::failure::wrong_usage;
use crate::output;
use anyhow::Result;
use report::check::Case;
use std::path::{Path, PathBuf};

impl SummaryOptions {
    /// The files with their options.
    fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let all = [("--markdown", &self.markdown), ("--junit", &self.junit)];
        all.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?)))
    }

    /// Checks the files before anything is measured.
    pub fn check(&self, is_json: bool) -> Result<()> {
        if let (Some(markdown), Some(junit)) = (&self.markdown, &self.junit)
            && is_same(markdown, junit)
        {
            return Err(wrong_usage(format!("--markdown and --junit both name {}", markdown.display())));
        }
        for (option, file) in self.files() {
            if is_json && output::is_standard_output(file) {
                return Err(wrong_usage(format!("{option} and --json both print on standard output: name a file")));
            }
            output::check(file)?;
        }
        Ok(())
    }

    /// Whether standard output belongs to one of them, so that nothing else may be printed.
    pub fn is_printed(&self) -> bool {
        self.files().any(|(_, file)| output::is_standard_output(file))
    }

    /// Writes them.
    pub fn write(&self, markdown: impl FnOnce() -> String, checks: &[Case]) -> Result<()> {
        if let Some(file) = &self.markdown {
            output::write(file, markdown().as_bytes())?;
        }
        if let Some(file) = &self.junit {
            output::write(file, report::junit::xml(checks).as_bytes())?;
        }
        Ok(())
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    a == b || (output::is_standard_output(a) && output::is_standard_output(b))
}
