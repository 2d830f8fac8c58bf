//! Traffic that is not one request and one response at a time: which counts are possible, and doubts about the rest.

use crate::client::Connection;
use crate::rig::{Server, counted, counting, free_port, settle, watch};
use observe::watch::{WatchOptions, Watcher};
use record::DoubtKind;
use std::process::Command;

/// Asserts that the watch reports why it cannot separate requests.
fn says(watcher: &Watcher, words: &str) {
    let doubts = watcher.doubts();
    let is_said = doubts.iter().any(|doubt| doubt.kind == DoubtKind::NotSplit && doubt.what.contains(words));
    assert!(is_said, "'{words}' is not in {doubts:?}");
}

#[test]
fn contents_are_not_inspected_if_the_option_says_so() {
    let test = "contents_are_not_inspected_if_the_option_says_so";
    let Some(server) = Server::start(test, "nginx") else { return };
    let Some(mut watcher) = watch(test, WatchOptions { detects_protocol: false, ..counting(server.port) }) else {
        return;
    };
    let mut connection = Connection::open(server.port);
    (0..5).for_each(|_| connection.get("/1k.bin", false));
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!((counted(&reading), reading.traffic), (connection.count, None));
}

#[test]
fn a_few_reads_are_inspected_at_each_reading() {
    let test = "a_few_reads_are_inspected_at_each_reading";
    // Each reads with another system call: recv, read, and io_uring, which names no buffer.
    for (name, is_hidden) in
        [("nginx", false), ("lighttpd", false), ("apache", false), ("haproxy", false), ("uring", true)]
    {
        let Some(server) = Server::start(test, name) else { continue };
        let Some(mut watcher) = watch(test, counting(server.port)) else { return };
        let mut connection = Connection::open(server.port);
        for _ in 0..3 {
            (0..50).for_each(|_| connection.get("/1k.bin", false));
            watcher.read();
        }
        settle(&mut watcher);
        let traffic = watcher.read().traffic.expect("reads are examined");
        assert!((64..=96).contains(&traffic.looked_into), "32 for each reading: {traffic:?}");
        let seen = if is_hidden { traffic.hidden } else { traffic.http1 };
        assert_eq!(seen, traffic.looked_into, "{name}: {traffic:?}");
        assert!(watcher.doubts().is_empty(), "{name}: {:?}", watcher.doubts());
    }
}

#[test]
fn a_chunk_of_pipelined_requests_counts_as_one_with_exact_bytes() {
    let test = "a_chunk_of_pipelined_requests_counts_as_one_with_exact_bytes";
    let Some(server) = Server::start(test, "nginx") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let mut connection = Connection::open(server.port);
    let one = "GET /1k.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..50 {
        connection.send(one.repeat(4).as_bytes());
        (0..4).for_each(|_| connection.receive());
    }
    settle(&mut watcher);
    let reading = watcher.read();
    let traffic = reading.traffic.expect("reads are examined");
    assert!(traffic.pipelined > 0 && traffic.pipelined + traffic.http1 == traffic.looked_into, "{traffic:?}");
    // Four per read, unless a read contains fewer or more of them.
    assert!(traffic.requests_per_read().is_some_and(|each| (3.0..5.0).contains(&each)), "{traffic:?}");
    says(&watcher, "pipelined");
    let all = reading.all();
    assert_eq!(all.requests, 50, "a read is a request: what it holds is not seen");
    assert_eq!((all.bytes_in, all.bytes_out), (connection.count.bytes_sent, connection.count.bytes_received));
}

/// A server on Node: it reads an upload to its end before it answers, and echoes the bytes of a WebSocket.
fn node(test: &str) -> Option<Server> {
    if Command::new("node").arg("--version").output().is_err() {
        eprintln!("SKIPPED {test}: node is not installed");
        return None;
    }
    let port = free_port();
    let script = format!(
        "const server = require('http').createServer((q, r) => {{ let n = 0; q.on('data', d => n += d.length); \
         q.on('end', () => {{ const b = String(n); r.writeHead(200, {{'Content-Length': b.length}}); r.end(b); }}); \
         }}); server.on('upgrade', (q, s) => {{ s.setNoDelay(true); \
         s.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: \
         Upgrade\\r\\nContent-Length: 0\\r\\n\\r\\n'); s.on('data', d => s.write(d)); }}); \
         server.listen({port}, '127.0.0.1')"
    );
    Server::run(test, "node", port, Command::new("node").args(["-e", &script]))
}

#[test]
fn an_upload_read_before_its_answer_counts_as_one_request() {
    let test = "an_upload_read_before_its_answer_counts_as_one_request";
    let Some(server) = node(test) else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let mut connection = Connection::open(server.port);
    for _ in 0..20 {
        connection.send(b"POST /up HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n");
        connection.send(&vec![b'x'; 300_000]);
        connection.receive();
    }
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(counted(&reading), connection.count);
    let traffic = reading.traffic.expect("reads are examined");
    assert_eq!((traffic.uploads, traffic.http1), (20, 20), "each head was seen: {traffic:?}");
    assert!(watcher.doubts().is_empty(), "{:?}", watcher.doubts());
    assert!(reading.all().receives > 40, "many reads each: {}", reading.all().receives);
}

#[test]
fn an_upload_that_waits_for_100_continue_counts_as_two_requests() {
    let test = "an_upload_that_waits_for_100_continue_counts_as_two_requests";
    let Some(server) = node(test) else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let mut connection = Connection::open(server.port);
    for _ in 0..20 {
        connection.send(b"POST /up HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
        connection.receive_interim();
        connection.send(b"hello");
        connection.receive();
    }
    settle(&mut watcher);
    let all = watcher.read().all();
    says(&watcher, "Expect: 100-continue");
    assert_eq!(connection.count.requests, 20);
    assert_eq!(all.requests, 40, "the interim response is one of its own");
    assert_eq!((all.bytes_in, all.bytes_out), (connection.count.bytes_sent, connection.count.bytes_received));
}

#[test]
fn each_turn_of_a_websocket_counts_as_a_request_with_exact_bytes() {
    let test = "each_turn_of_a_websocket_counts_as_a_request_with_exact_bytes";
    let Some(server) = node(test) else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let mut connection = Connection::open(server.port);
    connection.send(
        b"GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    connection.receive();
    for _ in 0..30 {
        // A masked text frame of five bytes.
        connection.send(&[0x81, 0x85, 1, 2, 3, 4, b'h' ^ 1, b'e' ^ 2, b'l' ^ 3, b'l' ^ 4, b'o' ^ 1]);
        connection.receive_bytes(11);
    }
    settle(&mut watcher);
    let all = watcher.read().all();
    says(&watcher, "WebSockets");
    assert_eq!(all.requests, 31, "the upgrade and 30 turns");
    assert_eq!((all.bytes_in, all.bytes_out), (connection.count.bytes_sent, connection.count.bytes_received));
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET path` on a separate stream, with indexed and literal fields (RFC 7541, appendix A).
fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    let mut fields = vec![0x82, 0x86, 0x04, path.len() as u8];
    fields.extend(path.as_bytes());
    fields.extend([0x01, 9]);
    fields.extend(b"localhost");
    frame(1, 0x05, stream, &fields)
}

/// Reads frames until `streams` streams have ended; does not answer settings and pings of the server.
fn receive_streams(connection: &mut Connection, mut streams: usize) {
    while streams > 0 {
        let head = connection.receive_bytes(9);
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        connection.receive_bytes(length);
        // Only HEADERS and DATA end a stream.
        streams -= usize::from(head[3] <= 1 && head[4] & 1 == 1);
    }
}

#[test]
fn http2_streams_count_as_turns_with_exact_bytes() {
    let test = "http2_streams_count_as_turns_with_exact_bytes";
    let Some(server) = Server::start(test, "nginx-h2") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let mut connection = Connection::open(server.port);
    connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    connection.send(&frame(4, 0, 0, &[]));
    // Permits more than the initial 65,535 bytes.
    connection.send(&frame(8, 0, 0, &(1u32 << 24).to_be_bytes()));
    for turn in 0..20 {
        let streams: Vec<u8> = (0..4).flat_map(|n| get_frame(turn * 8 + n * 2 + 1, "/1k.bin")).collect();
        connection.send(&streams);
        receive_streams(&mut connection, 4);
    }
    settle(&mut watcher);
    let reading = watcher.read();
    let traffic = reading.traffic.expect("reads are examined");
    assert_eq!(traffic.http2, traffic.looked_into, "its beginning and its frames are known: {traffic:?}");
    says(&watcher, "HTTP/2");
    let all = reading.all();
    println!("{test}: 80 streams in 20 turns: {} requests", all.requests);
    assert!((1..80).contains(&all.requests), "streams are not told apart");
    assert_eq!((all.bytes_in, all.bytes_out), (connection.count.bytes_sent, connection.count.bytes_received));
}
