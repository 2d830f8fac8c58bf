//! Histograms, the counts of a load, and its slowest requests.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use proptest::prelude::*;
use record::histogram::{MAX_NS, read_log, write_log};
use record::sum::Summand;
use record::{Latency, LoadCounts, LoadTimes, Outcomes, SLOWEST, SlowRequest, Slowest, TraceId};
use std::time::Duration;

/// Maximum size of a histogram.
const MAX_BYTES: usize = 4 << 20;
/// The first word of HdrHistogram's V2 encoding, and of its compressed form.
const PLAIN: u32 = 0x1c84_9313;
const COMPRESSED: u32 = 0x1c84_9314;

fn decode(payload: &str) -> Result<Latency, String> {
    serde_json::from_value(serde_json::json!({ "v2": payload })).map_err(|error| error.to_string())
}

#[test]
fn a_value_beyond_the_range_is_kept_and_counted() {
    let mut latency = Latency::new();
    latency.record_ns(0);
    latency.record_ns(MAX_NS * 7);
    assert_eq!(latency.len(), 2);
    assert_eq!(latency.clamped(), 1);
    assert!(latency.max_ns().unwrap() >= MAX_NS);
}

#[test]
fn a_log_is_read_back_unchanged() {
    let mut response = Latency::new();
    for value in 1..5000u64 {
        response.record_ns(value * 977);
    }
    let service = Latency::new();
    let text = write_log(1_763_757_412_000, Duration::from_secs(2), &[("response", &response), ("service", &service)])
        .unwrap();
    let back = read_log(&text).unwrap();
    assert_eq!(back.len(), 2);
    assert_eq!(back[0].0, "response");
    assert_eq!(back[0].1, response);
    assert_eq!(back[1].1.len(), 0);
}

/// A histogram whose header states this number of bytes of counts, followed by these, with valid checksums.
fn made(claimed: u32, counts: &[u8]) -> String {
    use std::io::Write;
    let mut plain = Vec::new();
    for word in [PLAIN, claimed, 0, 3] {
        plain.extend(word.to_be_bytes());
    }
    plain.extend([1, MAX_NS].iter().flat_map(|bound| bound.to_be_bytes()));
    plain.extend(1f64.to_be_bytes());
    plain.extend(counts);
    let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(&plain).unwrap();
    let coded = coder.finish().unwrap();
    let mut raw = COMPRESSED.to_be_bytes().to_vec();
    raw.extend((coded.len() as u32).to_be_bytes());
    raw.extend(coded);
    BASE64_STANDARD.encode(raw)
}

#[test]
fn a_header_cannot_reserve_memory_or_overflow_numbers() {
    let of = |claimed: u32, counts: &[u8]| decode(&made(claimed, counts));
    // One value of 5 ns after five zeros, and one of 7 ns after another zero.
    assert_eq!(of(4, &[9, 2, 1, 2]).unwrap().len(), 2);
    assert!(of(u32::MAX, &[9, 2]).unwrap_err().contains("announces 4294967295 bytes"));
    // More zeros than a number can count.
    let most = [0xff; 9];
    assert!(of(9, &most).unwrap_err().contains("zeros"));
    assert!(of(3, &[0xff; 3]).is_err(), "a number that breaks off");
    let bomb = vec![0; MAX_BYTES + 1];
    assert!(of(1 << 20, &bomb).unwrap_err().contains("more than the maximum"));
}

#[test]
fn garbage_is_refused_with_a_reason() {
    assert!(decode("AAAA").is_err());
    assert!(read_log(b"not a log").is_err());
    assert!(read_log(b"Tag=a,0.0,1.0,1.0,AAAA\n").is_err());
}

proptest! {
    #[test]
    fn merging_equals_recording_together(
        a in prop::collection::vec(1u64..MAX_NS, 0..200),
        b in prop::collection::vec(1u64..MAX_NS, 0..200),
    ) {
        let (mut left, mut right, mut both) = (Latency::new(), Latency::new(), Latency::new());
        for value in &a { left.record_ns(*value); both.record_ns(*value); }
        for value in &b { right.record_ns(*value); both.record_ns(*value); }
        left.merge(&right);
        prop_assert_eq!(left.buckets(), both.buckets());
    }

    #[test]
    fn no_bytes_panic_the_log_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_log(&bytes);
    }
}

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

/// A request with this response time that was sent on this connection.
fn request(response_ns: u64, connection: u32) -> SlowRequest {
    SlowRequest {
        response_ns,
        at_ns: -5,
        wait_ns: 0,
        connect_ns: 0,
        first_byte_ns: response_ns,
        last_byte_ns: 0,
        connection,
        local_port: Some(40_000),
        received_bytes: 7,
        status: Some(200),
        failure: None,
        trace_id: Some(TraceId::from_bits(u128::from(response_ns))),
        client: None,
    }
}

proptest! {
    #[test]
    fn merging_keeps_the_slowest_of_all_however_they_were_divided(
        times in prop::collection::vec((0u64..300, 0usize..5), 0..200),
    ) {
        let requests = || times.iter().zip(0..).map(|((time, part), number)| (request(*time, number), *part));
        let mut parts = vec![Slowest::default(); 5];
        requests().for_each(|(request, part)| parts[part].offer(request));
        let merged = |order: &mut dyn Iterator<Item = &Slowest>| {
            let mut all = Slowest::default();
            order.for_each(|part| all.add(part));
            Vec::from(all)
        };
        let mut expected: Vec<SlowRequest> = requests().map(|(request, _)| request).collect();
        expected.sort_by(|one, other| other.cmp(one));
        expected.truncate(SLOWEST);
        prop_assert_eq!(&merged(&mut parts.iter()), &expected);
        prop_assert_eq!(&merged(&mut parts.iter().rev()), &expected);
        let kept = Slowest::from(expected.clone());
        let least_ns = expected.get(SLOWEST - 1).map_or(0, |request| request.response_ns);
        prop_assert_eq!(kept.least_ns(), least_ns);
    }
}

#[test]
fn requests_of_a_named_client_come_back_from_json() {
    let mut slowest = Slowest::from((1..30).map(|time| request(time, 1)).collect::<Vec<_>>());
    slowest.sent_by("client 2");
    let json = serde_json::to_string(&slowest).unwrap();
    assert_eq!(serde_json::from_str::<Slowest>(&json).unwrap(), slowest);
    let first = &Vec::from(slowest)[0];
    assert_eq!((first.response_ns, first.client.as_deref()), (29, Some("client 2")));
    let id = first.trace_id.unwrap();
    assert!(json.contains(&format!("\"trace_id\":\"{id}\"")), "{json}");
    assert!(serde_json::from_str::<TraceId>("\"+123\"").is_err());
}

#[test]
fn a_trace_parent_has_the_form_of_the_specification() {
    let parent = |bits| {
        let mut out = [0; TraceId::PARENT_BYTES];
        TraceId::from_bits(bits).write_parent(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    };
    let bits = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    assert_eq!(parent(bits), "00-4bf92f3577b34da6a3ce929d0e0e4736-a3ce929d0e0e4736-01");
    assert_eq!(parent(0), "00-00000000000000010000000000000001-0000000000000001-01");
}
