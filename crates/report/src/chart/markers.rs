//! Estimates and events as vertical lines, with their labels above the plot.

use super::svg::{Svg, text_width};
use super::{Chart, PlotArea, TEXT_PX};

/// Maximum rows of labels, each of which takes height from the plot.
const MARKER_ROWS: usize = 3;

/// A vertical line at an estimate or event, with its interval.
#[derive(Debug, Clone)]
pub struct Marker {
    /// Written above the plot.
    pub label: String,
    /// Position of the estimate on the x axis.
    pub at: f64,
    /// Interval of the estimate; `None` = not bounded on that side.
    pub interval: (Option<f64>, Option<f64>),
}

pub(super) struct PlacedMarker {
    x: f64,
    anchor: &'static str,
    /// Row from the top; `None` = the label is not drawn.
    pub(super) row: Option<usize>,
}

impl Chart {
    pub(super) fn markers(&self, svg: &mut Svg, frame: PlotArea, placed: &[PlacedMarker]) {
        for (marker, place) in self.markers.iter().zip(placed) {
            let Some(x) = self.x_px(frame, self.x.clamp(marker.at)) else { continue };
            let label_y = place.row.map(|row| 20.0 + 15.0 * row as f64 + 11.0);
            svg.line(x, label_y.map_or(frame.top, |y| y + 3.0), x, frame.bottom, "marker");
            let whisker_y = frame.top + 7.0;
            let low = self.x_px(frame, self.x.clamp(marker.interval.0.unwrap_or(f64::MIN_POSITIVE))).unwrap_or(x);
            let high = self.x_px(frame, self.x.clamp(marker.interval.1.unwrap_or(f64::MAX))).unwrap_or(x);
            svg.rect(low, frame.top, (high - low).max(0.0), frame.bottom - frame.top, "interval", "");
            svg.line(low, whisker_y, high, whisker_y, "whisker");
            for (end, bound) in [(low, marker.interval.0), (high, marker.interval.1)] {
                if bound.is_some() {
                    svg.line(end, whisker_y - 4.0, end, whisker_y + 4.0, "whisker");
                }
            }
            svg.circle(x, whisker_y, 3.0, "whisker-dot", "");
            if let Some(y) = label_y {
                svg.text(place.x, y, place.anchor, "marker-name halo", &marker.label);
            }
        }
    }

    /// Places labels next to their lines, in another row if they would touch. A label without room is not drawn.
    pub(super) fn place_markers(&self, left: f64, right: f64) -> Vec<PlacedMarker> {
        let frame = PlotArea { left, right, top: 0.0, bottom: 1.0 };
        let mut taken: Vec<(usize, f64, f64)> = Vec::new();
        let mut placed = Vec::new();
        for marker in &self.markers {
            let x = self.x_px(frame, self.x.clamp(marker.at)).unwrap_or(left);
            let wide = text_width(&marker.label, TEXT_PX);
            let fits_right = x + 4.0 + wide <= right + 8.0;
            let fits_left = x - 4.0 - wide >= 0.0;
            let (anchor, x, from) = match (fits_right, fits_left) {
                (true, _) => ("start", x - 1.0, x),
                (false, true) => ("end", x + 1.0, x - wide),
                (false, false) => ("start", (right - wide).max(0.0), (right - wide).max(0.0)),
            };
            let range = (from, from + wide + 8.0);
            let is_free = |row: &usize| taken.iter().all(|(r, a, b)| r != row || range.1 < *a || range.0 > *b);
            let row = (0..MARKER_ROWS).find(is_free);
            taken.extend(row.map(|row| (row, range.0, range.1)));
            placed.push(PlacedMarker { x, anchor, row });
        }
        placed
    }
}
