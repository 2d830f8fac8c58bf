//! The reason for an open loop: a server that stops for a second must not hide it.

use crate::servers::*;
use record::Arrival;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000 * MS;

/// Answers at once, but for one stall of a second, `after` the first request: then nobody is answered.
fn stalling(after: Duration) -> Server {
    let first: Arc<Mutex<Option<Instant>>> = Arc::default();
    serve(move |mut stream| {
        while read_request(&mut stream).is_some() {
            let begun = *first.lock().unwrap().get_or_insert_with(Instant::now);
            let stall_ends = begun + after + Duration::from_secs(1);
            let now = Instant::now();
            if now > begun + after && now < stall_ends {
                std::thread::sleep(stall_ends - now);
            }
            if stream.write_all(SMALL).is_err() {
                return;
            }
        }
    })
}

#[test]
fn stalled_server_does_not_hide_latency() {
    let server = stalling(Duration::from_millis(700));
    let mut plan = open(server.address, 400.0, Arrival::Constant);
    plan.connections = 1;
    plan.duration_ns = 3 * SECOND;
    let result = run(&plan);
    assert_eq!(result.outcomes.ok, 1200, "{:?}", result.outcomes);
    // 400 requests were meant to leave during the stall, a third of all. Their users waited for up to a second, half of
    // them for half of it: the stall itself makes these lower bounds, not the speed of this machine.
    assert!(result.response.max_ns().unwrap() >= 900 * MS);
    assert!(result.response.quantile_ns(0.9).unwrap() >= 600 * MS, "{:?}", result.response.quantile_ns(0.9));
    // Service time counts from the actual send, and only one request was under way: the 99th percentile knows nothing.
    let waited = |latency: &record::Latency| latency.len() - latency.count_at_most(400 * MS);
    assert_eq!(waited(&result.service), 1, "one request met the stall on its connection");
    assert!(waited(&result.response) >= 200, "{}", waited(&result.response));
    assert!(result.lag.max_ns().unwrap() >= 900 * MS);
    assert!(result.connection_wait.max_ns().unwrap() >= 900 * MS);
    let kinds: Vec<_> = result.doubts.iter().map(|doubt| doubt.kind).collect();
    assert!(kinds.contains(&record::DoubtKind::ConnectionWait), "{kinds:?}");
}

#[test]
fn a_closed_loop_hides_the_same_stall() {
    let server = stalling(Duration::from_millis(200));
    let mut plan = plan(server.address);
    plan.connections = 1;
    plan.duration_ns = 2 * SECOND;
    let result = run(&plan);
    let waited = result.response.len() - result.response.count_at_most(400 * MS);
    assert_eq!(waited, 1, "the loop waits together with the server: of {} requests", result.response.len());
}

#[test]
fn a_stall_at_the_end_of_the_window_is_waited_for() {
    let server = stalling(Duration::from_millis(400));
    let mut plan = open(server.address, 200.0, Arrival::Poisson);
    plan.connections = 2;
    plan.duration_ns = 600 * MS;
    let result = run(&plan);
    assert_eq!(result.outcomes.unfinished, 0, "{:?}", result.outcomes);
    assert!(result.response.max_ns().unwrap() >= 800 * MS);
}

#[test]
fn requests_that_nobody_answers_are_unfinished_and_doubted() {
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            std::thread::sleep(Duration::from_secs(8));
        }
    });
    let mut plan = open(server.address, 100.0, Arrival::Constant);
    plan.duration_ns = 300 * MS;
    plan.timeout_ns = 60 * SECOND;
    let result = run(&plan);
    assert_eq!(result.outcomes.sent, 30);
    assert_eq!(result.outcomes.unfinished, 30, "{:?}", result.outcomes);
    assert_eq!(result.never_sent, 28, "two connections took one each");
    assert!(result.unfinished_age.max_ns().unwrap() >= 2 * SECOND, "the grace was given");
    let censored = result.doubts.iter().find(|doubt| doubt.kind == record::DoubtKind::Censored).expect("a doubt");
    assert!(censored.what.contains("30 requests"), "{censored:?}");
}
