use record::{Figure, Origin};

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
