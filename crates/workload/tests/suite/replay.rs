//! Tests of plans against an independent count, and properties of splitting and pacing.

use super::data;
use proptest::prelude::*;
use record::LoadShare;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Cursor;
use std::path::Path;
use std::process::Command;
use workload::WorkloadError;
use workload::replay::{ConnectionGrouping, Plan, PlanStep, PlannedRequest, ReplayOptions, ReplayPace, split};
use workload::trace::{LogFormat, TraceReader};

fn plan(log: &Path, options: ReplayOptions) -> Plan {
    Plan::new(TraceReader::open(log, &LogFormat::Auto).unwrap(), options)
}

fn requests(log: &Path, options: ReplayOptions) -> Vec<PlannedRequest> {
    plan(log, options).filter_map(request).collect()
}

fn request(step: Result<PlanStep, WorkloadError>) -> Option<PlannedRequest> {
    match step.unwrap() {
        PlanStep::Request(request) => Some(request),
        PlanStep::Close { .. } => None,
    }
}

/// (line, connection, Unix second) of each request, counted by a Python script that shares no code with this crate.
fn independent_count(log: &Path, gap_s: u32, window_s: u32) -> Vec<(u64, u64, u64)> {
    let output = Command::new("python3")
        .arg(data::own("group.py"))
        .arg(log)
        .args([gap_s.to_string(), window_s.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers = |line: &str| -> Vec<u64> { line.split(' ').map(|word| word.parse().unwrap()).collect() };
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(numbers).map(|n| (n[0], n[1], n[2])).collect()
}

fn agrees_with_independent_count(log: &Path) {
    for (gap_s, window_s) in [(15u32, 60u32), (15, 0), (1, 60), (0, 10), (300, 3600)] {
        let options = ReplayOptions {
            grouping: ConnectionGrouping::IdleGap { limit_ns: u64::from(gap_s) * 1_000_000_000 },
            reorder_ns: u64::from(window_s) * 1_000_000_000,
            ..Default::default()
        };
        let planned = requests(log, options);
        let counted = independent_count(log, gap_s, window_s);
        let first_s = counted[0].2;
        assert_eq!(planned.len(), counted.len(), "gap {gap_s} window {window_s}");
        for (request, (line, connection, second)) in planned.iter().zip(&counted) {
            assert_eq!((request.line, request.connection), (*line, *connection), "gap {gap_s} window {window_s}");
            // Requests are spread within their second and never outside it.
            assert_eq!(request.intended_ns / 1_000_000_000, second - first_s, "line {line}");
        }
    }
}

#[test]
fn grouping_of_the_sample_equals_an_independent_count() {
    if data::has_python() {
        agrees_with_independent_count(&data::own("sample.log"));
    }
}

#[test]
fn grouping_of_a_real_log_equals_an_independent_count() {
    if let (Some(log), true) = (data::public("apache_access_2015.log"), data::has_python()) {
        agrees_with_independent_count(&log);
    }
}

#[test]
fn all_replayers_together_send_every_request_once() {
    let log = data::own("sample.log");
    let whole = requests(&log, ReplayOptions::default());
    let mut by_line: HashMap<u64, u32> = HashMap::new();
    let mut owner: HashMap<u64, u32> = HashMap::new();
    let mut sizes = Vec::new();
    for index in 0..4 {
        let part = requests(&log, ReplayOptions { share: LoadShare::one(index, 4), ..Default::default() });
        sizes.push(part.len());
        let mut last: HashMap<u64, u64> = HashMap::new();
        for request in &part {
            assert_eq!(by_line.insert(request.line, index), None, "line {} is sent twice", request.line);
            assert_eq!(*owner.entry(request.client).or_insert(index), index, "a client is split");
            let before = last.insert(request.client, request.intended_ns);
            assert!(before.is_none_or(|before| before <= request.intended_ns));
        }
        // A share has the same requests of each client as the whole plan, in the same order and the same second.
        for client in last.keys() {
            let of = |requests: &[PlannedRequest]| -> Vec<(u64, u64)> {
                requests
                    .iter()
                    .filter(|r| r.client == *client)
                    .map(|r| (r.line, r.intended_ns / 1_000_000_000))
                    .collect()
            };
            assert_eq!(of(&part), of(&whole));
        }
    }
    assert_eq!(by_line.len(), whole.len());
    assert!(sizes.iter().filter(|size| **size > 0).count() > 1, "{sizes:?}");
}

/// The bytes of each part of a log, and the time at which all begin.
fn parts_of(text: &str, format: &LogFormat, shares: &[LoadShare]) -> (Vec<Vec<u8>>, i64) {
    let mut bytes = vec![Vec::new(); shares.len()];
    let mut reader = TraceReader::from_reader("a log".into(), Box::new(Cursor::new(text.to_string())), format).unwrap();
    // Pieces of a few bytes, so that there are many.
    let counts = split(&mut reader, shares, 20, |part, piece| {
        bytes[part as usize].extend(piece);
        Ok(())
    });
    (bytes, counts.unwrap().0)
}

fn steps(source: Vec<u8>, format: &LogFormat, options: ReplayOptions) -> Vec<PlanStep> {
    let reader = TraceReader::from_reader("a log".into(), Box::new(Cursor::new(source)), format).unwrap();
    let without_line = |step: Result<PlanStep, WorkloadError>| match step.unwrap() {
        PlanStep::Request(mut request) => {
            request.line = 0;
            PlanStep::Request(request)
        }
        close => close,
    };
    Plan::new(reader, options).map(without_line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each thread sends the same requests from its machine's part as from the whole log: at the same times, on the
    /// same connections, for any log and any numbers of machines and threads, even the requests that come too late
    /// for sorting.
    #[test]
    fn a_part_of_a_log_is_replayed_as_from_the_whole_log(
        lines in prop::collection::vec((0u32..8, prop::sample::select(vec![0u32, 0, 0, 1, 3, 9, 20]), 0u32..12), 1..80),
        weights in prop::collection::vec(1u32..4, 1..5), threads in 1u32..4, seed: u64,
        is_w3c: bool, speed in prop::sample::select(vec![1.0, 7.0]),
    ) {
        let mut text = String::new();
        let mut second = 300;
        for (number, (step, back, client)) in lines.into_iter().enumerate() {
            second += step;
            let at = second - back * 10;
            if is_w3c {
                if number % 30 == 0 {
                    text.push_str("#Fields: date time c-ip cs-uri-stem\n");
                }
                text.push_str(&format!("2015-05-01 00:{:02}:{:02} 10.0.0.{client} /{number}\n", at / 60, at % 60));
            } else {
                let time = format!("01/May/2015:00:{:02}:{:02} +0000", at / 60, at % 60);
                text.push_str(&format!("10.0.0.{client} - - [{time}] \"GET /{number} HTTP/1.1\" 200 5\n"));
            }
        }
        let format = if is_w3c { LogFormat::W3c } else { LogFormat::Common };
        let machines = LoadShare::by_weight(&weights);
        let (bytes, origin_ns) = parts_of(&text, &format, &machines);
        let mut sent = 0;
        for (machine, bytes) in machines.into_iter().zip(bytes) {
            for thread in 0..threads {
                let share = LoadShare::one(thread, threads).within(machine);
                let options = ReplayOptions { share, seed, pace: ReplayPace::Original { speed }, ..Default::default() };
                let whole = steps(text.clone().into_bytes(), &format, options.clone());
                sent += whole.iter().filter(|step| matches!(step, PlanStep::Request(_))).count();
                if bytes.is_empty() {
                    prop_assert_eq!(whole, Vec::new());
                    continue;
                }
                let origin_ns = Some(origin_ns);
                prop_assert_eq!(steps(bytes.clone(), &format, ReplayOptions { origin_ns, ..options }), whole);
            }
        }
        prop_assert_eq!(sent, text.lines().filter(|line| !line.starts_with('#')).count());
    }
}

#[test]
fn speed_scales_every_intended_time() {
    let log = data::own("sample.log");
    let real = requests(&log, ReplayOptions::default());
    let ten = requests(&log, ReplayOptions { pace: ReplayPace::Original { speed: 10.0 }, ..Default::default() });
    for (one, other) in real.iter().zip(&ten) {
        assert!(one.intended_ns.abs_diff(other.intended_ns * 10) <= 10, "{} {}", one.intended_ns, other.intended_ns);
    }
    let fast = requests(&log, ReplayOptions { pace: ReplayPace::AsFastAsPossible, ..Default::default() });
    assert!(fast.iter().all(|request| request.intended_ns == 0));
    let connections = |requests: &[PlannedRequest]| -> Vec<u64> { requests.iter().map(|r| r.connection).collect() };
    assert_eq!(connections(&real), connections(&fast));
}

#[test]
fn every_connection_is_closed_after_its_last_request_and_only_once() {
    for grouping in [ConnectionGrouping::IdleGap { limit_ns: 15_000_000_000 }, ConnectionGrouping::Never] {
        let mut plan = plan(&data::own("sample.log"), ReplayOptions { grouping, ..Default::default() });
        let mut open = HashSet::new();
        let (mut closed, mut last_ns) = (0, 0);
        for step in plan.by_ref() {
            match step.unwrap() {
                PlanStep::Request(request) => {
                    assert!(request.intended_ns >= last_ns);
                    last_ns = request.intended_ns;
                    open.insert(request.connection);
                }
                PlanStep::Close { connection, at_ns, .. } => {
                    assert!(at_ns >= last_ns);
                    last_ns = at_ns;
                    assert!(open.remove(&connection), "{connection} is not open");
                    closed += 1;
                }
            }
        }
        assert!(open.is_empty());
        assert_eq!(closed, plan.account().sessions);
        // No connection waits longer than the last second of the log.
        assert!(last_ns <= plan.account().span_ns + 1_000_000_000, "{grouping:?}: a close at {last_ns} ns");
        if grouping == ConnectionGrouping::Never {
            assert_eq!(closed, plan.account().requests);
        }
    }
}

#[test]
fn the_host_of_an_absolute_target_is_left_out_unless_requested() {
    let line = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET http://example.com?a HTTP/1.1\" 200 5\n";
    for (has_host, expected) in [(false, "/?a"), (true, "http://example.com/?a")] {
        let options = ReplayOptions { has_host, ..Default::default() };
        let Some(PlanStep::Request(request)) = steps(line.into(), &LogFormat::Common, options).into_iter().next()
        else {
            panic!("no request")
        };
        assert_eq!((request.method(), request.target()), (&b"GET"[..], expected.as_bytes()));
    }
}

#[test]
fn lines_with_earlier_times_are_counted() {
    let mut plan = plan(&data::own("sample.log"), ReplayOptions { reorder_ns: 10_000_000_000, ..Default::default() });
    assert!(plan.by_ref().all(|step| step.is_ok()));
    let counts = plan.account();
    assert!(counts.went_back > counts.clamped && counts.clamped > 0, "{counts:?}");
    assert!(counts.back_max_ns > 10_000_000_000, "{counts:?}");
    // One of the lines is blank.
    assert_eq!((counts.lines, counts.requests, counts.rejected), (306, 301, 4));
}

#[test]
fn tight_limits_keep_every_request() {
    let log = data::own("sample.log");
    let options = ReplayOptions { held_limit: 3, clients_limit: 2, ..Default::default() };
    let mut tight = plan(&log, options);
    let lines = |steps: &mut dyn Iterator<Item = PlannedRequest>| -> BTreeSet<u64> { steps.map(|r| r.line).collect() };
    let found = lines(&mut tight.by_ref().filter_map(request));
    assert_eq!(found, lines(&mut requests(&log, ReplayOptions::default()).into_iter()));
    assert_eq!(found.len() as u64, tight.account().requests);
    assert!(tight.account().evicted > 0, "{:?}", tight.account());
}

#[test]
fn requests_before_a_damaged_end_are_returned() {
    use std::io::Write;
    let text = std::fs::read(data::own("sample.log")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // The log is so large that the damage lies after the first buffer.
    for _ in 0..40 {
        packed.write_all(&text).unwrap();
    }
    let mut packed = packed.finish().unwrap();
    packed.truncate(packed.len() - 200);
    let reader =
        TraceReader::from_reader("cut.gz".into(), Box::new(std::io::Cursor::new(packed)), &LogFormat::Auto).unwrap();
    let steps: Vec<_> = Plan::new(reader, ReplayOptions::default()).collect();
    let (last, before) = steps.split_last().unwrap();
    let message = last.as_ref().unwrap_err().to_string();
    assert!(message.starts_with("cut.gz: the gzip data is damaged or cut off after line "), "{message}");
    assert!(before.len() > 1000 && before.iter().all(Result::is_ok));
}
