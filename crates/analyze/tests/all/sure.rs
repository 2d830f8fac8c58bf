//! `find --until-sure`: an interval of the requested width, or the reason why not.

use crate::fixture;
use crate::server::{Bench, Server, plan};
use analyze::sweep::{self, ConnectionSweep, Planner, RateSearch, SweepStep};
use analyze::zones;
use record::scenario::{FindRun, SweepPlan};
use record::{DoubtKind, Point, RunKind};

/// The plan as the command makes it.
fn wanted(width: f64, budget_s: u64) -> SweepPlan {
    let mut plan = SweepPlan { until_sure_ratio: Some(width), repeats: 1000, ..plan(budget_s) };
    plan.criteria.yield_interval_ratio = width;
    plan.criteria.bracket_ratio = width / 2.0;
    plan
}

/// Runs both sweeps; returns the points and the messages between repeats.
fn searched(server: &Server, plan: &SweepPlan, seed: u64) -> (Bench, Vec<String>) {
    let (mut bench, mut said) = (Bench::new(server.clone(), seed), Vec::new());
    let mut follow = |bench: &mut Bench, planner: &mut dyn Planner| {
        for _ in 0..20_000 {
            match planner.next(&bench.points, bench.elapsed_ns) {
                SweepStep::Measure(trial) => bench.measure(trial),
                SweepStep::Yardstick => {
                    said.extend(planner.known().map(String::from));
                    bench.yardstick(0);
                }
                SweepStep::Done { .. } => return,
                SweepStep::Serve { .. } => panic!("there is one server"),
            }
        }
        panic!("it does not end");
    };
    follow(&mut bench, &mut ConnectionSweep::new(plan, seed));
    let hint = sweep::held_goodput(&bench.points, &plan.criteria);
    follow(&mut bench, &mut RateSearch::new(plan, hint, seed));
    (bench, said)
}

fn judged(points: &[Point], plan: &SweepPlan) -> verdict::Verdict {
    let folder = tempfile::tempdir().unwrap();
    let mut record = fixture::record();
    let RunKind::Find(FindRun { sweep, .. }) = &mut record.scenario.kind else { panic!("a find") };
    *sweep = plan.clone();
    let run = fixture::write(folder.path(), record, points);
    verdict::sentences(&run, &zones::of_run(&run))
}

#[test]
fn intervals_become_as_narrow_as_requested_and_still_contain_the_truth() {
    let server = Server { noise: 0.03, drift: 0.02, ..Server::pool(8.0, 5e-3) };
    let seeds = if crate::long_run() { 20 } else { 2 };
    let mut covered = 0;
    for seed in 0..seeds {
        let plan = wanted(0.08, 3600);
        let (bench, said) = searched(&server, &plan, seed);
        let found = zones::find(&bench.points, &plan.criteria);
        let (closed, open) = (found.connections.unwrap().yield_point, found.rate.unwrap().failure_point);
        for point in [&closed, &open] {
            assert!(point.width_ratio().unwrap() <= 0.08, "seed {seed}: {point:?}");
        }
        covered +=
            usize::from(closed.low.unwrap() <= server.true_yield() && server.true_yield() <= closed.high.unwrap());
        assert!(said.iter().any(|line| line.starts_with("yield point ") && line.contains("wide after")), "{said:?}");
        let verdict = judged(&bench.points, &plan);
        assert!(verdict.sentences.iter().any(|line| line.starts_with("As narrow as requested (8 %)")), "{verdict:#?}");
    }
    assert!(4 * covered >= 3 * seeds as usize, "{covered} of {seeds}");
}

#[test]
fn an_unreachable_precision_ends_at_the_time_limit_with_a_doubt() {
    let server = Server { noise: 0.2, drift: 0.1, ..Server::pool(8.0, 5e-3) };
    let plan = wanted(0.05, 120);
    let (bench, said) = searched(&server, &plan, 1);
    assert!(bench.elapsed_ns < 123_000_000_000, "{} s", bench.elapsed_ns / 1_000_000_000);
    assert!(said.iter().any(|line| line.contains("requested 5 %")), "{said:?}");
    let verdict = judged(&bench.points, &plan);
    let doubt = verdict.doubts.iter().find(|doubt| doubt.what.contains("wider than requested"));
    let doubt = doubt.unwrap_or_else(|| panic!("{verdict:#?}"));
    assert!(doubt.kind == DoubtKind::SearchEndedEarly && doubt.what.contains("time limit of"), "{doubt:?}");
}

#[test]
fn the_minimum_time_is_about_that_of_three_repeats() {
    let quiet = Server { noise: 0.001, drift: 0.001, ..Server::pool(8.0, 5e-3) };
    let plan = SweepPlan { connections_max: 64, ..wanted(0.1, 3600) };
    let (bench, _) = searched(&quiet, &plan, 1);
    let least = sweep::least_ns(&plan, true, true) as f64;
    let took = bench.elapsed_ns as f64;
    assert!((0.6..1.6).contains(&(took / least)), "{took} of {least}");
}
