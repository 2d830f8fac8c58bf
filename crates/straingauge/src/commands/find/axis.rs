//! Additions to the engine's load for an axis: one quantity is varied, and all others are held.

use super::search::SearchEnd;
use crate::cli::{LoadOptions, Options, PathOptions};
use crate::commands::placement;
use crate::commands::session::Session;
use crate::defaults::OVERLOAD_CONNECT_TIMEOUT;
use crate::failure::wrong_usage;
use crate::plan::RunOptions;
use crate::plan::axis::refuse_what_is_varied;
use crate::quantity::Time;
use analyze::axis::value_words;
use anyhow::Result;
use record::machine::cpu_list;
use record::protocol::Protocol;
use record::{Axis, AxisPlace, AxisPlan, FixedBandwidth, LoadPlan};

const LONGEST_DELAY: std::time::Duration = std::time::Duration::from_millis(100);

const CPUS: &str = "{cpus}";
/// Connections per CPU that keep most servers busy.
const CONNECTIONS_PER_CPU: u64 = 16;

/// CPUs of client and server for an axis of CPUs.
pub struct CpuSet {
    client: Vec<usize>,
    /// All CPUs of the server; each trial gives it the first ones.
    pub server: Vec<usize>,
}

impl CpuSet {
    /// Gives the server its first `count` CPUs and writes `count` into its command.
    pub fn give(&self, options: &mut Options, count: usize) {
        if !self.client.is_empty() {
            options.load.cpus = Some(cpu_list(&self.client));
        }
        options.server.server_cpus = Some(cpu_list(&self.server[..count]));
        options.server.command.iter_mut().for_each(|word| *word = word.replace(CPUS, &count.to_string()));
    }
}

/// The CPUs for an axis of CPUs. Sets default values of the axis: powers of two, and all CPUs.
pub(super) fn cpu_set(drive: &RunOptions, axis: &mut AxisPlan) -> Result<CpuSet> {
    if drive.command().is_empty() {
        return Err(wrong_usage(
            "--axis cpus starts the server on this machine, anew for each number of CPUs: add -- SERVER ..., with \
             {cpus} where it takes the number of its workers",
        ));
    }
    let (client, server) = placement::cpus(drive)?;
    let (most, list) = (server.len(), cpu_list(&server));
    if axis.values.is_empty() {
        let doubled = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < most);
        axis.values = doubled.chain([most]).map(|count| count as f64).collect();
    }
    if let Some(count) = axis.values.iter().find(|count| **count > most as f64) {
        return Err(wrong_usage(format!(
            "--axis-values: the server has no {count} CPUs, but CPU {list}: give it more with --server-cpus"
        )));
    }
    if axis.values.len() < 2 {
        return Err(wrong_usage(format!(
            "--axis cpus compares at least two numbers of CPUs, and the server has CPU {list}: give it more with \
             --server-cpus, as 0-3, or name two with --axis-values"
        )));
    }
    Ok(CpuSet { client, server })
}

/// Sets up a path whose delay can be changed. It is created and tested with the longest delay.
pub(super) fn make_room_for_delay(path: &mut PathOptions, values: &[f64]) -> Result<()> {
    refuse_what_is_varied(Axis::Delay, &[(path.delay.is_some(), "--delay")])?;
    let longest = values.iter().copied().fold(0.0, f64::max);
    let longest = if longest > 0.0 { std::time::Duration::from_nanos(longest as u64) } else { LONGEST_DELAY };
    path.delay = Some(Time(longest));
    Ok(())
}

/// Sets the plan's defaults for an axis; options that the user gave stay. `round_trip_ns`: that of the path.
pub fn adapt(plan: &mut LoadPlan, axis: &AxisPlan, typed: &LoadOptions, round_trip_ns: u64) -> Result<()> {
    match axis.axis {
        // A client in overload gives up an attempt early and retries for the next request (Banga and Druschel 1997).
        Axis::Rate if typed.connect_timeout.is_none() => {
            plan.connect_timeout_ns = OVERLOAD_CONNECT_TIMEOUT.as_nanos() as u64 + 2 * round_trip_ns
        }
        Axis::Conforming if plan.clients.bandwidth.is_none() => {
            if plan.clients.read_bytes_per_sec > 0 {
                return Err(wrong_usage(
                    "--axis conforming needs a fixed bandwidth: give --asked-bandwidth instead of --read-rate",
                ));
            }
            plan.clients.bandwidth =
                Some(FixedBandwidth { asked_bits_per_sec: 400_000.0, demanded_bits_per_sec: 320_000.0 });
        }
        Axis::InFlight if plan.protocol.is_http_1() || plan.protocol == Protocol::Connect => {
            return Err(wrong_usage(
                "--axis in-flight needs several requests in flight on a connection: give --http2, or a URL of another \
                 protocol",
            ));
        }
        Axis::InFlight if plan.protocol.pipeline() > 1 => {
            return Err(wrong_usage("--axis in-flight varies what --in-flight would hold: leave it out"));
        }
        Axis::Cpus if typed.connections.is_none() => {
            let most = axis.values.iter().copied().fold(1.0, f64::max) as u64;
            plan.connections = plan.connections.max(CONNECTIONS_PER_CPU * most);
        }
        _ => {}
    }
    Ok(())
}

/// Sets up a place on the axis. `most`: the highest value that the run will measure.
pub(super) fn prepare(session: &mut Session, place: AxisPlace, most: f64) -> Result<Option<SearchEnd>> {
    session.runner.hold(&session.plan, place, most, &mut session.progress)?;
    if session.stop.is_set() {
        return Ok(Some(SearchEnd::Interrupted));
    }
    Ok(session
        .server_end_reason()
        .map(|how| SearchEnd::Lost(format!("the server {how} at {}", value_words(place.value, place.axis)))))
}
