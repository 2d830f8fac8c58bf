//! Whole windows: every figure has a value or a reason, also without privilege and in another namespace.

use crate::actors::{Actor, as_nobody as started_as_nobody, is_root, pid_of_role_thread};
use crate::group::target;
use observe::{Group, ObserveError, Observer, WatchTarget, capabilities, listening_addresses, server_on_port};
use record::{DoubtKind, names};
use std::net::TcpListener;
use std::time::Duration;

/// Whether the observer sets this figure; the watch of requests sets a few counters of disks and paging.
fn is_ours(name: &str) -> bool {
    let of_watch = [
        "machine.disk_",
        "machine.paged_",
        "machine.faults",
        "machine.major_faults",
        "machine.started",
        "server.disk_",
    ];
    ["server.", "machine.", "tcp.", "net.", "observer."].iter().any(|room| name.starts_with(room))
        && !of_watch.iter().any(|start| name.starts_with(start))
}

#[test]
fn every_figure_has_a_value_or_a_reason_and_the_unit_of_its_name() {
    let mut actor = Actor::start("burner");
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(5)).unwrap();
    observer.window_begins().unwrap();
    actor.ask("burn");
    let observation = observer.window_ends().unwrap().observation(100);
    for (name, unit, _) in names::ALL.iter().filter(|(name, ..)| is_ours(name)) {
        let figure = observation.figures.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(figure.unit, *unit, "{name}");
        assert!(figure.value.is_some() != figure.not_measured.is_some(), "{name}: {figure:?}");
        assert_eq!(figure.value.is_some(), figure.origin.is_some(), "{name}");
    }
    for name in observation.figures.0.keys() {
        assert!(names::ALL.iter().any(|(known, ..)| known == name), "{name} is not a known figure");
    }
    for doubt in &observation.doubts {
        assert!(!doubt.what.is_empty() && !doubt.remedy.is_empty(), "{doubt:?}");
    }
    let shares: f64 = [
        names::MACHINE_USER,
        names::MACHINE_SYSTEM,
        names::MACHINE_IRQ,
        names::MACHINE_SOFTIRQ,
        names::MACHINE_STEAL,
        names::MACHINE_IOWAIT,
        names::MACHINE_IDLE,
    ]
    .iter()
    .map(|name| observation.figures.value(name).unwrap())
    .sum();
    assert!((shares - 1.0).abs() < 1e-9, "the modes make the whole: {shares}");
    actor.end();
}

#[test]
fn a_server_that_sleeps_in_poll_is_shown_with_the_size_of_its_set() {
    let actor = Actor::start("poller");
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(5)).unwrap();
    let mut figures = record::Figures::default();
    // The watcher samples when it gets the time.
    for _ in 0..500 {
        observer.window_begins().unwrap();
        std::thread::sleep(Duration::from_millis(10));
        figures = observer.window_ends().unwrap().observation(1).figures;
        if figures.get(names::SERVER_SELECT_WAITS).unwrap().value.is_some() {
            break;
        }
    }
    assert_eq!(figures.value(names::SERVER_SELECT_WAITS), Some(1.0), "{:?}", figures.get(names::SERVER_SELECT_WAITS));
    assert_eq!(figures.value(names::SERVER_SELECT_SET), Some(100.0));
    actor.end();
}

#[test]
fn threads_that_wait_for_a_lock_and_for_a_pipe_are_distinguished() {
    let actor = Actor::start("stuck");
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(5)).unwrap();
    let mut seen = [None; 2];
    for _ in 0..500 {
        observer.window_begins().unwrap();
        std::thread::sleep(Duration::from_millis(10));
        let figures = observer.window_ends().unwrap().observation(1).figures;
        assert!(figures.value(names::SERVER_DESCRIPTORS).is_some_and(|share| share > 0.0 && share < 1.0));
        if let Some(why) = &figures.get(names::SERVER_LOCK_WAITS).unwrap().not_measured {
            println!("SKIPPED threads_that_wait_for_a_lock_and_for_a_pipe_are_distinguished: {why}");
            return actor.end();
        }
        seen = [names::SERVER_LOCK_WAITS, names::SERVER_FILE_WAITS].map(|name| figures.value(name));
        // The threads may not have reached the call yet.
        if seen.iter().all(|share| *share > Some(0.0)) {
            break;
        }
    }
    assert!(seen.iter().all(|share| share.is_some_and(|share| share > 0.0 && share < 1.0)), "{seen:?}");
    actor.end();
}

#[test]
fn costs_without_requests_are_not_measured() {
    let mut observer = Observer::start(target(Group::Tree(std::process::id())), Duration::from_millis(5)).unwrap();
    observer.window_begins().unwrap();
    let figures = observer.window_ends().unwrap().observation(0).figures;
    assert_eq!(figures.value(names::SERVER_CPU), None);
    assert_eq!(figures.get(names::SERVER_CPU).unwrap().not_measured.as_deref(), Some("no events to divide by"));
    assert!(figures.value(names::SERVER_CPUS_USED).is_some());
}

#[test]
fn a_server_that_keeps_to_one_cpu_is_measured_against_that_cpu() {
    let mut actor = Actor::start("burner");
    let mut one = rustix::thread::CpuSet::new();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
    for task in std::fs::read_dir(format!("/proc/{}/task", actor.pid())).unwrap() {
        let tid = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        rustix::thread::sched_setaffinity(rustix::thread::Pid::from_raw(tid), &one).unwrap();
    }
    let mut observer = Observer::start(target(Group::Tree(actor.pid())), Duration::from_millis(5)).unwrap();
    observer.window_begins().unwrap();
    actor.ask("burn");
    let figures = observer.window_ends().unwrap().observation(1).figures;
    assert_eq!(figures.value(names::SERVER_CPUS), Some(1.0));
    actor.end();
}

#[test]
fn a_window_must_begin_before_it_ends() {
    let mut observer = Observer::start(target(Group::None), Duration::from_millis(5)).unwrap();
    assert!(matches!(observer.window_ends(), Err(ObserveError::NoWindow)));
}

#[test]
fn a_busy_neighbour_raises_a_doubt_that_names_it() {
    // The busy process is neither server nor client nor watcher.
    let (mut neighbour, idle) = (Actor::start("burner"), Actor::start("poller"));
    let mut observer = Observer::start(target(Group::Tree(idle.pid())), Duration::from_millis(50)).unwrap();
    observer.window_begins().unwrap();
    for _ in 0..3 {
        neighbour.ask("burn");
    }
    let observation = observer.window_ends().unwrap().observation(1);
    let others = observation.figures.value(names::MACHINE_OTHERS).unwrap();
    assert!(others > 0.05, "{others}");
    // The server did not keep its CPUs busy; other work did.
    let value = |name| observation.figures.value(name).unwrap();
    let (taken, busy) = (value(names::SERVER_CPUS_TAKEN), value(names::SERVER_CPU_BUSY));
    assert!(taken > 0.0 && taken <= busy, "{taken} of {busy}");
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(taken * cpus <= others * (1.0 + 1e-9), "{taken} of {cpus} CPUs, {others} in all");
    let doubt = observation.doubts.iter().find(|doubt| doubt.kind == DoubtKind::NoisyNeighbour).expect("a doubt");
    assert!(doubt.what.contains("other work used") && doubt.what.contains("process"), "{doubt:?}");
    neighbour.end();
    idle.end();
}

#[test]
fn the_command_next_to_the_server_has_its_own_figures_and_is_no_neighbour() {
    let (mut agent, idle) = (Actor::start("burner"), Actor::start("poller"));
    let mut observer = Observer::start(target(Group::Tree(idle.pid())), Duration::from_millis(50)).unwrap();
    for (roots, is_beside) in [(&[][..], false), (&[agent.pid()][..], true), (&[][..], false)] {
        observer.set_beside(roots);
        observer.window_begins().unwrap();
        // The command's children count, too.
        let told_ns: u64 = agent.ask("children").parse().unwrap();
        let window = observer.window_ends().unwrap();
        let figures = window.observation(1).figures;
        assert_eq!(figures.get(names::BESIDE_CPUS).is_some(), is_beside);
        if is_beside {
            let told_cpus = told_ns as f64 / window.elapsed_ns() as f64;
            let cpus = figures.value(names::BESIDE_CPUS).unwrap();
            // Times of ended children are sampled in ticks.
            assert!((cpus / told_cpus - 1.0).abs() < 0.4, "{cpus} of {told_cpus}");
            assert_eq!(figures.value(names::BESIDE_PROCESSES), Some(1.0));
            let (memory, whole) = (figures.value(names::BESIDE_MEMORY).unwrap(), resident_bytes(agent.pid()));
            assert!(memory > 0.0 && memory <= whole, "{memory} of {whole}");
        }
        let by = |observation: &observe::Observation| {
            let doubt = observation.doubts.iter().find(|doubt| doubt.kind == DoubtKind::NoisyNeighbour);
            doubt.is_some_and(|doubt| doubt.what.contains(&format!("(process {},", agent.pid())))
        };
        assert!(!is_beside || !by(&window.observation(1)), "it is not other work");
    }
    agent.end();
    idle.end();
}

#[test]
fn a_backend_on_this_machine_has_its_own_figure_and_is_no_neighbour() {
    let inherited =
        |end: &dyn std::os::fd::AsFd| rustix::io::fcntl_setfd(end.as_fd(), rustix::io::FdFlags::empty()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    inherited(&accepted);
    let mut backend = Actor::start("burner");
    drop((listener, accepted));
    inherited(&connection);
    let server = Actor::start("poller");
    drop(connection);
    let mut observer = Observer::start(target(Group::Tree(server.pid())), Duration::from_millis(50)).unwrap();
    for _ in 0..2 {
        observer.window_begins().unwrap();
        backend.ask("burn");
        let window = observer.window_ends().unwrap();
        let observation = window.observation(1);
        assert_eq!(observation.figures.value(names::SERVER_OUTGOING), Some(1.0));
        let cpus = observation.figures.value(names::BACKEND_CPUS).expect("it is found in the first window");
        assert!(cpus > 0.0, "{cpus}");
        let is_named = |doubt: &record::Doubt| doubt.what.contains(&format!("(process {},", backend.pid()));
        assert!(!observation.doubts.iter().any(is_named), "{:?}", observation.doubts);
    }
    backend.end();
    server.end();
}

fn resident_bytes(pid: u32) -> f64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    let pages: f64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0 * 1.5
}

#[test]
fn sockets_and_counters_of_another_namespace_are_read_there() {
    if !is_root() {
        return;
    }
    let mut actor = Actor::start("apart");
    let port: u16 = actor.ask("port").parse().unwrap();
    let inside = pid_of_role_thread(&actor);
    assert_eq!(listening_addresses(port, Some(inside)).unwrap(), [([127, 0, 0, 1], port).into()]);
    assert_eq!(server_on_port(port, Some(inside)).unwrap().unwrap().pid, actor.pid());
    let target = WatchTarget { port, netns_pid: Some(inside), ..target(Group::ListeningOn(port)) };
    let mut observer = Observer::start(target, Duration::from_millis(2)).unwrap();
    observer.window_begins().unwrap();
    let observation = loop {
        std::thread::sleep(Duration::from_millis(5));
        let observation = observer.window_ends().unwrap().observation(1);
        if observation.connection_states["established"].value.is_some() {
            break observation;
        }
        observer.window_begins().unwrap();
    };
    assert_eq!(observation.connection_states["established"].value, Some(7.0));
    assert_eq!(observation.figures.value(names::SERVER_PROCESSES), Some(1.0));
    assert_eq!(
        observation.figures.value(names::NET_PACKETS_IN),
        Some(0.0),
        "it is quiet in there, whatever runs outside"
    );
    actor.end();
}

/// The `unprivileged` role, for a port on which root listens.
pub fn as_nobody(line: &str) -> String {
    assert!(!rustix::process::geteuid().is_root());
    let (port, pid) = line.split_once(' ').unwrap();
    let (port, pid): (u16, u32) = (port.parse().unwrap(), pid.parse().unwrap());
    let hidden = server_on_port(port, None).unwrap_err().to_string();
    assert!(hidden.contains("belongs to another user (uid 0)"), "{hidden}");
    assert_eq!(listening_addresses(port, None).unwrap().len(), 1, "who may not be seen, but where");

    // Another user's process can still be watched by its process id.
    let mut by_pid =
        Observer::start(WatchTarget { port, ..target(Group::Tree(pid)) }, Duration::from_millis(2)).unwrap();
    by_pid.window_begins().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let observation = by_pid.window_ends().unwrap().observation(1);
    assert!(observation.figures.value(names::SERVER_CPU).is_some(), "{observation:?}");
    assert!(observation.figures.value(names::TCP_IN).is_some());
    let unseen = observation.figures.get(names::SERVER_LOCK_WAITS).unwrap().not_measured.clone().unwrap();
    assert!(observation.account.is_none() && unseen.contains("run as root"), "{unseen}");

    let mut by_port =
        Observer::start(WatchTarget { port, ..target(Group::ListeningOn(port)) }, Duration::from_millis(2)).unwrap();
    by_port.window_begins().unwrap();
    let observation = by_port.window_ends().unwrap().observation(1);
    let why = observation.figures.get(names::SERVER_CPU).unwrap().not_measured.clone().unwrap();
    assert_eq!(why, hidden);
    assert!(observation.doubts.iter().any(|doubt| doubt.kind == DoubtKind::NotWatched), "{observation:?}");

    assert!(!capabilities().is_empty());
    "done".into()
}

#[test]
fn without_privilege_unmeasured_figures_have_a_reason() {
    if !is_root() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut server = Actor::start("burner");
    let mut nobody = Actor::start_with("unprivileged", started_as_nobody);
    assert_eq!(nobody.ask(&format!("{port} {}", server.pid())), "done");
    nobody.end();
    server.ask("burn");
    server.end();
}
