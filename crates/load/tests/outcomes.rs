//! Each way in which a server can fail a request leads to exactly one outcome.

use crate::servers::*;
use record::scenario::RequestTarget;
use record::{Arrival, LoadPlan, Outcomes};
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs a closed loop against a server with this connection handler; at least one request must have been sent.
fn outcomes_of(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> Outcomes {
    let server = serve(handle);
    let outcomes = run(&plan(server.address)).counts.outcomes;
    assert!(outcomes.sent > 0);
    outcomes
}

/// Reads one request, then passes the connection to `then`.
fn after_request(then: impl Fn(TcpStream) + Send + Sync + 'static) -> Outcomes {
    outcomes_of(move |mut stream| {
        if read_request(&mut stream).is_some() {
            then(stream);
        }
    })
}

/// The outcomes if the server answers every request with `answer`.
fn answered(answer: &[u8]) -> Outcomes {
    let server = answering(answer);
    run(&plan(server.address)).counts.outcomes
}

fn finished(outcomes: Outcomes) -> u64 {
    outcomes.sent - outcomes.unfinished
}

#[test]
fn a_plain_server_answers_all_requests() {
    let server = answering(SMALL);
    let result = run(&plan(server.address));
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 0);
    assert_eq!(outcomes.ok, outcomes.sent);
    assert_eq!(outcomes.connects, 2);
    assert_eq!(server.requests.load(Ordering::SeqCst), outcomes.sent, "the server's own count");
    assert_eq!(result.counts.body_bytes, 5 * outcomes.ok);
    assert_eq!(result.counts.received_bytes, SMALL.len() as u64 * outcomes.ok);
    assert_eq!(result.counts.status_counts.get(&200), Some(&outcomes.ok));
    let rows = result.series_csv.lines().count();
    assert_eq!(rows, 3, "a header and two steps of 100 ms: {}", result.series_csv);
}

#[test]
fn threads_share_connections_and_their_counts_add_up() {
    let server = answering(SMALL);
    let mut plan = plan(server.address);
    (plan.connections, plan.threads) = (7, 3);
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.connects, 7);
    assert_eq!(server.requests.load(Ordering::SeqCst), result.counts.outcomes.sent);
    assert_eq!(result.engine.threads, 3);
}

#[test]
fn connections_to_a_closed_port_are_refused_without_a_busy_loop() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outcomes = run(&plan(port)).counts.outcomes;
    assert_eq!(outcomes.refused, outcomes.sent);
    // Two slots pause for 10, 20, 40, 80 ms.
    assert!((1..=12).contains(&outcomes.connects_failed), "{outcomes:?}");
    let open_outcomes = run(&open(port, 500.0, Arrival::Constant)).counts.outcomes;
    assert_eq!((open_outcomes.sent, open_outcomes.refused), (100, 100));
}

#[test]
fn a_reset_counts_as_a_reset() {
    let outcomes = after_request(reset);
    assert_eq!(outcomes.reset, outcomes.sent, "{outcomes:?}");
}

#[test]
fn a_silent_server_causes_timeouts() {
    let server = serve(|mut stream| while read_request(&mut stream).is_some() {});
    let mut plan = plan(server.address);
    plan.timeout_ns = 60 * MS;
    let outcomes = run(&plan).counts.outcomes;
    assert!(outcomes.timed_out >= 2, "{outcomes:?}");
    assert_eq!(outcomes.timed_out, finished(outcomes), "{outcomes:?}");
}

#[test]
fn a_body_that_ends_early_is_truncated() {
    let outcomes = after_request(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    });
    assert_eq!(outcomes.truncated, outcomes.sent, "{outcomes:?}");
    let outcomes = after_request(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    });
    assert_eq!(outcomes.truncated, outcomes.sent, "{outcomes:?}");
    let outcomes = after_request(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Le");
    });
    assert_eq!(outcomes.truncated, outcomes.sent, "{outcomes:?}");
}

#[test]
fn closing_without_an_answer_counts_as_closed_early() {
    let outcomes = after_request(drop);
    assert_eq!(outcomes.closed_early, outcomes.sent, "{outcomes:?}");
}

#[test]
fn garbage_counts_as_malformed() {
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n folded\r\nContent-Length: 0\r\n\r\n",
    ] {
        let outcomes = answered(garbage);
        assert!(outcomes.sent > 0);
        assert_eq!(outcomes.malformed, outcomes.sent, "{garbage:?} {outcomes:?}");
    }
}

#[test]
fn a_header_of_ten_megabytes_is_malformed_and_not_read_completely() {
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ");
            let _ = stream.write_all(&vec![b'a'; 10 << 20]);
            let _ = stream.write_all(b"\r\n\r\n");
        }
    });
    let result = run(&plan(server.address));
    let outcomes = result.counts.outcomes;
    assert!(outcomes.malformed > 0, "{outcomes:?}");
    assert_eq!(outcomes.malformed, finished(outcomes), "{outcomes:?}");
    assert!(result.first_errors.iter().any(|words| words.contains("64 KiB")), "{:?}", result.first_errors);
}

#[test]
fn bytes_after_a_response_count_as_malformed() {
    let mut twice = SMALL.to_vec();
    twice.extend_from_slice(b"junk");
    let outcomes = answered(&twice);
    assert!(outcomes.sent > 0);
    assert_eq!(outcomes.malformed, outcomes.sent, "{outcomes:?}");
}

#[test]
fn bytes_on_an_idle_connection_are_counted_as_stray() {
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(SMALL);
            std::thread::sleep(Duration::from_millis(30));
            let _ = stream.write_all(b"nobody asked");
        }
    });
    let mut plan = open(server.address, 10.0, Arrival::Constant);
    plan.connections = 1;
    plan.duration_ns = 400 * MS;
    let result = run(&plan);
    assert!(result.counts.stray_responses >= 1, "{:?}", result.counts.outcomes);
    assert!(result.doubts.iter().any(|doubt| doubt.what.contains("unrequested bytes")), "{:?}", result.doubts);
}

#[test]
fn error_statuses_are_non_2xx_and_redirects_are_not() {
    let outcomes = answered(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    assert!(outcomes.non_2xx > 0);
    assert_eq!(outcomes.non_2xx, outcomes.sent);
    let outcomes = answered(b"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((outcomes.ok, outcomes.sent > 0), (outcomes.sent, true));
    let outcomes = after_request(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
    });
    assert_eq!((outcomes.non_2xx, outcomes.sent > 0), (outcomes.sent, true), "{outcomes:?}");
}

#[test]
fn every_framing_is_understood() {
    for answer in [
        &b"HTTP/1.1 204 No Content\r\n\r\n"[..],
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: \
          2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    ] {
        let outcomes = answered(answer);
        assert!(outcomes.ok > 2);
        assert_eq!(outcomes.ok, outcomes.sent, "{:?} {outcomes:?}", String::from_utf8_lossy(answer));
        assert_eq!(outcomes.connects, 2, "the connections stay");
    }
}

#[test]
fn a_close_delimited_body_ends_with_the_connection() {
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nall of it");
        }
    });
    let result = run(&plan(server.address));
    assert_eq!(result.counts.outcomes.ok, result.counts.outcomes.sent, "{:?}", result.counts.outcomes);
    assert!(result.counts.outcomes.ok > 2);
    assert_eq!(result.counts.body_bytes, 9 * result.counts.outcomes.ok);
}

#[test]
fn a_response_sent_byte_by_byte_counts_once() {
    for answer in [SMALL, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"] {
        let answer = answer.to_vec();
        let outcomes = outcomes_of(move |mut stream| {
            let _ = stream.set_nodelay(true);
            while read_request(&mut stream).is_some() {
                for byte in &answer {
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                    std::thread::yield_now();
                }
            }
        });
        assert!(outcomes.ok > 0);
        assert_eq!(outcomes.ok, outcomes.sent, "{outcomes:?}");
    }
}

/// Answers each request with these pieces, and pauses after each piece.
fn in_pieces<const N: usize>(pieces: [&'static [u8]; N], pause: Duration) -> Server {
    serve(move |mut stream| {
        let _ = stream.set_nodelay(true);
        while read_request(&mut stream).is_some() {
            for piece in pieces {
                if stream.write_all(piece).is_err() {
                    return;
                }
                std::thread::sleep(pause);
            }
        }
    })
}

#[test]
fn gaps_between_the_parts_of_a_stream_are_timed_on_request() {
    const GAP: Duration = Duration::from_millis(20);
    let parts: [&'static [u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n",
        b"9\r\ndata: b\n\n\r\n",
        b"9\r\ndata: c\n\n\r\n0\r\n\r\n",
    ];
    let server = in_pieces(parts, GAP);
    let mut plan = plan(server.address);
    for is_asked in [false, true] {
        plan.clients.times_parts = is_asked;
        let result = run(&plan);
        let (outcomes, gaps) = (result.counts.outcomes, &result.counts.times.part_gap);
        assert!(outcomes.ok > 0 && outcomes.ok == outcomes.sent, "{outcomes:?}");
        let name = record::names::PART_GAP_P50;
        let figure = result.figures(&plan).get(name).cloned();
        if !is_asked {
            assert!(gaps.is_empty() && figure.is_none(), "{figure:?}");
            continue;
        }
        // A busy machine may read parts together, which makes them one. On average, no gap is shorter than the
        // server's.
        assert!(!gaps.is_empty() && gaps.len() <= 2 * outcomes.ok, "{} gaps of {outcomes:?}", gaps.len());
        assert!(gaps.max_ns() >= Some(GAP.as_nanos() as u64 * 9 / 10), "{:?}", gaps.max_ns());
        assert_eq!(figure.and_then(|figure| figure.n), Some(gaps.len()));
    }
}

#[test]
fn gaps_of_an_event_stream_are_measured_between_events() {
    const GAP: Duration = Duration::from_millis(20);
    // Two events at once, a comment, and an event in two pieces: three gaps, one of zero and one of two pauses.
    let parts: [&'static [u8]; 4] = [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: \
          chunked\r\n\r\n9\r\ndata: a\n\n\r\n",
        b"12\r\ndata: b\n\ndata: c\n\n\r\n",
        b"8\r\n: on\n\nda\r\n",
        b"7\r\nta: d\n\n\r\n0\r\n\r\n",
    ];
    let server = in_pieces(parts, GAP);
    let mut plan = plan(server.address);
    plan.clients.times_parts = true;
    let result = run(&plan);
    let (outcomes, gaps) = (result.counts.outcomes, &result.counts.times.part_gap);
    assert!(outcomes.ok > 0 && outcomes.ok == outcomes.sent, "{outcomes:?}");
    assert_eq!(gaps.len(), 3 * outcomes.ok, "{outcomes:?}");
    let mean_us = result.figures(&plan).get(record::names::PART_GAP_MEAN).and_then(|mean| mean.value).expect("gaps");
    // A busy machine may read pieces together, without the pause between them.
    let longest_us = gaps.max_ns().expect("gaps") as f64 / 1e3;
    assert!(longest_us > 1.5 * GAP.as_micros() as f64, "{longest_us}");
    assert!(mean_us * gaps.len() as f64 >= 0.99 * longest_us && mean_us < longest_us, "{mean_us} {longest_us}");
}

#[test]
fn a_body_of_a_hundred_megabytes_is_counted_to_the_byte() {
    const SIZE: usize = 100 << 20;
    let server = serve(|mut stream| {
        let part = vec![b'x'; 1 << 20];
        while read_request(&mut stream).is_some() {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
            for _ in 0..SIZE / part.len() {
                if stream.write_all(&part).is_err() {
                    return;
                }
            }
        }
    });
    let mut plan = plan(server.address);
    plan.connections = 1;
    plan.duration_ns = 50 * MS;
    plan.timeout_ns = 60_000 * MS;
    let result = run(&plan);
    if result.counts.outcomes.unfinished == 0 {
        assert!(result.counts.outcomes.ok >= 1);
        assert_eq!(result.counts.body_bytes, SIZE as u64 * result.counts.outcomes.ok);
    } else {
        println!("not checked: this machine did not move 100 MiB over loopback in 2 s");
    }
}

#[test]
fn a_large_request_body_arrives_completely() {
    let server = answering(SMALL);
    let mut plan = plan(server.address);
    plan.method = "POST".into();
    plan.body = vec![b'b'; 3 << 20];
    plan.timeout_ns = 60_000 * MS;
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 0);
    assert_eq!(outcomes.ok, finished(outcomes), "{outcomes:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), outcomes.ok);
    if outcomes.unfinished == 0 {
        assert!(result.counts.sent_bytes > outcomes.ok * (3 << 20));
    }
}

#[test]
fn head_responses_have_no_body() {
    let server = answering(&b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n"[..]);
    let outcomes = run(&LoadPlan { method: "HEAD".into(), ..plan(server.address) }).counts.outcomes;
    assert!(outcomes.ok > 2);
    assert_eq!(outcomes.ok, outcomes.sent);
}

#[test]
fn one_request_per_connection_reconnects_each_time_and_announces_the_close() {
    let server = serve(|mut stream| {
        let request = read_request(&mut stream).unwrap_or_default();
        let says_close = String::from_utf8_lossy(&request).contains("Connection: close");
        let _ = stream.write_all(if says_close { SMALL_CLOSE } else { b"HTTP/1.1 500 No\r\n\r\n" });
    });
    let outcomes = run(&LoadPlan { requests_per_connection: 1, ..plan(server.address) }).counts.outcomes;
    assert!(outcomes.ok > 2);
    assert_eq!(outcomes.ok, outcomes.sent, "{outcomes:?}");
    assert!(outcomes.connects >= outcomes.ok);
}

#[test]
fn the_client_reconnects_to_a_server_that_closes_after_each_response() {
    // The server announces nothing, like many servers at their limit of requests.
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(SMALL);
            let _ = stream.shutdown(Shutdown::Write);
            // Reads the client's next request, if it has already come, and drops it.
            read_request(&mut stream);
        }
    });
    let outcomes = run(&plan(server.address)).counts.outcomes;
    assert!(outcomes.ok > 2, "{outcomes:?}");
    assert_eq!(outcomes.ok + outcomes.closed_early + outcomes.reset, outcomes.sent, "{outcomes:?}");
    assert!(outcomes.connects > 2);
}

#[test]
fn a_list_of_targets_is_visited_in_turn() {
    let seen: std::sync::Arc<std::sync::Mutex<Vec<String>>> = Default::default();
    let seen_by_server = seen.clone();
    let server = serve(move |mut stream| {
        while let Some(request) = read_request(&mut stream) {
            let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_string();
            seen_by_server.lock().unwrap().push(line);
            let _ = stream.write_all(SMALL);
        }
    });
    let mut plan = plan(server.address);
    plan.connections = 1;
    plan.targets = ["/a", "/b?c=d", "/e"].map(|path| RequestTarget { path: path.into() }).to_vec();
    run(&plan);
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 3);
    for (index, line) in seen.iter().enumerate() {
        assert_eq!(*line, format!("GET {} HTTP/1.1", ["/a", "/b?c=d", "/e"][index % 3]));
    }
}

#[test]
fn ipv6_works_like_ipv4() {
    if TcpListener::bind("[::1]:0").is_err() {
        println!("not run: this machine has no IPv6 loopback");
        return;
    }
    let server = serve_on("::1".parse().unwrap(), |mut stream| {
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(SMALL);
        }
    });
    let outcomes = run(&plan(server.address)).counts.outcomes;
    assert!(outcomes.ok > 2);
    assert_eq!(outcomes.ok, outcomes.sent);
}

#[test]
fn addresses_are_tried_in_turn() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = answering(SMALL);
    let mut plan = plan(server.address);
    plan.addresses.insert(0, closed);
    let outcomes = run(&plan).counts.outcomes;
    assert!(outcomes.ok > 2);
    assert_eq!(outcomes.ok, outcomes.sent, "{outcomes:?}");
}

#[test]
fn an_address_of_the_ip_version_of_the_source_addresses_is_chosen() {
    let answers =
        |mut stream: TcpStream| while read_request(&mut stream).is_some() && stream.write_all(SMALL).is_ok() {};
    if TcpListener::bind("[::1]:0").is_err() {
        println!("not run: this machine has no IPv6 loopback");
        return;
    }
    let (four, six) = (answering(SMALL), serve_on("::1".parse().unwrap(), answers));
    let mut plan = plan(four.address);
    plan.addresses.push(six.address);
    for (source, chosen) in [("127.0.0.1", four.address), ("::1", six.address)] {
        plan.source_addresses = vec![source.parse().unwrap()];
        assert_eq!(load::choose_address(&plan, &AtomicBool::new(false)), chosen);
        let outcomes = run(&plan).counts.outcomes;
        assert!(outcomes.ok > 2 && outcomes.ok == outcomes.sent, "{source}: {outcomes:?}");
    }
    plan.addresses.pop();
    let why = load::check(&plan).unwrap_err().to_string();
    assert!(why.contains("of different IP versions"), "{why}");
}

#[test]
fn stopping_keeps_the_measured_results() {
    let server = answering(SMALL);
    let mut plan = plan(server.address);
    plan.duration_ns = 3_600_000 * MS;
    let stop = AtomicBool::new(false);
    struct StopLater<'a>(&'a AtomicBool, Events);
    impl load::LoadEvents for StopLater<'_> {
        fn window_begins(&mut self) {
            self.1.window_begins();
        }
        fn progress(&mut self, progress: &load::LoadProgress) {
            self.1.progress(progress);
            if progress.completed > 0 {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        fn window_ends(&mut self) {
            self.1.window_ends();
        }
    }
    let mut events = StopLater(&stop, Events::default());
    let result = load::run(&plan, &stop, &mut events).unwrap();
    assert_books(&result);
    assert!(result.interrupted && result.counts.outcomes.ok > 0);
    assert!(result.window_ns < plan.duration_ns && result.window_ns > 0);
    assert!(result.doubts.iter().any(|doubt| doubt.kind == record::DoubtKind::Interrupted));
    assert_eq!((events.1.begins, events.1.ends), (1, 1));
    assert!(events.1.progress.iter().any(|progress| progress.connected == 2));
}

#[test]
fn a_warm_up_is_not_counted() {
    let server = answering(SMALL);
    let mut plan = plan(server.address);
    (plan.warmup_ns, plan.duration_ns) = (200 * MS, 100 * MS);
    let mut events = Events::default();
    let result = load::run(&plan, &AtomicBool::new(false), &mut events).unwrap();
    assert_books(&result);
    assert!(server.requests.load(Ordering::SeqCst) > result.counts.outcomes.sent);
    assert!(events.progress.iter().any(|progress| progress.in_warmup));
}

#[test]
fn the_client_waits_once_for_an_announced_close() {
    let server =
        serve(|mut stream| while read_request(&mut stream).is_some() && stream.write_all(SMALL_CLOSE).is_ok() {});
    let result = run(&LoadPlan { connections: 1, duration_ns: 800 * MS, ..plan(server.address) });
    // With a linger of 250 ms for each response there would be four.
    assert!(result.counts.outcomes.ok > 8, "{:?}", result.counts.outcomes);
    assert_eq!(result.counts.closes_awaited, 1);
    assert!(
        result.doubts.iter().any(|doubt| doubt.what.contains("announced the close of 1 connections")),
        "{:?}",
        result.doubts
    );
}

#[test]
fn the_client_does_not_wait_for_the_close_of_an_ambiguously_framed_body() {
    let both = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let result = run(&LoadPlan { connections: 1, ..plan(answering(*both).address) });
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 0 && outcomes.failed() == 0, "{outcomes:?}");
    assert_eq!(result.counts.closes_awaited, 0);
    assert!(!result.doubts.iter().any(|doubt| doubt.what.contains("announced the close")), "{:?}", result.doubts);
}

#[test]
fn a_408_on_an_idle_connection_is_no_failure() {
    let server = serve(|mut stream| {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        while read_request(&mut stream).is_some() && stream.write_all(SMALL).is_ok() {}
        let _ = stream.write_all(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let result = run(&LoadPlan { connections: 20, ..open(server.address, 50.0, Arrival::Constant) });
    assert!(result.counts.idle_timeouts > 0, "{:?}", result.counts);
    assert_eq!((result.counts.stray_responses, result.counts.outcomes.closed_unused), (0, 0));
    let said = |words: &str| result.doubts.iter().any(|doubt| doubt.what.contains(words));
    assert!(said("time limit (status 408)") && !said("limit connections"), "{:?}", result.doubts);
}
