//! A number next to its limit.

use analyze::shown::{nanos_against, percent_against};
use proptest::prelude::*;

#[test]
fn a_rounded_value_never_equals_the_limit_that_it_crossed() {
    assert_eq!(percent_against(0.976, 0.98), ("97.6 %".into(), "98 %".into()));
    assert_eq!(percent_against(0.89, 0.98), ("89 %".into(), "98 %".into()));
    assert_eq!(percent_against(0.00104, 0.001), ("0.104 %".into(), "0.1 %".into()));
    assert_eq!(percent_against(0.984, 0.985), ("98 %".into(), "98.5 %".into()));
    assert_eq!(percent_against(0.9834, 0.983), ("98.34 %".into(), "98.3 %".into()));
    assert_eq!(percent_against(1e-6, 0.0), ("0.0001 %".into(), "0 %".into()));
    assert_eq!(nanos_against(100.04e6, 100e6), ("100,040 us".into(), "100 ms".into()));
}

proptest! {
    #[test]
    fn a_rounded_share_stays_on_its_side_of_the_limit(share in 0.0f64..2.0, ten_thousandths in 0u32..10_000) {
        let limit = f64::from(ten_thousandths) / 1e4;
        prop_assume!((share - limit).abs() > 1e-6);
        let (share_words, limit_words) = percent_against(share, limit);
        let number = |words: &str| words.trim_end_matches(" %").parse::<f64>().unwrap();
        prop_assert!((number(&limit_words) - limit * 100.0).abs() < 1e-9, "{limit_words}");
        let is_less = number(&share_words) < number(&limit_words);
        prop_assert_eq!(is_less, share < limit, "{} {}", share_words, limit_words);
        prop_assert_ne!(number(&share_words), number(&limit_words));
    }
}
