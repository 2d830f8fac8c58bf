//! The section of slow-downs: what would help most, and what it rests on.

use super::charts::{self, Figure};
use super::tables::Table;
use super::{DrawnFigure, NARROW, Section, WIDE, axis, draw};
use crate::chart::{self, Bar, Cell, Chart, Row, Scale, Series};
use crate::run::slow_down::{COLUMNS, TITLE, of};
use crate::text::{number, unbroken};
use analyze::axis::slow_down::CHEAPER_RATIO;
use analyze::axis::{AxisFindings, effect_words, slowed_words};
use analyze::zones::percent;
use record::units::{count, format_si};
use record::{Estimate, Point, RunDir, names};

/// Colours of the lines, one for each place.
const CLASSES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];

/// The section; `None` where nothing was slowed down.
pub(super) fn section(run: &RunDir, axes: &[AxisFindings], counter: &mut usize) -> Option<Section> {
    let slowed = of(axes);
    let first = slowed.first()?;
    let mut figures: Vec<DrawnFigure> = gains(&slowed, counter).into_iter().collect();
    figures.extend(draw(throughput(run, &slowed).into_iter().collect(), counter));
    let levels = slowed.iter().filter(|axis| crate::run::axis::has_columns(axis)).map(|found| axis::table(found));
    Some(Section {
        title: TITLE,
        note: unbroken(&format!(
            "The server was slowed down at one place at a time, in {} repeats, each in a random order. The first \
             column is the answer read backwards: the throughput if a request cost {} of its CPU time less at the \
             place.",
            first.repeats,
            percent(CHEAPER_RATIO)
        )),
        figures,
        tables: std::iter::once(forecast(&slowed)).chain(levels).collect(),
        ..Section::default()
    })
}

/// What each place would win, the most first.
fn gains(slowed: &[&AxisFindings], counter: &mut usize) -> Option<DrawnFigure> {
    let mut found: Vec<(String, Estimate)> = slowed
        .iter()
        .filter_map(|axis| Some((slowed_words(axis.slowed?).to_string(), axis.effect.as_ref()?.gain_ratio?)))
        .collect();
    found.sort_by(|(_, a), (_, b)| b.value.total_cmp(&a.value));
    if found.is_empty() {
        return None;
    }
    *counter += 1;
    let bar = |(name, gain): &(String, Estimate)| {
        let interval = gain.low.zip(gain.high);
        let range = interval.map(|(low, high)| format!(" ({low:.2} to {high:.2})")).unwrap_or_default();
        Bar { name: name.clone(), value: gain.value, interval, words: format!("{:.2} times{range}", gain.value) }
    };
    let bars: Vec<Bar> = found.iter().map(bar).collect();
    let cell = |value: f64| Cell { words: format!("{value:.2}"), exact: value.to_string() };
    let row = |(name, gain): &(String, Estimate)| Row {
        series: name.clone(),
        x: Cell { words: percent(CHEAPER_RATIO), exact: CHEAPER_RATIO.to_string() },
        y: cell(gain.value),
        low: gain.low.map(cell),
        high: gain.high.map(cell),
        n: count(gain.n, "repeat"),
        origin: "read backwards from slow-downs".into(),
        link: String::new(),
    };
    let told = (
        "Throughput if a place were cheaper",
        "A bar for each place, from today's throughput on, with its 95 % interval.",
    );
    let draw = |id: String, width: f64| chart::bars(&id, told, &bars, 1.0, width);
    Some(DrawnFigure {
        title: "What each place would win",
        caption: unbroken(&format!(
            "Throughput as a multiple of today's, if a request cost {} of its CPU time less at the place. Lines: 95 % \
             interval. A bar to the left: less throughput.",
            percent(CHEAPER_RATIO)
        )),
        wide: draw(format!("c{counter}w"), WIDE.0),
        narrow: draw(format!("c{counter}n"), NARROW.0),
        x_name: "CPU time saved".into(),
        unit: "times",
        interval_name: "95 % interval",
        rows: found.iter().map(row).collect(),
    })
}

fn forecast(slowed: &[&AxisFindings]) -> Table {
    let row = |axis: &&AxisFindings| {
        let place = axis.slowed.map_or("", slowed_words).to_string();
        let cells = |(.., words): &crate::run::slow_down::Column| axis.effect.as_ref().map(words).unwrap_or_default();
        [place, effect_words(axis.effect.as_ref())].into_iter().chain(COLUMNS.iter().map(cells)).collect()
    };
    Table {
        title: "",
        headings: ["place", "if cheaper"]
            .into_iter()
            .chain(COLUMNS.iter().map(|(name, ..)| *name))
            .map(String::from)
            .collect(),
        units: ["", "95 % interval"].into_iter().chain(COLUMNS.iter().map(|(_, unit, _)| *unit)).collect(),
        rows: slowed.iter().map(row).collect(),
        note: "time is 1 / throughput: 1 where all of the place's cost limits the server, 0 where none does.".into(),
    }
}

/// Throughput against what was added, a line for each place.
fn throughput(run: &RunDir, slowed: &[&AxisFindings]) -> Option<Figure> {
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
            let all: Vec<f64> = run.points.iter().filter(of_level).filter_map(added).collect();
            if value == 0.0 { Some(0.0) } else { analyze::statistics::median(&all) }
        };
        let level = |level: &analyze::axis::AxisLevel| {
            Some(axis::mark(mean_added(level.value)?, level.throughput_per_sec.as_ref()?))
        };
        let line: Vec<_> = axis.levels.iter().filter_map(level).collect();
        series.push(Series { name: place.word().into(), class, line, dots, has_whiskers: true, ..Series::default() });
    }
    if series.is_empty() {
        return None;
    }
    let xs = series.iter().flat_map(|series| series.line.iter().map(|mark| mark.x));
    let (x, y) = (Scale::linear(xs, number), Scale::linear(series.iter().flat_map(Series::ys), format_si));
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
    Some(Figure { title: "Throughput", caption: caption.into(), chart })
}
