//! `find --axis slow-down` on servers with a known bottleneck.

use crate::planted::faulty;
use crate::rig::{Said, free_port, is_root, member, open_dir, points, run, skip_unless, skipped, straingauge};
use serde_json::Value;
use std::path::Path;

/// A search with two delays; `None` if this kernel or user permits no BPF programs.
fn find(server: &Path, fault: &str, places: &str, out: &Path) -> Option<Said> {
    let port = free_port().to_string();
    let url = format!("http://127.0.0.1:{port}/");
    let mut command =
        straingauge(["find", &url, "--axis", "slow-down", "--axis-values", "10us,20us", "--places", places]);
    command.args(["--connections", "4", "--repeats", "3", "--duration", "200ms", "--warmup", "50ms"]);
    command.args(["--profile", "never", "--isolate", "never", "--detail", "off", "--json", "--out"]).arg(out);
    let said = run(command.arg("--").arg(server).args([fault, "--port", &port]));
    if said.code == Some(1) && said.err.contains("the kernel refused") {
        skipped(said.err.trim());
        return None;
    }
    Some(said)
}

/// The findings about a place.
fn place<'j>(axes: &'j Value, name: &str) -> &'j Value {
    let all = axes.as_array().expect("axes").iter();
    all.into_iter().find(|axis| axis["slowed"] == name).unwrap_or_else(|| panic!("{name}: {axes:#}"))
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {value:#}"))
}

#[test]
fn cpu_work_limits_a_thread_and_a_lock_hides_it() {
    skip_unless!(is_root(), "needs root, to load BPF programs");
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let (faulty, dir) = (faulty.expect("just checked"), open_dir());
    let (out, locked) = (dir.path().join("compute"), dir.path().join("lock"));
    let Some(said) = find(&faulty, "planted", "request,function=planted,accept", &out) else { return };
    let said = said.exits_with(0);
    assert!(said.err.contains("request, function, accept slowed down in turn, 3 repeats: about "), "{}", said.err);
    let json = said.json();
    let axes = member(&json, "axes");
    for name in ["request", "function"] {
        let effect = &place(axes, name)["effect"];
        assert!((number(effect, "/reached_per_request/value") - 1.0).abs() < 0.1, "{effect:#}");
        assert!(number(effect, "/most_added_us") >= 19.0, "{effect:#}");
        // 20 us in addition to 85 us per request: noise of so few points can be larger.
        if !said.out.contains("noisy-neighbour") {
            assert!(number(effect, "/time/us_per_us") > 0.3 && number(effect, "/gain_ratio/value") > 1.0, "{effect:#}");
        }
    }
    let accept = place(axes, "accept");
    assert!(accept["effect"].is_null() && accept["doubts"].to_string().contains("0 times"), "{accept:#}");
    // Each added delay is at least as long as requested, and only at one place at a time.
    let is_measured = |point: &&Value| point["figures"]["slow.added_us_per_request"]["value"].is_number();
    let slowed: Vec<Value> = points(&out).into_iter().filter(|point| point["axis"]["slowed"] == "request").collect();
    assert!(slowed.iter().any(|point| is_measured(&point)), "{slowed:#?}");
    // On a very busy machine a short point may have no request.
    for point in slowed.iter().filter(is_measured) {
        let figure = |name: &str| number(point, &format!("/figures/{name}/value"));
        let asked_us = number(point, "/axis/value") / 1e3;
        assert!(
            figure("slow.added_us_per_request") >= 0.99 * asked_us * figure("slow.reached_per_request"),
            "{point:#}"
        );
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(page.contains("What would help most") && page.contains("each call of the function"));
    let text = run(straingauge(["report"]).arg(&out)).exits_with(0).out;
    let table = text.split("doubts\n").next().unwrap_or_default();
    assert!(table.contains("What would help most") && table.lines().all(|line| line.chars().count() <= 100), "{text}");

    // Each request sleeps for 300 us with a lock held, so delays outside the lock are hidden.
    let Some(said) = find(&faulty, "lock", "request", &locked) else { return };
    let json = said.exits_with(0).json();
    let effect = &place(member(&json, "axes"), "request")["effect"];
    let is_quiet = !json.to_string().contains("noisy-neighbour");
    assert!(!is_quiet || number(effect, "/gain_ratio/value") < 1.05, "{effect:#}");
}

#[test]
fn a_missing_function_is_reported_before_measuring() {
    skip_unless!(is_root(), "needs root, to load BPF programs");
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let dir = open_dir();
    let out = dir.path().join("run");
    let Some(said) = find(&faulty.expect("just checked"), "none", "function=inlined_away", &out) else { return };
    said.exits_with(1).complains_of(&["cannot be slowed down", "no symbol 'inlined_away'"]);
    assert!(!out.join("run.json").exists());
    let url = format!("http://127.0.0.1:{}/", free_port());
    for (arguments, words) in [
        (["--axis", "slow-down", "--axis-values", "1ms"], "100us"),
        (["--axis", "slow-down", "--places", "disk"], "receive, send"),
        (["--axis", "cold", "--places", "send"], "--places"),
    ] {
        run(straingauge(["find", &url]).args(arguments).args(["--", "sleep", "60"]))
            .exits_with(2)
            .complains_of(&[words]);
    }
}
