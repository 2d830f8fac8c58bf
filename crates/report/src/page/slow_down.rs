//! The section on slow-downs: the place that limits most, and the measurements.

use super::charts::{self, CaptionedChart};
use super::{Section, axis, draw};
use crate::chart::{Chart, ChartSeries, Scale};
use crate::run::slow_down::{COLUMNS, TITLE, slow_downs};
use crate::text::table::Table;
use crate::text::{number, unbroken};
use analyze::axis::slow_down::CHEAPER_RATIO;
use analyze::axis::{AxisFindings, effect_words, slowed_words};
use analyze::zones::percent;
use record::units::format_si;
use record::{Point, RunDir, names};

const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];

/// The section; `None` without slow-downs.
pub(super) fn section(run: &RunDir, axes: &[AxisFindings], counter: &mut usize) -> Option<Section> {
    let slowed = slow_downs(axes);
    let first = slowed.first()?;
    let levels = slowed.iter().filter(|axis| crate::run::axis::has_columns(axis)).map(|found| axis::table(found));
    Some(Section {
        title: TITLE,
        note: unbroken(&format!(
            "The server was slowed down at one place at a time, in {} repeats, each in random order. The first column \
             is extrapolated from that: the throughput if a request took {} less of its CPU time at the place.",
            first.repeats,
            percent(CHEAPER_RATIO)
        )),
        figures: draw(throughput(run, &slowed).into_iter().collect(), counter),
        tables: std::iter::once(forecast(&slowed)).chain(levels).collect(),
        ..Section::default()
    })
}

fn forecast(slowed: &[&AxisFindings]) -> Table {
    let row = |axis: &&AxisFindings| {
        let place = axis.slowed.map_or("", slowed_words).to_string();
        let cells =
            |(.., words): &crate::run::slow_down::EffectColumn| axis.effect.as_ref().map(words).unwrap_or_default();
        [place, effect_words(axis.effect.as_ref())].into_iter().chain(COLUMNS.iter().map(cells)).collect()
    };
    let first = [("place", ""), ("if cheaper", "95 % interval")];
    let columns = first.into_iter().chain(COLUMNS.iter().map(|(name, unit, _)| (*name, *unit)));
    let note = "time is 1 / throughput: 1 if all of the place's cost limits the server, 0 if none does.";
    Table::titled("", columns, slowed.iter().map(row).collect(), note)
}

/// Throughput over added CPU time, with a line for each place.
fn throughput(run: &RunDir, slowed: &[&AxisFindings]) -> Option<CaptionedChart> {
    let name = names::THROUGHPUT;
    let added = |point: &Point| match point.axis {
        Some(place) if place.slowed.is_none() => Some(0.0),
        _ => point.value(names::SLOW_ADDED),
    };
    let mut series = Vec::new();
    for (axis, class) in slowed.iter().zip(CLASSES.into_iter().cycle()) {
        let Some(place) = axis.slowed.filter(|_| axis.effect.is_some()) else { continue };
        let at = |point: &&Point| {
            point.repeat > 0 && point.axis.is_some_and(|at| at.axis == axis.axis && at.slowed == Some(place))
        };
        let dot = |point: &Point| Some(charts::dot(point, added(point)?, point.value(name)?, name));
        let dots = run.points.iter().filter(at).filter_map(dot).collect();
        let mean_added = |value: f64| {
            let of_level = |point: &&Point| at(point) && point.axis.is_some_and(|at| at.value == value);
            let all = run.points.iter().filter(of_level).filter_map(added);
            if value == 0.0 { Some(0.0) } else { statistics::median(all) }
        };
        let level = |level: &analyze::axis::AxisLevel| {
            Some(axis::mark(mean_added(level.value)?, level.throughput_per_sec.as_ref()?))
        };
        let line: Vec<_> = axis.levels.iter().filter_map(level).collect();
        series.push(ChartSeries {
            name: place.word().into(),
            class,
            line,
            dots,
            has_whiskers: true,
            ..ChartSeries::default()
        });
    }
    if series.is_empty() {
        return None;
    }
    let xs = series.iter().flat_map(|series| series.line.iter().map(|mark| mark.x));
    let (x, y) = (Scale::linear(xs, number), Scale::linear(series.iter().flat_map(ChartSeries::ys), format_si));
    let chart = Chart {
        origin: "median of points",
        interval_name: "95 % interval",
        series,
        ..Chart::empty(
            "Throughput against added CPU time",
            "CPU time added to a request, us",
            "responses per second",
            x,
            y,
        )
    };
    let caption = "Dots: points; line: median over repeats with its 95 % interval. The steeper a line, the more a \
                   speed-up of its place helps.";
    Some(CaptionedChart { title: "Throughput", caption: caption.into(), chart })
}
