//! Text for a terminal: the table of one point, the summary of a run, the progress line. At most [`WIDTH`] columns.

pub(crate) mod axis;
pub(crate) mod layers;
mod point;
mod run;
mod summary;
pub(crate) mod table;
pub(crate) mod watched;
mod workload;

pub use point::point;
pub use run::{progress_line, run, side_by_side};
pub use summary::{MAX_LINES, summary};
pub(crate) use workload::replay_facts;

pub(crate) use record::text::plain;
pub(crate) use record::units::grouped;

/// No line is wider, unless a single word of the user is.
pub const WIDTH: usize = 100;

/// Breaks words into lines of at most [`WIDTH`], the first after `first`, the others after `rest`.
pub(crate) fn wrap(text: &str, first: &str, rest: &str) -> String {
    let options = textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent(rest);
    let options = options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    let words: Vec<&str> = text.split_whitespace().collect();
    textwrap::fill(&words.join(" "), options).trim_end().to_string() + "\n"
}

/// A title and sentences; nothing without a sentence.
pub(crate) fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let item = |item: &String| wrap(&plain(item, 600), "  - ", "    ");
    format!("{title}\n{}", items.iter().map(item).collect::<String>())
}

/// The text in place of a number that was not measured, with the reason where one is known, cut to `most` characters.
pub(crate) fn not_measured(why: Option<&str>, most: usize) -> String {
    why.map_or("not measured".into(), |why| format!("not measured: {}", plain(why, most)))
}

/// A number, with half of its 95 % interval where that is known: `12.3 +-0.4`.
pub(crate) fn estimate(value: f64, half: Option<f64>, decimals: usize) -> String {
    match half {
        Some(half) => format!("{value:.decimals$} +-{half:.decimals$}"),
        None => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_wrap_at_the_width() {
        let text = wrap(&"word ".repeat(60), "- ", "  ");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")));
    }
}
