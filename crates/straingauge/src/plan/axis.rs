//! The axis of `find`: its values and their unit.

use crate::cli::{FindOptions, LoadOptions};
use crate::defaults;
use crate::failure::{refuse_typed, wrong_usage};
use anyhow::Result;
use record::{Axis, AxisPlan, LoadPlan, Pace, units};

/// More values than this would take more than a day to measure.
const MAX_VALUES: usize = 64;
/// Far more than any machine has; what this machine can do is checked later.
const MOST: f64 = 1e7;

/// The axis on the command line, if any.
pub fn axis_plan(options: &FindOptions, load: &LoadOptions) -> Result<Option<AxisPlan>> {
    let Some(word) = options.axis else {
        let typed = [
            (options.axis_values.is_some(), "--axis-values"),
            (options.overload.is_some(), "--overload"),
            (options.conforming_share.is_some(), "conforming-share of [find]"),
        ];
        return refuse_typed(&typed, |option| format!("{option} needs an axis: give --axis too")).map(|()| None);
    };
    let axis = Axis::from(word);
    if options.sweep.is_some() {
        return Err(wrong_usage("--axis replaces the sweeps: leave --sweep out"));
    }
    let held = match axis {
        Axis::Connections | Axis::Conforming => {
            [("--connections", load.connections.is_some()), ("--rate", load.rate.is_some())]
        }
        Axis::Rate => [("--rate", load.rate.is_some()); 2],
        _ => [("--cold", axis == Axis::Cold && load.cold.is_some()); 2],
    };
    refuse_what_is_varied(axis, &held)?;
    let overload_ratio = match &options.overload {
        None => defaults::OVERLOAD as f64,
        Some(_) if axis != Axis::Rate => return Err(wrong_usage("--overload applies to --axis rate only")),
        Some(text) => multiple(text)?,
    };
    let conforming_ratio = match options.conforming_share {
        None => defaults::CONFORMING_SHARE.0,
        Some(_) if axis != Axis::Conforming => {
            return Err(wrong_usage("conforming-share of [find] applies to --axis conforming only"));
        }
        Some(share) if share.0 > 1.0 => return Err(wrong_usage("conforming-share of [find] goes up to 100%")),
        Some(share) => share.0,
    };
    let values = options.axis_values.as_deref().map(|text| values(text, axis)).transpose()?.unwrap_or_default();
    Ok(Some(AxisPlan { axis, values, overload_ratio, conforming_ratio }))
}

/// Refuses options that hold what an axis varies: the options, and whether each was typed.
pub fn refuse_what_is_varied(axis: Axis, held: &[(&str, bool)]) -> Result<()> {
    match held.iter().find(|(_, is_typed)| *is_typed) {
        Some((option, _)) => Err(wrong_usage(format!(
            "--axis {} varies what {option} would fix: leave {option} out, or give --axis-values",
            axis.word()
        ))),
        None => Ok(()),
    }
}

/// The microbenchmark sends segments and a server is sent requests: each has its own option and axis.
pub fn refuse_the_other_rate(axis: Option<Axis>, is_server: bool, is_rate: bool, is_packet_rate: bool) -> Result<()> {
    let why = match (axis, is_server) {
        (Some(Axis::PacketRate), true) => "a server is sent requests: use --axis rate",
        (Some(Axis::Rate), false) => "the microbenchmark sends segments: use --axis packet-rate",
        (_, true) if is_packet_rate => "a server is sent requests: use --rate",
        (_, false) if is_rate => "the microbenchmark sends segments: use --packet-rate",
        _ => return Ok(()),
    };
    Err(wrong_usage(why))
}

/// `3x` or `3`.
fn multiple(text: &str) -> Result<f64> {
    match text.trim().trim_end_matches(['x', 'X']).parse::<f64>() {
        Ok(ratio) if (1.0..=1000.0).contains(&ratio) => Ok(ratio),
        _ => Err(wrong_usage(format!(
            "--overload '{}' is not a multiple of the capacity: write 3x",
            text.escape_debug()
        ))),
    }
}

/// A list of values, sorted, without repetition.
pub fn values(text: &str, axis: Axis) -> Result<Vec<f64>> {
    let wrong = |part: &str, why: String| {
        wrong_usage(format!("--axis-values: '{}' {why}; write them as 0,750,2k", part.escape_debug()))
    };
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim) {
        let value = match axis {
            Axis::Rate | Axis::PacketRate => units::parse_rate(part).map_err(|why| wrong(part, format!("({why})")))?,
            // A bare 0 is accepted for 0ms.
            Axis::Delay => {
                units::parse_duration(part).map_err(|why| wrong(part, format!("({why})")))?.as_nanos() as f64
            }
            _ => units::parse_count(part).map_err(|why| wrong(part, format!("({why})")))? as f64,
        };
        let may_be_none = matches!(axis, Axis::Cold | Axis::TimeWait | Axis::Delay);
        if value <= 0.0 && !may_be_none {
            return Err(wrong(part, "would measure nothing".into()));
        }
        if axis == Axis::Delay && value > record::path::MAX_DELAY_NS as f64 {
            return Err(wrong(part, "is longer than the 10s that a path may delay".into()));
        }
        if value > MOST && !matches!(axis, Axis::Rate | Axis::PacketRate | Axis::Delay) {
            return Err(wrong(part, format!("is more than {MOST}")));
        }
        found.push(value);
    }
    found.sort_by(f64::total_cmp);
    found.dedup();
    if found.len() > MAX_VALUES {
        return Err(wrong_usage(format!(
            "--axis-values has {} values: at most {MAX_VALUES} are measured",
            found.len()
        )));
    }
    Ok(found)
}

/// The plan of a point at `value` of the axis; the caller handles what is not the engine's (cold connections,
/// TIME_WAIT).
pub fn at(axis: Axis, value: f64, base: &LoadPlan, arrival: record::Arrival, open_connections: u64) -> LoadPlan {
    let mut plan = base.clone();
    match axis {
        Axis::Connections => (plan.connections, plan.pace) = (value as u64, Pace::Closed),
        Axis::Conforming => (plan.connections, plan.pace) = (value as u64, Pace::Closed),
        Axis::Rate => {
            plan.connections = open_connections;
            plan.pace = Pace::Open { rate_per_sec: value, arrival };
        }
        Axis::InFlight => plan.protocol.set_pipeline(value as u32),
        _ => {}
    }
    plan
}

/// The same for the microbenchmark, whose total rate is constant whatever the connections.
pub fn segments_at(axis: Axis, value: f64, base: &LoadPlan) -> LoadPlan {
    let mut plan = base.clone();
    match (axis, &mut plan.pace) {
        (Axis::Connections, _) => plan.connections = value as u64,
        (Axis::PacketRate, Pace::Open { rate_per_sec, .. }) => *rate_per_sec = value,
        _ => {}
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::AxisWord;
    use crate::quantity::Count;

    fn options(axis: AxisWord, values: &str) -> FindOptions {
        FindOptions { axis: Some(axis), axis_values: Some(values.into()), ..Default::default() }
    }

    #[test]
    fn values_are_sorted_counts_or_rates() {
        let plan = axis_plan(&options(AxisWord::Cold, "2k, 0,750,750"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!(plan.values, [0.0, 750.0, 2000.0]);
        let plan = axis_plan(&options(AxisWord::Rate, "0.5,10k"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!(plan.values, [0.5, 10_000.0]);
        let plan = axis_plan(&options(AxisWord::Delay, "20ms,0,1.5ms"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!(plan.values, [0.0, 1.5e6, 20e6]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let none = LoadOptions::default();
        for (options, load, word) in [
            (options(AxisWord::Cold, "1,,2"), &none, "--axis-values"),
            (options(AxisWord::Cold, "-5"), &none, "--axis-values"),
            (options(AxisWord::Connections, "0"), &none, "nothing"),
            (options(AxisWord::Delay, "20"), &none, "--axis-values"),
            (options(AxisWord::Delay, "8760h"), &none, "10s"),
            (options(AxisWord::Cold, "1e300"), &none, "--axis-values"),
            (FindOptions { axis_values: Some("1".into()), ..Default::default() }, &none, "--axis"),
            (FindOptions { overload: Some("-1x".into()), ..options(AxisWord::Rate, "1") }, &none, "--overload"),
            (FindOptions { overload: Some("2x".into()), ..options(AxisWord::Cold, "1") }, &none, "--overload"),
            (options(AxisWord::Cold, "1"), &LoadOptions { cold: Some(Count(3)), ..Default::default() }, "--cold"),
        ] {
            let why = axis_plan(&options, load).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
    }
}
