//! Distributions of response times of chosen points, from their histograms.

use super::charts::CaptionedChart;
use crate::chart::{Chart, ChartSeries, Mark, Scale};
use analyze::zones::{SweepFindings, load_words, percent};
use record::units::format_nanos;
use record::{Doubt, DoubtKind, Latency, Point, RunDir, Sweep};

const CLASSES: [&str; 5] = ["s1", "s2", "s3", "s4", "s5"];
/// A quantile is drawn only if at least this many values lie beyond it.
const SAMPLES_BEYOND: f64 = 5.0;

/// Distributions at the lowest load and at the loads next to yield, peak and failure points.
pub(super) fn of_sweep(run: &RunDir, sweep: &SweepFindings, unreadable: &mut Vec<Doubt>) -> Option<CaptionedChart> {
    let mut loads: Vec<f64> = Vec::new();
    let nearest = |wanted: f64, below: bool| {
        let levels = sweep.levels.iter().map(|level| level.load);
        if below {
            levels.filter(|load| *load <= wanted).max_by(f64::total_cmp)
        } else {
            levels.filter(|load| *load >= wanted).min_by(f64::total_cmp)
        }
    };
    loads.extend(sweep.levels.first().map(|level| level.load));
    loads.extend(sweep.yield_point.estimate.and_then(|at| nearest(at, true)));
    loads.extend(sweep.peak.map(|peak| peak.load));
    loads.extend(sweep.failure_point.held);
    loads.extend(sweep.failure_point.failed);
    if sweep.failure_point.failed.is_none() {
        loads.extend(sweep.levels.last().map(|level| level.load));
    }
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    // Keeps the highest of the loads within 2 %.
    let mut apart: Vec<f64> = Vec::new();
    for load in loads {
        match apart.last_mut() {
            Some(last) if load / *last < 1.02 && apart_is_optional(sweep, *last) => *last = load,
            _ => apart.push(load),
        }
    }
    apart.truncate(CLASSES.len());
    let chosen: Vec<(String, &Point)> = apart
        .into_iter()
        .filter_map(|load| Some((load_label(load, sweep.sweep), middle_point(run, sweep.sweep, load)?)))
        .collect();
    figure(run, &chosen, unreadable)
}

fn apart_is_optional(sweep: &SweepFindings, load: f64) -> bool {
    sweep.failure_point.held != Some(load) && sweep.failure_point.failed != Some(load)
}

fn load_label(load: f64, sweep: Sweep) -> String {
    match sweep {
        Sweep::Rate => load_words(load, sweep),
        _ => record::units::grouped(load),
    }
}

/// The longest point of a load; of about equally long ones, the one with the median throughput.
fn middle_point(run: &RunDir, sweep: Sweep, load: f64) -> Option<&Point> {
    let at = |point: &&Point| point.sweep == sweep && point.load() == load;
    let longest = run.points.iter().filter(at).map(|point| point.duration_ns).max()?;
    let mut best: Vec<&Point> =
        run.points.iter().filter(at).filter(|point| point.duration_ns as f64 >= 0.6 * longest as f64).collect();
    let rate = |point: &Point| point.value(record::names::THROUGHPUT).unwrap_or(0.0);
    best.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then(a.index.cmp(&b.index)));
    best.get(best.len() / 2).copied()
}

/// Distributions of one point: response, service, lag, and response without the reap delay.
pub(super) fn of_point(run: &RunDir, point: &Point, unreadable: &mut Vec<Doubt>) -> Option<CaptionedChart> {
    let latencies = read(run, point, unreadable)?;
    let lines = latencies
        .iter()
        .filter(|(tag, _)| tag != "lag" || point.offered_per_sec().is_some())
        .filter_map(|(tag, latency)| {
            let name = match tag.as_str() {
                "response-arrived" => "without reap delay",
                tag => ["response", "service", "lag"].into_iter().find(|shown| *shown == tag)?,
            };
            Some((name.to_string(), quantiles(latency)))
        })
        .collect();
    let answered = match point.outcomes.censored_ratio() {
        0.0 => "every request of the window".to_string(),
        censored => format!("the {} of the window's requests that had a response", percent(1.0 - censored)),
    };
    let caption = format!(
        "Distribution of {answered}, from the point's histograms; without the reap delay: from a \
        sample."
    );
    chart(lines, "Distribution of times", caption)
}

/// A point's histograms; an unreadable one becomes a doubt.
fn read(run: &RunDir, point: &Point, unreadable: &mut Vec<Doubt>) -> Option<Vec<(String, Latency)>> {
    run.latencies(point.index)
        .map_err(|error| {
            let what = format!("a latency histogram was left out: {error}");
            unreadable.push(DoubtKind::Unreadable.warning(what, "measure that point again"));
        })
        .ok()
}

fn figure(run: &RunDir, chosen: &[(String, &Point)], unreadable: &mut Vec<Doubt>) -> Option<CaptionedChart> {
    let (mut lines, mut from, mut fewest) = (Vec::new(), Vec::new(), u64::MAX);
    for (label, point) in chosen {
        let Some(latencies) = read(run, point, unreadable) else { continue };
        if let Some((_, latency)) = latencies.iter().find(|(tag, _)| tag == "response") {
            lines.push((label.clone(), quantiles(latency)));
            from.push(format!("{:03}", point.index));
            fewest = fewest.min(latency.len());
        }
    }
    let caption = format!(
        "Every answered request of one point of each load (points {}; n = {} or more each), up to the largest quantile \
        with enough samples.",
        from.join(", "),
        record::units::grouped(fewest as f64)
    );
    chart(lines, "Distribution of response times", caption)
}

/// Pairs (quantile, microseconds) in equal steps on the scale of nines.
fn quantiles(latency: &Latency) -> Vec<(f64, f64)> {
    const STEPS_PER_NINE: u32 = 12;
    (0..=6 * STEPS_PER_NINE)
        .map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(STEPS_PER_NINE)))
        .take_while(|quantile| latency.len() as f64 * (1.0 - quantile) >= SAMPLES_BEYOND)
        .filter_map(|quantile| Some((quantile, latency.quantile_ns(quantile)? as f64 / 1e3)))
        .collect()
}

fn chart(lines: Vec<(String, Vec<(f64, f64)>)>, title: &'static str, caption: String) -> Option<CaptionedChart> {
    let series: Vec<ChartSeries> = lines
        .into_iter()
        .filter(|(_, line)| line.len() > 1)
        .zip(CLASSES)
        .map(|((name, line), class)| ChartSeries {
            name,
            class,
            line: line.into_iter().map(Mark::from).collect(),
            ..ChartSeries::default()
        })
        .collect();
    let furthest = series.iter().flat_map(|s| &s.line).map(|mark| mark.x).fold(0.0, f64::max);
    if series.is_empty() {
        return None;
    }
    let y = Scale::times_us(series.iter().flat_map(ChartSeries::ys));
    let slowest = series.iter().flat_map(ChartSeries::ys).fold(0.0, f64::max);
    let description = format!("Quantiles of the response time; the largest drawn is {}.", format_nanos(slowest * 1e3));
    let x = Scale::Nines { nines: (-(1.0 - furthest).log10()).ceil().clamp(1.0, 6.0) as u32 };
    let (x_name, y_name) = ("share of requests up to this response time", "response time, logarithmic scale");
    let chart = Chart { description, series, unit: "us", origin: "timed", ..Chart::empty(title, x_name, y_name, x, y) };
    Some(CaptionedChart { title, caption, chart })
}
