//! Loads of connections without requests.

use crate::servers::*;
use record::protocol::{ANSWER, Protocol};
use record::{Arrival, LoadPlan, Pace, SlowRequest};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn connecting(address: SocketAddr) -> LoadPlan {
    LoadPlan { protocol: Protocol::Connect, targets: Vec::new(), requests_per_connection: 1, ..plan(address) }
}

/// A server that accepts, counts and closes connections.
fn accepting() -> Server {
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = accepted.clone();
    let mut server = serve(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    server.requests = accepted;
    server
}

/// Waits until the server has accepted the connections left in its backlog.
fn accepts(server: &Server, connections: u64) {
    let begun = Instant::now();
    while server.requests.load(Ordering::SeqCst) != connections {
        let accepted = server.requests.load(Ordering::SeqCst);
        assert!(begun.elapsed() < Duration::from_secs(60), "accepted {accepted} of {connections}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_closed_loop_reconnects_repeatedly() {
    let server = accepting();
    let result = run(&LoadPlan { connections: 3, warmup_ns: 20 * MS, ..connecting(server.address) });
    let outcomes = result.counts.outcomes;
    // If the server gets no CPU, its backlog fills and the next attempts take a second.
    assert!(outcomes.requests() > 0 && outcomes.connects > 10, "{outcomes:?} {:?}", result.first_errors);
    assert_eq!(
        (outcomes.ok, outcomes.connects_failed),
        (outcomes.requests(), 0),
        "{outcomes:?} {:?}",
        result.first_errors
    );
    assert_eq!(outcomes.connections_silent, 0, "{outcomes:?}");
    assert_eq!(result.counts.status_counts, [(ANSWER, outcomes.ok)].into());
    accepts(&server, outcomes.connects);
    assert!(outcomes.connects >= outcomes.sent, "the window is a part of the whole: {outcomes:?}");
    assert_eq!((result.counts.sent_bytes, result.counts.received_bytes), (0, 0));
}

#[test]
fn an_open_loop_connects_at_its_rate_on_as_few_slots_as_it_needs() {
    let server = accepting();
    let pace = Pace::Open { rate_per_sec: 500.0, arrival: Arrival::Constant };
    let result = run(&LoadPlan { pace, connections: 50, ..connecting(server.address) });
    let outcomes = result.counts.outcomes;
    assert_eq!((outcomes.ok, outcomes.sent, outcomes.connects), (100, 100, 100), "{outcomes:?}");
    accepts(&server, 100);
}

#[test]
fn a_closed_port_and_a_full_backlog_are_separate_outcomes() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let outcomes = run(&connecting(closed)).counts.outcomes;
    assert!(outcomes.sent > 0 && outcomes.refused == outcomes.sent, "{outcomes:?}");
    // No thread accepts; the kernel completes as many handshakes as the backlog holds.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let plan = LoadPlan {
        connections: 2,
        connect_timeout_ns: 100 * MS,
        timeout_ns: 100 * MS,
        duration_ns: 1_000 * MS,
        ..connecting(address)
    };
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 100, "the backlog holds 128 and more: {outcomes:?}");
    assert_eq!(outcomes.ok + outcomes.connect_timed_out, outcomes.sent, "{outcomes:?}");
    assert!(outcomes.connect_timed_out > 0, "{outcomes:?}");
    let slowest = Vec::from(result.counts.slowest);
    let lost = slowest.iter().find(|request| request.failure.as_deref() == Some("connect timed out"));
    let lost = lost.unwrap_or_else(|| panic!("none is listed: {slowest:#?}"));
    assert!(lost.connect_ns >= 99 * MS && lost.first_byte_ns == 0 && lost.status.is_none(), "{lost:?}");
    let is_connect = |request: &SlowRequest| request.connect_ns + request.wait_ns == request.response_ns;
    assert!(slowest.iter().all(is_connect), "a connection is all of such a request: {slowest:#?}");
}

#[test]
fn the_check_before_the_load_opens_one_connection() {
    let server = accepting();
    let answer = load::probe(&connecting(server.address), Duration::from_secs(5)).expect("it accepts");
    assert_eq!((answer.status, answer.error), (ANSWER, None));
    accepts(&server, 1);
    let plan = LoadPlan { requests_per_connection: 2, ..connecting(server.address) };
    assert!(load::check(&plan).unwrap_err().to_string().contains("1 request per connection"));
}
