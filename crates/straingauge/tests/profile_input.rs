//! `straingauge profile` without permission or without anything to profile: one sentence and the right exit code.

use crate::bad_input::unshared;
use crate::rig::{free_port, is_root, needs_server, open_dir, program, run, skip_unless, straingauge};
use crate::server::Kind;
use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// This process as a server that listens and computes half of the time.
struct Busy {
    port: String,
    _listener: TcpListener,
    is_over: Arc<AtomicBool>,
}

impl Busy {
    fn start(computes: bool) -> Busy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
        let port = listener.local_addr().expect("it is bound").port().to_string();
        let is_over = Arc::new(AtomicBool::new(!computes));
        let over = is_over.clone();
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let since = Instant::now();
                while since.elapsed() < Duration::from_millis(2) {}
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Busy { port, _listener: listener, is_over }
    }

    fn profile(&self, more: &[&str]) -> Command {
        let mut command = straingauge(["profile", &self.port, "--duration", "300ms"]);
        command.args(more);
        command
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Whether this machine permits what the test expects to be refused.
fn can_profile(server: &Busy) -> bool {
    let said = run(&mut server.profile(&[]));
    if said.code != Some(0) {
        crate::rig::skipped(said.err.lines().last().unwrap_or_default());
    }
    said.code == Some(0)
}

#[test]
fn a_group_without_matches_is_an_error_and_missing_traffic_is_a_doubt() {
    skip_unless!(is_root(), "needs root, to sample stacks with BPF");
    let server = Busy::start(true);
    let said = run(&mut server.profile(&[]));
    if said.code != Some(0) {
        return crate::rig::skipped(said.err.lines().last().unwrap_or_default());
    }
    assert!(said.out.contains(&format!("no packet of port {} was seen", server.port)), "{}", said.out);
    assert!(said.flat().contains("not measured"), "nothing is given per packet: {}", said.out);
    run(&mut server.profile(&["--group", "acks=tcp_ack,no_such_function*"]))
        .exits_with(2)
        .complains_of(&["--group", "no_such_function*"]);
    run(&mut server.profile(&["--group", "acks"])).exits_with(2).complains_of(&["--group", "name=pattern"]);
}

#[test]
fn functions_of_the_kernel_are_named_where_its_list_of_symbols_is_hidden() {
    skip_unless!(is_root(), "needs root, to mount another list of symbols");
    skip_unless!(program("unshare").is_some(), "unshare is not installed (apt-get install util-linux)");
    let server = Busy::start(true);
    if !can_profile(&server) {
        return;
    }
    let over = server.is_over.clone();
    std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            std::fs::metadata("/proc/self/stat").ok();
        }
    });
    let dir = open_dir();
    let hidden = dir.path().join("kallsyms");
    let lines = ["tcp_sendmsg", "ip_queue_xmit", "__netif_receive_skb"];
    let text: String = lines.iter().map(|name| format!("0000000000000000 T {name}\n")).collect();
    std::fs::write(&hidden, text).expect("a folder of our own");
    let line = format!("mount --bind '{}' /proc/kallsyms && exec \"$@\"", hidden.display());
    let said = run(&mut unshared(&line, &["profile", &server.port, "--duration", "1s"])).exits_with(0);
    // The machine's own list is the second source.
    let list = std::fs::read_to_string("/proc/kallsyms").expect("the machine's list of symbols");
    let known: HashSet<&str> = list.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let is_of_kernel = |line: &&str| line.split_whitespace().any(|word| word == "kernel");
    let rows: Vec<&str> = said.out.lines().filter(|line| line.starts_with("  ")).filter(is_of_kernel).collect();
    let is_named = |row: &&&str| row.split_whitespace().next().is_some_and(|name| known.contains(name));
    let named = rows.iter().filter(is_named).count();
    assert!(named >= 3 && 2 * named > rows.len(), "{named} of {}: {}", rows.len(), said.out);
}

#[test]
fn missing_privileges_are_named() {
    skip_unless!(is_root(), "needs root, to become somebody else");
    skip_unless!(program("setpriv").is_some(), "setpriv is not installed (apt-get install util-linux)");
    needs_server!(Kind::Python);
    let dir = open_dir();
    // The build's folder may be closed to other users.
    let own = dir.path().join("straingauge");
    std::fs::copy(env!("CARGO_BIN_EXE_straingauge"), &own).expect("a copy of the program");
    let server = Busy::start(true);
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]).arg(&own);
        command.args(arguments).current_dir(dir.path());
        command
    };
    run(&mut as_nobody(&["profile", &server.port, "--duration", "1s"])).exits_with(1).complains_of(&["root"]);
    let writable = dir.path().join("run");
    std::fs::create_dir(&writable).expect("a folder of our own");
    std::os::unix::fs::chown(&writable, Some(65534), Some(65534)).expect("we are root");
    let out = writable.join("sweep");
    let out = out.to_str().expect("temporary paths are text");
    let port = free_port().to_string();
    let url = format!("http://127.0.0.1:{port}/");
    let server = ["--", "python3", "-m", "http.server", &port];
    let sweep = ["profile", &url, "--axis", "connections", "--out", out, "-q"];
    run(&mut as_nobody(&[&sweep[..], &server].concat())).exits_with(1).complains_of(&["root"]);
}
