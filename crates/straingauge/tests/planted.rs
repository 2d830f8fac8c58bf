//! Servers with planted faults: `find` names the fault, and finds such a server worse than a sound one.

use crate::rig::{
    Said, free_port, long_run, member, open_dir, points, program, repository, run, run_record, skip_unless, skipped,
    straingauge,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Few and short points, as in `bench/planted-faults`.
const SHORT: [&str; 8] = ["--duration", "300ms", "--warmup", "100ms", "--repeats", "2", "--profile", "never"];

/// The server with selectable faults, built once; `None` without a C compiler.
pub fn faulty() -> Option<PathBuf> {
    program("cc")?;
    let folder = repository().join("testbed/faults");
    // Tests of one run start at once, so the build is locked.
    let mut make = Command::new("flock");
    let built = make.arg(&folder).args(["make", "-s", "CC=cc", "-C"]).arg(&folder).output().expect("flock runs make");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(folder.join("build/faulty"))
}

fn faulty_command(faulty: &Path, fault: &str, port: u16) -> Vec<String> {
    let program = faulty.to_str().expect("the repository's path is text");
    [program, fault, "--port", &port.to_string(), "--address", "0.0.0.0"].map(String::from).to_vec()
}

fn rules(said: &Said, is_wanted: impl Fn(&serde_json::Value) -> bool) -> Vec<String> {
    let json = said.json();
    let causes = member(&json, "verdict").get("causes").and_then(|causes| causes.as_array()).cloned();
    let rule = |cause: serde_json::Value| cause["rule"].as_str().expect("a rule's name").to_string();
    causes.unwrap_or_default().into_iter().filter(is_wanted).map(rule).collect()
}

#[test]
fn a_slow_log_a_lock_and_two_writes_are_named_and_a_healthy_server_gets_no_advice() {
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let faulty = faulty.expect("just checked");
    let more = [
        ("pipe-log", Some("slow-file")),
        ("two-writes", Some("delayed-ack")),
        ("cork", Some("held-answers")),
        ("send-buffer", Some("send-buffer")),
    ];
    let more = if long_run() { &more[..] } else { &[] };
    for (fault, wanted) in [("lock", Some("lock")), ("none", None)].iter().chain(more).copied() {
        let dir = open_dir();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/");
        let mut command =
            straingauge(["find", &url, "--sweep", "connections", "--max-connections", "16", "--json", "--quiet"]);
        command.args(["--budget", "5s", "--out"]).arg(dir.path().join("run")).args(SHORT);
        command.arg("--").args(faulty_command(&faulty, fault, port));
        let said = run(&mut command).exits_with(0);
        let wanted: Vec<String> = wanted.into_iter().map(String::from).collect();
        // On a busy machine, `find` may name nothing or possible causes, but must not prove another one.
        let verdict = said.json()["verdict"].to_string();
        let is_quiet = !verdict.contains("not quiet enough") && !verdict.contains("noisy-neighbour");
        let mut found = rules(&said, |cause| is_quiet || cause["certainty"] == "cause");
        // On a busy machine, this finding is correct.
        found.retain(|rule| is_quiet || rule != "neighbour");
        if fault == "none" {
            found.retain(|rule| rule != "client");
        }
        let said_json = said.json();
        for level in said_json["account"].as_array().into_iter().flatten().flat_map(|sweep| sweep["levels"].as_array())
        {
            for level in level.iter().filter(|level| level["seconds"].as_f64() > Some(0.05)) {
                let open = level["open_ratio"].as_f64().expect("a number");
                assert!(open.abs() < 0.05, "{fault}: every nanosecond of every thread once: {level:#}");
            }
        }
        if !is_quiet && found.is_empty() {
            continue;
        }
        assert_eq!(found, wanted, "{fault}: {}", said.json()["verdict"]);
    }
}

#[test]
fn a_limiter_and_processes_for_each_request_are_named() {
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let faulty = faulty.expect("just checked");
    let more = if long_run() { &["lookup", "background"][..] } else { &[] };
    for fault in ["limiter", "forks"].iter().chain(more) {
        let (dir, port) = (open_dir(), free_port());
        let url = format!("http://127.0.0.1:{port}/");
        let mut command =
            straingauge(["find", &url, "--sweep", "connections", "--max-connections", "32", "--json", "--quiet"]);
        command.args(["--budget", "5s", "--out"]).arg(dir.path().join("run")).args(SHORT);
        let said = run(command.arg("--").args(faulty_command(&faulty, fault, port))).exits_with(0);
        let verdict = said.json()["verdict"].to_string();
        let (rule, words) = match *fault {
            "limiter" => ("server-errors", "status 429: a request limit refuses them"),
            "forks" => ("forks", "Each request starts 1."),
            "lookup" => ("backend", "udp:127.0.0.1:"),
            _ => ("background", "compactor"),
        };
        let is_named = rules(&said, |_| true).iter().any(|found| found == rule) && verdict.contains(words);
        // Counted facts are named on any machine; the account of threads may show the other work instead.
        let is_unquiet = *fault != "limiter" && verdict.contains("noisy-neighbour");
        assert!(is_named || is_unquiet, "{fault}: {verdict}");
        let is_quoted = verdict.contains("The server printed \\\"faulty: limiting requests");
        assert!(*fault != "limiter" || is_quoted, "{verdict}");
    }
}

/// A control group with a limit, removed at the end.
struct Limited(PathBuf);

impl Limited {
    /// A CPU time limit in each period; `None` if no group can be made.
    fn cpus(cpus: f64, period_us: u64) -> Option<Self> {
        let us = (cpus * period_us as f64) as u64;
        let first = [("cpu.cfs_period_us", period_us.to_string()), ("cpu.cfs_quota_us", us.to_string())];
        Limited::group("cpu", &first, ("cpu.max", format!("{us} {period_us}")))
    }

    /// A limit of memory.
    fn memory(bytes: u64) -> Option<Self> {
        let bytes = bytes.to_string();
        Limited::group("memory", &[("memory.limit_in_bytes", bytes.clone())], ("memory.max", bytes))
    }

    fn group(controller: &str, first: &[(&str, String)], second: (&str, String)) -> Option<Self> {
        let mount = Path::new("/sys/fs/cgroup").join(controller);
        let (mount, files) =
            if mount.is_dir() { (mount, first) } else { (PathBuf::from("/sys/fs/cgroup"), &[second][..]) };
        let group = Limited(mount.join(format!("planted-{controller}-{}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        for (file, text) in files {
            std::fs::write(group.0.join(file), text).ok()?;
        }
        Some(group)
    }

    /// A command that moves itself into the group.
    fn command(&self) -> [String; 4] {
        let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        ["sh", "-c", enter, self.0.to_str().expect("text")].map(String::from)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The group is busy until the last process of the server has ended.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_cpu_limit_is_named() {
    // The limit is so low that it is reached on a busy machine, too.
    let (faulty, group) = (faulty(), Limited::cpus(0.04, 100_000));
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    skip_unless!(group.is_some(), "needs a control group with a CPU time limit: root, and the controller cpu");
    let (dir, port, group) = (open_dir(), free_port(), group.expect("just checked"));
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = straingauge(["find", &url, "--sweep", "connections", "--max-connections", "32", "--json"]);
    command.args(["--quiet", "--budget", "10s", "--out"]).arg(dir.path().join("run"));
    // Each point contains several of the limit's periods of 100 ms.
    command.args(["--duration", "500ms", "--warmup", "100ms", "--repeats", "2", "--profile", "never"]);
    command.arg("--").args(group.command());
    command.args(faulty_command(&faulty.expect("just checked"), "none", port));
    let said = run(&mut command).exits_with(0);
    let mut proven = rules(&said, |cause| cause["certainty"] == "cause");
    // While other tests run, this cause is correct, too.
    let is_starved = proven.iter().any(|rule| rule == "neighbour");
    proven.retain(|rule| rule != "neighbour");
    let is_unquiet = is_starved || said.out.contains("The machine was not quiet enough to name a cause");
    if proven.is_empty() && is_unquiet {
        return skipped("other work took the CPUs before the limit did, and the run says so");
    }
    assert_eq!(proven, ["cpu-quota"], "{}", said.json()["verdict"]);
}

#[test]
fn bursts_at_a_limit_rereading_pages_and_a_full_connection_table_are_named() {
    skip_unless!(long_run(), "half a minute: runs in the long suite");
    let (faulty, bursts, memory) = (faulty(), Limited::cpus(0.25, 20_000), Limited::memory(24 << 20));
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    skip_unless!(bursts.is_some() && memory.is_some(), "needs control groups with limits: root");
    skip_unless!(program("nginx").is_some(), "nginx is not installed");
    let (faulty, bursts, memory) = (faulty.expect("a"), bursts.expect("a"), memory.expect("a"));
    let (dir, port) = (open_dir(), free_port());
    let pages = dir.path().join("pages").to_str().expect("text").to_string();
    // Writes from within the group are charged to it.
    let fill = "dd if=/dev/zero of=\"$0\" bs=1M count=96 conv=fsync status=none && exec \"$@\"";
    let fill = ["sh", "-c", fill, &pages].map(String::from);
    let paging = [memory.command().to_vec(), fill.to_vec(), faulty_command(&faulty, "paging", port)].concat();
    let configuration = format!(
        "daemon off; worker_processes 1; error_log stderr warn; pid {0}/nginx.pid;\n\
         events {{ worker_connections 32; }}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
         uwsgi_temp_path {0}/u; scgi_temp_path {0}/s; server {{ listen 0.0.0.0:{port}; return 200 ok; }} }}\n",
        dir.path().display()
    );
    std::fs::write(dir.path().join("few.conf"), configuration).expect("our own folder");
    let few = dir.path().join("few.conf").to_str().expect("text").to_string();
    for (wanted, most, server) in [
        ("cpu-bursts", "4", [bursts.command().to_vec(), faulty_command(&faulty, "bursts", port)].concat()),
        ("paging", "32", [paging, vec!["--log".into(), pages.clone()]].concat()),
        ("memory-limit", "32", [memory.command().to_vec(), faulty_command(&faulty, "reclaim", port)].concat()),
        ("server-log", "64", ["nginx".into(), "-c".into(), few].to_vec()),
    ] {
        let url = format!("http://127.0.0.1:{port}/");
        let mut command = straingauge(["find", &url, "--sweep", "connections", "--max-connections", most, "--json"]);
        command.args(["--quiet", "--budget", "10s", "--duration", "500ms", "--profile", "never", "--out"]);
        let said = run(command.arg(dir.path().join(wanted)).arg("--").args(&server)).exits_with(0);
        assert!(rules(&said, |_| true).contains(&wanted.into()), "{wanted}: {}", said.json()["verdict"]);
    }
}

#[test]
fn slow_clients_are_named_as_the_cause_and_not_the_threads_they_block() {
    skip_unless!(long_run(), "10 seconds: runs in the long suite");
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let (dir, port) = (open_dir(), free_port());
    let mut readers = Command::new(repository().join("testbed/faults/slow-readers"));
    let _readers = crate::rig::Running::start(readers.arg(port.to_string()));
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = straingauge(["find", &url, "--sweep", "connections", "--max-connections", "32", "--json"]);
    command.args(["--quiet", "--budget", "10s", "--isolate", "never", "--out"]).arg(dir.path().join("run")).args(SHORT);
    let said =
        run(command.arg("--").args(faulty_command(&faulty.expect("just checked"), "senders", port))).exits_with(0);
    assert_eq!(rules(&said, |_| true).first(), Some(&"slow-readers".into()), "{}", said.json()["verdict"]);
}

#[test]
fn a_worse_second_server_gives_exit_code_3() {
    let faulty = faulty();
    skip_unless!(faulty.is_some(), "needs a C compiler, to build the server with planted faults");
    let faulty = faulty.expect("just checked");
    // Four rounds at two loads are eight tests, enough to prove a loss of 5 %. For a better server, the comparison must
    // only show no regression. If other work starves both, it cannot tell (exit code 4).
    for (first, second, codes, rounds, loads) in
        [("lock", "none", [0, 4], 2, &[1][..]), ("none", "lock", [3, 4], 4, &[1, 2])]
    {
        let dir = open_dir();
        let out = dir.path().join("run");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/");
        let with = faulty_command(&faulty, second, port).join(" ");
        let mut command = straingauge(["find", &url, "--quiet", "--compare-with", &with, "--profile", "never"]);
        command.args(["--max-connections", &loads.len().to_string(), "--repeats", &rounds.to_string()]);
        command.args(["--duration", "150ms", "--warmup", "50ms"]);
        command.args(["--budget", "100s", "--out"]).arg(&out).arg("--").args(faulty_command(&faulty, first, port));
        let said = run(&mut command);
        assert!(codes.map(Some).contains(&said.code), "{:?}: {}{}", said.code, said.out, said.err);
        assert!(said.out.contains("B / A"), "{}", said.out);
        let seen = |path: &Path| -> Vec<(u64, u64)> {
            let is_load = |point: &serde_json::Value| point["sweep"] == "connections";
            let place =
                |point: serde_json::Value| (point["repeat"].as_u64().unwrap(), point["connections"].as_u64().unwrap());
            let mut places: Vec<_> = points(path).into_iter().filter(is_load).map(place).collect();
            places.sort_unstable();
            places
        };
        let (of_a, of_b) = (seen(&out), seen(&out.join("with")));
        assert_eq!(of_a, of_b, "both at the same loads in every round");
        let all = (0..rounds).flat_map(|round| loads.iter().map(move |load| (round, *load)));
        assert_eq!(of_a, all.collect::<Vec<_>>());
        assert_eq!(run_record(&out)["status"], "complete");
        assert_eq!(run_record(&out.join("with"))["scenario"]["server"]["argv"][1], second);
        let page = std::fs::read_to_string(out.join("report.html")).expect("the report");
        assert!(page.contains("Side by side"), "the page shows both");
        let again = run(straingauge(["report", "--json"]).arg(&out)).exits_with(0).json();
        let figures = again["comparison"]["figures"].as_array().expect("figures");
        let throughput = figures.iter().filter(|one| one["word"] == "throughput");
        let at_loads = throughput.flat_map(|one| one["loads"].as_array().expect("loads"));
        let ratios: Vec<f64> = at_loads.map(|at| at["ratio"]["value"].as_f64().unwrap()).collect();
        // If other work starved a server, there may be nothing to compare.
        assert!(ratios.len() == loads.len() || said.code == Some(4), "{ratios:?}: {}", said.out);
        // Lines may break between any two words.
        let unbroken = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = |words: &str| unbroken.contains(words);
        match said.code {
            Some(3) => {
                assert!(says("A regression: the threshold is"), "{}", said.out);
                assert!(ratios.iter().any(|ratio| *ratio < 0.95), "{ratios:?}");
            }
            Some(0) => assert!(ratios.iter().any(|ratio| *ratio > 0.95), "{ratios:?}"),
            _ => assert!(says("ould not tell"), "{}", said.out),
        }
    }
}

#[test]
fn an_impossible_second_server_is_refused_before_measuring() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let with = |with: &str, more: &[&str]| {
        let mut command = straingauge(["find", &url, "--compare-with", with]);
        command.args(more);
        run(&mut command)
    };
    with("scale", &[]).exits_with(2).complains_of(&["--compare-with", "-- SERVER"]);
    with("sleep 'open", &["--", "sleep", "60"]).exits_with(2).complains_of(&["--compare-with", "not a command"]);
    with("scale", &["--sweep", "rate", "--", "sleep", "60"]).exits_with(2).complains_of(&["--sweep"]);
    assert_eq!(with("scale", &["--axis", "cold", "--", "sleep", "60"]).code, Some(2));
}

/// Four workers at a Unix socket, each taking 20 ms per request.
const BACKEND: &str = r#"
import ctypes, os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen(512)
for _ in range(3):
    if os.fork() == 0:
        # PR_SET_PDEATHSIG: it ends with its parent.
        ctypes.CDLL(None).prctl(1, 9)
        break
while True:
    connection, _ = listener.accept()
    connection.recv(65536)
    time.sleep(0.02)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    connection.close()
"#;

/// nginx as a proxy for all requests.
fn proxy(dir: &Path, port: u16, to: &str) -> Vec<String> {
    let configuration = format!(
        "daemon off; worker_processes 1; error_log {0}/error.log; pid {0}/nginx.pid; events {{ worker_connections 512; \
         }}\nhttp {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; \
         uwsgi_temp_path {0}/u;\nscgi_temp_path {0}/s; server {{ listen 0.0.0.0:{port}; location / {{ proxy_pass \
         http://{to}; }} }} }}\n",
        dir.display()
    );
    let file = dir.join("proxy.conf");
    std::fs::write(&file, configuration).expect("our own folder");
    ["nginx", "-c", file.to_str().expect("a temporary path")].map(String::from).to_vec()
}

#[test]
fn a_backend_at_a_unix_socket_is_named_and_not_counted_as_other_work() {
    skip_unless!(program("nginx").is_some(), "nginx is not installed");
    let (dir, port) = (open_dir(), free_port());
    let path = dir.path().join("app.sock");
    let mut command = Command::new("python3");
    let mut backend = crate::rig::Running::start(command.args(["-c", BACKEND]).arg(&path));
    backend.wait_until("the backend listens", || path.exists());
    let mut command =
        straingauge(["find", &format!("http://127.0.0.1:{port}/"), "--sweep", "connections", "--json", "--quiet"]);
    command.args(["--max-connections", "32", "--budget", "10s", "--out"]).arg(dir.path().join("run")).args(SHORT);
    command.arg("--").args(proxy(dir.path(), port, &format!("unix:{}", path.display())));
    let said = run(&mut command).exits_with(0);
    let verdict = said.json()["verdict"].to_string();
    assert!(
        rules(&said, |_| true).contains(&"backend".into()) || verdict.contains("disturbed by other work"),
        "{verdict}"
    );
    let run = dir.path().join("run");
    let points_of_run = points(&run);
    // On a very busy machine a search may fail early.
    let is_strained = |point: &&serde_json::Value| point["connections"].as_u64() > Some(8);
    let strained: Vec<_> = points_of_run.iter().filter(is_strained).collect();
    let (chosen, least) = if strained.is_empty() { (points_of_run.iter().collect(), 0.0) } else { (strained, 4.0) };
    let (mut is_counted, mut is_seen) = (false, false);
    for point in chosen {
        let figure = |name: &str| point["figures"][name]["value"].as_f64();
        // All requests in flight are counted, also those waiting to be accepted. On a busy machine, a window may end
        // before the first reading, or all its connections may be newer than the list of descriptors.
        is_counted |= figure("server.outgoing_connections") > Some(least);
        // The listener is found by its path, outside of the server's namespace.
        is_seen |= figure("backend.cpus_used") > Some(0.0);
    }
    let is_missed = verdict.contains("disturbed by other work") && !(is_counted && is_seen);
    skip_unless!(!is_missed, "no look at the server was in time beside other work, and the run says so");
    assert!(is_counted && is_seen, "{is_counted} {is_seen} {verdict} {points_of_run:#?}");
    assert_eq!(run_record(&run)["server_facts"]["backend"], format!("unix:{}", path.display()));
}

#[test]
fn a_backend_unreachable_from_the_namespace_gets_a_hint_at_the_option() {
    skip_unless!(crate::rig::is_root(), "needs root, to give the server a network namespace");
    skip_unless!(program("nginx").is_some(), "nginx is not installed");
    let (dir, port) = (open_dir(), free_port());
    let words = proxy(dir.path(), port, &format!("127.0.0.1:{}", free_port()));
    let url = format!("http://127.0.0.1:{port}/");
    for (command, wanted) in [("find", "network namespace"), ("load", "network namespace")] {
        let mut command = straingauge([command, &url, "-d", "200ms", "--isolate", "always", "--"]);
        run(command.current_dir(dir.path()).args(&words)).exits_with(1).complains_of(&[
            "502",
            wanted,
            "--isolate never",
        ]);
    }
}

#[test]
fn a_server_that_crashes_is_not_explained_by_its_namespace() {
    skip_unless!(crate::rig::is_root(), "needs root, to give the server a network namespace");
    skip_unless!(program("python3").is_some(), "python3 is not installed (apt-get install python3)");
    let (dir, port) = (open_dir(), free_port().to_string());
    let text = "import os, socket, sys\n\
                listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n\
                connection, _ = listener.accept()\n\
                while not connection.recv(4096): connection, _ = listener.accept()\n\
                os.kill(os.getpid(), 11)\n";
    let mut command = straingauge(["load", &format!("http://127.0.0.1:{port}/"), "-d", "100ms", "--warmup", "0s"]);
    command.current_dir(dir.path()).args(["--", "python3", "-c", text, &port]);
    let said = run(&mut command).exits_with(1).complains_of(&["signal 11"]);
    assert!(!said.err.contains("--isolate never"), "{}", said.err);
}

#[test]
fn a_server_that_needs_a_program_of_this_machine_starts_in_its_namespace() {
    skip_unless!(crate::rig::is_root(), "needs root, to give the server a network namespace");
    skip_unless!(program("python3").is_some(), "python3 is not installed (apt-get install python3)");
    let needed = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let listener = needed.try_clone().expect("a listener can be shared");
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let needed = needed.local_addr().expect("a bound listener has an address").port();
    let dir = open_dir();
    let script = dir.path().join("needy.py");
    let text = r#"
import http.server, socket, sys
when, port, needed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def need():
    socket.create_connection(("127.0.0.1", needed)).close()
class Needy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        try:
            need()
        except OSError:
            if when != "seldom":
                self.close_connection = True
                return
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass
if when == "at-start":
    need()
http.server.ThreadingHTTPServer(("127.0.0.1", port), Needy).serve_forever()
"#;
    std::fs::write(&script, text).expect("the folder is writable");
    let command = |name: &str, when: &str, options: &[&str]| {
        let port = free_port();
        let mut command = straingauge([name, &format!("http://127.0.0.1:{port}/"), "--sweep", "connections"]);
        command.args(["--max-connections", "1", "--json"]).args(SHORT).args(options).current_dir(dir.path());
        command.args(["--", "python3"]).arg(&script).args([when, &port.to_string(), &needed.to_string()]);
        run(&mut command)
    };
    for when in if long_run() { &["per-request", "at-start"][..] } else { &["per-request"] } {
        let said = command("find", when, &[]);
        assert!(said.err.contains("starts again there"), "{when}: {}", said.err);
        let path = said.exits_with(0).json()["record"]["server_facts"]["path"].clone();
        assert_eq!(path, "loopback of this machine", "{when}");
        command("find", when, &["--isolate", "always"])
            .exits_with(1)
            .complains_of(&["refused connection", "--isolate never"]);
    }
    if !long_run() {
        return;
    }
    let port = free_port();
    let mut load = straingauge(["load", &format!("http://127.0.0.1:{port}/"), "-d", "200ms", "--", "python3"]);
    run(load.arg(&script).args(["per-request", &port.to_string(), &needed.to_string()]))
        .exits_with(1)
        .complains_of(&["no request was answered", "--isolate never"]);
    let said = command("find", "seldom", &[]);
    let doubts = said.exits_with(0).json()["record"]["doubts"].to_string();
    assert!(doubts.contains("refused connection"), "{doubts}");
}
