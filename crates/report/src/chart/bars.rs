//! Bars from a value that means nothing happened, the largest effect first.

use super::svg::Svg;

/// Height of a bar with its name above it.
const ROW_PX: f64 = 38.0;

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What it is of.
    pub name: String,
    /// Where it ends.
    pub value: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
    /// Both, in words.
    pub words: String,
}

/// Draws bars from `none` on. There is at least one.
pub fn bars(id: &str, (title, description): (&str, &str), bars: &[Bar], none: f64, width: f64) -> String {
    let ends = bars.iter().flat_map(|bar| {
        let (low, high) = bar.interval.unwrap_or((bar.value, bar.value));
        [bar.value, low, high]
    });
    let (least, most) =
        ends.filter(|end| end.is_finite()).fold((none, none), |(low, high), end| (low.min(end), high.max(end)));
    let span = if most > least { most - least } else { 1.0 };
    let x = |value: f64| 2.0 + (value.clamp(least, most) - least) / span * (width - 4.0);
    let height = ROW_PX * bars.len() as f64 + 4.0;
    let mut svg = Svg::new(id, (width, height), title, description, [0.0, 0.0, width, height]);
    for (row, bar) in bars.iter().enumerate() {
        let top = ROW_PX * row as f64;
        svg.text(2.0, top + 13.0, "start", "name", &bar.name);
        svg.text(width - 2.0, top + 13.0, "end", "tick", &bar.words);
        let (from, to) = (x(none).min(x(bar.value)), x(none).max(x(bar.value)));
        svg.rect(from, top + 19.0, to - from, 12.0, "dot s1", "");
        if let Some((low, high)) = bar.interval {
            svg.line(x(low), top + 25.0, x(high), top + 25.0, "whisker");
        }
    }
    svg.line(x(none), 17.0, x(none), height, "axis");
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_begin_at_nothing_and_stay_inside_whatever_their_values() {
        let bar = |value: f64, interval| Bar { name: "<b>".into(), value, interval, words: "1 & 2".into() };
        let of = |all: &[Bar]| bars("b", ("t", "d"), all, 1.0, 300.0);
        let drawn =
            of(&[bar(1.5, Some((1.25, 2.0))), bar(0.5, None), bar(1.0, Some((f64::NEG_INFINITY, f64::INFINITY)))]);
        assert!(drawn.contains("&lt;b&gt;") && drawn.contains("1 &amp; 2") && !drawn.contains("<b>"));
        // From 0.5 to 2.0 in 296 pixels: nothing, 1.0, lies after a third.
        assert!(drawn.contains("<rect x=\"100.7\" y=\"19.0\" width=\"98.7\""), "{drawn}");
        assert!(drawn.contains("<rect x=\"2.0\" y=\"57.0\" width=\"98.7\""), "{drawn}");
        assert!(drawn.contains("<line x1=\"2.0\" y1=\"101.0\" x2=\"298.0\""), "{drawn}");
        assert!(!of(&[bar(1.0, None)]).contains("NaN"));
    }
}
