//! Workers on three nodes with their own addresses: network namespaces that the test makes and removes.

use crate::document_server::DocumentServer;
use crate::replay::{clients_in_order, numbered};
use crate::rig::{is_root, member, open_dir, program, run, skip_unless, skipped};
use crate::workers::{count, from, worker};
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Address of the servers, which all nodes reach.
pub const SERVER: &str = "10.214.0.1";
const NODES: usize = 3;

/// A namespace for the servers and one for each node, connected to it by veth.
pub struct Nodes {
    tag: String,
}

impl Nodes {
    pub fn new() -> Nodes {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let nodes = Nodes { tag: format!("sgn{}-{number}", std::process::id()) };
        let server = nodes.name("s");
        ip(&["netns", "add", &server]);
        ip(&["-n", &server, "link", "set", "lo", "up"]);
        ip(&["-n", &server, "addr", "add", &format!("{SERVER}/32"), "dev", "lo"]);
        for number in 1..=NODES {
            let (node, down) = (nodes.node(number), format!("down{number}"));
            ip(&["netns", "add", &node]);
            ip(&["link", "add", &down, "netns", &server, "type", "veth", "peer", "name", "up0", "netns", &node]);
            for (name, interface, last) in [(&server, down.as_str(), 1), (&node, "up0", 2)] {
                ip(&["-n", name, "addr", "add", &format!("10.214.{number}.{last}/24"), "dev", interface]);
                ip(&["-n", name, "link", "set", interface, "up"]);
            }
            ip(&["-n", &node, "link", "set", "lo", "up"]);
            ip(&["-n", &node, "route", "add", SERVER, "via", &format!("10.214.{number}.1")]);
        }
        nodes
    }

    /// Connects a node to the servers' namespace a second time, for traffic other than the load; returns its address
    /// there.
    pub fn joined_apart(&self) -> &'static str {
        let (server, node) = (self.name("s"), self.node(1));
        ip(&["link", "add", "apart", "netns", &server, "type", "veth", "peer", "name", "apart", "netns", &node]);
        for (name, address) in [(&server, "10.214.9.1/24"), (&node, "10.214.9.2/24")] {
            ip(&["-n", name, "addr", "add", address, "dev", "apart"]);
            ip(&["-n", name, "link", "set", "apart", "up"]);
        }
        "10.214.9.2"
    }

    /// Cuts or restores the second link. Packets on the way are lost, and neither end is notified.
    pub fn cut(&self, is_cut: bool) {
        ip(&["-n", &self.node(1), "link", "set", "apart", if is_cut { "down" } else { "up" }]);
    }

    /// The processes of a node whose command lines have these words.
    pub fn processes(&self, number: usize, words: &str) -> Vec<String> {
        let line = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok();
        let lines = pids(&self.node(number)).into_iter().filter_map(line).map(|line| line.replace('\0', " "));
        lines.filter(|line| line.contains(words)).collect()
    }

    pub fn name(&self, what: &str) -> String {
        format!("{}{what}", self.tag)
    }

    pub fn node(&self, number: usize) -> String {
        self.name(&format!("c{number}"))
    }

    /// The worker command for each node.
    pub fn clients(&self) -> Vec<String> {
        let on = |number| format!("exec ip netns exec {} {}", self.node(number), worker().trim_start_matches("exec "));
        (1..=NODES).map(on).collect()
    }

    /// A load of the server from all nodes.
    fn load(&self, server: &DocumentServer, options: &[&str]) -> Value {
        let clients = self.clients();
        let clients: Vec<&str> = clients.iter().map(String::as_str).collect();
        let url = format!("http://{SERVER}:{}/", server.port);
        run(from(&clients, &[&url, "--allow-target", SERVER]).args(options)).exits_with(0).json()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let nodes = (1..=NODES).map(|number| self.node(number));
        for name in nodes.chain([self.name("s")]) {
            // A session whose network is cut does not end by itself.
            for pid in pids(&name) {
                // SAFETY: kill takes no pointers; processes in the test's namespaces belong to the test.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// The processes in a network namespace.
fn pids(namespace: &str) -> Vec<i32> {
    let listed = Command::new("ip").args(["netns", "pids", namespace]).output().expect("ip runs").stdout;
    String::from_utf8_lossy(&listed).lines().filter_map(|pid| pid.parse().ok()).collect()
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn sums_over_three_nodes_equal_the_servers_log() {
    if let Some(why) = DocumentServer::missing() {
        return skipped(&why);
    }
    skip_unless!(is_root(), "network namespaces need root");
    skip_unless!(program("ip").is_some(), "ip is not installed (apt-get install iproute2)");
    let (nodes, kept) = (Nodes::new(), open_dir());
    let log = kept.path().join("access.log");
    std::fs::write(&log, numbered(40, 4)).expect("a file in a temporary folder");
    let path = log.to_str().expect("temporary paths are text");
    let start = |files: &[&str]| DocumentServer::start_at(files, SERVER, Some(&nodes.name("s")));

    let server = start(&["--trace", path]);
    let json = nodes.load(&server, &["--trace", path, "--speed", "200", "--connections", "60"]);
    let answers = server.end_and_read_log();
    assert_eq!((count(&json, "ok"), answers.len()), (40 * 12, 40 * 12), "{json:#}");
    assert_eq!(clients_in_order(&answers), 40);
    assert_eq!(member(&json, "replay")["lines"].as_u64(), Some(40 * 12));
    let shares: Vec<f64> = (1..=NODES)
        .filter_map(|number| json["point"]["figures"][format!("worker.{number}.throughput_per_sec")]["value"].as_f64())
        .collect();
    assert!(shares.len() == NODES && shares.iter().all(|share| *share > 0.0), "each node has clients: {shares:?}");

    let server = start(&["--mix", "webstone"]);
    let options = ["--mix", "webstone", "--rate", "600", "--duration", "700ms", "--connections", "9", "--cold", "90"];
    let json = nodes.load(&server, &options);
    assert_eq!(json["point"]["figures"]["client.cold_connections"]["value"].as_f64(), Some(90.0), "{json:#}");
    let (ok, unfinished) = (count(&json, "ok"), count(&json, "unfinished"));
    assert!(ok > 0 && count(&json, "sent") == ok + unfinished, "{json:#}");
    let logged = server.end_and_read_log().len() as u64;
    assert!((ok..=ok + unfinished).contains(&logged), "{logged} logged, {ok} ok, {unfinished} unfinished");

    // Each node has its own 127.0.0.1.
    let clients = nodes.clients();
    let clients: Vec<&str> = clients.iter().map(String::as_str).collect();
    run(&mut from(&clients, &["http://127.0.0.1:9/"]))
        .exits_with(2)
        .complains_of(&["127.0.0.1 is a different machine for each client"]);
}
