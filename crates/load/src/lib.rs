//! The clients: a load engine for HTTP/1.1, HTTP/2, Redis, memcached and raw TCP that measures without coordinated
//! omission and without becoming the bottleneck unnoticed.
//!
//! ```no_run
//! # fn example(plan: &record::LoadPlan) -> Result<(), load::LoadError> {
//! use std::sync::atomic::AtomicBool;
//! struct Silent;
//! impl load::LoadEvents for Silent {}
//!
//! load::check(plan)?;
//! let result = load::run(plan, &AtomicBool::new(false), &mut Silent)?;
//! assert_eq!(result.counts.outcomes.sum(), result.counts.outcomes.requests());
//! # Ok(()) }
//! ```
//!
//! [`run`] runs one load point, [`check()`] reports beforehand why it could not run, [`probe()`] sends a single
//! request and reports an unsuitable server in one sentence. `docs/load.md` describes how the engine works and how
//! exact its times are.

pub mod arrival;
mod check;
pub mod classes;
pub mod cold;
mod connection;
mod control;
mod cost;
mod doubts;
mod engine;
mod error;
pub mod framing;
pub mod http2;
mod merge;
pub mod poller;
pub mod ports;
mod probe;
pub mod ramp;
pub mod replay;
pub mod replies;
mod request;
mod result;
pub mod series;
mod socket;
pub mod stall;
mod supply;
mod tally;
pub mod time_wait;
pub mod tls;
pub mod worker;

pub use check::{MOST_CONNECTIONS, check, sources};
pub use classes::ClassCounts;
pub use cost::EngineCost;
pub use doubts::doubts;
pub use engine::{LoadEvents, LoadProgress, choose_address, opening_limit_ns, run, run_supplied};
pub use error::LoadError;
pub use merge::SeriesSum;
pub use probe::{ProbeResponse, check_opening, connect_once, is_redirect, probe};
pub use replay::doubts as replay_doubts;
pub use result::{LoadResult, response_times};
pub use series::HEADER as SERIES_HEADER;
pub use supply::{NoSupply, ReplayRequest, ReplaySource, ReplayStep, Supply};
pub use tls::TlsTally;
