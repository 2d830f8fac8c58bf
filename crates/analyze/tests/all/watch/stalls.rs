//! Stalls of a watched server and their period.

use analyze::statistics::random;
use analyze::watch::Recording;
use analyze::watch::recording::Sample;
use analyze::watch::stalls::{find, sentences};
use rand::RngExt;

/// Readings every second; `is_silent` depends on the second.
fn recording(seconds: usize, per_sec: u64, is_silent: impl Fn(usize) -> bool) -> Recording {
    let mut requests = 0;
    let mut samples = vec![Sample::default()];
    for second in 0..seconds {
        requests += if is_silent(second) { 0 } else { per_sec };
        samples.push(Sample { seconds: second as f64 + 1.0, requests, ..Sample::default() });
    }
    Recording { samples, has_requests: true, ..Recording::default() }
}

#[test]
fn uncounted_time_is_not_a_stall() {
    let last = record::watch::Reading { counted_ns: Some(1), ..Default::default() };
    let recording = Recording { has_requests: true, last, ..Recording::default() };
    assert!(find(&recording).unwrap_err().contains("--detail counts"));
}

#[test]
fn a_period_of_thirty_seconds_is_found() {
    let found = find(&recording(300, 200, |second| second % 30 >= 25)).unwrap();
    assert_eq!(found.stalls.len(), 9, "the last one has no end");
    let period = found.period.unwrap();
    assert!((period.period_s.value - 30.0).abs() < 0.05, "{period:?}");
    assert!(period.concentration > 0.99 && period.p_value < 0.01);
}

#[test]
fn jitter_and_a_missing_stall_do_not_hide_the_period() {
    let mut random = random(5);
    let begins: Vec<usize> = (0..20).filter(|n| *n != 7).map(|n| 20 + n * 30 + random.random_range(0..3)).collect();
    let found = find(&recording(700, 200, |second| begins.iter().any(|b| (*b..b + 3).contains(&second)))).unwrap();
    assert!((found.period.unwrap().period_s.value - 30.0).abs() < 0.3, "{:?}", found.period);
}

#[test]
fn stalls_at_random_times_have_no_period() {
    let mut random = random(6);
    let mut with_period = 0;
    for set in 0..200 {
        let begins: Vec<usize> = (0..4 + set % 12).map(|_| random.random_range(5..590)).collect();
        let silent = |second: usize| begins.iter().any(|b| (*b..b + 2).contains(&second));
        with_period += usize::from(find(&recording(600, 200, silent)).unwrap().period.is_some());
    }
    assert!(with_period <= 6, "{with_period} of 200 by chance, where 2 is allowed on average");
}

#[test]
fn a_quiet_server_is_not_called_stalled() {
    let few = find(&recording(300, 2, |second| second % 3 == 0)).unwrap_err();
    assert!(few.contains("chance"), "{few}");
    let none = find(&recording(300, 200, |_| false)).unwrap();
    assert!(none.stalls.is_empty() && none.period.is_none());
    assert!(find(&recording(300, 200, |_| true)).unwrap_err().contains("no request"));
}

#[test]
fn silence_before_and_after_the_load_is_not_a_stall() {
    let found = find(&recording(300, 200, |second| !(50..250).contains(&second))).unwrap();
    assert!(found.stalls.is_empty(), "{:?}", found.stalls);
    assert_eq!((found.silent_before_s, found.silent_after_s), (50.0, 50.0));
    assert_eq!(found.rates.len(), 300, "the chart goes from end to end");
    let said = sentences(&found).join(" ");
    assert!(said.contains("the first 50.0 s and the last 50.0 s"), "{said}");
}
