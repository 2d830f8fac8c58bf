use record::{PathMechanism, PathPlan};

fn path() -> PathPlan {
    PathPlan { delay_ns: 20_000_000, ..PathPlan::default() }
}

#[test]
fn impossible_paths_are_refused_in_one_sentence() {
    let year = PathPlan { delay_ns: 365 * 86_400 * 1_000_000_000, ..path() };
    for (plan, word) in [
        (year, "delay"),
        (PathPlan { loss_ratio: 1.5, ..path() }, "150 %"),
        (PathPlan { loss_ratio: 1.0, ..path() }, "100%"),
        (PathPlan { loss_ratio: f64::NAN, ..path() }, "loss"),
        (PathPlan { bandwidth_bits_per_sec: 10, ..path() }, "bandwidth"),
    ] {
        let why = plan.check().unwrap_err().to_string();
        assert!(why.contains(word) && !why.contains('\n'), "{why}");
    }
    assert_eq!(path().check(), Ok(()));
}

#[test]
fn the_description_names_both_directions() {
    let plan = PathPlan {
        loss_ratio: 0.001,
        bandwidth_bits_per_sec: 100_000_000,
        quickack: true,
        mechanism: PathMechanism::TunDelayLine,
        ..path()
    };
    assert_eq!(
        plan.description(),
        "20.0 ms each way (round trip 40.0 ms), loss 0.1 %, 100 Mbit/s, quick ACKs, by TUN delay line"
    );
}

#[test]
fn a_mechanism_of_a_later_version_can_be_read() {
    let mut value = serde_json::to_value(path()).unwrap();
    value["mechanism"] = "warp".into();
    let plan: PathPlan = serde_json::from_value(value).unwrap();
    assert_eq!(plan.mechanism, PathMechanism::Other);
}

#[test]
fn a_full_round_trip_has_the_serialisation_of_a_slow_link() {
    assert_eq!(path().full_round_trip_ns(), 40_000_000);
    let slow = PathPlan { bandwidth_bits_per_sec: 12_000, ..path() };
    assert_eq!(slow.full_round_trip_ns(), 2_040_000_000);
}

#[test]
fn the_queue_is_a_round_trip_or_fifty_milliseconds_long() {
    assert_eq!(PathPlan::default_queue_bytes(20_000_000, 0), 0);
    assert_eq!(PathPlan::default_queue_bytes(100_000_000, 100_000_000), 2_500_000);
    assert_eq!(PathPlan::default_queue_bytes(0, 100_000_000), 625_000);
    assert_eq!(PathPlan::default_queue_bytes(0, 64_000), 30_000);
}
