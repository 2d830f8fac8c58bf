//! A watch: while it goes on ([`screen`], [`live`], [`exposition`]), and what its recording says ([`text`], [`page`]).

pub mod exposition;
pub mod live;
mod machine;
pub mod page;
mod processes;
pub mod screen;
pub mod text;

use record::Doubt;
use record::watch::{Demand, Rates, Reading, UtilisationCheck, Watching};

/// What is shown of a watch at a reading.
#[derive(Debug, Clone, Copy)]
pub struct Screen<'a> {
    /// What is watched, and how.
    pub watch: &'a Watching,
    /// The first reading.
    pub first: &'a Reading,
    /// The last.
    pub now: &'a Reading,
    /// Since the reading before.
    pub rates: &'a Rates,
    /// Service demands so far, by class.
    pub demands: &'a [Demand],
    /// Demands against the scheduler's account.
    pub utilisation: Option<UtilisationCheck>,
    /// Reasons not to trust it.
    pub doubts: &'a [Doubt],
}
