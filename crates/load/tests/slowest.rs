//! The slowest requests: their times, ids and ports are those that a server knows which delays some requests.

use crate::http2::{Peer, http2, ok};
use crate::secure::{secured, serve_secure};
use crate::servers::*;
use record::{Arrival, LoadPlan, SLOWEST, SlowRequest};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(60);
/// The server delays these requests, in the order in which they come.
const DELAYED: [usize; 3] = [3, 6, 9];

/// A server's log: the trace ids of all requests, and the client's ports of the requests that it delayed.
#[derive(Default)]
struct Seen {
    ids: Vec<String>,
    delayed: HashMap<String, u16>,
}

type Notes = Arc<Mutex<Seen>>;

/// The trace id in the value of the header field, which has the form of the specification.
fn id_of(parent: &str) -> String {
    let parts: Vec<&str> = parent.split('-').collect();
    let ["00", id, span, "01"] = parts[..] else { panic!("{parent}") };
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let has_bits = |text: &str| text.bytes().any(|byte| byte != b'0');
    assert!(id.len() == 32 && span.len() == 16, "{parent}");
    assert!([id, span].into_iter().all(|text| is_hex(text) && has_bits(text)), "{parent}");
    id.into()
}

/// Notes a request, and lets some of them wait.
fn take(seen: &Notes, parent: &str, port: u16) {
    let id = id_of(parent);
    let mut notes = seen.lock().unwrap();
    notes.ids.push(id.clone());
    if DELAYED.contains(&notes.ids.len()) {
        notes.delayed.insert(id, port);
        drop(notes);
        std::thread::sleep(DELAY);
    }
}

/// Answers the requests of a connection.
fn serve_traced(mut stream: impl Read + Write, port: u16, seen: &Notes) {
    while let Some(request) = read_request(&mut stream) {
        let text = String::from_utf8_lossy(&request).into_owned();
        let parents: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("traceparent: ")).collect();
        assert_eq!(parents.len(), 1, "{text}");
        take(seen, parents[0], port);
        if stream.write_all(SMALL).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

fn traced(plan: LoadPlan) -> LoadPlan {
    LoadPlan { traceparent: true, duration_ns: 500 * MS, ..plan }
}

fn delay_ns() -> u64 {
    DELAY.as_nanos() as u64
}

/// Runs a plan and compares its slowest requests with what the server saw.
fn agree(plan: &LoadPlan, seen: &Notes) -> Vec<SlowRequest> {
    let result = run(plan);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok, outcomes.sent, "{outcomes:?} {:?}", result.first_errors);
    let slowest = Vec::from(result.counts.slowest);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.ids.len() as u64, outcomes.sent);
    assert_eq!(seen.ids.iter().collect::<HashSet<_>>().len(), seen.ids.len(), "an id came twice");
    assert_eq!((seen.delayed.len(), slowest.len()), (DELAYED.len(), SLOWEST.min(seen.ids.len())));
    let id = |request: &SlowRequest| request.trace_id.map(|id| id.to_string()).unwrap_or_default();
    for (delayed, port) in &seen.delayed {
        let found = slowest.iter().find(|request| id(request) == *delayed);
        let request = found.unwrap_or_else(|| panic!("{delayed} is not in {slowest:#?}"));
        assert_eq!((request.local_port, request.status), (Some(*port), Some(200)));
        assert!(request.first_byte_ns >= delay_ns(), "{request:?}");
    }
    for request in &slowest {
        let SlowRequest { wait_ns, connect_ns, first_byte_ns, last_byte_ns, .. } = request;
        assert_eq!(wait_ns + connect_ns + first_byte_ns + last_byte_ns, request.response_ns, "{request:?}");
        assert!(seen.ids.contains(&id(request)), "{request:?}");
        assert!((0..plan.duration_ns as i64).contains(&request.at_ns), "{request:?}");
        assert!((1..=plan.connections as u32).contains(&request.connection), "{request:?}");
    }
    assert!(slowest.is_sorted_by(|one, next| one.response_ns >= next.response_ns), "{slowest:#?}");
    slowest
}

#[test]
fn slow_requests_are_found_by_their_ids_and_ports() {
    for is_open in [false, true] {
        let seen = Notes::default();
        let notes = seen.clone();
        let server = serve(move |stream| {
            let port = stream.peer_addr().unwrap().port();
            serve_traced(stream, port, &notes);
        });
        let plan = if is_open { open(server.address, 300.0, Arrival::Constant) } else { plan(server.address) };
        let body = b"a body after the header".to_vec();
        let slowest = agree(&traced(LoadPlan { method: "POST".into(), body, threads: 2, ..plan }), &seen);
        assert!(slowest.iter().all(|request| request.received_bytes as usize == SMALL.len()), "{slowest:#?}");
    }
}

#[test]
fn trace_ids_cross_tls_and_a_late_connection_is_a_phase() {
    let seen = Notes::default();
    let notes = seen.clone();
    let server = serve_secure(false, move |stream| {
        let port = stream.sock.peer_addr().unwrap().port();
        serve_traced(stream, port, &notes);
    });
    let plan =
        LoadPlan { connections: 20, requests_per_connection: 1, ..open(server.address, 40.0, Arrival::Constant) };
    let slowest = agree(&secured(traced(plan)), &seen);
    assert!(slowest.iter().all(|request| request.connect_ns > 0), "each has a new connection: {slowest:#?}");
}

#[test]
fn trace_ids_cross_http_2() {
    let seen = Notes::default();
    let notes = seen.clone();
    let server = serve(move |stream| {
        let port = stream.peer_addr().unwrap().port();
        let (Some(mut peer), mut fields) = (Peer::new(stream, &[]), httlib_hpack::Decoder::default()) else { return };
        while let Some((id, mut block)) = peer.header() {
            let mut read = Vec::new();
            fields.decode(&mut block, &mut read).unwrap();
            let parents: Vec<_> = read.into_iter().filter(|(name, ..)| name == b"traceparent").collect();
            assert_eq!(parents.len(), 1);
            take(&notes, std::str::from_utf8(&parents[0].1).unwrap(), port);
            if peer.say(&ok(id)).is_none() {
                return;
            }
        }
    });
    agree(&traced(http2(3, server.address)), &seen);
}

#[test]
fn requests_without_an_answer_are_the_slowest() {
    let count = AtomicU64::new(0);
    let server = serve(move |mut stream| {
        while read_request(&mut stream).is_some() {
            let is_fourth = count.fetch_add(1, Ordering::SeqCst) == 3;
            if !is_fourth && stream.write_all(SMALL).is_err() {
                return;
            }
        }
    });
    let mut plan = plan(server.address);
    (plan.connections, plan.timeout_ns, plan.duration_ns) = (1, 100 * MS, 150 * MS);
    let slowest = Vec::from(run(&plan).counts.slowest);
    let first = &slowest[0];
    assert_eq!((first.failure.as_deref(), first.status, first.received_bytes), (Some("timed out"), None, 0));
    assert!(first.response_ns >= plan.timeout_ns && first.first_byte_ns == first.response_ns, "{first:?}");
    assert!(slowest.iter().any(|request| request.status == Some(200)), "{slowest:#?}");
}
