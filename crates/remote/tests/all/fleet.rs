//! The driver's side, with scripted workers: losses, cold connections, clocks, and the watcher.

use crate::faked::{FakeWorker, Script, at_start, fleet, listen, plan, run, work, work_after};
use load::LoadResult;
use load::cold::{ColdCounts, ColdRoom};
use record::time::monotonic_ns;
use record::{ClientSide, DoubtKind, LoadPlan};
use remote::fleet::clocks::{LEAST, UNDER_WAY};
use remote::protocol::{FromWorker, ToWorker, WireObservation};
use remote::watcher::window_doubt;
use remote::{ColdHeld, Fleet, Nodes, OnLoss, RayPlan, RemoteError, RemoteWatcher, WorkerSource};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

fn doubts(result: &LoadResult, kind: DoubtKind) -> Vec<&str> {
    result.doubts.iter().filter(|doubt| doubt.kind == kind).map(|doubt| doubt.what.as_str()).collect()
}

/// Once with a window that is over, and once with one in progress, because a log's part may end early.
#[test]
fn the_result_of_a_worker_that_dies_afterwards_is_kept() {
    for duration_ns in [1_000_000, MINUTE_NS] {
        let first = at_start(|plan, worker| {
            worker.send_result(plan, 30);
            worker.end();
        });
        let second = at_start(|plan, worker| {
            std::thread::sleep(Duration::from_millis(300));
            worker.send_result(plan, 4);
        });
        let mut fleet = fleet(vec![first, second], OnLoss::End);
        let result = run(&mut fleet, &plan(4, duration_ns)).expect("a result");
        assert_eq!(result.counts.outcomes.ok, 34);
        assert!(doubts(&result, DoubtKind::WorkerLost).is_empty(), "{:?}", result.doubts);
        assert_eq!(fleet.uncounted, None);
        // The next load notices its absence.
        let next = run(&mut fleet, &plan(4, duration_ns)).expect_err("the run ends").to_string();
        assert!(next.contains("client 1") && next.contains("the run ends ("), "{next}");
    }
}

#[test]
fn the_timeout_allows_for_connections_that_open_at_a_rate() {
    let slow: Vec<Script> = (0..2)
        .map(|_| {
            let mut at_start = at_start(|plan, worker| worker.send_result(plan, 30));
            let script: Script = Box::new(move |message, worker| {
                if matches!(message, ToWorker::Plan(_)) {
                    std::thread::sleep(Duration::from_millis(300));
                }
                at_start(message, worker);
            });
            script
        })
        .collect();
    let mut fleet = fleet(slow, OnLoss::End);
    fleet.timeout_ns = 0;
    // The last connection opens after 15 minutes.
    let plan = LoadPlan { connect_rate_per_sec: 0.01, connect_timeout_ns: 0, ..plan(10, 1_000_000) };
    assert_eq!(run(&mut fleet, &plan).expect("a result").counts.outcomes.ok, 60);
}

/// The workers of a driver that was stopped for longer than their lease and then continues behave like this.
#[test]
fn a_load_that_every_worker_ended_is_an_error() {
    let early = || at_start(|_, worker| worker.send_early_result(30));
    let mut fleet = fleet(vec![early(), early()], OnLoss::GoOn);
    let why = run(&mut fleet, &plan(4, MINUTE_NS)).expect_err("no result is complete").to_string();
    assert!(why.contains("client 2") && why.contains("it stopped by itself"), "{why}");
}

/// A helper that finds no later nodes, says why, and ends.
const HELPER: &str = r#"#!/bin/sh
read -r order
echo '{"type":"nodes","nodes":[{"name":"n","socket":"SOCKET"}],"joins":true}'
read -r look
echo '{"type":"failed","why":"the head is gone"}'
echo '{"type":"joined","nodes":[]}'
"#;

#[test]
fn a_helpers_failure_is_reported_with_its_lost_workers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (socket, program) = (folder.path().join("workers"), folder.path().join("helper"));
    std::fs::write(&program, HELPER.replace("SOCKET", &socket.display().to_string())).expect("a file");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("it is this test's own");
    let mut is_second = false;
    let worker = at_start(move |plan, worker| {
        if is_second {
            worker.end();
        } else {
            worker.send_result(plan, 1);
        }
        is_second = true;
    });
    listen(&socket, vec![worker]);
    let order = RayPlan {
        binary: program.clone(),
        address: None,
        workers: None,
        most_workers: None,
        worker_cpus: 1.0,
        resources: Default::default(),
        labels: Default::default(),
        prefix: None,
        arguments: Vec::new(),
        wait_s: 1.0,
    };
    let go_on = AtomicBool::new(false);
    let nodes = Nodes::start(&order, &program.display().to_string(), &go_on, &mut |_| {}).expect("a helper");
    let sources = nodes.sources.clone();
    let mut fleet = Fleet::connect(&sources, Some(nodes), OnLoss::End, None, &go_on).expect("a fleet");
    run(&mut fleet, &plan(1, MINUTE_NS)).expect("a result");
    fleet.next_check_ns = Some(0);
    let why = run(&mut fleet, &plan(1, MINUTE_NS)).expect_err("its worker is gone").to_string();
    assert!(why.contains("closed its socket; its last failure: the head is gone"), "{why}");
}

#[test]
fn a_loss_and_the_changed_shares_are_reported_once() {
    let stays = || at_start(|plan, worker| worker.send_result(plan, 4));
    let ends_after_its_result = at_start(|plan, worker| {
        worker.send_result(plan, 4);
        worker.end();
    });
    let ends_at_the_start = at_start(|_, worker| worker.end());
    // For each of three loads: the responses, and whether the loss and the changed shares are reported.
    for (ends, ok, is_lost, are_moved) in [
        (ends_after_its_result, [12, 8, 8], [false, true, false], [false, true, false]),
        (ends_at_the_start, [8, 8, 8], [true, false, false], [false, true, false]),
    ] {
        let mut fleet = fleet(vec![stays(), ends, stays()], OnLoss::GoOn);
        let loads: [LoadResult; 3] = std::array::from_fn(|load| {
            // Before the second load, the worker is lost and its lease has expired.
            while load > 0 && !fleet.links[1].is_lost() {
                fleet.pump(1_000_000, 0);
            }
            fleet.links[1].lost_ns = 0;
            run(&mut fleet, &plan(4, MINUTE_NS)).expect("a result of the others")
        });
        assert_eq!(loads.each_ref().map(|load| load.counts.outcomes.ok), ok);
        for (kind, are_said) in [(DoubtKind::WorkerLost, is_lost), (DoubtKind::SharesMoved, are_moved)] {
            for (load, is_said) in loads.iter().zip(are_said) {
                let said = doubts(load, kind);
                assert_eq!(said.len(), usize::from(is_said), "{said:?}");
                assert!(said.iter().all(|what| what.contains("client 2")), "{said:?}");
            }
        }
    }
}

static GO_ON: AtomicBool = AtomicBool::new(false);

/// A worker that has room for all connections and calls `script` with the number to hold.
fn holds(mut script: impl FnMut(u64, &mut FakeWorker) + Send + 'static) -> Script {
    Box::new(move |message, worker| match message {
        ToWorker::ColdAsk(_) => {
            let room = ColdRoom { ports: 1000, addresses: 1, descriptors: 1000, memory_bytes: 1 << 30 };
            worker.send(&FromWorker::ColdRoom(room));
        }
        ToWorker::Cold { count, .. } => script(count, worker),
        _ => {}
    })
}

fn report(worker: &mut FakeWorker, established: u64) {
    let counts = ColdCounts { established, ..ColdCounts::default() };
    worker.send(&FromWorker::Cold(ColdHeld { counts, kernel_bytes: None }));
}

fn ten(fleet: &mut Fleet) -> Result<ColdHeld, RemoteError> {
    fleet.plan_cold(&plan(2, 1), 10, &GO_ON)?;
    fleet.hold_cold(&plan(2, 1), 10, &GO_ON, &mut |_| {})
}

#[test]
fn a_worker_that_does_not_report_its_room_is_named_or_the_others_hold_its_connections() {
    for on_loss in [OnLoss::End, OnLoss::GoOn] {
        let mut fleet = fleet(vec![holds(|count, worker| report(worker, count)), Box::new(|_, _| ())], on_loss);
        fleet.timeout_ns = 50_000_000;
        match ten(&mut fleet) {
            Ok(held) => assert_eq!((on_loss, held.counts.established), (OnLoss::GoOn, 10)),
            Err(why) => {
                assert!(on_loss == OnLoss::End && !matches!(why, RemoteError::Interrupted(_)), "{why}");
                assert!(why.to_string().contains("client 2 (node fake) was lost"), "{why}");
            }
        }
    }
}

/// A server may close connections, which are then opened again.
#[test]
fn workers_need_not_all_be_complete_at_the_same_time() {
    let first = holds(|count, worker| {
        report(worker, count);
        report(worker, count - 1);
    });
    let second = holds(|count, worker| {
        std::thread::sleep(Duration::from_millis(200));
        report(worker, count);
    });
    let mut fleet = fleet(vec![first, second], OnLoss::End);
    assert_eq!(ten(&mut fleet).expect("cold connections").counts.established, 9);
}

#[test]
fn a_worker_without_progress_is_named_with_its_number_of_connections() {
    let stays = holds(|_, worker| report(worker, 3));
    let mut fleet = fleet(vec![holds(|count, worker| report(worker, count)), stays], OnLoss::GoOn);
    fleet.timeout_ns = 300_000_000;
    let why = ten(&mut fleet).expect_err("two are missing").to_string();
    assert!(why.contains("client 2") && why.contains("3 of 5 cold connections"), "{why}");
}

#[test]
fn silent_workers_do_not_delay_the_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("workers");
    let listener = UnixListener::bind(&socket).expect("a socket in a temporary folder");
    // More silent workers than exchanges may be in progress.
    let count = 3 * UNDER_WAY;
    let answers = |index: usize| index % 2 == 1;
    std::thread::spawn(move || {
        for (index, socket) in listener.incoming().flatten().take(count).enumerate() {
            let ahead_ns = answers(index).then_some(1_000_000_000_000);
            std::thread::spawn(move || work(socket, ahead_ns, Box::new(|_, _| ())));
        }
    });
    let sources = vec![WorkerSource::Node { name: "fake".into(), socket }; count];
    let mut fleet = Fleet::connect(&sources, None, OnLoss::End, None, &AtomicBool::new(false)).expect("a fleet");
    let live: Vec<usize> = (0..count).collect();
    let is_known = |fleet: &Fleet, index: &usize| fleet.links[*index].clock.is_some_and(|of| of.exchanges >= LEAST);
    let are_others_known =
        |fleet: &Fleet| live.iter().filter(|index| answers(**index)).all(|index| is_known(fleet, index));
    assert!(!fleet.compare_clocks(&live, are_others_known), "it ends when those that answer are known");
    assert!(live.iter().all(|index| is_known(&fleet, index) == answers(*index)));
    let offsets = live.iter().filter_map(|index| fleet.links[*index].clock);
    assert!(
        offsets
            .into_iter()
            .all(|clock| { clock.offset_ns.abs_diff(1_000_000_000_000) <= u128::from(clock.uncertainty_ns) })
    );
}

fn watcher(script: impl FnMut(ToWorker, &mut FakeWorker) + Send + 'static) -> RemoteWatcher {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("watcher");
    let listener = UnixListener::bind(&socket).expect("a socket in a temporary folder");
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a driver");
        work_after(&[FromWorker::Ready {}], socket, Some(0), Box::new(script));
    });
    let source = WorkerSource::Node { name: "fake".into(), socket };
    RemoteWatcher::at(&source, None, &AtomicBool::new(false)).expect("a watcher")
}

#[test]
fn a_drifting_clock_is_compared_again_for_each_window() {
    let mut edges_ns = [0; 2];
    let mut watcher = watcher(move |message, worker| {
        let ahead_ns = worker.ahead_ns.expect("it has a clock");
        match message {
            ToWorker::Begin { .. } => edges_ns[0] = monotonic_ns() + ahead_ns,
            ToWorker::End {} => edges_ns[1] = monotonic_ns() + ahead_ns,
            ToWorker::Observe { .. } => {
                let seen = WireObservation { edges_ns: Some(edges_ns), ..WireObservation::default() };
                worker.send(&FromWorker::Observation(Box::new(seen)));
                // One day of clock drift.
                worker.ahead_ns = Some(ahead_ns + 4 * SECOND);
            }
            _ => {}
        }
    });
    for _ in 0..3 {
        watcher.load_begins().expect("it is there");
        watcher.window_begins(SECOND, false).expect("it is there");
        watcher.window_ends().expect("it is there");
        let seen = watcher.observation(ClientSide::default()).expect("an observation");
        assert!(seen.doubts.is_empty(), "{:?}", seen.doubts);
        assert!(seen.figures.value("watcher.round_trip_us").is_some());
    }
}

#[test]
fn a_window_that_differs_from_the_clients_raises_a_doubt() {
    let doubt = |begin_ns: i128, end_ns: i128, seconds: u64| {
        let ours_ns = [100 * SECOND, (100 + seconds) * SECOND];
        let theirs_ns = [i128::from(ours_ns[0]) + begin_ns, i128::from(ours_ns[1]) + end_ns];
        window_doubt(theirs_ns, ours_ns, 0).map(|doubt| doubt.what)
    };
    assert_eq!(doubt(90_000_000, 20_000_000, 1), None);
    assert_eq!(doubt(0, 500_000_000, 100), None);
    assert_eq!(window_doubt([300_000_000; 2], [0; 2], 250_000_000), None);
    let late = doubt(1_000_000, 2_850_000_000, 2).expect("it is doubted");
    assert!(late.contains("began 1.00 ms too late and ended 2.85 s too late"), "{late}");
    // A window of the same length at another time, and an impossible clock.
    assert!(doubt(-1_000_000_000, -1_000_000_000, 9).is_some());
    assert!(window_doubt([i128::MIN, i128::MAX], [0, u64::MAX], 0).is_some());
}
