//! Numbers as tables show them. Sentences name, compare and divide these, so that they can be checked against the
//! table.

use record::units::format_si;

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

/// A ratio as a percentage, with decimals where it is small: `98 %`, `1.5 %`, `0.05 %`.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent != 0.0 && percent.abs() < 0.095 {
        format!("{percent:.2} %")
    } else if percent.abs() < 9.95 && percent.fract().abs() > 1e-9 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// A percentage and its limit, with as many decimals as needed to distinguish them: `97.6 %` and `98 %`.
pub(crate) fn percent_against(share: f64, limit: f64) -> (String, String) {
    let limit_words = percent(limit);
    let plain = percent(share);
    if plain != limit_words || share == limit {
        return (plain, limit_words);
    }
    let finer = (1..8).map(|decimals| format!("{:.decimals$} %", share * 100.0));
    let number = |words: &str| words.trim_end_matches(" %").parse::<f64>().ok();
    let told_apart = finer.into_iter().find(|words| number(words) != number(&limit_words));
    (told_apart.unwrap_or(plain), limit_words)
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
        assert_eq!(nanos_against(100.04e6, 100e6), ("100,040 us".into(), "100 ms".into()));
    }

    proptest! {
        #[test]
        fn two_shares_that_differ_are_told_apart(share in 0.0f64..2.0, limit in prop::sample::select(vec![0.001, 0.02, 0.5, 0.95, 0.98])) {
            prop_assume!((share - limit).abs() > 1e-6);
            let (share, limit) = percent_against(share, limit);
            prop_assert_ne!(share, limit);
        }

        #[test]
        fn what_is_shown_is_near_what_was_measured(value in 1e-3f64..1e9) {
            prop_assert!((rate(value) / value - 1.0).abs() < 0.006, "{} of {value}", rate(value));
        }
    }
}
