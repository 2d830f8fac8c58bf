//! A server that is watched on its own machine (`--watch-with`): every point has the server's side, and a watcher
//! that cannot watch, or is lost, is reported in one sentence. The watchers are local commands, as if started by ssh.

use crate::rig::{is_root, needs_server, open_dir, points, run, run_record, skipped, straingauge};
use crate::server::{Kind, Server};
use crate::workers::{Spoken, doubt_kinds, worker};

fn watcher(port: u16) -> String {
    format!("exec {} watch --worker :{port}", env!("CARGO_BIN_EXE_straingauge"))
}

fn load(url: &str, watcher: &str, duration: &str) -> std::process::Command {
    let mut command = straingauge(["load", url, "--watch-with", watcher, "--json", "--quiet", "--warmup", "0s"]);
    command.args(["--threads", "1", "--connections", "4", "--duration", duration]);
    command
}

#[test]
fn a_watcher_reports_the_server_in_the_window() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let json = run(&mut load(&server.url("1k.bin"), &watcher(server.port), "600ms")).exits_with(0).json();
    let figure = |name: &str| json["point"]["figures"][name].clone();
    let completed = figure("client.throughput_per_sec")["n"].as_u64().unwrap();
    assert!(figure("server.cpu_us_per_request")["value"].as_f64().unwrap() > 0.0, "{json:#}");
    assert_eq!(figure("server.cpu_us_per_request")["n"].as_u64().unwrap(), completed, "{json:#}");
    assert!(figure("watcher.round_trip_us")["value"].as_f64().unwrap() > 0.0, "{json:#}");
    assert!(json["point"]["connection_states"]["established"]["value"].as_f64().unwrap() > 0.0, "{json:#}");
    assert!(!doubt_kinds(&json).contains(&"not-watched".to_string()), "{json:#}");
}

/// Why the watcher did not count requests, if so; as root it must count them.
fn why_not_counted(json: &serde_json::Value) -> Option<String> {
    let why = json["point"]["figures"]["watch.requests"]["not_measured"].as_str()?.to_string();
    assert!(!is_root(), "requests were not counted: {why}");
    Some(why)
}

#[test]
fn a_watcher_counts_every_request_that_the_client_counts() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let mut command = load(&server.url("1k.bin"), &watcher(server.port), "800ms");
    command.args(["--detail", "exact", "--set", "watching.response-classes=100,64KiB"]);
    let json = run(&mut command).exits_with(0).json();
    if let Some(why) = why_not_counted(&json) {
        return skipped(&why);
    }
    let point = &json["point"];
    let value = |name: &str| point["figures"][name]["value"].as_f64();
    let of = |name: &str| point["outcomes"][name].as_u64().unwrap_or(0) as f64;
    let given_up = of("sent") + of("carried_in") - of("ok") - of("non_2xx");
    let difference = value("watch.whole_load_difference").expect("the whole load was counted");
    assert!((0.0..=given_up).contains(&difference), "{difference} apart, {given_up} given up: {point:#}");
    assert_eq!(point["watched"]["mode"], "exact");
    for name in ["watch.cpu_us_per_request", "watch.parse_us", "watch.process_us", "watch.cost_ratio"] {
        assert!(value(name).is_some(), "{name}: {}", point["figures"][name]);
    }
    let classes = point["watched"]["classes"].as_array().expect("by class");
    assert_eq!(classes.len(), 1, "{classes:#?}");
    assert_eq!((&classes[0]["from_bytes"], &classes[0]["below_bytes"]), (&100.into(), &(64 << 10).into()));
    assert_eq!(classes[0]["figures"]["watch.requests"]["value"].as_f64(), value("watch.requests"));
}

/// The layers and functions of each point come from the server's machine.
#[test]
fn a_watcher_samples_the_layers_of_every_point_of_a_search() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let kept = open_dir();
    let out = kept.path().join("run");
    let mut command = straingauge(["find", &server.url("1k.bin"), "--watch-with", &watcher(server.port), "--quiet"]);
    command.args(["--sweep", "connections", "--max-connections", "2", "--repeats", "1", "--budget", "10s"]);
    command.args(["--duration", "1s", "--warmup", "50ms", "--detail", "off", "--profile", "always", "--out"]).arg(&out);
    let said = run(&mut command);
    if !is_root() && said.code == Some(1) && said.err.contains("--profile always is not possible") {
        return skipped("the layers cannot be sampled without privileges");
    }
    said.exits_with(0);
    let is_sampled = |point: &serde_json::Value| point["figures"]["layer.tcp_us_per_request"]["value"].is_number();
    // A fifth of a second on a busy machine has too few samples.
    let is_too_short = |point: &serde_json::Value| {
        let why = &point["figures"]["layer.tcp_us_per_request"]["not_measured"];
        why.as_str().is_some_and(|why| why.contains("fewer than 20 times"))
    };
    let of_sweep: Vec<_> = points(&out).into_iter().filter(|point| point["sweep"] == "connections").collect();
    let is_accounted = |point: &serde_json::Value| is_sampled(point) || is_too_short(point);
    assert!(!of_sweep.is_empty() && of_sweep.iter().all(is_accounted), "a point without layers: {of_sweep:#?}");
    if !of_sweep.iter().any(is_sampled) {
        return skipped("no point had enough samples of the server beside other work");
    }
    // Sums over all points, because one point on a busy machine may have few samples.
    let (mut layers, mut cpu) = (0.0, 0.0);
    for point in of_sweep.into_iter().filter(is_sampled) {
        let figures = point["figures"].as_object().expect("figures").iter();
        layers += figures
            .filter(|(name, _)| name.starts_with("layer."))
            .filter_map(|(_, one)| one["value"].as_f64())
            .sum::<f64>();
        cpu += point["figures"]["server.cpu_us_per_request"]["value"].as_f64().expect("its CPU time is known");
        assert!(point["functions"].as_array().is_some_and(|functions| !functions.is_empty()), "{point:#}");
    }
    assert!(layers > cpu / 2.0 && layers < cpu * 2.0, "layers {layers} us, the server {cpu} us a request");
}

#[test]
fn a_watcher_reports_the_parts_of_the_watch_that_it_cannot_do() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let mut spoken = Spoken::start_with(&["watch", "--worker", &format!(":{}", server.port)]);
    spoken.say(r#"{"type":"watch","mode":"counts","overhead_ratio":-1}"#);
    assert!(spoken.hear_of("watching")["why_not"].as_str().unwrap().contains("budget"));
    // Without a command no process ends.
    for text in [r#"{"type":"beside-ask"}"#, r#"{"type":"beside","command":[]}"#] {
        spoken.say(text);
        assert_eq!(spoken.hear_of("beside"), serde_json::json!({"type": "beside"}));
    }
    spoken.say(r#"{"type":"beside","command":["no-such-program-anywhere"]}"#);
    let why = spoken.hear_of("beside")["gone"].as_str().unwrap().to_string();
    assert!(why.contains("was not found"), "{why}");
}

#[test]
fn every_point_of_find_with_clients_and_a_watcher_has_both_sides() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let (out, worker) = (folder.path().join("run"), worker());
    let mut find = straingauge(["find", &server.url("1k.bin"), "--out", out.to_str().unwrap(), "--quiet", "--json"]);
    find.args([
        "--sweep",
        "connections",
        "--repeats",
        "1",
        "--duration",
        "200ms",
        "--max-connections",
        "4",
        "--budget",
        "6s",
    ]);
    find.args(["--client", &worker, "--client", &worker, "--watch-with", &watcher(server.port), "--profile", "never"]);
    run(&mut find).exits_with(0);
    let points = points(&out);
    assert!(points.len() >= 2, "{}", points.len());
    for point in &points {
        assert!(point["figures"]["server.cpu_us_per_request"]["value"].is_number(), "{point:#}");
        if is_root() {
            assert!(point["figures"]["watch.requests"]["value"].is_number(), "{point:#}");
        }
    }
    assert_eq!(run_record(&out)["server_facts"]["program"], "nginx");
}

#[test]
fn a_watcher_that_cannot_watch_is_reported_before_any_request() {
    for (bad, words) in [
        (watcher(9), "nothing listens on port 9"),
        ("echo hello".into(), "not a message of the worker protocol"),
        ("exit 7".into(), "exit status: 7"),
        (worker(), "it does not watch"),
    ] {
        let said = run(&mut load("http://127.0.0.1:9/", &bad, "600ms")).exits_with(1);
        said.complains_of(&["watcher (", "cannot be used", words]);
    }
    let mut both = straingauge(["load", "http://127.0.0.1:9/", "--watch-with", "true", "--", "true"]);
    run(&mut both).exits_with(2).complains_of(&["--watch-with"]);
}

#[test]
fn losing_the_watcher_keeps_the_load_with_a_doubt() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let lost = format!("(sleep 1; kill -9 $$) & {}", watcher(server.port));
    let json = run(&mut load(&server.url("1k.bin"), &lost, "2500ms")).exits_with(0).json();
    assert!(doubt_kinds(&json).contains(&"not-watched".to_string()), "{json:#}");
    assert!(json["point"]["outcomes"]["ok"].as_u64().unwrap() > 0);
}

#[test]
fn a_watcher_refuses_impossible_requests() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    for (text, words) in [
        (r#"{"type":"start","at_ns":0}"#, "sent a load worker's message to a watcher"),
        (r#"{"type":"observe","completed":1}"#, "did not begin and end"),
        (r#"{"type":"end"}"#, "the window cannot end"),
    ] {
        let mut spoken = Spoken::start_with(&["watch", "--worker", &format!(":{}", server.port)]);
        spoken.say(text);
        let why = spoken.hear_of("refused")["why"].as_str().unwrap().to_string();
        assert!(why.contains(words), "{why}");
        spoken.ends();
    }
}
