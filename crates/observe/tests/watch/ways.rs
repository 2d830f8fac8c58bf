//! Compares the watch with its client, the kernel's counters and a scan, for many ways to accept, read, write and
//! close (`crates/observe/tests/watch/ways.py`).

use crate::rig::{root, settle, watch};
use observe::Group;
use observe::sock_diag::{DiagSocket, STATES, Scope};
use observe::watch::{WatchOptions, Watcher};
use record::watch::{Counter, Mode, Reading};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PORT: u16 = 9000;
const FAMILIES: [&str; 5] = ["4", "6", "tfo", "mptcp", "tcp to mptcp"];
const READS: [&str; 9] = ["recv", "read", "readv", "recvmsg", "recvmmsg", "peek", "waitall", "bytewise", "trunc"];
const WRITES: [&str; 8] = ["send", "write", "writev", "more", "sendfile", "splice", "zerocopy", "stamped"];
const CLOSES: [&str; 6] = ["client", "server", "shutdown", "linger0", "unread", "reset"];
const HANDS: [&str; 5] = ["same", "thread", "fork", "fork_unwaited", "scm"];

/// A role of `crates/observe/tests/watch/ways.py`.
struct Role {
    child: Child,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Role {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command
            .arg(root().join("crates/observe/tests/watch/ways.py"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 runs");
        let (orders, said) = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        Role { child, orders, said }
    }

    fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").expect("the role listens");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.said.read_line(&mut line).expect("text") > 0, "the role ended");
        line.trim().to_string()
    }

    fn ask(&mut self, line: &str) -> String {
        self.order(line);
        self.answer()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel's counters of this thread's network namespace.
fn kernel() -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for file in ["snmp", "netstat"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("/proc is mounted");
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let names = pair[0].split_whitespace().skip(1).zip(pair[1].split_whitespace().skip(1));
            counters.extend(names.filter_map(|(name, count)| Some((name.to_string(), count.parse().ok()?))));
        }
    }
    counters
}

/// The watch's counts by name.
fn counts(reading: &Reading) -> BTreeMap<&'static str, u64> {
    let all = reading.all();
    let count = |counter| reading.count(counter).unwrap_or(0);
    BTreeMap::from([
        ("requests", all.requests),
        ("bytes in", all.bytes_in),
        ("bytes out", all.bytes_out),
        ("accepted", count(Counter::Accepted)),
        ("closed", count(Counter::Closed)),
        ("aborted", count(Counter::Aborted)),
        ("by MPTCP", count(Counter::Multipath)),
        ("resets sent", count(Counter::ResetsSent)),
        ("resets received", count(Counter::ResetsReceived)),
        ("unanswered", count(Counter::Unanswered)),
        ("unread", count(Counter::UnreadBytes)),
        ("lost", count(Counter::DisplacedOpen) + count(Counter::DisplacedThreads)),
        ("dropped", reading.connections.port_drops.unwrap_or(0)),
        ("waiting", reading.open.as_ref().map_or(0, |open| open.waiting)),
    ])
}

fn grown<K: Ord + Clone>(now: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    now.iter().map(|(name, count)| (name.clone(), count - before.get(name).unwrap_or(&0))).collect()
}

struct Rig {
    server: Role,
    client: Role,
    port: u16,
    watcher: Watcher,
    /// CPU time used for requests so far.
    burnt_ns: u64,
}

impl Rig {
    /// Runs a case and checks all invariants.
    fn check(&mut self, case: &Value) {
        let (before, kernel_before) = (counts(&self.watcher.read()), kernel());
        assert_eq!(self.server.ask(&case.to_string()), "ready");
        assert_eq!(self.client.ask(&case.to_string()), "open");
        settle(&mut self.watcher);
        self.watcher.read();
        self.equals_scan(case);
        let told: Value = serde_json::from_str(&self.client.ask("")).expect("JSON");
        assert_eq!(self.server.ask(""), "closed");
        settle(&mut self.watcher);
        settle(&mut self.watcher);
        self.equals_scan(case);
        let reading = self.watcher.read();
        let (seen, by_kernel) = (grown(&counts(&reading), &before), grown(&kernel(), &kernel_before));
        let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
        let connections = number(case, "connections");
        let is_mptcp = case["family"] == "mptcp";
        let close = case["close"].as_str().expect("text");
        let is_if = |is: bool| if is { connections } else { 0 };
        let mut expected = BTreeMap::from([
            ("requests", number(&told, "requests")),
            ("bytes in", number(&told, "sent")),
            ("bytes out", number(&told, "received")),
            ("accepted", connections),
            ("closed", connections),
            ("by MPTCP", is_if(is_mptcp)),
            ("unanswered", 0),
            ("unread", 0),
            ("lost", 0),
            ("dropped", by_kernel["ListenDrops"]),
            ("waiting", 0),
            ("aborted", is_if(matches!(close, "linger0" | "unread" | "reset"))),
            ("resets received", is_if(close == "reset")),
        ]);
        let resets = by_kernel["OutRsts"];
        expected.insert("resets sent", resets - expected["resets received"].min(resets));
        if is_mptcp {
            // The kernel decides how an MPTCP connection ends its paths.
            for name in ["aborted", "resets received", "resets sent"] {
                expected.insert(name, seen[name]);
            }
            assert!(seen["resets sent"] + seen["resets received"] >= resets, "{case}: {seen:?} {resets}");
        }
        assert_eq!(seen, expected, "{case}: watch and client");
        self.burnt_ns += number(&told, "requests") * number(case, "burn_ms") * 1_000_000;
        let (group_ns, charged) = (reading.group_ns().expect("CPU time"), reading.charged().expect("charged"));
        assert!(
            group_ns >= self.burnt_ns,
            "{case}: {group_ns} ns of the server, of which {} were burnt",
            self.burnt_ns
        );
        let missing = -charged.elsewhere_ns as f64 / group_ns as f64;
        assert!(missing < 0.01, "{case}: {missing:.3} more is charged than there is: {:?}", reading.cpu);
    }

    /// Asserts that the states at rest are those of a scan.
    fn equals_scan(&mut self, case: &Value) {
        let scan = DiagSocket::connect().expect("inet_diag").read_port(self.port, Scope::AllStates).expect("a scan");
        // A socket in FIN_WAIT_2 that its server has closed counts as TIME_WAIT until a scan.
        let named = |by_state: [u64; STATES.len()]| {
            let mut states = BTreeMap::new();
            for (name, count) in STATES.iter().zip(by_state).filter(|(_, count)| *count > 0) {
                *states.entry(if *name == "fin-wait-2" { "time-wait" } else { *name }).or_insert(0) += count;
            }
            states
        };
        assert_eq!(named(self.watcher.states()), named(scan.by_state), "{case}: watch and scan");
    }
}

fn case(family: &str, read: &str, write: &str, close: &str, hand: &str, defer: bool) -> Value {
    json!({
        "family": if family == "tcp to mptcp" { "4" } else { family }, "listen_mptcp": family.ends_with("mptcp"),
        "read": read, "write": write, "close": close, "hand": hand, "defer": defer,
        "connections": if hand == "same" { 1 } else { 3 }, "requests": 3, "answer": 3000, "upload": 500, "burn_ms": 2
    })
}

/// Moves this thread, and its future children, to a new network namespace.
pub fn enter_new_namespace() {
    // SAFETY: only this thread's network namespace changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("root may");
    run("ip link set lo up mtu 1500");
    std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").expect("a setting of the namespace");
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().expect("a program")).args(words).status().expect("it starts");
    assert!(status.success(), "{line}");
}

/// All values of each dimension; with STRAINGAUGE_LONG all pairs of family and close, with three ways of handing
/// over.
fn cases() -> Vec<Value> {
    let at = |index: usize, family: usize, close: usize, hand: usize, defer: bool| {
        let (family, close, hand) = (FAMILIES[family % 5], CLOSES[close % 6], HANDS[hand % 5]);
        case(family, READS[index % 9], WRITES[index % 8], close, hand, defer)
    };
    if std::env::var_os("STRAINGAUGE_LONG").is_none() {
        return (0..12).map(|index| at(index, index, index, index / 2, index % 4 == 3)).collect();
    }
    (0..5 * 6 * 3).map(|index| at(index, index / 18, index / 3, index, index % 2 == 1)).collect()
}

#[test]
fn counts_equal_the_clients_and_the_kernels_in_every_way() {
    let test = "counts_equal_the_clients_and_the_kernels_in_every_way";
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED {test}: only root may make network namespaces");
    }
    let began = std::time::Instant::now();
    enter_new_namespace();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("handler").display().to_string();
    let mut handler = Role::start(&["handler", &socket]);
    assert_eq!(handler.answer(), "ready");
    // A scan skips sockets whose address the listener does not have, so each kind of address has its own port.
    let mut rigs = [PORT, PORT + 1].map(|port| {
        let (server, client) = (Role::start(&["server"]), Role::start(&["client"]));
        let group = Group::Tree(server.child.id());
        let options =
            WatchOptions { mode: Mode::Counts, group, detects_protocol: false, ..WatchOptions::of_port(port) };
        Some(Rig { server, client, port, watcher: watch(test, options)?, burnt_ns: 0 })
    });
    for mut case in cases() {
        let Some(rig) = &mut rigs[usize::from(case["family"] == "6")] else { return };
        case["handler"] = json!(socket);
        case["port"] = json!(rig.port);
        println!("{:?} {case}", began.elapsed());
        let is_slow = case["family"] == "tfo";
        if is_slow {
            run("tc qdisc add dev lo root tbf rate 2mbit burst 1540 latency 1s");
        }
        rig.check(&case);
        if is_slow {
            run("tc qdisc del dev lo root");
        }
    }
}
