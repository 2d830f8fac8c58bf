//! The possible gain of a cache-aware layout, with bounds that hold for all times.

use proptest::prelude::*;
use verdict::{PossibleGain, Remedy, UserTimeSaving, remedy};

fn saved(least_us: f64, most_us: f64) -> UserTimeSaving {
    UserTimeSaving { least_us, most_us }
}

proptest! {
    #[test]
    fn a_bound_is_never_below_1_nor_above_amdahls(
        cpu in 0.01..1e6_f64, user in 0.0..1.0_f64, least in -1e6..1e6_f64, most in -1e6..1e6_f64,
    ) {
        let won = PossibleGain::from_times(cpu, user * cpu, saved(least, most)).expect("times are possible");
        prop_assert!(1.0 <= won.at_least && won.at_least <= won.at_most && won.at_most <= won.amdahl, "{won:?}");
    }
}

#[test]
fn a_server_with_13_percent_user_time_wins_at_most_1_15_times() {
    let won = PossibleGain::from_times(10.0, 1.3, saved(0.0, 1.3)).expect("a bound");
    assert!((won.amdahl - 1.149).abs() < 0.001 && won.at_most == won.amdahl && won.at_least == 1.0, "{won:?}");
    assert_eq!(PossibleGain::from_times(10.0, 10.0, saved(0.0, 1.0)), None, "all is user time: no bound");
    assert_eq!(PossibleGain::from_times(10.0, f64::NAN, saved(0.0, 1.0)), None);
}

#[test]
fn loop_slab_or_neither_follows_from_where_the_memory_fits() {
    let won = PossibleGain { at_least: 1.1, at_most: 1.3, amdahl: 1.5 };
    let of = |grown: f64, lines: Option<f64>| remedy(won, Some(grown), lines, Some(1000));
    assert_eq!(of(5000.0, None), Some(Remedy::Loop));
    assert_eq!(of(5000.0, Some(2000.0)), Some(Remedy::Loop));
    assert_eq!(of(5000.0, Some(400.0)), Some(Remedy::Slab));
    assert_eq!(of(500.0, Some(400.0)), Some(Remedy::Neither), "all of it fits as it is");
    assert_eq!(of(0.0, Some(2000.0)), Some(Remedy::Loop), "memory of the start does not grow");
    assert_eq!(remedy(won, None, None, Some(1000)), None);
    let little = PossibleGain { at_most: 1.04, ..won };
    assert_eq!(remedy(little, Some(5000.0), Some(2000.0), Some(1000)), Some(Remedy::Neither));
}
