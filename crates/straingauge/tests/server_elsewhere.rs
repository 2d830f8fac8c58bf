//! A server that is started on its own machine (`--server-with`): its facts, its isolation from the clients, and its
//! complete removal. The machine is a shell, or a network namespace of the test.

use crate::fleet_nodes::{Nodes, SERVER};
use crate::rig::{
    Running, free_port, is_root, needs_server, open_dir, points, processes_of, program, repository, run, run_record,
    skip_unless, straingauge,
};
use crate::server::{Kind, serve_words};
use crate::workers::Spoken;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Stands in for `ssh server`: a shell that finds straingauge.
fn elsewhere() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_straingauge"));
    format!("PATH={}:$PATH sh -c", program.parent().expect("it lies in a folder").display())
}

/// A load on nginx that a command starts as on another machine; returns the port and the command.
fn started_elsewhere(state: &Path, duration: &str) -> (u16, Command) {
    let port = free_port();
    let mut command = straingauge(["load", &format!("http://127.0.0.1:{port}/1k.bin"), "--server-with", &elsewhere()]);
    command.args(["--json", "--quiet", "--warmup", "0s", "--threads", "1", "--duration", duration, "--"]);
    command.arg(repository().join("testbed/serve")).args(["nginx", "--port", &port.to_string(), "--state"]).arg(state);
    (port, command)
}

fn accepts(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_server_is_started_watched_and_stopped_on_its_machine() {
    needs_server!(Kind::Nginx);
    let state = open_dir();
    let (port, mut command) = started_elsewhere(state.path(), "600ms");
    let json = run(&mut command).exits_with(0).json();
    let figure = |name: &str| json["point"]["figures"][name].clone();
    assert!(figure("server.cpu_us_per_request")["value"].as_f64().is_some_and(|us| us > 0.0), "{json:#}");
    assert!(figure("watcher.round_trip_us")["value"].is_number(), "by a watcher there: {json:#}");
    assert!(!accepts(port), "it lives on");
}

/// A server in Python that reports when it listens and exits after a number of requests. It closes each connection
/// after its response, which leaves its end in TIME_WAIT, and refuses a port with such sockets.
fn strict_server(dir: &Path, port: u16, requests: u64) -> Vec<String> {
    let script = dir.join("strict.py");
    let text = "import socket, sys\n\
        server = socket.socket()\n\
        server.bind(('127.0.0.1', int(sys.argv[1])))\n\
        server.listen(64)\n\
        print('it listens', flush=True)\n\
        left = int(sys.argv[2])\n\
        while left:\n\
        \x20   connection = server.accept()[0]\n\
        \x20   if connection.recv(4096):\n\
        \x20       left -= 1\n\
        \x20       connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok')\n\
        \x20   connection.close()\n\
        print('it has had enough', flush=True)\n\
        sys.exit(7)\n";
    std::fs::write(&script, text).expect("a temporary folder");
    ["python3", script.to_str().expect("temporary paths are text"), &port.to_string(), &requests.to_string()]
        .map(String::from)
        .to_vec()
}

#[test]
fn the_end_and_output_of_a_server_on_another_machine_are_reported() {
    needs_server!(Kind::Python);
    let (dir, port) = (open_dir(), free_port());
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = straingauge(["load", &url, "--server-with", &elsewhere(), "--quiet", "--connections", "1"]);
    let out = dir.path().join("short");
    command.args(["--warmup", "0s", "--duration", "60s", "--out"]).arg(&out);
    command.arg("--").args(strict_server(dir.path(), port, 3));
    run(&mut command).exits_with(1).complains_of(&["the server exited with code 7, saying: it has had enough"]);
    let window_ns = points(&out)[0]["duration_ns"].as_u64().expect("a number");
    assert!(window_ns < 30_000_000_000, "it went on for {window_ns} ns without a server");
    skip_unless!(is_root(), "ending the sockets that an earlier server left needs root");
    // The second server uses the port as soon as the first has ended, as in a comparison.
    let out = dir.path().join("run");
    let mut command = straingauge(["find", &url, "--server-with", &elsewhere(), "--quiet", "--max-connections", "1"]);
    command.args([
        "--sweep",
        "connections",
        "--repeats",
        "1",
        "--duration",
        "100ms",
        "--warmup",
        "0s",
        "--budget",
        "20s",
    ]);
    command.args(["--profile", "never", "--detail", "off", "--out"]).arg(&out).arg("--");
    run(command.args(strict_server(dir.path(), port, u64::MAX >> 1))).exits_with(0);
    let log = std::fs::read_to_string(out.join("server.log")).expect("what it printed is kept");
    assert_eq!(log, "it listens\n");
    assert!(run_record(&out)["server_facts"]["descriptor_limit_inherited"].is_string());
}

#[test]
fn two_servers_are_compared_on_their_machine() {
    let faulty = crate::planted::faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let (dir, port) = (open_dir(), free_port());
    let server = |fault: &str| format!("{} {fault} --port {port}", faulty.as_ref().expect("just checked").display());
    let mut command = straingauge(["find", &format!("http://127.0.0.1:{port}/"), "--server-with", &elsewhere()]);
    command.args(["--compare-with", &server("lock"), "--quiet", "--profile", "never", "--max-connections", "1"]);
    command.args(["--repeats", "2", "--duration", "150ms", "--warmup", "50ms", "--budget", "60s", "--out"]);
    command.arg(dir.path().join("run")).arg("--").args(server("none").split(' '));
    let said = run(&mut command);
    // Other tests check the result of the comparison.
    assert!(matches!(said.code, Some(0 | 3 | 4)), "{:?}: {}{}", said.code, said.out, said.err);
    assert!(said.out.contains("B / A"), "{}", said.out);
    for (place, fault) in [("run", "none"), ("run/with", "lock")] {
        let run = dir.path().join(place);
        assert_eq!(crate::rig::run_record(&run)["scenario"]["server"]["argv"][1], fault);
        let points = crate::rig::points(&run).into_iter().filter(|point| point["sweep"] == "connections");
        let points: Vec<_> = points.collect();
        assert_eq!(points.len(), 2, "{place}");
        let used = |point: &serde_json::Value| point["figures"]["server.cpus_used"]["value"].as_f64();
        assert!(points.iter().all(|point| used(point).is_some()), "watched there: {points:#?}");
        // On a busy machine, a server may get no CPU for a whole window of 150 ms.
        assert!(points.iter().any(|point| used(point) > Some(0.0)), "watched there: {points:#?}");
    }
    assert!(!accepts(port), "it lives on");
}

/// The processes that this one started, with their descendants.
fn descendants_of(parent: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let children: Vec<i32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    let theirs: Vec<i32> = children.iter().flat_map(|child| descendants_of(*child)).collect();
    [children, theirs].concat()
}

/// Whether a connection to this IPv4 port is established.
fn is_connected(port: u16) -> bool {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let is_one = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_at = fields.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
        is_at && fields.nth(1) == Some("01")
    };
    text.lines().any(is_one)
}

/// The first of these processes whose arguments, joined by spaces, begin with these words.
fn with_words(pids: &[i32], words: &str) -> Option<i32> {
    let line =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
    pids.iter().copied().find(|pid| line(pid).starts_with(words))
}

#[test]
fn a_kill_at_either_end_leaves_no_server_on_the_other_machine() {
    needs_server!(Kind::Nginx);
    for victim in ["driver", "watcher", "watcher and guardian"] {
        let (dir, port) = (open_dir(), free_port());
        // A daemon leaves the server's session and ignores polite signals.
        let script = dir.path().join("server");
        let text = "trap '' TERM\n[ \"$1\" = daemon ] && while :; do sleep 0.1; done\nsetsid sh \"$0\" daemon &\nexec \
                    \"$@\"\n";
        std::fs::write(&script, text).expect("a temporary folder");
        let url = format!("http://127.0.0.1:{port}/1k.bin");
        let mut command =
            straingauge(["load", &url, "--server-with", &elsewhere(), "--connections", "1", "--duration"]);
        command.args([if victim == "driver" { "600s" } else { "1s" }, "--", "sh"]).arg(&script);
        command.args(serve_words(Kind::Nginx, port, &dir.path().join("state"), "127.0.0.1"));
        let mut running = Running::start(&mut command);
        // More than the connection that checks whether the server listens.
        running.wait_until("the server is loaded", || {
            is_connected(port) && {
                std::thread::sleep(Duration::from_millis(100));
                is_connected(port)
            }
        });
        // The list of a process's children is incomplete while some of them end.
        let pid = running.pid();
        let watcher = || with_words(&descendants_of(pid), "straingauge watch --worker");
        let guardian = || with_words(&descendants_of(watcher()?), "/proc/self/exe guard-session");
        running.wait_until("it has a watcher and a guardian", || guardian().is_some());
        let (watcher, guardian) = (watcher().expect("it has a watcher"), guardian().expect("it has a guardian"));
        let killed = match victim {
            "driver" => vec![running.pid()],
            "watcher" => vec![watcher],
            _ => vec![guardian, watcher],
        };
        for pid in killed {
            // SAFETY: kill takes no pointers; these are the test's own processes.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let said = running.wait();
        if victim == "driver" {
            assert_eq!(said.code, None, "{}", said.err);
        } else {
            said.exits_with(1).complains_of(&["the server ended with its watcher"]);
        }
        if victim == "watcher and guardian" {
            // The next start on that machine cleans up. It runs without a driver, which would clean up this machine.
            let server = serve_words(Kind::Nginx, port, &dir.path().join("next"), "127.0.0.1");
            let at = format!(":{port}");
            let words = ["watch", "--worker", &at, "--"].into_iter().chain(server.iter().map(String::as_str));
            Spoken::start_with(&words.collect::<Vec<_>>()).leave();
        }
        let until = Instant::now() + Duration::from_secs(60);
        while !processes_of(dir.path()).is_empty() {
            assert!(Instant::now() < until, "{victim}: {:?} live on", processes_of(dir.path()));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Its standard input stays open, as with a driver.
#[test]
fn a_signal_to_a_watcher_stops_the_server_that_it_started() {
    needs_server!(Kind::Nginx);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let (dir, port) = (open_dir(), free_port());
        let server = serve_words(Kind::Nginx, port, &dir.path().join("state"), "127.0.0.1");
        let at = format!(":{port}");
        let words = ["watch", "--worker", &at, "--"].into_iter().chain(server.iter().map(String::as_str));
        let mut watcher = Spoken::start_with(&words.collect::<Vec<_>>());
        watcher.hear_of("ready");
        watcher.signal(signal);
        watcher.ends();
        assert_eq!(processes_of(dir.path()), Vec::<i32>::new(), "after signal {signal}");
    }
}

/// The prefix that runs a command in a namespace; `ip netns exec` would hide the control groups.
fn inside(name: &str) -> String {
    format!("nsenter --net=/run/netns/{name}")
}

/// A load from a node, with a server that is started in the servers' namespace.
fn load_from_a_node(nodes: &Nodes, node: &str, state: &Path, options: &[&str]) -> Command {
    let port = free_port();
    let elsewhere = format!("exec {} env {}", inside(&nodes.name("s")), elsewhere());
    let mut command = Command::new("nsenter");
    command.args([
        &format!("--net=/run/netns/{node}"),
        env!("CARGO_BIN_EXE_straingauge"),
        "load",
        &format!("http://{SERVER}:{port}/1k.bin"),
    ]);
    command.args(["--quiet", "--json", "--connections", "2", "--warmup", "0s", "--duration", "300ms"]);
    command.args(["--server-with", &elsewhere, "--isolate", "always"]).args(options).arg("--");
    command.args(serve_words(Kind::Nginx, port, &state.join("state"), SERVER));
    command
}

#[test]
fn isolation_of_a_server_on_another_machine_is_checked_and_recorded() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "network namespaces need root");
    skip_unless!(program("ip").is_some(), "ip is not installed (apt-get install iproute2)");
    skip_unless!(program("nsenter").is_some(), "nsenter is not installed (apt-get install util-linux)");
    let (nodes, dir) = (Nodes::new(), open_dir());
    let out = dir.path().join("run");
    let options = ["--server-cpus", "0", "--out", out.to_str().expect("temporary paths are text")];
    let json = run(&mut load_from_a_node(&nodes, &nodes.node(1), dir.path(), &options)).exits_with(0).json();
    assert!(json["point"]["outcomes"]["ok"].as_u64().is_some_and(|ok| ok > 0), "{json:#}");
    let record = run_record(&out);
    let server = &record["scenario"]["server"];
    assert_eq!((&server["isolated"], &server["cpus"]), (&true.into(), &vec![0].into()));
    let fact = |name: &str| record["server_facts"][name].as_str().unwrap_or_default().to_string();
    assert_eq!(fact("path"), "between two network namespaces of one machine");
    assert!(fact("cgroup").contains("straingauge-"), "{record:#}");
    assert_eq!(fact("allowed_cpus"), "0");
    assert!(record["doubts"].to_string().contains("client and server run on one machine"), "{record:#}");
    // A client in the server's namespace shares its network stack, even if other clients do not.
    let near = format!("exec {} {} load --worker", inside(&nodes.name("s")), env!("CARGO_BIN_EXE_straingauge"));
    let far = near.replace(&nodes.name("s"), &nodes.node(2));
    let options = ["--client", &far, "--client", &near, "--allow-target", SERVER];
    let said = run(&mut load_from_a_node(&nodes, &nodes.node(1), dir.path(), &options));
    said.exits_with(1).complains_of(&["--isolate always is not possible", "to another machine"]);
    assert_eq!(processes_of(dir.path()), Vec::<i32>::new(), "the server was stopped");
}

#[test]
fn options_for_one_machine_are_refused_for_a_server_on_another_with_a_remedy() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    for (command, options) in [
        ("load", &["--delay", "20ms"][..]),
        ("load", &["--loss", "1%"]),
        ("find", &["--axis", "delay", "--axis-values", "0,1ms"]),
    ] {
        let mut command = straingauge([command, &url, "--server-with", "no-such-program"]);
        let said = run(command.args(options).args(["--", "sleep", "9"]));
        said.exits_with(2).complains_of(&["wide-area path", "run straingauge on that machine, as in ssh SERVER"]);
    }
    let mut command =
        straingauge(["load", &url, "--client", "no-such-program", "--isolate", "always", "--", "sleep", "9"]);
    run(&mut command).exits_with(2).complains_of(&["clients on other machines", "--server-with"]);
}

#[test]
fn a_server_that_does_not_start_on_another_machine_is_reported_in_one_sentence() {
    let load =
        |words: &[&str]| run(straingauge(["load", "http://127.0.0.1:9/", "--quiet", "--server-with"]).args(words));
    load(&[&elsewhere(), "--", "no-such-server"]).exits_with(1).complains_of(&["watcher", "cannot be used"]);
    load(&["ssh server"]).exits_with(2).complains_of(&["add -- SERVER"]);
    // The options are passed on, and so are the complaints.
    let said = load(&[&elsewhere(), "--server-cpus", "4095", "--", "sleep"]);
    assert!(said.code == Some(1) && said.err.contains("watcher: straingauge: --server-cpus"), "{}", said.err);
    let said = load(&[&elsewhere(), "--server-timeout", "200ms", "--", "sleep", "60"]);
    assert!(said.code == Some(1) && said.err.contains("after 0.2 s"), "{}", said.err);
}
