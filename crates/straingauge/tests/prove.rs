//! `find --prove`: the named limit is made dearer after the search.

use crate::planted::faulty;
use crate::rig::{
    Running, free_port, is_root, long_run, member, open_dir, points, processes_of, run, skip_unless, skipped,
    straingauge,
};
use std::path::Path;
use std::process::Command;

/// A short search with a proof of a server with this fault, which keeps its run in `out`.
fn find(faulty: &Path, fault: &str, out: &Path, more: &[&str]) -> Command {
    let port = free_port().to_string();
    let mut command = straingauge(["find", &format!("http://127.0.0.1:{port}/"), "--prove", "--sweep", "connections"]);
    command.args(["--max-connections", "16", "--budget", "8s", "--repeats", "3", "--duration", "200ms"]);
    command.args(["--warmup", "50ms"]);
    command.args(["--profile", "never", "--isolate", "never", "--out"]).arg(out).args(more);
    command.arg("--").arg(faulty).args([fault, "--port", &port]);
    command
}

#[test]
fn a_full_thread_and_a_lock_that_are_made_dearer_slow_the_server_and_the_proof_is_kept() {
    skip_unless!(is_root(), "needs root, to load BPF programs");
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let (faulty, dir) = (faulty.expect("just checked"), open_dir());
    let all = [
        ("lock", "lock", "each release of a lock that others wait for"),
        ("compute", "request", "each read of a request"),
    ];
    for (fault, place, words) in all.into_iter().take(if long_run() { 2 } else { 1 }) {
        let out = dir.path().join(fault);
        let said = run(&mut find(&faulty, fault, &out, &["--json"])).exits_with(0);
        let json = said.json();
        let proof = member(&json, "proof");
        assert_eq!(proof["predicted"].is_null(), proof["conclusion"] == "not-proved", "{proof:#}");
        // On a busy machine, the verdict may name nothing, or the other work.
        if proof["predicted"] != 1.0 || (fault == "lock" && proof["place"] != words) {
            skipped(&format!("no experiment with {fault} on this machine: {} {}", proof["stage"], proof["why"]));
            continue;
        }
        assert_eq!(proof["place"], words, "{proof:#}");
        let slowed = points(&out.join("proof")).into_iter().filter(|point| point["axis"]["slowed"] == place);
        let reached: Vec<f64> =
            slowed.filter_map(|point| point["figures"]["slow.reached_per_request"]["value"].as_f64()).collect();
        assert!(reached.len() >= 6, "two delays in three repeats: {reached:?}");
        assert!(reached.iter().all(|times| (0.2..1.3).contains(times)), "once in a request: {reached:?}");
        // On a busy machine, the interval is wide.
        let is_known = ["proved", "undecided"].iter().any(|known| proof["conclusion"] == *known);
        assert!(is_known || json.to_string().contains("noisy-neighbour"), "{proof:#}");
        // The report of the run has the same result.
        let again = run(straingauge(["report", "--json"]).arg(&out)).exits_with(0).json();
        assert_eq!(member(&again, "proof"), proof);
        let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
        assert!(page.contains("Proof of the limit: "), "the page shows it");
        let text = run(straingauge(["report"]).arg(&out)).exits_with(0).out;
        assert!(text.contains("\nProof of the limit: ") && text.contains("\n  predicted: 1.000 us per us"), "{text}");
    }
    assert!(processes_of(dir.path()).is_empty());
}

#[test]
fn an_interrupted_proof_keeps_the_result_of_the_search() {
    skip_unless!(is_root(), "needs root, to load BPF programs");
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let dir = open_dir();
    let out = dir.path().join("run");
    let mut running = Running::start(&mut find(&faulty.expect("just checked"), "pool-1", &out, &[]));
    let is_measured = || out.join("proof/points").read_dir().is_ok_and(|found| found.count() > 0);
    while !is_measured() && !running.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.signal(libc::SIGINT);
    let said = running.wait().exits_with(0);
    if !out.join("proof").exists() {
        assert!(said.out.contains("\n  not proved: "), "{}", said.out);
        return skipped("no experiment on this machine");
    }
    assert!(said.out.contains("Sure: ") && said.out.contains("the experiment was interrupted"), "{}", said.out);
    assert!(out.join("report.html").exists());
}

#[test]
fn a_proof_needs_one_server_here_and_a_search_over_connections() {
    for (option, value) in [
        ("--axis", "cold"),
        ("--compare-with", "true"),
        ("--beside", "true"),
        ("--sweep", "rate"),
        ("--client", "true"),
        ("--watch-with", "true"),
        ("--server-with", "true"),
    ] {
        run(&mut straingauge(["find", "http://127.0.0.1:9/", "--prove", option, value, "--", "sleep", "60"]))
            .exits_with(2)
            .complains_of(&["--prove", option]);
    }
}
