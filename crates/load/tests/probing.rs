//! The probe describes each kind of listener in one sentence.

use crate::servers::*;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(1500);

fn said(answer: &'static [u8]) -> String {
    let server = serve(move |mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(answer);
        }
    });
    load::probe(&plan(server.address), PATIENCE).expect_err("must be refused").to_string()
}

#[test]
fn an_answer_is_read_to_its_end() {
    let server =
        answering(&b"HTTP/1.1 200 OK\r\nServer: demo/1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"[..]);
    let found = load::probe(&plan(server.address), PATIENCE).unwrap();
    assert_eq!((found.status, found.location), (200, None));
}

#[test]
fn the_error_names_a_closed_port() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = load::probe(&plan(port), PATIENCE).unwrap_err().to_string();
    assert_eq!(text, format!("nothing listens on {port} (connection refused): is the server running on this port?"));
}

#[test]
fn an_answer_that_is_not_http_is_quoted_safely() {
    let text = said(b"220 mail.example ESMTP\r\n\x1b[31m");
    assert!(text.contains("does not answer in HTTP/1.x"), "{text}");
    assert!(text.contains("220 mail.example ESMTP\\r\\n\\x1b[31m"), "{text}");
    assert!(!text.contains('\u{1b}'), "no escape sequence reaches a terminal");
}

#[test]
fn a_tls_port_is_recognised() {
    assert!(said(b"\x15\x03\x01\x00\x02\x02\x0a").contains("speaks TLS"));
}

#[test]
fn the_error_names_a_truncated_body() {
    let text = said(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    assert!(text.contains("the body ends early"), "{text}");
}

#[test]
fn the_error_names_a_connection_closed_without_answer() {
    assert!(said(b"").contains("closed the connection without sending a response"));
}

#[test]
fn the_error_names_an_endless_header() {
    let server = serve(|mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
            let _ = stream.write_all(&vec![b'a'; 10 << 20]);
        }
    });
    let text = load::probe(&plan(server.address), PATIENCE).unwrap_err().to_string();
    assert!(text.contains("a header of more than 64 KiB"), "{text}");
}

#[test]
fn the_error_for_silence_states_the_waiting_time() {
    let server = serve(|mut stream| while read_request(&mut stream).is_some() {});
    let text = load::probe(&plan(server.address), Duration::from_millis(100)).unwrap_err().to_string();
    assert!(text.contains("no complete response within 100 ms"), "{text}");
}

#[test]
fn redirects_and_errors_count_as_answers() {
    let server = answering(&b"HTTP/1.1 302 Found\r\nLocation: https://example/\r\nContent-Length: 0\r\n\r\n"[..]);
    let found = load::probe(&plan(server.address), PATIENCE).unwrap();
    assert_eq!((found.status, found.location.as_deref()), (302, Some("https://example/")));
    let server = answering(&b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..]);
    let found = load::probe(&plan(server.address), PATIENCE).unwrap();
    assert_eq!((found.status, found.location), (404, None));
}

/// The first frames of an HTTP/2 server: to an HTTP/2 client, and to another client.
const SETTINGS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64";
const GOAWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";

#[test]
fn an_http_2_server_is_recognised_early_and_late() {
    for frame in [SETTINGS, GOAWAY] {
        let text = said(frame);
        assert!(text.contains("speaks HTTP/2 only on this port"), "{text}");
        let text = first_error(move |mut stream| {
            if read_request(&mut stream).is_some() {
                let _ = stream.write_all(frame);
            }
        });
        assert!(text.contains("speaks HTTP/2 only on this port"), "{text}");
    }
    let text = first_error(|mut stream| {
        let _ = stream.write_all(SETTINGS);
        let _ = read_request(&mut stream);
    });
    assert!(text.contains("speaks HTTP/2 only on this port"), "unasked, as most do: {text}");
}

/// The first error example of a load.
fn first_error(handle: impl Fn(std::net::TcpStream) + Send + Sync + 'static) -> String {
    let server = serve(handle);
    let mut plan = plan(server.address);
    plan.duration_ns = 50 * MS;
    plan.timeout_ns = 200 * MS;
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.completed(), 0);
    result.first_errors.first().cloned().unwrap_or_default()
}
