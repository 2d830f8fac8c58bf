//! CPUs filled by other work are not the server's limit: figures from their busy share exclude them, or have a doubt.

use crate::fixture;
use crate::server::{Bench, Server, plan};
use analyze::zones::{self, Findings, PointPlace};
use record::{Criteria, DoubtKind, Figure, Origin, Point, Severity, names};

fn set(point: &mut Point, name: &str, value: f64) {
    point.figures.set(name, Figure::new(value, "ratio", 2, Origin::Timed));
}

/// The server's CPUs are 97 % busy; other work took this share of them.
fn filled(taken: f64) -> impl Fn(&mut Point) {
    move |point| {
        set(point, names::SERVER_CPU_BUSY, 0.97);
        set(point, names::SERVER_CPUS_TAKEN, taken);
    }
}

/// A search over rate with changed points.
fn searched(server: Server, change: impl Fn(&mut Point)) -> (Vec<Point>, Findings) {
    let mut bench = Bench::new(Server { noise: 0.005, drift: 0.01, ..server }, 3);
    let plan = plan(120);
    let capacity = bench.server.capacity();
    bench.search_rate(&plan, Some(capacity), 3);
    bench.points.iter_mut().for_each(change);
    let findings = zones::find(&bench.points, &plan.criteria);
    (bench.points, findings)
}

/// A server that allows 2,000 requests per second and keeps no CPU busy.
fn bucket() -> Server {
    Server { hidden_limit: 2000.0, ..Server::default() }
}

#[test]
fn the_open_loop_has_no_yield_point_where_other_work_filled_the_cpus() {
    let (points, findings) = searched(bucket(), filled(0.9));
    let open = findings.rate.as_ref().unwrap();
    assert_eq!(
        (open.yield_point.place, open.yield_point.estimate),
        (PointPlace::Unknown, None),
        "{:?}",
        open.yield_point
    );
    assert!(open.yield_point.reason.contains("largely with other work"), "{}", open.yield_point.reason);
    let doubt = open.doubts.iter().find(|doubt| doubt.what.contains("would saturate them")).expect("a doubt");
    assert_eq!((doubt.kind, doubt.severity), (DoubtKind::NoisyNeighbour, Severity::Warning));
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &points);
    let said = verdict::sentences(&run, &findings).sentences;
    assert!(said.iter().any(|said| said.starts_with("Open-loop yield point: unknown")), "{said:?}");
}

#[test]
fn cpus_that_are_full_at_higher_loads_do_not_explain_why_a_lower_one_failed() {
    let headline = |busy_where_it_breaks: f64| {
        let (points, findings) = searched(bucket(), |point| {
            let offered = point.offered_per_sec().unwrap_or(0.0);
            set(point, names::SERVER_CPU_BUSY, if offered > 2300.0 { 0.98 } else { busy_where_it_breaks });
        });
        let folder = tempfile::tempdir().unwrap();
        let run = fixture::write(folder.path(), fixture::record(), &points);
        assert!(points.iter().any(|point| point.offered_per_sec().is_some_and(|rate| rate > 2300.0)));
        verdict::sentences(&run, &findings).headline
    };
    assert!(headline(0.9).contains("CPUs are full"), "{}", headline(0.9));
    assert!(!headline(0.04).contains("CPUs are full"), "{}", headline(0.04));
}

#[test]
fn the_open_loop_is_judged_by_the_servers_own_cpu_time() {
    // A quiet machine, and one on which other work uses a fifth of the CPU time.
    let (_, quiet) = searched(bucket(), |_| ());
    let open = quiet.rate.unwrap();
    assert_eq!(open.yield_point.place, PointPlace::Beyond, "{:?}", open.yield_point);
    assert!(open.doubts.iter().all(|doubt| doubt.kind != DoubtKind::NoisyNeighbour), "{:?}", open.doubts);
    let (_, little) = searched(Server::default(), |point| set(point, names::SERVER_CPUS_TAKEN, 0.03));
    let open = little.rate.unwrap();
    let truth = 0.95 * Server::default().capacity();
    let found = &open.yield_point;
    let is_within = found.low.is_some_and(|low| low <= truth) && found.high.is_none_or(|high| truth <= high);
    assert!(found.place == PointPlace::Within && is_within, "{truth} in {found:?}");
    // A full thread is the server's own, whatever else runs.
    let (_, thread) = searched(Server::default(), |point| {
        let own = point.value(names::SERVER_BUSIEST_THREAD).unwrap_or(0.0);
        filled(0.97 - own.min(0.97))(point);
    });
    assert_eq!(thread.rate.unwrap().yield_point.place, PointPlace::Within);
}

#[test]
fn the_closed_loop_says_whose_work_filled_the_cpus() {
    let swept = |change: &dyn Fn(&mut Point)| {
        let mut bench = Bench::new(Server { path: 500e-6, hidden_limit: 10_000.0, ..Server::default() }, 5);
        for (repeat, load) in (0..4).flat_map(|repeat| [1, 2, 4, 8, 16, 32, 64].map(|load| (repeat, load))) {
            bench.closed(load, repeat, 1_000_000_000);
        }
        bench.points.iter_mut().for_each(|point| {
            set(point, names::SERVER_BUSIEST_THREAD, 0.2);
            change(point);
        });
        zones::find(&bench.points, &Criteria::default()).connections.unwrap()
    };
    let crowded = swept(&filled(0.8));
    assert!(crowded.yield_point.reason.ends_with("97 % busy, largely with other work"), "{:?}", crowded.yield_point);
    assert!(crowded.levels.iter().all(|level| level.crowded));
    let own = swept(&filled(0.1));
    assert!(own.yield_point.reason.ends_with("97 % busy"), "{:?}", own.yield_point);
    // A client without CPU is the limit if other work filled the full CPUs.
    let limited = |change: &dyn Fn(&mut Point)| {
        let of_client = swept(&|point| {
            change(point);
            set(point, names::CLIENT_UTILISATION, if point.connections >= 8 { 1.0 } else { 0.5 });
        });
        of_client.levels.iter().any(|level| level.client_limited)
    };
    assert!(limited(&filled(0.8)) && !limited(&filled(0.1)));
}

/// The verdict on both loops of a server that waits for a lock. In a loop that is not quiet, every point was
/// disturbed.
fn locked(quiet: [bool; 2], is_strained_closed: bool) -> verdict::Verdict {
    let mut bench =
        Bench::new(Server { path: 500e-6, hidden_limit: 10_000.0, noise: 0.02, drift: 0.05, ..Server::default() }, 5);
    for repeat in 0..4 {
        for load in [1, 2, 4, 8, 16, 32, 64] {
            if is_strained_closed || load <= 4 {
                bench.closed(load, repeat, 1_000_000_000);
            }
        }
        for rate in [1000.0, 2000.0, 4000.0, 8000.0, 9000.0, 12_000.0, 14_000.0] {
            bench.open(rate, repeat, 1_000_000_000);
        }
    }
    for point in &mut bench.points {
        let is_open = point.offered_per_sec().is_some();
        let strain = point.offered_per_sec().map_or(point.connections as f64 / 16.0, |rate| rate / 12_000.0).min(1.0);
        crate::account::waits_for_a_lock(point, 1.0 + 63.0 * strain.powi(2));
        if !quiet[usize::from(is_open)] {
            let what = "other work used 0.50 CPUs during the window";
            point.doubts.push(DoubtKind::NoisyNeighbour.warning(what, "stop it"));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &bench.points);
    verdict::sentences(&run, &zones::of_run(&run))
}

#[test]
fn open_loop_points_count_on_a_machine_that_is_never_quiet() {
    let is_unquiet = |said: &verdict::Verdict| said.sentences.iter().any(|said| said.contains("not quiet enough"));
    let certain = |said: &verdict::Verdict| {
        said.causes.iter().any(|cause| cause.rule == "lock" && cause.certainty == verdict::Certainty::Cause)
    };
    let both = locked([false, false], true);
    assert!(is_unquiet(&both) && !certain(&both), "{both:#?}");
    // The closed loop ends before strain; at the loads where the open one fails, all points were disturbed.
    let open_only = locked([true, false], false);
    assert!(is_unquiet(&open_only), "{open_only:#?}");
    // The open loop proves what the closed one cannot.
    let open_proves = locked([false, true], true);
    assert!(!is_unquiet(&open_proves) && certain(&open_proves), "{open_proves:#?}");
    let closed_proves = locked([true, false], true);
    assert!(!is_unquiet(&closed_proves) && certain(&closed_proves), "{closed_proves:#?}");
}
