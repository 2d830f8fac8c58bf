//! Watching requests in points: the server's count equals the client's, phases, the budget, and doubts if counting is
//! not possible.

use crate::rig::{free_port, is_root, needs_server, open_dir, points, program, run, skip_unless, skipped, straingauge};
use crate::server::{Kind, serve_words};
use serde_json::Value;
use std::process::Command;

/// Why a point's requests were not counted, if so.
fn why_not(point: &Value) -> Option<String> {
    let figure = &point["figures"]["watch.requests"];
    figure["not_measured"].as_str().map(str::to_string)
}

fn value(point: &Value, name: &str) -> Option<f64> {
    point["figures"][name]["value"].as_f64()
}

/// Asserts that the server answered as many requests as the client counts over the whole load. The server may also
/// have answered those that the client gave up.
#[track_caller]
fn assert_counts_agree(point: &Value) {
    let of = |name: &str| point["outcomes"][name].as_u64().unwrap_or(0) as f64;
    let given_up = of("sent") + of("carried_in") - of("ok") - of("non_2xx");
    let difference = value(point, "watch.whole_load_difference").expect("the whole load was counted");
    assert!((0.0..=given_up).contains(&difference), "{difference} requests apart, {given_up} given up: {point:#}");
}

fn load_point(kind: Kind, watch: &str, more: &[&str]) -> Option<Value> {
    let point = load_point_however(kind, watch, more)?;
    if let Some(why) = why_not(&point) {
        // As root, the kernel must accept the programs.
        assert!(!is_root(), "requests were not counted: {why}");
        skipped(&why);
        return None;
    }
    Some(point)
}

/// Like `load_point`, even if requests are not counted.
fn load_point_however(kind: Kind, watch: &str, more: &[&str]) -> Option<Value> {
    let dir = open_dir();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command =
        straingauge(["load", &url, "--detail", watch, "--duration", "1500ms", "--warmup", "100ms", "--json"]);
    command.args(["--connections", "8", "--quiet"]).args(more).arg("--");
    command.args(serve_words(kind, port, &dir.path().join("state"), "0.0.0.0"));
    let point = run(&mut command).exits_with(0).json()["point"].clone();
    Some(point)
}

#[test]
fn the_server_side_counts_equal_those_of_the_client() {
    for kind in [Kind::Nginx, Kind::Apache] {
        if let Some(why) = kind.missing() {
            skipped(&why);
            continue;
        }
        for more in [&[][..], &["--requests-per-connection", "1"]] {
            let Some(point) = load_point(kind, "counts", more) else { return };
            assert_counts_agree(&point);
            assert_eq!(value(&point, "watch.counted_ratio"), Some(1.0));
            let of_classes: u64 = point["watched"]["classes"]
                .as_array()
                .expect("classes")
                .iter()
                .map(|class| class["figures"]["watch.requests"]["value"].as_f64().expect("counted") as u64)
                .sum();
            assert_eq!(Some(of_classes as f64), value(&point, "watch.requests"), "the classes are the whole");
            // All responses have head and body of one document, so the size that the client saw.
            let received = value(&point, "client.received_bytes").expect("counted");
            let answered = point["outcomes"]["ok"].as_f64().expect("counted");
            let seen = value(&point, "watch.bytes_out_per_request").expect("counted");
            assert!(
                (seen * answered / received - 1.0).abs() < 0.01,
                "{seen} bytes sent, {received} of {answered} received"
            );
            for name in ["watch.cpu_us_per_request", "watch.elapsed_us", "watch.cost_ratio"] {
                assert!(value(&point, name) > Some(0.0), "{name}: {}", point["figures"][name]);
            }
            assert!(value(&point, "watch.in_flight").is_some(), "sampled: {}", point["figures"]["watch.in_flight"]);
            let explained = value(&point, "watch.explained_cpu_ratio").expect("timed");
            // Both are read one after the other at the ends of the window; double charging would give far more.
            assert!(explained < 1.1, "more CPU time is charged than the scheduler knows: {explained}");
            let phases = &point["figures"]["watch.parse_us"]["not_measured"];
            assert!(phases.as_str().is_some_and(|why| why.contains("counts")), "phases were not asked for: {phases}");
        }
    }
}

#[test]
fn functions_of_the_server_mark_the_phases_of_a_point() {
    needs_server!(Kind::Nginx);
    let Some(point) = load_point(Kind::Nginx, "counts", &["--pack", "nginx"]) else { return };
    assert_counts_agree(&point);
    let names = ["parse", "process", "log"].map(|phase| format!("watch.pack_{phase}_cpu_us"));
    // On a busy machine, no request may begin and end within a window.
    let why = point["figures"][&names[0]]["not_measured"].as_str().unwrap_or_default();
    if why.contains("no request passed all boundaries") && value(&point, "machine.other_cpus_used") > Some(1.0) {
        return skipped(&format!("{why}, beside other work"));
    }
    for name in &names {
        assert!(value(&point, name) > Some(0.0), "{name}: {}", point["figures"][name]);
    }
    let timed = point["figures"]["watch.pack_parse_us"]["n"].as_f64().expect("timed");
    assert!(timed > 0.0 && timed < value(&point, "watch.requests").expect("counted"), "a part was timed: {timed}");
    assert!(value(&point, "watch.pack_cost_us_per_request") > Some(0.0));
}

#[test]
fn a_pack_that_exceeds_the_budget_is_reported() {
    needs_server!(Kind::Nginx);
    for (pack, more, words) in [
        ("nginx", &["--overhead", "0.0001%"][..], "exceed the budget"),
        ("apache", &["--overhead", "90%"], "the server's program is nginx"),
    ] {
        let more: Vec<&str> = ["--pack", pack].iter().chain(more).copied().collect();
        let Some(point) = load_point_however(Kind::Nginx, "budgeted", &more) else { return };
        let why =
            point["figures"]["watch.pack_parse_us"]["not_measured"].as_str().or(point["watched"]["why_not"].as_str());
        assert!(why.is_some_and(|why| why.contains(words)), "{why:?}");
    }
    let mut command = straingauge(["load", "http://127.0.0.1:9/", "--detail", "exact", "--pack", "nginx"]);
    run(&mut command).exits_with(2).complains_of(&["--pack", "counts"]);
    let mut command = straingauge(["load", "http://127.0.0.1:9/", "--detail", "counts", "--pack", "no/such/pack"]);
    run(&mut command).exits_with(2).complains_of(&["--pack", "no/such/pack"]);
}

#[test]
fn exact_phases_add_up_to_the_cpu_time_of_a_request() {
    needs_server!(Kind::Nginx);
    let Some(point) = load_point(Kind::Nginx, "exact", &[]) else { return };
    assert_counts_agree(&point);
    let parts: f64 = ["watch.parse_cpu_us", "watch.process_cpu_us", "watch.log_cpu_us"]
        .iter()
        .map(|name| value(&point, name).unwrap_or_else(|| panic!("{name}: {}", point["figures"][name])))
        .sum();
    let whole = value(&point, "watch.cpu_us_per_request").expect("timed");
    assert!((parts / whole - 1.0).abs() < 1e-6, "{parts} against {whole}");
    assert_eq!(point["watched"]["mode"], "exact");
}

#[test]
fn every_point_of_find_has_the_servers_side_and_the_report_shows_it() {
    skip_unless!(is_root(), "counting requests needs root");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    // No point exceeds the budget, so all its requests are counted and some are timed.
    let mut command =
        straingauge(["find", "--full", &url, "--overhead", "100%", "--profile", "never", "--budget", "7s"]);
    command.args(["--sweep", "connections", "--max-connections", "8", "--repeats", "1"]);
    command.args(["--warmup", "50ms", "--duration", "300ms"]);
    command.arg("--out").arg(&out).arg("--").args(serve_words(Kind::Nginx, port, &state, "0.0.0.0"));
    let said = run(&mut command).exits_with(0);
    let measured = points(&out);
    for point in &measured {
        assert_eq!(why_not(point), None);
        assert_counts_agree(point);
        assert_eq!(point["watched"]["mode"], "budgeted");
        let cost = &point["figures"]["watch.cost_ratio"];
        // On a machine that stalls, a point may have very few requests.
        let has_no_tick = cost["not_measured"].as_str().is_some_and(|why| why.contains("counted no CPU time"));
        assert!(has_no_tick || cost["value"].as_f64() > Some(0.0), "the cost is measured: {point:#}");
    }
    assert!(measured.iter().any(|point| value(point, "watch.cost_ratio").is_some()), "no point has a cost");
    let timed = measured.iter().filter(|point| value(point, "watch.parse_us") > Some(0.0)).count();
    assert!(timed > 0, "no point of {} has phases", measured.len());
    assert!(said.flat().contains("from the server's side"), "{}", said.out);
    let page = std::fs::read_to_string(out.join("report.html")).expect("report.html is there");
    for words in
        ["Requests, from the server&#x27;s side", "Phases of a request, elapsed", "Phases of a request, CPU time"]
    {
        assert!(page.contains(words), "'{words}' is not in the report");
    }
    let json = run(straingauge(["report"]).arg(&out).arg("--json")).exits_with(0).json();
    let loads = json["server_side"][0]["loads"].as_array().expect("by load");
    assert!(loads.len() >= 2, "{loads:?}");
}

#[test]
fn cheap_requests_are_watched_partly_or_not_at_all() {
    skip_unless!(is_root(), "counting requests needs root");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/128.bin");
    let mut command = straingauge(["load", &url, "--overhead", "0.01%", "--duration", "1s", "--json", "--quiet"]);
    command.arg("--").args(serve_words(Kind::Nginx, port, &dir.path().join("state"), "0.0.0.0"));
    let point = run(&mut command).exits_with(0).json()["point"].clone();
    let why = point["watched"]["why_not"]
        .as_str()
        .expect("a ten-thousandth is not enough to count each request of nginx, however busy the machine");
    assert!(why.contains("budget"), "{why}");
    assert!(value(&point, "watch.client_difference_ratio").is_none(), "a part is not compared with the whole");
    assert!(value(&point, "watch.accepted_per_sec").is_some(), "connections cost nothing a request");
}

#[test]
fn watch_off_leaves_no_figures_and_a_missing_privilege_gives_the_reason() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let load = |state: &str, watch: &str, before: &[&str]| {
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/1k.bin");
        let mut inner = straingauge(["load", &url, "--detail", watch, "--duration", "300ms", "--json", "--quiet"]);
        inner.args(["--warmup", "0s"]);
        let mut command = match before {
            [] => inner,
            [first, rest @ ..] => {
                let mut outer = Command::new(first);
                outer.args(rest).arg(inner.get_program()).args(inner.get_args());
                outer
            }
        };
        command.arg("--").args(serve_words(Kind::Nginx, port, &dir.path().join(state), "0.0.0.0"));
        run(&mut command).exits_with(0).json()["point"].clone()
    };
    let point = load("off", "off", &[]);
    assert!(point["watched"].is_null() && !point["figures"].to_string().contains("watch."), "{point:#}");
    skip_unless!(is_root(), "only root has capabilities to take away");
    skip_unless!(program("setpriv").is_some(), "setpriv (util-linux) is missing");
    let point = load("refused", "budgeted", &["setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin"]);
    assert!(why_not(&point).is_some_and(|why| !why.is_empty()), "{}", point["figures"]["watch.requests"]);
    assert!(point["figures"]["watch.parse_us"]["value"].is_null());
    assert!(point["doubts"].to_string().contains("requests were not watched"), "{}", point["doubts"]);
    assert!(value(&point, "machine.started_per_sec").is_some(), "the machine's counters need no privilege");
}

#[test]
fn bad_watch_options_are_refused_in_one_sentence() {
    for (arguments, words) in [
        (["--overhead", "0%"], "--overhead must be above 0"),
        (["--set", "watching.response-classes=10KiB,1KiB"], "size class boundaries must be above 0"),
    ] {
        let mut command = straingauge(["load", "http://127.0.0.1:1/"]);
        run(command.args(arguments)).exits_with(2).complains_of(&[words]);
    }
}
