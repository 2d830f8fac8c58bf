//! The page of a run by a tool of the toolkit.

use super::Figure;
use super::frame::render;
use super::plain::{Ended, Plain};
use crate::text::table::Titled;
use record::RunDir;
use serde::Serialize;

/// Results of a tool for its page.
pub struct Shown {
    /// The first line.
    pub headline: String,
    /// Findings in sentences.
    pub sentences: Vec<String>,
    /// The title above the charts.
    pub figures_title: &'static str,
    /// The charts.
    pub figures: Vec<Figure>,
    /// The tables.
    pub tables: Vec<Titled>,
    /// How the points were made, in one word, e.g. `simulated`.
    pub done: &'static str,
    /// How to read the page, in a few sentences.
    pub how_to_read: &'static str,
    /// Meaning of the unit.
    pub meaning: &'static str,
}

#[derive(Serialize)]
struct Page {
    #[serde(flatten)]
    plain: Plain,
    how_to_read: &'static str,
    meaning: &'static str,
}

/// The page; `text` is the same content as plain text.
pub fn html(run: &RunDir, shown: Shown, text: impl FnOnce() -> String) -> String {
    let Shown { headline, sentences, figures_title, figures, tables, done, how_to_read, meaning } = shown;
    let ended = Ended("interrupted; the complete part is shown", done);
    let plain = Plain::of(run, ended, (headline, sentences), (figures_title, figures), tables);
    render("tool.html", &Page { plain, how_to_read, meaning }, text)
}
