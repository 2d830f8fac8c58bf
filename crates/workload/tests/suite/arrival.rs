//! Tests of rate series and of the arrivals made from them.

use super::data;
use proptest::prelude::*;
use record::LoadShare;
use workload::arrival::{RateSeries, SeriesPlan};

const SECOND_NS: u64 = 1_000_000_000;

fn read(text: &str) -> Result<RateSeries, String> {
    RateSeries::from_reader("series", text.as_bytes(), SECOND_NS).map_err(|error| error.to_string())
}

#[test]
fn both_forms_are_read() {
    assert_eq!(read("1\n0\n3\n").unwrap(), RateSeries { interval_ns: SECOND_NS, counts: vec![1, 0, 3] });
    let csv = "period,count\n1998-04-30 21:30:00,2\n1998-04-30 21:31:00,11\n1998-04-30 21:33:00,7\n";
    assert_eq!(read(csv).unwrap(), RateSeries { interval_ns: 60 * SECOND_NS, counts: vec![2, 11, 0, 7] });
}

#[test]
fn errors_in_a_series_name_the_line_and_the_reason() {
    for (text, words) in [
        ("", "series has no requests"),
        ("0\n0\n", "series has no requests"),
        ("1\n2\nx\n", "series:3: expected one count: x"),
        ("a,b\n1998-04-30 21:30:00,2\n1998-04-30,3\n", "series:3: expected a time"),
        ("1\n1998-04-30 21:30:00,2\n", "series:2: expected a time"),
        ("1\n-5\n", "series:2: expected one count"),
        ("1998-04-30 21:30:00,2\n1998-04-30 21:30:01,2\n2098-04-30 21:30:00,2\n", "more than"),
        ("1\n99999999999\n", "series:2"),
        // A line without letters is no header.
        ("99999999999\n1\n", "series:1: expected one count"),
        ("1998-04-30T21:30:00Z,99999999999\n1998-04-30T21:31:00Z,2\n", "series:1: expected a time"),
        ("-5\n1\n", "series:1"),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.contains(words), "{text:?}: {message}");
    }
}

#[test]
fn a_byte_order_mark_hides_no_line() {
    assert_eq!(read("\u{feff}7\n0\n3\n").unwrap().counts, [7, 0, 3]);
    assert_eq!(read("\u{feff}1998-04-30 21:30:00,2\n1998-04-30 21:31:00,11\n").unwrap().counts, [2, 11]);
    assert_eq!(read("\u{feff}time,count\n1998-04-30 21:30:00,2\n").unwrap().counts, [2]);
}

/// A CSV with these times, in seconds since a midnight, each with its number as the count.
fn csv(seconds: impl IntoIterator<Item = u32>) -> Result<RateSeries, String> {
    let line = |(number, at): (usize, u32)| {
        format!("1998-04-30 {:02}:{:02}:{:02},{}\n", at / 3600, at / 60 % 60, at % 60, number + 1)
    };
    read(&seconds.into_iter().enumerate().map(line).collect::<String>())
}

#[test]
fn a_single_time_between_others_does_not_change_the_interval() {
    // A row at each minute, and a second row one second after one of them.
    let series = csv([0, 60, 61].into_iter().chain((2..100).map(|minute| minute * 60))).unwrap();
    assert_eq!((series.interval_ns, series.counts.len()), (60 * SECOND_NS, 100));
    assert_eq!(series.counts[..3], [1, 2 + 3, 4]);
    // The first row is late.
    let series = csv([7].into_iter().chain((1..100).map(|minute| minute * 60))).unwrap();
    assert_eq!((series.interval_ns, series.counts), (60 * SECOND_NS, (1..=100).collect()));
}

#[test]
fn times_that_jitter_or_drift_leave_no_interval_empty() {
    let jitter = (0..500).map(|minute| minute * 60 + [0, 1, 0, 2, 1, 0, 0, 1][minute as usize % 8]);
    assert_eq!(csv(jitter).unwrap().counts, (1..=500).collect::<Vec<u32>>());
    // A loop that sleeps for 60 s and works for 0.3 s.
    let drift = (0..1000).map(|minute| minute * 603 / 10);
    assert_eq!(csv(drift).unwrap().counts, (1..=1000).collect::<Vec<u32>>());
    // A missing minute counts 0.
    assert_eq!(csv([0, 61, 179, 240]).unwrap().counts, [1, 2, 0, 3, 4]);
}

#[test]
fn sparse_times_on_a_finer_grid_keep_it() {
    // Most steps are 5 s but some are not, so the interval is one second and most intervals are empty.
    let series = csv((0..40).map(|n| n * 5).chain([202, 203, 206, 208, 211, 213, 214])).unwrap();
    assert_eq!((series.interval_ns, series.counts.len()), (SECOND_NS, 215));
}

#[test]
fn times_off_any_grid_are_refused_with_their_line() {
    // The rows change from one per minute to one per 90 s, which is no multiple, with an offset of 14 s.
    let message = csv((0..20).map(|n| n * 60).chain((0..20).map(|n| 1214 + n * 90))).unwrap_err();
    for words in ["series:22: ", "does not fit the interval of the others"] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn the_world_cup_series_is_read_completely() {
    let Some(path) = data::public("worldcup98_requests_per_minute.csv") else { return };
    let series = RateSeries::open(&path, SECOND_NS).unwrap();
    assert_eq!(series.interval_ns, 60 * SECOND_NS);
    assert_eq!(series.total(), 1_352_804_107);
    assert_eq!(series.counts.iter().max(), Some(&229_426));
}

#[test]
fn the_nasa_series_is_read_completely() {
    let Some(path) = data::public("nasa95_requests_per_second.txt.gz") else { return };
    let series = RateSeries::open(&path, SECOND_NS).unwrap();
    assert_eq!(series.total(), 3_461_610);
    // The series runs 100 times as fast at 20/s on average. The count is Poisson, so it is within six standard
    // deviations.
    let plan =
        SeriesPlan { mean_rate_per_sec: 20.0, duration_ns: series.span_ns() / 100, seed: 9, share: LoadShare::WHOLE };
    let expected = plan.mean_rate_per_sec * plan.duration_ns as f64 / 1e9;
    let count = series.arrivals(plan).count() as f64;
    assert!((count - expected).abs() < 6.0 * expected.sqrt(), "{count} of {expected}");
}

/// Arrivals in each interval of the series.
fn histogram(series: &RateSeries, plan: SeriesPlan) -> Vec<u64> {
    let mut counts = vec![0; series.counts.len()];
    for at_ns in series.arrivals(plan) {
        let interval = at_ns as u128 * series.counts.len() as u128 / u128::from(plan.duration_ns);
        counts[interval as usize] += 1;
    }
    counts
}

#[test]
fn counts_of_intervals_are_poisson_around_the_series() {
    let series = RateSeries { interval_ns: SECOND_NS, counts: vec![10, 0, 40, 200, 5, 0, 45] };
    let plan = SeriesPlan { mean_rate_per_sec: 1000.0, duration_ns: 60 * SECOND_NS, seed: 42, share: LoadShare::WHOLE };
    let (mut chi_square, mut cells) = (0.0, 0);
    for seed in 0..50 {
        let counts = histogram(&series, SeriesPlan { seed, ..plan });
        for (count, shape) in counts.iter().zip(&series.counts) {
            let expected = 60_000.0 * f64::from(*shape) / 300.0;
            if *shape == 0 {
                assert_eq!(*count, 0);
            } else {
                chi_square += (*count as f64 - expected).powi(2) / expected;
                cells += 1;
            }
        }
    }
    // Each term is the square of a standard normal variable, so the sum has mean `cells` and twice that variance.
    // Counts that are too even would be wrong as well.
    let deviations = (chi_square - f64::from(cells)) / f64::from(2 * cells).sqrt();
    assert!(deviations.abs() < 4.0, "chi-square {chi_square} over {cells}");
}

#[test]
fn arrivals_are_uniform_within_an_interval() {
    let series = RateSeries { interval_ns: SECOND_NS, counts: vec![1] };
    let plan = SeriesPlan { mean_rate_per_sec: 50_000.0, duration_ns: SECOND_NS, seed: 5, share: LoadShare::WHOLE };
    let mut bins = [0f64; 20];
    let mut n = 0.0;
    for at_ns in series.arrivals(plan) {
        bins[(at_ns * 20 / SECOND_NS) as usize] += 1.0;
        n += 1.0;
    }
    let chi_square: f64 = bins.iter().map(|count| (count - n / 20.0).powi(2) / (n / 20.0)).sum();
    assert!(chi_square < 43.8, "{chi_square}");
}

proptest! {
    #[test]
    fn times_are_ordered_within_the_duration_and_repeatable(
        counts in proptest::collection::vec(0u32..50, 1..60),
        rate in 0.1f64..5e4, duration_ns in 1u64..200_000_000, seed: u64,
    ) {
        prop_assume!(counts.iter().any(|count| *count > 0));
        let series = RateSeries { interval_ns: SECOND_NS, counts };
        let plan = SeriesPlan { mean_rate_per_sec: rate, duration_ns, seed, share: LoadShare::WHOLE };
        let times: Vec<u64> = series.arrivals(plan).collect();
        prop_assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(times.iter().all(|at| *at < duration_ns));
        prop_assert_eq!(&times, &series.arrivals(plan).collect::<Vec<_>>());
        // Allows eight standard deviations, and room for small counts.
        let expected = rate * duration_ns as f64 / 1e9;
        let off = (times.len() as f64 - expected).abs();
        prop_assert!(off < 8.0 * expected.sqrt() + 12.0, "{} of {}", times.len(), expected);
    }

    #[test]
    fn shares_together_offer_the_whole_rate(of in 1u32..6, seed: u64) {
        let series = RateSeries { interval_ns: SECOND_NS, counts: vec![3, 0, 9, 1] };
        let plan = SeriesPlan { mean_rate_per_sec: 2000.0, duration_ns: SECOND_NS, seed, share: LoadShare::WHOLE };
        let count: usize = (0..of).map(|index| {
            series.arrivals(SeriesPlan { share: LoadShare::one(index, of), ..plan }).count()
        }).sum();
        prop_assert!((count as f64 - 2000.0).abs() < 8.0 * 2000f64.sqrt(), "{count}");
    }

    #[test]
    fn no_bytes_panic_the_series_reader(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'1'), Just(b',')], 0..200),
    ) {
        let _ = RateSeries::from_reader("s", bytes.as_slice(), 1);
    }
}
