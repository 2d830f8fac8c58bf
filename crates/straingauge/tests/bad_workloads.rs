//! Bad mixes, logs and rate series: one clear sentence and the right exit code before anything is sent. Unreadable
//! lines are counted and shown, but not fatal.

use crate::document_server::DocumentServer;
use crate::rig::{Said, free_port, member, open_dir, run, run_record, skipped, straingauge};
use std::path::Path;

/// Nothing listens, because bad input is refused before connecting.
fn load(options: &[&str]) -> Said {
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(straingauge(["load", &url, "--quiet"]).args(options))
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a temporary folder"))
    }

    fn with(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("a temporary file");
        path.to_str().expect("temporary paths are text").to_string()
    }
}

pub const LINE: &str = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /a.txt HTTP/1.1\" 200 5\n";

#[test]
fn files_that_are_not_logs_are_refused_with_the_reason() {
    let files = Files::new();
    let empty = files.with("empty.log", b"");
    load(&["--trace", &empty]).exits_with(1).complains_of(&["empty.log", "is empty"]);
    let binary = files.with("binary.log", b"\x7fELF\0\0\0\0");
    load(&["--trace", &binary]).exits_with(1).complains_of(&["binary.log", "NUL byte at offset 4"]);
    let prose = files.with("prose.log", b"It was a dark and stormy night.\n");
    load(&["--trace", &prose]).exits_with(1).complains_of(&["no known log format", "dark and stormy"]);
    let cut = files.with("cut.log.gz", &[0x1f, 0x8b, 8, 0, 0, 0]);
    load(&["--trace", &cut]).exits_with(1).complains_of(&["cut.log.gz", "damaged or cut off"]);
    load(&["--trace", "/no/such.log"]).exits_with(1).complains_of(&["/no/such.log", "No such file"]);
    let folder = files.0.path().to_str().expect("temporary paths are text");
    load(&["--trace", folder]).exits_with(2).complains_of(&["not a regular file"]);
    let fine = files.with("fine.log", LINE.as_bytes());
    load(&["--trace", &fine, "--set", "workload.trace-format=$nonsense"]).exits_with(2).complains_of(&["trace-format"]);
    load(&["--trace", &fine, "--set", "workload.trace-format=w3c"]).exits_with(1).complains_of(&["fine.log"]);
}

#[test]
fn options_that_contradict_each_other_are_refused_by_name() {
    let files = Files::new();
    let log = files.with("a.log", LINE.as_bytes());
    let list = files.with("list.txt", b"/a\n");
    let series = files.with("series.txt", b"1\n2\n");
    for (options, words) in [
        (vec!["--mix", "webstoned"], vec!["webstoned", "webstone or surge"]),
        (vec!["--mix", "fitted"], vec!["--trace LOG"]),
        (vec!["--mix", "webstone", "--trace", &log], vec!["--mix and --trace"]),
        (vec!["--mix", "webstone", "--urls", &list], vec!["--mix and --urls"]),
        (vec!["--trace", &log, "--rate", "10"], vec!["--rate", "--speed"]),
        (vec!["--trace", &log, "--urls", &list], vec!["--urls", "--trace"]),
        (vec!["--trace", &log, "--requests-per-connection", "2"], vec!["--requests-per-connection"]),
        (vec!["--speed", "2"], vec!["--speed", "--trace LOG or --rate-series"]),
        (vec!["--set", "workload.session-gap=2s"], vec!["session-gap", "--trace"]),
        (vec!["--set", "workload.trace-format=w3c"], vec!["trace-format", "--trace"]),
        (vec!["--rate-series", &series, "--speed", "max"], vec!["--speed max"]),
        (vec!["--rate-series", &series, "--arrival", "constant"], vec!["--arrival"]),
        (vec!["--set", "workload.dynamic-share=30%"], vec!["workload.dynamic-urls"]),
        (vec!["--set", "workload.classes=1KiB"], vec!["--mix or --trace"]),
        (vec!["--mix", "webstone", "--set", "workload.classes=2KiB,1KiB"], vec!["classes of [workload]", "ascending"]),
        (vec!["--mix", "webstone", "--set", "workload.classes=big"], vec!["classes of [workload]", "big"]),
    ] {
        load(&options).exits_with(2).complains_of(&words);
    }
    for wrong in ["0", "-1", "nan", "inf", "fast"] {
        let said = load(&["--trace", &log, "--speed", wrong]).exits_with(2);
        assert!(said.err.contains("is not a speed"), "{}", said.err);
    }
    let url = format!("http://127.0.0.1:{}/docs", free_port());
    run(&mut straingauge(["load", &url, "--mix", "surge"])).exits_with(2).complains_of(&["does not end in /"]);
    run(&mut straingauge(["load", &url, "--trace", &log])).exits_with(2).complains_of(&["the log has the paths"]);
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(&mut straingauge(["find", &url, "--trace", &log, "--speed", "2"]))
        .exits_with(2)
        .complains_of(&["find chooses"]);
}

#[test]
fn lists_and_series_are_refused_with_file_and_line() {
    let files = Files::new();
    let list = files.with("list.txt", b"/a\n/b two\n");
    load(&["--urls", &list]).exits_with(2).complains_of(&["list.txt:2", "weight", "%20"]);
    let zeros = files.with("zeros.txt", b"/a 0\n/b 0\n");
    load(&["--urls", &zeros]).exits_with(2).complains_of(&["zeros.txt", "must be above 0"]);
    let series = files.with("series.txt", b"1\n2\nthree\n");
    load(&["--rate-series", &series]).exits_with(1).complains_of(&["series.txt:3", "expected one count"]);
    let none = files.with("none.txt", b"0\n0\n");
    load(&["--rate-series", &none]).exits_with(1).complains_of(&["none.txt", "no requests"]);
}

/// A log with every kind of bad line between good ones.
fn mixed() -> Vec<u8> {
    let mut log = LINE.as_bytes().to_vec();
    log.extend_from_slice(b"not a line of any log\n");
    log.extend(std::iter::repeat_n(b'x', 1 << 20));
    log.extend_from_slice(b"\n\x1b[31m\xff\xfe\n\n");
    // Lines whose times go back further than sorting allows.
    log.extend_from_slice(LINE.replace("17/May", "16/May").as_bytes());
    log.extend_from_slice(LINE.replace("10:05:03", "10:05:01").as_bytes());
    log.extend_from_slice(LINE.replace("GET", "CONNECT").as_bytes());
    log.extend_from_slice(LINE.as_bytes());
    log
}

#[test]
fn bad_lines_are_counted_and_shown_and_the_rest_is_replayed() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let files = Files::new();
    let log = files.with("mixed.log", &mixed());
    let server = DocumentServer::start(&["--trace", &log]);
    let url = server.url();
    let json = run(&mut straingauge(["load", &url, "--trace", &log, "--speed", "1000", "--json", "--quiet"]))
        .exits_with(0)
        .json();
    assert_eq!(member(&json, "outcomes")["ok"].as_u64(), Some(4), "{json:#}");
    let replay = member(&json, "replay");
    let count = |name: &str| replay[name].as_u64().unwrap_or_else(|| panic!("no '{name}' in {replay:#}"));
    assert_eq!((count("rejected"), count("went_back"), count("clamped"), count("unsendable")), (3, 2, 1, 1));
    let examples = replay["rejected_examples"].to_string();
    for words in ["mixed.log: line 2: ", "mixed.log: line 3: the line is longer than 64 KiB", "mixed.log: line 4: "] {
        assert!(examples.contains(words), "'{words}' is not in {examples}");
    }
    let again = ["load", &url, "--trace", &log, "--speed", "1000", "--quiet"];
    let short = run(&mut straingauge(again)).exits_with(0);
    let flat = short.flat();
    assert!(flat.contains("3 not readable") && flat.contains("mixed.log: line 2: "), "{}", short.out);
    let said = run(straingauge(again).arg("--full")).exits_with(0);
    let flat = said.flat();
    assert!(flat.contains("3 not readable") && flat.contains("line 3: the line is longer"), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'), "an escape sequence reached the terminal");
}

#[test]
fn a_truncated_log_is_replayed_up_to_its_end_and_fails() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let files = Files::new();
    let whole = files.with("whole.log", LINE.repeat(20_000).as_bytes());
    let server = DocumentServer::start(&["--trace", &whole]);
    let packed = std::process::Command::new("gzip").args(["-k", "-c", &whole]).output();
    let Ok(packed) = packed else { return skipped("gzip is not installed") };
    let cut = files.with("cut.log.gz", &packed.stdout[..packed.stdout.len() - 20]);
    let url = server.url();
    let kept = open_dir();
    let mut load = straingauge(["load", &url, "--trace", &cut, "--speed", "max", "--quiet", "--out"]);
    let said = run(load.arg(kept.path().join("run"))).exits_with(1);
    said.complains_of(&["the replay ended early", "cut.log.gz", "damaged or cut off"]);
    let record = run_record(&kept.path().join("run"));
    assert_eq!(record["status"], "interrupted");
    assert!(record["ended_by"].as_str().is_some_and(|why| why.contains("cut.log.gz")), "{record:#}");
    assert!(!server.end_and_read_log().is_empty(), "what was readable was replayed");
    assert!(Path::new(&cut).is_file());
}
