//! Tests of the parts of log reading: times, fields, escapes, lines.

use std::io::Cursor;
use workload::trace::{LogFormat, TraceReader};

fn read(log: &str, format: &LogFormat) -> TraceReader {
    TraceReader::from_reader("test.log".into(), Box::new(Cursor::new(log.to_string())), format).unwrap()
}

mod pattern {
    use workload::trace::instant::SECOND_NS;
    use workload::trace::pattern::{PartialTime, TimePattern};

    #[test]
    fn a_time_in_two_patterns_and_a_fraction_is_combined() {
        let mut partial = PartialTime::default();
        assert_eq!(TimePattern::compile("%a, %e %b %Y").unwrap().read(b"Sun,  7 May 2015", &mut partial), Some(16));
        assert_eq!(partial.resolve(), Some((1_430_956_800_000_000_000, SECOND_NS)));
        assert_eq!(TimePattern::compile("%T%z").unwrap().read(b"10:05:03+0100 x", &mut partial), Some(13));
        partial.set_fraction(250_000, 1_000);
        assert_eq!(partial.resolve(), Some((1_430_989_503_000_250_000, 1_000)));
    }

    #[test]
    fn an_unknown_conversion_is_named() {
        assert!(TimePattern::compile("%Y-%j").unwrap_err().contains("%j"));
        assert!(TimePattern::compile("%Y %").is_err());
    }

    #[test]
    fn text_that_does_not_match_is_refused() {
        let pattern = TimePattern::compile("%F %T").unwrap();
        for text in ["", "2015", "2015-05-17", "2015-05-17 10:5:03", "2015/05/17 10:05:03"] {
            assert_eq!(pattern.read(text.as_bytes(), &mut PartialTime::default()), None, "{text}");
        }
    }
}

mod instant {
    use proptest::prelude::*;
    use workload::trace::instant::{SECOND_NS, clf, epoch, epoch_seconds, iso};

    #[test]
    fn the_usual_notations_agree() {
        let expected = 1_431_857_103_000_000_000;
        assert_eq!(clf(b"17/May/2015:10:05:03 +0000] rest"), Some((expected, SECOND_NS, 26)));
        assert_eq!(clf(b"17/May/2015:06:35:03 -0330"), Some((expected, SECOND_NS, 26)));
        assert_eq!(iso(b"2015-05-17T10:05:03+00:00 "), Some((expected, SECOND_NS, 25)));
        assert_eq!(iso(b"2015-05-17 12:05:03.250+0200"), Some((expected + 250_000_000, 1_000_000, 28)));
        assert_eq!(iso(b"2015-05-17T10:05:03Z"), Some((expected, SECOND_NS, 20)));
        assert_eq!(epoch_seconds(b"1431857103.250 "), Some((expected + 250_000_000, 1_000_000, 14)));
        assert_eq!(epoch(b"1431857103250000", 1000), Some((expected + 250_000_000, 1000, 16)));
    }

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for text in [
            "31/Feb/2015:10:05:03 +0000",
            "29/Feb/2015:10:05:03 +0000",
            "00/May/2015:10:05:03 +0000",
            "17/Mai/2015:10:05:03 +0000",
            "17/May/1969:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/2015:10:05:03 *0000",
            "17/May/2015:10:05:03",
        ] {
            assert_eq!(clf(text.as_bytes()), None, "{text}");
        }
        assert!(clf(b"29/Feb/2016:10:05:03 +0000").is_some());
        assert_eq!(epoch(b"9999999999999999999", 1), None);
    }

    proptest! {
        #[test]
        fn calendar_dates_agree_with_counted_days(seconds in 0i64..7_000_000_000) {
            let stamp = record::time::utc_iso(seconds as u64 * 1000);
            prop_assert_eq!(iso(stamp.as_bytes()), Some((seconds * 1_000_000_000, SECOND_NS, 20)));
        }
    }
}

mod lines {
    use std::io;
    use workload::trace::lines::{BUFFER_BYTES, LINE_LIMIT_BYTES, LogLines};

    #[test]
    fn lines_are_counted_and_long_ones_skipped() {
        let [longest, too_long, unended] = [0, 1, 3 * BUFFER_BYTES].map(|more| "x".repeat(LINE_LIMIT_BYTES + more));
        let text = format!("a\r\n\n{longest}\n{too_long}\nb\n{unended}");
        let bytes = text.len() as u64;
        let mut lines = LogLines::new(Box::new(io::Cursor::new(text)));
        for (number, expected) in (1..).zip([Some("a"), Some(""), Some(&longest), None, Some("b"), None]) {
            let is_whole = lines.next_line().unwrap().unwrap();
            assert_eq!(lines.line, number);
            assert_eq!(is_whole.then_some(&lines.text[..]), expected.map(str::as_bytes), "line {number}");
        }
        assert_eq!((lines.next_line().unwrap(), lines.bytes), (None, bytes));
    }
}

mod escape {
    use workload::trace::escape::{closing_quote, undo};

    #[test]
    fn json_escapes_are_characters_and_x_escapes_are_bytes() {
        for (logged, target) in [
            (&br#"/a\"b\\c\x41\u0042\/\q\x4"#[..], r#"/a"b\cAB/\q\x4"#),
            (br"/\u00e4\u00E4", "/\u{e4}\u{e4}"),
            (br"/\u4e2d\u002f\u0026\u00ff\u0100\u07ff\u0800\uffff", "/\u{4e2d}/&\u{ff}\u{100}\u{7ff}\u{800}\u{ffff}"),
            (br"/\ud83d\ude00\uDBFF\uDFFF", "/\u{1f600}\u{10ffff}"),
            // A lone surrogate is no character.
            (br"/\ud83d", "/\u{fffd}"),
            (br"/\ud83dx\ude00", "/\u{fffd}x\u{fffd}"),
            (br"/\ud83d\u0041", "/\u{fffd}A"),
            (br"/\ud83d\ud83d\ude00", "/\u{fffd}\u{1f600}"),
            (br"/\ud83d\ude0", "/\u{fffd}\\ude0"),
            (br"/\u4e2\u\uxyzw", r"/\u4e2\u\uxyzw"),
            (br"/\xc3\xa4\xC3\xA4", "/\u{e4}\u{e4}"),
            (br"\b\f\n\r\t\v\u0007", "\x08\x0c\n\r\t\x0b\x07"),
        ] {
            let mut out = Vec::new();
            undo(logged, &mut out);
            assert_eq!(out.escape_ascii().to_string(), target.as_bytes().escape_ascii().to_string());
        }
        let mut out = Vec::new();
        undo(br"/\xe4", &mut out);
        assert_eq!(out, b"/\xe4");
    }

    #[test]
    fn an_escaped_quote_does_not_end_the_field() {
        assert_eq!(closing_quote(br#"a\"b" c"#, 0), Some(4));
        assert_eq!(closing_quote(br#"a\\" c"#, 0), Some(3));
        assert_eq!(closing_quote(br#"a\""#, 0), None);
    }
}

mod clf {
    use super::read;
    use workload::trace::{LogFormat, RejectReason, request_line};

    #[test]
    fn fields_are_found_next_to_odd_users_and_unescaped_quotes() {
        let line = r#"::1 - my [odd] name [10/Oct/2000:13:55:36 -0700] "GET /?q="x" HTTP/1.1" 404 - "-" "-""#;
        let mut reader = read(line, &LogFormat::Combined);
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!(entry.target, br#"/?q="x""#);
        assert_eq!((entry.status, entry.bytes), (Some(404), Some(0)));
    }

    #[test]
    fn each_kind_of_damage_has_its_reason() {
        let stamp = "[10/Oct/2000:13:55:36 -0700]";
        for (line, reason) in [
            (format!(" - - {stamp} \"GET / HTTP/1.1\" 200 1"), RejectReason::Client),
            ("h - - [10/Oct/2000] \"GET / HTTP/1.1\" 200 1".into(), RejectReason::Time),
            (format!("h - - {stamp} GET / HTTP/1.1 200 1"), RejectReason::Layout),
            (format!("h - - {stamp} \"GET / HTTP/1.1\" abc 1"), RejectReason::Status),
            (format!("h - - {stamp} \"GET / HTTP/1.1\" 200 1x"), RejectReason::Bytes),
            (format!("h - - {stamp} \"GET / HTTP/1.1\" 200 9999999999999999999"), RejectReason::Bytes),
            (format!("h - - {stamp} \"-\" 408 -"), RejectReason::NoRequest),
            (format!("h - - {stamp} \"\" 400 0"), RejectReason::NoRequest),
            (format!("h - - {stamp} \"\\x16\\x03 x\" 400 226"), RejectReason::Request),
            (format!("h - - {stamp} \"GET / HTTP/1.1"), RejectReason::Layout),
        ] {
            let mut reader = read(&line, &LogFormat::Common);
            assert!(reader.next_entry().is_err(), "{line}");
            assert_eq!(reader.counts().rejected.examples()[0].reason, reason, "{line}");
        }
    }

    #[test]
    fn request_lines_of_every_version_are_split() {
        assert_eq!(request_line(b"GET /x HTTP/2").unwrap(), (&b"GET"[..], &b"/x"[..]));
        assert_eq!(request_line(b"GET /x HTTP/1.1").unwrap(), (&b"GET"[..], &b"/x"[..]));
        assert_eq!(request_line(b"GET /x").unwrap(), (&b"GET"[..], &b"/x"[..]));
        assert_eq!(request_line(b"GET /a b HTTP/1.0").unwrap(), (&b"GET"[..], &b"/a b"[..]));
    }
}

mod w3c {
    use super::read;
    use workload::trace::{LogFormat, RejectReason, SizeMeaning};

    #[test]
    fn tabs_quotes_and_a_date_directive_are_parsed() {
        let log = "#Date: 2015-05-17 00:00:00\n#Fields: time cs(Agent) c-ip cs-uri\n\
                   10:05:03.5\t\"a \"\"b\"\" c\"\t::1\t/x\n";
        let mut reader = read(log, &LogFormat::W3c);
        let entry = reader.next_entry().unwrap().unwrap();
        assert_eq!((entry.client, entry.target, entry.method), (&b"::1"[..], &b"/x"[..], &b"GET"[..]));
        assert_eq!((entry.time_ns, entry.resolution_ns), (1_431_857_103_500_000_000, 100_000_000));
        assert_eq!(reader.size_meaning(), SizeMeaning::Absent);
    }

    #[test]
    fn a_line_before_the_directives_is_rejected() {
        let log = "2015-05-17 10:05:03 ::1 /\n#Fields: date time c-ip cs-uri-stem\n2015-05-17 10:05:03 ::1\n\
                   2015-05-17 10:05:03 - /\n\"2015-05-17 10:05:03 - /\n";
        let mut reader = read(log, &LogFormat::W3c);
        assert!(reader.next_entry().is_err());
        let reasons = reader.counts().rejected.examples().iter().map(|line| line.reason);
        let expected = [RejectReason::Time, RejectReason::Layout, RejectReason::Client, RejectReason::Layout];
        assert_eq!(reasons.collect::<Vec<_>>(), expected);
    }
}

mod rejected {
    use workload::trace::{RejectReason, Rejected};

    #[test]
    fn examples_are_few_and_printable() {
        let mut rejected = Rejected::default();
        for line in 1..=1000 {
            rejected.add(line, RejectReason::Time, b"\x1b[31mred\xff");
        }
        rejected.add(1001, RejectReason::TooLong, b"");
        assert_eq!(rejected.total(), 1001);
        let shown: Vec<String> = rejected.examples().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                r"line 1: no readable time: \x1b[31mred\xff",
                r"line 2: no readable time: \x1b[31mred\xff",
                "line 1001: the line is longer than 64 KiB",
            ]
        );
    }
}
