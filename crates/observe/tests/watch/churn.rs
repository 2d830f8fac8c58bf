//! Thousands of short connections: compares their states, event by event, with a scan like that of `ss`.

use crate::client::Connection;
use crate::rig::{Server, watch};
use observe::sock_diag::{DiagSocket, STATES, Scope};
use observe::watch::{WatchOptions, Watcher};
use record::time::monotonic_ns;
use record::watch::{Counter, Mode};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What `ss` shows of the port.
fn scanned(port: u16) -> BTreeMap<&'static str, u64> {
    let sockets = DiagSocket::connect().expect("inet_diag").read_port(port, Scope::AllStates).expect("a scan");
    STATES.iter().copied().zip(sockets.by_state).filter(|(_, count)| *count > 0).collect()
}

fn shown(watcher: &mut Watcher) -> BTreeMap<Cow<'static, str>, u64> {
    watcher.read().connections.states
}

/// Clients open a connection per request, until the given number or time is reached; the watch reads meanwhile.
fn churn(watcher: &mut Watcher, port: u16, clients: usize, connections: u64, lasting: Duration) {
    let (made, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + lasting);
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let made = Arc::clone(&made);
            std::thread::spawn(move || {
                while made.fetch_add(1, Ordering::Relaxed) < connections && Instant::now() < until {
                    Connection::open(port).get("/1k.bin", true);
                }
            })
        })
        .collect();
    let never = AtomicBool::new(false);
    while threads.iter().any(|thread| !thread.is_finished()) {
        watcher.wait_until(monotonic_ns() + 100_000_000, &never);
        watcher.read();
        // Far more often than usual: a scan during changes must do no harm.
        watcher.reconcile();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("the client lives"));
}

/// At rest, the watch's readings equal scans each second. Groups of sockets leave TIME_WAIT at once, so a scan just
/// before or just after the reading may be the equal one. A socket's timer is known to a tick or two of the kernel's
/// clock, so one in a thousand sockets may be shown for a step of the timer wheel (2 s) too long or too short.
fn equals_scans(watcher: &mut Watcher, port: u16, seconds: u64) {
    let never = AtomicBool::new(false);
    let uncertain = scanned(port).get("time-wait").map_or(0, |sockets| sockets / 1000);
    for second in 1..=seconds {
        watcher.wait_until(monotonic_ns() + 1_000_000_000, &never);
        let before = scanned(port);
        let reading = shown(watcher);
        let after = scanned(port);
        let is_equal = |scan: &BTreeMap<&'static str, u64>| {
            STATES.iter().all(|state| {
                let [seen, shown] = [scan.get(state), reading.get(*state)].map(|count| count.copied().unwrap_or(0));
                seen.abs_diff(shown) <= if *state == "time-wait" { uncertain } else { 0 }
            })
        };
        println!("{second} s after: {reading:?} {before:?} {after:?}");
        assert!(
            is_equal(&before) || is_equal(&after),
            "{second} s after: {reading:?}, scans show {before:?} and {after:?}"
        );
    }
}

#[test]
fn states_equal_a_scan_within_a_second_after_thousands_of_connections() {
    let test = "states_equal_a_scan_within_a_second_after_thousands_of_connections";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options = WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let is_long = std::env::var_os("STRAINGAUGE_LONG").is_some();
    let (connections, lasting, rest) =
        if is_long { (u64::MAX, Duration::from_secs(20), 120) } else { (5000, Duration::from_secs(20), 3) };
    churn(&mut watcher, server.port, if is_long { 200 } else { 20 }, connections, lasting);
    println!("{:?}", watcher.read().connections);
    equals_scans(&mut watcher, server.port, rest);
    // A watch that begins now knows none of these sockets, and does not know that some clients come back.
    let options = WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(server.port) };
    let mut late = watch(test, options).expect("as before");
    churn(&mut late, server.port, 20, 2000, lasting);
    equals_scans(&mut late, server.port, rest);
}

/// Connections from the same few client ports: each one replaces another in TIME_WAIT.
#[test]
fn a_client_that_reuses_its_port_ends_the_time_wait() {
    use std::io::{Read, Write};
    let test = "a_client_that_reuses_its_port_ends_the_time_wait";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options = WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let ports: Vec<u16> = (0..5).map(|_| crate::rig::free_port()).collect();
    for _ in 0..4 {
        for port in &ports {
            let mut stream = crate::rig::connect_from(*port, server.port);
            stream.write_all(b"GET /1k.bin HTTP/1.0\r\n\r\n").expect("the request leaves");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).expect("the server closes");
            assert!(answer.len() > 1024);
        }
    }
    crate::rig::settle(&mut watcher);
    let connections = watcher.read().connections;
    assert_eq!(connections.counted.get(Counter::Accepted).unwrap(), 20);
    assert_eq!(connections.states.get("time-wait"), Some(&5), "{connections:?}");
    assert_eq!(scanned(server.port).get("time-wait"), Some(&5));
    assert_eq!(connections.reconciliation.unwrap().largest_difference, 0, "known without a scan: {connections:?}");
}

#[test]
fn connections_beyond_the_time_wait_limit_are_not_counted_as_time_wait() {
    use std::io::Read;
    let test = "connections_beyond_the_time_wait_limit_are_not_counted_as_time_wait";
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED {test}: only root may make network namespaces");
    }
    crate::ways::enter_new_namespace();
    std::fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "20").expect("a setting of the namespace");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    let options = WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(address.port()) };
    let Some(mut watcher) = watch(test, options) else { return };
    for _ in 0..3 {
        for _ in 0..50 {
            let mut client = std::net::TcpStream::connect(address).expect("it accepts");
            drop(listener.accept().expect("a connection"));
            assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        }
        watcher.wait_until(monotonic_ns() + 50_000_000, &AtomicBool::new(false));
        let in_time_wait = shown(&mut watcher).get("time-wait").copied();
        assert_eq!(in_time_wait, scanned(address.port()).get("time-wait").copied());
    }
    assert!(
        watcher.doubts().iter().any(|doubt| doubt.what.contains("no place in TIME_WAIT")),
        "{:?}",
        watcher.doubts()
    );
}
