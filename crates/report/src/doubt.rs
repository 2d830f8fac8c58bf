//! Doubts for terminal and page.

use crate::text::{unbroken, wrap};
use record::text::plain;
use record::{Doubt, Severity};
use serde::Serialize;

const MOST_WORDS: usize = 600;
const MOST_DOUBTS: usize = 60;

/// A heading and a paragraph for each doubt; empty without doubts.
pub fn text(doubts: &[Doubt]) -> String {
    if doubts.is_empty() {
        return String::new();
    }
    format!("\ndoubts\n{}", by_gravity(doubts).into_iter().map(paragraph).collect::<String>())
}

/// Sorts the most severe doubts first, in a stable order.
pub(crate) fn by_gravity(doubts: &[Doubt]) -> Vec<&Doubt> {
    let mut doubts: Vec<&Doubt> = doubts.iter().collect();
    doubts.sort_by_key(|doubt| std::cmp::Reverse(doubt.severity));
    doubts
}

/// The doubt with its severity, then the remedy.
pub fn paragraph(doubt: &Doubt) -> String {
    let indent = "          ";
    wrap(&plain(&doubt.what, MOST_WORDS), &format!("  {}", mark(doubt)), indent)
        + &wrap(&plain(&doubt.remedy, MOST_WORDS), &format!("{indent}-> "), "             ")
}

/// The doubt without its remedy on one line, for the full-screen view.
pub fn line(doubt: &Doubt) -> String {
    format!("  {}{}\n", mark(doubt), plain(&doubt.what, MOST_WORDS))
}

fn mark(doubt: &Doubt) -> &'static str {
    match doubt.severity {
        Severity::Note => "note    ",
        Severity::Warning => "warning ",
        Severity::Invalid => "INVALID ",
    }
}

#[derive(Serialize)]
pub(crate) struct DoubtRow {
    severity: &'static str,
    what: String,
    remedy: String,
}

pub(crate) fn rows(doubts: &[Doubt]) -> Vec<DoubtRow> {
    let row = |doubt: &Doubt| DoubtRow {
        severity: doubt.severity.word(),
        what: unbroken(&plain(&doubt.what, MOST_WORDS)),
        remedy: plain(&doubt.remedy, MOST_WORDS),
    };
    by_gravity(doubts).into_iter().take(MOST_DOUBTS).map(row).collect()
}
