//! Charts as inline SVG: axes, lines, dots, stacked areas, zones, markers with intervals, direct labels. No font, no
//! external reference; colours come from classes that the page's style sheet defines, so that one chart serves light,
//! dark and print. Each place that was measured names its row in the chart's table ([`Chart::rows`]); the page's script
//! reads everything else there. Only what the report needs, in a few hundred lines, instead of a charting library:
//! those draw nothing without script, or draw raster-minded SVG with fixed colours.

mod labels;
mod markers;
mod rows;
mod scale;
mod svg;

pub use markers::Marker;
pub use rows::Row;
pub use scale::Scale;

use labels::spread;
use rows::SeriesRows;
use std::fmt::Write as _;
use svg::{Svg, text_width};

/// Text sizes in pixels; narrow and wide charts share them, so that a phone shows the same letters.
const TEXT_PX: f64 = 12.0;
/// Height of a lane of zones.
const LANE_PX: f64 = 18.0;

/// A place in a chart, and what a reader can ask about it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mark {
    /// In the scale of x.
    pub x: f64,
    /// In the scale of y.
    pub y: f64,
    /// From and to, in y; what it means is in [`Chart::interval_name`].
    pub interval: Option<(f64, f64)>,
    /// How many points, readings or requests it rests on.
    pub n: Option<u64>,
    /// How it was obtained; empty = as [`Chart::origin`] says.
    pub origin: &'static str,
    /// The point of the run that it is, if it is one.
    pub point: Option<u32>,
}

impl From<(f64, f64)> for Mark {
    fn from((x, y): (f64, f64)) -> Mark {
        Mark { x, y, ..Mark::default() }
    }
}

/// A load of the chart's x.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// In x.
    pub x: f64,
    /// Points that were measured there.
    pub points: u64,
    /// The element of the page that says more about it; empty = none.
    pub link: String,
}

/// A line with its dots.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Direct label at the line's right end; empty = none.
    pub name: String,
    /// Its name in the table; empty = the direct label, or the chart's title.
    pub long_name: &'static str,
    /// Class that gives the colour (`s1`, `p99`, ...).
    pub class: &'static str,
    /// The line, ascending in x.
    pub line: Vec<Mark>,
    /// Single measurements.
    pub dots: Vec<Mark>,
    /// Drawn dashed and thin: a reference, not a measurement.
    pub is_reference: bool,
    /// The places of the line are drawn as dots.
    pub is_dotted: bool,
    /// The intervals of the line are drawn.
    pub has_whiskers: bool,
    /// Drawn so many pixels to the right, so that intervals at one load stand side by side.
    pub shift_px: f64,
    /// Begins the links to its loads, where several runs are on a page.
    pub of: &'static str,
}

impl Series {
    /// Whether its numbers stand in the table; a reference without a name of its own is no measurement.
    fn is_measured(&self) -> bool {
        !self.is_reference || !self.long_name.is_empty()
    }

    /// The values of its line and dots.
    pub fn ys(&self) -> impl Iterator<Item = f64> {
        self.line.iter().chain(&self.dots).map(|mark| mark.y)
    }
}

/// A layer of a stack, from `low` to `high` at each x.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Direct label.
    pub name: String,
    /// Class that gives the colour.
    pub class: &'static str,
    /// (x, low, high), ascending in x.
    pub edges: Vec<(f64, f64, f64)>,
    /// Places in `edges` before which nothing is drawn: what lies there was not measured.
    pub gaps: Vec<usize>,
}

impl Layer {
    /// The runs of neighbouring edges, each drawn as a separate area.
    fn runs(&self) -> impl Iterator<Item = &[(f64, f64, f64)]> {
        let ends = self.gaps.iter().copied().filter(|at| *at < self.edges.len()).chain([self.edges.len()]);
        ends.scan(0, |from, end| {
            let run = &self.edges[*from..end.max(*from)];
            *from = end;
            Some(run)
        })
        .filter(|run| !run.is_empty())
    }
}

/// Values at `loads`, one upon the other: name, class, and a value for each load. A part that nothing is known of is
/// left out; so is a load at which a part is not known that others have, and there every layer has a gap.
pub fn stacked<N: Into<String>>(
    loads: &[f64],
    parts: impl IntoIterator<Item = (N, &'static str, Vec<Option<f64>>)>,
) -> Vec<Layer> {
    let shown: Vec<_> = parts.into_iter().filter(|(.., values)| values.iter().any(Option::is_some)).collect();
    let is_known = |at: &usize| shown.iter().all(|(.., values)| values[*at].is_some());
    let places: Vec<usize> = (0..loads.len()).filter(is_known).collect();
    // Before the n-th known load lies a gap when a load between it and the one before is not known.
    let gaps: Vec<usize> = (1..places.len()).filter(|n| places[*n] > places[*n - 1] + 1).collect();
    let mut floor = vec![0.0; places.len()];
    let layer = |(name, class, values): (N, &'static str, Vec<Option<f64>>)| {
        let edge = |(at, below): (&usize, &mut f64)| {
            let low = *below;
            *below += values[*at].unwrap_or(0.0);
            (loads[*at], low, *below)
        };
        let edges = places.iter().zip(&mut floor).map(edge).collect();
        Layer { name: name.into(), class, edges, gaps: gaps.clone() }
    };
    shown.into_iter().map(layer).collect()
}

/// The upper edges.
pub fn tops(layers: &[Layer]) -> impl Iterator<Item = f64> {
    layers.iter().flat_map(|layer| &layer.edges).map(|(.., high)| *high)
}

/// A shaded range of x with its name above.
#[derive(Debug, Clone)]
pub struct Band {
    /// Written above the plot where it fits.
    pub name: &'static str,
    /// Class that gives the colour.
    pub class: &'static str,
    /// From and to, in x.
    pub range: (f64, f64),
    /// Drawn so wide at least, in pixels; what is narrower than half a pixel is left out.
    pub least_px: f64,
}

/// A horizontal limit.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Written on the line.
    pub label: String,
    /// In y.
    pub at: f64,
}

/// Everything of a chart but its size.
#[derive(Debug, Clone)]
pub struct Chart {
    /// What it shows, for readers that do not see it.
    pub title: String,
    /// A description, in a sentence or two.
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
    /// Zones of several runs, each in a lane above the plot, with the run's name.
    pub lanes: Vec<(&'static str, Vec<Band>)>,
    /// Yield and failure points.
    pub markers: Vec<Marker>,
    /// A limit that was set.
    pub limits: Vec<Limit>,
    /// Stacked layers, below the lines.
    pub layers: Vec<Layer>,
    /// Lines and dots.
    pub series: Vec<Series>,
    /// Unit of y, in the table.
    pub unit: &'static str,
    /// How lines and layers were obtained.
    pub origin: &'static str,
    /// What the intervals of lines are.
    pub interval_name: &'static str,
    /// The loads.
    pub loads: Vec<Load>,
}

/// Room for labels on either side of the plot, in pixels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Margins {
    /// For the vertical axis's ticks.
    pub left: f64,
    /// For the series' names.
    pub right: f64,
}

impl Margins {
    /// Enough for both.
    pub fn max(self, other: Margins) -> Margins {
        Margins { left: self.left.max(other.left), right: self.right.max(other.right) }
    }
}

/// The plot's rectangle inside the picture.
#[derive(Debug, Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Chart {
    /// Axes with nothing in between yet.
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

    /// The room that this chart's labels need beside the plot.
    pub fn margins(&self, height: f64) -> Margins {
        let ticks = self.y_ticks(height);
        let left = ticks.iter().map(|(_, label)| text_width(label, TEXT_PX)).fold(16.0, f64::max);
        let named = self.series.iter().map(|s| &s.name).chain(self.layers.iter().map(|layer| &layer.name));
        // Without names half of the last tick's label still needs its place.
        let right = named.map(|name| text_width(name, TEXT_PX)).fold(8.0, f64::max);
        Margins { left: left + 10.0, right: right + 12.0 }
    }

    fn y_ticks(&self, height: f64) -> Vec<(f64, String)> {
        self.y.ticks((height / 52.0).clamp(3.0, 8.0) as usize)
    }

    /// Draws the chart `width` x `height` pixels large; `id` must be unique in the page. Charts drawn with the same
    /// margins have their plots one below the other.
    pub fn svg(&self, id: &str, width: f64, height: f64, margins: Margins) -> String {
        let y_ticks = self.y_ticks(height);
        let markers = self.place_markers(margins.left, width - margins.right);
        let marker_rows = markers.iter().filter_map(|placed| placed.row).max().map_or(0.0, |row| row as f64 + 1.0);
        let zone_room = match (self.lanes.len(), self.bands.is_empty()) {
            (0, true) => 6.0,
            (0, false) => 18.0,
            (lanes, _) => LANE_PX * lanes as f64 + 4.0,
        };
        let frame = Frame {
            left: margins.left,
            right: width - margins.right,
            top: 20.0 + marker_rows * 15.0 + zone_room,
            bottom: height - 38.0,
        };
        let plot = [frame.left, frame.top - zone_room, frame.right, frame.bottom];
        let mut svg = Svg::new(id, (width, height), &self.title, &self.description, plot);
        let mut rows = self.rows_by_series().into_iter();
        svg.group("plot", |svg| {
            self.bands(svg, frame, &self.bands, (frame.top - zone_room, frame.bottom));
            for (at, (_, bands)) in self.lanes.iter().enumerate() {
                let top = frame.top - zone_room + LANE_PX * at as f64;
                self.bands(svg, frame, bands, (top, top + LANE_PX - 2.0));
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

    fn x_px(&self, frame: Frame, value: f64) -> Option<f64> {
        Some(frame.left + self.x.place(value)? * (frame.right - frame.left))
    }

    fn y_px(&self, frame: Frame, value: f64) -> Option<f64> {
        Some(frame.bottom - self.y.place(value)?.clamp(-0.02, 1.02) * (frame.bottom - frame.top))
    }

    fn xy(&self, frame: Frame, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.x_px(frame, x)?, self.y_px(frame, y)?))
    }

    fn bands(&self, svg: &mut Svg, frame: Frame, bands: &[Band], (top, bottom): (f64, f64)) {
        for band in bands {
            let ends = (self.x.clamp(band.range.0), self.x.clamp(band.range.1));
            let (Some(from), Some(to)) = (self.x_px(frame, ends.0), self.x_px(frame, ends.1)) else { continue };
            let to = to.max(from + band.least_px);
            if to - from < 0.5 {
                continue;
            }
            svg.rect(from, top, to - from, bottom - top, &format!("zone {}", band.class), "");
            if text_width(band.name, TEXT_PX - 1.0) + 6.0 <= to - from {
                svg.text((from + to) / 2.0, top + 13.0, "middle", "zone-name", band.name);
            }
        }
    }

    fn axes(&self, svg: &mut Svg, frame: Frame, y_ticks: &[(f64, String)], width: f64) {
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

    fn stack(&self, svg: &mut Svg, frame: Frame, rows: &mut impl Iterator<Item = SeriesRows>) {
        /// Half the width of a load that stands alone between gaps, in pixels.
        const ALONE_PX: f64 = 3.0;
        for layer in &self.layers {
            let of = if layer.name.is_empty() { None } else { rows.next() };
            let mut first = of.as_ref().map_or(0, |of| of.first);
            for run in layer.runs() {
                let low: Vec<(f64, f64)> = run.iter().filter_map(|(x, low, _)| self.xy(frame, (*x, *low))).collect();
                let high: Vec<(f64, f64)> = run.iter().filter_map(|(x, _, high)| self.xy(frame, (*x, *high))).collect();
                // A place that the scale cannot show leaves no corner, so corners and rows would part.
                let is_whole = high.len() == run.len();
                let data = of.as_ref().filter(|_| is_whole).map(|of| of.data(first..first + run.len()));
                let data = data.unwrap_or_default();
                first += run.len();
                if let ([low], [high], false) = (low.as_slice(), high.as_slice(), layer.gaps.is_empty()) {
                    let height = (low.1 - high.1).max(0.0);
                    svg.rect(
                        low.0 - ALONE_PX,
                        high.1,
                        2.0 * ALONE_PX,
                        height,
                        &format!("layer {}", layer.class),
                        &data,
                    );
                    continue;
                }
                let path = path(high.into_iter().chain(low.into_iter().rev()));
                if !path.is_empty() {
                    svg.path(&format!("{path}Z"), &format!("layer {}", layer.class), &data);
                }
            }
        }
    }

    fn limits(&self, svg: &mut Svg, frame: Frame) {
        for limit in &self.limits {
            let inside = self.y.place(limit.at).is_some_and(|place| (0.0..=1.0).contains(&place));
            if let Some(y) = self.y_px(frame, limit.at).filter(|_| inside) {
                svg.line(frame.left, y, frame.right, y, "limit");
                svg.text(frame.left + 5.0, y - 4.0, "start", "limit-name halo", &limit.label);
            }
        }
    }

    fn lines(&self, svg: &mut Svg, frame: Frame, rows: impl Iterator<Item = SeriesRows>) {
        let rows: Vec<SeriesRows> = rows.collect();
        for (series, of) in self.series.iter().zip(&rows) {
            let (dots, first) = match series.is_dotted {
                true => (&series.line, of.first),
                false => (&series.dots, of.first + series.line.len()),
            };
            for (row, dot) in (first..).zip(dots) {
                if let Some((x, y)) = self.xy(frame, (dot.x, dot.y)) {
                    svg.dot(x + series.shift_px, y, &format!("dot {}", series.class), &of.data(row..row + 1));
                }
            }
        }
        for (series, of) in self.series.iter().zip(&rows) {
            let place = |mark: &Mark, y: f64| {
                let (x, y) = self.xy(frame, (mark.x, y))?;
                Some((x + series.shift_px, y))
            };
            let shown: Vec<(f64, f64)> = series.line.iter().filter_map(|mark| place(mark, mark.y)).collect();
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

    /// Names at the right ends, pushed apart where they would overlap.
    fn names(&self, svg: &mut Svg, frame: Frame) {
        let mut wanted: Vec<(f64, &str, String, String)> = Vec::new();
        let mut rows = self.rows_by_series().into_iter();
        let of_layers: Vec<SeriesRows> =
            rows.by_ref().take(self.layers.iter().filter(|layer| !layer.name.is_empty()).count()).collect();
        for (series, of) in self.series.iter().zip(rows).filter(|(series, _)| !series.name.is_empty()) {
            if let Some((_, y)) = series.line.iter().rev().find_map(|mark| self.xy(frame, (mark.x, mark.y))) {
                wanted.push((y, &series.name, format!("name {}", series.class), of.data(0..0)));
            }
        }
        for (layer, of) in self.layers.iter().filter(|layer| !layer.name.is_empty()).zip(of_layers) {
            let middle = layer.edges.last().and_then(|(x, low, high)| self.xy(frame, (*x, (low + high) / 2.0)));
            if let Some((_, y)) = middle {
                wanted.push((y, &layer.name, format!("name {}", layer.class), of.data(0..0)));
            }
        }
        let ys =
            spread(&wanted.iter().map(|(y, ..)| *y).collect::<Vec<_>>(), 14.0, frame.top + 6.0, frame.bottom - 2.0);
        for (y, (_, name, class, data)) in ys.into_iter().zip(&wanted) {
            svg.name(frame.right + 7.0, y + 4.0, class, data, name);
        }
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (at, (x, y)) in points.enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
    }
    path
}
