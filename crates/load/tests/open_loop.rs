//! The engine keeps its schedule, whatever the server does.

use crate::servers::*;
use record::Arrival;
use record::protocol::{Protocol, RedisPlan};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn every_scheduled_request_is_sent_on_its_schedule() {
    let server = answering(SMALL);
    for arrival in [Arrival::Constant, Arrival::Poisson] {
        let mut plan = open(server.address, 1000.0, arrival);
        (plan.connections, plan.threads, plan.duration_ns) = (6, 2, 500 * MS);
        let result = run(&plan);
        let scheduled: usize = (0..2)
            .map(|index| {
                let share = record::LoadShare::one(index, 2);
                load::arrival::Schedule::new(1000.0, arrival, plan.seed, share, 0, 500 * MS).count()
            })
            .sum();
        assert_eq!(result.counts.outcomes.sent, scheduled as u64);
        assert_eq!(result.counts.outcomes.ok, scheduled as u64);
        assert_eq!(result.counts.times.lag.len(), result.counts.outcomes.sent);
        assert!(result.counts.times.response.max_ns() >= result.counts.times.service.max_ns());
    }
}

#[test]
fn a_slow_server_gets_every_request_even_if_late() {
    // The server needs 20 ms per request on one connection, so it serves at most 50 per second of the 200 offered.
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            std::thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(SMALL);
        }
    });
    let mut plan = open(server.address, 200.0, Arrival::Constant);
    (plan.connections, plan.duration_ns) = (1, 300 * MS);
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.sent, 60);
    assert_eq!(result.counts.outcomes.ok + result.counts.outcomes.unfinished, 60, "{:?}", result.counts.outcomes);
    // The 50th request ends after at least 50 x 20 ms, and its intended send was at 245 ms.
    assert!(result.counts.times.response.max_ns().unwrap() >= 700 * MS);
}

#[test]
fn a_connection_for_each_request_is_opened_when_the_request_is_due() {
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(SMALL_CLOSE);
        }
    });
    let mut plan = open(server.address, 300.0, Arrival::Poisson);
    (plan.connections, plan.requests_per_connection) = (20, 1);
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.ok, result.counts.outcomes.sent, "{:?}", result.counts.outcomes);
    assert_eq!(result.counts.outcomes.connects, result.counts.outcomes.sent);
}

#[test]
fn closing_idle_connections_fails_no_request() {
    // Closes each connection after a response, without announcement, as an expired keep-alive timeout does.
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(SMALL);
        }
    });
    let mut plan = open(server.address, 10.0, Arrival::Constant);
    (plan.connections, plan.duration_ns) = (2, 500 * MS);
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.ok, 5, "{:?}", result.counts.outcomes);
    assert!(result.counts.outcomes.connects > 2);
}

#[test]
fn precise_waiting_polls() {
    let server = answering(SMALL);
    let mut plan = open(server.address, 500.0, Arrival::Constant);
    plan.precise = true;
    // If the machine wakes up late from every sleep of a run, no time is left to poll, so try again.
    let polled = (0..50).any(|_| {
        let result = run(&plan);
        assert_eq!(result.counts.outcomes.ok, 100);
        result.engine.polling_ns > 0
    });
    assert!(polled, "50 runs of 100 sends, and not one waited for by polling");
}

/// Serves two connections at a time and closes every further one at once.
fn limited() -> Server {
    let open = AtomicU64::new(0);
    serve(move |mut stream| {
        if open.fetch_add(1, Ordering::SeqCst) < 2 {
            while read_request(&mut stream).is_some() && stream.write_all(SMALL).is_ok() {}
        }
        open.fetch_sub(1, Ordering::SeqCst);
    })
}

#[test]
fn connections_beyond_the_servers_limit_are_not_reopened_at_full_speed() {
    let server = limited();
    let mut plan = open(server.address, 20.0, Arrival::Constant);
    (plan.connections, plan.duration_ns) = (10, 500 * MS);
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 0, "{outcomes:?}");
    // 8 slots pause for 10 ms, 20 ms, 40 ms, ...
    assert!(outcomes.connects < 200, "it spins: {outcomes:?}");
    assert!(outcomes.closed_unused > 0, "{outcomes:?}");
    let words = format!("closed {} connections before any request", outcomes.closed_unused);
    assert!(result.doubts.iter().any(|doubt| doubt.what.contains(&words)), "{:?}", result.doubts);
}

#[test]
fn the_time_to_open_a_connection_is_not_the_clients_lateness() {
    // The server answers the opening after 30 ms.
    let server = serve(|mut stream| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let is_opening = buffer[..count].windows(4).any(|word| word == b"AUTH");
            if is_opening {
                std::thread::sleep(Duration::from_millis(30));
            }
            if stream.write_all(b"+OK\r\n").is_err() {
                return;
            }
        }
    });
    let mut plan = open(server.address, 100.0, Arrival::Constant);
    plan.targets.clear();
    plan.protocol = Protocol::Redis(RedisPlan { password: "secret".into(), ..RedisPlan::default() });
    (plan.connections, plan.requests_per_connection) = (20, 1);
    let times = run(&plan).counts.times;
    assert!(times.lag.len() > 10);
    assert_eq!(times.connection_wait.count_at_most(29 * MS), 0, "each request waited for its connection's opening");
}

#[test]
fn the_wait_for_a_connection_slot_is_not_the_clients_lateness() {
    // The server needs 20 ms per request, one connection at a time, so it serves at most 50 per second of the 200
    // offered.
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            std::thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(SMALL_CLOSE);
        }
    });
    let mut plan = open(server.address, 200.0, Arrival::Constant);
    (plan.connections, plan.requests_per_connection, plan.duration_ns) = (1, 1, 300 * MS);
    let times = run(&plan).counts.times;
    // The intended send of the last of 60 requests was at 295 ms; it is sent 59 x 20 ms after the first one.
    assert!(times.connection_wait.max_ns() >= Some(700 * MS), "{:?}", times.connection_wait.max_ns());
}
