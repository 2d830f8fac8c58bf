//! The section on models: predicted curves with intervals and the measured points, and each model's error.

use super::charts::{self, CaptionedChart};
use super::{Section, draw};
use crate::chart::{Chart, ChartSeries, Mark, Scale, shaded};
use crate::text::table::Table;
use crate::text::unbroken;
use analyze::predict::check::Check;
use analyze::predict::curve::{Curve, Curves, curves};
use record::units::{format_si, grouped};
use record::{Point, RunDir, Sweep, names};
use statistics::server::Form;

/// Fewer than in `straingauge predict`, so that the page is fast.
const RESAMPLES: usize = 100;

/// The section; `None` if the run cannot be modelled.
pub(super) fn section(run: &RunDir, counter: &mut usize) -> Option<Section> {
    let found = curves(run, RESAMPLES).ok()?;
    let figures = draw([throughput(run, &found), p50(run, &found)].into_iter().flatten().collect(), counter);
    Some(Section {
        title: "Model",
        note: unbroken(&note(&found)),
        figures,
        tables: vec![table(&found.fitted.choice.checks, found.fitted.choice.server.form)],
        ..Section::default()
    })
}

fn note(found: &Curves) -> String {
    let mut note = format!(
        "The model '{}', which predicts this run's own points best, fitted to all loads of the closed loop. \
         `straingauge predict` answers what-if questions with it.",
        found.fitted.choice.server.form.word()
    );
    if let Some(validation) = &found.fitted.validation {
        let passing = validation.numbers.iter().filter(|number| number.passes()).count();
        note.push_str(&format!(
            " If it is fitted only to the {} loads up to half the yield point, {passing} of {} numbers above that \
             (throughput, median response time, yield and failure points) are within their error limit.",
            validation.fitted.0,
            validation.numbers.len()
        ));
        for doubt in &validation.doubts {
            note.push_str(&format!(" Doubt: {doubt}."));
        }
    } else if let Some(doubt) = found.fitted.extrapolation.as_ref().and_then(|found| found.doubt.as_ref()) {
        note.push_str(&format!(" Doubt: {doubt}."));
    }
    note
}

/// The errors of every model; `chosen` is the model used.
pub(crate) fn table(checks: &[Check], chosen: Form) -> Table {
    let percent = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{:.1} %", ratio * 100.0));
    let row = |check: &Check| {
        vec![
            check.form.word().to_string(),
            check.parameters.to_string(),
            percent(check.median_error_ratio),
            percent(check.largest_error_ratio),
            check.worst_load.map(grouped).unwrap_or_default(),
            percent(check.median_demand_error_ratio),
            match &check.refused {
                Some(why) => format!("no: {why}"),
                None if check.form == chosen => "chosen".into(),
                None => "offered".into(),
            },
        ]
    };
    let headings = ["model", "params", "median", "largest", "at", "demand", ""];
    let units = ["", "", "of throughput", "of throughput", "connections", "median", ""];
    let note = "|predicted / measured - 1|, each load predicted by a model fitted to the others.";
    Table::titled("", headings.into_iter().zip(units), checks.iter().map(row).collect(), note)
}

fn figure(
    run: &RunDir,
    found: &Curves,
    (title, y_name, name): (&'static str, &str, &str),
    curve: &Curve,
    value: impl Fn(&Point) -> Option<f64>,
    scale: impl Fn(Vec<f64>) -> Scale,
) -> Option<CaptionedChart> {
    let dots = charts::dots(&charts::points_of(run, Sweep::Connections), name, value);
    if curve.is_empty() || dots.is_empty() {
        return None;
    }
    let all = curve.iter().flat_map(|(_, _, low, high)| [*low, *high]).chain(dots.iter().map(|mark| mark.y)).collect();
    let line: Vec<Mark> = curve
        .iter()
        .map(|(x, y, low, high)| Mark { interval: Some((*low, *high)), origin: "modelled", ..(*x, *y).into() })
        .collect();
    Some(CaptionedChart {
        title,
        caption: format!(
            "Dots: measured points; line: the model; shaded: its 95 % interval over {} resamples of the points.",
            found.fitted.servers.len()
        ),
        chart: Chart {
            description: format!(
                "The curve of the model '{}' and the measured points.",
                found.fitted.choice.server.form.word()
            ),
            layers: shaded(&line, "s1").into_iter().collect(),
            series: vec![ChartSeries { class: "s1", line, dots, ..ChartSeries::default() }],
            unit: if name == names::THROUGHPUT { "1/s" } else { "us" },
            interval_name: "95 % interval",
            ..Chart::empty(
                &format!("{title}, predicted and measured, against connections"),
                "connections",
                y_name,
                Scale::doublings(curve.iter().map(|(load, ..)| *load)),
                scale(all),
            )
        },
    })
}

fn throughput(run: &RunDir, found: &Curves) -> Option<CaptionedChart> {
    let scale = |all: Vec<f64>| Scale::linear(all.into_iter(), format_si);
    let words = ("Predicted throughput", "responses per second", names::THROUGHPUT);
    let good = |point: &Point| point.value(names::GOODPUT).or(point.value(names::THROUGHPUT));
    figure(run, found, words, &found.throughput, good, scale)
}

fn p50(run: &RunDir, found: &Curves) -> Option<CaptionedChart> {
    let scale = |all: Vec<f64>| Scale::times_us(all.into_iter());
    let us: Curve = found.p50.iter().map(|(load, a, b, c)| (*load, a * 1e6, b * 1e6, c * 1e6)).collect();
    let words = ("Predicted median response time", "logarithmic scale", names::RESPONSE_P50);
    figure(run, found, words, &us, |point| point.value(names::RESPONSE_P50), scale)
}
