//! The microbenchmark's two ends on loopback, the sender in a thread of this process.

use load::microbenchmark::{Plan, SEGMENT_BYTES, run, sender};
use load::{LoadEvents, Progress};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

/// A sender on a free port; the next one must be free too. Below the ports that the kernel gives to clients: tens of thousands
/// of connections of the tests beside this one may hold every second port of those.
fn start() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 100) as u16 * 100;
    for _ in 0..1000 {
        let port = first + NEXT.fetch_add(2, Ordering::Relaxed) % 2000;
        if (port..=port + 1).any(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err()) {
            continue;
        }
        std::thread::spawn(move || sender::serve(port));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // What only looks whether somebody listens is left in the sender's queue.
        for _ in 0..500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port + 1)).is_ok() && TcpStream::connect(address).is_ok() {
                return address;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    panic!("no sender could be started");
}

fn plan(sender: SocketAddr) -> Plan {
    Plan {
        sender,
        connections: 16,
        rate_per_sec: 2000.0,
        warmup_ns: 50_000_000,
        duration_ns: 300_000_000,
        polls: false,
        cpus: Vec::new(),
    }
}

#[derive(Default)]
struct Events {
    begins: u32,
    ends: u32,
    connected: u64,
}

impl LoadEvents for Events {
    fn window_begins(&mut self) {
        self.begins += 1;
    }

    fn progress(&mut self, progress: &Progress) {
        self.connected = progress.connected;
    }

    fn window_ends(&mut self) {
        self.ends += 1;
    }
}

#[test]
fn segments_are_sent_at_the_rate_over_all_connections_point_after_point() {
    let sender = start();
    for (connections, polls) in [(16, false), (1, true), (200, false)] {
        let mut events = Events::default();
        let plan = Plan { connections, polls, ..plan(sender) };
        let outcome = run(&plan, &AtomicBool::new(false), &mut events).unwrap();
        assert!(!outcome.interrupted && outcome.window_ns >= plan.duration_ns);
        assert_eq!((events.begins, events.ends, events.connected), (1, 1, connections));
        assert!(outcome.segments > 0);
        // Late segments are caught up with, but none leaves before its time: a sender that had fallen behind by the whole
        // warm-up sends at most that much more.
        let most = plan.rate_per_sec * (outcome.counted_ns + plan.warmup_ns) as f64 / 1e9 + 10.0;
        assert!(outcome.segments as f64 <= most, "{} of {most}", outcome.segments);
        assert_eq!(outcome.lag.len(), outcome.segments, "every segment has its lateness");
        let figures = outcome.figures();
        let rate = figures.value(record::names::MICRO_SENT).unwrap();
        assert!((rate - outcome.segments as f64 * 1e9 / outcome.counted_ns as f64).abs() < 1e-6);
    }
    assert_eq!(
        SEGMENT_BYTES,
        1500 - 20 - 32,
        "an Ethernet's payload without the headers of IP and of TCP with time stamps"
    );
}

#[test]
fn a_point_can_be_stopped_and_another_one_follows() {
    struct StopsInWindow<'a>(&'a AtomicBool);
    impl LoadEvents for StopsInWindow<'_> {
        fn window_begins(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let sender = start();
    let stop = AtomicBool::new(false);
    let long = Plan { duration_ns: 3_600_000_000_000, ..plan(sender) };
    let outcome = run(&long, &stop, &mut StopsInWindow(&stop)).unwrap();
    assert!(outcome.interrupted && outcome.window_ns < long.duration_ns);
    let before = run(&long, &AtomicBool::new(true), &mut Events::default()).unwrap();
    assert!(before.interrupted && before.window_ns == 0, "stopped before the window");
    let outcome = run(&plan(sender), &AtomicBool::new(false), &mut Events::default()).unwrap();
    assert!(!outcome.interrupted && outcome.segments > 0);
}

#[test]
fn a_sender_that_is_not_there_or_talks_nonsense_is_said() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free.max(2) - 1));
    let error = run(&plan(nobody), &AtomicBool::new(false), &mut Events::default()).unwrap_err();
    assert!(error.to_string().contains("sender"), "{error}");
    let liar = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = liar.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::Write;
        for stream in liar.incoming() {
            let _ = stream.unwrap().write_all(b"{\"sent\": \x1b\n");
        }
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port - 1));
    let error = run(&plan(address), &AtomicBool::new(false), &mut Events::default()).unwrap_err().to_string();
    assert!(error.contains("unreadable message") && !error.contains('\u{1b}'), "{error}");
}
