//! `find` on nginx from end to end: run directory, report, zones, with and without namespaces.

use crate::rig::{
    Said, free_port, is_root, member, needs_server, open_dir, points, processes_of, run, run_record, skip_unless,
    straingauge,
};
use crate::server::{Kind, Server, serve_words};
use std::path::Path;
use std::process::Command;

/// A sweep of few, short points that takes seconds. Tests do not judge its findings on a busy machine.
pub const SMALL: [&str; 8] = ["--duration", "100ms", "--warmup", "30ms", "--max-connections", "8", "--repeats", "2"];

/// Asserts that a completed `find` has left all its files.
#[track_caller]
fn assert_is_a_whole_run(path: &Path, said: &Said) {
    let record = run_record(path);
    assert_eq!(record["status"], "complete", "{}", said.err);
    let measured = points(path);
    let sweeps = |name: &str| measured.iter().filter(|point| point["sweep"] == name).count();
    assert!(sweeps("connections") >= 3, "{} points of the closed loop", sweeps("connections"));
    // On a slow machine, little of the budget may remain for the second half.
    assert!(sweeps("rate") >= 1, "no point of the open loop");
    for (index, point) in measured.iter().enumerate() {
        assert_eq!(point["index"].as_u64(), Some(index as u64));
        let outcomes = &point["outcomes"];
        assert!((1..=20).contains(&point["slowest"].as_array().map_or(0, Vec::len)), "{point:#}");
        let of = |name: &str| outcomes[name].as_u64().unwrap_or_else(|| panic!("{name} is counted"));
        let is_beside = |name: &str| ["sent", "carried_in"].contains(&name) || name.starts_with("connect");
        let is_end = |name: &str| !is_beside(name) || name == "connect_timed_out";
        let ends = outcomes.as_object().expect("outcomes by name").iter().filter(|(name, _)| is_end(name));
        assert_eq!(
            of("sent") + of("carried_in"),
            ends.map(|(_, count)| count.as_u64().unwrap_or(0)).sum::<u64>(),
            "{outcomes:#}"
        );
        assert!(path.join(format!("points/{index:03}/latency.hlog")).is_file(), "point {index} has its histograms");
    }
    let page = std::fs::read_to_string(path.join("report.html")).expect("report.html is there");
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"), "the page is whole");
    assert!(page.contains("<h2>Slowest requests</h2>"), "the slowest requests are listed");
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(outside), "the page fetches something: {outside}");
    }
    // The verdict, or the reason why there is none.
    let words = said.flat().to_lowercase();
    assert!(said.out.lines().count() <= 25, "{}", said.out);
    for one_of in [["plan", "throughput grows"], ["breaks", "fail"], ["sure: ", "sure: "]] {
        assert!(one_of.iter().any(|word| words.contains(word)), "none of {one_of:?} in the verdict:\n{}", said.out);
    }
}

#[test]
fn find_without_namespaces_leaves_a_complete_run_and_no_server() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["find", &url, "--isolate", "never", "--budget", "6s", "--out"]);
    command.arg(&out).args(SMALL).arg("--").args(serve_words(Kind::Nginx, port, &state, "127.0.0.1"));
    let said = run(&mut command).exits_with(0);
    assert_is_a_whole_run(&out, &said);
    assert_eq!(run_record(&out)["scenario"]["server"]["isolated"], false);
    assert!(processes_of(&state).is_empty(), "nginx is still there");
}

#[test]
fn find_with_namespaces_leaves_a_complete_run_and_no_namespace() {
    skip_unless!(is_root(), "needs root, to make network namespaces");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["find", &url, "--isolate", "always", "--budget", "6s", "--out"]);
    command.arg(&out).args(SMALL).arg("--").args(serve_words(Kind::Nginx, port, &state, "0.0.0.0"));
    let mut running = crate::rig::Running::start(&mut command);
    let pid = running.pid();
    running.wait_until("the first point", || !points(&out).is_empty());
    let namespaces = crate::interruption::Namespaces::of_processes(crate::rig::processes_of(&state));
    assert!(!namespaces.is_empty(), "nginx has no network namespace of its own");
    let said = running.wait().exits_with(0);
    assert_is_a_whole_run(&out, &said);
    assert_eq!(run_record(&out)["scenario"]["server"]["isolated"], true);
    crate::interruption::assert_nothing_is_left(pid, &state, &namespaces);
}

#[test]
fn find_repeats_until_it_is_precise_or_its_time_is_spent() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["find", &url, "--isolate", "never", "--sweep", "connections", "--unload"]);
    command.args(["--until-sure", "50%", "--budget", "10s", "--duration", "50ms", "--max-connections", "8", "--out"]);
    command.arg(&out).arg("--").args(serve_words(Kind::Nginx, port, &state, "127.0.0.1"));
    let said = run(&mut command).exits_with(0);
    for announced in ["until intervals are at most 50 % wide: about ", "half of its time is for the way down"] {
        assert!(said.err.contains(announced), "no '{announced}' in\n{}", said.err);
    }
    let measured = points(&out);
    let of_repeat = |sweep: &str| -> Vec<u64> {
        let is_there = |point: &&serde_json::Value| point["sweep"] == sweep && point["repeat"] == 1;
        measured.iter().filter(is_there).filter_map(|point| point["connections"].as_u64()).collect()
    };
    let (mut up, mut down) = (of_repeat("connections"), of_repeat("unloading"));
    // A disturbed point is measured twice.
    up.dedup();
    down.dedup();
    down.reverse();
    assert!(up.is_sorted() && up.len() >= 2, "{up:?}");
    assert_eq!(down, up[..up.len() - 1], "down through the same loads");
    // The width was reached, or the reason is given.
    let is_said = ["As narrow as requested", "wider than requested"]
        .iter()
        .any(|words| std::fs::read_to_string(out.join("report.html")).expect("report.html is there").contains(words));
    assert!(is_said && said.flat().contains("On the way down"), "{}", said.out);
    let page = std::fs::read_to_string(out.join("report.html")).expect("report.html is there");
    assert!(page.contains("Loading and unloading"), "the loop is drawn");
}

#[test]
fn points_are_profiled_by_layer_if_permitted() {
    skip_unless!(is_root(), "needs root, to sample stacks with BPF");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    for (when, is_wanted) in [("always", true), ("never", false)] {
        let (state, out) = (dir.path().join(when), dir.path().join(format!("run-{when}")));
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/1k.bin");
        let mut command = straingauge(["find", &url, "--profile", when, "--sweep", "connections", "--budget", "14s"]);
        // At 997 Hz, a second gives some hundred samples of a server with part of a CPU.
        let duration = if is_wanted { "1s" } else { "100ms" };
        command
            .args(["--duration", duration, "--warmup", "50ms", "--max-connections", "2", "--repeats", "1", "--out"])
            .arg(&out);
        command.arg("--").args(serve_words(Kind::Nginx, port, &state, "0.0.0.0"));
        let said = Command::output(&mut command).expect("straingauge runs");
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        if words.contains("--profile always is not possible") {
            return crate::rig::skipped(words.trim());
        }
        assert!(said.status.success(), "{words}");
        let measured: Vec<_> = points(&out).into_iter().filter(|point| point["sweep"] == "connections").collect();
        let layers = |point: &serde_json::Value| -> Option<f64> {
            let figures = point["figures"].as_object().expect("figures by name");
            let of_layers = figures.iter().filter(|(name, _)| name.starts_with("layer."));
            of_layers.map(|(_, figure)| figure["value"].as_f64()).sum()
        };
        if !is_wanted {
            let names = |point: &serde_json::Value| point["figures"].to_string();
            assert!(measured.iter().all(|point| !names(point).contains("layer.") && point["functions"].is_null()));
            continue;
        }
        let profiled: Vec<_> = measured.iter().filter(|point| layers(point).is_some_and(|us| us > 0.0)).collect();
        // A server that gets almost no CPU has too few samples, and the figure says so. No other reason is allowed.
        let figures = measured.iter().flat_map(|point| point["figures"].as_object().expect("figures by name"));
        for (name, figure) in figures.filter(|(name, _)| name.starts_with("layer.")) {
            let why = figure["not_measured"].as_str();
            let is_too_few = |why: &str| why.contains("fewer than 20 times") || why.contains("no sample fell");
            assert!(why.is_none_or(is_too_few), "{name}: {why:?}");
        }
        let figures = |point: &&serde_json::Value| point["figures"].to_string().contains("layer.");
        assert!(measured.iter().any(|point| figures(&point)), "no point of {} has layers", measured.len());
        for point in profiled {
            let functions = point["functions"].as_array().expect("functions are listed");
            assert!(functions.iter().all(|cost| cost["us_per_request"].as_f64() > Some(0.0)), "{functions:?}");
            // The scheduler also charges the server for receiving at the client's end, inside the server's send.
            // Twenty samples on a busy machine show only the order of magnitude; a hundred show more.
            let own = point["figures"]["server.cpu_us_per_request"]["value"].as_f64().expect("watched");
            let samples: u64 = functions.iter().filter_map(|cost| cost["samples"].as_u64()).sum();
            let least = own / if samples < 100 { 20.0 } else { 4.0 };
            assert!(
                layers(point) > Some(least),
                "layers {:?} us of {samples} samples, scheduler {own} us",
                layers(point)
            );
        }
    }
}

#[test]
fn a_running_server_is_measured_and_its_report_redrawn_from_the_directory() {
    needs_server!(Kind::Lighttpd);
    let server = Server::start(Kind::Lighttpd);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("run");
    let mut command = straingauge(["find", &server.url("128.bin"), "--quiet", "--budget", "5s", "--out"]);
    command.arg(&out).args(SMALL).args(["--sweep", "connections"]);
    let first = run(&mut command).exits_with(0);
    let still = std::net::TcpStream::connect(("127.0.0.1", server.port));
    assert!(still.is_ok(), "the server still runs: it is not ours to end");
    drop(server);
    let page = std::fs::read(out.join("report.html")).expect("report.html is there");
    // The directory can be moved and read by itself. The new name has the same length, so that lines wrap at the same
    // places.
    let moved = dir.path().join("nur");
    std::fs::rename(&out, &moved).expect("our own folder");
    let again = dir.path().join("again.html");
    let said = run(straingauge(["report"]).arg(&moved).arg("--page").arg(&again)).exits_with(0);
    let redrawn = std::fs::read(&again).expect("the page is there");
    let json = run(straingauge(["report", "--json"]).arg(&moved)).exits_with(0).json();
    assert!(member(&json, "doubts").is_array(), "{json:#}");
    let places = [out.as_path(), moved.as_path()];
    let pages = [&page, &redrawn].map(|page| without_places(&String::from_utf8_lossy(page), places));
    assert_same_lines(&pages, "the page is drawn the same again");
    // A pipe is written to, not replaced by a file.
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let copy = std::fs::File::create(dir.path().join("copy")).expect("our own folder");
    let mut cat = std::process::Command::new("timeout");
    let mut reader = cat.args(["60", "cat"]).arg(&pipe).stdout(copy).spawn().expect("cat starts");
    let written = run(straingauge(["report"]).arg(&moved).arg("--page").arg(&pipe)).exits_with(0);
    assert!(!std::fs::symlink_metadata(&pipe).expect("the pipe is there").is_file(), "{}", written.err);
    assert!(reader.wait().is_ok_and(|status| status.success()));
    let through = std::fs::read(dir.path().join("copy")).expect("the copy is there");
    assert!(through == redrawn, "the page did not go through the pipe whole");
    assert_same_lines(&[&first.out, &said.out].map(|text| without_places(text, places)), "the same words again");
}

/// Asserts that two texts are equal; on failure shows the line that differs, because a page is too long.
#[track_caller]
fn assert_same_lines(texts: &[String; 2], what: &str) {
    let [a, b] = texts;
    for (number, (a, b)) in a.lines().zip(b.lines()).enumerate() {
        assert_eq!(a, b, "{what}: line {}", number + 1);
    }
    assert_eq!(a.lines().count(), b.lines().count(), "{what}: as many lines");
}

/// A text without the paths of its run, which may differ.
fn without_places(text: &str, places: [&Path; 2]) -> String {
    places
        .iter()
        .fold(text.to_string(), |text, place| text.replace(place.to_str().expect("temporary paths are text"), "RUN"))
}

#[test]
fn the_open_loop_holds_few_connections_unless_more_are_typed() {
    needs_server!(Kind::Apache);
    let server = Server::start(Kind::Apache);
    let dir = open_dir();
    let url = format!("http://127.0.0.1:{}/1k.bin", server.port);
    let rates = |name: &str, more: &[&str]| {
        let out = dir.path().join(name);
        let mut command = straingauge(["find", &url, "--sweep", "rate", "--budget", "5s", "--json", "--out"]);
        run(command.arg(&out).args(SMALL).args(more)).exits_with(0).json()
    };
    // With 1,024 idle connections, Apache answers none: those beyond its backlog hold all its threads.
    let said = rates("budgeted", &[]);
    let points = said["points"].as_array().expect("points").iter().filter(|point| point["sweep"] == "rate");
    let points: Vec<_> =
        points.map(|point| (point["connections"].as_u64(), point["outcomes"]["ok"].as_u64())).collect();
    assert!(
        points.iter().all(|point| point.0 <= Some(256)) && points.iter().any(|point| point.1 > Some(5)),
        "{points:?}"
    );
    // A typed number is used as it is.
    let typed = rates("typed", &["--set", "find.open-connections=512"]);
    assert!(typed["points"].to_string().contains("\"connections\":512"), "{typed:#}");
    assert!(!typed["record"]["doubts"].to_string().contains("which it uses"));
}

#[test]
fn a_server_that_is_gone_ends_the_run_without_a_failure_point() {
    needs_server!(Kind::Python);
    for is_behind_a_shell in [false, true] {
        let dir = open_dir();
        let (out, over) = (dir.path().join("run"), dir.path().join("over"));
        let mut elsewhere = (!is_behind_a_shell).then(|| Server::start(Kind::Python));
        let port = elsewhere.as_ref().map_or_else(free_port, |server| server.port);
        let url = format!("http://127.0.0.1:{port}/1k.bin");
        let mut command =
            straingauge(["find", &url, "--isolate", "never", "--sweep", "connections", "--budget", "30s"]);
        command.arg("--out").arg(&out).args(["--duration", "200ms", "--profile", "never"]);
        if is_behind_a_shell {
            let served = serve_words(Kind::Python, port, &dir.path().join("state"), "127.0.0.1");
            let served = served.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
            let until = format!("while ! [ -e '{}' ]; do sleep 0.05; done", over.display());
            let line = format!("{served} & {until}; kill -9 $!; exec sleep 600");
            command.args(["--", "sh", "-c", &line]);
        }
        let mut running = crate::rig::Running::start(&mut command);
        running.wait_until("the third point", || points(&out).len() >= 3);
        drop(elsewhere.take());
        std::fs::write(&over, "").expect("a file in a temporary folder");
        let said = running.wait().exits_with(1);
        assert!(said.err.contains("nothing listens") && said.err.contains("any more"), "{}", said.err);
        assert_eq!(run_record(&out)["status"], "interrupted");
        assert!(out.join("report.html").is_file(), "what was measured is reported");
        for point in points(&out) {
            assert_eq!(point["outcomes"]["refused"].as_u64().unwrap_or(0), 0, "a point without the server: {point}");
        }
    }
}
