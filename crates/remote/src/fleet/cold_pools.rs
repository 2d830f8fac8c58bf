use super::faked::{FakeWorker, Script, fleet, plan};
use super::{Fleet, OnLoss};
use crate::error::{RemoteError, Result};
use crate::protocol::{ColdHeld, FromWorker, ToWorker};
use load::cold::{ColdCounts, ColdRoom};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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

fn ten(fleet: &mut Fleet) -> Result<ColdHeld> {
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
