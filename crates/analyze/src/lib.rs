//! Derives findings from run directories by pure functions, without network or kernel. The crate `report` renders the
//! findings.
//!
//! Read in this order: [`zones`] (the findings and their criteria), [`sweep`] (the choice of the next load),
//! [`account`] (the places of requests and threads), [`watch`] (recordings of a watch), [`watched`] (the server's side
//! of points). The crate `verdict` puts them into words. Definitions and intervals are described in `docs/zones.md`.

pub mod account;
pub mod axis;
pub mod compare;
pub mod disturbance;
pub mod growth;
pub mod parked;
pub mod point;
pub mod predict;
pub mod profile;
pub mod programs;
pub mod shown;
pub mod sweep;
pub mod watch;
pub mod watched;
pub mod within;
pub mod zones;

/// Why there is no result, in a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);
