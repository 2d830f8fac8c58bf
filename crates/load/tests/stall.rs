//! Open loop: a server that stalls for a second cannot hide it.

use crate::servers::*;
use load::LoadResult;
use record::{Arrival, DoubtKind, LoadPlan};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000 * MS;

/// Answers at once, except during one stall of a second that begins `after` the first request.
fn stalling(after: Duration) -> Server {
    let first: Arc<Mutex<Option<Instant>>> = Arc::default();
    serve(move |mut stream| {
        while read_request(&mut stream).is_some() {
            let begun = *first.lock().unwrap().get_or_insert_with(Instant::now);
            let stall_ends = begun + after + Duration::from_secs(1);
            let now = Instant::now();
            if now > begun + after && now < stall_ends {
                std::thread::sleep(stall_ends - now);
            }
            if stream.write_all(SMALL).is_err() {
                return;
            }
        }
    })
}

#[test]
fn an_open_loop_shows_the_latency_of_a_stall() {
    let server = stalling(Duration::from_millis(700));
    let mut plan = open(server.address, 400.0, Arrival::Constant);
    plan.connections = 1;
    plan.duration_ns = 3 * SECOND;
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.ok, 1200, "{:?}", result.counts.outcomes);
    // 400 requests, a third of all, were intended during the stall. They waited for up to a second, half of them for
    // at least half a second. These bounds follow from the stall, not from the speed of the machine.
    assert!(result.counts.times.response.max_ns().unwrap() >= 900 * MS);
    assert!(
        result.counts.times.response.quantile_ns(0.9).unwrap() >= 600 * MS,
        "{:?}",
        result.counts.times.response.quantile_ns(0.9)
    );
    // Service time counts from the actual send, and only one request was in flight, so the 99th percentile misses the
    // stall.
    let waited = |latency: &record::Latency| latency.len() - latency.count_at_most(400 * MS);
    assert_eq!(waited(&result.counts.times.service), 1, "one request met the stall on its connection");
    assert!(waited(&result.counts.times.response) >= 200, "{}", waited(&result.counts.times.response));
    assert!(result.counts.times.lag.max_ns().unwrap() >= 900 * MS);
    assert!(result.counts.times.connection_wait.max_ns().unwrap() >= 900 * MS);
    let kinds: Vec<_> = result.doubts.iter().map(|doubt| doubt.kind).collect();
    assert!(kinds.contains(&record::DoubtKind::ConnectionWait), "{kinds:?}");
}

#[test]
fn a_closed_loop_hides_the_same_stall() {
    let server = stalling(Duration::from_millis(200));
    let mut plan = plan(server.address);
    plan.connections = 1;
    plan.duration_ns = 2 * SECOND;
    let result = run(&plan);
    let waited = result.counts.times.response.len() - result.counts.times.response.count_at_most(400 * MS);
    assert_eq!(
        waited,
        1,
        "the loop waits together with the server: of {} requests",
        result.counts.times.response.len()
    );
    assert!(result.stall_ns >= Some(800 * MS), "and says how long: {:?}", result.stall_ns);
}

#[test]
fn the_load_waits_for_a_stall_at_the_end_of_the_window() {
    let server = stalling(Duration::from_millis(400));
    let mut plan = open(server.address, 200.0, Arrival::Poisson);
    plan.connections = 2;
    plan.duration_ns = 600 * MS;
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.unfinished, 0, "{:?}", result.counts.outcomes);
    assert!(result.counts.times.response.max_ns().unwrap() >= 800 * MS);
}

#[test]
fn unanswered_requests_are_unfinished_and_raise_a_doubt() {
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            std::thread::sleep(Duration::from_secs(8));
        }
    });
    let mut plan = open(server.address, 100.0, Arrival::Constant);
    plan.duration_ns = 300 * MS;
    plan.timeout_ns = 60 * SECOND;
    let result = run(&plan);
    assert_eq!(result.counts.outcomes.sent, 30);
    assert_eq!(result.counts.outcomes.unfinished, 30, "{:?}", result.counts.outcomes);
    assert_eq!(result.counts.never_sent, 28, "two connections took one each");
    assert!(result.counts.times.unfinished_age.max_ns().unwrap() >= 2 * SECOND, "the grace was given");
    let censored = result.doubts.iter().find(|doubt| doubt.kind == record::DoubtKind::Censored).expect("a doubt");
    assert!(censored.what.contains("30 requests"), "{censored:?}");
    assert!(result.stall_ns >= Some(100 * MS), "{:?}", result.stall_ns);
}

/// A stall of a second that begins before a window of 300 ms and ends after it.
fn stall_around_the_window(plan: LoadPlan) -> LoadResult {
    let result = run(&LoadPlan { warmup_ns: 300 * MS, duration_ns: 300 * MS, ..plan });
    let outcomes = result.counts.outcomes;
    assert!(outcomes.carried_in > 0, "{outcomes:?}");
    assert_eq!(outcomes.unfinished, 0, "{outcomes:?}");
    assert!(result.counts.times.response.max_ns().unwrap() >= 900 * MS, "the stall began before the window");
    assert_eq!(
        (result.counts.completed_in_window, outcomes.connections_silent),
        (0, 0),
        "the answers came after it: {outcomes:?}"
    );
    result
}

#[test]
fn a_closed_loop_shows_a_stall_that_began_in_the_warm_up() {
    let server = stalling(Duration::from_millis(150));
    let result = stall_around_the_window(plan(server.address));
    assert_eq!((result.counts.outcomes.sent, result.counts.outcomes.carried_in, result.counts.outcomes.ok), (0, 2, 2));
    assert_eq!(result.counts.times.service.len(), 2);
}

#[test]
fn an_open_loop_shows_a_stall_that_began_in_the_warm_up() {
    let server = stalling(Duration::from_millis(150));
    let result = stall_around_the_window(open(server.address, 100.0, Arrival::Constant));
    // 30 requests were intended in the window and 15 before it during the stall; these waited in or for a connection.
    assert_eq!(result.counts.outcomes.sent, 30);
    assert!(result.counts.outcomes.carried_in >= 10, "{:?}", result.counts.outcomes);
}

#[test]
fn a_request_that_hangs_for_the_whole_run_is_unfinished() {
    let server = serve(|mut stream| {
        while read_request(&mut stream).is_some() {
            std::thread::sleep(Duration::from_secs(8));
        }
    });
    for pace in [plan(server.address).pace, open(server.address, 20.0, Arrival::Constant).pace] {
        let plan =
            LoadPlan { pace, warmup_ns: 200 * MS, duration_ns: 100 * MS, timeout_ns: 700 * MS, ..plan(server.address) };
        let result = run(&plan);
        let outcomes = result.counts.outcomes;
        assert_eq!(outcomes.timed_out, 2, "sent in the warm-up, given up after the window: {outcomes:?}");
        assert_eq!((outcomes.connections_used, outcomes.connections_silent), (2, 2), "{outcomes:?}");
        let silent = result.doubts.iter().find(|doubt| doubt.kind == DoubtKind::SilentConnections).expect("a doubt");
        assert_eq!(silent.severity, record::Severity::Invalid);
    }
}

#[test]
fn unserved_connections_are_counted_and_raise_a_doubt() {
    let served = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let server = serve(move |mut stream| {
        let is_served = served.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2;
        while read_request(&mut stream).is_some() {
            if is_served && stream.write_all(SMALL).is_err() {
                return;
            }
        }
    });
    let mut plan = plan(server.address);
    (plan.connections, plan.warmup_ns, plan.timeout_ns) = (8, 100 * MS, 600 * MS);
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert_eq!((outcomes.connections_used, outcomes.connections_silent), (8, 6), "{outcomes:?}");
    assert_eq!(outcomes.timed_out + outcomes.unfinished, 6, "{outcomes:?}");
    let kinds: Vec<_> = result.doubts.iter().map(|doubt| doubt.kind).collect();
    assert!(kinds.contains(&DoubtKind::SilentConnections), "{kinds:?}");
    assert!(!kinds.contains(&DoubtKind::LittlesLaw), "two connections were served, and they add up: {kinds:?}");
}

#[test]
fn a_server_that_answers_all_connections_satisfies_littles_law() {
    for answer in [SMALL, SMALL_CLOSE] {
        let server = answering(answer);
        let mut plan = plan(server.address);
        (plan.connections, plan.warmup_ns) = (8, 100 * MS);
        let result = run(&plan);
        let outcomes = result.counts.outcomes;
        assert!(outcomes.carried_in <= 8, "one a connection: {outcomes:?}");
        assert_eq!((outcomes.connections_used, outcomes.connections_silent), (8, 0), "{outcomes:?}");
        assert_eq!(outcomes.ok, outcomes.requests());
        let unfair = [DoubtKind::SilentConnections, DoubtKind::LittlesLaw];
        assert!(result.doubts.iter().all(|doubt| !unfair.contains(&doubt.kind)), "{:?}", result.doubts);
    }
}

#[test]
fn a_run_stopped_during_its_warm_up_has_no_counts() {
    struct Stopping<'a>(&'a std::sync::atomic::AtomicBool);
    impl load::LoadEvents for Stopping<'_> {
        fn progress(&mut self, progress: &load::LoadProgress) {
            self.0.fetch_or(
                progress.completed + progress.failed == 0 && progress.elapsed_ns > 100 * MS,
                std::sync::atomic::Ordering::SeqCst,
            );
        }
    }
    let server = answering(SMALL);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let plan = LoadPlan { warmup_ns: 60 * SECOND, ..plan(server.address) };
    let result = load::run(&plan, &stop, &mut Stopping(&stop)).expect("the load runs");
    assert_books(&result);
    assert!(result.interrupted);
    assert_eq!(
        (result.counts.outcomes.requests(), result.counts.outcomes.connections_used),
        (0, 0),
        "{:?}",
        result.counts.outcomes
    );
}

#[test]
fn timed_out_requests_raise_a_doubt_about_censored_times() {
    let served = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let server = serve(move |mut stream| {
        while read_request(&mut stream).is_some() {
            // Exactly one request hangs.
            if served.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 3 {
                std::thread::sleep(Duration::from_secs(8));
            }
            if stream.write_all(SMALL).is_err() {
                return;
            }
        }
    });
    let result = run(&LoadPlan { timeout_ns: 50 * MS, ..plan(server.address) });
    assert!(result.counts.outcomes.timed_out >= 1, "{:?}", result.counts.outcomes);
    let censored = result.doubts.iter().find(|doubt| doubt.kind == DoubtKind::Censored).expect("a doubt");
    assert!(censored.what.contains("no response when they timed out"), "{censored:?}");
}

#[test]
fn a_stall_keeps_its_length_even_if_its_requests_time_out() {
    let server = stalling(Duration::from_millis(300));
    let plan = plan(server.address);
    let plan = LoadPlan { connections: 1, duration_ns: 2 * SECOND, timeout_ns: 200 * MS, ..plan };
    let result = run(&plan);
    assert!(result.counts.outcomes.timed_out > 1, "{:?}", result.counts.outcomes);
    assert!(result.stall_ns >= Some(800 * MS), "{:?}", result.stall_ns);
}

#[test]
fn a_stall_that_outlasts_the_window_is_counted_to_its_end() {
    for timeout_ns in [60 * SECOND, 200 * MS] {
        let server = stalling(Duration::from_millis(200));
        let result = run(&LoadPlan { duration_ns: 800 * MS, timeout_ns, ..plan(server.address) });
        assert!(result.stall_ns >= Some(400 * MS), "{:?}", result.stall_ns);
        assert!(result.stall_ns <= Some(800 * MS), "it is longer than the window: {:?}", result.stall_ns);
    }
}
