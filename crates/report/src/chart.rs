//! Charts as inline SVG: axes, lines, dots, stacked areas, zones, markers, labels. No font and no external file is
//! needed; colours come from classes of the page's style sheet, so one chart serves light, dark and print. Each mark
//! names its row in the chart's table ([`Chart::rows`]), from which the page's script reads the details. A charting
//! library would need script, or fixed colours.

mod labels;
mod markers;
mod rows;
mod scale;
mod svg;

pub use labels::spread;
pub use markers::Marker;
pub use rows::ChartRow;
pub use scale::Scale;

use rows::SeriesRows;
use std::fmt::Write as _;
use std::ops::Range;
use svg::{Svg, text_width};

/// Text sizes in pixels, equal in narrow and wide charts, so that a phone shows the same letters.
const TEXT_PX: f64 = 12.0;
/// Height of a lane of zones.
const LANE_PX: f64 = 18.0;

/// A point of a chart, with the details that the page shows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mark {
    /// In units of the x axis.
    pub x: f64,
    /// In units of the y axis.
    pub y: f64,
    /// Lower and upper end in y; [`Chart::interval_name`] names the interval.
    pub interval: Option<(f64, f64)>,
    /// Number of points, readings or requests used.
    pub n: Option<u64>,
    /// Origin of the value; empty = as in [`Chart::origin`].
    pub origin: &'static str,
    /// Index of the run's point, if the mark is one.
    pub point: Option<u32>,
}

impl From<(f64, f64)> for Mark {
    fn from((x, y): (f64, f64)) -> Mark {
        Mark { x, y, ..Mark::default() }
    }
}

/// A measured load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeasuredLoad {
    /// Position on the x axis.
    pub x: f64,
    /// Number of points measured at the load.
    pub points: u64,
    /// Id of the page's element with its details; empty = none.
    pub link: String,
}

/// A line with its dots.
#[derive(Debug, Clone, Default)]
pub struct ChartSeries {
    /// Label at the line's right end; empty = none.
    pub name: String,
    /// Name in the table; empty = the label, or the chart's title.
    pub long_name: &'static str,
    /// CSS class for the colour (`s1`, `p99`, ...).
    pub class: &'static str,
    /// The line, ascending in x.
    pub line: Vec<Mark>,
    /// Single measurements.
    pub dots: Vec<Mark>,
    /// Whether it is a reference, not a measurement: drawn dashed and thin.
    pub is_reference: bool,
    /// Whether the line's marks are drawn as dots.
    pub is_dotted: bool,
    /// Whether the line's intervals are drawn.
    pub has_whiskers: bool,
    /// Shift to the right in pixels, so that intervals at the same load do not overlap.
    pub shift_px: f64,
    /// Prefix of the links to its loads, if a page has several runs.
    pub of: &'static str,
}

impl ChartSeries {
    /// Whether its numbers are in the table. A reference without a name is not a measurement.
    fn is_measured(&self) -> bool {
        !self.is_reference || !self.long_name.is_empty()
    }

    /// The values of the line and the dots.
    pub fn ys(&self) -> impl Iterator<Item = f64> {
        self.line.iter().chain(&self.dots).map(|mark| mark.y)
    }
}

/// The edges of a layer at one x.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// In units of the x axis.
    pub x: f64,
    /// Lower edge, in units of the y axis.
    pub low: f64,
    /// Upper edge.
    pub high: f64,
}

/// A layer of a stack.
#[derive(Debug, Clone)]
pub struct ChartLayer {
    /// Label of the layer.
    pub name: String,
    /// CSS class for the colour.
    pub class: &'static str,
    /// Edges, ascending in x.
    pub edges: Vec<Edge>,
    /// Indices in `edges` that follow a gap without measurements.
    pub gaps: Vec<usize>,
}

impl ChartLayer {
    /// The parts between gaps, each drawn as a separate area.
    fn runs(&self) -> impl Iterator<Item = &[Edge]> {
        let ends = self.gaps.iter().copied().filter(|at| *at < self.edges.len()).chain([self.edges.len()]);
        ends.scan(0, |from, end| {
            let run = &self.edges[*from..end.max(*from)];
            *from = end;
            Some(run)
        })
        .filter(|run| !run.is_empty())
    }
}

/// The area of the marks' intervals in a lighter colour, without a name; `None` unless all have one.
pub fn shaded(marks: &[Mark], class: &str) -> Option<ChartLayer> {
    let edge = |mark: &Mark| mark.interval.map(|(low, high)| Edge { x: mark.x, low, high });
    let edges: Vec<Edge> = marks.iter().map(edge).collect::<Option<_>>()?;
    let class = match class {
        "s1" => "spread1",
        "s2" => "spread2",
        "s3" => "spread3",
        _ => "spread4",
    };
    (!edges.is_empty()).then(|| ChartLayer { name: String::new(), class, edges, gaps: Vec::new() })
}

/// Stacks layers of `parts`: name, class, and a value for each load. A part without any value is left out. A load
/// without a value of some part becomes a gap in every layer.
pub fn stacked<N: Into<String>>(
    loads: &[f64],
    parts: impl IntoIterator<Item = (N, &'static str, Vec<Option<f64>>)>,
) -> Vec<ChartLayer> {
    let shown: Vec<_> = parts.into_iter().filter(|(.., values)| values.iter().any(Option::is_some)).collect();
    let is_known = |at: &usize| shown.iter().all(|(.., values)| values[*at].is_some());
    let places: Vec<usize> = (0..loads.len()).filter(is_known).collect();
    // A gap precedes the n-th known load if a load between it and its predecessor is not known.
    let gaps: Vec<usize> = (1..places.len()).filter(|n| places[*n] > places[*n - 1] + 1).collect();
    let mut floor = vec![0.0; places.len()];
    let layer = |(name, class, values): (N, &'static str, Vec<Option<f64>>)| {
        let edge = |(at, below): (&usize, &mut f64)| {
            let low = *below;
            *below += values[*at].unwrap_or(0.0);
            Edge { x: loads[*at], low, high: *below }
        };
        let edges = places.iter().zip(&mut floor).map(edge).collect();
        ChartLayer { name: name.into(), class, edges, gaps: gaps.clone() }
    };
    shown.into_iter().map(layer).collect()
}

/// The upper edges.
pub fn tops(layers: &[ChartLayer]) -> impl Iterator<Item = f64> {
    layers.iter().flat_map(|layer| &layer.edges).map(|edge| edge.high)
}

/// A shaded range of x with its name above.
#[derive(Debug, Clone)]
pub struct Band {
    /// Written above the plot if there is room.
    pub name: &'static str,
    /// CSS class for the colour.
    pub class: &'static str,
    /// Range on the x axis.
    pub range: Range<f64>,
    /// Minimum width in pixels. A band narrower than half a pixel is not drawn.
    pub least_px: f64,
}

/// A horizontal limit.
#[derive(Debug, Clone)]
pub struct LimitLine {
    /// Written on the line.
    pub label: String,
    /// Position on the y axis.
    pub at: f64,
}

/// All data of a chart, without its size.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers, in a sentence or two.
    pub description: String,
    /// Name and unit of the horizontal axis.
    pub x_name: String,
    /// Name and unit of the vertical axis.
    pub y_name: String,
    /// Horizontal scale.
    pub x: Scale,
    /// Vertical scale.
    pub y: Scale,
    /// Zones.
    pub bands: Vec<Band>,
    /// Zones of several runs: the run's name and its bands, drawn in a lane above the plot.
    pub lanes: Vec<(&'static str, Vec<Band>)>,
    /// Yield and failure points.
    pub markers: Vec<Marker>,
    /// Limits that the user set.
    pub limits: Vec<LimitLine>,
    /// Stacked layers, drawn below the lines.
    pub layers: Vec<ChartLayer>,
    /// Lines and dots.
    pub series: Vec<ChartSeries>,
    /// Unit of the y axis, for the table.
    pub unit: &'static str,
    /// Origin of lines and layers.
    pub origin: &'static str,
    /// Meaning of the lines' intervals.
    pub interval_name: &'static str,
    /// The loads of the chart.
    pub loads: Vec<MeasuredLoad>,
}

/// Size of a picture, in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Width of the picture.
    pub width: f64,
    /// Height of the picture.
    pub height: f64,
}

/// Space for labels around the plot, in pixels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Margins {
    /// For the ticks of the vertical axis.
    pub left: f64,
    /// For the series' names.
    pub right: f64,
}

impl Margins {
    /// The larger margin on each side.
    pub fn max(self, other: Margins) -> Margins {
        Margins { left: self.left.max(other.left), right: self.right.max(other.right) }
    }
}

/// The plot's rectangle inside the picture.
#[derive(Debug, Clone, Copy)]
struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// A place in the picture.
#[derive(Clone, Copy)]
struct Pixel {
    x: f64,
    y: f64,
}

impl Chart {
    /// Axes without content.
    pub fn empty(title: &str, x_name: &str, y_name: &str, x: Scale, y: Scale) -> Chart {
        Chart {
            title: title.into(),
            description: String::new(),
            x_name: x_name.into(),
            y_name: y_name.into(),
            x,
            y,
            bands: Vec::new(),
            lanes: Vec::new(),
            markers: Vec::new(),
            limits: Vec::new(),
            layers: Vec::new(),
            series: Vec::new(),
            unit: "",
            origin: "",
            interval_name: "range",
            loads: Vec::new(),
        }
    }

    /// The space needed by this chart's labels.
    pub fn margins(&self, height: f64) -> Margins {
        let ticks = self.y_ticks(height);
        let left = ticks.iter().map(|(_, label)| text_width(label, TEXT_PX)).fold(16.0, f64::max);
        let named = self.series.iter().map(|s| &s.name).chain(self.layers.iter().map(|layer| &layer.name));
        // Half of the last tick's label needs space even without names.
        let right = named.map(|name| text_width(name, TEXT_PX)).fold(8.0, f64::max);
        Margins { left: left + 10.0, right: right + 12.0 }
    }

    fn y_ticks(&self, height: f64) -> Vec<(f64, String)> {
        self.y.ticks((height / 52.0).clamp(3.0, 8.0) as usize)
    }

    /// Draws the chart. `id` must be unique in the page. Charts with the same margins have
    /// plots of the same width.
    pub fn svg(&self, id: &str, size: Size, margins: Margins) -> String {
        let Size { width, height } = size;
        let y_ticks = self.y_ticks(height);
        let markers = self.place_markers(margins.left, width - margins.right);
        let marker_rows = markers.iter().filter_map(|placed| placed.row).max().map_or(0.0, |row| row as f64 + 1.0);
        let zone_room = match (self.lanes.len(), self.bands.is_empty()) {
            (0, true) => 6.0,
            (0, false) => 18.0,
            (lanes, _) => LANE_PX * lanes as f64 + 4.0,
        };
        let frame = PlotArea {
            left: margins.left,
            right: width - margins.right,
            top: 20.0 + marker_rows * 15.0 + zone_room,
            bottom: height - 38.0,
        };
        let plot = [frame.left, frame.top - zone_room, frame.right, frame.bottom];
        let mut svg = Svg::new(id, size, &self.title, &self.description, plot);
        let mut rows = self.rows_by_series().into_iter();
        svg.group("plot", |svg| {
            self.bands(svg, PlotArea { top: frame.top - zone_room, ..frame }, &self.bands);
            for (at, (_, bands)) in self.lanes.iter().enumerate() {
                let top = frame.top - zone_room + LANE_PX * at as f64;
                self.bands(svg, PlotArea { top, bottom: top + LANE_PX - 2.0, ..frame }, bands);
            }
        });
        for (at, (name, _)) in self.lanes.iter().enumerate() {
            let y = frame.top - zone_room + LANE_PX * at as f64 + 13.0;
            svg.text(frame.left - 6.0, y, "end", "tick", name);
        }
        self.axes(&mut svg, frame, &y_ticks, width);
        svg.group("plot", |svg| self.stack(svg, frame, &mut rows));
        self.limits(&mut svg, frame);
        svg.group("plot", |svg| {
            self.lines(svg, frame, rows);
            self.markers(svg, frame, &markers);
        });
        self.names(&mut svg, frame);
        svg.finish()
    }

    fn x_px(&self, frame: PlotArea, value: f64) -> Option<f64> {
        Some(frame.left + self.x.place(value)? * (frame.right - frame.left))
    }

    fn y_px(&self, frame: PlotArea, value: f64) -> Option<f64> {
        Some(frame.bottom - self.y.place(value)?.clamp(-0.02, 1.02) * (frame.bottom - frame.top))
    }

    fn pixel(&self, frame: PlotArea, x: f64, y: f64) -> Option<Pixel> {
        Some(Pixel { x: self.x_px(frame, x)?, y: self.y_px(frame, y)? })
    }

    fn bands(&self, svg: &mut Svg, frame: PlotArea, bands: &[Band]) {
        for band in bands {
            let ends = (self.x.clamp(band.range.start), self.x.clamp(band.range.end));
            let (Some(from), Some(to)) = (self.x_px(frame, ends.0), self.x_px(frame, ends.1)) else { continue };
            let to = to.max(from + band.least_px);
            if to - from < 0.5 {
                continue;
            }
            svg.rect(from, frame.top, to - from, frame.bottom - frame.top, &format!("zone {}", band.class), "");
            if text_width(band.name, TEXT_PX - 1.0) + 6.0 <= to - from {
                svg.text((from + to) / 2.0, frame.top + 13.0, "middle", "zone-name", band.name);
            }
        }
    }

    fn axes(&self, svg: &mut Svg, frame: PlotArea, y_ticks: &[(f64, String)], width: f64) {
        for (value, label) in y_ticks {
            if let Some(y) = self.y_px(frame, *value) {
                svg.line(frame.left, y, frame.right, y, "grid");
                svg.text(frame.left - 6.0, y + 4.0, "end", "tick", label);
            }
        }
        let widest = self.x.ticks(12).iter().map(|(_, label)| text_width(label, TEXT_PX)).fold(20.0, f64::max);
        let room = ((frame.right - frame.left) / (widest + 14.0)).max(2.0) as usize;
        let mut taken = f64::NEG_INFINITY;
        svg.group("x-ticks", |svg| {
            for (value, label) in self.x.ticks(room) {
                let Some(x) = self.x_px(frame, value) else { continue };
                svg.line(x, frame.bottom, x, frame.bottom + 4.0, "axis");
                let half = text_width(&label, TEXT_PX) / 2.0;
                if x - half >= taken && x + half <= width {
                    svg.text(x, frame.bottom + 17.0, "middle", "tick", &label);
                    taken = x + half + 6.0;
                }
            }
        });
        svg.line(frame.left, frame.bottom, frame.right, frame.bottom, "axis");
        svg.text(2.0, 12.0, "start", "axis-name", &self.y_name);
        svg.text((frame.left + frame.right) / 2.0, frame.bottom + 33.0, "middle", "axis-name", &self.x_name);
    }

    fn stack(&self, svg: &mut Svg, frame: PlotArea, rows: &mut impl Iterator<Item = SeriesRows>) {
        /// Half the width of a load between two gaps, in pixels.
        const ALONE_PX: f64 = 3.0;
        for layer in &self.layers {
            let of = if layer.name.is_empty() { None } else { rows.next() };
            let class = format!("layer {}", layer.class);
            let mut first = of.as_ref().map_or(0, |of| of.first);
            for run in layer.runs() {
                let low: Vec<Pixel> = run.iter().filter_map(|edge| self.pixel(frame, edge.x, edge.low)).collect();
                let high: Vec<Pixel> = run.iter().filter_map(|edge| self.pixel(frame, edge.x, edge.high)).collect();
                // A point outside the scale has no corner, so corners would not match rows.
                let is_whole = high.len() == run.len();
                let data = of.as_ref().filter(|_| is_whole).map(|of| of.data(first..first + run.len()));
                let data = data.unwrap_or_default();
                first += run.len();
                if let ([low], [high], false) = (low.as_slice(), high.as_slice(), layer.gaps.is_empty()) {
                    let height = (low.y - high.y).max(0.0);
                    svg.rect(low.x - ALONE_PX, high.y, 2.0 * ALONE_PX, height, &class, &data);
                    continue;
                }
                let path = path(high.into_iter().chain(low.into_iter().rev()));
                if !path.is_empty() {
                    svg.path(&format!("{path}Z"), &class, &data);
                }
            }
        }
    }

    fn limits(&self, svg: &mut Svg, frame: PlotArea) {
        for limit in &self.limits {
            let inside = self.y.place(limit.at).is_some_and(|place| (0.0..=1.0).contains(&place));
            if let Some(y) = self.y_px(frame, limit.at).filter(|_| inside) {
                svg.line(frame.left, y, frame.right, y, "limit");
                svg.text(frame.left + 5.0, y - 4.0, "start", "limit-name halo", &limit.label);
            }
        }
    }

    fn lines(&self, svg: &mut Svg, frame: PlotArea, rows: impl Iterator<Item = SeriesRows>) {
        let rows: Vec<SeriesRows> = rows.collect();
        for (series, of) in self.series.iter().zip(&rows) {
            let (dots, first) =
                if series.is_dotted { (&series.line, of.first) } else { (&series.dots, of.first + series.line.len()) };
            for (row, dot) in (first..).zip(dots) {
                if let Some(Pixel { x, y }) = self.pixel(frame, dot.x, dot.y) {
                    svg.circle(x + series.shift_px, y, 2.2, &format!("dot {}", series.class), &of.data(row..row + 1));
                }
            }
        }
        for (series, of) in self.series.iter().zip(&rows) {
            let place = |mark: &Mark, y: f64| {
                let Pixel { x, y } = self.pixel(frame, mark.x, y)?;
                Some(Pixel { x: x + series.shift_px, y })
            };
            let shown: Vec<Pixel> = series.line.iter().filter_map(|mark| place(mark, mark.y)).collect();
            for mark in series.line.iter().filter(|_| series.has_whiskers) {
                let ends = mark.interval.and_then(|(low, high)| Some([place(mark, low)?, place(mark, high)?]));
                if let Some(ends) = ends {
                    svg.path(&path(ends.into_iter()), &format!("line thin {}", series.class), &of.data(0..0));
                }
            }
            let is_whole = shown.len() == series.line.len() && series.is_measured();
            let data = if is_whole { of.data(of.first..of.first + shown.len()) } else { of.data(0..0) };
            let line = path(shown.into_iter());
            if !line.is_empty() {
                let kind = if series.is_reference { "reference" } else { "line" };
                svg.path(&line, &format!("{kind} {}", series.class), &data);
            }
        }
    }

    /// Draws names at the right ends of lines and layers, moved apart if they would overlap.
    fn names(&self, svg: &mut Svg, frame: PlotArea) {
        let layers = self.layers.iter().filter(|layer| !layer.name.is_empty()).map(|layer| {
            let middle = |edge: &Edge| self.pixel(frame, edge.x, (edge.low + edge.high) / 2.0);
            (&layer.name, layer.class, layer.edges.last().and_then(middle))
        });
        let series = self.series.iter().map(|series| {
            let last = series.line.iter().rev().find_map(|mark| self.pixel(frame, mark.x, mark.y));
            (&series.name, series.class, last)
        });
        let named = layers.chain(series).zip(self.rows_by_series()).filter(|((name, ..), _)| !name.is_empty());
        let wanted: Vec<_> =
            named.filter_map(|((name, class, end), of)| Some((end?.y, name, class, of.data(0..0)))).collect();
        let ys: Vec<f64> = wanted.iter().map(|(y, ..)| *y).collect();
        let ys = spread(&ys, 14.0, frame.top + 6.0, frame.bottom - 2.0);
        for (y, (_, name, class, data)) in ys.into_iter().zip(&wanted) {
            svg.name(frame.right + 7.0, y + 4.0, &format!("name {class}"), data, name);
        }
    }
}

fn path(points: impl Iterator<Item = Pixel>) -> String {
    let mut path = String::new();
    for (at, Pixel { x, y }) in points.enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
    }
    path
}
