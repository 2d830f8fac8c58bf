//! SVG elements as text. Everything from outside is escaped here.

use record::Outside;
use std::fmt::Write as _;

pub(super) struct Svg {
    out: String,
}

impl Svg {
    pub fn new(id: &str, width: f64, height: f64, title: &str, description: &str) -> Self {
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            escape(title),
            escape(description)
        );
        Svg { out }
    }

    pub fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let _ =
            write!(self.out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>");
    }

    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let _ = write!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    pub fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str) {
        let _ = write!(self.out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"/>");
    }

    pub fn path(&mut self, path: &str, class: &str) {
        let _ = write!(self.out, "<path d=\"{path}\" class=\"{class}\"/>");
    }

    pub fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let _ = write!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            escape(text)
        );
    }

    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// Escapes for element content and quoted attributes; characters that may not be shown, which XML forbids, too, are
/// replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in Outside::new(text, usize::MAX).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// How wide a text is at most, without knowing the font: sans-serif faces average below 0.58 em a character.
pub(super) fn text_width(text: &str, size_px: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|c| match c {
            'm' | 'w' | 'M' | 'W' | '%' => 0.9,
            'i' | 'l' | 'j' | 't' | 'f' | 'r' | '.' | ',' | ' ' | '(' | ')' | '/' | ':' => 0.4,
            _ => 0.64,
        })
        .sum();
    ems * size_px
}
