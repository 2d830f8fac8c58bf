//! Compares the account of a server's threads with the scheduler's own clocks, here and in a guest with an older
//! kernel.

use observe::{Group, Observer, Target};
use record::account::{ThreadGroup, WaitKind};
use record::names;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Threads of this process do known work: every nanosecond is in one row, and the running time agrees with the
/// scheduler.
pub fn closes() {
    let target = Target {
        port: 1,
        group: Group::Tree(std::process::id()),
        netns_pid: None,
        server_cpus: Vec::new(),
        client_pid: 0,
    };
    let mut observer = Observer::start(target, Duration::from_millis(50)).expect("an observer");
    crate::guest::print_verified();
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().expect("a lock");
    let named = |name: &str| std::thread::Builder::new().name(name.to_string());
    let for_waiter = Arc::clone(&lock);
    let waiter = named("waits").spawn(move || drop(for_waiter.lock())).expect("a thread");
    let sleeper = named("naps").spawn(|| std::thread::sleep(Duration::from_millis(900))).expect("a thread");
    let worker = named("works").spawn(|| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(700) {
            std::hint::black_box(0);
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    observer.window_begins().expect("a window");
    std::thread::sleep(Duration::from_millis(400));
    let seen = observer.window_ends().expect("a window").observation(1);
    drop(held);
    for thread in [waiter, sleeper, worker.expect("a thread")] {
        thread.join().expect("no panic");
    }
    let account = seen.account.expect("an account");
    assert_eq!(account.lost, 0, "{account:?}");
    assert!(account.open_ratio().abs() < 0.01, "{}: {account:?}", account.open_ratio());
    let blocked = |name: &str, kind: WaitKind| {
        let group = account.groups.iter().find(|group| *group.name == *name);
        let group = group.unwrap_or_else(|| panic!("no threads '{name}': {account:?}"));
        group.blocked_ns(|one| one == kind) as f64 / account.window_ns as f64
    };
    // A thread that is not woken in the window may wait for a lock or for work.
    let at_futex = blocked("waits", WaitKind::Lock) + blocked("waits", WaitKind::Work);
    assert!(at_futex > 0.99, "{account:?}");
    assert!(blocked("naps", WaitKind::Sleep) > 0.99, "{account:?}");
    let running = account.mean(account.sum(|group: &ThreadGroup| group.running_ns));
    let by_scheduler = seen.figures.value(names::SERVER_CPUS_USED).expect("CPU time");
    assert!((running - by_scheduler).abs() < 0.1, "{running} against {by_scheduler} CPUs");
}

#[test]
fn every_nanosecond_of_every_thread_is_accounted_for() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED every_nanosecond_of_every_thread_is_accounted_for: it needs root");
        return;
    }
    closes();
}
