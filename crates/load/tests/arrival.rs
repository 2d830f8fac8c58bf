//! Send times of the open loop.

use load::arrival::Schedule;
use proptest::prelude::*;
use record::{Arrival, LoadShare};

#[test]
fn constant_arrivals_do_not_drift() {
    let times: Vec<u64> =
        Schedule::new(3.0, Arrival::Constant, 1, LoadShare::WHOLE, 1_000, 1_000 + 1_000_000_000_000).collect();
    assert_eq!(times.len(), 3000);
    assert_eq!(times[0], 1_000);
    assert_eq!(times[2997], 1_000 + 999_000_000_000);
}

#[test]
fn all_threads_of_several_machines_keep_the_constant_gap() {
    let machines = LoadShare::by_weight(&[1, 3, 2]);
    let mut all: Vec<u64> = Vec::new();
    for (machine, of) in machines.into_iter().zip([1, 3, 2]) {
        for thread in 0..of {
            let share = LoadShare::one(thread, of).within(machine);
            all.extend(Schedule::new(1000.0, Arrival::Constant, 9, share, 0, 1_000_000_000));
        }
    }
    all.sort_unstable();
    assert_eq!(all, (0..1000).map(|n| n * 1_000_000).collect::<Vec<u64>>());
}

#[test]
fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
    let times: Vec<u64> = Schedule::new(10_000.0, Arrival::Poisson, 7, LoadShare::WHOLE, 0, 20_000_000_000).collect();
    let n = times.len() as f64;
    // 200,000 expected with a standard deviation of 447; the tolerance is six of them.
    assert!((n - 200_000.0).abs() < 6.0 * 447.0, "{n}");
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "coefficient of variation {}", variance.sqrt() / mean);
}

#[test]
fn given_times_begin_with_the_window_and_the_warm_up_has_other_times() {
    let times = Box::new((0..100u64).map(|n| n * 10_000_000));
    let span = (500, 1_000_000_500, 2_000_000_500);
    let all: Vec<u64> = Schedule::given(1000.0, 1, LoadShare::WHOLE, span, times).collect();
    assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
    let window: Vec<u64> = all.iter().copied().filter(|at| *at >= span.1).collect();
    assert_eq!(window, (0..100).map(|n| span.1 + n * 10_000_000).collect::<Vec<_>>());
    // 1,000 expected in the warm-up with a standard deviation of 32; the tolerance is six of them.
    assert!((all.len() - window.len()).abs_diff(1000) < 192, "{}", all.len() - window.len());
}

#[test]
fn a_seed_repeats_the_arrivals_and_threads_have_different_ones() {
    let make = |seed, index| -> Vec<u64> {
        Schedule::new(100.0, Arrival::Poisson, seed, LoadShare::one(index, 2), 0, 1_000_000_000).collect()
    };
    assert_eq!(make(5, 0), make(5, 0));
    assert_ne!(make(5, 0), make(5, 1));
    assert_ne!(make(5, 0), make(6, 0));
}

proptest! {
    #[test]
    fn times_are_ordered_and_within_the_duration(
        rate in 0.01f64..1e6,
        poisson: bool,
        seed: u64,
        index in 0u32..4,
        span in 0u64..50_000_000,
    ) {
        let arrival = if poisson { Arrival::Poisson } else { Arrival::Constant };
        let start = 123_456;
        let mut last = start;
        for at in Schedule::new(rate, arrival, seed, LoadShare::one(index, 4), start, start + span) {
            prop_assert!(at >= last && at < start + span);
            last = at;
        }
    }

    #[test]
    fn cutting_keeps_the_earlier_arrivals(cut in 0u64..2_000_000) {
        let whole: Vec<u64> = Schedule::new(1e5, Arrival::Poisson, 3, LoadShare::WHOLE, 0, 1_000_000).collect();
        let mut schedule = Schedule::new(1e5, Arrival::Poisson, 3, LoadShare::WHOLE, 0, 1_000_000);
        schedule.cut(cut);
        let kept: Vec<u64> = schedule.collect();
        let expected: Vec<u64> = whole.into_iter().filter(|at| *at < cut).collect();
        prop_assert_eq!(kept, expected);
    }
}
