use record::Estimate;

#[test]
fn a_falling_quantity_swaps_the_ends_of_its_interval() {
    let seconds = Estimate::new(2.0, Some((1.0, 4.0)), 0.95, 5);
    let rate = seconds.map(|seconds| 1.0 / seconds);
    assert_eq!((rate.value, rate.low, rate.high), (0.5, Some(0.25), Some(1.0)));
    assert!(rate.excludes(0.2) && rate.excludes(1.1) && !rate.excludes(0.3));
    let one = Estimate::new(2.0, None, 0.95, 1).map(|value| value * 2.0);
    assert_eq!((one.value, one.interval(), one.excludes(9.0)), (4.0, None, false));
}
