//! Formats a number and its limit, with enough digits to show which is larger.

use record::Estimate;
use record::units::{exact_percent, percent};

/// The interval of an estimate in brackets: ` (3.1 to 4.2)`; empty without one.
pub fn in_brackets(estimate: &Estimate, number: impl Fn(f64) -> String) -> String {
    estimate.interval().map_or(String::new(), |(low, high)| format!(" ({} to {})", number(low), number(high)))
}

/// Formats a share and its limit. The limit is as typed; the share has as many decimals as needed to show which is
/// larger: `97.6 %` and `98 %`.
pub fn percent_against(share: f64, limit: f64) -> (String, String) {
    let (plain, limit_words) = (percent(share), exact_percent(limit));
    let number = |words: &str| words.trim_end_matches(" %").parse::<f64>().ok();
    let Some(at) = number(&limit_words).filter(|_| share != limit) else { return (plain, limit_words) };
    let is_apart =
        |words: &String| number(words).is_some_and(|number| number != at && (number < at) == (share < limit));
    let finer = (1..8).map(|decimals| format!("{:.decimals$} %", share * 100.0));
    let apart = std::iter::once(plain.clone()).chain(finer).find(is_apart);
    (apart.unwrap_or(plain), limit_words)
}

/// Formats a time and its limit; the time has more digits if both would look equal.
pub fn nanos_against(nanos: f64, limit: f64) -> (String, String) {
    let words = record::units::format_nanos;
    let (plain, limit_words) = (words(nanos), words(limit));
    if plain != limit_words || nanos == limit {
        return (plain, limit_words);
    }
    (format!("{} us", record::units::grouped(nanos / 1e3)), limit_words)
}
