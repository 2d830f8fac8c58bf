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

mod order {
    use super::request;
    use proptest::prelude::*;
    use record::workload::ReplayResult;
    use std::io::Cursor;
    use workload::replay::order::{HeldRequest, SortingWindow};
    use workload::replay::{Plan, PlannedRequest, ReplayOptions};
    use workload::trace::{LogFormat, TraceReader};

    /// A planned `GET /`.
    fn any_request() -> PlannedRequest {
        let log = "h - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n";
        let reader = TraceReader::from_reader("test.log".into(), Box::new(Cursor::new(log)), &LogFormat::Common);
        Plan::new(reader.unwrap(), ReplayOptions::default()).find_map(request).unwrap()
    }

    fn sort(times: &[i64], width_ns: u64, limit: usize) -> (Vec<(i64, u64)>, SortingWindow) {
        let mut window = SortingWindow::new(width_ns, limit);
        let (any, mut out) = (any_request(), Vec::new());
        for (line, time) in (0..).zip(times) {
            let time_ns = window.advance(*time, line);
            let mut request = any.clone();
            request.line = line;
            window.hold(HeldRequest { time_ns, resolution_ns: 1_000_000_000, request });
            while let Some(next) = window.release() {
                out.push((next.time_ns, next.request.line));
            }
        }
        while let Some(next) = window.drain() {
            out.push((next.time_ns, next.request.line));
        }
        (out, window)
    }

    #[test]
    fn without_a_window_the_order_of_the_log_is_kept() {
        let (out, window) = sort(&[5, 3, 9, 9, 1], 0, 100);
        assert_eq!(out, [(5, 0), (5, 1), (9, 2), (9, 3), (9, 4)]);
        // The longest step is from 5 to 9.
        let counts =
            ReplayResult { clamped: 2, went_back: 2, back_max_ns: 8, gap_max_ns: 4, gap_line: 2, ..Default::default() };
        assert_eq!(window.disorder, counts);
    }

    proptest! {
        #[test]
        fn a_wide_window_sorts_stably(times in proptest::collection::vec(0i64..100, 0..200)) {
            let mut expected: Vec<(i64, u64)> = times.iter().zip(0..).map(|(time, line)| (*time, line)).collect();
            expected.sort();
            let (out, window) = sort(&times, 100, 1000);
            prop_assert_eq!(out, expected);
            prop_assert_eq!(window.disorder.clamped, 0);
        }

        #[test]
        fn any_window_keeps_all_requests_and_never_goes_back_in_time(
            times in proptest::collection::vec(0i64..100, 0..200), width in 0u64..120, limit in 1usize..50
        ) {
            let (out, _) = sort(&times, width, limit);
            prop_assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            let mut lines: Vec<u64> = out.iter().map(|(_, line)| *line).collect();
            lines.sort_unstable();
            prop_assert_eq!(lines, (0..times.len() as u64).collect::<Vec<_>>());
        }
    }
}

mod spread {
    use workload::replay::spread::GroupSpread;

    #[test]
    fn offsets_are_sorted_and_uniform() {
        let mut spread = GroupSpread::new(3, 0);
        let (n, bins) = (20_000, 20);
        let mut counts = vec![0u32; bins];
        spread.begin(n);
        let mut last = 0;
        for _ in 0..n {
            let offset = spread.next_ns(1_000_000_000);
            assert!(offset >= last && offset < 1_000_000_000);
            last = offset;
            counts[offset as usize / (1_000_000_000 / bins)] += 1;
        }
        let expected = n as f64 / bins as f64;
        let chi_square: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        // 99.9th percentile of chi-square with 19 degrees of freedom.
        assert!(chi_square < 43.8, "{chi_square}");
    }
}

mod connections {
    use proptest::prelude::*;
    use workload::replay::ConnectionGrouping;
    use workload::replay::connections::Connections;

    /// Runs (time, client) pairs. Returns the connection of each, and the connections that were closed before each.
    fn run(requests: &[(i64, u64)], grouping: ConnectionGrouping, limit: usize) -> (Vec<u64>, Vec<(u64, i64)>) {
        let mut connections = Connections::new(grouping, limit);
        let (mut of, mut closed) = (Vec::new(), Vec::new());
        for (now, client) in requests {
            while let Some(ended) = connections.expire(*now) {
                closed.push((ended.connection, ended.due_ns));
            }
            closed.extend(connections.make_room(*client).map(|ended| (ended.connection, ended.due_ns)));
            of.push(connections.join(*client, *now));
        }
        while let Some(ended) = connections.end() {
            closed.push((ended.connection, ended.due_ns));
        }
        (of, closed)
    }

    #[test]
    fn the_longest_idle_connection_makes_room() {
        let gap = ConnectionGrouping::IdleGap { limit_ns: 100 };
        let (of, closed) = run(&[(0, 1), (1, 2), (2, 1), (3, 3), (4, 1), (5, 2)], gap, 2);
        assert_eq!(of, [0, 1, 0, 2, 0, 3]);
        assert_eq!(closed[..2], [(1, 101), (2, 103)]);
    }

    proptest! {
        #[test]
        fn grouping_equals_a_naive_count(
            gaps in proptest::collection::vec((0i64..12, 0u64..6), 0..200), limit_ns in 0u64..20
        ) {
            let mut now = 0;
            let requests: Vec<(i64, u64)> = gaps.iter().map(|(gap, client)| { now += gap; (now, *client) }).collect();
            let (of, closed) = run(&requests, ConnectionGrouping::IdleGap { limit_ns }, 1000);
            // A naive model, which remembers every client forever.
            let mut known: std::collections::HashMap<u64, (u64, i64)> = Default::default();
            let mut next = 0;
            for ((now, client), connection) in requests.iter().zip(&of) {
                let expected = match known.get_mut(client) {
                    Some((connection, base)) if now - *base <= limit_ns as i64 => {
                        *base = *now;
                        *connection
                    }
                    _ => {
                        known.insert(*client, (next, *now));
                        next += 1;
                        next - 1
                    }
                };
                prop_assert_eq!(*connection, expected);
            }
            // Every connection is closed once, in the order of time.
            let mut numbers: Vec<u64> = closed.iter().map(|(connection, _)| *connection).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..next).collect::<Vec<_>>());
            prop_assert!(closed.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        }
    }
}

mod shape {
    use workload::replay::{LogShape, Plan, PlanStep, ReplayOptions, ReplayPace};
    use workload::trace::{LogFormat, TraceReader};

    fn text(seconds: impl IntoIterator<Item = u32>) -> String {
        let line = |second: u32| {
            let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
            let time = format!("01/May/2015:{hour:02}:{minute:02}:{second:02} +0000");
            format!("10.0.0.1 - - [{time}] \"GET /a HTTP/1.1\" 200 5\n")
        };
        seconds.into_iter().map(line).collect()
    }

    fn reader(text: &str) -> TraceReader {
        let source = Box::new(std::io::Cursor::new(text.to_string()));
        TraceReader::from_reader("test".into(), source, &LogFormat::Auto).unwrap()
    }

    fn shape(seconds: impl IntoIterator<Item = u32>) -> LogShape {
        LogShape::read(reader(&text(seconds)), u64::MAX).unwrap()
    }

    /// Requests that a replay sends between two times, if it restarts the log at its end as a sweep does.
    fn sent(shape: &LogShape, text: &str, speed: f64, from_ns: u64, to_ns: u64) -> f64 {
        let (mut begin_ns, mut sent) = (0, 0);
        while begin_ns < to_ns {
            let pace = ReplayPace::Original { speed };
            let options = ReplayOptions { pace, seed: begin_ns, ..ReplayOptions::default() };
            let mut last_ns = begin_ns;
            for step in Plan::new(reader(text), options) {
                if let PlanStep::Request(request) = step.unwrap() {
                    last_ns = begin_ns + request.intended_ns;
                    sent += u64::from((from_ns..to_ns).contains(&last_ns));
                }
            }
            begin_ns += (shape.round_ns() as f64 / speed) as u64;
            assert!(begin_ns >= last_ns, "a round begins before the one before it ends");
        }
        sent as f64
    }

    #[test]
    fn the_window_has_the_requested_rate_in_a_log_of_whole_seconds() {
        let second_long = |requests: u32| text((0..requests).map(|n| n / 1000));
        let busy_end = text((0..100).map(|n| n * 10).chain((0..9000).map(|n| 1000 + n / 90)));
        // Lines in the order in which Apache writes them: the first requests began later than some of the next.
        let late = text((0..2000).map(|n| if n % 10 == 9 { n / 20 } else { 50 + n / 20 }));
        for (text, rate, warmup_s, length_s) in [
            (second_long(10_000), 500.0, 0.0, 1.0),
            (second_long(10_000), 5000.0, 1.0, 1.0),
            (text((0..25_000).map(|n| n / 5000)), 2000.0, 0.0, 2.5),
            (second_long(1000), 100.0, 0.5, 20.0),
            (busy_end.clone(), 400.0, 0.5, 1.0),
            (busy_end, 4000.0, 2.0, 1.0),
            (late, 1000.0, 0.2, 1.0),
        ] {
            let shape = LogShape::read(reader(&text), u64::MAX).unwrap();
            let (warmup_ns, length_ns) = ((warmup_s * 1e9) as u64, (length_s * 1e9) as u64);
            let speed = shape.speed_for(rate, warmup_ns, length_ns);
            let (sent, asked) = (sent(&shape, &text, speed, warmup_ns, warmup_ns + length_ns), rate * length_s);
            assert!((sent - asked).abs() < 5.0 * asked.sqrt(), "{sent} of {asked} at {rate}/s, {speed} times as fast");
        }
    }

    #[test]
    fn a_log_of_one_instant_has_a_rate() {
        let shape = shape([5; 10]);
        assert!((shape.speed_for(20.0, 0, 1_000_000_000) - 2.0).abs() < 0.5);
        assert!(shape.speed_for(1e-3, 0, 1).is_finite());
    }

    #[test]
    fn an_even_log_has_one_rate() {
        let shape = shape(0..1000);
        assert_eq!(shape.requests, 1000);
        assert_eq!(shape.answered_target.as_deref(), Some("/a"));
        assert!((shape.mean_rate_per_sec() - 1.0).abs() < 1e-9);
        for (rate, length_s) in [(10.0, 5), (250.0, 2), (1.0, 4000)] {
            let speed = shape.speed_for(rate, 0, length_s * 1_000_000_000);
            assert!((speed / rate - 1.0).abs() < 0.03, "{rate}: {speed}");
        }
    }

    #[test]
    fn a_long_log_is_outlined_in_bounded_memory() {
        let shape = shape((0..80_000).chain((0..80_000).map(|_| 80_000)));
        // One time in four of 160,000 requests.
        assert_eq!(shape.kept_times(), 40_000);
        let speed = shape.speed_for(40_000.0, 0, 1_000_000_000);
        assert!((speed / 40_000.0 - 1.0).abs() < 0.01, "{speed}");
    }
}
