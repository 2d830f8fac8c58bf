//! What is left of the library without its feature `bpf`: connections by state, and a sentence from whatever needs a BPF program.
//! Not among the other tests, as it wants another build: `cargo test --workspace --no-default-features --test without_bpf`.
#![cfg(not(feature = "bpf"))]

use observe::profile::{PointSampler, PointSampling};
use observe::slow_down::SlowDown;
use observe::watch::{WatchOptions, Watcher};
use observe::{profile, watch};
use std::net::{TcpListener, TcpStream};

#[test]
fn what_needs_bpf_says_that_it_was_not_built() {
    let attached = PointSampler::attach(1, None, PointSampling::OF_SEARCH);
    for why in [
        watch::try_out().expect_err("no BPF").to_string(),
        profile::try_out().expect_err("no BPF").to_string(),
        attached.expect_err("no BPF"),
        SlowDown::attach(1, None, &[], None).expect_err("no BPF").to_string(),
    ] {
        assert!(why.contains("built without"), "{why}");
    }
    let all = observe::capabilities();
    for name in ["hooks in kernel functions", "sampling of the kernel"] {
        let capability = all.iter().find(|capability| capability.name == name).expect(name);
        assert!(!capability.is_available && capability.detail.contains("built without"), "{capability:?}");
    }
}

#[test]
fn connections_are_seen_by_state_and_requests_are_not_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let clients: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens")).collect();
    let servers: Vec<TcpStream> = clients.iter().map(|_| listener.accept().expect("a connection").0).collect();
    let mut watcher = Watcher::start(WatchOptions::of_port(port)).expect("scans need no BPF");
    assert!(watcher.why_no_programs().expect("no BPF").to_string().contains("built without BPF"));
    let reading = watcher.read();
    assert_eq!(reading.connections.states.get("established"), Some(&(servers.len() as u64)), "{reading:?}");
    assert!(reading.classes.is_empty() && reading.open.is_none(), "{reading:?}");
}
