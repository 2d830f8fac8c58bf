//! `straingauge wan`, and the path of `load` and `find`: what users see, and complete removal.

use crate::leftovers::guardians_of;
use crate::rig::{
    Running, free_port, is_root, member, needs_server, open_dir, points, run, run_record, skip_unless, straingauge,
};
use crate::server::{Kind, serve_words};
use std::path::Path;
use std::time::{Duration, Instant};

fn wan(arguments: &[&str]) -> crate::rig::Said {
    run(&mut straingauge(["wan"].iter().chain(arguments)))
}

#[test]
fn wan_passes_the_exit_code_on() {
    skip_unless!(is_root(), "network namespaces need root");
    wan(&["--", "sh", "-c", "exit 7"]).exits_with(7);
    wan(&["--delay", "1ms", "--", "true"]).exits_with(0);
    wan(&["--", "sh", "-c", "kill -TERM $$"]).exits_with(128 + libc::SIGTERM);
}

#[test]
fn wan_leaves_the_terminal_output_to_the_command() {
    skip_unless!(is_root(), "network namespaces need root");
    let said = wan(&["--delay", "2ms", "--loss", "1%", "--", "sh", "-c", "echo $STRAINGAUGE_SERVER"]).exits_with(0);
    assert_eq!(said.out, "198.18.0.1\n");
    assert!(said.err.contains("2.00 ms each way (round trip 4.00 ms), loss 1 %"), "{}", said.err);
    assert!(said.err.contains("self-test: round trip"), "{}", said.err);
    let quiet = wan(&["--delay", "2ms", "--quiet", "--json", "--", "true"]).exits_with(0);
    let value: serde_json::Value = serde_json::from_str(quiet.err.lines().last().unwrap_or("")).expect("JSON");
    assert_eq!(value["path"]["delay_ns"], 2_000_000);
    assert!(value["self_test"]["round_trip_us"].as_f64().is_some_and(|us| us >= 3_900.0), "{value:#}");
}

/// Python measures how long a connect takes, independently of straingauge.
const CONNECT: &str = "import socket, time, sys
began = time.monotonic()
socket.create_connection(('198.18.0.1', int(sys.argv[1])))
print(time.monotonic() - began)";

#[test]
fn wan_reaches_the_server_at_the_other_end_after_a_round_trip() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Python);
    let server = "exec python3 -m http.server 8080 --bind 0.0.0.0";
    let said = wan(&["--delay", "30ms", "--server", server, "--", "python3", "-c", CONNECT, "8080"]).exits_with(0);
    let seconds: f64 = said.out.trim().parse().expect("a number");
    assert!(seconds >= 0.0597, "a handshake over 30 ms each way took {seconds} s");
}

#[test]
fn a_local_server_on_the_same_port_is_not_mistaken_for_the_remote_one() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Python);
    let here = "python3 -m http.server 8080 --bind 127.0.0.1 >/dev/null 2>&1 & \
        until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8080))' 2>/dev/null; do sleep 0.05; \
                done; ";
    let server = "exec python3 -m http.server 8080 --bind 0.0.0.0 2>/dev/null";
    let then = |command: &str| {
        let program = env!("CARGO_BIN_EXE_straingauge");
        let line = format!("{here} '{program}' {command}; code=$?; kill $!; exit $code");
        wan(&["--quiet", "--server", server, "--", "sh", "-c", &line])
    };
    let said = then("load http://198.18.0.1:8080/ --warmup 0s --duration 300ms --detail counts --json").exits_with(0);
    let json = said.json();
    assert!(json.to_string().contains("198.18.0.1 is not an address of this machine"), "{json:#}");
    for figure in ["server.cpu_us_per_request", "server.cpus_used", "watch.requests"] {
        assert!(member(&json, "figures")[figure]["value"].is_null(), "{figure}: {json:#}");
    }
    let folder = open_dir();
    let find = format!(
        "find http://198.18.0.1:8080/ --budget 5s --quiet --profile always --out {}/run",
        folder.path().display()
    );
    then(&find).exits_with(1).complains_of(&["--profile always", "not an address of this machine"]);
    let axis = format!(
        "find http://198.18.0.1:8080/ --budget 5s --quiet --axis time-wait --axis-values 0,10 --connections 2 --out \
         {}/tw",
        folder.path().display()
    );
    then(&axis).exits_with(1).complains_of(&["TIME_WAIT", "not an address of this machine"]);
}

#[test]
fn wan_reports_impossible_options() {
    wan(&["--delay", "8760h", "--", "true"]).exits_with(2).complains_of(&["delay", "too long", "10.0 s"]);
    wan(&["--loss", "150%", "--", "true"]).exits_with(2).complains_of(&["--loss", "150%"]);
    wan(&["--loss", "-1%", "--", "true"]).exits_with(2).complains_of(&["-1%", "not a share"]);
    wan(&["--bandwidth", "0", "--", "true"]).exits_with(2).complains_of(&["bandwidth of 0 bit/s"]);
    wan(&["--bandwidth", "100", "--", "true"]).exits_with(2).complains_of(&["100", "100Mbit"]);
    wan(&["--delay", "20ms"]).exits_with(2).complains_of(&["needs a command"]);
    skip_unless!(is_root(), "network namespaces need root");
    wan(&["--quiet", "--", "no-such-program"]).exits_with(1).complains_of(&["'no-such-program' was not found"]);
    wan(&["--quiet", "--server", "exit 3", "--", "true"]).exits_with(1).complains_of(&["ended", "3", "listened"]);
    wan(&["--quiet", "--server", "sleep 60", "--server-timeout", "200ms", "--", "true"])
        .exits_with(1)
        .complains_of(&["does not listen on any port", "--server-timeout"]);
}

#[test]
fn wan_does_not_accept_a_server_that_listens_only_on_loopback() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Python);
    let server = "exec python3 -m http.server 8080 --bind 127.0.0.1";
    wan(&["--quiet", "--server", server, "--server-timeout", "2s", "--", "true"])
        .exits_with(1)
        .complains_of(&["only on loopback (127.0.0.1:8080)", "0.0.0.0"]);
}

#[test]
fn wan_reports_that_the_server_died_while_the_command_ran() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Python);
    let server = "exec python3 -c 'import socket, sys; socket.create_server((\"\", 8080)).accept(); sys.exit(3)'";
    // The process waits until the other end closes, and some time more.
    let command = "import socket, time; socket.create_connection(('198.18.0.1', 8080)).recv(1); time.sleep(1)";
    let said = wan(&["--quiet", "--server", server, "--", "python3", "-c", command]).exits_with(0);
    assert!(said.err.contains("ended (exit status: 3) while COMMAND ran"), "{}", said.err);
}

#[test]
fn wan_without_privileges_says_how_to_get_them() {
    skip_unless!(is_root(), "only root can give its privileges up");
    skip_unless!(crate::rig::program("setpriv").is_some(), "setpriv is not installed (apt-get install util-linux)");
    let line = "exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all \"$@\"";
    // Other users may not be able to enter the build folder, so the program is copied.
    let dir = open_dir();
    let copy = dir.path().join("straingauge");
    std::fs::copy(env!("CARGO_BIN_EXE_straingauge"), &copy).expect("the program is copied");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", line, "sh"]).arg(&copy).args(["wan", "--delay", "1ms", "--", "true"]).current_dir("/");
    run(&mut command).exits_with(1).complains_of(&["need root", "CAP_NET_ADMIN"]);
}

/// Processes whose command line contains these words.
fn processes_with(words: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(words) && !line.contains("straingauge wan"))
        .collect()
}

#[track_caller]
fn all_end(words: &str) {
    let began = Instant::now();
    while !processes_with(words).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "left behind: {:?}", processes_with(words));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn wan_ends_all_its_processes_on_a_signal() {
    skip_unless!(is_root(), "network namespaces need root");
    // The number distinguishes the command line from that of other tests.
    let server = "sleep 86411 & python3 -c 'import socket, time; s = socket.socket(); s.bind((\"\", 7)); s.listen(); \
                  time.sleep(86411)'";
    let mut running =
        Running::start(&mut straingauge(["wan", "--delay", "1ms", "--server", server, "--", "sleep", "86410"]));
    running.wait_until("the command runs", || !processes_with("sleep 86410").is_empty());
    running.signal(libc::SIGTERM);
    running.wait().exits_with(128 + libc::SIGTERM);
    for words in ["sleep 86410", "sleep 86411", "time.sleep(86411)"] {
        assert_eq!(processes_with(words), Vec::<String>::new(), "at once, not later");
    }
}

#[track_caller]
fn wait_for_words(running: &Running, words: &str) {
    let began = Instant::now();
    while !running.complained().contains(words) {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", running.complained());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn wan_interrupted_while_building_the_path_runs_no_command() {
    skip_unless!(is_root(), "network namespaces need root");
    let dir = open_dir();
    let mut command = straingauge(["wan", "--delay", "50ms", "--", "touch", "ran"]);
    let running = Running::start(command.current_dir(dir.path()));
    // The test of the path follows.
    wait_for_words(&running, "path: ");
    running.signal(libc::SIGINT);
    let said = running.wait().exits_with(130);
    assert!(said.err.contains("straingauge: interrupted while the path was built"), "{}", said.err);
    assert!(!dir.path().join("ran").exists(), "the command was run all the same");
}

#[test]
fn wan_interrupted_in_the_self_test_cuts_it_short() {
    skip_unless!(is_root(), "network namespaces need root");
    let running = Running::start(&mut straingauge(["wan", "--delay", "5s", "--", "true"]));
    wait_for_words(&running, "path: ");
    running.signal(libc::SIGINT);
    let said = running.wait().exits_with(130);
    // The pings would have taken ten seconds, and the result would be reported.
    assert!(!said.err.contains("self-test"), "{}", said.err);
}

#[test]
fn wan_leaves_no_remains_after_kill_9() {
    skip_unless!(is_root(), "network namespaces need root");
    let daemons = "setsid sleep 86413 & setsid sleep 86413 & exec sleep 86412";
    let mut running = Running::start(&mut straingauge(["wan", "--delay", "1ms", "--", "sh", "-c", daemons]));
    let pid = running.pid();
    running.wait_until("the command runs", || processes_with("sleep 86413").len() >= 2);
    running.wait_until("it is guarded", || !guardians_of(pid).is_empty());
    running.signal(libc::SIGKILL);
    let _ = running.wait();
    // No other run cleans up.
    all_end("sleep 86412");
    all_end("sleep 86413");
}

#[test]
fn wan_leaves_no_server_after_kill_9_before_the_command_runs() {
    skip_unless!(is_root(), "network namespaces need root");
    let server = "setsid sleep 86415 & exec sleep 86414";
    let mut running =
        Running::start(&mut straingauge(["wan", "--server", server, "--server-timeout", "100s", "--", "true"]));
    let pid = running.pid();
    running.wait_until("the server runs", || !processes_with("sleep 86415").is_empty());
    running.wait_until("it is guarded", || !guardians_of(pid).is_empty());
    running.signal(libc::SIGKILL);
    let _ = running.wait();
    all_end("sleep 86414");
    all_end("sleep 86415");
}

fn nginx_behind(options: &[&str], out: Option<&Path>) -> crate::rig::Said {
    let dir = open_dir();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["load", &url, "--warmup", "100ms", "--duration", "1s", "--json", "--quiet"]);
    command.args(options);
    if let Some(out) = out {
        command.arg("--out").arg(out);
    }
    command.arg("--").args(serve_words(Kind::Nginx, port, dir.path(), "0.0.0.0"));
    run(&mut command)
}

#[test]
fn load_over_a_path_allows_for_its_delay_and_says_so() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let said = nginx_behind(&["--delay", "10ms", "--set", "path.quickack=true", "--connections", "4"], Some(&out))
        .exits_with(0);
    let json = said.json();
    let value = |name: &str| member(&json, name)["value"].as_f64().unwrap_or_else(|| panic!("no {name}: {json:#}"));
    assert!(value("client.response_p50_us") >= 19_800.0, "a round trip takes 20 ms");
    assert!(value("path.packets") > 100.0);
    assert_eq!(member(&json, "path")["delay_ns"], 10_000_000);
    let record = run_record(&out);
    assert_eq!(record["scenario"]["path"]["delay_ns"], 10_000_000);
    assert_eq!(record["scenario"]["path"]["quickack"], true);
    assert!(record["server_facts"]["path"].as_str().is_some_and(|path| path.contains("10.0 ms each way")));
    let mechanism = record["scenario"]["path"]["mechanism"].as_str().unwrap_or_default().to_string();
    let lateness = &points(&out)[0]["figures"]["path.lateness_p99_us"];
    match mechanism.as_str() {
        "tun-delay-line" => assert!(lateness["value"].as_f64().is_some(), "{lateness}"),
        _ => assert!(lateness["not_measured"].as_str().is_some(), "{lateness}"),
    }
    let log = std::fs::read_to_string(out.join("points/000/latency.hlog")).expect("a latency log");
    assert_eq!(log.contains("Tag=path-lateness"), mechanism == "tun-delay-line");
}

#[test]
fn load_over_a_long_path_allows_for_the_whole_delay() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Nginx);
    // The warm-up of 100 ms is shorter than a round trip.
    let json = nginx_behind(&["--delay", "260ms", "--connections", "4"], None).exits_with(0).json();
    let p50_us = member(&json, "client.response_p50_us")["value"].as_f64().expect("answers");
    assert!(p50_us >= 520_000.0, "{p50_us}");
    assert_eq!(member(&json, "outcomes")["timeouts"].as_u64().unwrap_or(0), 0);
}

#[test]
fn find_varies_the_delay_up_to_a_long_one() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/128.bin");
    let mut command = straingauge(["find", &url, "--axis", "delay", "--axis-values", "0,300ms", "--connections", "4"]);
    command.args(["--duration", "300ms", "--repeats", "1", "--warmup", "50ms", "--out"]).arg(&out).arg("--");
    run(command.args(serve_words(Kind::Nginx, port, &state, "0.0.0.0"))).exits_with(0);
    let delayed = |point: &serde_json::Value| point["axis"]["value"] == 300_000_000.0;
    let points: Vec<serde_json::Value> = points(&out).into_iter().filter(delayed).collect();
    assert!(!points.is_empty());
    for point in points {
        assert!(point["figures"]["client.response_p50_us"]["value"].as_f64() >= Some(600_000.0), "{point:#}");
    }
}

#[test]
fn a_scenario_file_can_name_the_path() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let scenario = dir.path().join("path.toml");
    std::fs::write(&scenario, "[path]\ndelay = '5ms'\nloss = '0.5%'\nbandwidth = '50Mbit'\n").unwrap();
    let words = scenario.to_str().unwrap();
    let json = nginx_behind(&["--scenario", words, "--delay", "7ms"], None).exits_with(0).json();
    let path = member(&json, "path");
    assert_eq!((&path["delay_ns"], &path["loss_ratio"]), (&7_000_000.into(), &0.005.into()), "the command line wins");
    assert_eq!(path["bandwidth_bits_per_sec"], 50_000_000);
}

#[test]
fn a_path_without_a_place_is_refused() {
    let load = |more: &[&str]| {
        let url = format!("http://127.0.0.1:{}/", free_port());
        run(&mut straingauge(["load", &url, "--delay", "10ms"].iter().copied().chain(more.iter().copied())))
    };
    load(&[]).exits_with(2).complains_of(&["wide-area path", "-- SERVER"]);
    load(&["--isolate", "never", "--", "true"]).exits_with(2).complains_of(&["--isolate never", "wide-area path"]);
    load(&["--bandwidth", "0bit", "--", "true"]).exits_with(2).complains_of(&["bandwidth of 0"]);
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Python);
    let port = free_port().to_string();
    let url = format!("http://127.0.0.1:{port}/");
    let server = ["python3", "-m", "http.server", &port, "--bind", "127.0.0.1"];
    let mut command = straingauge(["load", &url, "--delay", "1ms", "--"]);
    command.args(server);
    run(&mut command).exits_with(1).complains_of(&["only on loopback", "0.0.0.0"]);
}

#[test]
fn find_varies_only_the_delay() {
    skip_unless!(is_root(), "network namespaces need root");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/128.bin");
    let mut command =
        straingauge(["find", &url, "--axis", "delay", "--axis-values", "0,2ms,8ms", "--connections", "7"]);
    command.args(["--duration", "500ms", "--repeats", "2", "--out"]).arg(&out).arg("--");
    let said = run(command.args(serve_words(Kind::Nginx, port, &state, "0.0.0.0"))).exits_with(0);
    let measured: Vec<serde_json::Value> = points(&out).into_iter().filter(|point| point["sweep"] == "axis").collect();
    assert!(measured.len() >= 6, "three delays, two repeats: {}", measured.len());
    for point in &measured {
        let delay_us = point["axis"]["value"].as_f64().expect("a value") / 1e3;
        let p50_us = point["figures"]["client.response_p50_us"]["value"].as_f64().expect("answers");
        assert!(p50_us >= 1.98 * delay_us, "p50 {p50_us} us over {delay_us} us each way");
        assert_eq!(point["connections"], 7);
    }
    assert!(said.flat().contains("8.00 ms"), "{}", said.out);
    let page = std::fs::read_to_string(out.join("report.html")).expect("report.html is there");
    assert!(page.contains("Axis: delay") && page.contains("<svg"), "the report draws it");
    let both = run(straingauge(["find", &url, "--axis", "delay", "--delay", "1ms"]).args(["--", "true"]));
    both.exits_with(2).complains_of(&["--axis delay", "--delay"]);
}
