//! Load before the first point.

use analyze::sweep::WarmUp;

/// The number of windows, and whether the cost settled.
fn windows(budget_s: u64, cost_us: impl Fn(usize) -> f64) -> (usize, bool) {
    let mut warm_up = WarmUp::new(budget_s * 1_000_000_000);
    let mut count = 0;
    loop {
        count += 1;
        if !warm_up.continues(1_000, Some(cost_us(count - 1)), count as u64 * WarmUp::WINDOW_NS) {
            return (count, warm_up.is_settled());
        }
    }
}

#[test]
fn the_warm_up_ends_when_the_cost_stops_falling_or_its_share_of_time_is_spent() {
    assert_eq!(windows(90, |_| 30.0), (3, true));
    let compiling = |at: usize| 30.0 + 150.0 * 0.5f64.powi(at as i32);
    let (count, is_settled) = windows(90, compiling);
    assert!((6..=10).contains(&count) && is_settled, "{count}");
    assert_eq!(windows(20, compiling), (6, false), "a tenth of the budget");
    assert_eq!(windows(90, |at| if at.is_multiple_of(2) { 30.0 } else { 33.0 }), (3, true), "noise");
    assert_eq!(windows(2, |_| 30.0), (1, false));
}

#[test]
fn the_warm_up_does_not_wait_for_a_slow_or_silent_server() {
    assert!(!WarmUp::new(u64::MAX).continues(5, Some(1e4), 0));
    assert!(!WarmUp::new(u64::MAX).continues(0, None, 0));
    let mut fell = WarmUp::new(u64::MAX);
    assert!(fell.continues(1_000, Some(178.0), 0) && fell.fell().is_none());
    assert!(fell.continues(1_000, Some(30.0), 0));
    assert_eq!(fell.fell(), Some((178.0, 30.0)));
}
