//! The network between driver and worker is cut without notifying either, while the worker still reaches the server.
//! The driver is in the server's network namespace; the worker is behind ssh on a node, on a separate link.

use crate::document_server::DocumentServer;
use crate::fleet_nodes::{Nodes, SERVER};
use crate::rig::{Running, Said, free_port, is_root, open_dir, points, program, run, run_record, skipped, straingauge};
use crate::server::{Kind, serve_words};
use crate::ssh_workers::{self, Sshd};
use crate::workers::{count, doubt_kinds};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Why this network cannot be made here, if so.
fn missing() -> Option<String> {
    let lacks_ip = || program("ip").is_none().then_some("ip is not installed (apt-get install iproute2)");
    let needs_root = || (!is_root()).then_some("network namespaces need root");
    DocumentServer::missing().or_else(|| ssh_workers::missing().or_else(lacks_ip).or_else(needs_root).map(String::from))
}

/// A server, a worker on a node reached directly, and a worker on a node behind ssh.
struct Setting {
    server: DocumentServer,
    ssh: Sshd,
    nodes: Nodes,
}

impl Setting {
    fn new() -> Setting {
        let nodes = Nodes::new();
        let address = nodes.joined_apart();
        let ssh = Sshd::start_at(address, Some(&nodes.node(1)));
        let server = DocumentServer::start_at(&["--mix", "webstone"], SERVER, Some(&nodes.name("s")));
        Setting { server, ssh, nodes }
    }

    /// A driver's command over both workers; the second one is behind ssh.
    fn driver(&self, what: &str, options: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.nodes.name("s")]);
        command.args([env!("CARGO_BIN_EXE_straingauge"), what, &format!("http://{SERVER}:{}/", self.server.port)]);
        let behind = self.ssh.client(&format!("{} load --worker", env!("CARGO_BIN_EXE_straingauge")));
        command.args(["--client", &self.nodes.clients()[1], "--client", &behind, "--allow-target", SERVER]);
        command.args(["--mix", "webstone", "--quiet", "--connections", "8", "--warmup", "0s"]);
        command.args(options);
        command
    }

    /// Cuts the link after this many answers of the server.
    #[track_caller]
    fn cut_after(&self, answers: usize, driver: &mut Running) {
        driver.wait_until("the load runs", || self.server.answered() >= answers);
        self.nodes.cut(true);
    }
}

/// Waits until no process with these words runs on the node beyond the cut.
#[track_caller]
fn ends(nodes: &Nodes, words: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while !nodes.processes(1, words).is_empty() {
        assert!(Instant::now() < until, "it lives on: {:?}", nodes.processes(1, words));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asserts that the run ended with the loss of the second worker, and that its record says so.
#[track_caller]
fn ends_with_the_loss(driver: Running, out: &Path) -> Said {
    let said = driver.wait().exits_with(1).complains_of(&["client 2", "was lost", "silent for 5 s"]);
    let record = run_record(out);
    assert_eq!(record["status"], "interrupted");
    assert!(record["ended_by"].as_str().is_some_and(|why| why.contains("client 2")), "{record:#}");
    said
}

#[test]
fn a_silent_network_cut_ends_the_load_behind_it_and_the_run_keeps_the_rest() {
    if let Some(why) = missing() {
        return skipped(&why);
    }
    let (setting, folder) = (Setting::new(), open_dir());
    let out = folder.path().join("run");
    let mut load = setting.driver("load", &["--rate", "200", "--duration", "60s", "--json"]);
    let mut driver = Running::start(load.arg("--out").arg(&out));
    setting.cut_after(100, &mut driver);
    let json = ends_with_the_loss(driver, &out).json();
    assert!(doubt_kinds(&json).contains(&"worker-lost".to_string()), "{json:#}");
    assert!(count(&json, "ok") > 0, "what the other one measured: {json:#}");
    ends(&setting.nodes, "load --worker");
    let logged = setting.server.answered();
    assert!(logged as u64 > count(&json, "ok"), "both sent: {logged} logged, {json:#}");
}

#[test]
fn a_search_keeps_its_complete_points_after_a_silent_network_cut() {
    if let Some(why) = missing() {
        return skipped(&why);
    }
    let (setting, folder) = (Setting::new(), open_dir());
    let out = folder.path().join("run");
    let rates: Vec<String> = (100..140).map(|rate| rate.to_string()).collect();
    let mut find = setting.driver("find", &["--axis", "rate", "--axis-values", &rates.join(",")]);
    find.args(["--duration", "400ms", "--warmup", "50ms", "--repeats", "1", "--profile", "never", "--out"]).arg(&out);
    let mut driver = Running::start(&mut find);
    driver.wait_until("two points are whole", || points(&out).len() >= 2);
    setting.nodes.cut(true);
    let whole = points(&out);
    ends_with_the_loss(driver, &out);
    let kept = points(&out);
    assert_eq!(kept[..whole.len()], whole);
    for point in &kept[..kept.len() - 1] {
        let lost = point["doubts"].as_array().into_iter().flatten().filter(|doubt| doubt["kind"] == "worker-lost");
        assert_eq!(lost.count(), 0, "{point:#}");
    }
    let said = run(straingauge(["report"]).arg(&out));
    assert!(
        said.code.is_some_and(|code| code <= 1) && said.out.contains("client 2"),
        "{:?}: {}{}",
        said.code,
        said.out,
        said.err
    );
    ends(&setting.nodes, "load --worker");
}

#[test]
fn a_network_cut_of_one_second_ends_no_load() {
    if let Some(why) = missing() {
        return skipped(&why);
    }
    let setting = Setting::new();
    let mut driver = Running::start(&mut setting.driver("load", &["--rate", "200", "--duration", "3s", "--json"]));
    setting.cut_after(100, &mut driver);
    std::thread::sleep(Duration::from_secs(1));
    setting.nodes.cut(false);
    let json = driver.wait().exits_with(0).json();
    assert!(!doubt_kinds(&json).contains(&"worker-lost".to_string()), "{json:#}");
    let (ok, unfinished) = (count(&json, "ok"), count(&json, "unfinished"));
    let logged = setting.server.answered() as u64;
    assert!(ok > 0 && (ok..=ok + unfinished).contains(&logged), "{logged} logged, {ok} ok, {unfinished} unfinished");
    ends(&setting.nodes, "load --worker");
}

#[test]
fn a_silent_network_cut_ends_a_server_that_was_started_behind_it() {
    if let Some(why) = missing() {
        return skipped(&why);
    }
    let (nodes, state) = (Nodes::new(), open_dir());
    let ssh = Sshd::start_at(nodes.joined_apart(), Some(&nodes.node(1)));
    let (port, folder) = (free_port(), Path::new(env!("CARGO_BIN_EXE_straingauge")).parent().expect("it lies in one"));
    let elsewhere = ssh.client(&format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()));
    let mut load = Command::new("ip");
    load.args(["netns", "exec", &nodes.name("s"), env!("CARGO_BIN_EXE_straingauge"), "load"]);
    load.args([
        &format!("http://10.214.1.2:{port}/1k.bin"),
        "--allow-target",
        "10.214.1.2",
        "--server-with",
        &elsewhere,
    ]);
    load.args([
        "--rate",
        "100",
        "--connections",
        "2",
        "--warmup",
        "0s",
        "--duration",
        "60s",
        "--quiet",
        "--json",
        "--",
    ]);
    let log = state.path().join("access.log");
    let mut words = serve_words(Kind::Nginx, port, &state.path().join("state"), "10.214.1.2");
    words.extend(["--access-log".into(), log.display().to_string()]);
    let mut driver = Running::start(load.args(words));
    driver.wait_until("the load runs", || std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() > 50));
    nodes.cut(true);
    let said = driver.wait().exits_with(1).complains_of(&["watcher", "silent for 5 s"]);
    let json = said.json();
    assert!(count(&json, "ok") > 0, "{json:#}");
    // The load did not continue without the worker.
    assert!(json["point"]["duration_ns"].as_u64() < Some(50_000_000_000), "{json:#}");
    ends(&nodes, "nginx");
    ends(&nodes, "watch --worker");
}
