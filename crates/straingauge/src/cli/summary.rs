//! `--markdown` and `--junit`: files that CI systems show.

use clap::Args;
use std::path::PathBuf;

/// Files for a CI system; shared by the commands that check limits or compare.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct SummaryOptions {
    /// Write a summary of one screen as Markdown
    ///
    /// For GitHub's job page: --markdown "$GITHUB_STEP_SUMMARY".
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write every check and its result as JUnit XML
    ///
    /// A test case for each --fail-if and for each compared figure. A check without a result is skipped, not failed.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}
