use crate::cli::{FindOptions, LoadOptions};
use crate::defaults;
use crate::failure::{refuse_if, refuse_typed, wrong_usage};
use anyhow::Result;
use record::axis::MAX_SLOW_DOWN_NS;
use record::{Arrival, Axis, AxisPlace, AxisPlan, LoadPlan, Pace, SlowPlace, units};

/// Measuring more values would take more than a day.
const MAX_VALUES: usize = 64;
/// Larger than any machine allows; this machine's limits are checked later.
const MOST: f64 = 1e7;

pub fn axis_plan(options: &FindOptions, load: &LoadOptions) -> Result<Option<AxisPlan>> {
    let Some(word) = options.axis else {
        let typed = [
            (options.axis_values.is_some(), "--axis-values"),
            (options.places.is_some(), "--places"),
            (options.conforming_share.is_some(), "conforming-share of [find]"),
        ];
        return refuse_typed(&typed, |option| format!("{option} needs --axis")).map(|()| None);
    };
    let axis = Axis::from(word);
    refuse_if(options.sweep.is_some(), "--axis replaces the sweeps: leave --sweep out")?;
    refuse_if(axis == Axis::Cpus && load.rate.is_some(), "--axis cpus uses a closed loop: leave out --rate")?;
    let held = match axis {
        Axis::Connections => [(load.connections.is_some(), "--connections"); 2],
        Axis::Conforming => [(load.connections.is_some(), "--connections"), (load.rate.is_some(), "--rate")],
        Axis::Rate => [(load.rate.is_some(), "--rate"); 2],
        _ => [(axis == Axis::Cold && load.cold.is_some(), "--cold"); 2],
    };
    refuse_what_is_varied(axis, &held)?;
    let multiple = options.axis_values.as_deref().filter(|text| axis == Axis::Rate && text.ends_with(['x', 'X']));
    let overload_ratio = multiple.map_or(Ok(defaults::OVERLOAD as f64), overload)?;
    let conforming_ratio = match options.conforming_share {
        None => defaults::CONFORMING_SHARE.0,
        Some(_) if axis != Axis::Conforming => {
            return Err(wrong_usage("conforming-share of [find] applies to --axis conforming only"));
        }
        Some(share) => share.0,
    };
    let (slowed, function) = match (&options.places, axis) {
        (Some(_), axis) if axis != Axis::SlowDown => {
            return Err(wrong_usage("--places applies to --axis slow-down only"));
        }
        (text, Axis::SlowDown) => slow_places(text.as_deref().unwrap_or(defaults::PLACES))?,
        _ => Default::default(),
    };
    let listed = options.axis_values.as_deref().filter(|_| multiple.is_none());
    let values = listed.map(|text| values(text, axis)).transpose()?.unwrap_or_default();
    refuse_if(
        axis == Axis::SlowDown && options.axis_values.is_some() && values.iter().all(|value| *value == 0.0),
        "--axis-values: no delay would be added; write e.g. 1us,5us",
    )?;
    Ok(Some(AxisPlan { axis, values, overload_ratio, conforming_ratio, slowed, function }))
}

/// Parses places like `receive,send,function=NAME`; also returns the function.
fn slow_places(text: &str) -> Result<(Vec<SlowPlace>, Option<String>)> {
    /// Limit for typed symbols; C++ symbols are long.
    const LONGEST_NAME: usize = 500;
    let (mut places, mut function) = (Vec::new(), None);
    for part in text.split(',').map(str::trim) {
        let wrong = || {
            let known = SlowPlace::ALL.into_iter().filter(|place| *place != SlowPlace::Function);
            let known: Vec<&str> = known.map(SlowPlace::word).collect();
            wrong_usage(format!("--places: '{}' is none of {}, function=NAME", part.escape_debug(), known.join(", ")))
        };
        let (word, name) = part.split_once('=').map_or((part, None), |(word, name)| (word, Some(name)));
        let place = SlowPlace::ALL.into_iter().find(|place| place.word() == word).ok_or_else(wrong)?;
        let is_name =
            |name: &str| !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(|c| c.is_ascii_graphic());
        match (place, name) {
            (SlowPlace::Function, Some(name)) if is_name(name) => function = Some(name.to_string()),
            (SlowPlace::Function, _) | (_, Some(_)) => return Err(wrong()),
            _ => {}
        }
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok((places, function))
}

pub fn refuse_what_is_varied(axis: Axis, held: &[(bool, &str)]) -> Result<()> {
    refuse_typed(held, |option| {
        let axis = axis.word();
        format!("--axis {axis} varies this quantity, so leave out {option}; --axis-values sets the values")
    })
}

fn overload(text: &str) -> Result<f64> {
    match text.trim().trim_end_matches(['x', 'X']).parse::<f64>() {
        Ok(ratio) if (1.0..=1000.0).contains(&ratio) => Ok(ratio),
        _ => Err(wrong_usage(format!(
            "--axis-values '{}' is not a multiple of the capacity: write 3x",
            text.escape_debug()
        ))),
    }
}

/// Parses a list of values; sorts them and removes duplicates.
fn values(text: &str, axis: Axis) -> Result<Vec<f64>> {
    let wrong = |part: &str, why: String| {
        let example = match axis {
            Axis::Delay => "0,5ms,20ms",
            Axis::SlowDown => "0,5us,20us",
            _ => "0,750,2k",
        };
        wrong_usage(format!("--axis-values: '{}' {why}; write e.g. {example}", part.escape_debug()))
    };
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim) {
        let value = match axis {
            Axis::Rate => units::parse_rate(part).map_err(|why| wrong(part, format!("({why})")))?,
            // A bare 0 means 0ms.
            Axis::Delay | Axis::SlowDown => {
                units::parse_duration(part).map_err(|why| wrong(part, format!("({why})")))?.as_nanos() as f64
            }
            _ => units::parse_count(part).map_err(|why| wrong(part, format!("({why})")))? as f64,
        };
        let may_be_none = matches!(axis, Axis::Cold | Axis::TimeWait | Axis::Delay | Axis::SlowDown);
        if value <= 0.0 && !may_be_none {
            return Err(wrong(part, "would measure nothing".into()));
        }
        if axis == Axis::Delay && value > record::path::MAX_DELAY_NS as f64 {
            return Err(wrong(part, "is longer than a path's maximum delay of 10s".into()));
        }
        if axis == Axis::SlowDown && value > MAX_SLOW_DOWN_NS as f64 {
            return Err(wrong(part, format!("is longer than the maximum of {}us", MAX_SLOW_DOWN_NS / 1000)));
        }
        if value > MOST && axis != Axis::Delay {
            return Err(wrong(part, format!("is more than {MOST}")));
        }
        found.push(value);
    }
    found.sort_by(f64::total_cmp);
    found.dedup();
    refuse_if(
        found.len() > MAX_VALUES,
        format!("--axis-values has {} values; the maximum is {MAX_VALUES}", found.len()),
    )?;
    Ok(found)
}

/// Changes a plan to a point on an axis. The caller sets up the axes outside the engine (cold connections, TIME_WAIT).
/// Connections are varied in a closed loop unless a rate is fixed.
pub fn turn_to(plan: &mut LoadPlan, at: AxisPlace, arrival: Arrival, open_connections: u64, holds_rate: bool) {
    match at.axis {
        Axis::Connections | Axis::Conforming => {
            plan.connections = at.value as u64;
            if !holds_rate {
                plan.pace = Pace::Closed;
            }
        }
        Axis::Rate => {
            plan.connections = open_connections;
            plan.pace = Pace::Open { rate_per_sec: at.value, arrival };
        }
        Axis::InFlight => plan.protocol.set_pipeline(at.value as u32),
        _ => {}
    }
}
