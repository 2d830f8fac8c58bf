//! `straingauge find`, and the options of the sweeps.

use super::axis::{AxisWord, OF_FIND};
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
    /// Print everything: all tables, sentences and doubts
    ///
    /// Otherwise one screen: the number to plan with, what limits the server, what to do.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub full: bool,
    /// Exit with code 3 if this holds, as 'plan < 60k'
    ///
    /// Also 'breaks < 50k', 'p99@20k > 50ms' (of the measured rate next below 20k), 'yield_connections < 4'.
    /// Repeatable.
    #[arg(long = "fail-if", value_name = "LIMIT", help_heading = "Output")]
    pub fail_if: Vec<String>,
    /// Show the report here while it is measured, as 127.0.0.1:8000
    ///
    /// On a loopback address alone. The URL is printed with a token; nothing is shown without it. Port 0 is a free one.
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    pub live: Option<std::net::SocketAddr>,
}

/// Options of the sweeps.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Sweeps and zones")]
pub struct FindOptions {
    /// Which sweeps: closed loop over connections, open loop over rate, or both [default: {sweep}]
    #[arg(long, value_enum)]
    pub sweep: Option<SweepWord>,
    /// Vary one thing: cold, delay, rate, ...
    ///
    /// Instead of the sweeps over connections and rate.
    #[arg(long, value_name = "AXIS", value_parser = OF_FIND)]
    pub axis: Option<AxisWord>,
    /// Values along the axis, as 0,750,2k; of rate also the highest as a multiple of the capacity [default: in-flight:
    /// {axis_in_flight}; cold: {axis_cold}; time-wait: {axis_time_wait}; delay: {axis_delay}; slow-down:
    /// {axis_slow_down} of a request's CPU time; connections: doubled; rate: {overload}x; conforming: searched]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub axis_values: Option<String>,
    /// Places to slow down, with --axis slow-down [default: {places}]
    ///
    /// receive and send (each packet), wake-up (each switch to a thread of the server), request (each read of data),
    /// accept, file-read (pread, preadv and sendfile), function=NAME (each call of a function of the server's program).
    #[arg(long, value_name = "LIST")]
    pub places: Option<String>,
    // In scenario files alone, as all that is skipped here: the share of the connections that must conform.
    #[arg(skip)]
    pub conforming_share: Option<Share>,
    // Fewest connections of the closed loop.
    #[arg(skip)]
    pub min_connections: Option<Count>,
    /// Most connections [default: {max_connections}]
    ///
    /// Of the closed loop.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_connections: Option<Count>,
    /// Most connections of the open loop [default: what it needs]
    ///
    /// By default it has as many as the closed loop needed at its peak, with head room, and more only where a rate
    /// needs them and the server answers more over them.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub open_connections: Option<Count>,
    /// Time for the whole run [default: {budget}]
    ///
    /// Refinement stops when it is spent. A bare number is seconds.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    #[serde(deserialize_with = "crate::quantity::some_seconds")]
    pub budget: Option<Time>,
    /// Repeats of every point [default: {repeats}]
    ///
    /// At least 3 for an interval; fewer where the budget ends before. Of two servers in turn: rounds, {rounds} and
    /// with a longer budget up to twice as many.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub repeats: Option<Count>,
    /// Repeat until the intervals are this narrow, as 5%
    ///
    /// In place of a number of repeats: until the intervals of the yield point and of the failing rate are at most this
    /// share of the points. --budget is then the limit [default: {until_sure_budget}].
    #[arg(
        long, value_name = "WIDTH", conflicts_with_all = ["axis", "compare_with", "repeats"],
        allow_hyphen_values = true
    )]
    pub until_sure: Option<Share>,
    /// Walk up and down again through the connections
    ///
    /// Each repeat goes up in order and then down again, on the same server: where is it back on its loading curve
    /// after overload? Half of the closed loop's time is for the way down.
    #[arg(long, conflicts_with_all = ["axis", "compare_with"])]
    pub unload: bool,
    /// Failure: response time beyond this at the 99th percentile [default: {p99_limit}]
    #[arg(long, value_name = "TIME")]
    pub p99_limit: Option<Time>,
    // Failure: more failed requests than this.
    #[arg(skip)]
    pub error_limit: Option<Share>,
    // Failure: less than this of the offered rate completed.
    #[arg(skip)]
    pub goodput_limit: Option<Share>,
    // Doubling the connections raises throughput by at least this while it is elastic.
    #[arg(skip)]
    pub elastic_gain: Option<Share>,
    // A server CPU this busy is saturated.
    #[arg(skip)]
    pub saturation: Option<Share>,
    // CPU per request this much above its lowest is efficiency lost.
    #[arg(skip)]
    pub efficiency_loss: Option<Share>,
    /// Report in every point what the layers of the network stack cost, by sampling at 199 Hz [default: {profile}]
    #[arg(long, value_enum)]
    pub profile: Option<ProfileWord>,
    // The width to which the failure rate is bracketed.
    #[arg(skip)]
    pub bracket: Option<Share>,
    /// Measure a second server in turn
    ///
    /// Round by round with the first, at the same connections: 'scale' for the first under scalable select, or the
    /// second's command, quoted as for a shell.
    #[arg(
        long, value_name = "SERVER", conflicts_with_all = ["axis", "watch_with", "metrics"], group = "turns",
        help_heading = "Two servers side by side"
    )]
    pub compare_with: Option<String>,
    /// Up to this much worse is no regression [default: {threshold}]
    ///
    /// Exit code 3: a figure is worse, and that by more than this is not excluded. 4: its interval holds both no change
    /// and this, so nobody can tell. 0: neither.
    #[arg(long, value_name = "SHARE", requires = "turns", help_heading = "Two servers side by side")]
    pub threshold: Option<Share>,
    /// Measure what a command that runs beside the server costs
    ///
    /// The same server without and with it, in turn, at the same connections: an agent, a monitor, a tracer, as
    /// 'straingauge watch :PORT'. PORT and PID in it stand for the server's port and process. --threshold and the exit
    /// codes are those of two servers; the time is {beside_budget} unless --budget says otherwise.
    #[arg(
        long, value_name = "COMMAND", conflicts_with_all = ["axis", "until_sure", "unload", "metrics"], group = "turns",
        help_heading = "The price of an agent"
    )]
    pub beside: Option<String>,
    // Wait this long after the command was started or stopped.
    #[arg(skip)]
    pub settle: Option<Time>,
}
overlay!(FindOptions; sweep, axis, axis_values, places, conforming_share, min_connections, max_connections,
    open_connections, budget, repeats, until_sure, p99_limit, error_limit, goodput_limit, elastic_gain, saturation,
    efficiency_loss, bracket, profile, compare_with, threshold, beside, settle, unload);

/// The words for sweeps.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepWord {
    /// Closed loop, then open loop
    #[default]
    Both,
    /// Closed loop over connections
    Connections,
    /// Open loop over rate
    Rate,
}

/// Whether points are profiled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileWord {
    /// Where permitted
    #[default]
    Auto,
    /// Fail if not permitted
    Always,
    /// Not at all
    Never,
}
