//! Compares the group's CPU time with the processes' own accounts.

use crate::actors::{Actor, is_root};
use observe::{Group, ObservedWindow, Observer, WatchTarget};
use record::names;
use std::path::Path;
use std::time::Duration;

/// Tolerance for the exchange of messages around the CPU use; the account itself is exact. Not a limit on speed.
const SLACK_NS: u64 = 15_000_000;
/// Times of ended children are sampled in ticks of 10 ms: each of the four children may miss one, and the parent too.
const TICKS_NS: u64 = 50_000_000;

pub fn target(group: Group) -> WatchTarget {
    WatchTarget { port: 1, group, netns_pid: None, server_cpus: vec![], client_pid: std::process::id() }
}

fn assert_close(seen_ns: u64, told_ns: u64, slack_ns: u64) {
    assert!(seen_ns.abs_diff(told_ns) <= slack_ns, "watched {seen_ns} ns, the process says {told_ns} ns");
}

fn during(actor: &mut Actor, order: &str) -> (ObservedWindow, u64) {
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(20)).unwrap();
    observer.window_begins().unwrap();
    let told = actor.ask(order).parse().unwrap();
    (observer.window_ends().unwrap(), told)
}

#[test]
fn a_busy_process_has_the_cpu_time_that_it_reports_itself() {
    let mut actor = Actor::start("burner");
    let (window, told_ns) = during(&mut actor, "burn");
    assert_close(window.server_cpu_ns(), told_ns, SLACK_NS);
    let figures = window.observation(1000).figures;
    let per_request_us = figures.value(names::SERVER_CPU).unwrap();
    assert!((per_request_us * 1000.0 - window.server_cpu_ns() as f64 / 1e3).abs() < 1.0, "{per_request_us}");
    let (user, system) = (figures.value(names::SERVER_CPU_USER), figures.value(names::SERVER_CPU_SYSTEM));
    assert!((user.unwrap() + system.unwrap() - per_request_us).abs() < 1e-6, "the parts make the whole");
    let busiest = figures.value(names::SERVER_BUSIEST_THREAD).unwrap();
    let used = figures.value(names::SERVER_CPUS_USED).unwrap();
    assert!(busiest > used * 0.8 && busiest < used * 1.2, "one thread did the work: {busiest} of {used}");
    let process = figures.value(names::SERVER_BUSIEST_PROCESS).unwrap();
    assert!((process - used).abs() < 1e-9, "it is the only process: {process} of {used}");
    actor.end();
}

#[test]
fn a_thread_that_ends_within_the_window_is_counted() {
    let mut actor = Actor::start("burner");
    let (window, told_ns) = during(&mut actor, "thread");
    assert_close(window.server_cpu_ns(), told_ns, SLACK_NS);
    let figures = window.observation(10).figures;
    let [process, used] =
        [names::SERVER_BUSIEST_PROCESS, names::SERVER_CPUS_USED].map(|name| figures.value(name).unwrap());
    assert!((process - used).abs() < 1e-9, "its threads are the process's: {process} of {used}");
    actor.end();
}

#[test]
fn switches_of_unseen_threads_are_not_measured() {
    let mut actor = Actor::start("burner");
    let hour = Duration::from_secs(3600);
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), hour).unwrap();
    let mut during = |order: &str| {
        observer.window_begins().unwrap();
        actor.ask(order);
        let figures = observer.window_ends().unwrap().observation(10).figures;
        [names::SERVER_SWITCHES, names::SERVER_RUN_QUEUE].map(|name| figures.get(name).unwrap().not_measured.clone())
    };
    let why = Some("threads lived shorter than the time between readings".to_string());
    // The observer's first reading may be in the first window and see the thread.
    let windows: Vec<_> = (0..2).map(|_| during("thread")).collect();
    assert!(windows.contains(&[why.clone(), why]), "{windows:?}");
    assert_eq!(during("burn"), [None, None], "this thread is there at both edges");
    actor.end();
}

#[test]
fn children_that_start_and_end_within_the_window_are_counted() {
    let mut actor = Actor::start("burner");
    let (window, told_ns) = during(&mut actor, "children");
    assert!(told_ns > 160_000_000, "four children burnt 40 ms each: {told_ns}");
    assert_close(window.server_cpu_ns(), told_ns, SLACK_NS + TICKS_NS);
    let busiest_ns =
        window.observation(10).figures.value(names::SERVER_BUSIEST_PROCESS).unwrap() * window.elapsed_ns() as f64;
    assert!(busiest_ns < 0.5 * told_ns as f64, "no process did half of the work: {busiest_ns} of {told_ns}");
    actor.end();
}

#[test]
fn children_seen_alive_are_not_counted_again_when_their_parent_waits_for_them() {
    let mut actor = Actor::start("burner");
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(1)).unwrap();
    observer.window_begins().unwrap();
    let told_ns: u64 = (0..3).map(|_| actor.ask("children").parse::<u64>().unwrap()).sum();
    let window = observer.window_ends().unwrap();
    assert_close(window.server_cpu_ns(), told_ns, SLACK_NS + 2 * TICKS_NS);
    actor.end();
}

#[test]
fn successive_windows_add_up() {
    let mut actor = Actor::start("burner");
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(20)).unwrap();
    for _ in 0..2 {
        observer.window_begins().unwrap();
        let told_ns = actor.ask("burn").parse().unwrap();
        assert_close(observer.window_ends().unwrap().server_cpu_ns(), told_ns, SLACK_NS);
    }
    actor.end();
}

/// A control group of this test, removed at the end.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn create() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let path = format!("{}/straingauge-test-{}", line.split(' ').nth(4)?, std::process::id());
        std::fs::create_dir(&path).ok()?;
        Some(Cgroup(path.into()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn unreaped_orphans_are_found_through_the_control_group() {
    if !is_root() {
        return;
    }
    let Some(cgroup) = Cgroup::create() else {
        eprintln!("not run: no control group (v2) can be made here");
        return;
    };
    let mut actor = Actor::start("burner");
    std::fs::write(cgroup.0.join("cgroup.procs"), actor.pid().to_string()).unwrap();
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_secs(3600)).unwrap();
    observer.window_begins().unwrap();
    actor.ask("orphans");
    let members = || std::fs::read_to_string(cgroup.0.join("cgroup.procs")).unwrap();
    let own = actor.pid().to_string();
    let mut seen: std::collections::HashSet<String> = members().lines().map(String::from).collect();
    seen.remove(&own);
    // A process leaves the group before its last CPU time is charged, which is done when the process is gone.
    while members().lines().count() > 1 || seen.iter().any(|pid| Path::new("/proc").join(pid).exists()) {
        seen.extend(members().lines().filter(|pid| *pid != own).map(String::from));
        std::thread::sleep(Duration::from_millis(5));
    }
    let window = observer.window_ends().unwrap();
    assert!(window.server_cpu_ns() >= 120_000_000, "the orphan burnt 120 ms: {}", window.server_cpu_ns());
    actor.end();
}

#[test]
fn a_missing_server_is_unmeasured_instead_of_zero() {
    let mut actor = Actor::start("burner");
    let pid = actor.pid();
    actor.ask("burn");
    actor.end();
    let mut observer = Observer::start(target(Group::Tree(pid)), Duration::from_millis(10)).unwrap();
    observer.window_begins().unwrap();
    let observation = observer.window_ends().unwrap().observation(10);
    let cpu = observation.figures.get(names::SERVER_CPU).unwrap();
    assert_eq!(cpu.value, None);
    assert_eq!(cpu.not_measured.as_deref(), Some(&*format!("there is no process {pid}")));
    let doubt = observation.doubts.iter().find(|doubt| doubt.kind == record::DoubtKind::NotWatched);
    assert!(doubt.unwrap().what.contains("were not watched"), "{doubt:?}");
}
