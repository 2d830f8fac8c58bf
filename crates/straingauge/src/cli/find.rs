//! `straingauge find`, and the options of the sweeps.

use super::drive::DriveArgs;
use super::overlay;
use crate::quantity::{Count, Share, Time};
use clap::{Args, ValueEnum};
use serde::Deserialize;

/// `straingauge find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    #[command(flatten)]
    pub find: FindOptions,
    #[command(flatten)]
    pub drive: DriveArgs,
    /// Exit with code 3 if this holds, as 'peak < 60k'
    ///
    /// Also 'failure_rate < 50k', 'yield_connections < 4'. Repeatable.
    #[arg(long = "fail-if", value_name = "LIMIT", help_heading = "Output")]
    pub fail_if: Vec<String>,
}

/// Options of the sweeps.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Sweeps and zones")]
pub struct FindOptions {
    /// Which sweeps: closed loop over connections, open loop over rate, or both [default: both]
    #[arg(long, value_enum)]
    pub sweep: Option<SweepWord>,
    /// Vary one: cold, delay, rate, connections, ...
    ///
    /// Instead of the sweeps over connections and rate.
    #[arg(long, value_enum)]
    pub axis: Option<AxisWord>,
    /// Values along the axis, as 0,750,2k [default: cold: 0 to 2000; time-wait: 0,20000; delay: 0 to 100ms; connections: doubled; rate: shares
    /// of the capacity; conforming: searched]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub axis_values: Option<String>,
    /// --axis rate: offer up to this multiple of the capacity [default: 3x]
    #[arg(long, value_name = "MULTIPLE", allow_hyphen_values = true)]
    pub overload: Option<String>,
    /// --axis conforming: share of the connections that must conform [default: 100%]
    #[arg(long, value_name = "SHARE")]
    pub conforming_share: Option<Share>,
    /// Fewest connections of the closed loop [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub min_connections: Option<Count>,
    /// Most connections [default: 4096]
    ///
    /// Of the closed loop.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_connections: Option<Count>,
    /// Most connections of the open loop [default: 1024]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub open_connections: Option<Count>,
    /// Time for the whole search [default: 90s]
    ///
    /// Refinement stops when it is spent.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub budget: Option<Time>,
    /// Repeats of every point [default: 5]
    ///
    /// At least 3 for an interval; fewer where the budget ends before.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub repeats: Option<Count>,
    /// Failure: response time beyond this at the 99th percentile [default: 100ms]
    #[arg(long, value_name = "TIME")]
    pub p99_limit: Option<Time>,
    /// Failure: more failed requests than this [default: 0.1%]
    #[arg(long, value_name = "SHARE")]
    pub error_limit: Option<Share>,
    /// Failure: less than this of the offered rate completed [default: 98%]
    #[arg(long, value_name = "SHARE")]
    pub goodput_limit: Option<Share>,
    /// Elastic: doubling the connections raises throughput by at least this [default: 20%]
    #[arg(long, value_name = "SHARE")]
    pub elastic_gain: Option<Share>,
    /// Saturated: a server CPU this busy [default: 95%]
    #[arg(long, value_name = "SHARE")]
    pub saturation: Option<Share>,
    /// Efficiency lost: CPU per request this much above its lowest [default: 15%]
    #[arg(long, value_name = "SHARE")]
    pub efficiency_loss: Option<Share>,
    /// Say in every point what the layers of the network stack cost, by sampling at 199 Hz [default: auto]
    #[arg(long, value_enum)]
    pub profile: Option<ProfileWord>,
    /// Width to which the failure rate is bracketed [default: 5%]
    #[arg(long, value_name = "SHARE")]
    pub bracket: Option<Share>,
    /// Measure a second server in turn
    ///
    /// Round by round with the first, at the same connections: 'scale' for the first under scalable select, or the second's command as
    /// for a shell.
    #[arg(long, value_name = "SERVER", conflicts_with_all = ["axis", "client", "watch_with"], help_heading = "Two servers side by side")]
    pub compare_with: Option<String>,
    /// Exit with code 3 when the second is worse than the first by more than this and not by chance, with 4 when that can be neither
    /// shown nor excluded [default: 5%]
    #[arg(long, value_name = "SHARE", requires = "compare_with", help_heading = "Two servers side by side")]
    pub threshold: Option<Share>,
}

/// The words for sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepWord {
    /// Closed loop, then open loop
    Both,
    /// Closed loop over connections
    Connections,
    /// Open loop over rate
    Rate,
}

/// Whether points are profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileWord {
    /// Where permitted
    Auto,
    /// Or fail
    Always,
    /// Not at all
    Never,
}

/// The words for axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisWord {
    /// Connections of the closed loop
    Connections,
    /// Offered rate of the open loop, also far beyond the capacity
    Rate,
    /// Cold connections beside the load
    Cold,
    /// Connections of fixed bandwidth: how many conform
    Conforming,
    /// TIME_WAIT sockets on the server
    TimeWait,
    /// One-way delay of the path between client and server
    Delay,
}

impl FindOptions {
    /// What was typed, with the gaps filled from a scenario file.
    pub fn over(mut self, file: FindOptions) -> Self {
        let typed = &mut self;
        overlay!(typed, file; sweep, axis, axis_values, overload, conforming_share, min_connections, max_connections, open_connections, budget, repeats, p99_limit,
            error_limit, goodput_limit, elastic_gain, saturation, efficiency_loss, bracket, profile, compare_with, threshold);
        self
    }
}
