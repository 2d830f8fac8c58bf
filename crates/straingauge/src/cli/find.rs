//! `straingauge find`, and the options of the sweeps.

use super::axis::AxisWord;
use super::drive::{DriveArgs, IfPermitted};
use super::overlay;
use crate::quantity::{Count, Seconds, Share, Time};
use clap::{Args, ValueEnum};
use serde::Deserialize;

/// `straingauge find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    #[command(flatten)]
    pub find: FindOptions,
    #[command(flatten)]
    pub drive: DriveArgs,
    /// Print everything: tables, sentences, doubts
    ///
    /// Default: one screen with the number to plan with, what limits the server, and what to do.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub full: bool,
    /// Exit with code 3 if this is true, e.g. 'plan < 60k'
    ///
    /// Also 'breaks < 50k', 'p99@20k > 50ms' (at the highest measured rate below 20k), 'yield_connections < 4'.
    /// Repeatable.
    #[arg(long = "fail-if", value_name = "LIMIT", help_heading = "Output")]
    pub fail_if: Vec<String>,
    /// Show the report at this address during the run, e.g. 127.0.0.1:8000
    ///
    /// Must be a loopback address. The printed URL contains a token that the page requires. Port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    pub live: Option<std::net::SocketAddr>,
}

/// Options of the sweeps.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Sweeps and zones")]
pub struct FindOptions {
    /// Sweeps to run: over connections (closed loop), over rate (open loop), or both [default: {sweep}]
    #[arg(long, value_enum)]
    pub sweep: Option<SweepWord>,
    /// Vary one quantity: cold, delay, rate, ...
    ///
    /// Replaces the sweeps over connections and rate. With cpus, {cpus} in the server's command becomes the number of
    /// CPUs.
    #[arg(long, value_enum)]
    pub axis: Option<AxisWord>,
    /// Values along the axis, e.g. 0,750,2k
    ///
    /// For rate: also the highest as a multiple of the capacity, e.g. 5x. [default: in-flight: {axis_in_flight};
    /// cold: {axis_cold}; time-wait: {axis_time_wait}; delay: {axis_delay}; slow-down: {axis_slow_down} of a
    /// request's CPU time; connections, cpus: doubled; rate: {overload}x; conforming: searched]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub axis_values: Option<String>,
    /// Places to slow down, with --axis slow-down [default: {places}]
    ///
    /// receive and send (each packet), wake-up (each switch to a thread of the server), request (each read of data),
    /// accept, file-read (pread, preadv and sendfile), lock (each release of a contended mutex), kernel-lock (each one
    /// that was waited for), function=NAME (each call of this function of the server's program).
    #[arg(long, value_name = "LIST")]
    pub places: Option<String>,
    // This key exists only in scenario files, like all fields skipped here. Share of the connections that must
    // conform.
    #[arg(skip)]
    pub conforming_share: Option<Share>,
    // Minimum connections of the closed loop.
    #[arg(skip)]
    pub min_connections: Option<Count>,
    /// Maximum number of connections [default: {max_connections}]
    ///
    /// It limits the closed loop.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_connections: Option<Count>,
    // Maximum connections of the open loop; by default as many as the closed loop needed at its peak, with headroom.
    #[arg(skip)]
    pub open_connections: Option<Count>,
    /// Time for the whole run [default: {budget}]
    ///
    /// Refinement stops when the time is spent. A bare number is seconds.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub budget: Option<Seconds>,
    /// Repeats of every point [default: {repeats}]
    ///
    /// At least 3 for an interval; fewer if the budget runs out. With two servers in turn: {rounds} rounds, and up to
    /// twice as many with a longer budget.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub repeats: Option<Count>,
    /// Repeat until the intervals are this narrow, e.g. 5%
    ///
    /// Repeats are added until the intervals of the yield point and of the failing rate are at most this share of
    /// their values. --budget is the limit [default: {until_sure_budget}].
    #[arg(long, value_name = "WIDTH", allow_hyphen_values = true)]
    pub until_sure: Option<Share>,
    /// Raise the connections step by step, then lower them again
    ///
    /// Each repeat goes up and down on the same server and shows whether it recovers after overload. Half of the closed
    /// loop's time is spent on the way down.
    #[arg(long)]
    pub unload: bool,
    /// Then make the named limit dearer, and check the effect
    ///
    /// Starts the server again, adds time to the stage that limits it, and says whether the throughput falls as the
    /// account predicts. Needs root, BTF and the server on this machine.
    #[arg(long)]
    pub prove: bool,
    /// Response time at p99 that counts as failure [default: {p99_limit}]
    #[arg(long, value_name = "TIME")]
    pub p99_limit: Option<Time>,
    // A larger share of failed requests counts as failure.
    #[arg(skip)]
    pub error_limit: Option<Share>,
    // Completing a smaller share of the offered rate counts as failure.
    #[arg(skip)]
    pub goodput_limit: Option<Share>,
    // The loop is elastic while doubling the connections raises throughput by at least this share.
    #[arg(skip)]
    pub elastic_gain: Option<Share>,
    // A server CPU that is at least this busy is saturated.
    #[arg(skip)]
    pub saturation: Option<Share>,
    // Efficiency is lost when CPU time per request exceeds its minimum by this share.
    #[arg(skip)]
    pub efficiency_loss: Option<Share>,
    /// Sample the layers of the network stack in every point, at 199 Hz [default: {profile}]
    #[arg(long, value_enum)]
    pub profile: Option<IfPermitted>,
    // Final width of the bracket around the failing rate.
    #[arg(skip)]
    pub bracket: Option<Share>,
    /// Measure a second server in turn
    ///
    /// Rounds alternate between both servers, at the same connections. SERVER is the second server's command, quoted
    /// as for a shell, or 'scale': the first server under scalable select.
    #[arg(long, value_name = "SERVER", group = "turns", help_heading = "Two servers side by side")]
    pub compare_with: Option<String>,
    /// Tolerate figures that are worse by up to this share [default: {threshold}]
    ///
    /// Exit code 3: a figure is worse and its interval reaches beyond this share. 4: an interval includes both no
    /// change and this share. 0: neither.
    #[arg(long, value_name = "SHARE", requires = "turns", help_heading = "Two servers side by side")]
    pub threshold: Option<Share>,
    /// Measure the cost of a command that runs with the server
    ///
    /// Measures the server with and without the command, in turn, at the same connections. The command may be an
    /// agent, a monitor or a tracer, e.g. 'straingauge watch :PORT'. PORT and PID in it are replaced by the server's
    /// port and process. --threshold and the exit codes are those of two servers. The budget is {beside_budget}
    /// unless --budget is given.
    #[arg(long, value_name = "COMMAND", group = "turns", help_heading = "The price of an agent")]
    pub beside: Option<String>,
    /// Let live traffic be the load: this command moves a share of it to the server
    ///
    /// For a server of this machine that gets traffic from a load balancer. No request is sent. {share} in the
    /// command, which a shell runs, is replaced by the shares that are tried, e.g. by 40 in
    /// 'echo set weight web/s1 {share} | socat - /run/haproxy.sock'. The usual share is restored when a point fails,
    /// and at the end, however straingauge ends.
    #[arg(long, value_name = "COMMAND", help_heading = "Live traffic")]
    pub shift: Option<String>,
    /// The usual share and the largest permitted one, e.g. 25..80
    ///
    /// In the unit that the command takes: percent, a weight, instances. Only whole numbers are tried if both are
    /// whole.
    #[arg(long, value_name = "USUAL..MOST", help_heading = "Live traffic")]
    pub shares: Option<String>,
    // Pause after the command was started or stopped.
    #[arg(skip)]
    pub settle: Option<Time>,
}
overlay!(FindOptions; sweep, axis, axis_values, places, conforming_share, min_connections, max_connections,
    open_connections, budget, repeats, until_sure, p99_limit, error_limit, goodput_limit, elastic_gain, saturation,
    efficiency_loss, bracket, profile, compare_with, threshold, beside, settle, unload, shift, shares,
    prove);

/// Sweeps, as typed.
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
