//! Tests of logs in every format, plain and compressed, valid and damaged.

use super::data;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::{Cursor, Write};
use workload::WorkloadError;
use workload::trace::{LogFormat, RejectReason, SizeMeaning, TraceReader};

/// An owned entry: line, client, time in ms, method and target, status, bytes.
type Row = (u64, String, i64, String, Option<u16>, Option<u64>);

fn open(text: &[u8], format: &str) -> Result<TraceReader, WorkloadError> {
    TraceReader::from_reader("test.log".into(), Box::new(Cursor::new(text.to_vec())), &format.parse()?)
}

fn rows(reader: &mut TraceReader) -> Result<Vec<Row>, WorkloadError> {
    let mut out = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        let words = format!("{} {}", entry.method.escape_ascii(), entry.target.escape_ascii());
        let client = String::from_utf8_lossy(entry.client).into_owned();
        out.push((entry.line, client, entry.time_ns / 1_000_000, words, entry.status, entry.bytes));
    }
    Ok(out)
}

fn read(text: &[u8], format: &str) -> Vec<Row> {
    rows(&mut open(text, format).unwrap()).unwrap()
}

const COMMON: &str = "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /a?b=1 HTTP/1.1\" 200 1234";

fn expected() -> Row {
    (1, "192.0.2.7".into(), 1_431_857_103_000, "GET /a?b=1".into(), Some(200), Some(1234))
}

#[test]
fn every_format_gives_the_same_request() {
    let combined = format!("{COMMON} \"-\" \"agent\"");
    for (text, format, found) in [
        (COMMON.to_string(), "auto", LogFormat::Common),
        (combined.clone(), "auto", LogFormat::Combined),
        (combined.clone(), "nginx", LogFormat::Combined),
        (format!("www.example.org:80 {combined}"), "auto", LogFormat::VhostCombined),
        (
            "#Version: 1.0\n#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes\n2015-05-17 \
          10:05:03 192.0.2.7 GET /a b=1 200 1234"
                .into(),
            "auto",
            LogFormat::W3c,
        ),
    ] {
        let mut reader = open(text.as_bytes(), format).unwrap();
        assert_eq!(*reader.format(), found, "{text}");
        let mut row = rows(&mut reader).unwrap().remove(0);
        row.0 = 1;
        assert_eq!(row, expected(), "{text}");
    }
}

#[test]
fn format_strings_of_both_servers_are_understood() {
    for (format, line) in [
        (
            r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_user_agent""#,
            r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 1234 "x \" y""#,
        ),
        (
            "$msec ${remote_addr} $request_method $request_uri $status $body_bytes_sent",
            "1431857103.000 192.0.2.7 GET /a?b=1 200 1234",
        ),
        (
            concat!(
                r#"{"t":"$time_iso8601","c":"$remote_addr","m":"$request_method","#,
                r#""u":"$uri","q":"$args","s":$status,"b":$body_bytes_sent}"#
            ),
            r#"{"t":"2015-05-17T12:05:03+02:00","c":"192.0.2.7","m":"GET","u":"/a","q":"b=1","s":200,"b":1234}"#,
        ),
        (
            "$host $remote_addr|$request_time|$time_iso8601|$request|$status|$bytes_sent",
            "h 192.0.2.7|0.001|2015-05-17T10:05:03Z|GET /a?b=1 HTTP/2.0|200|1234",
        ),
        (
            r#"%h %l %u %t "%r" %>s %b "%{Referer}i" %D"#,
            r#"192.0.2.7 - me [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 200 1234 "-" 99"#,
        ),
        (r#"%{usec}t %a "%m %U%q %H" %s %O"#, r#"1431857103000000 192.0.2.7 "GET /a?b=1 HTTP/1.1" 200 1234"#),
        (
            r#"%{c}a [%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t] \"%r\" %>s %B %!200,304{User-agent}i %%"#,
            r#"192.0.2.7 [17/May/2015 10:05:03.000 +0000] "GET /a?b=1 HTTP/1.1" 200 1234 - %"#,
        ),
    ] {
        assert_eq!(read(line.as_bytes(), format), [expected()], "{format}");
    }
    let reader = open(b"x", "%h %t \"%r\" %O");
    assert_eq!(reader.unwrap().size_meaning(), SizeMeaning::HeaderAndBody);
}

#[test]
fn fine_times_keep_their_resolution() {
    let mut reader = open(b"1431857103.250 ::1 /x", "$msec $remote_addr $request_uri").unwrap();
    let entry = reader.next_entry().unwrap().unwrap();
    assert_eq!((entry.time_ns, entry.resolution_ns), (1_431_857_103_250_000_000, 1_000_000));
    assert_eq!((entry.method, entry.status, entry.bytes), (&b"GET"[..], None, None));
}

#[test]
fn a_fraction_after_apaches_unix_time_is_read() {
    for (format, fraction, resolution_ns) in [
        ("%{sec}t.%{usec_frac}t", "250000", 1_000),
        ("%{sec}t.%{msec_frac}t", "250", 1_000_000),
        ("%{%s}t.%{usec_frac}t", "250000", 1_000),
        ("%{begin:sec}t.%{begin:msec_frac}t", "250", 1_000_000),
    ] {
        let line = format!("1431857103.{fraction} ::1 GET /x\n");
        let mut reader = open(line.as_bytes(), &format!("{format} %h %m %U")).unwrap();
        let entry = reader.next_entry().unwrap_or_else(|error| panic!("{format}: {error}")).unwrap();
        assert_eq!((entry.time_ns, entry.resolution_ns), (1_431_857_103_250_000_000, resolution_ns), "{format}");
    }
}

#[test]
fn the_first_forwarded_address_is_the_client() {
    for format in [
        r#"$remote_addr - [$time_local] "$request" $status "$http_x_forwarded_for""#,
        r#"%h - %t "%r" %>s "%{X-Forwarded-For}i""#,
        r#"%h - %t "%r" %>s \"%{x-forwarded-for}i\""#,
    ] {
        let client = |forwarded: &str| {
            let line = format!("172.17.0.1 - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 \"{forwarded}\"\n");
            let mut reader = open(line.as_bytes(), format).unwrap();
            String::from_utf8(reader.next_entry().unwrap().unwrap().client.to_vec()).unwrap()
        };
        assert_eq!(client("203.0.113.7, 10.1.1.1,10.1.1.2"), "203.0.113.7", "{format}");
        assert_eq!(client("2001:db8::7"), "2001:db8::7", "{format}");
        assert_eq!(client("203.0.113.7:41341, 10.1.1.1:80"), "203.0.113.7", "{format}");
        assert_eq!(client("[2001:db8::7]:4711"), "2001:db8::7", "{format}");
        assert_eq!(client("unknown, 10.1.1.1"), "172.17.0.1", "{format}");
        assert_eq!(client("-"), "172.17.0.1", "a request that came without a proxy: {format}");
        assert_eq!(client(" , 10.1.1.1"), "172.17.0.1", "{format}");
    }
    let mut alone = open(b"203.0.113.7, 10.1.1.1;1431857103 /a\n", "$http_x_forwarded_for;$msec $request_uri").unwrap();
    assert_eq!(alone.next_entry().unwrap().unwrap().client, b"203.0.113.7");
}

/// The client of each line.
fn clients(lines: &[String], format: &str) -> Vec<String> {
    read(lines.join("\n").as_bytes(), format).into_iter().map(|row| row.1).collect()
}

#[test]
fn a_client_is_its_address_without_the_port_in_every_form() {
    let forms = [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("2001:db8::7:8", "2001:db8::7:8"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"),
        ("::1", "::1"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[fe80::1%2]", "fe80::1%2"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("[::ffff:192.0.2.7]", "192.0.2.7"),
        ("unix:", "unix:"),
        ("host.example", "host.example"),
    ];
    let ports = ["80", "4134", "41341"];
    let rest = "[17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5";
    let of = |form: &str, port: &str| format!("{form}{}{port} {rest}", if port.is_empty() { "" } else { ":" });
    for (form, client) in forms {
        let expected = vec![client.to_string(); 3];
        let lines = ports.map(|port| of(form, port));
        for format in ["$remote_addr:$remote_port", "%a:%{remote}p"] {
            let rest = if format.starts_with('$') { "[$time_local] \"$request\" $status" } else { "%t \"%r\" %>s" };
            assert_eq!(clients(&lines, &format!("{format} {rest} 5")), expected, "{form} in {format}");
        }
        let lines = ports.map(|port| of(form, &format!("{port}:0.017")));
        let format = "$remote_addr:$remote_port:$request_time [$time_local] \"$request\" $status 5";
        assert_eq!(clients(&lines, format), expected, "{form} with two fields after it");
        let lines = ["17/May/2015:10:05:03 +0000", "17/May/2015:10:05:04 +0000"];
        let lines = lines.map(|time| format!("{form}:{time} /a"));
        let format = "$remote_addr:$time_local $request_uri";
        assert_eq!(clients(&lines, format), expected[..2], "{form} with a time after it");
        // One field with address and port: without brackets, the last group of an IPv6 address may be a port.
        let is_clear = !form.contains(':') || form.starts_with('[') || form.starts_with("::ffff");
        for ports in [&ports[2..], if is_clear { &ports[..] } else { &[""] }] {
            let lines: Vec<String> = ports.iter().map(|port| of(form, port)).collect();
            assert_eq!(clients(&lines, "$remote_addr [$time_local] \"$request\" $status 5"), expected[..ports.len()]);
            let lines: Vec<String> = lines.iter().map(|line| line.replacen(' ', " - - ", 1)).collect();
            assert_eq!(clients(&lines, "common"), expected[..ports.len()], "{form} in a common log");
        }
    }
}

#[test]
fn absolute_targets_are_split_into_host_and_origin_form() {
    for (logged, host, target) in [
        ("GET http://www.example.com:8080/p?a=1", "http://www.example.com:8080", "/p?a=1"),
        ("GET HTTPS://u:p@[2001:db8::7]:443/", "HTTPS://u:p@[2001:db8::7]:443", "/"),
        ("GET http://example.com", "http://example.com", "/"),
        ("GET http://example.com?x=http://other/y", "http://example.com", "/?x=http://other/y"),
        ("GET http://example.com/a\\x22b", "http://example.com", "/a\"b"),
        ("OPTIONS http://example.com", "http://example.com", "*"),
        ("OPTIONS *", "", "*"),
        ("GET /?u=http://example.com/", "", "/?u=http://example.com/"),
        ("GET //example.com/x", "", "//example.com/x"),
        ("GET a/http://example.com/x", "", "a/http://example.com/x"),
        ("CONNECT example.com:443", "", "example.com:443"),
    ] {
        let line = format!("10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"{logged} HTTP/1.1\" 200 5\n");
        let mut reader = open(line.as_bytes(), "common").unwrap();
        let entry = reader.next_entry().unwrap().unwrap();
        let found = (String::from_utf8_lossy(entry.host), String::from_utf8_lossy(entry.target));
        assert_eq!(found, (host.into(), target.into()), "{logged}");
    }
}

#[test]
fn a_json_log_gives_the_targets_that_clients_requested() {
    let target = |line: &str, format: &str| {
        let mut reader = open(line.as_bytes(), format).unwrap();
        let target = reader.next_entry().map(|entry| entry.unwrap().target.escape_ascii().to_string());
        target.unwrap_or_else(|error| error.to_string())
    };
    let format = r#"{"t":$msec,"a":"$remote_addr","m":"$request_method","u":"$request_uri"}"#;
    let whole = r#"{"t":$msec,"a":"$remote_addr","r":"$request"}"#;
    for (logged, expected) in [
        (r"/\u00e4", r"/\xc3\xa4"),
        (r"/\u4e2d\ud83d\ude00", r"/\xe4\xb8\xad\xf0\x9f\x98\x80"),
        (r"\/a\/b?x=1\u0026y=\u0022", r#"/a/b?x=1&y=\""#),
        (r#"/\"q\"\\"#, r#"/\"q\"\\"#),
        (r"/\xe4", r"/\xe4"),
        ("/\u{e4}", r"/\xc3\xa4"),
    ] {
        assert_eq!(target(&format!(r#"{{"t":1.5,"a":"::1","m":"GET","u":"{logged}"}}"#), format), expected);
        assert_eq!(target(&format!(r#"{{"t":1.5,"a":"::1","r":"GET {logged} HTTP/1.1"}}"#), whole), expected);
        assert_eq!(target(&format!(r#"{{"t":1.5,"a":"::1","r":"GET {logged} HTTP\/1.1"}}"#), whole), expected);
    }
    for control in [r"\b", r"\f", r"\n", r"\u0000", r"\u001f", r"\u0020", r"\v"] {
        let said = target(&format!(r#"{{"t":1.5,"a":"::1","m":"GET","u":"/a{control}b"}}"#), format);
        assert!(said.contains("not one of 1 lines"), "{control}: {said}");
    }
}

#[test]
fn a_backslash_in_a_w3c_log_is_kept() {
    let log =
        b"#Fields: date time c-ip cs-uri-stem cs-uri-query\n2015-05-01 00:00:00 10.0.0.1 /a p=C:\\new\\\\x41\\u0041\n";
    assert_eq!(open(log, "auto").unwrap().next_entry().unwrap().unwrap().target, br"/a?p=C:\new\\x41\u0041");
}

#[test]
fn a_byte_order_mark_before_a_log_is_skipped() {
    let line = "\u{feff}10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n";
    assert_eq!(open(line.as_bytes(), "auto").unwrap().next_entry().unwrap().unwrap().client, b"10.0.0.1");
    let w3c = "\u{feff}#Fields: date time c-ip cs-uri-stem\n2015-05-01 00:00:00 10.0.0.1 /a\n";
    assert_eq!(open(w3c.as_bytes(), "auto").unwrap().next_entry().unwrap().unwrap().target, b"/a");
}

#[test]
fn impossible_format_strings_are_refused_with_a_reason() {
    for (format, words) in [
        ("$status $request", "no client address"),
        ("$remote_addr $request", "no time"),
        ("$remote_addr $msec", "no request"),
        ("$remote_addr$request $msec", "touch"),
        ("%h %{%Q}t %r", "%Q"),
        ("%h %t %{Referer", "ends inside"),
        ("%h %t %r %", "lone %"),
        ("tsv", "is not a log format"),
    ] {
        let message = format.parse::<LogFormat>().unwrap_err().to_string();
        assert!(message.contains(words), "{format}: {message}");
    }
}

#[test]
fn a_gzip_file_of_several_members_is_read_as_one_log() {
    let mut packed = Vec::new();
    for _ in 0..3 {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        writeln!(member, "{COMMON}").unwrap();
        packed.extend(member.finish().unwrap());
    }
    let found = read(&packed, "auto");
    assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_file_that_is_no_log_gives_one_clear_sentence() {
    let cut = {
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        member.write_all(COMMON.repeat(100).as_bytes()).unwrap();
        let mut packed = member.finish().unwrap();
        packed.truncate(packed.len() / 2);
        packed
    };
    for (bytes, words) in [
        (&b""[..], "test.log is empty"),
        (b"\n\n  \n", "test.log is empty"),
        (b"\x7fELF\x02\x01\0\0\0", "NUL byte at offset 6"),
        (b"hello\nworld\n", "no known log format"),
        (b"BZh91AY&SY", "compressed with bzip2"),
        (b"\xfd7zXZ\0\0", "compressed with xz"),
        (b"\x28\xb5\x2f\xfd\x04\0", "compressed with zstd"),
        (b"\x1f\x8b\x08", "the gzip data is damaged"),
        (&cut, "the gzip data is damaged or cut off"),
    ] {
        let message = open(bytes, "auto").map(drop).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
        assert!(!message.contains('\n'));
    }
    let message = TraceReader::open(&data::own(""), &LogFormat::Auto).map(drop).unwrap_err().to_string();
    assert!(message.contains("is a directory"), "{message}");
    let message = TraceReader::open(&data::own("absent.log"), &LogFormat::Auto).map(drop).unwrap_err().to_string();
    assert!(message.contains("absent.log") && message.contains("No such file"), "{message}");
}

#[test]
fn a_chosen_format_that_no_line_follows_is_an_error_at_the_end() {
    let mut reader = open(b"hello\nworld\n", "combined").unwrap();
    let message = reader.next_entry().unwrap_err().to_string();
    assert_eq!(
        message,
        "test.log: not one of 2 lines could be read as combined; the first: line 1: no client address: hello"
    );
}

#[test]
fn malformed_lines_are_counted_with_number_and_reason_and_the_rest_is_read() {
    let mut reader = TraceReader::open(&data::own("sample.log"), &LogFormat::Auto).unwrap();
    let found = rows(&mut reader).unwrap();
    assert_eq!(found.len(), 301);
    assert!(found.iter().any(|row| row.3 == r#"GET /a\"b\\c"#), "escapes are undone");
    let counts = reader.counts();
    assert_eq!((counts.lines, counts.entries), (306, 301));
    let shown: Vec<(u64, RejectReason)> =
        counts.rejected.examples().iter().map(|line| (line.line, line.reason)).collect();
    assert_eq!(
        shown,
        [
            (41, RejectReason::NoRequest),
            (81, RejectReason::Time),
            (121, RejectReason::Request),
            (161, RejectReason::Time)
        ]
    );
}

#[test]
fn a_line_of_a_megabyte_is_counted_and_skipped() {
    let mut text = format!("{COMMON}\n").into_bytes();
    text.extend(vec![b'x'; 1 << 20]);
    text.extend(format!("\n{COMMON}\n").into_bytes());
    let mut reader = open(&text, "auto").unwrap();
    assert_eq!(rows(&mut reader).unwrap().len(), 2);
    assert_eq!(reader.counts().rejected.examples()[0].to_string(), "line 2: the line is longer than 64 KiB");
}

#[test]
fn the_real_log_is_read_completely() {
    let Some(log) = data::public("apache_access_2015.log") else { return };
    let mut reader = TraceReader::open(&log, &LogFormat::Auto).unwrap();
    let (mut entries, mut clients, mut targets) =
        (0, std::collections::HashSet::new(), std::collections::HashSet::new());
    while let Some(entry) = reader.next_entry().unwrap() {
        entries += 1;
        clients.insert(entry.client.to_vec());
        targets.insert(entry.target.to_vec());
    }
    assert_eq!((entries, clients.len(), *reader.format() == LogFormat::Combined), (10_000, 1_753, true));
    assert_eq!(reader.counts().rejected.total(), 0);
    assert!(targets.len() > 1_400, "{}", targets.len());
}

/// Lines so similar to real ones that they reach every branch of the parsers.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(COMMON.to_string()),
        Just("#Fields: date time c-ip cs-uri-stem cs-uri-query sc-bytes".to_string()),
        Just("2015-05-17 10:05:03.5 ::1 /a - 7".to_string()),
        Just("\"a\"\"b\"".to_string()),
        Just("[17/May/2015:10:05:03 +0000]".to_string()),
        Just("\"GET \\x41\\\" HTTP/1.1\" 200 -".to_string()),
        "[ -~\\n\\t\"\\\\\\[\\]]{0,20}",
    ];
    let text = proptest::collection::vec(word, 0..12).prop_map(|words| words.concat().into_bytes());
    prop_oneof![text, proptest::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #[test]
    fn no_bytes_panic_a_reader(bytes in nearly(), packed: bool) {
        let bytes = if packed { [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &bytes].concat() } else { bytes };
        for format in [
            "auto", "common", "vhost", "w3c", "$remote_addr [$time_local] \"$request\" $status $bytes_sent",
            "%{%Y-%m-%d %T}t.%{usec_frac}t %h %U%q %b \"%{x}i\"", "$msec $remote_addr $request_uri $args",
        ] {
            let Ok(mut reader) = open(&bytes, format) else { continue };
            let mut lines = 0;
            while let Ok(Some(entry)) = reader.next_entry() {
                prop_assert!(entry.line > lines);
                lines = entry.line;
                prop_assert!(!entry.target.is_empty() && entry.target.iter().all(|b| *b > b' ' && *b != 0x7f));
                prop_assert!((1..=32).contains(&entry.method.len()));
                prop_assert!(!entry.client.is_empty());
            }
        }
    }

    #[test]
    fn no_text_panics_the_format_parser(text in "[%${}a-zA-Z_^!<>,0-9\"\\\\ :/.]{0,40}") {
        if let Ok(format) = text.parse::<LogFormat>() {
            prop_assert_eq!(format.notation().parse::<LogFormat>(), Ok(format.clone()));
            let _ = TraceReader::from_reader("t".into(), Box::new(Cursor::new(COMMON)), &format)
                .map(|mut reader| reader.next_entry().map(|_| ()));
        }
    }
}
