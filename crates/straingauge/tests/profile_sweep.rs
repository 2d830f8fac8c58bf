//! `straingauge profile --axis`: the microbenchmark and a web server, profiled against one quantity.

use crate::interruption::{Namespaces, assert_nothing_is_left};
use crate::rig::{
    Running, Said, free_port, is_root, member, needs_server, open_dir, points, run, run_record, skip_unless,
    straingauge,
};
use crate::server::{Kind, serve_words};
use std::path::Path;
use std::process::Command;

/// A short sweep of the microbenchmark; `more` comes after the rest.
fn sweep(axis: &str, out: &Path, more: &[&str]) -> Command {
    sweep_of("300ms", axis, out, more)
}

/// The same with points of another length.
fn sweep_of(duration: &str, axis: &str, out: &Path, more: &[&str]) -> Command {
    let mut command = straingauge(["profile", "--axis", axis, "--duration", duration, "--budget", "100s", "--out"]);
    command.arg(out).args(more);
    command
}

/// What the machine does not permit is a skip; anything else must have worked.
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

/// A server that other work starved is sampled too seldom in a short point; such a point says so and is left out here.
fn is_sampled(point: &serde_json::Value) -> bool {
    let Some(why) = point["figures"]["layer.tcp_us_per_packet_sent"]["not_measured"].as_str() else { return true };
    assert!(why.contains("sample"), "{why}");
    false
}

const LAYERS: [&str; 7] = ["user", "system_call", "tcp", "ip", "ethernet", "driver", "other"];

#[test]
fn the_microbenchmark_is_profiled_against_its_connections() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    let dir = open_dir();
    let out = dir.path().join("run");
    let more = ["--axis-values", "2,16", "--packet-rate", "4k", "--repeats", "2", "--json", "-q"];
    let said = run(&mut sweep_of("600ms", "connections", &out, &more));
    if !is_done(&said) {
        return;
    }
    let measured = on_axis(&out);
    assert!(measured.len() >= 4, "two values, twice: {}", measured.len());
    let mut ratios = Vec::new();
    for point in &measured {
        assert_eq!(point["axis"]["axis"], "connections");
        assert_eq!(point["axis"]["value"].as_f64(), point["connections"].as_f64());
        if !is_sampled(point) {
            continue;
        }
        let sent = value(point, "layer.packets_sent");
        assert_eq!(value(point, "layer.segments_sent"), sent, "a packet is a segment");
        // Each segment is full and is acknowledged at once; what is under way at the edges of the window counts little.
        let payload = value(point, "layer.payload_sent_bytes");
        assert!((payload / sent / 1448.0 - 1.0).abs() < 0.05, "{payload} bytes in {sent} packets");
        // Delayed acknowledgements would be half as many.
        assert!((value(point, "layer.packets_received") / sent - 1.0).abs() < 0.25, "one acknowledgement a segment");
        // Two counts of the same segments. The sender counts from before the packets are counted to after, so there are no more
        // packets than segments. Attaching the programs takes a tenth of a second, beside other work half of the window, so there are fewer.
        let segments = point["figures"]["microbenchmark.segments_per_sec"]["n"].as_f64().expect("counted");
        assert!(sent < 1.02 * segments + 50.0, "{sent} packets of {segments} segments");
        ratios.push(sent / segments);
        let sum: f64 = LAYERS.iter().map(|layer| value(point, &format!("layer.{layer}_us_per_packet_sent"))).sum();
        assert!(sum > 0.0);
        for event in ["cycles", "instructions", "llc_load_misses"] {
            let figure = &point["figures"][format!("layer.stack_{event}_per_packet_sent")];
            assert!(figure["value"].is_number() || figure["not_measured"].is_string(), "{event}: {figure}");
        }
    }
    let most = ratios.iter().copied().fold(0.0, f64::max);
    assert!(most > 0.1, "packets over the sender's segments: {ratios:?}");
    let json = said.json();
    let axes = member(&json, "axes");
    let levels = axes[0]["layers"]["levels"].as_array().expect("levels by layer");
    assert_eq!(levels.iter().map(|level| level["value"].as_f64()).collect::<Vec<_>>(), [Some(2.0), Some(16.0)]);
    assert_eq!(run_record(&out)["scenario"]["command"], "profile");
    // The run directory alone is enough.
    std::fs::remove_file(out.join("report.html")).expect("the report was written");
    let again = run(straingauge(["report"]).arg(&out)).exits_with(0);
    for words in ["by layer, per packet sent", "Overall", "SysCall", "16 connections", "in per out"] {
        assert!(again.out.contains(words), "'{words}' is not in\n{}", again.out);
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("the report was written");
    for words in ["By layer, per packet sent", "CPU time per packet by layer", "What it rests on"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn the_microbenchmark_is_profiled_against_delay_and_rate() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    let dir = open_dir();
    for (axis, more, values, unit) in [
        ("delay", ["--axis-values", "0ms,5ms", "--connections", "4", "--packet-rate", "2k"], [0.0, 5e6], "delay"),
        ("packet-rate", ["--axis-values", "1k,3k", "--connections", "2", "--delay", "1ms"], [1e3, 3e3], "segments/s"),
    ] {
        let out = dir.path().join(axis);
        let said = run(sweep_of("500ms", axis, &out, &["--repeats", "1", "-q"]).args(more));
        if !is_done(&said) {
            return;
        }
        let mut seen: Vec<f64> = on_axis(&out).iter().filter_map(|point| point["axis"]["value"].as_f64()).collect();
        seen.sort_by(f64::total_cmp);
        assert_eq!(seen, values, "{axis}");
        assert!(said.out.contains(unit), "{}", said.out);
        let measured = on_axis(&out);
        assert!(said.out.contains("SysCall") || !measured.iter().any(is_sampled), "{}", said.out);
        for point in measured.iter().filter(|point| is_sampled(point)) {
            assert_eq!(value(point, "layer.segments_sent"), value(point, "layer.packets_sent"), "{axis}");
            assert!(point["figures"]["path.packets"]["value"].is_number(), "{axis}: a path was made");
        }
    }
}

#[test]
fn a_web_server_is_profiled_against_its_connections() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (out, port) = (dir.path().join("run"), free_port());
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command =
        sweep_of("800ms", "connections", &out, &[&url, "--axis-values", "8,32", "--repeats", "1", "-q", "--"]);
    command.args(serve_words(Kind::Nginx, port, &dir.path().join("state"), "0.0.0.0"));
    let said = run(&mut command);
    if !is_done(&said) {
        return;
    }
    let measured = on_axis(&out);
    assert!(measured.len() >= 2, "two values: {}", measured.len());
    for point in &measured {
        assert!(value(point, "client.goodput_per_sec") > 0.0);
        if !is_sampled(point) {
            continue;
        }
        assert!(value(point, "layer.user_us_per_packet_sent") >= 0.0);
        // At least a packet a response; packets are counted for somewhat less time than responses.
        assert!(value(point, "layer.packets_sent") >= point["outcomes"]["ok"].as_f64().expect("outcomes") * 0.6);
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("the report was written");
    assert!(page.contains("Goodput"));
    assert!(page.contains("CPU time per packet by layer") || !measured.iter().any(is_sampled));
}

#[test]
fn an_ended_or_killed_sweep_keeps_its_points_and_leaves_nothing() {
    skip_unless!(is_root(), "needs root, for namespaces and to sample stacks with BPF");
    // The kernel ends a killed sweep's sender; the next sweep removes what is left of the pair.
    let mut ended = Vec::new();
    for signal in [libc::SIGKILL, libc::SIGINT] {
        let dir = open_dir();
        let out = dir.path().join("run");
        let mut command =
            sweep("connections", &out, &["--axis-values", "1,2", "--packet-rate", "1k", "--repeats", "100"]);
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
        let namespaces = Namespaces::of(children.split_whitespace().filter_map(|child| child.parse().ok()));
        assert!(!namespaces.is_empty(), "the sender has a namespace of its own");
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
fn nonsense_is_refused_before_anything_is_started() {
    let many = (1..=65).map(|n: u32| n.to_string()).collect::<Vec<_>>().join(",");
    let url = "http://127.0.0.1:8080/";
    let cases: [(&[&str], &[&str]); 22] = [
        (&["--axis", "connections", url], &["-- SERVER"]),
        (&["--axis", "connections", "--", "nginx"], &["URL"]),
        (&["--axis", "connections", "--accounting", "exact"], &["--accounting"]),
        (&["--axis", "connections", "--axis-values", "0"], &["--axis-values", "nothing"]),
        (&["--axis", "connections", "--axis-values", &many], &["64"]),
        (&["--axis", "connections", "--connections", "4"], &["--connections", "--axis-values"]),
        (&["--axis", "delay", "--connections", "4,8"], &["--connections"]),
        (&["--axis", "connections", "--packet-rate", "0"], &["--packet-rate 0"]),
        (&["--axis", "connections", "--rate", "5"], &["segments", "--packet-rate"]),
        (&["--axis", "rate"], &["segments", "--axis packet-rate"]),
        (&["--axis", "packet-rate", url, "--", "nginx"], &["requests", "--axis rate"]),
        (&["--axis", "connections", "--packet-rate", "5", url, "--", "nginx"], &["requests", "--rate"]),
        (&["--axis", "connections", "--rate", "5", url, "--", "nginx"], &["--rate", "--axis rate"]),
        (&["--axis", "delay", "--axis-values", "20s"], &["--axis-values", "10s"]),
        (&["--axis", "packet-rate", "--axis-values", "-5"], &["--axis-values"]),
        (&["--axis", "packet-rate", "--axis-values", "20M"], &["--axis-values"]),
        (&["--axis", "cold"], &["cold", "packet-rate"]),
        (&["--axis", "connections", "--repeats", "0"], &["--repeats"]),
        (&["--axis", "connections", "--duration", "1ms"], &["--duration", "200ms"]),
        (&["--axis", "connections", "--budget", "1ms"], &["--budget"]),
        (&["--axis", "sideways"], &["sideways"]),
        (&[":8080", "--connections", "4"], &["--axis"]),
    ];
    for (arguments, words) in cases {
        run(straingauge(["profile"]).args(arguments)).exits_with(2).complains_of(words);
    }
    let dir = open_dir();
    let out = dir.path().join("run");
    run(&mut sweep("connections", &out, &["--axis-values", "900k", "-q"])).exits_with(1).complains_of(&["descriptors"]);
    assert!(!out.join("run.json").exists());
}
