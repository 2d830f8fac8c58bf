//! The page of a run by a tool of the toolkit.

use super::CaptionedChart;
use super::frame::render;
use super::plain::{PlainPage, RunWords};
use crate::text::table::Titled;
use record::RunDir;
use serde::Serialize;

/// Results of a tool for its page.
pub struct ToolResults {
    /// First line.
    pub headline: String,
    /// Findings in sentences.
    pub sentences: Vec<String>,
    /// Title above the charts.
    pub figures_title: &'static str,
    /// The charts.
    pub figures: Vec<CaptionedChart>,
    /// The tables.
    pub tables: Vec<Titled>,
    /// How the points were made, in one word, e.g. `simulated`.
    pub done: &'static str,
    /// How to read the page, in a few sentences.
    pub how_to_read: &'static str,
    /// Meaning of the figures' unit.
    pub meaning: &'static str,
}

#[derive(Serialize)]
struct ToolPage {
    #[serde(flatten)]
    plain: PlainPage,
    how_to_read: &'static str,
    meaning: &'static str,
}

/// The page; `text` is the same content as plain text.
pub fn html(run: &RunDir, shown: ToolResults, text: impl FnOnce() -> String) -> String {
    let ToolResults { headline, sentences, figures_title, figures, tables, done, how_to_read, meaning } = shown;
    let ended = RunWords("interrupted; the complete part is shown", done);
    let plain = PlainPage::new(run, ended, (headline, sentences), (figures_title, figures), tables);
    render("tool.html", &ToolPage { plain, how_to_read, meaning }, text)
}
