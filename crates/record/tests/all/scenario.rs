//! Scenarios: workloads, axes, network paths and protocols.

use proptest::prelude::*;
use record::protocol::{
    FIRST_ERROR, GrpcPlan, MISS, MemcachedPlan, Protocol, RedisPlan, grpc_status, memcached_error, redis_error,
};
use record::watch::Watching;
use record::workload::{DocumentKind, RequestClass, Workload, WorkloadResult};
use record::{Arrival, Axis, LoadPlan, LoadShare, Pace, PathMechanism, PathPlan, RunKind, Scenario};
use serde_json::{Value, json};

proptest! {
    #[test]
    fn shares_of_a_load_add_up_to_it_and_are_otherwise_equal(
        connections in 1u64..100_000, rate_per_sec in 0.1f64..1e6, connect_rate in 0.0f64..1e5,
        weights in prop::collection::vec(1u32..9, 1..100), seed: u64,
    ) {
        let whole = LoadPlan {
            connections,
            pace: Pace::Open { rate_per_sec, arrival: Arrival::Series },
            connect_rate_per_sec: connect_rate,
            seed,
            ..LoadPlan::simple(([127, 0, 0, 1], 80).into())
        };
        let parts: Vec<LoadPlan> = LoadShare::by_weight(&weights).into_iter().map(|share| whole.part(share)).collect();
        prop_assert_eq!(parts.iter().map(|part| part.connections).sum::<u64>(), connections);
        let is_whole = |sum: f64, whole: f64| (sum - whole).abs() <= whole * 1e-9;
        prop_assert!(is_whole(parts.iter().filter_map(LoadPlan::offered_per_sec).sum(), rate_per_sec));
        prop_assert!(is_whole(parts.iter().map(|part| part.connect_rate_per_sec).sum(), connect_rate));
        for part in parts {
            let back = LoadPlan { connections, connect_rate_per_sec: connect_rate, share: LoadShare::WHOLE, ..part };
            prop_assert_eq!(&back, &whole);
        }
    }
}

fn read(text: &str) -> Scenario {
    serde_json::from_str(text).expect("a scenario")
}

#[test]
fn a_kept_run_with_a_load_is_written_as_it_was_read() {
    let first_line = |text: &'static str| text.lines().next().expect("run.json");
    for kept in [
        first_line(include_str!("../../../analyze/tests/recorded/haproxy-poll.jsonl")),
        first_line(include_str!("../../../analyze/tests/recorded/nginx.jsonl")),
    ] {
        let before: Value = serde_json::from_str(kept).expect("JSON");
        let record: record::RunRecord = serde_json::from_str(kept).expect("a record");
        let after = serde_json::to_value(&record).expect("JSON");
        for member in ["command", "name", "url", "repeat_command", "server", "sweep", "path", "what_ifs"] {
            assert_eq!(after["scenario"].get(member), before["scenario"].get(member), "{member}");
        }
        assert_eq!(serde_json::from_value::<record::RunRecord>(after).expect("a record"), record);
        assert!(record.scenario.load().is_some() && record.schema == record::run::SCHEMA);
    }
}

#[test]
fn a_command_without_a_load_has_no_load_plan() {
    let kind = RunKind::Watch(Watching { port: 8080, ..Watching::default() });
    let watch = Scenario { name: "n".into(), repeat_command: "r".into(), kind };
    let written = serde_json::to_value(&watch).expect("JSON");
    assert_eq!((&written["command"], &written["port"], written.get("load")), (&json!("watch"), &json!(8080), None));
    assert_eq!(read(&written.to_string()), watch);
}

#[test]
fn the_default_workload_adds_no_fields_to_a_record() {
    assert_eq!(serde_json::to_string(&Workload::default()).unwrap(), "{}");
    assert_eq!(serde_json::to_string(&WorkloadResult::default()).unwrap(), "{}");
    assert!(WorkloadResult::default().is_empty());
}

#[test]
fn a_size_on_the_boundary_belongs_to_the_smaller_class() {
    let class =
        |label: &str, largest_bytes| RequestClass { label: label.into(), kind: DocumentKind::Static, largest_bytes };
    let workload = Workload { classes: vec![class("a", Some(10)), class("b", None)], ..Default::default() };
    assert_eq!([0, 10, 11, u64::MAX].map(|bytes| workload.class_of_size(bytes)), [0, 0, 1, 1]);
}

#[test]
fn an_axis_is_formatted_as_it_is_typed() {
    for axis in Axis::ALL {
        assert_eq!(serde_json::to_value(axis).unwrap(), axis.word());
    }
    assert_eq!(serde_json::from_str::<Axis>("\"of-evil\"").unwrap(), Axis::Other, "from a later version");
}

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

#[test]
fn an_error_reply_has_a_number_and_a_name() {
    let redis = Protocol::Redis(RedisPlan::default());
    for (code, words) in [("ERR", "-ERR"), ("MOVED", "-MOVED"), ("DENIED", "-DENIED"), ("MADEUP", "other error")] {
        let status = redis_error(code.as_bytes());
        assert!(status >= FIRST_ERROR);
        assert_eq!(redis.status_words(status), words);
    }
    let memcached = Protocol::Memcached(MemcachedPlan::default());
    assert_eq!(memcached.status_words(memcached_error(b"SERVER_ERROR")), "SERVER_ERROR");
    assert_eq!((memcached.status_words(MISS), redis.status_words(MISS)), ("miss".into(), "null".into()));
    assert_eq!(Protocol::Http.status_words(404), "404");
}

#[test]
fn a_grpc_status_has_a_number_and_a_name() {
    let grpc = Protocol::Grpc(GrpcPlan::default());
    for (code, words) in [
        (Some(0), "OK"),
        (Some(14), "UNAVAILABLE"),
        (Some(16), "UNAUTHENTICATED"),
        (Some(17), "other error"),
        (None, "other error"),
    ] {
        let status = grpc_status(code);
        assert_eq!((grpc.status_words(status).as_ref(), (200..400).contains(&status)), (words, code == Some(0)));
    }
}

#[test]
fn a_plan_is_read_back_from_json_without_its_password() {
    let plan = RedisPlan { password: "secret".into(), pipeline: 4, ..RedisPlan::default() };
    let text = serde_json::to_string(&Protocol::Redis(plan.clone())).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let read: Protocol = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Protocol::Redis(RedisPlan { password: String::new(), ..plan }));
}
