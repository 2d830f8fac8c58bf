//! `find --beside`: the server without and with a command, in turn. The command never outlives the run.

use crate::rig::{
    Running, Said, free_port, is_root, long_run, needs_server, open_dir, points, processes_of, run, run_record,
    skip_unless, straingauge,
};
use crate::server::{Kind, Server, serve_words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// `find` on a testbed server with the command `beside`; its words may name `dir`, which contains its files.
fn find(dir: &Path, beside: &str, isolate: &str) -> Command {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["find", &url, "--quiet", "--beside", beside, "--set", "find.settle=300ms"]);
    command.args(["--isolate", isolate, "--max-connections", "2", "--repeats", "2", "--budget", "60s"]);
    command.args(["--duration", "200ms", "--warmup", "50ms", "--out"]).arg(dir.join("run"));
    let address = if is_root() && isolate != "never" { "0.0.0.0" } else { "127.0.0.1" };
    command.arg("--").args(serve_words(Kind::Nginx, port, &dir.join("state"), address));
    command
}

/// Like `find`, with two clients and the server started as on another machine.
fn find_elsewhere(dir: &Path, beside: &str) -> Command {
    let mut command = find(dir, beside, "never");
    let program = Path::new(env!("CARGO_BIN_EXE_straingauge"));
    let elsewhere = format!("PATH={}:$PATH sh -c", program.parent().expect("it lies in a folder").display());
    let mut all: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let server = all.split_off(all.iter().position(|word| word == "--").expect("a server follows"));
    let isolate = all.iter().position(|word| word == "--isolate").expect("it was given");
    all.drain(isolate..isolate + 2);
    let client = format!("'{}' load --worker", program.display());
    command = straingauge(all.iter().filter_map(|word| word.to_str()));
    command.args(["--server-with", &elsewhere, "--client", &client, "--client", &client]).args(server);
    command
}

fn figure(point: &Value, name: &str) -> Option<f64> {
    point["figures"].get(name)?["value"].as_f64()
}

fn loads(run: &Path) -> Vec<Value> {
    points(run).into_iter().filter(|point| point["sweep"] == "connections").collect()
}

/// A command that reports the server it knows, and whose child uses CPU part of the time.
fn agent(dir: &Path) -> String {
    let script = dir.join("agent");
    let text = "echo \"$1 $2 $STRAINGAUGE_PORT $STRAINGAUGE_SERVER_PID\"\n\
                while :; do (i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done); sleep 0.02; done\n";
    std::fs::write(&script, text).expect("a temporary folder");
    format!("sh {} PORT PID", script.display())
}

/// The port and process of the server that the agent printed; its arguments and environment agree.
#[track_caller]
fn what_the_agent_knew(out: &Path) -> String {
    let log = std::fs::read_to_string(out.join("with/beside.log")).expect("what it printed is kept");
    let words: Vec<&str> = log.split_whitespace().collect();
    assert!(words.len() >= 4 && words[0] == words[2] && words[1] == words[3], "{log}");
    log
}

/// Asserts that each point has the command's CPU time. On a busy machine it may be 0 in a short window, but not in
/// all.
#[track_caller]
fn has_worked(points: &[Value]) {
    let used: Vec<Option<f64>> = points.iter().map(|point| figure(point, "beside.cpus_used")).collect();
    assert!(used.iter().all(Option::is_some) && used.iter().any(|cpus| *cpus > Some(0.0)), "{used:?}");
}

/// The output of a run with both sides, whatever the command's cost was.
#[track_caller]
fn priced(command: &mut Command) -> Said {
    let said = run(command);
    assert!([Some(0), Some(3), Some(4)].contains(&said.code), "{:?}: {}{}", said.code, said.out, said.err);
    said
}

#[test]
fn the_server_is_measured_with_and_without_the_command_and_both_costs_are_shown() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let agent = agent(dir.path());
    let said = priced(&mut find(dir.path(), &agent, "auto"));
    let out = dir.path().join("run");
    let (without, with) = (loads(&out), loads(&out.join("with")));
    let place = |point: &Value| (point["repeat"].as_u64().unwrap(), point["connections"].as_u64().unwrap());
    let places = |points: &[Value]| {
        let mut places: Vec<_> = points.iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        places
    };
    assert_eq!(places(&without), [(0, 1), (0, 2), (1, 1), (1, 2)]);
    assert_eq!(places(&with), places(&without), "both sides at the same loads in every round");
    for point in &without {
        assert_eq!(figure(point, "beside.cpus_used"), None, "nothing runs beside it");
    }
    has_worked(&with);
    for point in &with {
        assert!(figure(point, "beside.memory_bytes").is_some_and(|bytes| bytes > 0.0), "{point:#}");
        let doubts = point["doubts"].as_array().expect("doubts").iter();
        let named: Vec<_> = doubts.filter(|doubt| doubt["what"].to_string().contains("agent")).collect();
        assert!(named.is_empty(), "what is priced is no noisy neighbour: {named:?}");
    }
    // Both sides have the same server; only the command differs.
    let fact = |run: &Path, name: &str| run_record(run)["server_facts"][name].clone();
    assert_eq!(fact(&out, "command"), fact(&out.join("with"), "command"));
    assert_eq!(run_record(&out)["status"], "complete");
    assert_eq!(run_record(&out.join("with"))["scenario"]["beside"][0], "sh");
    assert!(run_record(&out)["scenario"].get("beside").is_none());
    let log = what_the_agent_knew(&out);
    assert!(
        run_record(&out)["scenario"]["url"]
            .as_str()
            .unwrap()
            .contains(&format!(":{}/", log.split_whitespace().next().expect("its port"))),
        "{log}"
    );
    for shown in
        ["The price of 'sh", "CPU/request", "throughput", "p50", "p99", "its own CPU", "its memory", "itself used"]
    {
        assert!(said.flat().contains(shown), "{shown}: {}", said.out);
    }
    let (table, _) = said.out.split_once("by load").expect("both tables");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let again = run(straingauge(["report", "--json"]).arg(&out)).exits_with(0).json();
    assert_eq!(again["comparison"]["repeats"], 2);
    assert!(again["price"]["own_cpus"]["value"].as_f64().is_some_and(|cpus| cpus > 0.0), "{}", again["price"]);
    let page = std::fs::read_to_string(out.join("report.html")).expect("the report");
    assert!(page.contains("The price of the command"), "the page shows it");
    assert_eq!(processes_of(dir.path()), Vec::<i32>::new(), "nothing is left");
}

#[test]
fn the_price_of_straingauge_watch_is_measured() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "counting connections needs root");
    let dir = open_dir();
    priced(&mut find(dir.path(), "straingauge watch :PORT --detail zero", "auto"));
    let with = loads(&dir.path().join("run/with"));
    assert!(with.iter().all(|point| figure(point, "beside.processes").is_some_and(|count| count >= 1.0)), "{with:#?}");
    let log = std::fs::read_to_string(dir.path().join("run/with/beside.log")).expect("its output");
    assert!(!log.contains("straingauge: "), "it watched: {log}");
}

#[test]
fn a_running_server_can_be_priced_and_a_sleeping_command_uses_no_cpu() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let mut command = straingauge(["find", &server.url("1k.bin"), "--quiet", "--beside", "sleep 60"]);
    command.args([
        "--set",
        "find.settle=100ms",
        "--max-connections",
        "1",
        "--repeats",
        "2",
        "--budget",
        "60s",
        "--json",
    ]);
    let price = priced(command.args(["--duration", "100ms", "--out"]).arg(&out)).json()["price"].clone();
    assert_eq!(price["command"], "sleep 60");
    // The command slept in all windows.
    assert!(price["own_cpus"]["value"].as_f64().is_some_and(|cpus| cpus < 0.01), "{price:#}");
    assert_eq!(price["own_cpus"]["n"], 2);
    let log = out.join("with/beside.log");
    assert_eq!(std::fs::read(log).expect("its output is kept").len(), 0);
}

/// A command that ends during the second load that it accompanies.
fn soon_enough(dir: &Path) -> String {
    let first = dir.join("run/with/points/000/point.json");
    format!("sh -c 'until [ -e {} ]; do sleep 0.02; done; echo it has had enough; exit 7'", first.display())
}

#[test]
fn the_command_runs_on_the_servers_machine() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let agent = agent(dir.path());
    priced(&mut find_elsewhere(dir.path(), &agent));
    let out = dir.path().join("run");
    let (without, with) = (loads(&out), loads(&out.join("with")));
    assert_eq!((without.len(), with.len()), (4, 4));
    for point in &without {
        assert_eq!(figure(point, "beside.cpus_used"), None, "nothing runs beside it");
        assert!(figure(point, "server.cpus_used").is_some() && figure(point, "worker.1.share").is_some(), "{point:#}");
    }
    has_worked(&with);
    what_the_agent_knew(&out);
    assert_eq!(processes_of(dir.path()), Vec::<i32>::new(), "nothing is left");
    for (beside, wanted) in [
        (|_: &Path| "no-such-program-anywhere".into(), "was not found"),
        (soon_enough, "exited with code 7, saying: it has had enough at "),
    ] as [(fn(&Path) -> String, &str); 2]
    {
        let dir = open_dir();
        let beside = beside(dir.path());
        run(&mut find_elsewhere(dir.path(), &beside)).exits_with(1).complains_of(&["--beside", wanted]);
        assert_eq!(loads(&dir.path().join("run")).len(), 2, "the first turn of the server alone");
    }
}

#[test]
fn a_command_that_fails_is_reported_in_a_sentence_and_the_points_are_kept() {
    needs_server!(Kind::Nginx);
    let all = [
        (soon_enough, "exited with code 7, saying: it has had enough at "),
        (|_: &Path| "no-such-program-anywhere".into(), "was not found"),
        (|_: &Path| "sh -c 'echo it cannot attach >&2; exit 3'".into(), "exited with code 3, saying: it cannot attach"),
    ] as [(fn(&Path) -> String, &str); 3];
    for (beside, wanted) in all.into_iter().take(if long_run() { 3 } else { 1 }) {
        let dir = open_dir();
        let said =
            run(&mut find(dir.path(), &beside(dir.path()), "auto")).exits_with(1).complains_of(&["--beside", wanted]);
        let out = dir.path().join("run");
        assert!(said.err.contains("are kept in"), "{}", said.err);
        assert_eq!(loads(&out).len(), 2, "the first turn of the server alone");
        assert_eq!(run_record(&out)["status"], "interrupted");
        if let Some((_, line)) = wanted.split_once("saying: ") {
            let log = std::fs::read_to_string(out.join("with/beside.log")).expect("what it printed is kept");
            assert!(log.contains(line.trim_end_matches(" at ")), "{log}");
        }
        let again = run(straingauge(["report"]).arg(&out)).exits_with(0);
        assert!(again.flat().contains("No price") || again.flat().contains("Could not tell"), "{}", again.out);
        assert_eq!(processes_of(dir.path()), Vec::<i32>::new());
    }
}

/// A command that leaves a daemon in a session of its own and ignores polite signals.
fn stubborn(dir: &Path) -> String {
    let script = dir.join("agent");
    let text = "trap '' TERM\n[ \"$1\" = daemon ] || setsid sh \"$0\" daemon &\nwhile :; do sleep 0.1; done\n";
    std::fs::write(&script, text).expect("a temporary folder");
    format!("sh {}", script.display())
}

#[test]
fn ctrl_c_and_kill_9_end_the_command_and_its_children() {
    needs_server!(Kind::Nginx);
    let all = [(libc::SIGKILL, "auto"), (libc::SIGINT, "auto"), (libc::SIGKILL, "never"), (libc::SIGKILL, "elsewhere")];
    for (signal, isolate) in all.into_iter().take(if long_run() { 4 } else { 1 }) {
        let dir = open_dir();
        let beside = stubborn(dir.path());
        let script = dir.path().join("agent");
        let mut command = match isolate {
            "elsewhere" => find_elsewhere(dir.path(), &beside),
            _ => find(dir.path(), &beside, isolate),
        };
        let with = dir.path().join("run/with");
        let mut running = Running::start(&mut command);
        running.wait_until("a point with the command", || !points(&with).is_empty());
        // straingauge and its guardian also have the script in their arguments.
        assert!(processes_of(&script).len() >= 3, "{:?}", processes_of(&script));
        running.signal(signal);
        let code = running.wait().code;
        assert_eq!(code, if signal == libc::SIGINT { Some(130) } else { None });
        let started = Instant::now();
        while !processes_of(&script).is_empty() && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(processes_of(&script), Vec::<i32>::new(), "{signal} {isolate}");
        if signal == libc::SIGKILL && isolate == "auto" {
            // The next run ends the server in the namespaces of a killed one.
            run(straingauge(["load", "http://127.0.0.1:1/"]).current_dir(dir.path())).exits_with(1);
        }
    }
}

#[test]
fn impossible_commands_are_refused_before_measuring() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    for (options, wanted) in [
        (&["--beside", ""][..], &["--beside", "not a command"][..]),
        (&["--beside", "sleep 'open"], &["--beside", "not a command"]),
        (&["--beside", "sleep 9", "--compare-with", "scale"], &["--beside", "--compare-with"]),
        (&["--beside", "sleep 9", "--axis", "cold"], &["--beside", "--axis"]),
        (&["--beside", "sleep 9", "--sweep", "rate"], &["--beside", "--sweep"]),
        (&["--beside", "sleep 9", "--fail-if", "plan < 4"], &["--beside"]),
        (&["--set", "find.settle=1s"], &["--beside"]),
        (&["--threshold", "1%"], &["--beside"]),
        (&["--beside", "sleep 9", "--threshold", "5"], &["--threshold", "500%"]),
        (&["--compare-with", "sleep 9", "--threshold", "1"], &["--threshold 100%", "5% or 0.05"]),
        (&["--set", "find.error-limit=1"], &["error-limit of [find]", "5% or 0.05"]),
    ] {
        let mut command = straingauge(["find", &url]);
        run(command.args(options).args(["--", "sleep", "9"])).exits_with(2).complains_of(wanted);
    }
}
