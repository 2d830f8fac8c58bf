//! Redis, memcached and raw TCP against small servers that count, fail and misbehave.

use crate::servers::*;
use load::LoadResult;
use record::protocol::{ANSWER, Expect, MISS, MemcachedPlan, Protocol, RedisPlan, TcpPlan, redis_error};
use record::{Arrival, LoadPlan, Pace};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn speaking(protocol: Protocol, address: SocketAddr) -> LoadPlan {
    LoadPlan { protocol, targets: Vec::new(), ..plan(address) }
}

fn redis(pipeline: u32) -> RedisPlan {
    RedisPlan { pipeline, ..RedisPlan::default() }
}

/// Answers each line of the requests with the next of these answers, and counts the lines.
fn line_by_line(answers: &'static [&'static [u8]]) -> Server {
    let requests = Arc::new(AtomicU64::new(0));
    let counted = requests.clone();
    let mut server = serve(move |mut stream| {
        let mut buffer = [0; 65536];
        let mut turn = 0;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let lines = buffer[..count].iter().filter(|byte| **byte == b'\n').count();
            counted.fetch_add(lines as u64, Ordering::SeqCst);
            let mut out = Vec::new();
            for _ in 0..lines {
                out.extend_from_slice(answers[turn % answers.len()]);
                turn += 1;
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    });
    server.requests = requests;
    server
}

fn tcp(pipeline: u32, expect: Expect) -> Protocol {
    Protocol::Tcp(TcpPlan { send: b"ping\n".to_vec(), expect, pipeline })
}

/// Asserts that every request has one outcome, and that the server saw as many requests.
fn adds_up(result: &LoadResult, server: &Server) {
    let outcomes = result.counts.outcomes;
    assert!(outcomes.sent > 0, "{outcomes:?} {:?}", result.first_errors);
    assert_eq!(outcomes.sum(), outcomes.requests(), "{outcomes:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), outcomes.sent, "the server's own count");
}

#[test]
fn each_request_in_flight_is_counted_with_its_own_time() {
    let server = line_by_line(&[b"pong\n"]);
    let result = run(&speaking(tcp(8, Expect::Line), server.address));
    adds_up(&result, &server);
    let outcomes = result.counts.outcomes;
    assert_eq!((outcomes.ok, outcomes.connects), (outcomes.sent, 2), "{:?}", result.first_errors);
    assert_eq!(result.counts.times.response.len(), outcomes.ok);
    assert_eq!(result.counts.received_bytes, 5 * outcomes.ok);
    assert_eq!(result.counts.sent_bytes, 5 * outcomes.sent);
    assert_eq!(result.counts.status_counts, [(ANSWER, outcomes.ok)].into());
}

#[test]
fn an_open_loop_fills_connections_up_to_their_limit() {
    // The server answers after a delay; with one request in flight at a time, the connection could not keep up.
    let server = serve(|mut stream| {
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            std::thread::sleep(Duration::from_millis(10));
            let lines = buffer[..count].iter().filter(|byte| **byte == b'\n').count();
            if stream.write_all(&b"pong\n".repeat(lines)).is_err() {
                return;
            }
        }
    });
    let pace = Pace::Open { rate_per_sec: 1_000.0, arrival: Arrival::Constant };
    let plan = LoadPlan { pace, connections: 1, ..speaking(tcp(1_000, Expect::Line), server.address) };
    let result = run(&plan);
    let (outcomes, never_sent) = (result.counts.outcomes, result.counts.never_sent);
    assert_eq!((outcomes.ok, outcomes.sent, never_sent), (200, 200, 0), "{outcomes:?}");
    assert_eq!(result.counts.times.connection_wait.quantile_ns(1.0), Some(1), "no request waited for a connection");
}

#[test]
fn a_connection_closes_after_its_requests_and_not_before_their_answers() {
    let server = line_by_line(&[b"pong\n"]);
    let mut plan = speaking(tcp(4, Expect::Bytes(5)), server.address);
    plan.requests_per_connection = 6;
    let result = run(&plan);
    adds_up(&result, &server);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok, outcomes.sent, "{:?}", result.first_errors);
    assert!(outcomes.connects >= outcomes.sent / 6, "{outcomes:?}");
}

#[test]
fn an_open_loop_opens_connections_on_demand_and_fills_them() {
    let server = line_by_line(&[b"pong\n"]);
    let pace = Pace::Open { rate_per_sec: 2_000.0, arrival: Arrival::Poisson };
    let plan = LoadPlan { pace, requests_per_connection: 3, ..speaking(tcp(2, Expect::Line), server.address) };
    let result = run(&plan);
    adds_up(&result, &server);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok, outcomes.sent, "{outcomes:?} {:?}", result.first_errors);
    assert!(outcomes.connects >= outcomes.sent / 3, "{outcomes:?}");
}

#[test]
fn length_prefixed_answers_are_read() {
    let server = line_by_line(&[b"\x00\x03abc", b"\x00\x00"]);
    let result = run(&speaking(tcp(3, Expect::U16be), server.address));
    adds_up(&result, &server);
    assert_eq!(result.counts.outcomes.ok, result.counts.outcomes.sent, "{:?}", result.first_errors);
}

/// Reads commands like Redis, as far as needed here, and answers each.
fn redis_like(answer: impl Fn(&[String]) -> Vec<u8> + Send + Sync + 'static) -> Server {
    let requests = Arc::new(AtomicU64::new(0));
    let counted = requests.clone();
    let mut server = serve(move |stream| {
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream.try_clone().unwrap()));
        let mut out = stream;
        while let Some(Ok(head)) = lines.next() {
            let count: usize = head.trim_start_matches('*').parse().expect("an array");
            let words: Vec<String> = (0..count).map(|_| (lines.next(), lines.next()).1.unwrap().unwrap()).collect();
            if !matches!(words[0].as_str(), "AUTH" | "SELECT") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            let answer = answer(&words);
            // Sends the answer in pieces with pauses.
            let (first, rest) = answer.split_at(answer.len() / 2);
            if out.write_all(first).is_err() || out.write_all(rest).is_err() {
                return;
            }
        }
    });
    server.requests = requests;
    server
}

#[test]
fn error_replies_fail_requests_and_are_counted_by_kind() {
    let server = redis_like(|words| match words[0].as_str() {
        "GET" => b"$-1\r\n".to_vec(),
        _ => b"-MOVED 3999 127.0.0.1:6381\r\n".to_vec(),
    });
    let mut redis = redis(4);
    redis.keyspace.read_ratio = 0.5;
    let result = run(&speaking(Protocol::Redis(redis), server.address));
    adds_up(&result, &server);
    let (outcomes, counts) = (result.counts.outcomes, &result.counts.status_counts);
    assert!(outcomes.ok > 0 && outcomes.non_2xx > 0, "{outcomes:?}");
    assert_eq!(counts[&MISS], outcomes.ok);
    assert_eq!(counts[&redis_error(b"MOVED")], outcomes.non_2xx);
    assert!(result.first_errors.iter().any(|words| words.contains("MOVED 3999")), "{:?}", result.first_errors);
}

#[test]
fn a_connection_sends_its_password_and_database_first() {
    let server = redis_like(|words| match words[0].as_str() {
        "AUTH" if words[1..] == ["user", "secret"] => b"+OK\r\n".to_vec(),
        "AUTH" => b"-WRONGPASS invalid username-password pair\r\n".to_vec(),
        "SELECT" => b"+OK\r\n".to_vec(),
        _ => b"$2\r\nhi\r\n".to_vec(),
    });
    let open = RedisPlan { user: "user".into(), password: "secret".into(), database: 3, ..redis(2) };
    let good = run(&speaking(Protocol::Redis(open.clone()), server.address));
    adds_up(&good, &server);
    assert_eq!(good.counts.outcomes.ok, good.counts.outcomes.sent, "{:?}", good.first_errors);
    let wrong = speaking(Protocol::Redis(RedisPlan { password: "guess".into(), ..open }), server.address);
    let bad = run(&wrong);
    let outcomes = bad.counts.outcomes;
    assert_eq!((outcomes.ok, outcomes.sum()), (0, outcomes.requests()), "{outcomes:?}");
    assert!(outcomes.refused > 0 && outcomes.connects_failed > 0, "{outcomes:?}");
    assert!(bad.first_errors.iter().any(|words| words.contains("WRONGPASS")), "{:?}", bad.first_errors);
    let why = load::probe(&wrong, Duration::from_secs(5)).unwrap_err().to_string();
    assert!(why.contains("WRONGPASS") && why.contains("password"), "{why}");
}

#[test]
fn the_error_names_the_servers_other_protocol() {
    let server = serve(|mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let memcached = MemcachedPlan { pipeline: 3, ..MemcachedPlan::default() };
    for protocol in [Protocol::Redis(redis(3)), Protocol::Memcached(memcached)] {
        let plan = speaking(protocol, server.address);
        let result = run(&plan);
        let outcomes = result.counts.outcomes;
        assert_eq!((outcomes.ok, outcomes.sum()), (0, outcomes.requests()), "{outcomes:?}");
        assert!(outcomes.malformed > 0, "{outcomes:?}");
        assert!(result.first_errors.iter().any(|words| words.contains("answered HTTP")), "{:?}", result.first_errors);
        let why = load::probe(&plan, Duration::from_secs(5)).unwrap_err().to_string();
        assert!(why.contains("answered HTTP") && !why.contains('\n'), "{why}");
    }
}

#[test]
fn the_end_of_a_connection_ends_all_its_requests_in_flight() {
    type Ends = fn(TcpStream);
    let cases: [(&str, Ends); 5] = [
        ("closes", |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
        }),
        ("resets", |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            reset(stream);
        }),
        ("nests", |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&b"*1\r\n".repeat(100_000));
        }),
        ("never ends a line", |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&vec![b'+'; 1 << 20]);
        }),
        ("says too much", |mut stream| {
            let mut buffer = [0; 4096];
            while let Ok(1..) = stream.read(&mut buffer) {
                if stream.write_all(&b"+OK\r\n".repeat(1000)).is_err() {
                    return;
                }
            }
        }),
    ];
    for (what, ends) in cases {
        let server = serve(ends);
        let result = run(&speaking(Protocol::Redis(redis(5)), server.address));
        let outcomes = result.counts.outcomes;
        assert_eq!(outcomes.sum(), outcomes.requests(), "{what}: {outcomes:?}");
        let failed = outcomes.failed() + result.counts.stray_responses;
        assert!(outcomes.sent > 0 && failed > 0, "{what}: {outcomes:?}");
    }
}

#[test]
fn a_silent_server_times_out_every_request_in_flight() {
    let server = serve(|mut stream| while let Ok(1..) = stream.read(&mut [0; 4096]) {});
    let mut plan = speaking(Protocol::Redis(redis(5)), server.address);
    (plan.timeout_ns, plan.duration_ns) = (50 * MS, 400 * MS);
    let outcomes = run(&plan).counts.outcomes;
    assert_eq!(outcomes.sum(), outcomes.requests(), "{outcomes:?}");
    assert!(outcomes.timed_out >= 10, "{outcomes:?}");
}

#[test]
fn a_slow_reader_gets_every_byte_of_combined_requests() {
    let requests = Arc::new(AtomicU64::new(0));
    let counted = requests.clone();
    let mut server = serve(move |mut stream| {
        let mut buffer = vec![0; 4096];
        let mut bytes = 0u64;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let before = bytes / 1_000_000;
            bytes += count as u64;
            for _ in before..bytes / 1_000_000 {
                counted.fetch_add(1, Ordering::SeqCst);
                if stream.write_all(b"x").is_err() {
                    return;
                }
            }
        }
    });
    server.requests = requests;
    let send = vec![b'y'; 1_000_000];
    let protocol = Protocol::Tcp(TcpPlan { send, expect: Expect::Bytes(1), pipeline: 4 });
    let result = run(&speaking(protocol, server.address));
    let outcomes = result.counts.outcomes;
    assert_eq!(
        (outcomes.ok, outcomes.sum()),
        (outcomes.sent, outcomes.requests()),
        "{outcomes:?} {:?}",
        result.first_errors
    );
    assert_eq!(server.requests.load(Ordering::SeqCst), outcomes.ok);
    assert!(outcomes.ok > 4, "{outcomes:?}");
}
