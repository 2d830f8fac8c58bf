//! Loads that go up and down again, on servers with known behaviour (`testbed/truth`).

use crate::rig::{free_port, long_run, member, open_dir, run, skip_unless, straingauge};
use crate::server::truth;
use std::path::Path;

/// Output of `find --unload` about a server: text with normalised spaces, JSON, and page.
struct Found {
    text: String,
    json: serde_json::Value,
    page: String,
}

impl Found {
    fn unloading(&self) -> &serde_json::Value {
        &member(&self.json, "findings")["unloading"]
    }

    /// Loads at which the ways up and down differ.
    fn apart(&self) -> Vec<f64> {
        let levels = self.unloading()["levels"].as_array().expect("levels");
        levels.iter().filter(|level| level["is_apart"] == true).filter_map(|level| level["load"].as_f64()).collect()
    }

    fn has_cause(&self) -> bool {
        member(&self.json, "verdict")["causes"].to_string().contains("\"stays-down\"")
    }
}

fn find(truth: &Path, server: &[&str], options: &[&str]) -> Found {
    let dir = open_dir();
    let (out, port) = (dir.path().join("run"), free_port());
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = straingauge(["find", &url, "--sweep", "connections", "--unload", "--repeats", "3", "--quiet"]);
    command.args(["--profile", "never", "--isolate", "never", "--budget", "60s"]).args(options).arg("--out").arg(&out);
    command.arg("--").arg(truth).args(server).args(["--port", &port.to_string()]);
    let said = run(&mut command).exits_with(0);
    let json = run(straingauge(["report", "--json"]).arg(&out)).exits_with(0).json();
    let text = said.flat();
    Found { text, json, page: std::fs::read_to_string(out.join("report.html")).expect("the page is there") }
}

#[test]
fn a_metastable_server_is_found_with_the_recovery_point_of_its_law() {
    let truth = truth();
    skip_unless!(truth.is_some(), "needs a C compiler, to build the servers of known truth");
    let truth = truth.expect("just checked");
    // More than 32 connections bring the server down; 8 and fewer let it recover.
    let server = ["metastable", "--workers", "4", "--time", "2ms", "--timeout", "16ms", "--retries", "3"];
    let pace =
        ["--duration", "250ms", "--warmup", "250ms", "--set", "find.min-connections=4", "--max-connections", "40"];
    let found = find(&truth, &server, &pace);
    let shown = format!("{}\n{:#}", found.text, found.unloading());
    let apart = found.apart();
    // Without a CPU, the client does not load all connections at once, which is what brings the server down.
    let is_disturbed = shown.contains("noisy-neighbour");
    if apart.is_empty() && is_disturbed {
        assert!(!found.has_cause(), "{shown}");
        return crate::rig::skipped("other work kept the load from bringing the server down");
    }
    // Other work may slow down one of the ways at another load.
    let (staying, others): (Vec<f64>, Vec<f64>) = apart.iter().partition(|load| (9.0..=32.0).contains(*load));
    assert!(!staying.is_empty() && (others.is_empty() || is_disturbed), "{shown}");
    assert!(found.has_cause(), "{shown}");
    let recovery = &found.unloading()["recovery_point"];
    let end = |name: &str| recovery[name].as_f64().unwrap_or_else(|| panic!("{name}: {shown}"));
    assert!(end("low") <= 8.0 && 8.0 < end("high"), "{shown}");
    assert!(found.text.contains("the recovery point is about"), "{shown}");
    assert!(found.page.contains("recovery point"), "{shown}");
}

#[test]
fn a_server_that_stays_down_at_one_connection_is_reported_without_a_recovery_point() {
    let truth = truth();
    skip_unless!(truth.is_some(), "needs a C compiler, to build the servers of known truth");
    let truth = truth.expect("just checked");
    // More than 12 connections bring the server down for good, because one request then takes longer than the
    // timeout.
    let server = ["metastable", "--workers", "4", "--time", "6ms", "--timeout", "18ms", "--retries", "3"];
    let pace = ["--duration", "200ms", "--warmup", "100ms", "--max-connections", "16"];
    let found = find(&truth, &server, &pace);
    let shown = format!("{}\n{:#}", found.text, found.unloading());
    // Other work that stops the worker for longer than the timeout brings the server down before the first load. Both
    // ways then show a server that is down, and the run names the disturbance.
    let first_up =
        found.unloading()["levels"][0]["loading_per_sec"]["value"].as_f64().unwrap_or_else(|| panic!("{shown}"));
    if first_up < 0.5 / 0.006 {
        assert!(shown.contains("noisy-neighbour"), "{shown}");
        return crate::rig::skipped("other work brought the server down before the load did");
    }
    assert!(
        found.apart().starts_with(&[1.0, 2.0]) && found.text.contains("With 1 connection its throughput was"),
        "{shown}"
    );
    assert!(found.has_cause() && found.unloading()["never_back"] == true, "{shown}");
    let recovery = &found.unloading()["recovery_point"];
    assert_eq!((recovery["place"].as_str(), recovery["estimate"].as_f64()), (Some("below"), None), "{shown}");
    let said = "does not recover even at 1 connection: the recovery point was not reached";
    assert!(found.text.contains(said) && found.json.to_string().contains(said), "{shown}");
    assert!(found.page.contains("not reached: still down at the lowest load"), "{shown}");
}

#[test]
fn healthy_servers_do_not_stay_down() {
    let truth = truth();
    skip_unless!(truth.is_some(), "needs a C compiler, to build the servers of known truth");
    let truth = truth.expect("just checked");
    let servers = [&["workers", "--workers", "4", "--time", "2ms"], &["bucket", "--rate", "1000", "--burst", "4"]];
    for server in servers.into_iter().take(if long_run() { 2 } else { 1 }) {
        let found = find(&truth, server, &["--duration", "100ms", "--warmup", "50ms", "--max-connections", "4"]);
        let shown = format!("{}\n{:#}", found.text, found.unloading());
        // On a busy machine it may look as if the server stayed down; the cause is then at most possible, and the
        // other work is named.
        if found.has_cause() && shown.contains("noisy-neighbour") {
            assert!(found.text.contains("Possible, not proven"), "{shown}");
            return crate::rig::skipped("other work made the ways up and down differ");
        }
        assert!(found.apart().is_empty() && !found.has_cause(), "{shown}");
        // On a busy machine the recovery point may be unknown.
        let place = found.unloading()["recovery_point"]["place"].as_str();
        assert!(matches!(place, Some("beyond" | "unknown")), "{shown}");
        assert!(!found.text.contains("recover"), "{shown}");
    }
}
