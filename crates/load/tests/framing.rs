//! Compares the framing with an oracle, with itself for other splits of the bytes, and with known responses.

use load::framing::{AtEnd, BodyKind, Framing, HeadCache, MAX_HEAD_BYTES, parse_head};
use proptest::prelude::*;

/// The result of a connection's bytes.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Malformed,
    Complete {
        status: u16,
        used: usize,
        body: usize,
        parts: u32,
        is_keep_alive: bool,
    },
    /// The connection ended after this many body bytes.
    Ended {
        at_end: AtEnd,
        body: usize,
    },
}

/// Feeds `bytes` in pieces of the given sizes (repeated), then ends the connection.
fn verdict(heads: &mut HeadCache, bytes: &[u8], sizes: &[usize]) -> Verdict {
    let mut framing = Framing::new();
    let (mut used, mut body, mut parts) = (0, 0, 0);
    let mut sizes = sizes.iter().cycle();
    while used < bytes.len() {
        let size = (*sizes.next().unwrap_or(&usize::MAX)).clamp(1, bytes.len() - used);
        match framing.feed(heads, 0, &bytes[used..used + size]) {
            Err(_) => return Verdict::Malformed,
            Ok(fed) => {
                used += fed.used;
                body += fed.body;
                parts += fed.parts.unwrap_or(0);
                if fed.is_complete {
                    let (status, is_keep_alive) = (framing.status(), framing.is_keep_alive());
                    return Verdict::Complete { status, used, body, parts, is_keep_alive };
                }
                assert_eq!(fed.used, size, "an incomplete response takes every byte");
            }
        }
    }
    Verdict::Ended { at_end: framing.at_end(), body }
}

fn fresh(bytes: &[u8], sizes: &[usize]) -> Verdict {
    verdict(&mut HeadCache::new(false, 1), bytes, sizes)
}

/// A response with known meaning, and its bytes.
#[derive(Debug, Clone)]
struct Known {
    bytes: Vec<u8>,
    status: u16,
    body: usize,
    parts: u32,
    is_keep_alive: bool,
    until_close: bool,
}

fn known() -> impl Strategy<Value = Known> {
    let status = prop_oneof![Just(200u16), Just(404), Just(500), Just(206), Just(204), Just(304)];
    let body = prop::collection::vec(any::<u8>(), 0..300);
    let framing = 0..3u8;
    let interim = prop::collection::vec(prop_oneof![Just(100u16), Just(103)], 0..3);
    let chunks = prop::collection::vec(1usize..40, 0..10);
    let noise = prop::collection::vec(("[A-Za-z-]{1,12}", "[ -~]{0,30}"), 0..5);
    let events = prop::option::of(0..6u32);
    (status, body, events, framing, interim, chunks, noise, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(status, body, events, framing, interim, chunks, noise, close, upper, lone_lf)| {
            let body = events.map_or(body, |events| b"data: x\n\n".repeat(events as usize));
            let end = if lone_lf { "\n" } else { "\r\n" };
            let case = |name: &str| if upper { name.to_ascii_uppercase() } else { name.to_string() };
            let mut bytes = Vec::new();
            for status in interim {
                bytes.extend(format!("HTTP/1.1 {status} Wait{end}X: y{end}{end}").bytes());
            }
            bytes.extend(format!("HTTP/1.1 {status} Reason{end}").bytes());
            for (name, value) in noise {
                bytes.extend(format!("x-{name}: {value}{end}").bytes());
            }
            if close {
                bytes.extend(format!("{}: close{end}", case("Connection")).bytes());
            }
            let has_body = !matches!(status, 204 | 304);
            if events.is_some() {
                bytes.extend(format!("{}: Text/Event-Stream; a=b{end}", case("Content-Type")).bytes());
            }
            match framing {
                0 => bytes.extend(format!("{}: {}{end}", case("Content-Length"), body.len()).bytes()),
                1 => bytes.extend(format!("{}: chunked{end}", case("Transfer-Encoding")).bytes()),
                _ => {}
            }
            bytes.extend(end.bytes());
            let until_close = has_body && framing == 2;
            if has_body && framing == 1 {
                let mut rest = &body[..];
                for size in chunks {
                    let (part, behind) = rest.split_at(size.min(rest.len()));
                    if !part.is_empty() {
                        bytes.extend(format!("{:x};ext=\"v\"\r\n", part.len()).bytes());
                        bytes.extend_from_slice(part);
                        bytes.extend(b"\r\n");
                    }
                    rest = behind;
                }
                if !rest.is_empty() {
                    bytes.extend(format!("{:X}\r\n", rest.len()).bytes());
                    bytes.extend_from_slice(rest);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nTrailer: value\r\n\r\n");
            } else if has_body {
                bytes.extend_from_slice(&body);
            }
            let parts = events.filter(|_| has_body).unwrap_or(0);
            let body = if has_body { body.len() } else { 0 };
            Known { bytes, status, body, parts, is_keep_alive: !close && !until_close, until_close }
        },
    )
}

/// A known response with some bytes changed, removed or inserted.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let change = (
        any::<prop::sample::Index>(),
        0..3u8,
        prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':')],
    );
    (known(), prop::collection::vec(change, 0..4)).prop_map(|(known, changes)| {
        let mut bytes = known.bytes;
        for (at, kind, byte) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_known_response_is_understood_in_any_pieces(
        known in known(),
        sizes in prop::collection::vec(1usize..60, 1..6),
        junk in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = known.bytes.clone();
        if !known.until_close {
            bytes.extend_from_slice(&junk);
        }
        let expected = if known.until_close {
            Verdict::Ended { at_end: AtEnd::Complete, body: known.body }
        } else {
            let (status, body, parts, is_keep_alive) = (known.status, known.body, known.parts, known.is_keep_alive);
            Verdict::Complete { status, used: known.bytes.len(), body, parts, is_keep_alive }
        };
        prop_assert_eq!(&fresh(&bytes, &[usize::MAX]), &expected);
        prop_assert_eq!(&fresh(&bytes, &[1]), &expected);
        prop_assert_eq!(&fresh(&bytes, &sizes), &expected);
    }

    #[test]
    fn pieces_never_change_the_verdict(bytes in damaged(), sizes in prop::collection::vec(1usize..60, 1..6)) {
        let whole = fresh(&bytes, &[usize::MAX]);
        prop_assert_eq!(&fresh(&bytes, &[1]), &whole);
        prop_assert_eq!(&fresh(&bytes, &sizes), &whole);
    }

    #[test]
    fn a_remembered_head_never_changes_the_verdict(
        responses in prop::collection::vec(damaged(), 1..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
    ) {
        let mut heads = HeadCache::new(false, 1);
        for at in order {
            let bytes = &responses[at.index(responses.len())];
            prop_assert_eq!(verdict(&mut heads, bytes, &[usize::MAX]), fresh(bytes, &[usize::MAX]));
            prop_assert_eq!(verdict(&mut heads, bytes, &[7]), fresh(bytes, &[usize::MAX]));
        }
    }

    #[test]
    fn httparse_accepts_all_that_we_accept_with_the_same_meaning(bytes in damaged()) {
        let is_end = |end: &usize| [&b"\n\n"[..], b"\n\r\n"].iter().any(|empty| bytes[..*end].ends_with(empty));
        let Some(end) = (1..=bytes.len()).find(is_end) else { return Ok(()) };
        let Ok(head) = parse_head(&bytes[..end], false) else { return Ok(()) };
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut oracle = httparse::Response::new(&mut fields);
        let mut reader = httparse::ParserConfig::default();
        reader.allow_obsolete_multiline_headers_in_responses(true);
        prop_assert_eq!(reader.parse_response(&mut oracle, &bytes[..end]), Ok(httparse::Status::Complete(end)));
        prop_assert_eq!(oracle.code, Some(head.status));
        let field = |name: &str| {
            oracle.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
        };
        if let BodyKind::Fixed(length) = head.body {
            let text = std::str::from_utf8(field("content-length").unwrap()).unwrap();
            prop_assert_eq!(text.trim().parse::<u64>(), Ok(length));
        }
        if head.body == BodyKind::Chunked {
            prop_assert!(field("transfer-encoding").is_some());
        }
        if head.body == BodyKind::UntilClose {
            prop_assert!(field("content-length").is_none() || field("transfer-encoding").is_some());
        }
    }

    #[test]
    fn no_bytes_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        sizes in prop::collection::vec(1usize..60, 1..4),
    ) {
        prop_assert_eq!(fresh(&bytes, &sizes), fresh(&bytes, &[usize::MAX]));
        let mut with_start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        with_start.extend_from_slice(&bytes);
        prop_assert_eq!(fresh(&with_start, &sizes), fresh(&with_start, &[usize::MAX]));
    }

    #[test]
    fn skipping_body_bytes_equals_reading_them(length in 1u64..100_000, part in 1u64..100_000) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let mut framing = Framing::new();
        let mut heads = HeadCache::new(false, 1);
        prop_assert!(!framing.feed(&mut heads, 0, head.as_bytes()).unwrap().is_complete);
        let skipped = part.min(framing.skippable());
        framing.skip(skipped);
        let rest = vec![b'x'; (length - skipped) as usize];
        let fed = framing.feed(&mut heads, 0, &rest).unwrap();
        prop_assert!(fed.is_complete);
        prop_assert_eq!(fed.used, rest.len());
    }
}

#[test]
fn a_head_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    for (extra, passes) in [(0, true), (1, false)] {
        let frame = "HTTP/1.1 204 No\r\nX: \r\n\r\n".len();
        let bytes = format!("HTTP/1.1 204 No\r\nX: {}\r\n\r\n", "a".repeat(MAX_HEAD_BYTES - frame + extra));
        for sizes in [&[usize::MAX][..], &[1000], &[65_535], &[65_536]] {
            assert_eq!(fresh(bytes.as_bytes(), sizes) != Verdict::Malformed, passes, "{extra} {sizes:?}");
        }
    }
}

#[test]
fn an_endless_head_is_refused_without_keeping_it() {
    let mut framing = Framing::new();
    let mut heads = HeadCache::new(false, 1);
    framing.feed(&mut heads, 0, b"HTTP/1.1 200 OK\r\nX: ").unwrap();
    let mut fed = 0;
    while framing.feed(&mut heads, 0, b"aaaaaaaaaaaaaaaa").is_ok() {
        fed += 16;
        assert!(framing.carry_bytes() <= 4 * MAX_HEAD_BYTES);
        assert!(fed <= MAX_HEAD_BYTES);
    }
}

#[test]
fn endless_interim_responses_are_refused() {
    let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(200);
    assert_eq!(fresh(many.as_bytes(), &[usize::MAX]), Verdict::Malformed);
}

#[test]
fn odd_responses_mean_the_same_in_any_pieces() {
    let responses: [&[u8]; 16] = [
        b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 5\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
        b"\x15\x03\x03\x00\x02\x02F",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
        b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nanything",
        include_bytes!("../../../fuzz/seeds/framing/chunked"),
        include_bytes!("../../../fuzz/seeds/framing/interim"),
    ];
    for bytes in responses {
        let whole = fresh(bytes, &[usize::MAX]);
        for size in 1..=bytes.len().min(64) {
            assert_eq!(fresh(bytes, &[size]), whole, "{:?} in pieces of {size}", String::from_utf8_lossy(bytes));
        }
    }
}
