//! How much more load a watched server can take, and the rate at which a resource is full.

use analyze::watch::headroom::Estimator;
use analyze::watch::headroom::full::{ResourceUse, full_at};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use record::watch::{
    BusyThread, ClassTotals, CpuTotals, Descriptors, Headroom, Limit, LimitKind, LimitTotals, OpenRequest, OpenTotals,
    Range, Reading,
};
use statistics::random;

/// A server with two threads on two CPUs.
fn server() -> Reading {
    let thread = BusyThread { pid: 7, tid: 8, name: "worker".into(), siblings: 1 };
    let limits = LimitTotals {
        cpus: Some(2),
        idle_ns: Some(0),
        busiest_thread_ns: Some(0),
        busiest_thread: Some(thread),
        descriptors: Some(Descriptors { pid: 7, open: 110, limit: 5010 }),
        reading_threads: Some(2),
        ..LimitTotals::default()
    };
    let mut reading = Reading { classes: vec![ClassTotals::default(); 2], limits: Some(limits), ..Reading::default() };
    reading.cpu = Some(CpuTotals { processes: 1, threads: 4, ..CpuTotals::default() });
    reading.connections.states.insert("established".into(), 100);
    reading.connections.accept_queue = Some(0);
    reading.connections.accept_queue_limit = Some(4096);
    reading
}

/// Adds a second with these requests of two classes, each of this duration, which cost 1 ms and 5 ms of CPU; one
/// thread serves three of four.
fn second(reading: &mut Reading, requests: [u64; 2], elapsed_ms: u64) -> &Reading {
    reading.at_ns += 1_000_000_000;
    let mut busy_ns = 0;
    for ((class, n), cost_ns) in reading.classes.iter_mut().zip(requests).zip([1_000_000, 5_000_000]) {
        class.requests += n;
        class.timed += n;
        class.cpu_ns += (n * cost_ns) as i64;
        class.elapsed_ns += n * elapsed_ms * 1_000_000;
        busy_ns += n * cost_ns;
    }
    if let (Some(cpu), Some(limits)) = (&mut reading.cpu, &mut reading.limits) {
        cpu.group_ns += busy_ns;
        limits.busiest_thread_ns = limits.busiest_thread_ns.map(|ns| ns + busy_ns * 3 / 4);
        limits.idle_ns = limits.idle_ns.map(|ns| ns + 2_000_000_000 - busy_ns);
    }
    reading
}

/// Watches some seconds of a server.
fn watch(
    estimator: &mut Estimator,
    server: &mut Reading,
    seconds: u64,
    (requests, elapsed_ms): (impl Fn(u64) -> u64, u64),
) -> Headroom {
    (0..seconds).for_each(|at| estimator.add(second(server, [requests(at), 0], elapsed_ms)));
    estimator.headroom()
}

fn limit(found: &Headroom, kind: LimitKind) -> &Limit {
    found.limits.iter().find(|limit| limit.kind == kind).unwrap_or_else(|| panic!("{kind:?} in {found:#?}"))
}

fn why(found: &Headroom, kind: LimitKind) -> &str {
    found.unknown.iter().find(|limit| limit.kind == kind).map_or("", |limit| limit.why.as_str())
}

fn holds(range: Range, truth: f64) -> bool {
    range.low <= truth && range.high.is_none_or(|high| truth <= high)
}

#[test]
fn a_changed_mix_does_not_change_the_cost() {
    let (mut server, mut estimator) = (server(), Estimator::sliding());
    // The rates of the cheap and the expensive class vary differently, so their sum hardly explains the CPU time.
    let mut requests = [0, 0];
    for at in 0..60 {
        let now = [100 + 40 * (at % 3), 20 + 15 * (at % 2)];
        requests = [requests[0] + now[0], requests[1] + now[1]];
        estimator.add(second(&mut server, now, 6));
    }
    let found = estimator.headroom();
    let mean_ns = (requests[0] + 5 * requests[1]) as f64 * 1e6 / (requests[0] + requests[1]) as f64;
    let cpus = limit(&found, LimitKind::Cpus);
    let range = cpus.full_at_per_sec.unwrap();
    assert!(holds(range, 2e9 / mean_ns), "{range:?} {mean_ns}");
    assert!(range.high.unwrap() < 2.0 * range.low, "the line is exact, only the extrapolation widens it: {range:?}");
    assert_eq!((cpus.most, found.readings), (2.0, 59));
}

#[test]
fn the_busiest_of_two_workers_gives_the_lower_end_and_both_give_the_upper_end() {
    let (mut server, mut estimator) = (server(), Estimator::sliding());
    let found = watch(&mut estimator, &mut server, 30, (|at| 100 + 10 * (at % 20), 1));
    let thread = limit(&found, LimitKind::BusiestThread);
    let range = thread.full_at_per_sec.unwrap();
    // One thread is full at 1000 / 0.75 per second, and both together at 2000.
    assert!(holds(range, 1333.0) && holds(range, 2000.0) && range.low > 900.0, "{range:?}");
    assert_eq!(thread.of.as_ref().unwrap().as_str(), "8 worker");
    assert_eq!(found.limits[0].kind, LimitKind::BusiestThread, "the nearest is first");
    assert!(found.unseen.is_none() && found.capacity_per_sec.unwrap().low == range.low, "{found:#?}");
    let descriptors = limit(&found, LimitKind::Descriptors);
    assert_eq!(descriptors.times, Range { low: 5010.0 / 110.0, high: Some(50.0) });
    assert_eq!(why(&found, LimitKind::Backlog), "empty (limit 4,096): it fills only once the server is full");
    assert!(why(&found, LimitKind::ThreadPool).contains("too few concurrent requests"));
    server.limits.as_mut().unwrap().cpus = None;
    let unseen = watch(&mut estimator, &mut server, 30, (|at| 100 + 10 * (at % 20), 1)).unseen.unwrap();
    assert_eq!(unseen.as_str(), "CPUs: not measured: the server's processes are not visible");
}

#[test]
fn a_pool_of_threads_is_full_when_each_has_a_request() {
    let pool = |threads: [u32; 2]| {
        let mut server = server();
        let longest = threads.map(|thread| OpenRequest { thread, ..OpenRequest::default() }).to_vec();
        server.open = Some(OpenTotals { waiting: 2, sending: 0, longest });
        server.limits.as_mut().unwrap().reading_threads = Some(4);
        // Requests take 20 ms each, so four threads serve 200 per second.
        watch(&mut Estimator::sliding(), &mut server, 30, (|at| 40 + 3 * (at % 15), 20))
    };
    let found = pool([8, 9]);
    let range = limit(&found, LimitKind::ThreadPool).full_at_per_sec.unwrap();
    assert!(holds(range, 200.0) && range.high.unwrap() < 350.0, "{range:?}");
    assert_eq!(found.limits[0].kind, LimitKind::ThreadPool);
    assert!(found.unseen.is_none(), "what they wait in is seen");
    let shared = pool([8, 8]);
    assert!(shared.limits.iter().all(|limit| limit.kind != LimitKind::ThreadPool), "{shared:#?}");
    assert!(shared.unseen.unwrap().contains("its other waits"));
}

#[test]
fn a_lasting_queue_and_unreadable_counters_are_reported() {
    let mut hidden = server();
    hidden.connections.accept_queue = Some(1024);
    let limits = hidden.limits.as_mut().unwrap();
    (limits.cpus, limits.busiest_thread_ns, limits.descriptors) = (None, None, None);
    let found = watch(&mut Estimator::sliding(), &mut hidden, 20, (|at| 100 + 10 * at, 1));
    assert_eq!(limit(&found, LimitKind::Backlog).times, Range { low: 1.0, high: Some(4.0) });
    for (kind, words) in [
        (LimitKind::Cpus, "processes are not visible"),
        (LimitKind::BusiestThread, "CPU time of threads cannot be read"),
        (LimitKind::Descriptors, "processes are not visible"),
    ] {
        assert!(why(&found, kind).contains(words), "{found:#?}");
    }
    assert!(found.unknown.iter().all(|limit| limit.kind != LimitKind::CpuQuota), "no quota is no limit");
    let mut uncounted = Reading { classes: Vec::new(), ..server() };
    let found = watch(&mut Estimator::sliding(), &mut uncounted, 20, (|_| 100, 1));
    assert_eq!(why(&found, LimitKind::BusiestThread), "requests are not counted");
}

#[test]
fn a_recording_of_any_length_needs_bounded_memory_and_keeps_its_whole_time() {
    let (mut server, mut estimator) = (server(), Estimator::whole());
    let found = watch(&mut estimator, &mut server, 20_000, (|at| 100 + at / 100, 1));
    assert!(found.readings < 240 && found.window_s > 19_000.0, "{found:#?}");
    assert!(holds(limit(&found, LimitKind::Cpus).full_at_per_sec.unwrap(), 2000.0));
    let found = watch(&mut Estimator::sliding(), &mut server, 1000, (|_| 100, 1));
    assert_eq!((found.readings, found.window_s), (60, 60.0));
}

/// CPUs used at a rate, which is a share of 1,000/s.
type Used = fn(f64) -> f64;

const SERVERS: [(&str, Used); 6] = [
    ("linear", |at| at),
    ("with an idle cost", |at| 0.04 + 0.96 * at),
    ("batching", |at| at.powf(0.9)),
    ("waking up", |at| at * (0.8 + 0.2 * (1.0 - at)) / 0.8),
    ("contended", |at| at * (0.85 + 0.15 * at)),
    ("contended more", |at| at.powf(1.15)),
];

/// The share of 1,000/s at which the server fills the rest of its CPU.
fn capacity(used: Used, left: f64) -> f64 {
    let (mut low, mut high) = (0.0, 4.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if used(middle) < left { low = middle } else { high = middle }
    }
    low * 1000.0
}

/// A minute of readings, one per second: the rate swings slowly with noise, up to `peak` of the capacity. Other
/// work uses the CPU, too: on average `others`, more or less for seconds at a time.
fn readings(used: Used, peak: f64, others: f64, random: &mut ChaCha8Rng) -> Vec<ResourceUse> {
    let (mut drift, phase, swing) = (0.0, random.random_range(0.0..6.0), random.random_range(0.25..0.8));
    let period: f64 = random.random_range(15.0..90.0);
    (0..60)
        .map(|second| {
            let wave = (f64::from(second) * std::f64::consts::TAU / period + phase).sin();
            let at = peak * (1.0 - swing / 2.0 + swing / 2.0 * wave) * random.random_range(0.93..1.0);
            let own = used(at) * random.random_range(0.95..1.05);
            drift = 0.8 * drift + others * random.random_range(-0.15..0.15);
            // The kernel counts idle time in ticks of 10 ms.
            let used = ((own + others + drift) * 100.0 + random.random_range(-0.5..0.5)).round() / 100.0;
            ResourceUse { rate: at * 1000.0, used: used.clamp(0.0, 1.0), own }
        })
        .collect()
}

#[test]
fn the_interval_contains_the_capacity_of_most_servers_of_every_kind() {
    let mut random = random(3);
    let mut misses = Vec::new();
    for (name, used) in SERVERS {
        for others in [0.0, 0.1, 0.2] {
            let truth = capacity(used, 1.0 - others);
            let (mut held, mut said, mut width) = (0, 0, 0.0);
            for _ in 0..200 {
                let peak = random.random_range(0.15..0.6) * truth / 1000.0;
                let Ok(range) = full_at(&readings(used, peak, others, &mut random), 1.0) else { continue };
                said += 1;
                let high = range.high.unwrap_or(f64::INFINITY);
                held += usize::from(range.low <= truth && truth <= high);
                width += (high.min(4.0 * range.low) / range.low).ln();
            }
            assert!(said > 100, "{name}, others {others}: an estimate in {said} of 200");
            let width = (width / said as f64).exp();
            if (held as f64) < 0.9 * said as f64 || width > 3.0 {
                misses.push(format!("{name}, others {others}: held {held} of {said}, {width:.2} wide"));
            }
        }
    }
    assert!(misses.is_empty(), "{misses:#?}");
}

#[test]
fn a_rate_that_does_not_vary_and_usage_that_does_not_follow_it_are_refused() {
    let mut random = random(4);
    let why = |points: Vec<(f64, f64)>| {
        let uses: Vec<_> = points.into_iter().map(|(rate, used)| ResourceUse { rate, used, own: used }).collect();
        full_at(&uses, 1.0).err().unwrap_or_default()
    };
    let mut refused = 0;
    for _ in 0..200 {
        let usual = random.random_range(10.0..10_000.0);
        let rates: Vec<f64> = (0..60).map(|_| usual * random.random_range(0.95..1.05)).collect();
        let said = why(rates.into_iter().map(|rate| (rate, 3e-5 * rate)).collect());
        assert!(said.starts_with("the rate varied by") && said.contains("20 % are needed ("), "{said}");
        let mut any = || (random.random_range(100.0..1000.0), random.random_range(0.1..0.3));
        refused += usize::from(why((0..60).map(|_| any()).collect()).contains("does not clearly grow"));
    }
    assert!(refused >= 190, "{refused} of 200");
}

#[test]
fn a_full_resource_has_no_headroom_and_other_work_reduces_the_capacity() {
    let at = |rate: f64, used: f64, own: f64| ResourceUse { rate, used, own };
    let full: Vec<ResourceUse> = (0..20).map(|n| at(f64::from(n % 3) + 500.0, 0.99, 0.9)).collect();
    let range = full_at(&full, 1.0).unwrap();
    assert!(range.low < 501.0 && range.high.unwrap() > 500.0 && range.high.unwrap() < 540.0, "{range:?}");
    // A polling server uses as much CPU at a third of the rate.
    let polls: Vec<ResourceUse> = (0..20).map(|n| at(if n < 10 { 300.0 } else { 900.0 }, 1.0, 0.98)).collect();
    let why = full_at(&polls, 1.0).unwrap_err();
    assert!(why.contains("as busy at 300/s as at 900/s") && why.contains("polls"), "{why}");
    let other: Vec<ResourceUse> = (0..20).map(|n| at(f64::from(n) + 100.0, 1.0, 0.2)).collect();
    assert!(full_at(&other, 1.0).unwrap_err().contains("other work"));
    assert!(full_at(&full[..5], 1.0).unwrap_err().contains("5 readings"));
    let silent: Vec<ResourceUse> = (0..20).map(|_| at(0.0, 0.1, 0.1)).collect();
    assert_eq!(full_at(&silent, 1.0).unwrap_err(), "there are no requests");
}
