//! Replay: order of a client's requests, sessions on connections, limits, and faulty servers.

use crate::servers::*;
use load::{LoadResult, ReplayRequest, ReplaySource, ReplayStep, Supply};
use record::workload::{ReplayResult, RequestClass, TraceSource};
use record::{Arrival, LoadPlan, LoadShare, Pace};
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One line of a synthetic log: (client, session, milliseconds).
type Line = (u64, u64, u64);

/// A log in memory, split by client.
struct Log {
    lines: Vec<Line>,
    /// The status of every line.
    status: u16,
    /// An error sentence that ends the log.
    failure: Option<String>,
}

struct Steps<'a> {
    log: &'a Log,
    share: LoadShare,
    position: usize,
    target: Vec<u8>,
    told: u64,
}

impl ReplaySource for Steps<'_> {
    fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
        loop {
            let Some((client, session, at_ms)) = self.log.lines.get(self.position).copied() else {
                let is_first = self.position == self.log.lines.len();
                self.position += 1;
                return self.log.failure.clone().filter(|_| is_first).map(Err);
            };
            self.position += 1;
            if !self.share.holds(client) {
                continue;
            }
            self.told += 1;
            self.target = format!("/{client}/{session}/{}", self.position).into_bytes();
            return Some(Ok(ReplayStep::Request(ReplayRequest {
                client,
                session,
                intended_ns: at_ms * MS,
                method: b"GET",
                target: &self.target,
                status: Some(self.log.status),
                body_bytes: Some(5),
            })));
        }
    }

    fn account(&self) -> ReplayResult {
        ReplayResult { requests: self.told, lines: self.position as u64, ..Default::default() }
    }
}

impl Supply for Log {
    fn replay<'a>(&'a self, _: &LoadPlan, share: LoadShare) -> Option<Result<Box<dyn ReplaySource + 'a>, String>> {
        Some(Ok(Box::new(Steps { log: self, share, position: 0, target: Vec::new(), told: 0 })))
    }
}

/// A plan that replays a log at its times, or as fast as possible.
fn replaying(address: SocketAddr, is_paced: bool) -> LoadPlan {
    let mut plan = plan(address);
    plan.workload.trace = Some(TraceSource {
        file: "made up".into(),
        format: "none".into(),
        speed: is_paced.then_some(1.0),
        session_gap_ns: 15_000 * MS,
        has_host: false,
        is_repeated: false,
    });
    if is_paced {
        plan.pace = Pace::Open { rate_per_sec: 1.0, arrival: Arrival::Trace };
    }
    plan.duration_ns = 600_000 * MS;
    plan
}

fn replay(plan: &LoadPlan, lines: Vec<Line>) -> LoadResult {
    let log = Log { lines, status: 200, failure: None };
    load::run_supplied(plan, &log, &AtomicBool::new(false), &mut Events::default()).expect("the plan can be run")
}

/// Recorded targets with the number of their connection, in order of arrival.
type Noted = Arc<Mutex<Vec<(u64, String)>>>;

/// A server that records the targets it reads.
fn noting() -> (Server, Noted) {
    let noted = Noted::default();
    let (notes, connections) = (noted.clone(), std::sync::atomic::AtomicU64::new(0));
    let server = serve(move |mut stream| {
        let connection = connections.fetch_add(1, Ordering::SeqCst);
        while let Some(request) = read_request(&mut stream) {
            let text = String::from_utf8_lossy(&request).into_owned();
            let target = text.split(' ').nth(1).unwrap_or_default().to_string();
            notes.lock().unwrap().push((connection, target));
            if stream.write_all(SMALL).is_err() {
                return;
            }
        }
    });
    (server, noted)
}

/// Client, session and number of a recorded target.
fn parts(target: &str) -> (u64, u64, u64) {
    let mut numbers = target[1..].split('/').map(|part| part.parse().expect("our own targets"));
    (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn sessions_become_connections_and_clients_keep_their_order() {
    for (is_paced, threads, connections) in [(false, 1, 3), (false, 2, 8), (true, 2, 100)] {
        let (server, noted) = noting();
        // 20 clients, each with 3 sessions of 4 requests, interleaved, one request every 0.1 ms.
        let lines: Vec<Line> = (0..240)
            .map(|n| {
                let (client, step) = (n % 20, n / 20);
                (client, client * 3 + step / 4, n / 10)
            })
            .collect();
        let plan = LoadPlan { threads, connections, ..replaying(server.address, is_paced) };
        let result = replay(&plan, lines);
        assert_eq!(
            (result.counts.outcomes.sent, result.counts.outcomes.ok),
            (240, 240),
            "{:?}",
            result.counts.outcomes
        );
        let told = result.replay.expect("a replay has a result");
        assert!(told.is_whole && told.failure.is_none());
        assert_eq!((told.sizes_equal, told.statuses_equal, told.got_bytes), (240, 240, 1200));
        assert!(result.window_ns < plan.duration_ns, "the end of the log is the end of the run");
        let noted = noted.lock().unwrap().clone();
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut session_of: HashMap<u64, u64> = HashMap::new();
        for (connection, target) in &noted {
            let (client, session, number) = parts(target);
            assert!(last.insert(client, number).is_none_or(|before| before < number), "client {client} out of order");
            assert_eq!(*session_of.entry(*connection).or_insert(session), session, "two sessions on one connection");
        }
        if connections == 100 {
            assert_eq!(session_of.len(), 60, "a connection a session where there are enough");
            assert_eq!(told.evicted, 0);
        }
    }
}

#[test]
fn late_requests_are_sent_and_none_is_dropped() {
    // The server needs 20 ms; one client sends a request every millisecond.
    let ids = Arc::new(Mutex::new(Vec::new()));
    let noted = ids.clone();
    let server = serve(move |mut stream| {
        while let Some(request) = read_request(&mut stream) {
            let text = String::from_utf8_lossy(&request).into_owned();
            let id = text.split("\r\ntraceparent: 00-").nth(1).and_then(|rest| rest.get(..32));
            noted.lock().unwrap().push(id.expect("a trace id").to_string());
            std::thread::sleep(std::time::Duration::from_millis(20));
            if stream.write_all(SMALL).is_err() {
                return;
            }
        }
    });
    let plan = LoadPlan { traceparent: true, ..replaying(server.address, true) };
    let result = replay(&plan, (0..20).map(|n| (0, 0, n)).collect());
    assert_eq!(result.counts.outcomes.ok, 20);
    let slowest = Vec::from(result.counts.slowest);
    let of_slowest: Vec<String> = slowest.iter().filter_map(|request| Some(request.trace_id?.to_string())).collect();
    // The last request waited the longest.
    assert_eq!(of_slowest, ids.lock().unwrap().iter().rev().cloned().collect::<Vec<_>>());
    assert!(slowest[0].wait_ns > 300 * MS, "{:?}", slowest[0]);
    assert_eq!(result.counts.outcomes.connects, 1);
    // The intended send of the last request was at 19 ms, and it waited for 19 responses of 20 ms.
    assert!(result.counts.times.response.max_ns().unwrap() > 300 * MS, "{:?}", result.counts.times.response.max_ns());
    assert!(result.counts.times.connection_wait.max_ns().unwrap() > 300 * MS, "the lateness is the server's");
}

#[test]
fn a_duration_ends_a_log_before_its_end() {
    let server = answering(SMALL);
    let plan = LoadPlan { duration_ns: 100 * MS, ..replaying(server.address, true) };
    let result = replay(&plan, (0..1000).map(|n| (n % 5, n % 5, n * 10)).collect());
    assert_eq!(result.counts.outcomes.sent, 10, "those of the first 100 ms");
    assert!(!result.replay.expect("a result").is_whole);
    let endless = (0..2_000_000).map(|n| (n % 50, n % 50, 0)).collect();
    let result = replay(&LoadPlan { duration_ns: 100 * MS, ..replaying(server.address, false) }, endless);
    assert_eq!(result.counts.outcomes.sent, result.counts.outcomes.ok + result.counts.outcomes.unfinished);
    assert!(result.counts.outcomes.ok > 0 && !result.replay.expect("a result").is_whole);
}

#[test]
fn resets_and_refusals_fail_every_request_once_and_the_run_ends() {
    let resetting = serve(|mut stream| {
        let _ = read_request(&mut stream);
        reset(stream);
    });
    for is_paced in [false, true] {
        let result = replay(&replaying(resetting.address, is_paced), (0..12).map(|n| (n % 4, n % 4, n)).collect());
        assert_eq!(
            (result.counts.outcomes.sent, result.counts.outcomes.errors()),
            (12, 12),
            "{:?}",
            result.counts.outcomes
        );
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let result = replay(&replaying(closed, true), (0..4).map(|n| (n, n, 0)).collect());
    assert_eq!((result.counts.outcomes.sent, result.counts.outcomes.refused), (4, 4), "{:?}", result.counts.outcomes);
}

#[test]
fn the_rest_of_the_log_is_sent_on_new_connections_if_the_server_closes() {
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(SMALL_CLOSE);
        }
    });
    let result = replay(&replaying(server.address, false), (0..10).map(|n| (n % 2, n % 2, 0)).collect());
    assert_eq!((result.counts.outcomes.ok, result.counts.outcomes.connects), (10, 10), "{:?}", result.counts.outcomes);
}

#[test]
fn an_answer_with_the_logged_status_is_ok_unless_it_is_a_server_error() {
    for (logged, answered, is_ok) in
        [(404, "404 Not Found", true), (200, "404 Not Found", false), (503, "503 Busy", false)]
    {
        let answer = format!("HTTP/1.1 {answered}\r\nContent-Length: 2\r\n\r\nno");
        let server = answering(answer);
        for is_paced in [false, true] {
            let log = Log { lines: (0..6).map(|n| (n, n, 0)).collect(), status: logged, failure: None };
            let plan = replaying(server.address, is_paced);
            let result = load::run_supplied(&plan, &log, &AtomicBool::new(false), &mut Events::default()).unwrap();
            let outcomes = &result.counts.outcomes;
            let expected = if is_ok { (6, 0) } else { (0, 6) };
            assert_eq!((outcomes.ok, outcomes.non_2xx), expected, "{logged} answered with {answered}");
            assert_eq!(result.counts.status_counts.values().sum::<u64>(), 6);
        }
    }
}

#[test]
fn a_truncated_log_is_sent_up_to_its_end_and_reported() {
    let server = answering(SMALL);
    let log =
        Log { lines: (0..6).map(|n| (n, n, 0)).collect(), status: 200, failure: Some("line 7 is missing".into()) };
    let mut plan = replaying(server.address, false);
    plan.workload.classes =
        vec![RequestClass { label: "all".into(), kind: record::workload::DocumentKind::Static, largest_bytes: None }];
    let result = load::run_supplied(&plan, &log, &AtomicBool::new(false), &mut Events::default()).expect("it runs");
    assert_eq!(result.counts.outcomes.ok, 6);
    let replay = result.replay.expect("a result");
    assert_eq!(replay.failure.as_deref(), Some("line 7 is missing"));
    assert!(!replay.is_whole);
    assert_eq!(result.classes[0].requests, 6);
}
