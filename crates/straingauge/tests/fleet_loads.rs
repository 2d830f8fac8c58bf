//! Loads of every kind over several workers: the sums equal the server's log, and the parts form one load.

use crate::bad_input::unshared;
use crate::clients::SecureServer;
use crate::document_server::DocumentServer;
use crate::rig::{
    Running, free_port, is_root, member, needs_server, open_dir, program, run, skip_unless, skipped, straingauge,
};
use crate::server::{Kind, Server};
use crate::workers::{count, doubt_kinds, from, killed, worker};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

fn figure<'a>(json: &'a Value, name: &str) -> &'a Value {
    &json["point"]["figures"][name]
}

/// A load from three workers of one thread each.
fn from_three(url: &str, options: &[&str]) -> Value {
    let worker = worker();
    run(from(&[worker.as_str(); 3], &[url]).args(options)).exits_with(0).json()
}

/// The same load from one client with as many threads.
fn from_one(url: &str, options: &[&str]) -> Value {
    let mut command = straingauge(["load", url, "--threads", "3", "--warmup", "0s", "--json", "--quiet"]);
    run(command.args(options)).exits_with(0).json()
}

/// How many times each target was requested.
fn asked(server: DocumentServer) -> BTreeMap<Vec<u8>, u64> {
    let mut asked = BTreeMap::new();
    server.end_and_read_log().into_iter().for_each(|answer| *asked.entry(answer.target).or_insert(0) += 1);
    asked
}

/// With one popularity and one schedule, workers request the same documents as one client, equally often.
#[test]
fn a_size_mix_over_workers_requests_the_same_as_one_client() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let options = ["--mix", "webstone", "--seed", "7", "--rate", "1500", "--duration", "600ms"];
    let [one, three] = [from_one, from_three].map(|load| {
        let server = DocumentServer::start(&["--mix", "webstone"]);
        let json = load(&server.url(), &options);
        (json, asked(server))
    });
    let unfinished = [&one, &three].map(|(json, _)| count(json, "unfinished"));
    assert_eq!(count(&one.0, "sent"), count(&three.0, "sent"));
    if unfinished == [0, 0] {
        assert_eq!(one.1, three.1, "documents and how often each was asked for");
    }
    let json = &three.0;
    let classes = member(json, "classes").as_array().expect("a list of classes");
    let labels: Vec<&str> = classes.iter().filter_map(|row| row["label"].as_str()).collect();
    assert_eq!(labels, ["to 64.0 KiB", "64.0 KiB to 1.00 MiB", "over 1.00 MiB"]);
    let of = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("no '{name}' in {row:#}"));
    assert_eq!(classes.iter().map(|row| of(row, "requests")).sum::<u64>(), count(json, "sent"));
    for row in classes.iter().filter(|row| of(row, "ok") > 0) {
        assert_eq!(row["response_p50_us"]["n"].as_u64(), Some(of(row, "ok")), "a histogram of all workers: {row:#}");
    }
    assert_eq!(three.1.values().sum::<u64>(), count(json, "ok") + count(json, "unfinished"));
}

#[test]
fn a_rate_series_over_workers_equals_that_of_one_client() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let server = DocumentServer::start(&["--mix", "webstone"]);
    let kept = open_dir();
    let series = kept.path().join("surge.txt");
    std::fs::write(&series, "90\n0\n10\n").expect("a file in a temporary folder");
    let path = series.to_str().expect("temporary paths are text");
    let options = ["--rate-series", path, "--rate", "500", "--duration", "1200ms", "--any-status", "--seed", "5"];
    let (one, out) = (from_one(&server.url(), &options), kept.path().join("run"));
    let out = out.to_str().expect("temporary paths are text");
    let three = from_three(&server.url(), &[&options[..], &["--out", out]].concat());
    assert_eq!(count(&one, "sent"), count(&three, "sent"));
    // No request is intended for the middle third.
    let rows = std::fs::read_to_string(kept.path().join("run/points/000/series.csv")).expect("the series is kept");
    let completed: Vec<u64> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(1)?.parse().ok()).collect();
    assert!(
        completed.len() == 12 && completed.iter().take(8).sum::<u64>() * 5 > completed.iter().sum::<u64>() * 4,
        "{rows}"
    );
    let of = |what: &str| count(&one, what) + count(&three, what);
    let logged = server.end_and_read_log().len() as u64;
    assert!((of("sent") - of("unfinished")..=of("sent")).contains(&logged), "{logged} logged, {} sent", of("sent"));
}

/// The remaining workers replay their clients to the end of the log, where the run ends.
#[test]
fn the_other_workers_replay_a_log_to_its_end_if_one_is_lost() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let kept = open_dir();
    let log = kept.path().join("access.log");
    let line = |number: u32| {
        let (client, second) = (number % 40, number / 40);
        format!("10.0.0.{client} - - [17/May/2015:10:00:{second:02} +0000] \"GET /1k.bin HTTP/1.1\" 200 1024\n")
    };
    std::fs::write(&log, (0..160).map(line).collect::<String>()).expect("a file in a temporary folder");
    let clients = [worker(), killed()];
    let mut command =
        from(&[&clients[0], &clients[1]], &[&server.url(""), "--set", "fleet.on-worker-loss=go-on", "--trace"]);
    let json = run(command.arg(&log).args(["--set", "workload.session-gap=500ms"])).exits_with(0).json();
    assert!(doubt_kinds(&json).contains(&"worker-lost".to_string()), "{json:#}");
    let ok = count(&json, "ok");
    assert!(
        ok > 0 && ok < 160 && ok.is_multiple_of(4),
        "four requests of each client of the one that is left: {json:#}"
    );
}

/// The file of the authority is on the driver's machine, so workers get its content.
#[test]
fn tls_requests_over_workers_are_counted_as_the_server_counts_them() {
    needs_server!(Kind::Nginx);
    skip_unless!(program("openssl").is_some(), "openssl is not installed (apt-get install openssl)");
    let server = SecureServer::start("127.0.0.1");
    let authority = server.ca();
    let worker = format!("cd / && {}", worker());
    let mut command = from(&[worker.as_str(); 3], &[&server.url(), "--connections", "6", "--duration", "500ms"]);
    let trusted = Path::new(authority.file_name().expect("it has a name"));
    command.args(["--requests-per-connection", "5", "--tls", &format!("ca={}", trusted.display())]);
    let json = run(command.current_dir(authority.parent().expect("it lies in a folder"))).exits_with(0).json();
    let (logged, _) = server.end_and_count();
    let (ok, unfinished) = (count(&json, "ok"), count(&json, "unfinished"));
    assert!(ok > 0 && count(&json, "sent") == ok + unfinished, "{json:#}");
    assert!((ok..=ok + unfinished).contains(&logged), "{logged} logged, {ok} ok: {json:#}");
    let handshakes = figure(&json, "client.tls_handshake_p50_us")["n"].as_u64().expect("handshakes are timed");
    // The connections needed for five requests each, and those in progress.
    assert!(handshakes >= ok / 5 && handshakes <= ok.div_ceil(5) + 12, "{handshakes} handshakes for {ok} answers");
}

#[test]
fn fixed_bandwidth_and_read_rate_hold_for_every_connection_over_workers() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    for pace in [&["--asked-bandwidth", "400kbit"][..], &["--read-rate", "50k"]] {
        let options = [&["--connections", "7", "--duration", "1500ms"][..], pace].concat();
        let json = from_three(&server.url("100k.bin"), &options);
        let bandwidth = figure(&json, "client.connection_bits_per_sec");
        assert_eq!(bandwidth["n"].as_u64(), Some(7), "of each connection of each worker: {json:#}");
        // A tenth of a second of the bandwidth may come at once.
        assert!(bandwidth["value"].as_f64().is_some_and(|bits| bits > 0.0 && bits < 4.6e5), "{bandwidth}");
        if pace[0] == "--asked-bandwidth" {
            assert_eq!(figure(&json, "client.conforming_ratio")["n"].as_u64(), Some(7), "{json:#}");
        }
    }
}

#[test]
fn requests_per_connection_over_workers_match_the_servers_count() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    let server = DocumentServer::start(&["--mix", "webstone"]);
    let options = ["--requests-per-connection", "4", "--connections", "6", "--duration", "400ms", "--any-status"];
    let json = from_three(&server.url(), &options);
    let answers = server.end_and_read_log();
    let mut carried: BTreeMap<u64, u64> = BTreeMap::new();
    answers.iter().for_each(|answer| *carried.entry(answer.connection).or_insert(0) += 1);
    assert!(carried.values().all(|requests| *requests <= 4), "{carried:?}");
    let short = carried.values().filter(|requests| **requests < 4).count();
    assert!(carried.len() > 6 && short <= 6, "the last ones of six connections may be short: {carried:?}");
    let answered = count(&json, "ok") + count(&json, "non_2xx");
    assert!((answered..=answered + count(&json, "unfinished")).contains(&(answers.len() as u64)), "{json:#}");
}

#[test]
fn a_server_that_the_run_starts_is_loaded_by_workers_and_ends_with_it() {
    let Some(redis) = program("redis-server") else { return skipped("there is no redis-server") };
    let port = free_port().to_string();
    let worker = worker();
    let mut command = from(&[worker.as_str(); 2], &[&format!("redis://127.0.0.1:{port}"), "--connections", "4"]);
    command.args(["--duration", "500ms", "--"]).arg(redis).args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
    let json = run(&mut command).exits_with(0).json();
    assert!(count(&json, "ok") > 0, "{json:#}");
    let cost = figure(&json, "server.cpu_us_per_request");
    assert!(cost["value"].as_f64().is_some_and(|us| us > 0.0), "it is watched from here: {cost}");
    assert!(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err(), "it lives on");
}

/// Number of established connections of a loopback server.
fn established(port: u16) -> usize {
    let text = std::fs::read_to_string("/proc/net/tcp").expect("the kernel lists its sockets");
    let at = format!(":{port:04X}");
    let rows = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|words| words.len() > 3 && words[3] == "01" && words[1].ends_with(&at)).count()
}

#[test]
fn cold_connections_are_divided_over_workers_and_end_with_them() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let worker = worker();
    let mut command = from(&[worker.as_str(); 3], &[&server.url("128.bin"), "--cold", "100", "--rate", "50"]);
    let mut running = Running::start(command.args(["--connections", "6", "--duration", "1500ms"]));
    running.wait_until("the cold connections are there", || established(server.port) >= 100);
    let json = running.wait().exits_with(0).json();
    let cold = figure(&json, "client.cold_connections");
    assert_eq!(cold["value"].as_f64(), Some(100.0), "{json:#}");
    assert!(count(&json, "ok") > 0 && count(&json, "sent") == count(&json, "ok") + count(&json, "unfinished"));
    let until = Instant::now() + Duration::from_secs(60);
    while established(server.port) > 0 {
        assert!(Instant::now() < until, "{} connections outlive their workers", established(server.port));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Nothing listens at the target, so a connection attempt would be noticed.
#[test]
fn too_many_cold_connections_for_the_workers_are_refused_with_a_table() {
    let worker = format!("ulimit -n 11136; {}", worker());
    let mut command = from(&[worker.as_str(); 2], &["http://127.0.0.1:9/", "--cold", "1M", "--connections", "10"]);
    let said = run(&mut command).exits_with(2);
    let rows: Vec<&str> =
        said.err.lines().filter(|line| line.starts_with("client 1 ") || line.starts_with("client 2 ")).collect();
    assert_eq!(rows.len(), 2, "a row for each: {}", said.err);
    // Each has 11,136 descriptors, of which 128 are reserved; five connections are hot.
    assert!(rows.iter().all(|row| row.contains("11,008") && row.contains("11,003")), "{}", said.err);
    assert!(said.err.contains("977,994 lacking"), "{}", said.err);
    said.complains_of(&["1,000,000 cold connections", "2 clients", "by 977,994"]);
}

/// A server of another protocol, which counts the commands that it has answered.
struct Store {
    child: std::process::Child,
    port: u16,
}

impl Store {
    fn start(program: &std::path::Path, options: impl Fn(&str) -> Vec<String>) -> Store {
        let port = free_port();
        let mut command = std::process::Command::new(program);
        command.args(options(&port.to_string())).stdin(std::process::Stdio::null());
        let child = command.stdout(std::process::Stdio::null()).spawn().expect("the server starts");
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "it does not accept");
            std::thread::sleep(Duration::from_millis(10));
        }
        Store { child, port }
    }

    /// The numbers that follow these words in the reply to a command.
    fn counts(&self, command: &[u8], words: &[&str]) -> u64 {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("it accepts");
        stream.write_all(command).expect("it takes a command");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it ends the connection after QUIT");
        let number = |word: &&str| -> u64 {
            let (_, rest) = text.split_once(*word).unwrap_or_else(|| panic!("no '{word}' in {text}"));
            rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        words.iter().map(number).sum()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts that the server counted as many commands as the workers had answers.
fn is_counted_by(store: &Store, url: &str, command: &[u8], words: &[&str]) {
    let json = from_three(url, &["--connections", "6", "--duration", "300ms", "--in-flight", "3", "--keys", "50"]);
    let (ok, unfinished) = (count(&json, "ok"), count(&json, "unfinished"));
    assert!(ok > 0 && count(&json, "sent") + count(&json, "carried_in") == ok + unfinished, "{json:#}");
    let counted = store.counts(command, words);
    assert!((ok..=ok + unfinished).contains(&counted), "{counted} by the server, {ok} ok, {unfinished} unfinished");
}

#[test]
fn redis_requests_over_workers_are_counted_as_redis_counts_them() {
    let Some(redis) = program("redis-server") else { return skipped("there is no redis-server") };
    let words = |port: &str| {
        ["--port", port, "--bind", "127.0.0.1", "--save", "", "--requirepass", "hush"].map(String::from).to_vec()
    };
    let store = Store::start(&redis, words);
    let url = format!("redis://:hush@127.0.0.1:{}/1", store.port);
    let ask = b"AUTH hush\r\nINFO commandstats\r\nQUIT\r\n";
    is_counted_by(&store, &url, ask, &["cmdstat_get:calls=", "cmdstat_set:calls="]);
}

#[test]
fn memcached_requests_over_workers_are_counted_as_memcached_counts_them() {
    let Some(memcached) = program("memcached") else { return skipped("there is no memcached") };
    let words = |port: &str| ["-p", port, "-U", "0", "-l", "127.0.0.1", "-u", "nobody"].map(String::from).to_vec();
    let store = Store::start(&memcached, words);
    let url = format!("memcached://127.0.0.1:{}", store.port);
    is_counted_by(&store, &url, b"stats\r\nquit\r\n", &["STAT cmd_get ", "STAT cmd_set "]);
}

#[test]
fn the_driver_resolves_a_name_for_all_workers() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "needs root, to mount another /etc/hosts in a mount namespace");
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let hosts = |name: &str, address: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{address} server.test\n")).expect("a file in a temporary folder");
        format!("mount --bind {} /etc/hosts && exec", path.display())
    };
    // Nothing listens at the address that the worker would resolve.
    let elsewhere =
        format!("unshare --mount sh -c '{} {}'", hosts("there", "127.0.0.2"), worker().trim_start_matches("exec "));
    let url = server.url("1k.bin").replace("127.0.0.1", "server.test");
    let words =
        ["load", &url, "--client", &elsewhere, "--client", &worker(), "--duration", "400ms", "--quiet", "--json"];
    let json = run(&mut unshared(&format!("{} \"$@\"", hosts("here", "127.0.0.1")), &words)).exits_with(0).json();
    assert!(
        count(&json, "ok") > 0 && figure(&json, "worker.1.throughput_per_sec")["value"].as_f64() > Some(0.0),
        "{json:#}"
    );
    assert_eq!(
        count(&json, "sent") + count(&json, "carried_in"),
        count(&json, "ok") + count(&json, "unfinished"),
        "{json:#}"
    );
}

#[test]
fn two_fleets_on_the_same_machines_count_their_own_requests_and_raise_doubts() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let client = format!("exec taskset -c 0 {}", worker().trim_start_matches("exec "));
    let fleets =
        [(); 2].map(|()| Running::start(&mut from(&[&client], &[&server.url("1k.bin"), "--duration", "1500ms"])));
    let all = fleets.map(|fleet| fleet.wait().exits_with(0).json());
    for json in &all {
        let doubts = member(json, "doubts").to_string();
        assert!(doubts.contains("client 1 ") && doubts.contains("waited for a CPU for"), "{json:#}");
    }
    let sum = |name: &str| all.iter().map(|json| count(json, name)).sum::<u64>();
    let (ok, unfinished) = (sum("ok"), sum("unfinished"));
    let logged = server.end_and_read_log().len() as u64;
    assert!(ok > 0 && (ok..=ok + unfinished).contains(&logged), "{logged} logged, {ok} ok, {unfinished} unfinished");
}
