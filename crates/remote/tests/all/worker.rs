//! The worker's bytes and its options, and which plans are permitted.

use observe::watch::SizeClasses;
use observe::watch::pack::Pack;
use record::watch::Mode;
use record::{LoadPlan, machine};
use remote::protocol::{MAX_LINE_BYTES, ProtocolError};
use remote::worker_io::{Listening, MessageQueue, PAUSE_NS, WorkerEvent, read};
use remote::{RequestWatchPlan, WorkerOptions, permit};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn next(events: &Receiver<(usize, WorkerEvent)>) -> Result<Vec<u8>, String> {
    match events.recv_timeout(LONG).unwrap().1 {
        WorkerEvent::Line(line, _) => Ok(line),
        WorkerEvent::Ended(why) => Err(why.map_or(String::new(), |why| why.to_string())),
    }
}

#[test]
fn lines_are_reassembled_from_any_pieces_and_the_end_is_reported_once() {
    let (sender, events) = sync_channel(4);
    let (mut worker, here) = UnixStream::pair().unwrap();
    read(&sender, 7, here).unwrap();
    for piece in ["on", "e\ntwo\n\nth", "ree", "\n"] {
        worker.write_all(piece.as_bytes()).unwrap();
    }
    for expected in ["one", "two", "", "three"] {
        assert_eq!(next(&events).unwrap(), expected.as_bytes());
    }
    worker.write_all(b"fou").unwrap();
    drop(worker);
    assert_eq!(next(&events).unwrap_err(), ProtocolError::Torn.to_string());
    assert!(events.recv_timeout(Duration::from_millis(20)).is_err());
    read(&sender, 1, io::repeat(b'x').take(4 * MAX_LINE_BYTES as u64)).unwrap();
    assert_eq!(next(&events).unwrap_err(), ProtocolError::TooLong.to_string());
}

#[test]
fn a_slow_reader_gets_all_lines_in_order_and_then_the_end() {
    let (mut worker, here) = UnixStream::pair().unwrap();
    let out = MessageQueue::start(here).unwrap();
    let long = "x".repeat(1 << 20);
    assert!((0..4).all(|number| out.send(format!("{number}{long}\n"))));
    out.close();
    assert!(!out.send("too late\n".into()));
    let mut all = String::new();
    worker.read_to_string(&mut all).unwrap();
    let begins: Vec<u8> = all.lines().map(|line| line.as_bytes()[0]).collect();
    assert_eq!((begins.as_slice(), all.len()), (b"0123".as_slice(), 4 * (long.len() + 2)));
}

#[test]
fn a_worker_that_never_reads_blocks_no_one_and_a_gone_one_closes_the_queue() {
    let (worker, here) = UnixStream::pair().unwrap();
    let out = MessageQueue::start(here).unwrap();
    assert!((0..1000).all(|_| out.send(format!("{}\n", "x".repeat(10_000)))));
    drop(worker);
    let until = std::time::Instant::now() + LONG;
    while out.send("x\n".into()) && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!out.send("x\n".into()));
}

#[test]
fn a_worker_is_not_silent_while_the_driver_does_not_listen() {
    let mut listening = Listening { since_ns: 5, last_ns: 5 };
    for now_ns in [PAUSE_NS, 2 * PAUSE_NS] {
        assert_eq!(listening.listening_since(now_ns), 5);
    }
    assert_eq!(listening.listening_since(4 * PAUSE_NS), 4 * PAUSE_NS);
    assert_eq!(listening.listening_since(4 * PAUSE_NS + 9), 4 * PAUSE_NS);
}

#[test]
fn a_worker_has_the_cpus_and_threads_that_it_was_given() {
    let completed = |cpus: &[usize], threads, asked| {
        let options = WorkerOptions { cpus: cpus.to_vec(), threads, ..WorkerOptions::default() };
        let simple = LoadPlan::simple("192.0.2.1:80".parse().unwrap());
        let mut plan = LoadPlan { connections: 9, threads: asked, cpus: Vec::new(), ..simple };
        options.complete(&mut plan).unwrap();
        (plan.cpus, plan.threads)
    };
    assert_eq!(completed(&[0, 1, 2], None, 0), (vec![0, 1, 2], 3));
    assert_eq!(completed(&[0, 1, 2], None, 2), (vec![0, 1, 2], 2));
    assert_eq!(completed(&[0], Some(4), 2), (vec![0], 4));
    assert_eq!(completed(&[], Some(40), 2), (Vec::new(), 9));
    assert_eq!(completed(&[], None, 0), (Vec::new(), machine::allowed_cpus().len().min(9)));
    let cpus = machine::allowed_cpus();
    let capacity = |cpus: &[usize], threads| {
        let options = WorkerOptions { cpus: cpus.to_vec(), threads, ..WorkerOptions::default() };
        options.capacity().map(|capacity| capacity.cpus as usize)
    };
    assert_eq!(capacity(&cpus[..1], None), Some(1));
    assert_eq!(capacity(&cpus, Some(1)), Some(1));
    assert_eq!(capacity(&[], Some(4000)), Some(cpus.len()));
}

#[test]
fn the_loopback_interface_has_its_address_and_an_unknown_one_is_named() {
    let sources = |interface: &str| {
        let options = WorkerOptions { interface: Some(interface.into()), ..WorkerOptions::default() };
        let mut plan = LoadPlan::simple("192.0.2.1:80".parse().unwrap());
        options.complete(&mut plan).map(|()| plan.source_addresses)
    };
    assert!(sources("lo").unwrap().contains(&IpAddr::from([127, 0, 0, 1])));
    assert!(sources("no-such-0").unwrap_err().to_string().contains("no-such-0"));
}

#[test]
fn impossible_plans_are_refused_with_a_reason() {
    let good = RequestWatchPlan { mode: Mode::Counts, overhead_ratio: 0.01, classes: None, pack: None };
    let asked: RequestWatchPlan = serde_json::from_str(r#"{"mode":"counts","overhead_ratio":0.01}"#).unwrap();
    assert_eq!(asked, good);
    let classes = RequestWatchPlan { classes: Some("1KiB,64KiB".into()), ..good.clone() };
    assert_eq!(classes.options(80).unwrap().classes, SizeClasses::parse("1KiB,64KiB").unwrap());
    let pack =
        RequestWatchPlan { pack: Some(("nginx".into(), Pack::open_with_text("nginx").unwrap().1)), ..good.clone() };
    assert_eq!(pack.options(80).unwrap().pack, Some(Pack::open("nginx").unwrap()));
    for (bad, word) in [
        (RequestWatchPlan { overhead_ratio: f64::NAN, ..good.clone() }, "budget"),
        (RequestWatchPlan { classes: Some("9KiB,1KiB".into()), ..good.clone() }, "ascend"),
        (RequestWatchPlan { pack: Some(("mine".into(), "parsed\n".into())), ..good.clone() }, "mine, line 1"),
    ] {
        let why = bad.options(80).unwrap_err();
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn several_clients_send_only_where_they_are_allowed() {
    let address = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
    let list = |hosts: &[&str]| hosts.iter().map(|host| host.to_string()).collect::<Vec<_>>();
    assert!(permit(&[], "127.0.0.1", &address("127.0.0.1"), 2).is_ok());
    assert!(permit(&[], "::1", &address("::1"), 2).is_ok());
    assert!(permit(&[], "example.org", &address("192.0.2.1"), 2).is_err());
    assert!(permit(&list(&["example.com"]), "example.org", &address("192.0.2.1"), 2).is_err());
    assert!(permit(&list(&["Example.org"]), "example.org", &address("192.0.2.1"), 2).is_ok());
    assert!(permit(&list(&["192.0.2.1"]), "example.org", &address("192.0.2.1"), 2).is_ok());
    // A host needs all of its addresses allowed.
    let both = [address("192.0.2.1"), address("192.0.2.2")].concat();
    assert!(permit(&list(&["192.0.2.1"]), "example.org", &both, 2).is_err());
}

#[test]
fn one_client_needs_permission_only_for_public_addresses() {
    let sent = |text: &str| permit(&[], "host", &[text.parse::<IpAddr>().unwrap()], 1);
    for near in [
        "127.0.0.2",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "0.0.0.0",
        "198.18.0.1",
        "198.19.255.255",
        "::1",
        "fd00::1",
        "fe80::1",
        "::ffff:10.0.0.1",
    ] {
        assert!(sent(near).is_ok(), "{near}");
    }
    for far in [
        "192.0.2.1",
        "172.32.0.1",
        "100.128.0.1",
        "100.63.255.255",
        "11.0.0.1",
        "198.20.0.1",
        "2001:db8::1",
        "::ffff:192.0.2.1",
    ] {
        let why = sent(far).expect_err(far).to_string();
        assert!(why.contains("--allow-target host"), "{why}");
        assert!(permit(&["host".into()], "host", &[far.parse().unwrap()], 1).is_ok(), "{far}");
    }
    let both: Vec<IpAddr> = ["10.0.0.1", "192.0.2.1"].iter().map(|text| text.parse().unwrap()).collect();
    assert!(permit(&[], "host", &both, 1).is_err());
    assert!(permit(&[], "host", &both[..1], 2).is_err());
}
