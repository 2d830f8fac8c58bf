//! `straingauge profile --axis` on a web server.

use crate::interruption::{Namespaces, assert_nothing_is_left};
use crate::rig::{
    Running, Said, free_port, is_root, member, needs_server, open_dir, points, run, run_record, skip_unless,
    straingauge,
};
use crate::server::{Kind, serve_words};
use std::path::Path;
use std::process::Command;

/// A sweep on nginx with short points; `more` are options before the server.
fn sweep(axis: &str, dir: &Path, more: &[&str]) -> Command {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["profile", &url, "--axis", axis, "--budget", "100s", "--out"]);
    command.arg(dir.join("run")).args(more).arg("--");
    command.args(serve_words(Kind::Nginx, port, &dir.join("state"), "0.0.0.0"));
    command
}

/// Whether the command worked; false if permission is missing. Other failures fail the test.
fn is_done(said: &Said) -> bool {
    if said.code == Some(1) && said.err.contains("cannot be profiled") {
        crate::rig::skipped(said.err.lines().last().unwrap_or_default().trim());
        return false;
    }
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    true
}

fn value(point: &serde_json::Value, name: &str) -> f64 {
    point["figures"][name]["value"].as_f64().unwrap_or_else(|| panic!("{name}: {}", point["figures"][name]))
}

fn on_axis(out: &Path) -> Vec<serde_json::Value> {
    points(out).into_iter().filter(|point| point["sweep"] == "axis").collect()
}

/// Whether a point has enough samples. A starved server has too few in a short point, and the point says so.
fn is_sampled(point: &serde_json::Value) -> bool {
    let Some(why) = point["figures"]["layer.tcp_us_per_packet_sent"]["not_measured"].as_str() else { return true };
    assert!(why.contains("sample"), "{why}");
    false
}

const LAYERS: [&str; 7] = ["user", "system_call", "tcp", "ip", "ethernet", "driver", "other"];

#[test]
fn a_web_server_is_profiled_against_its_connections() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let more = ["--axis-values", "8,32", "--duration", "800ms", "--repeats", "2", "--json", "-q"];
    let said = run(&mut sweep("connections", dir.path(), &more));
    if !is_done(&said) {
        return;
    }
    let measured = on_axis(&out);
    assert!(measured.len() >= 4, "two values, twice: {}", measured.len());
    for point in &measured {
        assert_eq!(point["axis"]["axis"], "connections");
        assert_eq!(point["axis"]["value"].as_f64(), point["connections"].as_f64());
        assert!(value(point, "client.goodput_per_sec") > 0.0);
        if !is_sampled(point) {
            continue;
        }
        // At least one packet per response; packets are counted for a slightly shorter time than responses.
        assert!(value(point, "layer.packets_sent") >= point["outcomes"]["ok"].as_f64().expect("outcomes") * 0.6);
        let sum: f64 = LAYERS.iter().map(|layer| value(point, &format!("layer.{layer}_us_per_packet_sent"))).sum();
        assert!(sum > 0.0);
        for event in ["cycles", "instructions", "llc_load_misses"] {
            let figure = &point["figures"][format!("layer.stack_{event}_per_packet_sent")];
            assert!(figure["value"].is_number() || figure["not_measured"].is_string(), "{event}: {figure}");
        }
    }
    let json = said.json();
    let axes = member(&json, "axes");
    let levels = axes[0]["layers"]["levels"].as_array().expect("levels by layer");
    assert_eq!(levels.iter().map(|level| level["value"].as_f64()).collect::<Vec<_>>(), [Some(8.0), Some(32.0)]);
    assert_eq!(run_record(&out)["scenario"]["command"], "profile");
    // The run directory contains all that is needed.
    std::fs::remove_file(out.join("report.html")).expect("the report was written");
    let again = run(straingauge(["report"]).arg(&out)).exits_with(0);
    for words in ["by layer, per packet sent", "Overall", "SysCall", "32 connections", "in per out"] {
        assert!(again.out.contains(words), "'{words}' is not in\n{}", again.out);
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("the report was written");
    for words in ["By layer, per packet sent", "CPU time per packet by layer", "Data basis", "Goodput"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn connections_can_be_varied_at_a_constant_rate() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let more = ["--axis-values", "4,16", "--rate", "1k", "--duration", "300ms", "--repeats", "1", "-q"];
    if !is_done(&run(&mut sweep("connections", dir.path(), &more))) {
        return;
    }
    let mut measured: Vec<u64> = Vec::new();
    for point in on_axis(&dir.path().join("run")) {
        assert_eq!(point["pace"]["rate_per_sec"], 1000.0, "{}", point["pace"]);
        measured.extend(point["connections"].as_u64());
    }
    measured.sort_unstable();
    assert_eq!(measured, [4, 16]);
}

#[test]
fn an_interrupted_or_killed_sweep_keeps_its_points_and_leaves_no_remains() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let mut ended = Vec::new();
    for signal in [libc::SIGKILL, libc::SIGINT] {
        let dir = open_dir();
        let out = dir.path().join("run");
        let more = ["--axis-values", "1,2", "--duration", "300ms", "--repeats", "100"];
        let mut command = sweep("connections", dir.path(), &more);
        let mut running = Running::start(&mut command);
        let pid = running.pid();
        while on_axis(&out).is_empty() && !running.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if running.has_ended() {
            assert!(!is_done(&running.wait()), "it ended before it was told to");
            return;
        }
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let namespaces = Namespaces::of_processes(children.split_whitespace().filter_map(|child| child.parse().ok()));
        assert!(!namespaces.is_empty(), "the server has a separate namespace");
        running.signal(signal);
        let said = running.wait();
        assert_eq!(said.code, (signal == libc::SIGINT).then_some(130), "{}", said.err);
        let kept = on_axis(&out).len();
        assert!(kept >= 1);
        let again = run(straingauge(["report"]).arg(&out)).exits_with(0);
        assert!(again.out.contains("Overall") || !on_axis(&out).iter().any(is_sampled), "{}", again.out);
        assert_eq!(on_axis(&out).len(), kept);
        ended.push((pid, dir, namespaces));
    }
    for (pid, dir, namespaces) in &ended {
        assert_nothing_is_left(*pid, &dir.path().join("run"), namespaces);
    }
}

#[test]
fn invalid_options_are_refused_before_the_server_is_started() {
    let many = (1..=65).map(|n: u32| n.to_string()).collect::<Vec<_>>().join(",");
    let url = "http://127.0.0.1:8080/";
    let server = ["--", "nginx"];
    for (arguments, words) in [
        (&["--axis", "connections", url][..], &["-- SERVER"][..]),
        (&["--axis", "connections", "--", "nginx"], &["URL"]),
        (&["--axis", "connections", "--accounting", "exact"], &["--accounting"]),
        (&["--axis", "cold"], &["cold", "delay"]),
        (&["--axis", "sideways"], &["sideways"]),
        (&[":8080", "--connections", "4"], &["--axis"]),
    ] {
        run(straingauge(["profile"]).args(arguments)).exits_with(2).complains_of(words);
    }
    let cases: [(&[&str], &[&str]); 13] = [
        (&["--axis", "connections", "--axis-values", "0"], &["--axis-values", "nothing"]),
        (&["--axis", "connections", "--axis-values", &many], &["64"]),
        (&["--axis", "connections", "--connections", "4"], &["--connections", "--axis-values"]),
        (&["--axis", "delay", "--connections", "4,8"], &["--connections"]),
        (&["--axis", "connections", "--rate", "0"], &["--rate 0"]),
        (&["--axis", "rate", "--rate", "5"], &["--rate", "--axis-values"]),
        (&["--axis", "delay", "--delay", "5ms"], &["--delay", "--axis-values"]),
        (&["--axis", "delay", "--axis-values", "20s"], &["--axis-values", "10s"]),
        (&["--axis", "rate", "--axis-values", "-5"], &["--axis-values"]),
        (&["--axis", "rate", "--axis-values", "20M"], &["--axis-values"]),
        (&["--axis", "connections", "--repeats", "0"], &["--repeats"]),
        (&["--axis", "connections", "--duration", "1ms"], &["--duration", "200ms"]),
        (&["--axis", "connections", "--budget", "1ms"], &["--budget"]),
    ];
    for (arguments, words) in cases {
        run(straingauge(["profile", url]).args(arguments).args(server)).exits_with(2).complains_of(words);
    }
    let dir = open_dir();
    let out = dir.path().join("run");
    run(&mut sweep("connections", dir.path(), &["--axis-values", "900k", "-q"]))
        .exits_with(1)
        .complains_of(&["descriptors"]);
    assert!(!out.join("run.json").exists());
}
