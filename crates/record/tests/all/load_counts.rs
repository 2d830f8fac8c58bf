use crate::slowest::request;
use proptest::prelude::*;
use record::{LoadCounts, LoadTimes, Outcomes};

fn counts(mut number: impl FnMut() -> u64) -> LoadCounts {
    let mut outcomes = serde_json::to_value(Outcomes::default()).unwrap();
    outcomes.as_object_mut().unwrap().values_mut().for_each(|count| *count = number().into());
    let mut times = LoadTimes::default();
    for (_, latency) in times.tagged_mut() {
        (0..number() % 4).for_each(|_| latency.record_ns(number()));
    }
    LoadCounts {
        outcomes: serde_json::from_value(outcomes).unwrap(),
        times,
        never_sent: number(),
        body_bytes: number(),
        received_bytes: number(),
        sent_bytes: number(),
        completed_in_window: number(),
        ok_in_window: number(),
        received_in_window_bytes: number(),
        stray_responses: number(),
        closes_awaited: number(),
        idle_timeouts: number(),
        arrivals_unknown: number(),
        dated_ns: number(),
        dated_times: number(),
        status_counts: [(200 + (number() % 3) as u16, number()), (404, number())].into(),
        slowest: (0..number() % 4).map(|_| request(number(), 1)).collect::<Vec<_>>().into(),
    }
}

fn drawn(seeds: &[u64]) -> LoadCounts {
    let mut draws = seeds.iter().copied().cycle();
    counts(|| draws.next().unwrap_or_default())
}

fn sum(parts: &[&LoadCounts]) -> LoadCounts {
    let mut sum = LoadCounts::default();
    parts.iter().for_each(|part| sum.add(part));
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn counts_add_up_in_any_order_and_grouping(
        seeds in prop::array::uniform3(prop::collection::vec(any::<u64>(), 1..40)),
    ) {
        let [a, b, c] = [&seeds[0], &seeds[1], &seeds[2]].map(|seeds| drawn(seeds));
        prop_assert_eq!(sum(&[&a, &b, &c]), sum(&[&c, &a, &b]));
        prop_assert_eq!(sum(&[&sum(&[&a, &b]), &c]), sum(&[&a, &sum(&[&b, &c])]));
        prop_assert_eq!(&sum(&[&a]), &a);
    }
}

#[test]
fn every_field_is_added() {
    let mut next = 0;
    let one = counts(|| {
        next += 1;
        next
    });
    let twice = sum(&[&one, &one]);
    for ((tag, latency), (_, before)) in twice.times.tagged().into_iter().zip(one.times.tagged()) {
        assert_eq!(latency.len(), 2 * before.len(), "{tag}");
    }
    for (status, count) in &one.status_counts {
        assert_eq!(twice.status_counts[status], 2 * count);
    }
    let numbers = |counts: &LoadCounts| -> Vec<u64> {
        let json = serde_json::to_value(counts).unwrap();
        let (outer, inner) = (json.as_object().unwrap(), json["outcomes"].as_object().unwrap());
        outer.values().chain(inner.values()).filter_map(serde_json::Value::as_u64).collect()
    };
    let doubled: Vec<u64> = numbers(&one).into_iter().map(|number| 2 * number).collect();
    assert_eq!((numbers(&twice), doubled.len()), (doubled.clone(), 13 + 21));
}

#[test]
fn counts_are_read_back_from_json_and_a_missing_histogram_is_named() {
    let counts = drawn(&[3, 70_000, 5]);
    let mut json = serde_json::to_value(&counts).unwrap();
    assert_eq!(serde_json::from_value::<LoadCounts>(json.clone()).unwrap(), counts);
    let own_lag = json["latencies"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(own_lag[0], "own-lag");
    let why = serde_json::from_value::<LoadCounts>(json).unwrap_err().to_string();
    assert!(why.contains("no histogram of own-lag"), "{why}");
}
