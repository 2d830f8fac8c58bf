//! Headroom estimates of a watch, for servers of known capacity (`testbed/truth`).

use crate::rig::{Running, free_port, is_root, open_dir, run, skip_unless, straingauge};
use crate::server::truth;
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

fn readings(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("watch.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().skip(1).map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// A load at a fixed rate.
fn load(url: &str, rate: u32, duration: &str) -> Command {
    let mut command = straingauge(["load", url, "--warmup", "0s", "--detail", "off", "--quiet", "--connections", "8"]);
    command.args(["--rate", &rate.to_string(), "--arrival", "constant", "--duration", duration]);
    command
}

/// Watches a server under loads of these rates, one after another; returns the readings and the report.
fn watched(truth: &Path, server: &[&str], rates: &[u32]) -> (Vec<Value>, String) {
    let (dir, port) = (open_dir(), free_port());
    let (out, url) = (dir.path().join("run"), format!("http://127.0.0.1:{port}/"));
    let mut server = Running::start(Command::new(truth).args(server).args(["--port", &port.to_string()]));
    server.wait_until("it accepts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut watch = straingauge(["watch", &format!(":{port}"), "--detail", "counts", "--interval", "200ms", "--out"]);
    let mut watch = Running::start(watch.arg(&out));
    watch.wait_until("a reading", || !readings(&out).is_empty());
    for rate in rates {
        run(&mut load(&url, *rate, "1200ms")).exits_with(0);
    }
    watch.signal(libc::SIGINT);
    watch.wait().exits_with(0);
    server.signal(libc::SIGTERM);
    let _ = server.wait();
    let report = run(straingauge(["report"]).arg(&out)).exits_with(0);
    (readings(&out), report.flat())
}

/// The entry about a limit in a reading, from the list of known or unknown limits.
fn limit<'a>(reading: &'a Value, list: &str, kind: &str) -> Option<&'a Value> {
    reading["headroom"][list].as_array()?.iter().find(|limit| limit["kind"] == kind)
}

#[test]
fn the_interval_contains_the_capacity_of_a_thread_with_known_work() {
    let truth = truth();
    skip_unless!(truth.is_some(), "needs a C compiler, to build the servers of known truth");
    skip_unless!(is_root(), "counting requests needs root");
    // 2 ms of CPU time per request allow 500/s, of which the loads use at most 38 %.
    let (readings, report) =
        watched(&truth.expect("just checked"), &["thread", "--time", "2ms"], &[190, 50, 150, 100, 190]);
    let why = |reading: &Value| Some(limit(reading, "unknown", "busiest-thread")?["why"].as_str()?.to_string());
    let said: Vec<String> = readings.iter().filter_map(why).collect();
    assert!(said.iter().any(|why| why.contains("at least 10 are needed")), "{said:?}");
    let known = readings.iter().rev().find_map(|reading| limit(reading, "limits", "busiest-thread"));
    let known = known.unwrap_or_else(|| panic!("no estimate: {:#}", readings.last().expect("readings")["headroom"]));
    // On a busy machine the upper end may stay unknown.
    let (low, high) = (&known["full_at_per_sec"]["low"], &known["full_at_per_sec"]["high"]);
    let (low, high) = (low.as_f64().expect("a lower end"), high.as_f64().unwrap_or(f64::INFINITY));
    assert!(low <= 500.0 && 500.0 <= high, "{low} to {high} do not hold 500/s: {known:#}");
    assert!(low > 200.0, "{low} tells nothing: {known:#}");
    assert!(known["of"].as_str().is_some_and(|of| of.ends_with("truth")), "{known:#}");
    let last = readings.last().expect("readings");
    assert!(limit(last, "limits", "descriptors").is_some() || limit(last, "unknown", "descriptors").is_some());
    assert!(report.contains("Busiest thread (") && report.contains("Backlog: not measured: empty (limit"), "{report}");
}

#[test]
fn a_server_whose_requests_wait_for_an_unseen_resource_may_be_full_earlier() {
    let truth = truth();
    skip_unless!(truth.is_some(), "needs a C compiler, to build the servers of known truth");
    skip_unless!(is_root(), "counting requests needs root");
    // Eight places of 20 ms in one thread allow 400/s, while its CPU would allow more.
    let (readings, report) =
        watched(&truth.expect("just checked"), &["workers", "--workers", "8", "--time", "20ms"], &[100, 50, 150]);
    let unseen = readings.iter().rev().find_map(|reading| reading["headroom"]["unseen"].as_str());
    assert!(unseen.is_some_and(|why| why.contains("its other waits")), "{unseen:?}");
    assert!(report.contains("It may be full earlier: a request takes 2"), "{report}");
    let pool = readings.iter().find_map(|reading| limit(reading, "limits", "thread-pool"));
    assert!(pool.is_none(), "one thread with many requests is no pool: {pool:?}");
}
