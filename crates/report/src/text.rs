//! Width of text, lists, and words for numbers.

pub mod table;

use record::text::plain;
use record::units::{format_nanos, grouped};
use record::{Figure, PlainText};
use std::sync::atomic::{AtomicUsize, Ordering};

const LEAST_WIDTH: usize = 60;
const MOST_WIDTH: usize = 100;
static WIDTH: AtomicUsize = AtomicUsize::new(MOST_WIDTH);

/// Maximum columns of a line; 100 until [`fit`] is called. Long words and tables may exceed it.
pub fn width() -> usize {
    WIDTH.load(Ordering::Relaxed)
}

/// Sets [`width`] for a terminal.
pub fn fit(columns: usize) {
    WIDTH.store(columns.clamp(LEAST_WIDTH, MOST_WIDTH), Ordering::Relaxed);
}

const MOST_ESCAPED: usize = 600;

/// Wraps text to [`width`]; the first line begins with `first`, the others with `rest`.
pub fn wrap(text: &str, first: &str, rest: &str) -> String {
    wrap_at(width(), text, first, rest)
}

/// Wraps text to `width`.
pub fn wrap_at(width: usize, text: &str, first: &str, rest: &str) -> String {
    let options = textwrap::Options::new(width).initial_indent(first).subsequent_indent(rest);
    let options = options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    let words: Vec<&str> = text.split_whitespace().collect();
    textwrap::fill(&words.join(" "), options).trim_end().to_string() + "\n"
}

/// A title and a list; empty without items.
pub fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let item = |item: &String| wrap(&plain(item, 600), "  - ", "    ");
    format!("{title}\n{}", items.iter().map(item).collect::<String>())
}

/// Escapes text for a paragraph, list or table of Markdown.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    let text = plain(text.trim(), MOST_ESCAPED);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_end_of_word = rest.peek().is_none_or(|next| next.is_whitespace());
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => out.extend(['\\', c]),
            // These characters begin a list or a heading.
            '-' | '+' | '=' if out.is_empty() => out.extend(['\\', c]),
            '.' | ')' if is_end_of_word && out.bytes().all(|before| before.is_ascii_digit()) => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// Escapes text for content or a quoted attribute of HTML, XML or SVG, and replaces control characters.
pub(crate) fn in_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in PlainText::new(text, usize::MAX).chars() {
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

/// Text for a number that was not measured, with the reason if known; at most `most` characters.
pub(crate) fn not_measured(why: Option<&str>, most: usize) -> String {
    why.map_or("not measured".into(), |why| format!("not measured: {}", plain(why, most)))
}

/// A percentile is printed only if at least this many samples lie beyond it.
const SAMPLES_BEYOND: f64 = 10.0;
/// Printed instead of a percentile with too few samples.
pub(crate) const TOO_FEW: &str = "-";

/// Whether a percentile of `n` samples has too few samples beyond it.
pub(crate) fn rests_on_few(n: u64, quantile: f64) -> bool {
    quantile > 0.9 && n as f64 * (1.0 - quantile) < SAMPLES_BEYOND
}

pub(crate) fn percentile(figure: &Figure, quantile: f64) -> Option<String> {
    let us = figure.value?;
    let is_few = figure.n.is_some_and(|n| rests_on_few(n, quantile));
    Some(if is_few { TOO_FEW.into() } else { at_least(figure.at_least, format_nanos(us * 1e3)) })
}

pub(crate) fn at_least(is_lower_bound: bool, words: String) -> String {
    if is_lower_bound && words != TOO_FEW { format!(">={words}") } else { words }
}

/// Formats a number with half of its 95 % interval, if known: `12.3 +-0.4`.
pub(crate) fn estimate(value: f64, half: Option<f64>, decimals: usize) -> String {
    match half {
        Some(half) => format!("{value:.decimals$} +-{half:.decimals$}"),
        None => format!("{value:.decimals$}"),
    }
}

/// Formats a number with four significant digits and grouped thousands.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        grouped(value)
    } else if size < 5e-10 {
        // What is left of a difference of equal numbers.
        "0".into()
    } else if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(1, 9) as usize;
        format!("{value:.decimals$}")
    }
}

/// Joins numbers and units with no-break spaces.
pub(crate) fn unbroken(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let joins = c == ' '
            && before.is_ascii_digit()
            && rest.peek().is_some_and(|next| matches!(next, '%' | 'u' | 'm' | 's' | 'n'));
        out.push(if joins { '\u{a0}' } else { c });
        before = c;
    }
    out
}
