use crate::cli::SummaryOptions;
use crate::output::{self, OutputFiles};
use anyhow::Result;
use report::check::Case;

impl SummaryOptions {
    pub fn files(&self) -> OutputFiles<'_> {
        OutputFiles::default().and("--markdown", self.markdown.as_deref()).and("--junit", self.junit.as_deref())
    }

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
