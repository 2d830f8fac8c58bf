//! Reap delay: the time by which a client lengthens a response time by reading an answer late.
//!
//! The engine takes the arrivals of a rate series on its own thread, one after another. The iterator that supplies
//! them also acts as the server and stalls the engine. So the test knows to the microsecond when answers arrived and
//! how long the engine did nothing.
//!
//! A load shorter than a second is one burst, so it samples every request.

use crate::servers::*;
use load::{LoadEvents, LoadResult, Supply};
use record::time::monotonic_ns;
use record::workload::SeriesSource;
use record::{Arrival, ClientPlan, LoadPlan, LoadShare, names};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Requests sent at once, each on its own connection.
const REQUESTS: usize = 100;
const REST: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, PartialEq)]
enum Stalls {
    /// The server stalls before it answers.
    Server,
    /// The client stalls after the answers have arrived.
    Client,
}

/// When each event happened, on the monotonic clock.
#[derive(Default)]
struct Diary {
    start_ns: u64,
    answering_ns: u64,
    answered_ns: u64,
    stalled_ns: u64,
}

struct Stage {
    stalls: Stalls,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    diary: Arc<Mutex<Diary>>,
}

impl Stage {
    /// Waits until all requests but the last are sent.
    fn all_are_sent(&self) {
        while self.streams.lock().unwrap().len() <= REQUESTS {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.stalls == Stalls::Server {
            std::thread::sleep(REST);
        }
        let mut diary = self.diary.lock().unwrap();
        diary.answering_ns = monotonic_ns();
        for stream in self.streams.lock().unwrap().iter_mut() {
            stream.set_nonblocking(true).unwrap();
            if stream.read(&mut [0; 4096]).is_ok() {
                stream.write_all(SMALL).unwrap();
                continue;
            }
            let mut last = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                last.set_nonblocking(false).unwrap();
                read_request(&mut last);
                last.write_all(SMALL).unwrap();
            });
        }
        diary.answered_ns = monotonic_ns();
        if self.stalls == Stalls::Client {
            std::thread::sleep(REST);
        }
        diary.stalled_ns = monotonic_ns();
    }
}

impl Supply for Stage {
    /// All arrivals at once, except a last one that the engine takes after it has sent the others.
    fn arrivals<'a>(&'a self, _: &LoadPlan, _: LoadShare) -> Option<Box<dyn Iterator<Item = u64> + Send + 'a>> {
        let end = std::iter::from_fn(move || {
            self.all_are_sent();
            None
        });
        Some(Box::new(std::iter::repeat_n(0, REQUESTS).chain([50 * MS]).chain(end.take(1))))
    }
}

impl LoadEvents for Stage {
    fn starts_at(&mut self, earliest_ns: u64) -> u64 {
        self.diary.lock().unwrap().start_ns = earliest_ns;
        earliest_ns
    }
}

/// Runs the load; also returns the instant at which it had ended.
fn play(stalls: Stalls) -> (LoadResult, Diary, u64) {
    let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let accepted = streams.clone();
    let server = serve(move |stream| accepted.lock().unwrap().push(stream));
    let diary: Arc<Mutex<Diary>> = Arc::default();
    let stage = || Stage { stalls, streams: streams.clone(), diary: diary.clone() };
    let mut plan = open(server.address, 1000.0, Arrival::Series);
    (plan.connections, plan.duration_ns) = (REQUESTS as u64 + 1, 100 * MS);
    plan.workload.series = Some(SeriesSource {
        file: "made up".into(),
        intervals: 1,
        interval_ns: 100 * MS,
        peak_ratio: 1.0,
        speed: None,
    });
    let result = load::run_supplied(&plan, &stage(), &AtomicBool::new(false), &mut stage()).expect("the load runs");
    let ended_ns = monotonic_ns();
    assert_books(&result);
    assert_eq!(result.counts.outcomes.ok, REQUESTS as u64 + 1, "{:?}", result.counts.outcomes);
    let diary = std::mem::take(&mut *diary.lock().unwrap());
    (result, diary, ended_ns)
}

/// Tolerance for histograms, which keep three digits.
fn about(nanos: u64) -> u64 {
    nanos - nanos / 500
}

/// The kernel needs some time to begin stamping.
fn assert_most_are_dated(result: &LoadResult) {
    let (dated, all) = (result.counts.times.reap.len(), result.counts.outcomes.completed());
    assert!(dated <= all && 2 * dated > all, "{dated} of {all} dated");
}

#[test]
fn a_planted_client_stall_shows_as_reap_delay() {
    let (result, diary, ended_ns) = play(Stalls::Client);
    let times = &result.counts.times;
    assert_most_are_dated(&result);
    let planted_ns = diary.stalled_ns - diary.answered_ns;
    // All but the last request were answered before the stall.
    let (least, most) = (times.reap.quantile_ns(0.02).unwrap(), times.reap.max_ns().unwrap());
    assert!(least >= about(planted_ns), "{least} ns of {planted_ns} ns");
    // The test's own record: from the departure of the first answer until all were read.
    let stalled_ns = ended_ns - diary.answering_ns;
    assert!(about(most) <= stalled_ns, "{most} ns of {stalled_ns} ns");
    // Without the reap delay, the stall disappears, because the answers had arrived before it.
    assert!(about(times.arrived.quantile_ns(0.98).unwrap()) <= diary.answered_ns - diary.start_ns);
    assert!(times.sampled.buckets()[0].0 >= about(diary.stalled_ns - diary.start_ns - 50 * MS));
    let doubt = result.doubts.iter().find(|doubt| doubt.kind == record::DoubtKind::ReapDelay);
    assert!(doubt.is_some(), "{:?}", result.doubts);
}

#[test]
fn a_slow_server_causes_no_reap_delay() {
    let (result, diary, ended_ns) = play(Stalls::Server);
    let times = &result.counts.times;
    assert_most_are_dated(&result);
    assert!(about(times.reap.max_ns().unwrap()) <= ended_ns - diary.answering_ns);
    assert!(times.arrived.quantile_ns(0.5).unwrap() >= about(diary.answering_ns - diary.start_ns));
}

#[test]
fn server_think_time_is_not_charged_to_the_client() {
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            std::thread::sleep(Duration::from_millis(5));
            if stream.write_all(SMALL).is_err() {
                return;
            }
        }
    });
    let mut plan = plan(server.address);
    (plan.connections, plan.duration_ns) = (16, 500 * MS);
    let result = run(&plan);
    let times = &result.counts.times;
    assert_most_are_dated(&result);
    assert!(times.arrived.buckets()[0].0 >= about(5 * MS), "{:?}", times.arrived.buckets()[0]);
    assert_eq!((times.sampled.len(), times.arrived.len()), (times.reap.len(), times.reap.len()));
}

#[test]
fn a_body_that_comes_in_pieces_is_timed_by_its_last_byte() {
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n";
            let (first, rest) = (vec![b'x'; 39_000], vec![b'y'; 1_000]);
            if stream.write_all(&[head.as_slice(), &first].concat()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(3));
            if stream.write_all(&rest).is_err() {
                return;
            }
        }
    });
    let mut plan = plan(server.address);
    (plan.connections, plan.duration_ns) = (16, 500 * MS);
    let result = run(&plan);
    let times = &result.counts.times;
    assert_most_are_dated(&result);
    assert!(times.arrived.buckets()[0].0 >= about(3 * MS), "{:?}", times.arrived.buckets()[0]);
}

/// The report has the sampled time. A busy machine may miss bursts.
#[test]
fn a_long_load_is_sampled_in_bursts() {
    let server = answering(SMALL.to_vec());
    let bursts = (0..20).find_map(|_| {
        let result = run(&LoadPlan { duration_ns: 1_000 * MS, ..plan(server.address) });
        (!result.counts.times.reap.is_empty()).then_some(result)
    });
    let result = bursts.expect("a burst in 20 s");
    let (sampled, all) = (result.counts.times.reap.len(), result.counts.outcomes.completed());
    assert!(result.counts.dated_ns < result.window_ns && sampled + result.counts.arrivals_unknown < all);
    let figures = result.figures(&plan(server.address));
    let (share, p50) = (figures.get(names::REAP_DATED).unwrap(), figures.get(names::REAP_P50).unwrap());
    assert_eq!(share.value, Some(result.counts.dated_ns as f64 / result.window_ns as f64));
    assert_eq!((share.n, p50.n), (Some(result.counts.dated_times), Some(sampled)));
    assert_eq!(p50.origin, Some(record::figure::Origin::Sampled));
}

/// The end of the connection completes the response, and its arrival time is not known.
#[test]
fn without_known_arrivals_the_figure_gives_the_reason() {
    let served = Arc::new(AtomicBool::new(false));
    let seen = served.clone();
    let server = serve(move |mut stream| {
        seen.store(true, Ordering::SeqCst);
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end");
        }
    });
    let mut plan = plan(server.address);
    plan.connections = 8;
    let result = run(&plan);
    assert!(served.load(Ordering::SeqCst) && result.counts.times.reap.is_empty());
    assert!(result.counts.arrivals_unknown > 0, "{:?}", result.counts.outcomes);
    let why = result.figures(&plan).get(names::REAP_P99).unwrap().not_measured.clone().unwrap();
    assert!(why.contains("did not report when"), "{why}");
}

#[test]
fn deliberately_slow_readers_have_no_reap_delay() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 10_000, b'x');
    let server = answering(answer);
    let mut plan = plan(server.address);
    plan.connections = 64;
    plan.clients = ClientPlan { read_bytes_per_sec: 200_000, ..Default::default() };
    let result = run(&plan);
    assert!(result.counts.outcomes.ok > 0 && result.counts.times.reap.is_empty());
    let figure = result.figures(&plan).get(names::REAP_P50).unwrap().clone();
    assert_eq!(figure.value, None);
    assert!(figure.not_measured.unwrap().contains("on purpose"));
}
