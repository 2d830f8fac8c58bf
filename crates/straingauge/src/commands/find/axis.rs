//! Additions to the engine's load for an axis: one quantity is varied, everything else is held.

use super::search::Ended;
use crate::cli::{LoadOptions, PathOptions};
use crate::commands::session::Session;
use crate::defaults::OVERLOAD_CONNECT_TIMEOUT;
use crate::failure::wrong_usage;
use crate::plan::axis::refuse_what_is_varied;
use crate::quantity::Time;
use analyze::axis::value_words;
use anyhow::Result;
use record::protocol::Protocol;
use record::{Axis, AxisPlace, AxisPlan, FixedBandwidth, LoadPlan};

/// The longest delay of an axis of delays without given values.
const LONGEST_DELAY: std::time::Duration = std::time::Duration::from_millis(100);

/// Requests a path that can be delayed. It is created and tested with the longest delay.
pub(super) fn make_room_for_delay(path: &mut PathOptions, values: &[f64]) -> Result<()> {
    refuse_what_is_varied(Axis::Delay, &[(path.delay.is_some(), "--delay")])?;
    let longest = values.iter().copied().fold(0.0, f64::max);
    let longest = if longest > 0.0 { std::time::Duration::from_nanos(longest as u64) } else { LONGEST_DELAY };
    path.delay = Some(Time(longest));
    Ok(())
}

/// Defaults that an axis sets in the plan where the user gave nothing else.
/// `round_trip_ns`: that of the path.
pub(super) fn adapt(plan: &mut LoadPlan, axis: &AxisPlan, typed: &LoadOptions, round_trip_ns: u64) -> Result<()> {
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
        _ => {}
    }
    Ok(())
}

/// Sets a place of the axis; `most` is the highest value that the run will measure.
pub(super) fn prepare(session: &mut Session, place: AxisPlace, most: f64) -> Result<Option<Ended>> {
    session.runner.hold(&session.plan, place, most, &mut session.progress)?;
    if session.stop.is_set() {
        return Ok(Some(Ended::Interrupted));
    }
    Ok(session
        .server_gone()
        .map(|how| Ended::Lost(format!("the server {how} at {}", value_words(place.value, place.axis)))))
}
