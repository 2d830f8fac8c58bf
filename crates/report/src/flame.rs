//! Flame graphs as SVG without script, coloured by layer, or by growth since another profile. The usual scripts have
//! the CDDL licence.
//!
//! The width is the number of samples. A frame has the colour of its function's layer; a helper or unknown function has
//! that of its caller. Frames narrower than a third of a pixel are not drawn.

use crate::text::in_markup;
use analyze::compare::costs::STACK_COUNTS_PER_NS;
use record::layers::{Layer, LayerRule, Role};
use record::profile::folded::{Folded, KERNEL_MARK};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 64.0;
const LEAST_WIDTH: f64 = 0.33;
/// Mean width of a character of the font.
const CHARACTER: f64 = 6.7;

#[derive(Default)]
struct FlameNode {
    count: u64,
    before: u64,
    children: BTreeMap<String, FlameNode>,
}

impl FlameNode {
    fn add(&mut self, frames: &[String], count: u64, before: u64) {
        let mut node = self;
        node.count += count;
        node.before += before;
        for frame in frames {
            node = node.children.entry(frame.clone()).or_default();
            node.count += count;
            node.before += before;
        }
    }

    fn depth(&self) -> usize {
        1 + self.children.values().map(FlameNode::depth).max().unwrap_or(0)
    }
}

#[derive(Clone, Copy)]
enum Colours {
    Layers,
    /// By the change of the share of all samples; has the totals of both profiles.
    Growth {
        before: u64,
        after: u64,
    },
    /// By the change of a request's CPU time; has the total of `after`.
    Costs {
        after: u64,
    },
}

/// Draws the stacks of a profile, coloured by layer.
pub fn draw(folded: &Folded, title: &str) -> String {
    let mut root = FlameNode::default();
    for (frames, count) in &folded.0 {
        root.add(frames, *count, 0);
    }
    svg(&root, title, Colours::Layers)
}

/// Draws the stacks of `after`: red where the share of samples grew since `before`, blue where it shrank.
pub fn draw_difference(before: &Folded, after: &Folded, title: &str) -> String {
    let colours = Colours::Growth { before: before.total(), after: after.total() };
    svg(&merged(before, after), title, colours)
}

/// Like [`draw_difference`], by a request's CPU time in [`STACK_COUNTS_PER_NS`] and without a title.
pub fn draw_cost_difference(before: &Folded, after: &Folded) -> String {
    svg(&merged(before, after), "", Colours::Costs { after: after.total() })
}

/// The frames of `after` with the counts of both.
fn merged(before: &Folded, after: &Folded) -> FlameNode {
    let mut root = FlameNode::default();
    for (frames, count) in &after.0 {
        root.add(frames, *count, before.0.get(frames).copied().unwrap_or(0));
    }
    // Stacks that vanished have no frame, but count in their callers.
    for (frames, count) in before.0.iter().filter(|(frames, _)| !after.0.contains_key(*frames)) {
        let mut node = &mut root;
        node.before += count;
        for frame in frames {
            let Some(child) = node.children.get_mut(frame) else { break };
            child.before += count;
            node = child;
        }
    }
    root
}

fn svg(root: &FlameNode, title: &str, colours: Colours) -> String {
    let height = HEAD + root.depth() as f64 * ROW + MARGIN;
    let mut out = String::new();
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"
 font-family="system-ui,sans-serif" font-size="12" role="img">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{MARGIN}" y="22" font-size="16">{}</text>"##,
        in_markup(title)
    );
    legend(&mut out, colours);
    if root.count > 0 {
        let scale = (WIDTH - 2.0 * MARGIN) / root.count as f64;
        let mut painter = Painter { out: &mut out, scale, total: root.count, floor: height - MARGIN - ROW, colours };
        painter.children(root, MARGIN, 0, Layer::Other);
    }
    out.push_str("</svg>\n");
    out
}

struct Painter<'o> {
    out: &'o mut String,
    scale: f64,
    total: u64,
    floor: f64,
    colours: Colours,
}

impl Painter<'_> {
    fn children(&mut self, node: &FlameNode, mut x: f64, level: usize, inherited: Layer) {
        for (frame, child) in &node.children {
            let width = child.count as f64 * self.scale;
            if width >= LEAST_WIDTH {
                let layer = layer_of(frame, inherited, level);
                self.frame(frame, child, x, width, level, layer);
                self.children(child, x, level + 1, layer);
            }
            x += width;
        }
    }

    fn frame(&mut self, frame: &str, node: &FlameNode, x: f64, width: f64, level: usize, layer: Layer) {
        let y = self.floor - level as f64 * ROW;
        let share = node.count as f64 / self.total as f64 * 100.0;
        let (fill, note) = match self.colours {
            Colours::Layers => {
                (colour_of(layer).to_string(), format!("{}, {share:.2} %, {} samples", layer.word(), node.count))
            }
            Colours::Growth { before, after } => {
                let was = node.before as f64 / before.max(1) as f64;
                let is = node.count as f64 / after.max(1) as f64;
                (growth_colour(is - was), format!("{:.2} % -> {:.2} %", was * 100.0, is * 100.0))
            }
            Colours::Costs { after } => {
                let us = |count: u64| count as f64 / STACK_COUNTS_PER_NS / 1e3;
                let change = (node.count as f64 - node.before as f64) / after.max(1) as f64;
                let note = format!("{:.3} us -> {:.3} us per request", us(node.before), us(node.count));
                (growth_colour(change), note)
            }
        };
        let name = frame.strip_suffix(KERNEL_MARK).unwrap_or(frame);
        let _ = write!(
            self.out,
            "<g><title>{} ({note})</title>\
             <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" rx=\"1\"/>",
            in_markup(name),
            (width - 0.3).max(0.2),
            ROW - 1.0,
        );
        let fits = ((width - 6.0) / CHARACTER) as usize;
        if fits >= 3 {
            let text: String = if name.chars().count() <= fits {
                name.to_string()
            } else {
                name.chars().take(fits - 1).chain(['\u{2026}']).collect()
            };
            let _ = write!(self.out, r##"<text x="{:.1}" y="{:.1}">{}</text>"##, x + 3.0, y + 12.0, in_markup(&text));
        }
        self.out.push_str("</g>\n");
    }
}

fn layer_of(frame: &str, inherited: Layer, level: usize) -> Layer {
    match frame.strip_suffix(KERNEL_MARK) {
        None if level == 0 && frame.starts_with('[') => Layer::Other,
        None => Layer::User,
        Some(function) => match LayerRule::built_in().role(function, None) {
            Role::Names(row) => row.layer,
            // The first kernel function below user code belongs to the system call, whatever its name.
            Role::Helper | Role::Unknown if inherited == Layer::User => Layer::SystemCall,
            Role::Helper | Role::Unknown => inherited,
        },
    }
}

/// Colours that remain distinct with red-green blindness (after Okabe and Ito, Color Universal Design, 2008).
fn colour_of(layer: Layer) -> &'static str {
    match layer {
        Layer::User => "#b9dcf2",
        Layer::SystemCall => "#f3c46b",
        Layer::Tcp => "#e8956b",
        Layer::Ip => "#8fcbb5",
        Layer::Ethernet => "#f4ea9c",
        Layer::Driver => "#dcaac6",
        Layer::Other => "#d4d4d4",
        Layer::Idle => "#f2f2f2",
    }
}

fn growth_colour(change: f64) -> String {
    // Full colour from a change of 10 percentage points.
    let strength = (change.abs() / 0.1).min(1.0).sqrt();
    let faded = (240.0 - 130.0 * strength) as u8;
    if change.abs() < 1e-6 {
        "#eeeeee".into()
    } else if change > 0.0 {
        format!("#f0{faded:02x}{faded:02x}")
    } else {
        format!("#{faded:02x}{faded:02x}f0")
    }
}

fn legend(out: &mut String, colours: Colours) {
    let entries: Vec<(&str, String)> = match colours {
        Colours::Layers => Layer::ALL
            .into_iter()
            .filter(|layer| *layer != Layer::Idle)
            .map(|layer| (layer.word(), colour_of(layer).into()))
            .collect(),
        Colours::Growth { .. } | Colours::Costs { .. } => {
            vec![("grew", growth_colour(0.1)), ("same", growth_colour(0.0)), ("shrank", growth_colour(-0.1))]
        }
    };
    for (index, (word, colour)) in entries.iter().enumerate() {
        let x = MARGIN + index as f64 * 110.0;
        let _ = writeln!(
            out,
            r##"<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/><text x="{}" y="46">{word}</text>"##,
            x + 17.0
        );
    }
}
