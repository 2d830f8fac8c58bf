//! A running watch ([`screen`], [`exposition`]), and the findings of its recording ([`text`], [`page`]).

pub mod exposition;
pub mod headroom;
pub mod page;
pub mod screen;
pub mod text;

use analyze::watch::tables::Cell;
use record::Doubt;
use record::units::grouped;
use record::watch::{Headroom, Rates, Reading, Watching};

/// The contents of a screen.
#[derive(Debug, Clone, Copy)]
pub struct Screen<'a> {
    /// The watched port and the mode.
    pub watch: &'a Watching,
    /// The first reading.
    pub first: &'a Reading,
    /// The latest reading.
    pub now: &'a Reading,
    /// Rates since the preceding reading.
    pub rates: &'a Rates,
    /// Headroom: how much more load the server can take.
    pub headroom: &'a Headroom,
    /// Reasons to doubt the figures.
    pub doubts: &'a [Doubt],
}

/// A cell with three significant digits; `-` if not measured.
fn cell_words(cell: &Cell) -> String {
    let number = |value: f64| match value.abs() {
        size if size >= 10_000.0 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".into(),
        _ => format!("{value:.3}"),
    };
    match (cell.value, cell.half_width) {
        (None, _) => "-".into(),
        (Some(value), Some(half)) => format!("{} +-{}", number(value), number(half)),
        (Some(value), None) => number(value),
    }
}
