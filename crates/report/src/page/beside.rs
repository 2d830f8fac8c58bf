//! The section of a run that was measured in turn with another: both curves, and the ratio at each load.

use super::charts::{self, CaptionedChart};
use super::{Section, draw, loads};
use crate::chart::{Chart, ChartSeries, LimitLine, Mark, Scale};
use crate::text::table::Table;
use crate::text::{number, unbroken};
use analyze::compare::{self, AtLoad, Comparison, server_words};
use analyze::zones::{self, Findings, Level, Spread, SweepFindings};
use record::units::format_si;
use record::{Point, RunDir, names};

const PAIRS: &str = "Geometric means over loads and rounds. The points of a round at one load form a pair. The \
interval (Student's t over the rounds) decides.";
const OF_THE_COMMAND: &str = "The command's own use is the mean over the windows in which it ran; memory is the \
proportional set size at their ends.";

pub(super) fn section(a: &RunDir, b: &RunDir, counter: &mut usize) -> Option<Section> {
    let comparison = compare::interleaved(a, b, compare::THRESHOLD_RATIO).ok()?;
    let (of_a, of_b) = (zones::of_run(a), zones::of_run(b));
    let said = |run: &RunDir, findings: &Findings| verdict::sentences(run, findings).headline;
    let price = compare::price(b, comparison.confidence_ratio);
    let of_figures = |names| {
        let mut found = match (&of_a.connections, &of_b.connections) {
            (Some(a_found), Some(b_found)) => figures(names, &[(a, a_found), (b, b_found)]),
            _ => Vec::new(),
        };
        found.extend(ratios(names, &comparison));
        found.iter_mut().for_each(|figure| figure.chart.loads.clear());
        found
    };
    if let Some(price) = price {
        let note = format!(
            "The server {} without and with '{}', in turn. {}",
            server_words(a),
            price.command,
            compare::price_words(&price, &comparison)
        );
        return Some(Section {
            title: "The price of the command",
            note: unbroken(&note),
            figures: draw(of_figures(["without", "with"]), counter),
            tables: vec![
                Table { note: format!("{PAIRS} {OF_THE_COMMAND}"), ..crate::price::table(a, b, &price, &comparison) },
                by_load(crate::price::SIDES, &comparison),
            ],
            ..Section::default()
        });
    }
    let note = format!(
        "A: {}. {} B: {}. {} {}",
        server_words(a),
        said(a, &of_a),
        server_words(b),
        said(b, &of_b),
        compare::headline(&comparison)
    );
    Some(Section {
        title: "Side by side",
        note: unbroken(&note),
        figures: draw(of_figures(["A", "B"]), counter),
        tables: vec![
            Table { note: PAIRS.into(), ..crate::compare::figures(["A", "B"], &comparison) },
            by_load(["A", "B"], &comparison),
        ],
        ..Section::default()
    })
}

pub(super) fn by_load([a, b]: [&str; 2], comparison: &Comparison) -> Table {
    let rows = comparison
        .figures
        .iter()
        .flat_map(|figure| figure.loads.iter().map(move |at| (at.load, crate::compare::load_row(figure, at))));
    let mut rows: Vec<(f64, Vec<String>)> = rows.collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ratio = format!("{b} / {a}");
    let headings = ["load", "figure", a, b, &ratio, "interval", "n", ""];
    let units = ["", "", "geometric mean", "geometric mean", "ratio", "95 %", "repeats", ""];
    let note = "Detail; the result is the one over all loads. 'Otherwise' marks loads that differ significantly from \
                the others (corrected for their number).";
    Table::titled("By load", headings.into_iter().zip(units), rows.into_iter().map(|(_, row)| row).collect(), note)
}

type OfPoint = fn(&Point) -> Option<f64>;
type OfLevel = fn(&Level) -> Option<Spread>;

/// Both curves of a sweep, with the zones of each in lanes above.
pub(super) fn figures(of: [&'static str; 2], runs: &[(&RunDir, &SweepFindings); 2]) -> Vec<CaptionedChart> {
    let throughput: (OfLevel, OfPoint) = (|level| level.throughput_per_sec, |point| point.value(names::THROUGHPUT));
    let p50: (OfLevel, OfPoint) = (|level| level.response_p50_us, |point| point.value(names::RESPONSE_P50));
    let p99: (OfLevel, OfPoint) = (|level| level.response_p99_us, |point| point.value(names::RESPONSE_P99));
    let cpu: (OfLevel, OfPoint) = (|level| level.cpu_us_per_request, zones::cpu_us);
    let linear = |words: fn(f64) -> String| move |values: Vec<f64>| Scale::linear(values.into_iter(), words);
    let times = |values: Vec<f64>| Scale::times_us(values.into_iter());
    let logarithmic = "logarithmic scale";
    let server = "server CPU, us per request";
    [
        figure(
            (of, runs),
            ("Throughput", "responses per second", "1/s"),
            names::THROUGHPUT,
            throughput,
            linear(format_si),
        ),
        figure((of, runs), ("Median response time", logarithmic, "us"), names::RESPONSE_P50, p50, times),
        figure((of, runs), ("Response time, p99", logarithmic, "us"), names::RESPONSE_P99, p99, times),
        figure((of, runs), ("CPU time per request", server, "us/request"), names::SERVER_CPU, cpu, linear(number)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn figure(
    (of, runs): ([&'static str; 2], &[(&RunDir, &SweepFindings); 2]),
    (title, y_name, unit): (&'static str, &str, &'static str),
    name: &str,
    (level, value): (OfLevel, OfPoint),
    scale: impl Fn(Vec<f64>) -> Scale,
) -> Option<CaptionedChart> {
    let sweep = runs[0].1.sweep;
    let series: Vec<ChartSeries> = runs
        .iter()
        .zip(of.into_iter().zip(["s1", "s2"]).zip(["A", "B"]))
        .map(|((run, found), ((of, class), letter))| ChartSeries {
            name: of.into(),
            class,
            line: charts::medians(found, level),
            dots: charts::dots(&charts::points_of(run, sweep), name, value),
            of: loads::link_prefix(letter),
            ..ChartSeries::default()
        })
        .collect();
    let y: Vec<f64> = series.iter().flat_map(ChartSeries::ys).collect();
    if y.is_empty() {
        return None;
    }
    let x = series.iter().flat_map(|one| one.line.iter().chain(&one.dots)).map(|mark| mark.x);
    let x_scale = charts::load_scale(sweep, x);
    let frames = runs.map(|(_, found)| charts::frame(found, title, y_name, scale(y.clone())));
    let [of_a, of_b] = &frames;
    let mut loads = of_a.loads.clone();
    loads.extend(of_b.loads.iter().filter(|load| !of_a.loads.iter().any(|known| known.x == load.x)).cloned());
    // The number of points differs between the runs; the medians have it.
    loads.iter_mut().for_each(|load| load.points = 0);
    let chart = Chart {
        description: format!("{}: {} {}: {}", of[0], of_a.description, of[1], of_b.description),
        lanes: of.into_iter().zip(frames.iter().map(|frame| frame.bands.clone())).collect(),
        series,
        unit,
        origin: "median of points",
        loads,
        ..Chart::empty(
            &format!("{title} of both against {}", charts::load_name(sweep)),
            charts::load_axis(sweep),
            y_name,
            x_scale,
            scale(y),
        )
    };
    let caption = "Dots: points; lines: medians; above: zones of each server.".to_string();
    Some(CaptionedChart { title, caption, chart })
}

/// The ratio B / A of every figure over the load, with intervals.
pub(super) fn ratios([a, b]: [&str; 2], comparison: &Comparison) -> Option<CaptionedChart> {
    let ratio = format!("{b} / {a}");
    let known: Vec<_> = comparison.figures.iter().filter(|figure| !figure.loads.is_empty()).collect();
    let sweep = known.first()?.loads.first()?.sweep;
    let middle = known.len().saturating_sub(1) as f64 / 2.0;
    let mark =
        |at: &AtLoad| Mark { interval: at.ratio.interval(), n: Some(at.ratio.n), ..(at.load, at.ratio.value).into() };
    let series: Vec<ChartSeries> = known
        .iter()
        .zip(["s1", "s2", "s3", "s4", "s5"])
        .enumerate()
        .map(|(at, (figure, class))| ChartSeries {
            name: figure.word.to_string(),
            class,
            line: figure.loads.iter().map(mark).collect(),
            is_dotted: true,
            has_whiskers: true,
            shift_px: (at as f64 - middle) * 4.0,
            ..ChartSeries::default()
        })
        .collect();
    let found: Vec<f64> = series.iter().flat_map(ChartSeries::ys).collect();
    let (low, high) = statistics::range(&found)?;
    // An interval wider than the range of all ratios would only flatten the chart.
    let ends = series.iter().flat_map(|one| &one.line).filter_map(|mark| mark.interval);
    let ends = ends.flat_map(|(from, to)| [from.max(low / 3.0), to.min(high * 3.0)]);
    let y_scale = Scale::ratios(ends.chain(found.iter().copied()));
    let x_scale = charts::load_scale(sweep, comparison.loads.iter().copied());
    let limit = |at: f64, label: String| LimitLine { label, at };
    let chart = Chart {
        description: compare::headline(comparison),
        limits: vec![
            limit(1.0, "no change".into()),
            // The labels would overlap.
            limit(1.0 + comparison.threshold_ratio, String::new()),
            limit(1.0 - comparison.threshold_ratio, String::new()),
        ],
        series,
        origin: "ratio of geometric means",
        interval_name: "95 % interval",
        ..Chart::empty("Ratios against load", charts::load_axis(sweep), &ratio, x_scale, y_scale)
    };
    let caption = format!(
        "{ratio} with 95 % intervals; higher throughput is better, and lower values of the others. n: repeats. Dashed: \
         no change, and the threshold on either side."
    );
    let title = if b == "B" { "B / A" } else { "Ratio" };
    Some(CaptionedChart { title, caption, chart })
}
