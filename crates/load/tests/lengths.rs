//! Bodies that are shorter or longer than announced, or not allowed: the same cases in HTTP/1.1 and in HTTP/2 (RFC
//! 9112 section 6.3, RFC 9113 section 8.1.1).

use crate::http2::*;
use crate::servers::*;
use record::LoadPlan;
use record::protocol::{GrpcPlan, Protocol};
use std::io::{Read, Write};
use std::net::Shutdown;

/// A response with 100 bytes of body, or without one.
#[derive(Clone, Copy)]
struct Case {
    method: &'static str,
    status: u16,
    /// Values of `content-length`, one per field.
    lengths: &'static [&'static str],
    has_body: bool,
    has_trailers: bool,
    has_padding: bool,
    is_ok: bool,
}

const GOOD: Case = Case {
    method: "GET",
    status: 200,
    lengths: &["100"],
    has_body: true,
    has_trailers: false,
    has_padding: false,
    is_ok: true,
};
const BODY: [u8; 100] = [b'x'; 100];

/// All combinations.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    static WRONG: [&str; 4] = ["-1", "1e2", "", "99999999999999999999"];
    cases.extend(WRONG.iter().map(|length| Case { lengths: std::slice::from_ref(length), is_ok: false, ..GOOD }));
    for (has_trailers, has_padding) in [(false, false), (true, false), (false, true)] {
        let with = |case: Case| Case { has_trailers, has_padding, ..case };
        for (lengths, is_ok) in
            [(&[][..], true), (&["100"], true), (&["101"], false), (&["99"], false), (&["100", "100"], false)]
        {
            cases.push(with(Case { lengths, is_ok, ..GOOD }));
        }
        cases.push(with(Case { has_body: false, is_ok: false, ..GOOD }));
        cases.push(with(Case { lengths: &["0"], has_body: false, ..GOOD }));
        for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304)] {
            for (lengths, has_body) in [(&[][..], true), (&["100"], true), (&[], false), (&["100"], false)] {
                cases.push(with(Case { method, status, lengths, has_body, is_ok: !has_body, ..GOOD }));
            }
        }
    }
    cases
}

impl Case {
    /// Whether some requests succeed, and whether some fail.
    fn outcomes(&self, plan: &LoadPlan) -> (bool, bool) {
        let plan = LoadPlan { method: self.method.into(), duration_ns: 5 * MS, ..plan.clone() };
        // Retry, because no request may end in so short a time on a busy machine.
        (0..1000)
            .map(|_| run(&plan).counts.outcomes)
            .find(|outcomes| outcomes.ok + outcomes.failed() > 0)
            .map(|outcomes| (outcomes.ok > 0, outcomes.failed() > 0))
            .expect("a request ends")
    }

    fn name(&self, protocol: &str) -> String {
        let Case { method, status, lengths, has_body, has_trailers, has_padding, .. } = self;
        format!(
            "{protocol} {method} {status} {lengths:?} body {has_body} trailers {has_trailers} padding {has_padding}"
        )
    }

    fn http_1(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", self.status);
        self.lengths.iter().for_each(|length| head.push_str(&format!("Content-Length: {length}\r\n")));
        let body = if self.has_body { &BODY[..] } else { &[] };
        [head.as_bytes(), b"\r\n", body].concat()
    }

    fn http_2(&self, stream: u32) -> Vec<u8> {
        let lengths = self.lengths.iter().map(|length| field("content-length", length));
        let block = [field(":status", &self.status.to_string()), lengths.collect::<Vec<_>>().concat()].concat();
        let end = |is_last: bool| if is_last { END_STREAM } else { 0 };
        let mut out = frame(
            HEADERS,
            END_HEADERS | end(!self.has_body && !self.has_trailers && !self.has_padding),
            stream,
            &block,
        );
        let parts = if self.has_body { vec![&BODY[..40], &BODY[40..]] } else { vec![&BODY[..0]] };
        for (number, part) in parts.iter().enumerate() {
            let flags = end(number + 1 == parts.len() && !self.has_trailers);
            if self.has_padding {
                out.extend(frame(DATA, PADDED | flags, stream, &[&[9], *part, &[0; 9]].concat()));
            } else if self.has_body {
                out.extend(frame(DATA, flags, stream, part));
            }
        }
        if self.has_trailers {
            out.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &field("etag", "x")));
        }
        out
    }
}

#[test]
fn a_body_of_a_wrong_length_fails_in_http_1_and_http_2() {
    for case in cases() {
        let server = speaking(move |stream, _| {
            let mut peer = Peer::new(stream, &[])?;
            loop {
                let stream = peer.request()?;
                peer.say(&case.http_2(stream))?;
            }
        });
        assert_eq!(case.outcomes(&http2(3, server.address)), (case.is_ok, !case.is_ok), "{}", case.name("HTTP/2"));
        if case.has_trailers || case.has_padding {
            continue;
        }
        let server = serve(move |mut stream| {
            if read_request(&mut stream).is_some() {
                let _ = stream.write_all(&case.http_1());
                let _ = stream.shutdown(Shutdown::Write);
                while let Ok(1..) = stream.read(&mut [0; 4096]) {}
            }
        });
        assert_eq!(case.outcomes(&plan(server.address)), (case.is_ok, !case.is_ok), "{}", case.name("HTTP/1.1"));
    }
}

#[test]
fn a_grpc_call_with_a_truncated_message_fails() {
    for (message, is_ok) in [(&b"\0\0\0\0\x02hi"[..], true), (b"\0\0\0\0\x03hi", false), (b"\0\0\0\0\x02hi\0", false)] {
        let server = speaking(move |stream, _| {
            let mut peer = Peer::new(stream, &[])?;
            loop {
                let stream = peer.request()?;
                peer.say(&frame(HEADERS, END_HEADERS, stream, &field(":status", "200")))?;
                peer.say(&frame(DATA, 0, stream, message))?;
                peer.say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &field("grpc-status", "0")))?;
            }
        });
        let protocol = Protocol::Grpc(GrpcPlan { method: "a.B/C".into(), streams: 3 });
        let outcomes = run(&LoadPlan { protocol, ..http2(3, server.address) }).counts.outcomes;
        assert_eq!((outcomes.ok > 0, outcomes.malformed > 0), (is_ok, !is_ok), "{message:?} {outcomes:?}");
    }
}
