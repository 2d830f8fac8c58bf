use proptest::prelude::*;
use record::watch::Watching;
use record::{Arrival, LoadPlan, Pace, RunKind, Scenario, Share};
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
        let parts: Vec<LoadPlan> = Share::by_weight(&weights).into_iter().map(|share| whole.part(share)).collect();
        prop_assert_eq!(parts.iter().map(|part| part.connections).sum::<u64>(), connections);
        let is_whole = |sum: f64, whole: f64| (sum - whole).abs() <= whole * 1e-9;
        prop_assert!(is_whole(parts.iter().filter_map(LoadPlan::offered_per_sec).sum(), rate_per_sec));
        prop_assert!(is_whole(parts.iter().map(|part| part.connect_rate_per_sec).sum(), connect_rate));
        for part in parts {
            let back = LoadPlan { connections, connect_rate_per_sec: connect_rate, share: Share::WHOLE, ..part };
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
