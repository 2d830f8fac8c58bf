//! Ends of replies: heads and bodies of HTTP, Redis, memcached, and answers over TCP that end at a delimiter.

use load::framing::{Consumed, Malformed};
use load::replies::Reply;

/// Feeds the bytes in pieces of `size`; returns the bytes used, those of the body, and the status of a whole reply.
fn read_in_pieces<R: Reply>(
    bytes: &[u8],
    size: usize,
    feed: impl Fn(&mut R, &[u8]) -> Result<Consumed, Malformed>,
) -> Result<(usize, usize, Option<u16>), Malformed> {
    let (mut reply, mut used, mut body) = (R::default(), 0, 0);
    for piece in bytes.chunks(size.max(1)) {
        let consumed = feed(&mut reply, piece)?;
        assert!(consumed.used <= piece.len() && consumed.body <= consumed.used);
        used += consumed.used;
        body += consumed.body;
        if consumed.is_complete {
            return Ok((used, body, Some(reply.status())));
        }
        assert_eq!(consumed.used, piece.len());
    }
    Ok((used, body, None))
}

mod delimited {
    use super::{Malformed, read_in_pieces};
    use load::replies::delimited::Delimited;
    use proptest::prelude::*;
    use record::protocol::Expect;

    fn read(expect: Expect, bytes: &[u8], size: usize) -> Result<(usize, usize, bool), Malformed> {
        let feed = |answer: &mut Delimited, piece: &[u8]| answer.feed(expect, piece);
        read_in_pieces(bytes, size, feed).map(|(used, body, status)| (used, body, status.is_some()))
    }

    #[test]
    fn an_answer_ends_at_its_delimiter() {
        assert_eq!(read(Expect::Line, b"ab\ncd\n", usize::MAX), Ok((3, 3, true)));
        assert_eq!(read(Expect::Bytes(4), b"abcde", usize::MAX), Ok((4, 4, true)));
        assert_eq!(read(Expect::U16be, b"\x00\x03abcd", usize::MAX), Ok((5, 3, true)));
        assert_eq!(read(Expect::U16be, b"\x00\x00abcd", usize::MAX), Ok((2, 0, true)));
        assert_eq!(read(Expect::U32be, b"\xff\xff\xff\xffabcd", usize::MAX), Ok((8, 4, false)));
        let endless = vec![b'x'; 2 << 20];
        for size in [usize::MAX, 1000] {
            let why = read(Expect::Line, &endless, size).expect_err("no line is so long");
            assert!(why.0.contains("--expect"), "{}", why.0);
        }
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(
            bytes in prop::collection::vec(0u8..12, 0..40),
            size in 1usize..9,
            choice in 0usize..4,
        ) {
            let expect = [Expect::Line, Expect::Bytes(5), Expect::U16be, Expect::U32be][choice];
            prop_assert_eq!(read(expect, &bytes, size), read(expect, &bytes, usize::MAX));
        }
    }
}

mod resp {
    use super::{Malformed, read_in_pieces};
    use load::replies::resp::Resp;
    use proptest::prelude::*;
    use record::protocol::{ANSWER, MISS, redis_error};

    fn read(bytes: &[u8], size: usize) -> Result<(usize, usize, Option<u16>), Malformed> {
        read_in_pieces(bytes, size, Resp::feed)
    }

    fn status(text: &str) -> u16 {
        let (used, _, status) = read(text.as_bytes(), usize::MAX).unwrap_or_else(|why| panic!("{text:?}: {why:?}"));
        assert_eq!(used, text.len(), "{text:?}");
        status.unwrap_or_else(|| panic!("{text:?} is not complete"))
    }

    #[test]
    fn every_reply_type_of_both_versions_is_read_to_its_end() {
        for text in [
            "+OK\r\n",
            ":-12\r\n",
            "$5\r\nhello\r\n",
            "$0\r\n\r\n",
            "*2\r\n:1\r\n$1\r\na\r\n",
            "*0\r\n",
            "*2\r\n*2\r\n:1\r\n:2\r\n*0\r\n",
            "*1\r\n-ERR inside\r\n",
            "*1\r\n$-1\r\n",
            "#t\r\n",
            ",1.5e3\r\n",
            "(123456789012345678901234567890\r\n",
            "=7\r\ntxt:abc\r\n",
            "%1\r\n+k\r\n*1\r\n:1\r\n",
            "~2\r\n:1\r\n:2\r\n",
            "|1\r\n+ttl\r\n:5\r\n$1\r\nv\r\n",
            "*2\r\n|1\r\n+ttl\r\n:5\r\n:1\r\n:2\r\n",
            ">2\r\n+message\r\n+x\r\n+OK\r\n",
        ] {
            assert_eq!(status(text), ANSWER, "{text:?}");
        }
        for null in ["$-1\r\n", "*-1\r\n", "_\r\n", "|1\r\n+ttl\r\n:5\r\n_\r\n"] {
            assert_eq!(status(null), MISS, "{null:?}");
        }
        let full = redis_error(b"ERR max number of clients reached");
        assert_eq!(status("-ERR max number of clients reached\r\n"), full);
        assert_ne!(full, redis_error(b"ERR unknown command"));
        for error in ["-MOVED 3999 127.0.0.1:6381\r\n", "!20\r\nMOVED 1 127.0.0.1:1x\r\n"] {
            assert_eq!(status(error), redis_error(b"MOVED"), "{error:?}");
        }
    }

    #[test]
    fn an_invalid_reply_is_refused_with_a_reason() {
        let nested = "*1\r\n".repeat(1_000_000);
        let endless = format!("+{}", "x".repeat(100_000));
        for (text, words) in [
            ("HTTP/1.1 400 Bad Request\r\n", "answered HTTP"),
            ("\x15\x03\x01\x00\x02", "rediss"),
            ("ERROR\r\n", "memcached"),
            ("?", "is not a type"),
            ("$-2\r\n", "negative"),
            ("~-1\r\n", "negative"),
            ("*99999999999\r\n", "larger"),
            ("$99999999999999999999999\r\n", "not a number"),
            ("$1x\r\n", "not a number"),
            ("$2\r\nabc\r\n", "longer than it announced"),
            ("+OK\n", "carriage return"),
            (":x\r\n", "integer"),
            (&nested, "128 deep"),
            (&endless, "64 KiB"),
        ] {
            let why = read(text.as_bytes(), usize::MAX).expect_err(words);
            assert!(why.0.contains(words), "{}", why.0);
            assert_eq!(read(text.as_bytes(), 1), Err(why), "in single bytes");
        }
    }

    fn likely() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            4 => prop::sample::select(b"+-:$*_#,(!=%~>|0123456789\r\nHE".to_vec()).prop_map(|byte| vec![byte]),
            3 => Just(b"\r\n".to_vec()),
            2 => (0u8..4).prop_map(|count| format!("*{count}\r\n").into_bytes()),
            2 => "[a-z]{0,5}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len()).into_bytes()),
            1 => any::<u8>().prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(bytes in likely(), size in 1usize..9) {
            prop_assert_eq!(read(&bytes, size), read(&bytes, usize::MAX));
        }
    }
}

mod memcached {
    use super::{Malformed, read_in_pieces};
    use load::replies::memcached::{META, MemcachedReply};
    use proptest::prelude::*;
    use record::protocol::{ANSWER, MISS, NOT_STORED, memcached_error};

    fn read(keys: u32, bytes: &[u8], size: usize) -> Result<(usize, usize, Option<u16>), Malformed> {
        read_in_pieces(bytes, size, |reply: &mut MemcachedReply, piece| reply.feed(keys, piece))
    }

    #[test]
    fn hits_misses_and_errors_are_distinguished() {
        for (keys, text, status) in [
            (1, "VALUE key:1 0 3\r\nabc\r\nEND\r\n", ANSWER),
            (1, "VALUE key:1 0 0\r\n\r\nEND\r\n", ANSWER),
            (1, "END\r\n", MISS),
            (2, "VALUE a 0 1\r\nx\r\nEND\r\n", MISS),
            (2, "VALUE a 0 1\r\nx\r\nVALUE b 5 2 77\r\nyz\r\nEND\r\n", ANSWER),
            (0, "STORED\r\n", ANSWER),
            (0, "NOT_STORED\r\n", NOT_STORED),
            (0, "ERROR\r\n", memcached_error(b"ERROR")),
            (1, "SERVER_ERROR out of memory\r\n", memcached_error(b"SERVER_ERROR")),
            (1, "ERROR Too many open connections\r\n", memcached_error(b"ERROR Too many open connections")),
            (META | 1, "VA 3\r\nabc\r\n", ANSWER),
            (META | 1, "VA 0 f30 c7\r\n\r\n", ANSWER),
            (META | 1, "EN\r\n", MISS),
            (META | 2, "EN\r\nVA 2\r\nEN\r\n", MISS),
            (META | 3, "VA 1\r\nx\r\nSERVER_ERROR busy\r\nEN\r\n", memcached_error(b"SERVER_ERROR")),
            (META, "HD\r\n", ANSWER),
            (META, "NS\r\n", NOT_STORED),
            (META, "ERROR\r\n", memcached_error(b"ERROR")),
        ] {
            let used = text.len();
            let (read_to, _, found) = read(keys, text.as_bytes(), usize::MAX).unwrap();
            assert_eq!((read_to, found), (used, Some(status)), "{text:?}");
        }
    }

    #[test]
    fn an_invalid_reply_is_refused_with_a_reason() {
        let endless = "x".repeat(100_000);
        for text in ["END\r\n", "VALUE a 0 1\r\nx\r\n", "HD\r\n"] {
            assert!(read(META | 1, text.as_bytes(), 1).is_err(), "no answer to a meta command: {text}");
        }
        assert!(read(1, b"EN\r\n", 1).is_err() && read(1, b"VA 1\r\n", 1).is_err());
        for (text, words) in [
            ("HTTP/1.1 400 Bad Request\r\n", "answered HTTP"),
            ("-ERR unknown command\r\n", "Redis"),
            ("\x16\x03\x01", "TLS"),
            ("HELLO\r\n", "not in the protocol"),
            ("VALUE a 0 -1\r\n", "not a number"),
            ("VALUE a 0 99999999999\r\n", "larger"),
            ("VALUE a 0 1\r\nxx\r\n", "longer than it announced"),
            ("VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\n", "more values"),
            (&endless, "64 KiB"),
        ] {
            let why = read(1, text.as_bytes(), usize::MAX).expect_err(words);
            assert!(why.0.contains(words), "{}", why.0);
            assert_eq!(read(1, text.as_bytes(), 1), Err(why), "in single bytes");
        }
    }

    fn likely() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            3 => Just(b"VALUE key:1 0 ".to_vec()),
            3 => "[0-9]{1,2}\r\n".prop_map(String::into_bytes),
            3 => "[a-z]{0,9}\r\n".prop_map(String::into_bytes),
            2 => Just(b"END\r\n".to_vec()),
            1 => Just(b"STORED\r\n".to_vec()),
            1 => Just(b"VA 2\r\nab\r\n".to_vec()),
            1 => Just(b"EN\r\n".to_vec()),
            1 => any::<u8>().prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(token, 0..20).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(bytes in likely(), keys in 0u32..3, is_meta: bool, size in 1usize..9) {
            let keys = if is_meta { keys | META } else { keys };
            prop_assert_eq!(read(keys, &bytes, size), read(keys, &bytes, usize::MAX));
        }
    }
}

mod parts {
    use load::framing::{PartCounter, Parts};
    use proptest::prelude::*;

    fn count(kind: Parts, text: &str) -> u32 {
        PartCounter::new(kind).take(text.as_bytes())
    }

    #[test]
    fn an_event_ends_with_a_blank_line_for_every_line_ending() {
        for end in ["\n", "\r\n", "\r"] {
            let text = "id: 1|data: a|data: b||: still there||event: x||data||data: unfinished|".replace('|', end);
            assert_eq!(count(Parts::Events, &text), 2, "{text:?}");
        }
        assert_eq!(count(Parts::Events, "\n\n\n"), 0);
        assert_eq!(count(Parts::Lines, "{}\r\n\n{\"a\": 1}\nrest"), 2);
        assert_eq!(count(Parts::Reads, "data: a\n\n"), 0);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            text in "[d:\r\n]{0,60}",
            at in any::<prop::sample::Index>(),
            is_events in any::<bool>(),
        ) {
            let kind = if is_events { Parts::Events } else { Parts::Lines };
            let (first, second) = text.as_bytes().split_at(at.index(text.len() + 1));
            let mut parted = PartCounter::new(kind);
            let in_two = parted.take(first) + parted.take(second);
            prop_assert_eq!(in_two, count(kind, &text));
            // A part has at least one character and a line end.
            prop_assert!(2 * in_two as usize <= text.len());
        }
    }
}

mod head {
    use load::framing::{BodyKind, Head, Malformed, Parts, head_end, parse_head};

    fn parse(text: &str) -> Result<Head, Malformed> {
        parse_head(text.as_bytes(), false)
    }

    fn refused(text: &str) -> &'static str {
        parse(text).expect_err(text).0
    }

    #[test]
    fn a_head_decides_where_the_body_ends_and_whether_the_connection_stays_open() {
        for (line, fields, body, is_keep_alive) in [
            ("1.1 200 OK", "Server: x\r\nContent-LENGTH:  12 \r\n", BodyKind::Fixed(12), true),
            ("1.1 200 OK", "", BodyKind::UntilClose, false),
            ("1.0 200 OK", "Content-Length: 1\r\n", BodyKind::Fixed(1), false),
            ("1.0 200 OK", "Content-Length: 1\r\nConnection: Keep-Alive\r\n", BodyKind::Fixed(1), true),
            ("1.1 200 OK", "Content-Length: 1\r\nConnection: foo, Close\r\n", BodyKind::Fixed(1), false),
            ("1.1 204 No Content", "Content-Length: 12\r\n", BodyKind::None, true),
            ("1.1 304 Not Modified", "Content-Length: 12\r\n", BodyKind::None, true),
            ("1.1 101 Switching Protocols", "Content-Length: 12\r\n", BodyKind::None, false),
            ("1.1 200 OK", "Transfer-Encoding: gzip, Chunked\r\nContent-Length: 5\r\n", BodyKind::Chunked, false),
            ("1.1 200 OK", "Transfer-Encoding: gzip\r\n", BodyKind::UntilClose, false),
            ("1.1 200 OK", "Transfer-Encoding: Identity\r\nContent-Length: 5\r\n", BodyKind::Fixed(5), true),
            ("1.1 200 OK", "Transfer-Encoding: identity, chunked\r\n", BodyKind::Chunked, true),
            (
                "1.1 200 OK",
                "Content-Length:\r\n 12\r\nConnection: x,\r\n\t y,\r\n  close\r\n",
                BodyKind::Fixed(12),
                false,
            ),
            ("1.1 200 OK\nContent-Length: 3", "A: b\n", BodyKind::Fixed(3), true),
        ] {
            let text = format!("HTTP/{line}\r\n{fields}\r\n");
            assert_eq!(head_end(text.as_bytes()), Some(text.len()), "{text:?}");
            let head = parse(&text).expect(&text);
            assert_eq!((head.body, head.is_keep_alive), (body, is_keep_alive), "{text:?}");
        }
        let head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", true).unwrap();
        assert_eq!((head.status, head.body, head.is_keep_alive), (200, BodyKind::None, true));
    }

    #[test]
    fn the_parts_of_a_compressed_body_are_unknown() {
        for (encoding, parts) in [("gzip", Parts::Reads), ("Identity", Parts::Events), ("", Parts::Events)] {
            let fields = format!("Content-Encoding: {encoding}\r\nContent-Type: text/event-stream");
            assert_eq!(parse(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n")).unwrap().parts, parts, "{encoding}");
        }
    }

    #[test]
    fn ambiguous_headers_are_refused() {
        for (fields, words) in [
            ("Content-Length: 1\r\nContent-Length: 1", "more than one Content-Length"),
            ("Content-Length: 1, 1", "one decimal number"),
            ("Content-Length: +1", "one decimal number"),
            ("Content-Length: 99999999999999999999", "64 bits"),
            (" A: b", "space before"),
            ("Content-Length: 1\r\n 2", "one decimal number"),
            ("A: b\r\n c\rd", "control"),
            ("Content-Length : 1", "header name"),
            ("Transfer-Encoding: chunked, gzip", "after chunked"),
            ("Transfer-Encoding: ,", "empty"),
            ("A: b\rc", "control"),
            ("no colon", "colon"),
        ] {
            let why = refused(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n"));
            assert!(why.contains(words), "{fields:?}: {why}");
        }
        assert!(refused("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").contains("HTTP/1.0"));
        assert!(refused("HTTP/1.1 20 OK\r\n\r\n").contains("three digits"));
        assert!(refused("HTTP/1.1 2000 OK\r\n\r\n").contains("reason"));
        assert!(refused("HTTP/2.0 200 OK\r\n\r\n").contains("status line"));
    }
}
