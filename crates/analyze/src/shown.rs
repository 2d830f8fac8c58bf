//! Numbers as tables show them. Sentences name, compare and divide these, so that they can be checked against the
//! table.

use record::units::{exact_percent, format_si};

/// Reads back a printed number.
fn read_back(printed: &str) -> f64 {
    let (digits, factor) = match printed.char_indices().last() {
        Some((at, 'k')) => (&printed[..at], 1e3),
        Some((at, 'M')) => (&printed[..at], 1e6),
        Some((at, 'G')) => (&printed[..at], 1e9),
        _ => (printed, 1.0),
    };
    digits.parse().map_or(f64::NAN, |number: f64| number * factor)
}

/// A rate as tables show it: three significant digits.
pub(crate) fn rate(per_sec: f64) -> f64 {
    read_back(&format_si(per_sec))
}

/// A time for a request as tables show it, in microseconds with one decimal.
pub(crate) fn cost_us(us: f64) -> f64 {
    read_back(&format!("{us:.1}"))
}

/// A share as a percentage, with decimals where it is small: `98 %`, `1.5 %`, `0.05 %`. Some never reads like none, nor
/// most like all.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let size = percent.abs();
    let decimals = match size {
        0.0 => 0,
        size if size < 0.095 => 2,
        size if size < 9.95 && percent.fract().abs() > 1e-9 => 1,
        _ => 0,
    };
    // A half is rounded up.
    let rounded = |decimals: usize| (percent * 10f64.powi(decimals as i32)).round() / 10f64.powi(decimals as i32);
    let is_like_all = |decimals: usize| size < 100.0 - 1e-9 && rounded(decimals).abs() >= 100.0;
    match (decimals..=2).find(|decimals| !is_like_all(*decimals)) {
        None => ">99.99 %".into(),
        Some(2) if percent > 0.0 && rounded(2) == 0.0 => "<0.01 %".into(),
        Some(decimals) => format!("{:.decimals$} %", rounded(decimals)),
    }
}

/// A share and its limit. The limit is as it was typed; the share has as many decimals as are needed to see on which side
/// it lies: `97.6 %` and `98 %`.
pub(crate) fn percent_against(share: f64, limit: f64) -> (String, String) {
    let (plain, limit_words) = (percent(share), exact_percent(limit));
    let number = |words: &str| words.trim_end_matches(" %").parse::<f64>().ok();
    let Some(at) = number(&limit_words).filter(|_| share != limit) else { return (plain, limit_words) };
    let is_told = |words: &String| number(words).is_some_and(|number| number != at && (number < at) == (share < limit));
    let finer = (1..8).map(|decimals| format!("{:.decimals$} %", share * 100.0));
    let told = std::iter::once(plain.clone()).chain(finer).find(is_told);
    (told.unwrap_or(plain), limit_words)
}

/// A time and its limit, the time with more digits if both would read alike.
pub(crate) fn nanos_against(nanos: f64, limit: f64) -> (String, String) {
    let words = record::units::format_nanos;
    let (plain, limit_words) = (words(nanos), words(limit));
    if plain != limit_words || nanos == limit {
        return (plain, limit_words);
    }
    (format!("{} us", record::units::grouped(nanos / 1e3)), limit_words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_those_of_the_table() {
        assert_eq!((rate(72_651.0), rate(812.4), rate(0.25)), (72_700.0, 812.0, 0.25));
        assert_eq!(cost_us(19.349), 19.3);
        assert!(rate(f64::NAN).is_nan());
    }

    #[test]
    fn what_crossed_a_limit_does_not_read_like_it() {
        assert_eq!(percent_against(0.976, 0.98), ("97.6 %".into(), "98 %".into()));
        assert_eq!(percent_against(0.89, 0.98), ("89 %".into(), "98 %".into()));
        assert_eq!(percent_against(0.00104, 0.001), ("0.104 %".into(), "0.1 %".into()));
        assert_eq!(percent_against(0.984, 0.985), ("98 %".into(), "98.5 %".into()));
        assert_eq!(percent_against(0.9834, 0.983), ("98.34 %".into(), "98.3 %".into()));
        assert_eq!(percent_against(1e-6, 0.0), ("0.0001 %".into(), "0 %".into()));
        assert_eq!(nanos_against(100.04e6, 100e6), ("100,040 us".into(), "100 ms".into()));
    }

    #[test]
    fn some_do_not_read_like_none_nor_most_like_all() {
        let words = [0.9996, 0.999_999, 1.0 - 1e-12, 1.0, 1.003, 0.994, 0.125, 0.00004, 1e-6, 0.0].map(percent);
        let read = ["99.96 %", ">99.99 %", "100 %", "100 %", "100 %", "99 %", "13 %", "<0.01 %", "<0.01 %", "0 %"];
        assert_eq!(words, read.map(String::from));
    }

    proptest! {
        #[test]
        fn a_share_and_its_limit_read_as_they_lie(share in 0.0f64..2.0, ten_thousandths in 0u32..10_000) {
            let limit = f64::from(ten_thousandths) / 1e4;
            prop_assume!((share - limit).abs() > 1e-6);
            let (share_words, limit_words) = percent_against(share, limit);
            let number = |words: &str| words.trim_end_matches(" %").parse::<f64>().unwrap();
            prop_assert!((number(&limit_words) - limit * 100.0).abs() < 1e-9, "{limit_words}");
            prop_assert_eq!(number(&share_words) < number(&limit_words), share < limit, "{} {}", share_words, limit_words);
            prop_assert_ne!(number(&share_words), number(&limit_words));
        }

        #[test]
        fn a_share_between_none_and_all_reads_like_neither(share in 1e-9f64..0.999_999_999) {
            prop_assert!(!["0 %", "0.0 %", "0.00 %", "100 %"].contains(&percent(share).as_str()), "{}", percent(share));
        }

        #[test]
        fn what_is_shown_is_near_what_was_measured(value in 1e-3f64..1e9) {
            prop_assert!((rate(value) / value - 1.0).abs() < 0.006, "{} of {value}", rate(value));
        }
    }
}
