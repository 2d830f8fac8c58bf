//! Replays a log to a real server: every request is answered, bytes and sessions are those of the log, and each
//! client's order is kept.
//!
//! The expected counts come from a separate reader of combined logs that shares no code with the program.

use crate::document_server::{Answer, DocumentServer};
use crate::rig::{member, repository, run, skip_unless, skipped, straingauge};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// A request of the log.
#[derive(Debug, Clone)]
struct Logged {
    client: String,
    second: i64,
    method: String,
    target: Vec<u8>,
    status: u16,
    bytes: Option<u64>,
}

/// Days from 1970 to a civil date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let before: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
        + before[month as usize - 1]
        + i64::from(is_leap && month > 2)
        + day
        - 1
}

fn unescaped(text: &str) -> Vec<u8> {
    let (mut out, bytes, mut at) = (Vec::new(), text.as_bytes(), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 2..at + 4).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (bytes[at], bytes.get(at + 1), hex) {
            (b'\\', Some(b'x'), Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (b'\\', Some(quoted @ (b'"' | b'\\')), _) => {
                out.push(*quoted);
                at += 2;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

fn parse(line: &str) -> Option<Logged> {
    let client = line.split(' ').next()?.to_string();
    let (_, rest) = line.split_once('[')?;
    let (time, rest) = rest.split_once("] \"")?;
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<i64>().ok();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| time.get(3..6) == Some(month))? as i64 + 1;
    let zone = number(22..24)? * 3600 + number(24..26)? * 60;
    if !(1..=31).contains(&number(0..2)?) {
        return None;
    }
    let local = days(number(7..11)?, month, number(0..2)?) * 86_400
        + number(12..14)? * 3600
        + number(15..17)? * 60
        + number(18..20)?;
    let second = if time.get(21..22)? == "-" { local + zone } else { local - zone };
    // The request line ends at the first quote that is followed by a status.
    let is_end = |at: &usize| {
        let behind = &rest.as_bytes()[at + 1..];
        behind.len() > 4 && behind[0] == b' ' && behind[1..4].iter().all(u8::is_ascii_digit) && behind[4] == b' '
    };
    let end = rest.match_indices('"').map(|(at, _)| at).find(is_end)?;
    let words: Vec<&str> = rest[..end].split(' ').collect();
    let (method, target) = match words[..] {
        [method, target] => (method, target),
        [method, target, version] if version.starts_with("HTTP/") => (method, target),
        _ => return None,
    };
    let is_method =
        !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte));
    if !is_method || target.is_empty() {
        return None;
    }
    let mut numbers = rest[end + 2..].split(' ');
    Some(Logged {
        client,
        second,
        method: method.to_string(),
        target: path_of(unescaped(target)),
        status: numbers.next()?.parse().ok()?,
        // Apache writes "-" if no body byte was sent.
        bytes: numbers.next().map(|bytes| if bytes == "-" { Some(0) } else { bytes.parse().ok() })?,
    })
}

/// The path that is sent for a target logged as a whole URL.
fn path_of(target: Vec<u8>) -> Vec<u8> {
    match target.strip_prefix(b"http://") {
        Some(rest) => rest.iter().skip_while(|byte| **byte != b'/').copied().collect(),
        None => target,
    }
}

/// The log's requests in order of time; a time more than a minute behind is moved forward.
fn read(path: &Path) -> Vec<Logged> {
    let bytes = std::fs::read(path).expect("the log is there");
    let mut latest = i64::MIN;
    let mut requests: Vec<Logged> = String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(parse)
        .map(|mut request| {
            latest = latest.max(request.second);
            request.second = request.second.max(latest - 60);
            request
        })
        .collect();
    requests.sort_by_key(|request| request.second);
    requests
}

type Sequence = Vec<(String, Vec<u8>)>;

/// The expected contents of each connection: requests of one client with gaps of at most 15 s.
fn sessions(requests: &[Logged]) -> Vec<Sequence> {
    let mut open: HashMap<&str, (i64, usize)> = HashMap::new();
    let mut sessions: Vec<Sequence> = Vec::new();
    for request in requests {
        let index = match open.get(request.client.as_str()) {
            Some((last, index)) if request.second - last <= 15 => *index,
            _ => {
                sessions.push(Vec::new());
                sessions.len() - 1
            }
        };
        sessions[index].push((request.method.clone(), request.target.clone()));
        open.insert(&request.client, (request.second, index));
    }
    sessions
}

/// The actual contents of each connection.
fn carried(answers: &[Answer]) -> Vec<Sequence> {
    let mut by_connection: BTreeMap<u64, Sequence> = BTreeMap::new();
    for answer in answers {
        by_connection.entry(answer.connection).or_default().push((answer.method.clone(), answer.target.clone()));
    }
    by_connection.into_values().collect()
}

fn sorted(mut sequences: Vec<Sequence>) -> Vec<Sequence> {
    sequences.sort();
    sequences
}

/// Replays a log with the documents made from it, and compares the server's log with it.
fn replays_as_logged(log: &Path, options: &[&str]) {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let path = log.to_str().expect("paths of tests are text");
    let is_http_2 = options.contains(&"--http2");
    let requests = read(log);
    assert!(requests.len() > 100, "{} requests", requests.len());
    let server = DocumentServer::start(&["--trace", path]);
    let url = if is_http_2 { server.http_2_url() } else { server.url() };
    let sizes = server.sizes();
    let mut command = straingauge(["load", &url, "--trace", path, "--json", "--quiet", "--any-status"]);
    let json = run(command.args(options)).exits_with(0).json();
    let answers = server.end_and_read_log();

    let outcomes = member(&json, "outcomes");
    let count = |name: &str| outcomes[name].as_u64().unwrap_or_else(|| panic!("no count '{name}' in {outcomes:#}"));
    assert_eq!(count("sent"), requests.len() as u64, "{outcomes:#}");
    assert_eq!(count("ok") + count("non_2xx"), count("sent"), "every request is answered: {outcomes:#}");
    assert_eq!(answers.len(), requests.len(), "the server saw every request once");

    let expected = sorted(sessions(&requests));
    let replay = member(&json, "replay");
    let told = |name: &str| replay[name].as_u64().unwrap_or_else(|| panic!("no '{name}' in {replay:#}"));
    assert_eq!(told("sessions"), expected.len() as u64);
    assert_eq!(told("evicted"), 0);
    assert_eq!(replay["is_whole"].as_bool(), Some(true));
    let carried = sorted(carried(&answers));
    assert_eq!(carried.len(), expected.len(), "connections");
    for (carried, expected) in carried.iter().zip(&expected) {
        let shown = |sequence: &Sequence| -> Vec<String> {
            sequence.iter().map(|(method, target)| format!("{method} {}", target.escape_ascii())).collect()
        };
        assert_eq!(shown(carried), shown(expected), "a connection carries the requests of its session in their order");
    }

    // Responses with documents that never changed have the size in the log. (A POST to a file is answered with 405.)
    let compared = requests.iter().filter(|request| request.status == 200 && request.method == "GET");
    let sized: Vec<(&Logged, u64)> = compared.filter_map(|request| Some((request, request.bytes?))).collect();
    let equal = sized.iter().filter(|(request, bytes)| sizes.get(&request.target) == Some(bytes)).count() as u64;
    assert!(equal * 10 > sized.len() as u64 * 9, "{equal} of {} documents have one size", sized.len());
    assert_eq!(told("sizes_equal"), equal, "{replay:#}");
    let with_file = sized.iter().filter(|(request, _)| sizes.contains_key(&request.target)).count() as u64;
    assert_eq!(told("sizes_equal") + told("sizes_different"), with_file, "{replay:#}");
    let expected_bytes: u64 =
        sized.iter().filter(|(request, _)| sizes.contains_key(&request.target)).map(|(_, bytes)| bytes).sum();
    assert_eq!(told("expected_bytes"), expected_bytes);
    let text = std::fs::read(log).expect("the log is there");
    let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    let blank = text.split(|byte| *byte == b'\n').filter(|line| line.trim_ascii().is_empty()).count() as u64 - 1;
    assert_eq!(told("lines"), lines);
    assert_eq!(told("rejected") + blank + requests.len() as u64, lines, "{replay:#}");
    assert_eq!(told("unsendable"), 0);
}

#[test]
fn a_log_of_refused_requests_is_replayed_without_errors() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let log = sample();
    let server = DocumentServer::start(&["--trace", log.to_str().expect("paths of tests are text")]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (path, url) = (dir.path().join("refused.log"), server.url());
    for (status, exit, offered) in [(404, 0, ""), (200, 1, ", 0 % without an error")] {
        let line = |n: u32| {
            let time = format!("17/May/2015:10:05:{:02} +0000", n / 10);
            format!("10.0.0.{} - - [{time}] \"GET /absent/{n} HTTP/1.1\" {status} 9\n", n % 7)
        };
        std::fs::write(&path, (0..100).map(line).collect::<String>()).expect("a temporary file");
        let mut command = straingauge(["load", &url, "--speed", "100", "--quiet", "--trace"]);
        let said = run(command.arg(&path)).exits_with(exit);
        let told = said.out.replace("\n                 ", " ");
        assert!(told.contains(&format!("100 % of the offered rate{offered} (n = 100)")), "{told}");
        assert_eq!(told.contains("errors         none"), exit == 0, "{told}");
    }
}

fn sample() -> PathBuf {
    repository().join("crates/workload/tests/data/sample.log")
}

/// The public data set, in the folder `STRAINGAUGE_DATA`, or in a folder `data` next to the checkout.
fn public(name: &str) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = match std::env::var_os("STRAINGAUGE_DATA") {
        Some(folder) => vec![folder.into()],
        None => std::fs::read_dir(repository().join(".."))
            .map(|neighbours| neighbours.flatten().map(|entry| entry.path().join("data")).collect())
            .unwrap_or_default(),
    };
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[test]
fn a_sample_log_is_replayed_as_logged_and_as_fast_as_possible() {
    replays_as_logged(&sample(), &["--speed", "max", "--connections", "1000", "--threads", "2"]);
}

#[test]
fn a_sample_log_is_replayed_as_logged_and_at_its_original_times() {
    replays_as_logged(&sample(), &["--speed", "2000", "--threads", "2"]);
}

#[test]
fn a_sample_log_is_replayed_as_logged_over_http_2() {
    replays_as_logged(&sample(), &["--http2", "--speed", "max", "--connections", "1000", "--threads", "2"]);
    replays_as_logged(&sample(), &["--http2", "--speed", "2000", "--threads", "2"]);
}

/// The log is on the driver's machine; each worker gets the lines of its clients, with or without the log's times.
#[test]
fn a_sample_log_is_split_completely_over_workers_by_client() {
    let worker = crate::workers::worker();
    for options in [["--speed", "max", "--connections", "1000"], ["--speed", "2000", "--connections", "2000"]] {
        let clients = [["--client", &worker]; 3].concat();
        replays_as_logged(&sample(), &[&options[..], &clients].concat());
    }
}

#[test]
fn a_public_log_is_replayed_as_logged() {
    let name = "apache_access_2015.log";
    let log = public(name);
    skip_unless!(log.is_some(), "{name} is not there; put it into a folder and name that in STRAINGAUGE_DATA");
    replays_as_logged(&log.unwrap_or_default(), &["--speed", "max", "--connections", "2000", "--threads", "2"]);
}

/// A log of `clients` with `rounds` sessions each; targets contain the client and a number.
pub fn numbered(clients: u32, rounds: u32) -> String {
    let mut log = String::new();
    for round in 0..rounds {
        for client in 0..clients {
            for step in 0..3 {
                let second = round * 20 + step;
                let number = round * 3 + step;
                log.push_str(&format!(
                    "10.0.{}.{} - - [17/May/2015:10:{:02}:{:02} +0000] \"GET /c{client}/n{number}.txt HTTP/1.1\" 200 \
                     {}\n",
                    client / 250,
                    client % 250,
                    second / 60,
                    second % 60,
                    100 + number
                ));
            }
        }
    }
    // Like a server's log: lines in order of time, here those of one day.
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_by_key(|line| line.split(['[', ']']).nth(1));
    lines.join("\n") + "\n"
}

#[test]
fn no_client_is_reordered_by_threads_sessions_or_too_few_connections() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let log = dir.path().join("access.log");
    std::fs::write(&log, numbered(40, 8)).expect("a temporary file");
    let path = log.to_str().expect("temporary paths are text");
    // Far fewer connections than clients, so connections are taken from idle clients.
    for (speed, is_http_2) in [("max", false), ("1000", false), ("max", true)] {
        let server = DocumentServer::start(&["--trace", path]);
        let mut options = vec!["--speed", speed, "--connections", "8", "--threads", "2", "--json", "--quiet"];
        options.extend(is_http_2.then_some("--http2"));
        let url = if is_http_2 { server.http_2_url() } else { server.url() };
        let json = run(straingauge(["load", &url, "--trace", path]).args(&options)).exits_with(0).json();
        assert_eq!(member(&json, "outcomes")["ok"].as_u64(), Some(40 * 24), "speed {speed}");
        assert_eq!(clients_in_order(&server.end_and_read_log()), 40, "speed {speed}");
        // A log's clients have one request in flight, so several streams are refused.
        let streams = ["load", &url, "--trace", path, "--http2", "--in-flight", "2"];
        run(&mut straingauge(streams)).exits_with(1).complains_of(&["one request in flight"]);
    }
}

/// Asserts that the requests of each client of a [`numbered`] log arrived in order; returns the number of clients.
#[track_caller]
pub fn clients_in_order(answers: &[Answer]) -> usize {
    let mut next: HashMap<&str, u32> = HashMap::new();
    for answer in answers {
        let target = std::str::from_utf8(&answer.target).expect("our own targets are text");
        let (client, rest) = target[1..].split_once("/n").expect("our own targets");
        let number: u32 = rest.trim_end_matches(".txt").parse().expect("our own targets");
        let due = next.entry(client).or_insert(0);
        assert_eq!(number, *due, "{client} out of order");
        *due += 1;
    }
    next.len()
}

#[test]
fn find_replays_a_log_over_connections_and_over_rate() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let log = sample();
    let path = log.to_str().expect("paths of tests are text");
    let server = DocumentServer::start(&["--trace", path]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("run");
    let url = server.url();
    let mut command = straingauge(["find", &url, "--trace", path, "--budget", "5s", "--duration", "150ms", "--quiet"]);
    command.args(["--warmup", "50ms"]);
    command.args(["--repeats", "1", "--max-connections", "4", "--set", "find.open-connections=200", "--out"]).arg(&out);
    run(&mut command).exits_with(0);
    let points = crate::rig::points(&out);
    for (sweep, pace) in [("connections", "closed"), ("rate", "open")] {
        let of_sweep: Vec<_> = points.iter().filter(|point| point["sweep"] == sweep).collect();
        assert!(!of_sweep.is_empty(), "no point of {sweep}");
        for point in of_sweep {
            assert_eq!(point["pace"]["loop"], pace);
            assert!(point["outcomes"]["ok"].as_u64() > Some(0), "{point:#}");
            assert!(member(point, "replay")["sizes_equal"].as_u64() > Some(0), "{point:#}");
        }
    }
    let offered: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| point["sweep"] == "rate")
        .filter_map(|point| {
            Some((
                point["pace"]["rate_per_sec"].as_f64()?,
                point["figures"]["client.offered_per_sec"]["value"].as_f64()?,
            ))
        })
        .collect();
    // The log is repeated until the point ends, at the speed that gives the rate.
    for (asked, offered) in &offered {
        let chance = 5.0 / (asked * 0.15).sqrt();
        assert!((offered / asked - 1.0).abs() < 0.05 + chance, "{offered} instead of {asked}");
    }
    assert!(!offered.is_empty(), "no point of the rate sweep");
    let page = std::fs::read_to_string(out.join("report.html")).expect("the report is there");
    assert!(page.contains("<h2>Workload</h2>") && page.contains("to 64.0 KiB"), "the report has the table of classes");
}
