//! HTTP/2 against small servers that answer in any order, refuse, and misbehave.

use crate::servers::*;
use load::LoadResult;
use load::http2::{Http2Session, RequestBlocks, StreamEnd};
use proptest::prelude::*;
use record::protocol::{ANSWER, FIRST_ERROR, GrpcPlan, Http2Plan, Protocol, grpc_status};
use record::{Arrival, LoadPlan, Pace};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A setting and its value.
fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A response of status 200 without a body.
pub fn ok(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88])
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// The server's side of a connection.
pub struct Peer {
    stream: TcpStream,
    received: VecDeque<u8>,
}

impl Peer {
    /// Sends SETTINGS and reads the client's preface.
    pub fn new(mut stream: TcpStream, settings: &[u8]) -> Option<Peer> {
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).ok()?;
        let mut peer = Peer { stream, received: VecDeque::new() };
        let preface = peer.take(PREFACE.len())?;
        assert_eq!(preface, PREFACE);
        Some(peer)
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut buffer = [0; 16_384];
        while self.received.len() < count {
            match self.stream.read(&mut buffer) {
                Ok(count @ 1..) => self.received.extend(&buffer[..count]),
                _ => return None,
            }
        }
        Some(self.received.drain(..count).collect())
    }

    fn frame(&mut self) -> Option<Frame> {
        let head = self.take(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.take(length)? })
    }

    /// Reads up to the next request; returns its stream.
    pub fn request(&mut self) -> Option<u32> {
        self.header().map(|(stream, _)| stream)
    }

    /// The stream and the header block of the next request.
    pub fn header(&mut self) -> Option<(u32, Vec<u8>)> {
        loop {
            let frame = self.frame()?;
            if frame.kind == HEADERS {
                assert!(frame.flags & END_STREAM != 0 && frame.stream % 2 == 1, "{}", frame.flags);
                return Some((frame.stream, frame.payload));
            }
        }
    }

    /// Whether another whole request has already come; other frames may precede it.
    fn has_more(&self) -> bool {
        let at = |place: usize| self.received.get(place).map(|byte| usize::from(*byte));
        let mut begin = 0;
        while let (Some(high), Some(middle), Some(low), Some(kind)) =
            (at(begin), at(begin + 1), at(begin + 2), at(begin + 3))
        {
            let end = begin + 9 + (high << 16 | middle << 8 | low);
            if end > self.received.len() {
                return false;
            }
            if kind == usize::from(HEADERS) {
                return true;
            }
            begin = end;
        }
        false
    }

    pub fn say(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).ok()
    }
}

/// A server that counts requests; `handle` reports each.
pub fn speaking(handle: impl Fn(TcpStream, &AtomicU64) -> Option<()> + Send + Sync + 'static) -> Server {
    let requests = Arc::new(AtomicU64::new(0));
    let counted = requests.clone();
    let mut server = serve(move |stream| {
        // The server thread ends with its connection.
        let _ = handle(stream, &counted);
    });
    server.requests = requests;
    server
}

/// Whether the condition holds within ten seconds.
fn patiently(holds: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        holds() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    })
}

pub fn http2(streams: u32, address: SocketAddr) -> LoadPlan {
    LoadPlan { protocol: Protocol::Http2(Http2Plan { streams }), ..plan(address) }
}

/// Asserts that every request has one outcome, and that the server saw as many requests.
fn adds_up(result: &LoadResult, server: &Server) {
    let outcomes = result.counts.outcomes;
    assert!(outcomes.sent > 0, "{outcomes:?} {:?}", result.first_errors);
    assert_eq!(server.requests.load(Ordering::SeqCst), outcomes.sent, "the server's own count");
}

fn all_ok(result: &LoadResult, server: &Server) {
    adds_up(result, server);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok, outcomes.sent, "{outcomes:?} {:?}", result.first_errors);
}

fn says(result: &LoadResult, words: &str) {
    assert!(result.first_errors.iter().any(|said| said.contains(words)), "{words}: {:?}", result.first_errors);
}

/// Answers requests that came together in reverse order, each with an interim response, a padded body and trailers.
fn backwards(stream: TcpStream, requests: &AtomicU64) -> Option<()> {
    let mut peer = Peer::new(stream, &[])?;
    loop {
        let mut streams = vec![peer.request()?];
        while peer.has_more() {
            streams.push(peer.request()?);
        }
        requests.fetch_add(streams.len() as u64, Ordering::SeqCst);
        let mut out = frame(PING, 0, 0, b"are you?");
        out.extend(streams.iter().flat_map(|stream| frame(HEADERS, END_HEADERS, *stream, b"\x08\x03103")));
        for stream in streams.iter().rev() {
            let (first, rest) = (&[0x88, 0x40], [1, b'x', 1, b'y']);
            out.extend(frame(HEADERS, PADDED, *stream, &[&[2], &first[..1], &[0, 0]].concat()));
            out.extend(frame(CONTINUATION, 0, *stream, &first[1..]));
            out.extend(frame(CONTINUATION, END_HEADERS, *stream, &rest));
            out.extend(frame(DATA, 0, *stream, b"hello"));
        }
        for stream in &streams {
            out.extend(frame(DATA, PADDED, *stream, b"\x03, you\0\0\0"));
            out.extend(frame(0x7f, 0xff, *stream, b"of no known kind"));
            // The trailers refer to an entry that the header added to the table.
            out.extend(frame(HEADERS, END_HEADERS | END_STREAM, *stream, &[0xbe]));
        }
        // In pieces, now and then.
        for part in out.chunks(700) {
            peer.say(part)?;
        }
    }
}

#[test]
fn responses_in_any_order_are_counted_each_with_its_own_time() {
    for streams in [1, 7, 100] {
        let server = speaking(backwards);
        let result = run(&http2(streams, server.address));
        all_ok(&result, &server);
        let outcomes = result.counts.outcomes;
        assert_eq!(result.counts.body_bytes, 10 * outcomes.ok, "of hello, you");
        assert_eq!((outcomes.connects, result.counts.stray_responses), (2, 0), "{:?}", result.first_errors);
        assert_eq!(result.counts.status_counts, [(200, outcomes.ok)].into());
    }
}

#[test]
fn the_slowest_stream_delays_no_other_and_keeps_its_time() {
    // The first request of a connection is answered at the end of the load.
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        let slow = peer.request()?;
        requests.fetch_add(1, Ordering::SeqCst);
        let begun = std::time::Instant::now();
        let mut is_answered = false;
        loop {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            peer.say(&ok(stream))?;
            if !is_answered && begun.elapsed() > Duration::from_millis(100) {
                is_answered = true;
                peer.say(&ok(slow))?;
            }
        }
    });
    let result = run(&http2(2, server.address));
    all_ok(&result, &server);
    let times = &result.counts.times.response;
    assert!(times.quantile_ns(1.0) >= Some(100 * MS), "{:?}", times.quantile_ns(1.0));
    assert_eq!(times.len() - times.count_at_most(99 * MS), 2, "one a connection");
}

#[test]
fn a_response_in_part_keeps_its_time_while_more_requests_come() {
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        let slow = peer.request()?;
        peer.say(&frame(HEADERS, END_HEADERS, slow, &[0x88]))?;
        let begun = std::time::Instant::now();
        let mut waiting = vec![slow];
        while begun.elapsed() < Duration::from_millis(100) {
            waiting.push(peer.request()?);
        }
        requests.fetch_add(waiting.len() as u64, Ordering::SeqCst);
        let out = waiting.drain(1..).flat_map(ok).chain(frame(DATA, END_STREAM, slow, b"x"));
        peer.say(&out.collect::<Vec<_>>())?;
        loop {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            peer.say(&ok(stream))?;
        }
    });
    let pace = Pace::Open { rate_per_sec: 1_000.0, arrival: Arrival::Constant };
    let result = run(&LoadPlan { pace, connections: 1, ..http2(1_000, server.address) });
    all_ok(&result, &server);
    let times = &result.counts.times;
    assert!(times.response.quantile_ns(1.0) >= Some(100 * MS), "{:?}", times.response.quantile_ns(1.0));
    assert_eq!(result.counts.body_bytes, 1);
}

#[test]
fn an_open_loop_uses_the_streams_of_a_connection() {
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        loop {
            let mut out = ok(peer.request()?);
            std::thread::sleep(Duration::from_millis(10));
            requests.fetch_add(1, Ordering::SeqCst);
            while peer.has_more() {
                out.extend(ok(peer.request()?));
                requests.fetch_add(1, Ordering::SeqCst);
            }
            peer.say(&out)?;
        }
    });
    let pace = Pace::Open { rate_per_sec: 1_000.0, arrival: Arrival::Constant };
    let plan = LoadPlan { pace, connections: 1, ..http2(1_000, server.address) };
    let result = run(&plan);
    let (outcomes, never_sent) = (result.counts.outcomes, result.counts.never_sent);
    assert_eq!((outcomes.ok, outcomes.sent, never_sent), (200, 200, 0), "{outcomes:?}");
    assert_eq!(result.counts.times.connection_wait.quantile_ns(1.0), Some(1), "no request waited for a connection");
}

#[test]
fn the_number_of_streams_follows_the_servers_limit() {
    let server = speaking(|stream, requests| {
        // 3 = SETTINGS_MAX_CONCURRENT_STREAMS.
        let mut peer = Peer::new(stream, &setting(3, 2))?;
        for most in [2, 5] {
            let mut waiting = Vec::new();
            for _ in 0..40 {
                while waiting.len() < most {
                    waiting.push(peer.request()?);
                    requests.fetch_add(1, Ordering::SeqCst);
                }
                // A third request would arrive before the answer to PING.
                peer.say(&frame(PING, 0, 0, b"any more"))?;
                while peer.frame()?.kind != PING {}
                assert!(!peer.has_more());
                peer.say(&waiting.drain(..).flat_map(ok).collect::<Vec<_>>())?;
            }
            peer.say(&frame(SETTINGS, 0, 0, &setting(3, 5)))?;
        }
        loop {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            peer.say(&ok(stream))?;
        }
    });
    let result = run(&http2(8, server.address));
    all_ok(&result, &server);
    // The server allows fewer requests than the plan wants.
    let doubt = result.doubts.iter().find(|doubt| doubt.kind == record::DoubtKind::LittlesLaw);
    assert!(doubt.is_some_and(|doubt| doubt.what.contains("the server allows no more")), "{:?}", result.doubts);
}

#[test]
fn a_reset_stream_fails_its_request_only() {
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        for turn in 0u32.. {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            // INTERNAL_ERROR, REFUSED_STREAM.
            peer.say(&match turn % 4 {
                0 => frame(RST_STREAM, 0, stream, &2u32.to_be_bytes()),
                1 => frame(RST_STREAM, 0, stream, &7u32.to_be_bytes()),
                _ => ok(stream),
            })?;
        }
        None
    });
    let result = run(&http2(3, server.address));
    adds_up(&result, &server);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.reset > 0 && outcomes.refused > 0 && outcomes.ok > 0, "{outcomes:?}");
    assert_eq!(outcomes.connects, 2, "the connections stay");
    says(&result, "INTERNAL_ERROR");
}

#[test]
fn gaps_between_parts_are_timed_for_each_interleaved_stream() {
    const GAP: Duration = Duration::from_millis(20);
    // Each of two responses has three parts; the gap on a stream is two pauses, that on the connection one.
    let server = speaking(|stream, requests| {
        let _ = stream.set_nodelay(true);
        let mut peer = Peer::new(stream, &[])?;
        loop {
            let streams = [peer.request()?, peer.request()?];
            requests.fetch_add(2, Ordering::SeqCst);
            for stream in streams {
                peer.say(&frame(HEADERS, END_HEADERS, stream, &[0x88]))?;
            }
            for part in 0..3 {
                for stream in streams {
                    std::thread::sleep(GAP);
                    let flags = if part == 2 { END_STREAM } else { 0 };
                    // Two frames that are read together are one part.
                    peer.say(&[frame(DATA, 0, stream, b"data: "), frame(DATA, flags, stream, b"x\n\n")].concat())?;
                }
            }
        }
    });
    let mut plan = LoadPlan { connections: 1, ..http2(2, server.address) };
    plan.clients.times_parts = true;
    let result = run(&plan);
    let (outcomes, gaps) = (result.counts.outcomes, &result.counts.times.part_gap);
    assert!(outcomes.ok > 0 && !gaps.is_empty(), "{outcomes:?} {:?}", result.first_errors);
    assert!(gaps.len() <= 2 * outcomes.ok, "{} gaps of {outcomes:?}", gaps.len());
    assert!(gaps.max_ns() >= Some(2 * GAP.as_nanos() as u64 * 9 / 10), "{:?}", gaps.max_ns());
}

#[test]
fn events_are_counted_by_the_content_type_in_both_forms_of_the_header() {
    let server = speaking(|stream, requests| {
        let _ = stream.set_nodelay(true);
        let mut peer = Peer::new(stream, &[])?;
        // The first response adds the field to the table, and the others refer to it.
        let mut kind = [&[0x5f, 17][..], b"text/event-stream"].concat();
        loop {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            peer.say(&frame(HEADERS, END_HEADERS, stream, &[&[0x88], &kind[..]].concat()))?;
            kind = vec![0xbe];
            peer.say(&[frame(DATA, 0, stream, b"data: a\n\nda"), frame(DATA, 0, stream, b"ta: b\n\n")].concat())?;
            std::thread::sleep(Duration::from_millis(2));
            peer.say(&frame(DATA, END_STREAM, stream, b"data: c\n\ndata: not ended"))?;
        }
    });
    let mut plan = LoadPlan { connections: 1, ..http2(1, server.address) };
    plan.clients.times_parts = true;
    let result = run(&plan);
    let (outcomes, gaps) = (result.counts.outcomes, &result.counts.times.part_gap);
    assert!(outcomes.ok > 1 && outcomes.ok == outcomes.sent, "{outcomes:?} {:?}", result.first_errors);
    assert_eq!(gaps.len(), 2 * outcomes.ok, "{outcomes:?}");
}

#[test]
fn requests_beyond_goaway_are_refused_and_the_connection_is_reopened() {
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        for _ in 0..10 {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            peer.say(&ok(stream))?;
        }
        let last = peer.request()?;
        requests.fetch_add(1, Ordering::SeqCst);
        // The window may end here, without a request beyond the limit.
        let beyond = peer.request()?;
        requests.fetch_add(1, Ordering::SeqCst);
        assert!(beyond > last);
        // The first GOAWAY announces the end; the second names the last stream, which is still answered.
        let mut out = frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        out.extend(frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0, 0, 0, 0], b"enough"].concat()));
        out.extend(ok(last));
        peer.say(&out)?;
        while let Some(frame) = peer.frame() {
            assert_ne!(frame.kind, HEADERS, "a request after GOAWAY");
        }
        None
    });
    let result = run(&http2(2, server.address));
    adds_up(&result, &server);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok + outcomes.refused + outcomes.unfinished, outcomes.sent, "{outcomes:?}");
    assert!(outcomes.refused > 0 && outcomes.connects > 2, "{outcomes:?}");
    assert!(outcomes.ok >= 11 * outcomes.refused, "{outcomes:?}");
    says(&result, "GOAWAY, NO_ERROR");
}

#[test]
fn requests_on_a_connection_that_goes_away_at_its_start_are_refused() {
    let server = speaking(|mut stream, _| {
        // Requests that wait for a connection are sent when its SETTINGS have come.
        stream.write_all(&[frame(SETTINGS, 0, 0, &[]), frame(GOAWAY, 0, 0, &[0; 8])].concat()).ok()?;
        while let Ok(1..) = stream.read(&mut [0; 4096]) {}
        None
    });
    let pace = Pace::Open { rate_per_sec: 100.0, arrival: Arrival::Constant };
    let mut plan = LoadPlan { pace, connections: 20, requests_per_connection: 1, ..http2(1, server.address) };
    plan.timeout_ns = 100 * MS;
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.refused > 0 && outcomes.refused == outcomes.sent, "{outcomes:?} {:?}", result.first_errors);
}

#[test]
fn frames_without_a_response_do_not_count_as_an_answer_on_the_connection() {
    let server = speaking(|stream, _| {
        let mut peer = Peer::new(stream, &[])?;
        loop {
            peer.say(&frame(PING, 0, 0, b"are you?"))?;
            while peer.frame()?.kind != PING {}
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let mut plan = http2(2, server.address);
    plan.timeout_ns = 100 * MS;
    let outcomes = run(&plan).counts.outcomes;
    assert_eq!((outcomes.connections_silent, outcomes.connections_used), (2, 2), "{outcomes:?}");
}

#[test]
fn a_body_is_sent_as_the_windows_allow() {
    const BODY: usize = 100_000;
    // 4 = SETTINGS_INITIAL_WINDOW_SIZE.
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &setting(4, 30_000))?;
        let (mut windows, mut received) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
        let mut connection = 65_535i64;
        loop {
            let Frame { kind, flags, stream, payload } = peer.frame()?;
            if kind == HEADERS {
                windows.insert(stream, 30_000i64);
            }
            if kind != DATA {
                continue;
            }
            assert!(payload.len() <= 16_384 && payload.iter().all(|byte| *byte == b'b'));
            let window = windows.get_mut(&stream).unwrap();
            *window -= payload.len() as i64;
            connection -= payload.len() as i64;
            assert!(*window >= 0 && connection >= 0, "more than the windows allow");
            let sum = received.entry(stream).or_insert(0);
            *sum += payload.len();
            let mut out = Vec::new();
            if flags & END_STREAM != 0 {
                assert_eq!(*sum, BODY);
                requests.fetch_add(1, Ordering::SeqCst);
                out.extend(ok(stream));
            } else if *window < 10_000 {
                *window += 20_000;
                out.extend(frame(WINDOW_UPDATE, 0, stream, &20_000u32.to_be_bytes()));
            }
            if connection < 40_000 {
                connection += 20_000;
                out.extend(frame(WINDOW_UPDATE, 0, 0, &20_000u32.to_be_bytes()));
            }
            peer.say(&out)?;
        }
    });
    let plan = LoadPlan { method: "POST".into(), body: vec![b'b'; BODY], ..http2(4, server.address) };
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 0 && outcomes.ok == outcomes.completed(), "{outcomes:?} {:?}", result.first_errors);
    assert_eq!(server.requests.load(Ordering::SeqCst), outcomes.ok, "{outcomes:?}");
}

#[test]
fn a_closed_window_and_a_silent_server_time_out_each_request() {
    for (what, settings) in [("shut", setting(4, 0)), ("silent", Vec::new())] {
        let server = speaking(move |stream, _| {
            let mut peer = Peer::new(stream, &settings)?;
            while peer.frame().is_some() {}
            None
        });
        let body = if what == "shut" { vec![b'b'; 10] } else { Vec::new() };
        let mut plan = LoadPlan { body, ..http2(5, server.address) };
        (plan.timeout_ns, plan.duration_ns) = (50 * MS, 400 * MS);
        let outcomes = run(&plan).counts.outcomes;
        assert!(outcomes.timed_out >= 10, "{what}: {outcomes:?}");
        assert_eq!(outcomes.timed_out + outcomes.unfinished, outcomes.sent, "{what}: {outcomes:?}");
        assert!(outcomes.connects > 2, "{what}: nothing came in, so the connection is opened again");
    }
}

#[test]
fn a_request_that_times_out_is_cancelled_and_the_others_continue() {
    let cancelled = Arc::new(AtomicU64::new(0));
    let counted = cancelled.clone();
    let server = speaking(move |stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        let mut forgotten = 0;
        for turn in 0u32.. {
            let frame = peer.frame()?;
            match frame.kind {
                HEADERS => {
                    requests.fetch_add(1, Ordering::SeqCst);
                    // Every 50th request gets no response, but never all ten, so that the connection receives bytes.
                    if turn % 50 == 0 && forgotten < 5 {
                        forgotten += 1;
                    } else {
                        peer.say(&ok(frame.stream))?;
                    }
                }
                RST_STREAM => {
                    forgotten -= 1;
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                _ => {}
            }
        }
        None
    });
    let mut plan = http2(10, server.address);
    (plan.timeout_ns, plan.duration_ns) = (150 * MS, 1000 * MS);
    let result = run(&plan);
    adds_up(&result, &server);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok + outcomes.timed_out + outcomes.unfinished, outcomes.sent, "{outcomes:?}");
    assert_eq!(outcomes.connects, 2, "{outcomes:?}");
    // At the end no bytes come, so the last requests time out with their connections. Others are read after the load.
    assert!(outcomes.timed_out > 40, "{outcomes:?}");
    let all_are_cancelled = || cancelled.load(Ordering::SeqCst) + 20 >= outcomes.timed_out;
    assert!(patiently(all_are_cancelled), "{outcomes:?} {cancelled:?}");
}

#[test]
fn a_connection_closes_after_its_requests_and_not_before_their_responses() {
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        loop {
            let stream = peer.request()?;
            requests.fetch_add(1, Ordering::SeqCst);
            peer.say(&ok(stream))?;
        }
    });
    for pace in [Pace::Closed, Pace::Open { rate_per_sec: 2_000.0, arrival: Arrival::Poisson }] {
        let before = server.requests.swap(0, Ordering::SeqCst);
        let plan = LoadPlan { pace, requests_per_connection: 6, ..http2(4, server.address) };
        let result = run(&plan);
        all_ok(&result, &server);
        let outcomes = result.counts.outcomes;
        assert!(outcomes.connects >= outcomes.sent / 6, "{before} {outcomes:?}");
    }
}

#[test]
fn an_invalid_http_2_stream_is_an_outcome_described_in_one_sentence() {
    let settings = || frame(SETTINGS, 0, 0, &[]);
    let after_settings = |bytes: Vec<u8>| [settings(), bytes].concat();
    let endless: Vec<u8> = (0..2000).flat_map(|_| frame(CONTINUATION, 0, 1, &[])).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("answered HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("answered TLS", vec![0x15, 3, 3, 0, 2, 2, 10]),
        ("does not begin with SETTINGS", b"-ERR unknown command\r\n".to_vec()),
        ("does not begin with SETTINGS", frame(PING, 0, 0, b"12345678")),
        (
            "longer than the allowed 16384",
            after_settings([&[0xff, 0xff, 0xff, HEADERS, 0, 0, 0, 0, 1], &[0; 100][..]].concat()),
        ),
        ("wrong length for its type", after_settings(frame(RST_STREAM, 0, 1, b"12345"))),
        ("a stream on which its type is not allowed", after_settings(frame(DATA, 0, 0, b"x"))),
        ("more padding", after_settings(frame(HEADERS, PADDED | END_HEADERS, 1, &[9, 0x88]))),
        ("interrupts", after_settings([frame(HEADERS, 0, 1, &[0x88]), frame(PING, 0, 0, b"12345678")].concat())),
        ("more than 64 KiB", after_settings([frame(HEADERS, 0, 1, &[0x88]), endless].concat())),
        ("an entry that no table has", after_settings(frame(HEADERS, END_HEADERS, 1, &[0xff, 0x70]))),
        ("not sent", after_settings(ok(2))),
        ("not sent", after_settings(ok(4_001))),
        ("no status", after_settings(frame(HEADERS, END_HEADERS, 1, &[0x54, 0]))),
        ("body before its header", after_settings(frame(DATA, 0, 1, b"x"))),
        ("pushes", after_settings(frame(5, END_HEADERS, 1, &[0, 0, 0, 2, 0x88]))),
        ("opens an HTTP/2 window", after_settings(frame(WINDOW_UPDATE, 0, 1, &[0; 4]))),
        ("opens an HTTP/2 window", after_settings(frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]))),
        ("not allowed", frame(SETTINGS, 0, 0, &setting(4, u32::MAX))),
        ("multiple of 6", frame(SETTINGS, 0, 0, &[1])),
        ("require an answer", after_settings(frame(PING, 0, 0, b"12345678").repeat(10_001))),
        ("interim", after_settings(frame(HEADERS, END_HEADERS, 1, b"\x08\x03103").repeat(101))),
        ("ended in the middle of a response", after_settings(frame(HEADERS, END_HEADERS, 1, &[0x88]))),
        ("before any byte", after_settings(frame(HEADERS, END_HEADERS, 1, &[0x88])[..9].to_vec())),
    ];
    for (words, bytes) in cases {
        let server = serve(move |mut stream| {
            // Reads up to the first request, if there is one.
            let _ = stream.read(&mut [0; 4096]);
            let settings = bytes.len().min(9);
            if bytes.starts_with(&[0, 0, 0, SETTINGS]) {
                let _ = stream.write_all(&bytes[..settings]);
                let mut received = 0;
                let mut buffer = [0; 4096];
                // The acknowledgement of SETTINGS has nine bytes, a request more.
                while received < 20 {
                    match stream.read(&mut buffer) {
                        Ok(count @ 1..) => received += count,
                        _ => return,
                    }
                }
                let _ = stream.write_all(&bytes[settings..]);
            } else {
                let _ = stream.write_all(&bytes);
            }
            // The client reads the response before it sees the end of the connection.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            while let Ok(1..) = stream.read(&mut [0; 4096]) {}
        });
        let mut plan = http2(1, server.address);
        plan.duration_ns = 100 * MS;
        let result = run(&plan);
        let outcomes = result.counts.outcomes;
        assert_eq!(outcomes.ok, 0, "{words}: {outcomes:?}");
        assert!(outcomes.failed() > 0, "{words}: {outcomes:?} {:?}", result.first_errors);
        says(&result, words);
        let why = load::probe(&plan, Duration::from_secs(5)).unwrap_err().to_string();
        let is_early = words.starts_with("ended") || words.starts_with("before");
        assert!(why.contains(if is_early { "without a whole response" } else { words }), "{words}: {why}");
        assert!(!why.contains('\n'), "{why}");
    }
}

#[test]
fn a_probe_reports_a_redirect_without_following_it() {
    let server = speaking(|stream, _| {
        let mut peer = Peer::new(stream, &[])?;
        let stream = peer.request()?;
        // Status 302, and location in the Huffman code.
        let block = b"\x48\x03302\x6e\x91\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3";
        peer.say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, block))?;
        peer.frame().map(drop)
    });
    let found = load::probe(&http2(1, server.address), Duration::from_secs(5)).unwrap();
    assert_eq!((found.status, found.location.as_deref()), (302, Some("https://www.example.com")));
}

/// A field that is not in the table.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

#[test]
fn a_grpc_call_has_the_status_of_its_trailers() {
    let server = speaking(|stream, requests| {
        let mut peer = Peer::new(stream, &[])?;
        let status = |code: &str| field("grpc-status", code);
        let headers = |stream, block: &[u8]| frame(HEADERS, END_HEADERS, stream, block);
        let last = |stream, block: &[u8]| frame(HEADERS, END_HEADERS | END_STREAM, stream, block);
        for turn in 0u32.. {
            let stream = loop {
                let frame = peer.frame()?;
                if frame.kind == DATA {
                    assert_eq!((&frame.payload[..], frame.flags), (&b"\0\0\0\0\x02hi"[..], END_STREAM));
                    break frame.stream;
                }
            };
            requests.fetch_add(1, Ordering::SeqCst);
            // Window space for the message; without it, the client sends the last of 65,535 bytes and waits.
            peer.say(&frame(WINDOW_UPDATE, 0, 0, &7u32.to_be_bytes()))?;
            peer.say(&match turn % 8 {
                0 => last(stream, &[vec![0x88], status("14"), field("grpc-message", "not%20now")].concat()),
                1 => [headers(stream, &[0x88]), last(stream, &status("99"))].concat(),
                2 => [headers(stream, &[0x88]), frame(DATA, END_STREAM, stream, b"")].concat(),
                3 => last(stream, &[0x8d]),
                _ => [
                    headers(stream, &[0x88]),
                    frame(DATA, 0, stream, b"\0\0\0\0\x01x"),
                    // From the second time on, the field is an entry of the table.
                    last(stream, &if turn < 8 { [&[0x40][..], &status("0")[1..]].concat() } else { vec![0xbe] }),
                ]
                .concat(),
            })?;
        }
        None
    });
    let protocol = Protocol::Grpc(GrpcPlan { method: "a.B/C".into(), streams: 3 });
    let plan =
        LoadPlan { protocol, method: "POST".into(), body: b"\0\0\0\0\x02hi".to_vec(), ..http2(3, server.address) };
    let result = run(&plan);
    adds_up(&result, &server);
    let (outcomes, counts) = (result.counts.outcomes, &result.counts.status_counts);
    assert_eq!(outcomes.completed(), outcomes.sent, "{:?}", result.first_errors);
    let (unavailable, other) = (counts[&grpc_status(Some(14))], counts[&FIRST_ERROR]);
    assert_eq!((counts[&ANSWER], unavailable + other), (outcomes.ok, outcomes.non_2xx), "{counts:?}");
    assert!(unavailable > 0 && other > unavailable && counts.len() == 3, "{counts:?}");
    says(&result, "not%20now");
    let why = load::probe(&plan, Duration::from_secs(5)).unwrap().error;
    assert_eq!(why.as_deref(), Some("UNAVAILABLE: not%20now"));
}

#[test]
fn a_large_body_is_written_in_pieces_as_the_transport_accepts_them() {
    let body: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let requests = RequestBlocks::new("POST", "http", "a", &[], ["/"].into_iter(), &body[..]);
    let mut session = Http2Session::<u8>::default();
    session.open(&requests, 3);
    let window = 0x7fff_ffffu32;
    let bytes =
        [frame(SETTINGS, 0, 0, &setting(4, window)), frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes())]
            .concat();
    let mut at = 0;
    while at < bytes.len() {
        at += session.feed(&bytes[at..]).unwrap().used;
    }
    (0..3).for_each(|_| session.put(&requests, 0, 1));
    let mut sent = Vec::new();
    while !session.out().is_empty() {
        assert!(session.memory_bytes() < 200_000, "{} bytes are kept", session.memory_bytes());
        sent.extend_from_slice(session.out());
        session.all_sent();
    }
    let mut bodies = std::collections::BTreeMap::<u32, (Vec<u8>, u32)>::new();
    let mut rest = &sent[PREFACE.len()..];
    while let [a, b, c, kind, flags, stream @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if *kind == DATA {
            let received = bodies.entry(u32::from_be_bytes(stream[..4].try_into().unwrap())).or_default();
            received.0.extend_from_slice(&rest[9..9 + length]);
            received.1 += u32::from(flags & END_STREAM);
        }
        rest = &rest[9 + length..];
    }
    assert_eq!(bodies.len(), 3);
    assert!(bodies.values().all(|received| *received == (body.clone(), 1)));
}

/// A session's reading of a connection's bytes: the ends of requests in order, and the rule that the bytes break.
#[derive(Debug, PartialEq)]
struct Verdict {
    ends: Vec<(usize, Option<StreamEnd>, u16)>,
    body: usize,
    sent: usize,
    error: Option<load::http2::Malformed>,
}

fn verdict(bytes: &[u8], size: usize) -> Verdict {
    let requests = RequestBlocks::new("POST", "http", "a", &[], ["/"].into_iter(), &[b'b'; 100][..]);
    let mut session = Http2Session::<u8>::default();
    session.open(&requests, 4);
    let mut verdict = Verdict { ends: Vec::new(), body: 0, sent: 0, error: None };
    let mut at = 0;
    while at < bytes.len() || session.has_more() {
        let piece = &bytes[at..bytes.len().min(at.saturating_add(size))];
        let fed = match session.feed(piece) {
            Ok(fed) => fed,
            Err(error) => {
                verdict.error = Some(error);
                return verdict;
            }
        };
        assert!(fed.used <= piece.len() && fed.body <= fed.used && session.memory_bytes() < 1 << 20);
        at += fed.used;
        verdict.body += fed.body;
        if fed.is_complete {
            let place = session.current();
            let status = place.map_or(0, |place| session.status(place));
            verdict.ends.push((place.unwrap_or(usize::MAX), session.ended(), status));
            if let Some(place) = place {
                session.end(place);
            }
            while session.has_room() {
                session.put(&requests, 0, 1);
            }
        }
    }
    verdict.sent = session.out().len();
    verdict
}

/// Frames of correct and faulty servers.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop::sample::select(vec![0u32, 1, 3, 5, 7, 9, 11, 2]);
    let block = prop::sample::select(vec![
        vec![0x88],
        vec![0x88, 0x40, 1, b'x', 1, b'y'],
        vec![0x88, 0xbe],
        vec![0x20, 0x8d],
        vec![0x08, 3, b'1', b'0', b'0'],
        vec![0x54, 0],
        b"\x88\x0f\x0d\x03100".to_vec(),
        b"\x88\x0f\x0d\x010".to_vec(),
    ]);
    let of_headers = (prop::sample::select(vec![END_HEADERS | END_STREAM, END_HEADERS, 0]), stream.clone(), block)
        .prop_map(|(flags, stream, block)| frame(HEADERS, flags, stream, &block));
    let of_data = (any::<bool>(), stream.clone(), 0usize..300)
        .prop_map(|(is_last, stream, length)| frame(DATA, u8::from(is_last), stream, &vec![b'd'; length]));
    let of_any = (0u8..11, any::<u8>(), stream.clone(), prop::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload));
    let of_control = (stream, 0u32..100).prop_map(|(stream, number)| match number % 4 {
        0 => frame(RST_STREAM, 0, stream, &number.to_be_bytes()),
        1 => frame(WINDOW_UPDATE, 0, stream, &(number + 1).to_be_bytes()),
        2 => frame(SETTINGS, 0, 0, &setting(4, number * 10)),
        _ => frame(PING, u8::from(number % 8 == 3) & ACK, 0, b"12345678"),
    });
    let one = prop_oneof![8 => of_headers, 8 => of_data, 4 => of_control, 1 => of_any];
    prop::collection::vec(one, 0..24).prop_map(|frames| [frame(SETTINGS, 0, 0, &[]), frames.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn splitting_the_bytes_differently_never_changes_the_result(bytes in frames(), size in 1usize..40) {
        let whole = verdict(&bytes, usize::MAX);
        prop_assert_eq!(&verdict(&bytes, size), &whole);
        prop_assert_eq!(&verdict(&bytes, 1), &whole);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, size in 1usize..40) {
        prop_assert_eq!(verdict(&bytes, size), verdict(&bytes, usize::MAX));
    }
}
