//! Goroutines of a Go server: their part of the requests in its queues, and the limit that they show.

use crate::account::{group, keep};
use crate::fixture;
use crate::rules::{found, judged, set, waits};
use crate::server::Bench;
use analyze::account::{PlaceKind, levels};
use analyze::zones;
use record::account::{JAVA, Parked, WaitKind};
use record::profile::Frame;
use record::{Point, names};
use verdict::Certainty;

const READINGS: u64 = 10;

/// `stack` is innermost first.
fn parked(reason: &str, stack: &[&str], mean: f64) -> Parked {
    let frame = |name: &&str| Frame { function: (*name).into(), module: None, is_kernel: false };
    Parked { reason: reason.into(), frames: stack.iter().map(frame).collect(), count: (mean * READINGS as f64) as u64 }
}

/// A Go server with 4 requests at work, 12 goroutines of its own, and these that wait when there are more.
fn go(point: &mut Point, queued: impl Fn(f64) -> Vec<Parked>) {
    let (load, rate) = (point.connections as f64, point.value(names::THROUGHPUT).unwrap_or(1.0));
    let threads = [(WaitKind::Events, "epoll_pwait", "", 0.9), (WaitKind::Work, "futex", "0x10", 3.0)];
    keep(point, vec![group("app", 0.1, 0.0, &threads)], Vec::new());
    set(point, names::WATCH_ELAPSED, load / rate * 1e6, 1000);
    let account = point.account.as_mut().expect("just kept");
    account.parked_readings = READINGS;
    account.parked = queued((load - 4.0).max(0.0));
    account.parked.push(parked("chan receive", &["runtime.gopark", "runtime.chanrecv", "main.background"], 12.0));
    account.parked.push(parked("sleep", &["runtime.gopark", "time.Sleep", "main.work"], load.min(4.0) - 0.1));
}

/// The rules that apply, the first one's certainty, reason and remedy.
fn verdict(queued: impl Fn(f64) -> Vec<Parked>) -> (Vec<String>, Certainty, String, String) {
    let verdict = judged(waits(), fixture::record(), |point| go(point, &queued));
    let first = verdict.causes.first().expect("a cause");
    (
        found(&verdict).into_iter().map(String::from).collect(),
        first.certainty,
        first.because.clone(),
        first.remedy.clone(),
    )
}

#[test]
fn a_lock_that_goroutines_wait_for_is_named_with_what_its_holder_does() {
    let stack = ["runtime.gopark", "sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow", "main.(*store).get"];
    let (found, certainty, because, remedy) = verdict(|queued| vec![parked("sync.Mutex.Lock", &stack, queued)]);
    assert_eq!((found[0].as_str(), certainty), ("own-limit", Certainty::Cause), "{because}");
    assert!(because.contains("124.0 of them at one place: sync.Mutex.Lock in main.(*store).get"), "{because}");
    assert!(because.contains("meanwhile 3.9 were asleep in main.work"), "{because}");
    assert!(remedy.contains("hold that lock for a shorter time"), "{remedy}");
}

#[test]
fn a_channel_is_named_with_the_functions_of_the_library_and_of_the_program() {
    let stack =
        ["runtime.gopark", "runtime.selectgo", "golang.org/x/sync/semaphore.(*Weighted).Acquire", "main.limited"];
    let (found, _, because, remedy) = verdict(|queued| vec![parked("select", &stack, queued)]);
    assert_eq!(found, ["own-limit"], "{because}");
    let place = "select in semaphore.(*Weighted).Acquire for main.limited";
    assert!(because.contains(place) && remedy.contains("let more in there"), "{because} {remedy}");
    // A stripped program has no names of functions.
    let (_, _, because, _) = verdict(|queued| vec![parked("chan send", &["[server]"], queued)]);
    assert!(because.contains("124.0 of them at one place: chan send;"), "{because}");
}

#[test]
fn a_monitor_of_java_is_named_with_the_program_s_own_function() {
    let stack = [
        "java/util/Collections.get",
        "com/zaxxer/hikari/pool/HikariPool.getConnection",
        "org/apache/Filter.run",
        "com/shop/Api.list",
    ];
    let (found, certainty, because, remedy) = verdict(|queued| {
        let mut parked = parked("synchronized", &stack, queued);
        parked.frames.iter_mut().for_each(|frame| frame.module = Some(JAVA.into()));
        vec![parked]
    });
    assert_eq!((found[0].as_str(), certainty), ("own-limit", Certainty::Cause), "{because}");
    assert!(because.contains("one place: synchronized in HikariPool.getConnection for Api.list"), "{because}");
    assert!(remedy.contains("hold that lock for a shorter time"), "{remedy}");
}

#[test]
fn a_goroutine_for_each_connection_holds_no_request() {
    let (_, _, because, _) = verdict(|queued| {
        let library = ["runtime.gopark", "runtime.selectgo", "google.golang.org/grpc/transport.(*loopyWriter).run"];
        let waits =
            ["runtime.gopark", "runtime.selectgo", "example.org/shop/v2.(*Api).List", "net/http.HandlerFunc.ServeHTTP"];
        vec![parked("select", &library, queued + 4.0), parked("select", &waits, queued)]
    });
    assert!(because.contains("124.0 of them at one place: select in shop/v2.(*Api).List;"), "{because}");
}

#[test]
fn goroutines_that_could_run_need_more_threads() {
    let (found, _, because, remedy) = verdict(|queued| vec![parked("", &[], queued)]);
    assert_eq!(found, ["own-limit"], "{because}");
    assert!(because.contains("ready, without a thread") && remedy.contains("GOMAXPROCS"), "{because} {remedy}");
}

#[test]
fn goroutines_that_are_there_at_every_load_have_no_request() {
    let verdict = judged(waits(), fixture::record(), |point| go(point, |_| Vec::new()));
    assert_eq!(found(&verdict), ["own-limit"], "{:?}", verdict.sentences);
    assert!(!verdict.causes[0].because.contains("chan receive"), "{:?}", verdict.sentences);
}

#[test]
fn the_places_of_goroutines_are_part_of_the_queue_and_add_up() {
    let mut bench = Bench::new(waits(), 5);
    [1, 4, 16].into_iter().for_each(|load| bench.closed(load, 0, 1_000_000_000));
    // Twice as many goroutines as requests: each request waits for a second one.
    let queued = |queued| {
        let stack = ["runtime.gopark", "main.handle"];
        vec![parked("select", &stack, queued), parked("sync.Mutex.Lock", &stack, queued), parked("sleep", &stack, 0.2)]
    };
    bench.points.iter_mut().for_each(|point| go(point, queued));
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &bench.points);
    for level in levels(&run, zones::of_run(&run).connections.as_ref().expect("a sweep")) {
        let requests = level.requests.expect("the client's side is known");
        assert!(requests.open_ratio().abs() < 1e-9, "{requests:?}");
        let of = |name: &str| -> f64 {
            requests.places.iter().filter(|place| place.name == name).map(|place| place.requests).sum()
        };
        let queued = (level.load - 4.0).max(0.0);
        assert!((of("in the program: sync.Mutex.Lock in main.handle") - queued).abs() < 1e-6, "{requests:?}");
        assert_eq!(of("in the program: chan receive in main.background"), 0.0, "{requests:?}");
        let queue = requests.places.iter().find(|place| place.kind == PlaceKind::Queue).expect("a place");
        assert!(queue.requests >= 0.0, "{requests:?}");
    }
}
