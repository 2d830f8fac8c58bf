//! Faults of workers, each reported in one clear sentence: hung, slow, flooding, disconnected, out of descriptors, an
//! impossible clock, a failing ssh, a full disk; also `find` over several workers.

use crate::bad_input::unshared;
use crate::rig::{
    Running, Said, free_port, member, needs_server, open_dir, points, program, run, run_record, skip_unless, skipped,
    straingauge,
};
use crate::server::{Kind, Server};
use crate::workers::{doubt_kinds, from, hello, worker};
use serde_json::Value;

/// A worker as a shell script: it says hello, answers pings with this clock, and reports ready after a plan.
fn made_of_shell(clock: u64) -> String {
    format!(
        r#"echo '{}'
        while read -r line; do
          case $line in
            *'"ping"'*)
              sent=${{line##*:}}
              echo "{{\"type\":\"pong\",\"sent_ns\":${{sent%\}}}},\"clock_ns\":{clock}}}" ;;
            *'"plan"'*) echo '{{"type":"ready"}}' ;;
          esac
        done"#,
        hello(env!("CARGO_PKG_VERSION"))
    )
}

#[test]
fn ctrl_c_while_a_log_is_sent_to_workers_is_an_interruption() {
    let folder = open_dir();
    let (log, given) = (folder.path().join("access.log"), folder.path().join("given"));
    let line = "10.0.0.1 - - [17/May/2015:10:00:00 +0000] \"GET /1k.bin HTTP/1.1\" 200 1024\n";
    std::fs::write(&log, line.repeat(40)).expect("a file in a temporary folder");
    // The worker keeps no piece of the file.
    let keeps = format!(r#"*'"input"'*) : > '{}' ;;"#, given.display());
    let never = made_of_shell(0).replace(r#"*'"plan"'*)"#, &format!(r#"{keeps} *'"plan"'*)"#));
    let mut load = from(&[&never], &["http://127.0.0.1:9/", "--trace"]);
    let mut driver = Running::start(load.arg(&log));
    driver.wait_until("a piece of the log was sent", || given.exists());
    driver.signal(libc::SIGINT);
    driver.wait().exits_with(130).complains_of(&["interrupted while the clients were given the file"]);
}

/// A load on nginx by a good worker and this one.
fn beside(bad: &str, duration: &str, connections: &str) -> Option<Said> {
    if let Some(why) = Kind::Nginx.missing() {
        crate::rig::skipped(&why);
        return None;
    }
    let server = Server::start(Kind::Nginx);
    let (url, worker) = (server.url("1k.bin"), worker());
    Some(run(&mut from(&[&worker, bad], &[&url, "--duration", duration, "--connections", connections])))
}

#[test]
fn a_hanging_worker_is_given_up_after_its_lease() {
    let hung = format!("(sleep 1; kill -STOP $$) & {}", worker());
    let Some(said) = beside(&hung, "60s", "4") else { return };
    let said = said.exits_with(1).complains_of(&["client 2", "was lost", "silent for 5 s"]);
    assert!(doubt_kinds(&said.json()).contains(&"worker-lost".to_string()));
    // The other worker was stopped, not waited for.
    assert!(said.json()["point"]["duration_ns"].as_u64().unwrap() < 50_000_000_000, "{}", said.out);
}

#[test]
fn a_worker_that_lost_its_driver_counts_as_lost() {
    let deaf = format!(r#"sed -u '/"type":"start"/q' | ({})"#, worker());
    let Some(said) = beside(&deaf, "3s", "4") else { return };
    let said = said.exits_with(1).complains_of(&["client 2", "was lost", "it stopped by itself"]);
    assert!(doubt_kinds(&said.json()).contains(&"worker-lost".to_string()), "{}", said.out);
}

/// The remaining lines of the script, which delays each result by a second.
const LATE_RESULT: &str = r#"while IFS= read -r line; do
    case $line in *'"type":"result"'*) sleep 1 ;; esac
    printf '%s\n' "$line"
  done"#;

#[test]
fn a_worker_that_ends_after_its_result_counts_completely() {
    let ends = format!(r#"({}) | {{ sed -u '/"type":"result"/q'; kill -9 $$; }}"#, worker());
    let late = format!("({}) | {LATE_RESULT}", worker());
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let json = run(&mut from(&[&ends, &late], &[&server.url("1k.bin"), "--duration", "300ms", "--connections", "4"]))
        .exits_with(0)
        .json();
    let rate = |name: &str| json["point"]["figures"][name]["value"].as_f64();
    let sum = rate("worker.1.throughput_per_sec").zip(rate("worker.2.throughput_per_sec")).map(|(one, two)| one + two);
    assert!(sum.is_some() && rate("client.throughput_per_sec").is_some(), "{json:#}");
    assert!(!doubt_kinds(&json).contains(&"worker-lost".to_string()), "{json:#}");
}

#[test]
fn a_worker_that_is_cut_off_during_a_load_is_reported_as_lost() {
    needs_server!(Kind::Nginx);
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let (url, out, bad) =
        (server.url("1k.bin"), dir.path().join("run"), format!("({}) | {{ sed -u 12q; kill -9 $$; }}", worker()));
    let mut load = from(&[&worker(), &bad], &[&url, "--duration", "60s", "--connections", "4"]);
    run(load.arg("--out").arg(&out)).exits_with(1).complains_of(&["client 2", "was lost", "it ended"]);
    was_cut_short(&out, "client 2");
}

/// Asserts that the run is kept, and that its record says why it ended.
fn was_cut_short(out: &std::path::Path, why: &str) {
    let record = run_record(out);
    assert_eq!(record["status"], "interrupted");
    assert!(record["ended_by"].as_str().is_some_and(|said| said.contains(why)), "{record:#}");
}

/// A server that ends after 5 responses, which happens in any window.
const MORTAL: &str = r"
import os, socket, sys
listener, answers = socket.create_server(('127.0.0.1', int(sys.argv[1]))), 0
while True:
    connection, _ = listener.accept()
    while connection.recv(65536):
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
        answers += 1
        if answers == 5:
            os._exit(int(sys.argv[2]))
";

/// A server that also leaves the port to another process before it ends.
const YIELDING: &str = r"
import os, socket, sys, time
port, answers = int(sys.argv[1]), 0
listener = socket.create_server(('127.0.0.1', port))
while answers < 5:
    connection, _ = listener.accept()
    while answers < 5 and connection.recv(65536):
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
        answers += 1
listener.close()
while True:
    try:
        socket.create_connection(('127.0.0.1', port)).close()
        os._exit(3)
    except OSError:
        time.sleep(0.01)
";
/// The other process: it waits for the server, then for its port.
const OTHER: &str = r"
import socket, sys, time
port = int(sys.argv[1])
def until_it_works(what):
    while True:
        try:
            return what(('127.0.0.1', port))
        except OSError:
            time.sleep(0.01)
until_it_works(socket.create_connection).close()
listener = until_it_works(socket.create_server)
time.sleep(600)
";

#[test]
fn a_load_whose_server_ends_is_kept_as_interrupted() {
    for (code, isolate) in [("3", "never"), ("0", "never"), ("0", "auto")] {
        let (dir, port) = (open_dir(), free_port().to_string());
        let out = dir.path().join("run");
        run(mortal_load(&port, isolate).arg("--out").arg(&out).args(["--", "python3", "-c", MORTAL, &port, code]))
            .exits_with(1)
            .complains_of(&[&format!("code {code}"), "the figures end there"]);
        was_cut_short(&out, &format!("code {code}"));
        let window_ns = points(&out)[0]["duration_ns"].as_u64().expect("a number");
        assert!(window_ns < 30_000_000_000, "it went on for {window_ns} ns without a server");
    }
}

fn mortal_load(port: &str, isolate: &str) -> std::process::Command {
    let mut load =
        straingauge(["load", &format!("http://127.0.0.1:{port}/"), "--connections", "1", "--duration", "60s"]);
    load.args(["--warmup", "0s", "--quiet", "--isolate", isolate]);
    load
}

#[test]
fn another_process_that_took_the_servers_port_is_not_ended() {
    let port = free_port().to_string();
    let mut other = std::process::Command::new("python3").args(["-c", OTHER, &port]).spawn().expect("python3");
    run(mortal_load(&port, "never").args(["--", "python3", "-c", YIELDING, &port])).exits_with(1);
    let ended = other.try_wait().expect("it is a child");
    let _ = other.kill();
    let _ = other.wait();
    assert_eq!(ended, None);
}

#[test]
fn workers_on_the_machine_of_a_started_server_raise_a_doubt() {
    let (worker, port) = (worker(), free_port().to_string());
    let url = format!("http://127.0.0.1:{port}/");
    let mut load = from(&[&worker, &worker], &[&url, "--duration", "300ms", "--connections", "2"]);
    let said = run(load.args(["--", "python3", "-m", "http.server", "--bind", "127.0.0.1", &port])).exits_with(0);
    assert!(doubt_kinds(&said.json()).contains(&"shared-cpus".to_string()), "{}", said.out);
}

#[test]
fn a_worker_that_floods_before_its_hello_is_refused_at_once() {
    let flood = "yes '{\"type\":\"progress\",\"connected\":1,\"completed\":1,\"failed\":0,\"throughput_per_sec\":1.0}'";
    let said = run(&mut from(&[flood], &["http://127.0.0.1:9/", "--connections", "4"]));
    said.exits_with(1).complains_of(&["client 1", "not a hello"]);
}

#[test]
fn a_result_that_does_not_add_up_is_refused() {
    let lying = format!("({}) | sed -u 's/\"ok\":[0-9]*/\"ok\":1000000000/'", worker());
    let Some(said) = beside(&lying, "300ms", "4") else { return };
    let said = said.exits_with(1).complains_of(&["client 2", "was lost", "add up to 1000000000"]);
    assert!(member(&said.json(), "outcomes")["ok"].as_u64().unwrap() < 1_000_000_000, "{}", said.out);
}

#[test]
fn a_workers_error_output_is_bounded_and_has_its_name() {
    let noisy = r"printf 'dark\033[8m\007\n' >&2; seq 100000 >&2; exit 7";
    let said = run(&mut from(&[noisy], &["http://127.0.0.1:9/", "--connections", "4"])).exits_with(1);
    assert!(said.err.starts_with("client 1: dark?[8m?\n") && said.err.lines().count() < 60, "{}", said.err);
    assert!(!said.err.chars().any(|letter| letter.is_control() && letter != '\n'), "{}", said.err);
    assert!(said.err.contains("is not shown") && said.err.contains("exit status: 7"), "{}", said.err);
}

#[test]
fn a_worker_with_an_impossible_clock_is_lost() {
    let Some(said) = beside(&made_of_shell(u64::MAX), "1s", "4") else { return };
    said.exits_with(1).complains_of(&["client 2", "clock cannot be compared"]);
}

#[test]
fn a_slow_connection_raises_a_doubt_about_the_start() {
    // Each message is 20 ms late, so the clock is known to 10 ms at best.
    let slow = format!("while read -r line; do sleep 0.02; printf '%s\\n' \"$line\"; done | {}", worker());
    let Some(said) = beside(&slow, "500ms", "4") else { return };
    let json = said.exits_with(0).json();
    assert!(doubt_kinds(&json).contains(&"clock-offset".to_string()), "{json:#}");
    let figure = |what: &str| json["point"]["figures"][format!("worker.2.{what}")]["value"].as_f64().unwrap();
    assert!(figure("clock_uncertainty_us") >= 10_000.0, "{json:#}");
    // Both share one clock, so the error must be within the estimate's uncertainty.
    assert!(figure("clock_offset_us").abs() <= figure("clock_uncertainty_us") + 1.0, "{json:#}");
}

#[test]
fn a_worker_without_enough_descriptors_refuses_its_share_with_a_reason() {
    let poor = format!("ulimit -n 60; {}", worker());
    let Some(said) = beside(&poor, "500ms", "200") else { return };
    said.exits_with(1).complains_of(&["client 2", "it refused", "descriptor"]);
}

#[test]
fn an_unreachable_machine_is_named_with_its_command() {
    let ssh = crate::rig::program("ssh");
    skip_unless!(ssh.is_some(), "ssh is not installed (apt-get install openssh-client)");
    let command = "ssh -F none -o BatchMode=yes -o ConnectTimeout=5 -p 1 127.0.0.1 straingauge load --worker";
    let said = run(&mut from(&[command], &["http://127.0.0.1:9/", "--connections", "4"]));
    let said = said.exits_with(1).complains_of(&["client 1 (ssh ", "cannot be used", "exit status: 255"]);
    // ssh's own message precedes it.
    assert!(said.err.contains("refused"), "{}", said.err);
}

#[test]
fn a_full_disk_of_the_driver_is_reported_and_ends_the_workers() {
    needs_server!(Kind::Nginx);
    skip_unless!(crate::rig::is_root(), "needs root, to mount a small tmpfs in a mount namespace of its own");
    skip_unless!(crate::rig::program("unshare").is_some(), "unshare is not installed (apt-get install util-linux)");
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let (url, worker, disk) = (server.url("1k.bin"), worker(), folder.path().display().to_string());
    // There is room for run.json only.
    let line = format!("mount -t tmpfs -o size=8k tmpfs '{disk}' || exit 99; exec \"$@\"");
    let out = format!("{disk}/run");
    let clients = ["load", &url, "--client", &worker, "--client", &worker, "--out", &out];
    let mut command = unshared(&line, &clients);
    command.args(["--connections", "4", "--duration", "300ms", "--warmup", "0s", "--quiet"]);
    run(&mut command).exits_with(1).complains_of(&["disk is full", "--out"]);
    let left = crate::rig::processes_of(folder.path());
    assert!(left.is_empty(), "{left:?}");
}

fn small_find(url: &str, out: &str, clients: &[&str], more: &[&str]) -> std::process::Command {
    let mut command =
        straingauge(["find", url, "--out", out, "--sweep", "connections", "--repeats", "1", "--quiet", "--json"]);
    command.args([
        "--duration",
        "300ms",
        "--warmup",
        "50ms",
        "--max-connections",
        "16",
        "--budget",
        "8s",
        "--profile",
        "never",
    ]);
    for client in clients {
        command.args(["--client", client]);
    }
    command.args(more);
    command
}

#[test]
fn find_over_workers_leaves_a_run_like_that_of_one_machine() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let (worker, out) = (worker(), folder.path().join("run"));
    let mut find = small_find(&server.url("1k.bin"), out.to_str().unwrap(), &[&worker, &worker], &[]);
    let json = run(&mut find).exits_with(0).json();
    assert_eq!(run_record(&out)["status"], "complete");
    assert!(member(&json, "headline").is_string(), "{json:#}");
    let points = points(&out);
    let shared: Vec<_> = points.iter().filter(|point| point["connections"].as_u64().unwrap() >= 2).collect();
    assert!(!shared.is_empty(), "{}", points.len());
    for point in shared {
        let done = |number: u32| point["figures"][format!("worker.{number}.throughput_per_sec")]["n"].as_u64().unwrap();
        let in_window = point["figures"]["client.throughput_per_sec"]["n"].as_u64().unwrap();
        assert!(done(1) > 0 && done(2) > 0 && done(1) + done(2) == in_window, "{point:#}");
    }
    assert!(out.join("report.html").exists());
}

#[test]
fn a_stalling_worker_gets_a_smaller_share_of_the_next_points() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let (worker, out) = (worker(), folder.path().join("run"));
    // The worker is stopped for a tenth of each third of a second.
    let stalls = format!("(while sleep 0.2 && kill -STOP $$; do sleep 0.1; kill -CONT $$; done) & {worker}");
    let mut find =
        straingauge(["find", &server.url("1k.bin"), "--axis", "rate", "--axis-values", "200,220,240,260,280"]);
    find.args([
        "--connections",
        "16",
        "--duration",
        "700ms",
        "--warmup",
        "50ms",
        "--repeats",
        "1",
        "--profile",
        "never",
    ]);
    find.args(["--quiet", "--client", &worker, "--client", &stalls, "--out", out.to_str().unwrap()]);
    run(&mut find).exits_with(0);
    let points = points(&out);
    let share = |point: &Value| point["figures"]["worker.2.share"]["value"].as_f64().unwrap();
    assert_eq!(share(&points[0]), 0.5, "{:#}", points[0]);
    let is_marked = |point: &&Value| {
        let doubts = point["doubts"].as_array().unwrap().iter();
        let mut moved = doubts.filter(|doubt| doubt["kind"] == "shares-moved");
        moved.any(|doubt| doubt["what"].to_string().contains("client 2"))
    };
    let marked = points.iter().find(is_marked).unwrap_or_else(|| panic!("{points:#?}"));
    assert!(share(marked) < 0.5, "{marked:#}");
}

#[test]
fn two_servers_are_compared_over_workers() {
    let Some(redis) = program("redis-server") else { return skipped("there is no redis-server") };
    let (folder, worker, port) = (open_dir(), worker(), free_port().to_string());
    let out = folder.path().join("run");
    let words = [redis.to_str().unwrap(), "--port", &port, "--bind", "127.0.0.1", "--save", "''"];
    let with = format!("{} --maxclients 500", words.join(" "));
    let more = ["--compare-with", &with, "--max-connections", "2", "--repeats", "2", "--budget", "60s", "--"];
    let more = [&more[..], &words[..6], &[""]].concat();
    let mut find =
        straingauge(["find", &format!("redis://127.0.0.1:{port}"), "--client", &worker, "--client", &worker]);
    find.args([
        "--out",
        out.to_str().unwrap(),
        "--profile",
        "never",
        "--duration",
        "200ms",
        "--warmup",
        "50ms",
        "--quiet",
    ]);
    let said = run(find.args(more));
    assert!(matches!(said.code, Some(0 | 3 | 4)) && said.out.contains("B / A"), "{}{}", said.out, said.err);
    for side in [out.clone(), out.join("with")] {
        assert_eq!(run_record(&side)["status"], "complete");
        let points = points(&side);
        let shared: Vec<_> = points.iter().filter(|point| point["connections"] == 2).collect();
        assert!(!shared.is_empty(), "{points:#?}");
        for number in 1..=2 {
            // On a busy machine, a short window may have no request of one worker, but not of both.
            let figure =
                |point: &&Value| point["figures"][format!("worker.{number}.throughput_per_sec")]["value"].as_f64();
            let all: Vec<Option<f64>> = shared.iter().map(figure).collect();
            assert!(all.iter().all(Option::is_some) && all.iter().any(|rate| *rate > Some(0.0)), "{number}: {all:?}");
        }
    }
}

#[test]
fn find_that_loses_a_worker_keeps_the_points_until_then() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let (worker, out) = (worker(), folder.path().join("run"));
    let point = out.join("points/000");
    let killed = format!("(until [ -e '{}' ]; do sleep 0.05; done; kill -9 $$) & {worker}", point.display());
    let mut find = small_find(&server.url("1k.bin"), out.to_str().unwrap(), &[&worker, &killed], &[]);
    run(&mut find).exits_with(1).complains_of(&["client 2", "was lost", "are kept in"]);
    assert_eq!(run_record(&out)["status"], "interrupted");
    assert!(!points(&out).is_empty() && out.join("report.html").exists());
}
