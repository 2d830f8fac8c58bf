//! Writes SVG elements as text, which is escaped here.

use super::Size;
use crate::text::in_markup;
use std::fmt::Write as _;

pub(super) struct Svg {
    out: String,
}

impl Svg {
    /// `plot`: the rectangle of the data, as left, top, right, bottom.
    pub fn new(id: &str, Size { width, height }: Size, title: &str, description: &str, plot: [f64; 4]) -> Self {
        let mut out = String::new();
        let [left, top, right, bottom] = plot;
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
             data-plot=\"{left:.1} {top:.1} {right:.1} {bottom:.1}\">\
             <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            in_markup(title),
            in_markup(description)
        );
        Svg { out }
    }

    /// Draws within a group.
    pub fn group(&mut self, class: &str, draw: impl FnOnce(&mut Svg)) {
        let _ = write!(self.out, "<g class=\"{class}\">");
        draw(self);
        self.out.push_str("</g>");
    }

    pub fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let _ =
            write!(self.out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>");
    }

    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, data: &str) {
        let _ = write!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"{data}/>"
        );
    }

    /// `data`: further attributes, here and below.
    pub fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str, data: &str) {
        let _ = write!(self.out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"{data}/>");
    }

    pub fn path(&mut self, path: &str, class: &str, data: &str) {
        let _ = write!(self.out, "<path d=\"{path}\" class=\"{class}\"{data}/>");
    }

    /// The name of a series.
    pub fn name(&mut self, x: f64, y: f64, class: &str, data: &str, text: &str) {
        let _ = write!(self.out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{data}>{}</text>", in_markup(text));
    }

    pub fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let _ = write!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            in_markup(text)
        );
    }

    pub fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// An upper estimate of a text's width; sans-serif fonts average below 0.58 em per character.
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
