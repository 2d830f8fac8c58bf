//! A chart's numbers as a table, which the page shows and copies.

use super::{Chart, ChartSeries, Mark, MeasuredLoad, Scale};
use crate::text::number;
use record::text::plain;
use record::units::{count, format_nanos, grouped};
use serde::Serialize;
use std::ops::Range;

const NAME_CHARS: usize = 60;

/// A row of a chart's table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChartRow {
    /// The series or layer.
    pub series: String,
    /// Value on the x axis.
    pub x: RoundedNumber,
    /// Value on the y axis.
    pub y: RoundedNumber,
    /// Lower end of the interval, if there is one.
    pub low: Option<RoundedNumber>,
    /// Upper end of the interval, if there is one.
    pub high: Option<RoundedNumber>,
    /// Number of points, readings or requests used; empty = unknown.
    pub n: String,
    /// Origin of the value.
    pub origin: String,
    /// Id of the page's element with details; empty = none.
    pub link: String,
}

/// A number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundedNumber {
    /// Rounded, for readers.
    pub words: String,
    /// All digits, for programs.
    pub exact: String,
}

pub(super) struct SeriesRows {
    at: usize,
    /// Index of its first row.
    pub first: usize,
}

impl SeriesRows {
    /// Attributes of an element that draws these rows. An empty range is an element of the series without numbers of
    /// its own.
    pub fn data(&self, rows: Range<usize>) -> String {
        let series = format!(" data-series=\"{}\"", self.at);
        if rows.is_empty() { series } else { format!("{series} data-rows=\"{} {}\"", rows.start, rows.len()) }
    }
}

impl Chart {
    /// The named layers, then the series, in the order of [`rows`](Self::rows).
    pub(super) fn rows_by_series(&self) -> Vec<SeriesRows> {
        let layers = self.layers.iter().filter(|layer| !layer.name.is_empty()).map(|layer| layer.edges.len());
        let of_series =
            |series: &ChartSeries| if series.is_measured() { series.line.len() + series.dots.len() } else { 0 };
        let series = self.series.iter().map(of_series);
        let mut first = 0;
        let place = |(at, rows): (usize, usize)| {
            first += rows;
            SeriesRows { at, first: first - rows }
        };
        layers.chain(series).enumerate().map(place).collect()
    }

    /// Every number in the chart: layers from the lowest up, then each series' line and dots. A reference has no row.
    pub fn rows(&self) -> Vec<ChartRow> {
        let mut rows = Vec::new();
        for layer in self.layers.iter().filter(|layer| !layer.name.is_empty()) {
            let marks = layer.edges.iter().map(|edge| Mark::from((edge.x, edge.high - edge.low)));
            rows.extend(marks.map(|mark| self.row(&layer.name, &mark, "")));
        }
        for series in self.series.iter().filter(|series| series.is_measured()) {
            let named = [series.long_name, &series.name].into_iter().find(|name| !name.is_empty());
            let name = named.map_or_else(|| self.series_name(), str::to_string);
            rows.extend(series.line.iter().chain(&series.dots).map(|mark| self.row(&name, mark, series.of)));
        }
        rows
    }

    fn series_name(&self) -> String {
        let title = self.title.split(" against ").next().unwrap_or_default();
        title.strip_suffix(" of both").unwrap_or(title).to_string()
    }

    fn row(&self, series: &str, mark: &Mark, of: &str) -> ChartRow {
        let load = self.loads.iter().find(|load| load.x == mark.x);
        let y = |value: f64| RoundedNumber { words: self.y_words(value), exact: value.to_string() };
        let points = |load: &MeasuredLoad| (load.points > 0).then(|| count(load.points, "point"));
        let origin = if mark.origin.is_empty() { self.origin } else { mark.origin };
        let (n, origin) = match mark.point {
            Some(point) => (mark.n.map(|n| grouped(n as f64)), format!("{origin}, point {point:03}")),
            None => (mark.n.map(|n| count(n, "point")).or_else(|| load.and_then(points)), origin.to_string()),
        };
        ChartRow {
            series: plain(series, NAME_CHARS),
            x: RoundedNumber { words: self.x.exactly(mark.x), exact: mark.x.to_string() },
            y: y(mark.y),
            low: mark.interval.map(|(low, _)| y(low)),
            high: mark.interval.map(|(_, high)| y(high)),
            n: n.unwrap_or_default(),
            origin: origin.trim_start_matches(", ").to_string(),
            link: load
                .filter(|load| !load.link.is_empty())
                .map(|load| format!("{of}{}", load.link))
                .unwrap_or_default(),
        }
    }

    fn y_words(&self, value: f64) -> String {
        if self.unit == "us" { format_nanos(value * 1e3) } else { number(value) }
    }
}

impl Scale {
    /// A value with enough digits to distinguish it from the next.
    fn exactly(&self, value: f64) -> String {
        match self {
            Scale::Nines { .. } => {
                let decimals = (-(1.0 - value).log10()).ceil().clamp(1.0, 7.0) as usize;
                format!("{:.decimals$} %", value * 100.0)
            }
            Scale::Linear { words, .. } | Scale::Log { words, .. } => words(value),
        }
    }
}
