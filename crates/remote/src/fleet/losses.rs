use super::Fleet;
use super::OnLoss;
use super::faked::{Script, at_start, fleet, listen, plan};
use crate::protocol::ToWorker;
use crate::ray::{Nodes, RayPlan};
use load::LoadResult;
use record::{DoubtKind, LoadPlan};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
        let result = fleet.run_fake(&plan(4, duration_ns)).expect("a result");
        assert_eq!(result.counts.outcomes.ok, 34);
        assert!(doubts(&result, DoubtKind::WorkerLost).is_empty(), "{:?}", result.doubts);
        assert_eq!(fleet.uncounted, None);
        // The next load notices its absence.
        let next = fleet.run_fake(&plan(4, duration_ns)).expect_err("the run ends").to_string();
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
    assert_eq!(fleet.run_fake(&plan).expect("a result").counts.outcomes.ok, 60);
}

/// The workers of a driver that was stopped for longer than their lease and then continues behave like this.
#[test]
fn a_load_that_every_worker_ended_is_an_error() {
    let early = || at_start(|_, worker| worker.send_early_result(30));
    let mut fleet = fleet(vec![early(), early()], OnLoss::GoOn);
    let why = fleet.run_fake(&plan(4, MINUTE_NS)).expect_err("no result is complete").to_string();
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
    fleet.run_fake(&plan(1, MINUTE_NS)).expect("a result");
    fleet.next_check_ns = Some(0);
    let why = fleet.run_fake(&plan(1, MINUTE_NS)).expect_err("its worker is gone").to_string();
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
            fleet.run_fake(&plan(4, MINUTE_NS)).expect("a result of the others")
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
