//! The axis of `find`: which values, in which unit.

use crate::cli::{AxisWord, FindOptions, LoadOptions};
use crate::failure::wrong_usage;
use anyhow::Result;
use record::{Axis, AxisPlan, LoadPlan, Pace, units};

/// More values than this would not be read, and not be measured in a day.
const MAX_VALUES: usize = 64;
/// Far more than any machine has; what is possible here is checked when it is asked for.
const MOST: f64 = 1e7;

/// The axis asked for, if any.
pub fn axis_plan(options: &FindOptions, load: &LoadOptions) -> Result<Option<AxisPlan>> {
    let Some(word) = options.axis else {
        let typed = [
            (options.axis_values.is_some(), "--axis-values"),
            (options.overload.is_some(), "--overload"),
            (options.conforming_share.is_some(), "--conforming-share"),
        ];
        return match typed.into_iter().find(|(is_typed, _)| *is_typed) {
            Some((_, option)) => Err(wrong_usage(format!("{option} is about an axis: give --axis too"))),
            None => Ok(None),
        };
    };
    let axis = match word {
        AxisWord::Connections => Axis::Connections,
        AxisWord::Rate => Axis::Rate,
        AxisWord::Cold => Axis::Cold,
        AxisWord::Conforming => Axis::Conforming,
        AxisWord::TimeWait => Axis::TimeWait,
        AxisWord::Delay => Axis::Delay,
    };
    if options.sweep.is_some() {
        return Err(wrong_usage("--axis takes the place of the sweeps: leave --sweep out"));
    }
    refuse_what_is_varied(axis, load)?;
    let overload_ratio = match &options.overload {
        None => 3.0,
        Some(_) if axis != Axis::Rate => return Err(wrong_usage("--overload is about --axis rate")),
        Some(text) => multiple(text)?,
    };
    let conforming_ratio = match options.conforming_share {
        None => 1.0,
        Some(_) if axis != Axis::Conforming => {
            return Err(wrong_usage("--conforming-share is about --axis conforming"));
        }
        Some(share) if share.0 > 1.0 => return Err(wrong_usage("--conforming-share goes up to 100%")),
        Some(share) => share.0,
    };
    let values = options.axis_values.as_deref().map(|text| values(text, axis)).transpose()?.unwrap_or_default();
    Ok(Some(AxisPlan { axis, values, overload_ratio, conforming_ratio }))
}

/// What an axis varies cannot be held, too.
fn refuse_what_is_varied(axis: Axis, load: &LoadOptions) -> Result<()> {
    let refused = |option: &str| {
        Err(wrong_usage(format!(
            "--axis {} varies what {option} would hold: leave {option} out, or give --axis-values",
            axis.word()
        )))
    };
    match axis {
        Axis::Connections | Axis::Conforming if load.connections.is_some() => refused("--connections"),
        Axis::Connections | Axis::Conforming | Axis::Rate if load.rate.is_some() => refused("--rate"),
        Axis::Cold if load.cold.is_some() => refused("--cold"),
        _ => Ok(()),
    }
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
fn values(text: &str, axis: Axis) -> Result<Vec<f64>> {
    let wrong = |part: &str, why: String| {
        wrong_usage(format!("--axis-values: '{}' {why}; write them as 0,750,2k", part.escape_debug()))
    };
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim) {
        let value = match axis {
            Axis::Rate => units::parse_rate(part).map_err(|why| wrong(part, format!("({why})")))?,
            // A bare 0 is as good as 0ms.
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
        if value > MOST && !matches!(axis, Axis::Rate | Axis::Delay) {
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

/// The plan of a point at `value` of the axis; what is not the engine's (cold connections, TIME_WAIT) stays with the caller.
pub fn at(axis: Axis, value: f64, base: &LoadPlan, arrival: record::Arrival, open_connections: u64) -> LoadPlan {
    let mut plan = base.clone();
    match axis {
        Axis::Connections => (plan.connections, plan.pace) = (value as u64, Pace::Closed),
        Axis::Conforming => (plan.connections, plan.pace) = (value as u64, Pace::Closed),
        Axis::Rate => {
            plan.connections = open_connections;
            plan.pace = Pace::Open { rate_per_sec: value, arrival };
        }
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
