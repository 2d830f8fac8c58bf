//! Tests of the wide-area path with pings, bulk transfers and losses, for both mechanisms.

use super::{plan, root};
use record::{Latency, PathMechanism, PathPlan};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wan::{NamespacePair, PairPlan, WanError};

pub fn line(delay_ms: u64) -> PathPlan {
    PathPlan { delay_ns: delay_ms * 1_000_000, mechanism: PathMechanism::TunDelayLine, ..PathPlan::default() }
}

pub fn limited(path: PathPlan, bandwidth_bits_per_sec: u64) -> PathPlan {
    PathPlan {
        bandwidth_bits_per_sec,
        queue_bytes: PathPlan::default_queue_bytes(path.delay_ns, bandwidth_bits_per_sec),
        ..path
    }
}

pub fn pair_with(path: PathPlan) -> NamespacePair {
    NamespacePair::create(&PairPlan { path, ..plan() }).unwrap()
}

/// Milliseconds of each answer that the system's ping reports.
fn pings(pair: &NamespacePair, count: u32) -> Option<Vec<f64>> {
    let mut command = Command::new("ping");
    command.args(["-n", "-i", "0.01", "-c", &count.to_string(), &pair.server_addr_v4().to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    pair.run_client(&mut command).unwrap();
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut found: Vec<f64> =
        text.split("time=").skip(1).filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect();
    found.sort_by(f64::total_cmp);
    Some(found)
}

/// Whether the shortest of some pings is within 0.3 ms + 2 % of the planned round trip. A busy machine makes others
/// longer.
pub fn round_trip_is_exact(path: &PathPlan) -> Result<String, String> {
    let asked_ms = 2.0 * path.delay_ns as f64 / 1e6;
    let limit_ms = 0.3 + 0.02 * asked_ms;
    let pair = pair_with(path.clone());
    let own = pair.self_test(&|| false).unwrap();
    let by_ping = pings(&pair, 50);
    pair.remove().unwrap();
    let own_ms = own.round_trips_ns.first().map_or(0.0, |nanos| *nanos as f64 / 1e6);
    let least_ms = by_ping.as_ref().and_then(|found| found.first().copied());
    let said = format!(
        "asked {asked_ms} ms; ping: {}; self-test: least {own_ms:.3} ms of {}",
        least_ms.map_or("not installed".into(), |least_ms| format!("least {least_ms:.3} ms")),
        own.round_trips_ns.len()
    );
    let is_exact = |seen_ms: f64| (seen_ms - asked_ms).abs() <= limit_ms;
    if is_exact(own_ms) && least_ms.is_none_or(is_exact) { Ok(said) } else { Err(said) }
}

#[test]
fn a_ping_takes_twice_the_delay() {
    if !root() {
        return;
    }
    for delay_ms in [1, 10, 40, 100] {
        match round_trip_is_exact(&line(delay_ms)) {
            Ok(said) => eprintln!("{said}"),
            Err(said) => panic!("{said}"),
        }
    }
}

/// Payload bytes per second of one TCP connection from server to client, not counting the time `skip`.
pub fn bulk_bytes_per_sec(pair: &NamespacePair, skip: Duration, window: Duration) -> f64 {
    let listener =
        pair.server_namespace().run_inside(|| Ok(TcpListener::bind((pair.server_addr_v4(), 0)).unwrap())).unwrap();
    let at = listener.local_addr().unwrap();
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let chunk = [7u8; 64 << 10];
        while stream.write_all(&chunk).is_ok() {}
    });
    let mut stream = pair.client_namespace().run_inside(|| Ok(TcpStream::connect(at).unwrap())).unwrap();
    let mut buffer = vec![0u8; 256 << 10];
    let began = Instant::now();
    while began.elapsed() < skip {
        stream.read_exact(&mut buffer[..1000]).unwrap();
    }
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < window {
        bytes += stream.read(&mut buffer).unwrap();
    }
    let per_sec = bytes as f64 / began.elapsed().as_secs_f64();
    drop(stream);
    sender.join().unwrap();
    per_sec
}

/// Whether bulk transfer and self-test measure 100 Mbit/s of IP packets within 5 %. A busy machine gets four tries.
pub fn bandwidth_is_exact(path: &PathPlan) -> Result<String, String> {
    let mut said = String::new();
    for _ in 0..4 {
        let pair = pair_with(path.clone());
        let own = pair.self_test(&|| false).unwrap().bits_per_sec.unwrap_or(0.0) / 1e6;
        // A packet of 1500 bytes has 1448 bytes of payload.
        let seen =
            bulk_bytes_per_sec(&pair, Duration::from_millis(700), Duration::from_secs(1)) * 8e-6 / 1448.0 * 1500.0;
        pair.remove().unwrap();
        let asked = path.bandwidth_bits_per_sec as f64 / 1e6;
        said = format!("asked {asked} Mbit/s; TCP: {seen:.1} Mbit/s of IP packets; self-test: {own:.1} Mbit/s");
        if (seen / asked - 1.0).abs() <= 0.05 && (own / asked - 1.0).abs() <= 0.05 {
            return Ok(said);
        }
    }
    Err(said)
}

#[test]
fn a_bulk_transfer_fills_a_limit_of_100_mbit_and_no_more() {
    if !root() {
        return;
    }
    match bandwidth_is_exact(&limited(line(10), 100_000_000)) {
        Ok(said) => eprintln!("{said}"),
        Err(said) => panic!("{said}"),
    }
}

/// Number of arrived datagrams out of `count` that were sent slowly from client to server.
pub fn datagrams_arriving(pair: &NamespacePair, count: u32) -> u32 {
    numbers_arriving(pair, count).len() as u32
}

/// Numbers of the datagrams that arrived.
fn numbers_arriving(pair: &NamespacePair, count: u32) -> Vec<u32> {
    let receiver =
        pair.server_namespace().run_inside(|| Ok(UdpSocket::bind((pair.server_addr_v4(), 0)).unwrap())).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 64 << 20).unwrap();
    let to = receiver.local_addr().unwrap();
    let sender = pair.client_namespace().run_inside(|| Ok(UdpSocket::bind(("0.0.0.0", 0)).unwrap())).unwrap();
    for number in 0..count {
        sender.send_to(&number.to_be_bytes(), to).unwrap();
        if number % 100 == 99 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut number = [0u8; 4];
    let mut arrived = Vec::new();
    while receiver.recv(&mut number).is_ok() {
        arrived.push(u32::from_be_bytes(number));
    }
    arrived
}

/// Whether a change of the delay begins another sequence of losses, equal in every run.
pub fn losses_differ_after_a_change(path: &PathPlan) -> Result<String, String> {
    let run = || {
        let pair = pair_with(PathPlan { loss_ratio: 0.5, ..path.clone() });
        let meter = pair.path_meter();
        let sequences = [2_000_000, 1_000_000, 2_000_000].map(|delay_ns| {
            meter.set_delay(delay_ns).unwrap();
            numbers_arriving(&pair, 50)
        });
        pair.remove().unwrap();
        sequences
    };
    let [first, second, third] = run();
    let said = format!("arrived: {first:?}, then {second:?}, then {third:?}");
    let differ = first != second && second != third && first != third;
    if differ && run() == [first, second, third] { Ok(said) } else { Err(said) }
}

/// Whether the losses of a path lie within four standard deviations of a binomial distribution (one run in 16,000
/// does not).
pub fn loss_is_binomial(path: &PathPlan, count: u32) -> Result<String, String> {
    let pair = pair_with(path.clone());
    pair.path_meter().take();
    let arrived = datagrams_arriving(&pair, count);
    let tally = pair.path_meter().take();
    pair.remove().unwrap();
    let lost = f64::from(count - arrived);
    let (expected, ratio) = (f64::from(count) * path.loss_ratio, path.loss_ratio);
    let deviation = (f64::from(count) * ratio * (1.0 - ratio)).sqrt();
    let said = format!(
        "lost {lost} of {count}, expected {expected} +- {deviation:.1}; the path counted {:?} lost, {} dropped{}",
        tally.lost,
        tally.dropped,
        tally.failure.map_or(String::new(), |why| format!("; {why}"))
    );
    let counted = tally.lost.unwrap_or(tally.dropped) as f64;
    // The kernel's own packets (multicast listener reports) may be among the counted ones.
    let is_counted = (counted - lost).abs() <= 10.0;
    if (lost - expected).abs() <= 4.0 * deviation && is_counted { Ok(said) } else { Err(said) }
}

#[test]
fn losses_are_binomial_and_counted() {
    if !root() {
        return;
    }
    match loss_is_binomial(&PathPlan { loss_ratio: 0.02, ..line(1) }, 20_000) {
        Ok(said) => eprintln!("{said}"),
        Err(said) => panic!("{said}"),
    }
}

/// Whether packets that find the queue full are dropped and counted. With 1 Mbit/s and a queue of 30 kB, most of
/// 5,000 small datagrams find it full.
pub fn a_full_queue_counts(path: PathPlan) -> Result<String, String> {
    let pair = pair_with(limited(path, 1_000_000));
    pair.path_meter().take();
    let arrived = datagrams_arriving(&pair, 5000);
    let tally = pair.path_meter().take();
    pair.remove().unwrap();
    let gone = u64::from(5000 - arrived);
    let said = format!("{gone} of 5000 gone, {} dropped, {:?} lost", tally.dropped, tally.lost);
    let is_counted = (gone..=gone + 10).contains(&tally.dropped) && tally.lost.is_none_or(|lost| lost == 0);
    if gone > 0 && is_counted { Ok(said) } else { Err(said) }
}

#[test]
fn a_bandwidth_beyond_the_self_tests_rate_raises_no_doubt() {
    if !root() {
        return;
    }
    let pair = pair_with(limited(line(1), 60_000_000_000));
    let tested = pair.self_test(&|| false).unwrap();
    pair.remove().unwrap();
    eprintln!("{}", tested.summary());
    assert!(tested.sent_too_slowly_bits_per_sec.is_some(), "one thread does not send 60 Gbit/s of datagrams");
    let of_rate: Vec<_> = tested.doubts().into_iter().filter(|doubt| doubt.what.contains("through")).collect();
    assert!(of_rate.is_empty(), "{of_rate:?}");
}

#[test]
fn a_self_test_can_be_stopped() {
    if !root() {
        return;
    }
    let pair = pair_with(line(10_000));
    let stopped = pair.self_test(&|| true);
    assert!(matches!(stopped, Err(WanError::Stopped)), "{stopped:?}");
    pair.remove().unwrap();
}

#[test]
fn a_path_with_high_planned_loss_raises_no_doubt() {
    if !root() {
        return;
    }
    let test = |seed: u64| {
        let path = PathPlan { loss_ratio: 0.7, seed, ..limited(line(1), 10_000_000) };
        let pair = pair_with(path);
        let tested = pair.self_test(&|| false).unwrap();
        pair.remove().unwrap();
        tested
    };
    // A busy machine may delay pings, but not silence them.
    let silent = |what: &str| what.contains("was answered") || what.contains("did not arrive");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20).map(|seed| scope.spawn(move || test(seed))).collect();
        for thread in threads {
            let tested = thread.join().unwrap();
            let wrong: Vec<_> = tested.doubts().into_iter().filter(|doubt| silent(&doubt.what)).collect();
            assert!(wrong.is_empty(), "{wrong:?}");
        }
    });
}

#[test]
fn a_full_queue_drops_and_counts_packets() {
    if !root() {
        return;
    }
    match a_full_queue_counts(line(1)) {
        Ok(said) => eprintln!("{said}"),
        Err(said) => panic!("{said}"),
    }
}

/// Whether datagrams that find the receiver's backlog full are counted as dropped.
pub fn a_full_backlog_counts(path: PathPlan) -> Result<String, String> {
    const BACKLOG: &str = "/proc/sys/net/core/netdev_max_backlog";
    let before = std::fs::read_to_string(BACKLOG).unwrap();
    std::fs::write(BACKLOG, "0").unwrap();
    let pair = pair_with(path);
    pair.path_meter().take();
    let arrived = datagrams_arriving(&pair, 2000);
    let dropped = pair.path_meter().take().dropped;
    pair.remove().unwrap();
    std::fs::write(BACKLOG, before).unwrap();
    let gone = u64::from(2000 - arrived);
    let said = format!("{gone} of 2000 gone, {dropped} dropped");
    if gone > 0 && (gone..=gone + 10).contains(&dropped) { Ok(said) } else { Err(said) }
}

/// Packets on the path for each megabyte from server to client, with and without quick acknowledgements.
fn packets_per_transfer(path: PathPlan) -> f64 {
    const BYTES: usize = 2 << 20;
    let pair = pair_with(path);
    let listener =
        pair.server_namespace().run_inside(|| Ok(TcpListener::bind((pair.server_addr_v4(), 0)).unwrap())).unwrap();
    let at = listener.local_addr().unwrap();
    let sender = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&vec![0u8; BYTES]).unwrap());
    pair.path_meter().take();
    let mut stream = pair.client_namespace().run_inside(|| Ok(TcpStream::connect(at).unwrap())).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), BYTES);
    sender.join().unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(50));
    let packets = pair.path_meter().take().packets as f64;
    pair.remove().unwrap();
    packets / (BYTES as f64 / 1448.0)
}

/// Whether all of `count` small datagrams arrive. They need a small part of the bandwidth, but come faster than full
/// packets could.
pub fn small_packets_arrive(path: &PathPlan, count: u32) -> Result<String, String> {
    let pair = pair_with(path.clone());
    let arrived = datagrams_arriving(&pair, count);
    let dropped = pair.path_meter().take().dropped;
    pair.remove().unwrap();
    let said = format!("{arrived} of {count} small packets arrived, {dropped} dropped");
    if arrived == count && dropped == 0 { Ok(said) } else { Err(said) }
}

/// How often a client reads until it has ten segments that the server wrote at once. On a slow link they come one by
/// one.
pub fn reads_of_a_burst(path: &PathPlan) -> Result<String, String> {
    const SEGMENTS: usize = 10;
    let pair = pair_with(path.clone());
    let listener =
        pair.server_namespace().run_inside(|| Ok(TcpListener::bind((pair.server_addr_v4(), 0)).unwrap())).unwrap();
    let at = listener.local_addr().unwrap();
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[7u8; SEGMENTS * 1448]).unwrap();
        stream
    });
    let mut stream = pair.client_namespace().run_inside(|| Ok(TcpStream::connect(at).unwrap())).unwrap();
    let mut buffer = vec![0u8; 256 << 10];
    let (mut bytes, mut reads) = (0, 0);
    while bytes < SEGMENTS * 1448 {
        bytes += stream.read(&mut buffer).unwrap();
        reads += 1;
    }
    drop((stream, sender.join().unwrap()));
    pair.remove().unwrap();
    let said = format!("{SEGMENTS} segments came in {reads} reads");
    // A reader that waits for its CPU finds several segments at once.
    if reads > 3 { Ok(said) } else { Err(said) }
}

#[test]
fn segments_of_one_write_cross_a_slow_link_one_by_one() {
    if !root() {
        return;
    }
    match reads_of_a_burst(&limited(line(1), 1_000_000)) {
        Ok(said) => eprintln!("{said}"),
        Err(said) => panic!("{said}"),
    }
}

#[test]
fn quick_acknowledgements_answer_every_segment() {
    if !root() {
        return;
    }
    // A bandwidth limit prevents the merging of segments.
    let path = limited(line(2), 200_000_000);
    let delayed = packets_per_transfer(path.clone());
    let quick = packets_per_transfer(PathPlan { quickack: true, ..path });
    eprintln!("packets on the path for each data segment: {delayed:.2} with delayed, {quick:.2} with quick ACKs");
    // On a busy machine some segments are merged before they are acknowledged.
    assert!((1.8..2.2).contains(&quick), "one ACK for each segment: {quick:.2}");
    // The kernel also acknowledges at once if the reader was late because it waited for its CPU: on a busy machine
    // nearly always.
    assert!(delayed < quick, "at times one ACK for two segments: {delayed:.2}");
}

#[test]
fn lateness_is_measured_on_every_packet() {
    if !root() {
        return;
    }
    let pair = pair_with(line(5));
    pair.path_meter().take();
    let arrived = datagrams_arriving(&pair, 1000);
    let tally = pair.path_meter().take();
    assert_eq!(arrived, 1000);
    assert!((1000..1010).contains(&tally.packets), "{} packets", tally.packets);
    assert_eq!(tally.lateness.as_ref().map(Latency::len), Some(tally.packets));
    assert!(tally.cpu_ns.is_some_and(|nanos| nanos > 0));
    assert_eq!(pair.path_meter().take().packets, 0, "a reading takes what it read");
    pair.remove().unwrap();
}

#[test]
fn the_path_works_for_both_address_families_and_is_steered() {
    if !root() {
        return;
    }
    let plan = PairPlan { path: line(1), has_known_addresses: true, ..plan() };
    let pair = NamespacePair::create(&plan).unwrap();
    assert_eq!(pair.server_addr_v4().to_string(), "198.18.0.1");
    super::talk_across(&pair, pair.server_addr_v4(), pair.client_addr_v4());
    super::talk_across(&pair, pair.server_addr_v6(), pair.client_addr_v6());
    assert_eq!(super::steered_to(&pair), [plan.server_cpus, plan.client_cpus]);
    pair.remove().unwrap();
}

/// Whether round trip and bandwidth follow a change of the delay.
pub fn a_changed_delay_is_exact(path: &PathPlan, delay_ms: u64) -> Result<String, String> {
    let pair = pair_with(path.clone());
    pair.path_meter().set_delay(delay_ms * 1_000_000).unwrap();
    let tested = pair.self_test(&|| false).unwrap();
    pair.remove().unwrap();
    if tested.doubts().is_empty() { Ok(tested.summary()) } else { Err(tested.summary()) }
}

#[test]
fn the_delay_of_a_path_can_be_changed() {
    if !root() {
        return;
    }
    let pair = pair_with(line(50));
    let meter = pair.path_meter();
    for delay_ms in [5, 30] {
        meter.set_delay(delay_ms * 1_000_000).unwrap();
        // The shortest round trip cannot be below the delay, and a busy machine does not delay all ten.
        let least_ms = pair.self_test(&|| false).unwrap().round_trips_ns[0] as f64 / 1e6;
        assert!((2.0 * delay_ms as f64 * 0.99..50.0 + delay_ms as f64).contains(&least_ms), "{least_ms} ms");
    }
    assert!(meter.set_delay(u64::MAX).is_err());
    assert_eq!(meter.plan().delay_ns, 30_000_000, "a refused delay changes nothing");
    pair.remove().unwrap();
    let bare = NamespacePair::create(&plan()).unwrap();
    assert!(bare.path_meter().set_delay(1).is_err());
    bare.remove().unwrap();
}

#[test]
fn the_error_names_missing_netem() {
    if !root() {
        return;
    }
    if wan::has_netem() {
        eprintln!("not run: this kernel has netem");
        return;
    }
    let path = PathPlan { mechanism: PathMechanism::Netem, ..line(1) };
    let message = NamespacePair::create(&PairPlan { path, ..plan() }).unwrap_err().to_string();
    assert!(message.contains("netem") && message.contains("TUN delay line"), "{message}");
    let chosen = pair_with(PathPlan { mechanism: PathMechanism::Other, ..line(1) });
    assert_eq!(chosen.path().mechanism, PathMechanism::TunDelayLine, "left to us, it is the delay line");
    chosen.remove().unwrap();
}

#[test]
fn an_impossible_path_creates_no_pair() {
    let message = NamespacePair::create(&PairPlan { path: line(365 * 86_400_000), ..plan() }).unwrap_err().to_string();
    assert!(message.contains("too long"), "{message}");
}
