use super::*;
use std::convert::Infallible;

/// The result for a server that answers this many of 250 requests with a given number of connections, of which it
/// serves at most `most`; also the numbers tried.
fn found_with(known: u64, most: u64, answered: u64, pool: impl Fn(u64) -> u64) -> (u64, Vec<u64>) {
    let mut tried = Vec::new();
    let result =
        served(&LoadPlan::simple(([127, 0, 0, 1], 80).into()), most, known, |plan| -> Result<Outcomes, Infallible> {
            tried.push(plan.connections);
            let used = plan.connections.min(250);
            let heard = used.min(pool(plan.connections));
            let ok = answered.min(250 * heard / used);
            let connections_silent = used - heard.min(ok);
            Ok(Outcomes { sent: 250, ok, connections_used: used, connections_silent, ..Outcomes::default() })
        });
    let found = result.unwrap_or_else(|never| match never {});
    (found.map_or(most, |[_, served]| served.connections), tried)
}

fn found(most: u64, answered: u64, pool: impl Fn(u64) -> u64) -> (u64, Vec<u64>) {
    found_with(0, most, answered, pool)
}

fn point(sweep: Sweep, connections: u64, pace: Pace, good: f64, wait_ms: f64) -> Point {
    let mut point = Point { duration_ns: 1_000_000_000, ..Point::new(sweep, 0, connections, pace) };
    for (name, value) in [(names::GOODPUT, good), (names::CONNECTION_WAIT_P99, wait_ms * 1e3)] {
        point.figures.measured(name, value, 1_000, record::Origin::Counted);
    }
    point
}

#[test]
fn the_open_loop_has_the_peaks_connections_with_headroom() {
    let needed = |closed: &[(u64, f64)]| {
        let of = |&(connections, good): &_| point(Sweep::Connections, connections, Pace::Closed, good, 0.0);
        super::needed(&closed.iter().map(of).collect::<Vec<_>>(), 1024)
    };
    let flat = [(1, 30e3), (2, 58e3), (4, 80e3), (8, 83e3), (16, 82e3), (64, 80e3), (256, 79e3)];
    assert_eq!(needed(&flat), Some((16, 1024)));
    // The server scans a list of connections.
    let scanned = [(1, 30e3), (2, 58e3), (4, 70e3), (8, 83e3), (16, 81e3), (32, 60e3), (256, 12e3)];
    assert_eq!(needed(&scanned), Some((16, 16)), "32 were slower");
    assert_eq!(needed(&[(1, 10.0), (64, 640.0), (1024, 9e3)]), Some((1024, 1024)), "the most");
    assert_eq!(needed(&[(1, 80e3)]), Some((16, 1024)));
    let mut silent = [(8, 190.0), (16, 330.0), (32, 500.0), (64, 1.1e3), (128, 900.0), (256, 2.2e3)]
        .map(|(connections, good)| point(Sweep::Connections, connections, Pace::Closed, good, 0.0));
    silent[4..].iter_mut().for_each(|point| point.outcomes.connections_silent = 60);
    assert_eq!(super::needed(&silent, 1024), Some((64, 64)), "128 got no answer");
    assert_eq!(needed(&[]), None);
    assert_eq!(needed(&[(1, 0.0)]), None);
}

#[test]
fn more_connections_are_opened_if_requests_wait_for_a_connection() {
    let pace = Pace::Open { rate_per_sec: 10e3, arrival: Arrival::Poisson };
    let more = |connections, good, wait_ms, capacity| {
        super::more(&point(Sweep::Rate, connections, pace, good, wait_ms), capacity, 1024)
    };
    assert_eq!(more(64, 6e3, 200.0, Some(20e3)), Some(256));
    assert_eq!(more(512, 6e3, 200.0, None), Some(1024));
    assert_eq!(more(1024, 6e3, 200.0, None), None, "the most");
    assert_eq!(more(64, 6e3, 200.0, Some(9e3)), None, "beyond the server's own limit");
    assert_eq!(more(64, 6e3, 0.1, Some(20e3)), None, "none waited");
    let [few, many] = [6e3, 6.1e3].map(|good| point(Sweep::Rate, 64, pace, good, 0.0));
    assert!(!is_more(&many, &few) && is_more(&point(Sweep::Rate, 256, pace, 9e3, 0.0), &few));
}

#[test]
fn a_server_that_answers_all_connections_is_tried_once() {
    assert_eq!(found(1024, 250, |held| held), (1024, vec![1024]));
}

#[test]
fn idle_connections_do_not_use_up_all_workers() {
    // Apache, which loses connections beyond its backlog, and a server with 64 processes.
    assert_eq!(found(1024, 250, |held| if held > 512 { 0 } else { held }), (256, vec![1024, 256]));
    assert_eq!(found(1024, 250, |_| 64), (64, vec![1024, 256, 64]));
    assert_eq!(found_with(64, 1024, 250, |_| 64), (64, vec![1024, 64]), "a closed loop went as far as 64");
    assert_eq!(found_with(2048, 1024, 250, |_| 64), (64, vec![1024, 256, 64]));
}

#[test]
fn connections_with_errors_or_closed_by_the_server_count_as_unserved() {
    let found = |of: fn(u64) -> Outcomes| {
        let plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        let load = |plan: &LoadPlan| Ok::<_, Infallible>(of(plan.connections));
        served(&plan, 1024, 0, load).unwrap_or_else(|never| match never {})
    };
    let closing = |connections: u64| Outcomes {
        ok: 250,
        connections_used: 128.min(connections),
        closed_unused: connections.saturating_sub(128),
        ..Outcomes::default()
    };
    let [more, served] = found(closing).expect("fewer are served");
    assert_eq!((more.connections, served.connections), (1024, 64));
    assert!(more.outcome().ends_with("with 1,024 open (896 closed before any request)"), "{}", more.outcome());
    let refusing = |connections: u64| {
        let ok = if connections > 128 { 50 } else { 250 };
        Outcomes { ok, non_2xx: 250 - ok, connections_used: 250.min(connections), ..Outcomes::default() }
    };
    let [more, served] = found(refusing).expect("fewer are served");
    assert_eq!(served.connections, 64);
    assert!(more.outcome().ends_with("with 1,024 open (200 of 250 answers were errors)"), "{}", more.outcome());
    let missing = |_| Outcomes { non_2xx: 250, connections_used: 250, ..Outcomes::default() };
    assert!(found(missing).is_none(), "a page that is not there is an error over any number");
}

#[test]
fn slow_and_dead_servers_do_not_change_the_number_of_connections() {
    assert_eq!(found(1024, 50, |held| held), (1024, vec![1024, 256, 64, 16]));
    assert_eq!(found(1024, 0, |_| 0).0, 1024);
    assert_eq!(found(20, 0, |_| 0), (20, vec![20]));
}
