//! Numbers, their units and names, counts of outcomes, and shares.

use proptest::prelude::*;
use record::units::*;
use record::{Estimate, Figure, LoadShare, Origin, Outcomes, names};
use std::time::Duration;

#[test]
fn a_few_are_not_printed_as_none_nor_most_as_all() {
    let words = [0.9996, 0.999_999, 1.0 - 1e-12, 1.0, 1.003, 0.994, 0.125, 0.00004, 1e-6, 0.0].map(percent);
    let read = ["99.96 %", ">99.99 %", "100 %", "100 %", "100 %", "99 %", "13 %", "<0.01 %", "<0.01 %", "0 %"];
    assert_eq!(words, read.map(String::from));
}

#[test]
fn zero_is_never_printed_as_negative() {
    for zero in [-0.0, -1e-12] {
        let said = [format_si, grouped, percent, exact_percent, format_nanos, format_bytes].map(|say| say(zero));
        assert!(said.iter().all(|text| text.starts_with('0')), "{said:?}");
    }
    assert!(percent(-0.012).starts_with("-1.2"));
}

#[test]
fn counts_are_printed_with_singular_and_plural() {
    let said = [count(1, "point"), count(0, "point"), count(4096_usize, "point"), count(2, "process")];
    assert_eq!(said, ["1 point", "0 points", "4,096 points", "2 processes"]);
}

#[test]
fn thousands_are_separated() {
    assert_eq!(grouped(4096.0), "4,096");
    assert_eq!(grouped(999.0), "999");
    assert_eq!(grouped(-1_234_567.0), "-1,234,567");
    assert_eq!(grouped(f64::NAN), "-");
}

#[test]
fn a_bandwidth_names_its_unit() {
    assert_eq!(parse_bits_per_sec("100Mbit"), Ok(100_000_000));
    assert_eq!(parse_bits_per_sec("1.5 Gbit/s"), Ok(1_500_000_000));
    assert_eq!(parse_bits_per_sec("64kbps"), Ok(64_000));
    assert_eq!(parse_bits_per_sec("0"), Ok(0));
    for wrong in ["100", "10MB/h", "-1Mbit", "", "1e9bit", "99999999Gbit", "10MB", "10MBps"] {
        assert!(parse_bits_per_sec(wrong).is_err(), "{wrong}");
    }
    assert_eq!(format_bits_per_sec(100e6), "100 Mbit/s");
    assert_eq!(format_bits_per_sec(64e3), "64.0 kbit/s");
}

#[test]
fn suffixes_have_their_usual_meanings() {
    assert_eq!(parse_count("10k"), Ok(10_000));
    assert_eq!(parse_count("1.5M"), Ok(1_500_000));
    assert_eq!(parse_count("1_000"), Ok(1000));
    assert_eq!(parse_bytes("64KiB"), Ok(65_536));
    assert_eq!(parse_bytes("10MB"), Ok(10_000_000));
    assert_eq!(parse_duration("40ms"), Ok(Duration::from_millis(40)));
    assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(parse_rate("10k/s"), Ok(10_000.0));
}

#[test]
fn invalid_text_is_refused_with_an_example() {
    for text in ["", "-1", "k", "ten", "1 0", "0.5", "1e400", "NaN", "inf"] {
        assert!(parse_count(text).is_err(), "{text}");
    }
    assert!(parse_duration("10").is_err(), "a bare number has no unit");
    assert!(parse_duration("400h0").is_err());
    let message = parse_rate("-1").unwrap_err().to_string();
    assert_eq!(message, "'-1' is not a rate: write it as 1000, 10k or 1.5M");
}

#[test]
fn printed_numbers_keep_three_digits() {
    assert_eq!(format_si(812.0), "812");
    assert_eq!(format_si(31_490.0), "31.5k");
    assert_eq!(format_si(1_203_000.0), "1.20M");
    assert_eq!(format_si(0.25), "0.25");
    assert_eq!(format_nanos(850.0), "850 ns");
    assert_eq!(format_nanos(12_340.0), "12.3 us");
    assert_eq!(format_nanos(999_700.0), "1.00 ms");
    assert_eq!(format_bytes(65_536.0), "64.0 KiB");
}

proptest! {
    #[test]
    fn a_share_between_none_and_all_is_printed_as_neither(share in 1e-9f64..0.999_999_999) {
        prop_assert!(!["0 %", "0.0 %", "0.00 %", "100 %"].contains(&percent(share).as_str()), "{}", percent(share));
    }

    #[test]
    fn no_text_panics_a_parser(text in "\\PC{0,60}") {
        let _ = parse_count(&text);
        let _ = parse_bytes(&text);
        let _ = parse_duration(&text);
        let _ = parse_rate(&text);
    }

    #[test]
    fn whole_numbers_are_read_back_unchanged(n in 0u64..9_000_000_000_000) {
        prop_assert_eq!(parse_count(&n.to_string()), Ok(n));
    }
}

#[test]
fn a_missing_number_is_never_zero() {
    let figure = Figure::new(f64::NAN, "us", 0, Origin::Timed);
    assert_eq!(figure.value, None);
    let text = serde_json::to_string(&figure).unwrap();
    assert!(!text.contains("value"), "{text}");
    assert!(text.contains("not_measured"), "{text}");
}

#[test]
fn a_number_is_read_back_to_its_last_digit() {
    // A reader that rounds twice gets another number; fitted models are sensitive to the last digit.
    let numbers = [0.9999999999999999, 1.9999999999999998, 5.402_857_142_857_142e-3, 1.2345678901234567e-7];
    let of_clock = (1..2000u64).map(|n| (n * 7_919) as f64 / 13.0 / 1e3);
    for number in numbers.into_iter().chain(of_clock) {
        let text = serde_json::to_string(&Figure::new(number, "us", 1, Origin::Timed)).unwrap();
        let back: Figure = serde_json::from_str(&text).unwrap();
        assert_eq!(back.value.map(f64::to_bits), Some(number.to_bits()), "{text}");
    }
}

#[test]
fn a_falling_quantity_swaps_the_ends_of_its_interval() {
    let seconds = Estimate::new(2.0, Some((1.0, 4.0)), 0.95, 5);
    let rate = seconds.map(|seconds| 1.0 / seconds);
    assert_eq!((rate.value, rate.low, rate.high), (0.5, Some(0.25), Some(1.0)));
    assert!(rate.excludes(0.2) && rate.excludes(1.1) && !rate.excludes(0.3));
    let one = Estimate::new(2.0, None, 0.95, 1).map(|value| value * 2.0);
    assert_eq!((one.value, one.interval(), one.excludes(9.0)), (4.0, None, false));
}

#[test]
fn every_request_ends_in_exactly_one_count() {
    let outcomes = Outcomes {
        sent: 9,
        carried_in: 2,
        ok: 5,
        non_2xx: 1,
        refused: 1,
        truncated: 2,
        unfinished: 2,
        ..Default::default()
    };
    assert_eq!(outcomes.sum(), outcomes.requests());
    assert_eq!(outcomes.errors(), 3);
    assert!((outcomes.failed_ratio() - 4.0 / 9.0).abs() < 1e-12);
}

proptest! {
    #[test]
    fn unequal_shares_and_their_threads_add_up_and_contain_each_key_once(
        total in 0u64..3000, machines in prop::collection::vec((1u32..9, 1u32..5), 1..9)
    ) {
        let weights: Vec<u32> = machines.iter().map(|(weight, _)| *weight).collect();
        let shares = LoadShare::by_weight(&weights);
        prop_assert!(shares.iter().all(LoadShare::exists));
        prop_assert!((shares.iter().map(|share| share.fraction()).sum::<f64>() - 1.0).abs() < 1e-9);
        let mut owners = vec![0; total as usize];
        for (share, (_, threads)) in shares.iter().zip(&machines) {
            let held = (0..total).filter(|key| share.holds(*key)).count() as u64;
            prop_assert_eq!(held, share.part(total));
            let threads = (0..*threads).map(|thread| LoadShare::one(thread, *threads).within(*share));
            for thread in threads {
                prop_assert!(thread.exists());
                let keys: Vec<u64> = (0..total).filter(|key| thread.holds(*key)).collect();
                prop_assert!(keys.iter().all(|key| share.holds(*key)));
                keys.iter().for_each(|key| owners[*key as usize] += 1);
            }
        }
        prop_assert!(owners.iter().all(|owners| *owners == 1));
    }

    #[test]
    fn shares_are_nearly_equal_and_add_up_to_the_total(total in any::<u64>(), of in 1u32..2000) {
        let parts: Vec<u64> = (0..of).map(|index| LoadShare::one(index, of).part(total)).collect();
        prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
        prop_assert!(parts.is_sorted_by(|one, next| one >= next) && parts[0] - parts[parts.len() - 1] <= 1);
    }
}

#[test]
fn names_are_unique_and_contain_their_unit() {
    let mut seen = std::collections::HashSet::new();
    for (name, unit, meaning) in names::ALL.iter() {
        assert!(seen.insert(*name), "{name} appears twice");
        assert!(meaning.trim().ends_with('.'), "{name} needs a sentence");
        let suffix = match *unit {
            "us" => Some("us"),
            "ratio" => Some("ratio"),
            "1/s" | "bytes/s" => Some("per_"),
            _ => None,
        };
        if let Some(suffix) = suffix {
            assert!(name.contains(suffix), "{name} does not show its unit {unit}");
        }
    }
}
