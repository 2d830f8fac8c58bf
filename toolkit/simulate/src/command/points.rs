//! The points: one for each value of the axis, with all other quantities constant.

use super::failure::wrong_usage;
use super::options::{AxisWord, SimulateArgs};
use super::served::Served;
use crate::simulation::PointPlan;
use anyhow::Result;
use record::units::{parse_count, parse_duration, parse_rate};

/// With more, the guest has no memory for the sockets.
const MOST_CONNECTIONS: u64 = 8192;
const MOST_RATE: u64 = 1_000_000;
const MOST_DELAY_US: u64 = 2_000_000;
/// More values would take days.
const MOST_VALUES: usize = 64;
const CONNECTIONS: [u64; 4] = [4, 32, 128, 512];
/// Used while another quantity is varied.
const HELD_CONNECTIONS: u64 = 128;
/// 100 Mbit/s of full segments, as in the paper.
const SEGMENT_RATE: f64 = 8333.0;

/// The points that the command line requests; settings of a scenario are in `served`.
pub fn plan(args: &SimulateArgs, served: Option<&Served>) -> Result<Vec<PointPlan>> {
    let connections = args.connections.or(served.and_then(|served| served.connections));
    let axis = match (args.axis, connections) {
        (Some(axis), _) => Some(axis),
        (None, Some(_)) => None,
        (None, None) => Some(AxisWord::Connections),
    };
    let rate = match served {
        Some(served) => args.rate.or(served.rate).unwrap_or(0.0),
        None => args.rate.unwrap_or(SEGMENT_RATE),
    };
    let delay = args.delay.or(served.and_then(|served| served.delay)).unwrap_or_default();
    let held = PointPlan {
        connections: connections.unwrap_or(HELD_CONNECTIONS),
        rate_per_sec: if rate > 0.0 { (rate.round() as u64).max(1) } else { 0 },
        delay_us: delay.as_micros() as u64,
    };
    let points = match (axis, &args.axis_values) {
        (None, None) => vec![held],
        (None, Some(_)) => return Err(wrong_usage("--axis-values needs an axis: add --axis")),
        (Some(axis), Some(text)) => along(axis, text, held)?,
        (Some(AxisWord::Connections), None) => {
            CONNECTIONS.into_iter().map(|connections| PointPlan { connections, ..held }).collect()
        }
        (Some(axis), None) => {
            return Err(wrong_usage(format!("--axis {} needs values: add --axis-values", axis.word())));
        }
    };
    refuse_what_is_varied(axis, args)?;
    check(&points, served.is_some())?;
    Ok(points)
}

/// A point for each value of a list, sorted, without duplicates.
fn along(axis: AxisWord, text: &str, held: PointPlan) -> Result<Vec<PointPlan>> {
    let point = |part: &str| {
        let wrong = |why: String| wrong_usage(format!("--axis-values: '{}' {why}", part.escape_debug()));
        let rate = || match parse_rate(part) {
            Ok(rate) if rate > 0.0 => Ok((rate.round() as u64).max(1)),
            Ok(_) => Err(wrong("has no effect to simulate".into())),
            Err(why) => Err(wrong(format!("({why}); write them as 750,2k"))),
        };
        Ok(match axis {
            AxisWord::Connections => PointPlan {
                connections: parse_count(part).map_err(|why| wrong(format!("({why}); write them as 4,128")))?,
                ..held
            },
            AxisWord::Rate => PointPlan { rate_per_sec: rate()?, ..held },
            AxisWord::Delay => PointPlan {
                delay_us: parse_duration(part)
                    .map_err(|why| wrong(format!("({why}); write them as 0,5ms,20ms")))?
                    .as_micros() as u64,
                ..held
            },
        })
    };
    let mut points: Vec<PointPlan> = text.split(',').map(|part| point(part.trim())).collect::<Result<_>>()?;
    points.sort_by_key(|point| (point.connections, point.rate_per_sec, point.delay_us));
    points.dedup();
    if points.len() > MOST_VALUES {
        return Err(wrong_usage(format!("--axis-values takes at most {MOST_VALUES} values")));
    }
    Ok(points)
}

fn refuse_what_is_varied(axis: Option<AxisWord>, args: &SimulateArgs) -> Result<()> {
    let Some(axis) = axis else { return Ok(()) };
    let is_typed = match axis {
        AxisWord::Connections => args.connections.is_some(),
        AxisWord::Rate => args.rate.is_some(),
        AxisWord::Delay => args.delay.is_some(),
    };
    let word = axis.word();
    if is_typed {
        return Err(wrong_usage(format!(
            "--axis {word} varies the quantity that --{word} sets: remove --{word}, and give the values with \
            --axis-values"
        )));
    }
    Ok(())
}

fn check(points: &[PointPlan], is_server: bool) -> Result<()> {
    if let Some(wrong) = points.iter().find(|point| !(1..=MOST_CONNECTIONS).contains(&point.connections)) {
        let wrong = wrong.connections;
        return Err(wrong_usage(format!(
            "connections must be between 1 and {MOST_CONNECTIONS}: {wrong} are not possible"
        )));
    }
    if points.iter().any(|point| point.rate_per_sec == 0 && !is_server || point.rate_per_sec > MOST_RATE) {
        return Err(wrong_usage("--rate must be between 1 and 1M a second"));
    }
    if points.iter().any(|point| point.delay_us > MOST_DELAY_US) {
        return Err(wrong_usage("--delay must be at most 2s"));
    }
    Ok(())
}
