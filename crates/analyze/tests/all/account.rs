//! The account: its sums, and the limit that it shows for each kind of stage.

use crate::fixture;
use crate::rules::{found, healthy, judged, set, waits};
use crate::server::Bench;
use analyze::account::{AccountLevel, PlaceKind, level, levels};
use analyze::zones;
use record::account::{
    ADDRESS_SPACE, Account, BackendUse, CLOSED_WINDOW, ENDED, ProcessUse, SEND_BUFFER, STOPPED, ThreadGroup, Wait,
    WaitKind,
};
use record::{Pace, Point, Sweep, Watched, WatchedProcess, names};
use verdict::Certainty;

const WINDOW_NS: u64 = 1_000_000_000;

fn ns(threads: f64) -> u64 {
    (threads * WINDOW_NS as f64) as u64
}

/// Threads of one name: the numbers that run, that are ready while other work has the CPU, and that are blocked.
pub fn group(name: &str, running: f64, ready_others: f64, waits: &[(WaitKind, &str, &str, f64)]) -> ThreadGroup {
    let wait = |(kind, call, object, threads): &(WaitKind, &str, &str, f64)| Wait {
        kind: *kind,
        call: (*call).into(),
        object: (*object).into(),
        ns: ns(*threads),
        times: 1000,
        longest_ns: 20_000_000,
        stacks: Vec::new(),
    };
    ThreadGroup {
        program: "app".into(),
        name: name.into(),
        running_ns: ns(running),
        ready_others_ns: ns(ready_others),
        waits: waits.iter().map(wait).collect(),
        ..ThreadGroup::default()
    }
}

/// Adds an account, and the client's side, to a point.
pub fn keep(point: &mut Point, groups: Vec<ThreadGroup>, backends: Vec<BackendUse>) {
    let rate = point.value(names::THROUGHPUT).unwrap_or(1.0);
    set(point, names::RESPONSE_MEAN, point.connections as f64 / rate * 1e6, 1000);
    let threads_ns = groups.iter().map(ThreadGroup::total_ns).sum();
    point.account = Some(Account { window_ns: WINDOW_NS, threads_ns, groups, backends, ..Account::default() });
}

/// Four requests at a time sleep with a lock held, and the others wait for it.
pub fn waits_for_a_lock(point: &mut Point, in_flight: f64) {
    let (at_lock, asleep) = ((in_flight - 4.0).max(0.0), in_flight.min(4.0) - 0.1);
    let waits =
        [(Lock, "futex", "0x7f00", at_lock), (Sleep, "clock_nanosleep", "", asleep), (Work, "futex", "0x8", 0.0)];
    keep(point, vec![group("app", 0.1, 0.0, &waits)], Vec::new());
    let rate = point.value(names::THROUGHPUT).unwrap_or(1.0);
    set(point, names::RESPONSE_MEAN, in_flight / rate * 1e6, 1000);
}

fn backend(connections: u64, busy: f64, rate: f64) -> BackendUse {
    BackendUse {
        address: "10.0.0.9:5432".into(),
        is_own: false,
        connections,
        busy_ns: ns(busy),
        calls: rate as u64,
        longest_ns: 9_000_000,
    }
}

/// The rules that apply if a waiting server has this account at each load.
fn rules(account: impl Fn(&mut Point, f64, f64)) -> (Vec<String>, String) {
    let verdict = judged(waits(), fixture::record(), |point| {
        let (load, rate) = (point.connections as f64, point.value(names::THROUGHPUT).unwrap_or(1.0));
        account(point, load, rate);
    });
    let because = verdict.causes.first().map(|cause| cause.because.clone()).unwrap_or_default();
    (found(&verdict).into_iter().map(String::from).collect(), because)
}

use WaitKind::{Backend, Events, File, Input, Lock, Requests, Send, Sleep, Work};

#[test]
fn a_lock_is_named_by_the_requests_that_queue_for_it() {
    let (found, because) = rules(|point, load, _| waits_for_a_lock(point, load));
    assert_eq!(found, ["lock"], "{because}");
    assert!(because.contains("124.0 of the 128 threads of app waited for it"), "{because}");
    assert!(
        because.starts_with("A lock is full from 8 connections on, probably held in clock_nanosleep:"),
        "{because}"
    );
    assert!(because.contains("Meanwhile 3.9 were in clock_nanosleep"), "{because}");
}

#[test]
fn a_lock_is_not_held_by_those_who_wait_for_another_one() {
    // Two locks, each held while a helper process answers.
    let (found, because) = rules(|point, load, _| {
        let (waiting, held) = ((load - 2.0).max(0.0) / 2.0, load.min(2.0));
        let waits = [
            (Lock, "futex", "0x10", waiting + 0.2),
            (Lock, "futex", "0x20", waiting),
            (WaitKind::Other, "recvfrom", "a Unix socket", held),
        ];
        keep(point, vec![group("app", 0.02, 0.0, &waits)], Vec::new());
    });
    assert_eq!(found, ["lock"], "{because}");
    assert!(because.contains("probably held in recvfrom"), "{because}");
}

#[test]
fn threads_that_are_stopped_are_neither_a_pool_nor_a_stall() {
    let of = |stopped: f64| {
        rules(move |point, load, _| {
            let threads = load + 1.0;
            let busy = 0.2 * threads;
            let waits = [
                (WaitKind::Other, STOPPED, "", stopped * threads),
                (Input, "read", "", (1.0 - stopped) * threads - busy),
            ];
            keep(point, vec![group("app", busy, 0.0, &waits)], Vec::new());
        })
    };
    let (found, because) = of(0.5);
    assert_eq!(found, ["stopped"], "{because}");
    assert!(because.contains("threads of app were stopped for 50 % of the time"), "{because}");
    assert!(!of(0.05).0.contains(&"stopped".to_string()));
}

#[test]
fn a_pool_is_full_when_its_threads_have_no_idle_time_and_not_while_they_wait_for_work() {
    let of = |workers: f64| {
        rules(move |point, load, _| {
            let busy = load.min(workers) - 0.05;
            let waits = [(Sleep, "clock_nanosleep", "", busy), (Work, "futex", "0x8", workers - busy - 0.05)];
            let first = group("app", 0.02, 0.0, &[(Events, "epoll_wait", "", 0.98)]);
            keep(point, vec![ThreadGroup { is_first: true, ..first }, group("app", 0.05, 0.0, &waits)], Vec::new());
        })
    };
    let (found, because) = of(8.0);
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("8 threads of app had no idle time at 128 connections"), "{because}");
    assert_eq!(of(1000.0).0, ["own-limit"], "a pool with idle threads is no limit, but something else is");
}

#[test]
fn threads_of_a_pool_s_name_that_hand_out_its_work_are_not_idle_threads_of_it() {
    let (found, because) = rules(|point, load, _| {
        let busy = load.min(8.0) - 0.05;
        let waits = [
            (Sleep, "futex", "with a timeout", busy),
            (Work, "futex", "0x8", 8.0 - busy - 0.05),
            (Events, "epoll_wait", "", 0.95),
            (WaitKind::Requests, "accept", "", 1.0),
        ];
        keep(point, vec![group("http-nio-8080-", 0.1, 0.0, &waits)], Vec::new());
    });
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("8 threads of app: http-nio-8080- had no idle time"), "{because}");
}

#[test]
fn processes_that_take_turns_at_a_pipe_are_a_pool_beside_the_one_that_writes_to_it() {
    // One reads the pipe, the others wait for their turn, as with Python's multiprocessing.
    let (found, because) = rules(|point, load, _| {
        let busy = load.min(3.0) - 0.03;
        let reads = (3.0 - busy).min(0.99);
        let waits = [
            (Sleep, "clock_nanosleep", "", busy),
            (Work, "futex", "0x8", (3.0 - busy - reads - 0.02).max(0.0)),
            (WaitKind::Input, "read", "", reads),
            (Events, "poll", "", 1.0),
        ];
        let waiting = [(WaitKind::Requests, "recv", "", 10.0), (Work, "futex", "0x9", (load - 3.0).max(0.0))];
        let first = ThreadGroup { is_first: true, ..group("app", 0.02, 0.0, &waits) };
        keep(point, vec![first, group("app", 0.05, 0.0, &waiting)], Vec::new());
    });
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("3 threads of app (first thread) had no idle time"), "{because}");
    // The same waits, but 60 threads wait for requests of their connections at high load only.
    let (found, because) = rules(|point, load, _| {
        let busy = load.min(3.0) - 0.03;
        let waits = [
            (Sleep, "clock_nanosleep", "", busy),
            (Work, "futex", "0x8", (3.0 - busy).max(0.0)),
            (WaitKind::Requests, "recv", "", (load - 3.0).max(0.0)),
        ];
        keep(point, vec![group("app", 0.05, 0.0, &waits)], Vec::new());
    });
    assert!(!found.contains(&"worker-pool".to_string()), "{because}");
}

#[test]
fn one_thread_that_sleeps_in_few_requests_is_a_full_pool_and_one_that_works_by_a_timer_is_not() {
    // An event loop that sleeps 40 ms in one of 50 requests, and a thread that reads a clock.
    let of = |sleeper_runs: f64| {
        rules(move |point, load, rate| {
            let asleep = if load < 2.0 { 0.4 } else { 0.98 - sleeper_runs };
            let waits =
                [(Sleep, "clock_nanosleep", "", asleep), (Events, "epoll_wait", "", 0.98 - sleeper_runs - asleep)];
            let mut sleeper = group("app", sleeper_runs, 0.0, &waits);
            sleeper.waits[0].times = (rate / 50.0) as u64;
            let other = group("other", 0.02, 0.0, &[(Events, "epoll_wait", "", 0.98)]);
            keep(point, vec![sleeper, other], Vec::new());
        })
    };
    let (found, because) = of(0.08);
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("1 thread of app had no idle time"), "{because}");
    assert_eq!(of(0.001).0, ["own-limit"]);
}

#[test]
fn a_backend_among_the_servers_processes_is_judged_by_its_threads() {
    // A web server before three processes that run scripts, started by one command.
    let of = |is_own: bool| {
        rules(move |point, load, rate| {
            let busy = load.min(3.0) - 0.02;
            let idle = 3.0 - busy - 0.02;
            let web = group("nginx", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
            let scripts =
                group("php-fpm", 0.02, 0.0, &[(Sleep, "clock_nanosleep", "", busy), (Input, "accept", "", idle)]);
            let calls = BackendUse { is_own, ..backend(load as u64, load - 0.1, rate) };
            keep(point, vec![web, scripts], vec![calls]);
        })
    };
    let (found, because) = of(true);
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("3 threads of app: php-fpm had no idle time at 128 connections"), "{because}");
    assert_eq!(of(false).0, ["backend"]);
}

#[test]
fn a_full_pool_of_connections_between_two_processes_of_the_server_is_named() {
    // A proxy with at most 4 connections to an event loop that answers after a timer, started by one command.
    let (found, because) = rules(|point, load, rate| {
        let idle = |name: &str| group(name, 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
        let calls = BackendUse { is_own: true, ..backend(4, load.min(4.0) - 0.1, rate) };
        keep(point, vec![idle("haproxy"), idle("node")], vec![calls]);
    });
    assert_eq!(found, ["backend-pool"], "{because}");
    assert!(because.contains("3.9 of its 4 connections had a call in progress"), "{because}");
    // Threads with a connection each to a pooler, which has 3 to the database.
    let (found, because) = rules(|point, load, rate| {
        let idle = |name: &str| group(name, 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
        let outer = BackendUse { is_own: true, ..backend(load as u64, load - 0.1, rate) };
        let address = "127.0.0.1:5432".into();
        let inner = BackendUse { is_own: true, address, ..backend(3, load.min(3.0) - 0.1, rate) };
        keep(point, vec![idle("pooler"), idle("database")], vec![outer, inner]);
    });
    assert_eq!(found, ["backend-pool"], "{because}");
    assert!(because.contains("connections to 127.0.0.1:5432 is exhausted"), "{because}");
}

#[test]
fn a_process_of_the_server_that_answers_one_request_at_a_time_is_named() {
    // A proxy to an event loop that serves one request after another by timers.
    let (found, because) = rules(|point, load, rate| {
        let idle = |name: &str| group(name, 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
        let calls = BackendUse { is_own: true, ..backend(load as u64, load - 0.1, rate) };
        keep(point, vec![idle("caddy"), idle("node")], vec![calls]);
    });
    assert_eq!(found, ["own-limit"], "{because}");
    assert!(because.contains("Of these, 127.9 waited for its process at 10.0.0.9:5432 ("), "{because}");
}

#[test]
fn a_limit_on_calls_in_progress_is_named_with_the_backend() {
    // HAProxy with `maxconn` of a server: it keeps more connections than it uses at a time.
    let of = |busy: f64| {
        rules(move |point, load, rate| {
            let calls = backend(14, busy.min(load), rate);
            keep(point, vec![group("haproxy", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)])], vec![calls]);
        })
    };
    let (found, because) = of(4.9);
    assert_eq!(found, ["own-limit"], "{because}");
    assert!(because.contains("As many calls to 10.0.0.9:5432 were in progress: 4.9, on 14 connections"), "{because}");
    assert!(!of(90.0).1.contains("As many calls"), "most requests are there");
}

#[test]
fn a_thread_that_waits_for_each_answer_of_a_backend_needs_no_more_connections() {
    let (found, because) = rules(|point, _, rate| {
        let waits = [(Backend, "recvfrom", "10.0.0.9:5432", 0.9), (Events, "epoll_wait", "", 0.02)];
        keep(point, vec![group("app", 0.08, 0.0, &waits)], vec![backend(1, 0.9, rate)]);
    });
    assert_eq!(found, ["backend-pool"], "{because}");
    assert!(because.contains("0.9 of its 1 connection had") && because.contains("1 thread of app waited"), "{because}");
}

#[test]
fn waiting_for_a_semaphore_is_distinguished_from_waiting_for_work() {
    let of = |waiting: fn(f64) -> f64| {
        rules(move |point, load, _| {
            let asleep = load.min(4.0) - 0.1;
            let waits = [(Sleep, "clock_nanosleep", "", asleep), (Work, "futex", "0x8", waiting(load))];
            keep(point, vec![group("app", 0.1, 0.0, &waits)], Vec::new());
        })
    };
    let (found, because) = of(|load| (load - 4.0).max(0.0));
    assert_eq!(found, ["lock"], "{because}");
    assert!(because.contains("124.0 of the 128 threads of app waited for it"), "{because}");
    assert_eq!(of(|load| (200.0 - load).max(0.0)).0, ["own-limit"], "a large pool has fewer idle threads under load");
    // CPython's conditions have a lock for each waiting thread.
    let (_, because) = rules(|point, load, _| {
        let waits = [(Sleep, "nanosleep", "", load.min(4.0) - 0.1), (Work, "", "", (load - 4.0).max(0.0))];
        keep(point, vec![group("app", 0.1, 0.0, &waits)], Vec::new());
    });
    assert!(because.contains("at any time (1000 waits/s, the longest"), "{because}");
}

#[test]
fn a_thread_that_runs_and_waits_without_idle_time_is_full() {
    // An event loop that syncs a file in each request.
    let of = |synced: f64, idle: f64| {
        rules(move |point, load, _| {
            let idle = if load < 2.0 { 0.3 } else { idle };
            let waits = [(File, "fsync", "j.log", synced), (Events, "epoll_wait", "", idle)];
            keep(point, vec![group("app", 1.0 - synced - idle, 0.0, &waits)], Vec::new());
        })
    };
    let (found, because) = of(0.4, 0.02);
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("1 thread of app had no idle time") && because.contains("in fsync j.log"), "{because}");
    assert_eq!(of(0.53, 0.02).0, ["slow-file"], "it waits for longer than it runs");
    assert!(of(0.12, 0.02).1.contains("in fsync j.log"), "not a limit inside the program");
    assert!(of(0.06, 0.02).0.is_empty(), "{:?}", of(0.06, 0.02));
    assert!(!of(0.4, 0.2).0.contains(&"worker-pool".to_string()), "it has idle time");
}

#[test]
fn requests_that_sleep_and_try_again_are_named_as_asleep() {
    // SQLite's busy handler, for one writer at a time.
    let (found, because) = rules(|point, load, _| {
        let waits = [(File, "fdatasync", "t.db", load.min(1.0) - 0.2), (Sleep, "clock_nanosleep", "", load - 0.9)];
        keep(point, vec![group("app", 0.1, 0.0, &waits)], Vec::new());
    });
    assert_eq!(found, ["own-limit"], "{because}");
    assert!(because.contains("127.1 of them asleep in clock_nanosleep, to try again"), "{because}");
}

#[test]
fn no_lock_is_full_while_the_server_uses_all_cpus() {
    let of = |running: f64| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            let waiting = (point.connections as f64 - 8.0).max(0.0);
            keep(point, vec![group("app", running, 0.0, &[(Lock, "futex", "0x7f00", waiting)])], Vec::new());
            set(point, names::SERVER_CPUS, 1.0, 1);
        });
        found(&verdict).contains(&"lock")
    };
    assert!(!of(0.97), "the CPU is full");
    assert!(of(0.3), "the lock is");
}

#[test]
fn the_number_of_concurrent_requests_shows_a_limit_that_no_thread_shows() {
    let (named, because) = rules(|point, _, _| {
        keep(point, vec![group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)])], Vec::new());
    });
    assert_eq!(named, ["own-limit"], "{because}");
    assert!(because.starts_with("It works on about 5 requests at a time"), "{because}");
    let (_, because) = rules(|point, _, _| {
        let workers: Vec<_> = (0..5).map(|i| (Work, "futex", ["0x1", "0x2", "0x3", "0x4", "0x5"][i], 0.99)).collect();
        let loops = group("reactor", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
        keep(point, vec![loops, group("worker", 0.05, 0.0, &workers)], Vec::new());
    });
    assert!(because.contains("It has as many threads: 5 threads of app: worker."), "{because}");
    let (_, because) = rules(|point, load, rate| {
        let waits = [(Sleep, "futex", "with a timeout", load.min(4.9)), (Work, "futex", "0x1", 3.0)];
        let mut pools = group("node", 0.1, 0.0, &waits);
        pools.waits[0].times = rate as u64;
        keep(point, vec![pools], Vec::new());
    });
    assert!(
        because.contains("As many threads of app: node were in futex with a timeout at any time: 4.9"),
        "{because}"
    );
    // As many threads at every load, of two names: that is a limit.
    let of_threads = |at_64: f64| {
        let verdict = judged(waits(), fixture::record(), |point| {
            let at_least = if point.connections == 64 { at_64 } else { 1.5 };
            let part = (point.connections as f64 / 4.9).min(1.0);
            let asleep = [("first", 3.4), ("second", at_least)].map(|(name, threads)| {
                let waits = [(Sleep, "clock_nanosleep", "", part * threads), (Work, "futex", "0x1", 3.0)];
                let mut threads = group(name, 0.1, 0.0, &waits);
                threads.waits[0].times = 5000;
                threads
            });
            keep(point, asleep.into(), Vec::new());
        });
        assert_eq!(found(&verdict), ["own-limit"], "{:?}", verdict.sentences);
        verdict.causes[0].clone()
    };
    let constant = of_threads(1.5);
    assert_eq!(constant.certainty, Certainty::Cause, "{constant:?}");
    assert!(constant.because.contains("threads of app: first, app: second were in clock_nanosleep"), "{constant:?}");
    assert_eq!(of_threads(3.0).certainty, Certainty::Possibility);
    let of_processes = |working: u32| {
        rules(move |point, _, _| {
            let mut workers = group("app", 0.5, 0.0, &[(Events, "epoll_wait", "", 7.5)]);
            let running = |at: u32| if at < working { ns(0.5 / f64::from(working)) } else { 0 };
            let process = |at: u32| ProcessUse {
                pid: 100 + at,
                running_ns: running(at),
                idle_ns: WINDOW_NS - running(at),
                ns: WINDOW_NS,
            };
            workers.processes = (0..8).map(process).collect();
            keep(point, vec![workers], Vec::new());
        })
        .1
    };
    let five = of_processes(5);
    assert!(five.starts_with("Only 5 of the 8 processes of app worked, the others were idle: it works on"), "{five}");
    assert!(of_processes(2).starts_with("It works on about 5 requests at a time"), "{}", of_processes(2));
    assert!(of_processes(7).starts_with("It works on about 5 requests at a time"), "one may have started the others");
    // What the headline names is explained first, though the other cause is certain.
    let verdict = judged(waits(), fixture::record(), |point| {
        keep(point, vec![group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)])], Vec::new());
        set(point, names::MACHINE_STARTED, point.value(names::THROUGHPUT).unwrap_or(0.0), 1000);
    });
    assert_eq!(found(&verdict), ["own-limit", "forks"], "{:?}", verdict.sentences);
    assert!(verdict.headline.contains(&verdict.causes[0].cause), "{}", verdict.headline);
    assert_eq!(verdict.causes[1].certainty, Certainty::Cause);
    let (full, _) = rules(|point, _, _| {
        keep(point, vec![group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)])], Vec::new());
        set(point, names::SERVER_CPU_BUSY, 0.99, 10);
    });
    assert!(!full.contains(&"own-limit".to_string()), "{full:?}");
    let verdict = judged(healthy(), fixture::record(), |point| {
        keep(point, vec![group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)])], Vec::new());
        set(point, names::CLIENT_UTILISATION, 0.94, 10);
        set(point, names::SERVER_CPU_BUSY, 0.7, 10);
        set(point, names::SERVER_BUSIEST_THREAD, 0.7, 10);
    });
    assert!(!found(&verdict).contains(&"own-limit"), "{:?}", verdict.causes);
    assert!(
        verdict.sentences.iter().any(|said| said.contains("the client may be the limit")),
        "{:?}",
        verdict.sentences
    );
}

#[test]
fn a_thread_that_waits_for_a_file_is_named_with_it_and_explains_the_queue() {
    let blocked_in = |call: &'static str| {
        judged(waits(), fixture::record(), move |point| {
            let full = if point.connections > 1 { 1.0 } else { 0.5 };
            // Words of a sentence within a file's name remain part of the name.
            let file = (File, call, "/var/log of it/app 's.log", 0.62 * full);
            let waits = [file, (Events, "epoll_wait", "", 1.0 - 0.97 * full)];
            keep(point, vec![group("app", 0.35 * full, 0.0, &waits)], Vec::new());
            set(point, names::TCP_LISTEN_OVERFLOWS, 20.0, 20);
        })
    };
    let verdict = blocked_in("fdatasync");
    assert_eq!(found(&verdict), ["slow-file"], "{:?}", verdict.sentences);
    let because = &verdict.causes[0].because;
    assert!(
        because.contains("0.62 of 1 thread of app were blocked in fdatasync /var/log of it/app 's.log at"),
        "{because}"
    );
    assert_eq!(verdict.causes[0].commands, [r#"findmnt -T "/var/log of it/app 's.log""#]);
    assert!(verdict.sentences[0].contains("named below"), "{:?}", verdict.sentences);
    for (call, advice) in [
        ("fdatasync", "one sync for"),
        ("write", "buffered"),
        ("pread64", "memory for the cache"),
        ("openat", "stay open"),
        ("newfstatat", "stay open"),
    ] {
        let remedy = &blocked_in(call).causes[0].remedy;
        assert!(remedy.contains(advice), "{call}: {remedy}");
    }
}

#[test]
fn sleeps_that_are_as_frequent_at_every_rate_hold_no_request() {
    let mut bench = Bench::new(waits(), 5);
    (0..2).for_each(|repeat| [1, 4, 16].iter().for_each(|load| bench.closed(*load, repeat, 1_000_000_000)));
    for point in &mut bench.points {
        let rate = point.value(names::THROUGHPUT).unwrap();
        let mut timer = group("timer", 0.01, 0.0, &[(Sleep, "futex", "with a timeout", 0.99)]);
        timer.waits[0].times = 100;
        let mut serving = group("app", 0.1, 0.0, &[(Sleep, "clock_nanosleep", "", 0.5), (Work, "futex", "0x8", 0.4)]);
        serving.waits[0].times = rate as u64;
        keep(point, vec![timer, serving], Vec::new());
    }
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &bench.points);
    let findings = zones::of_run(&run);
    let levels = levels(&run, findings.connections.as_ref().unwrap());
    let asleep = |level: &AccountLevel| -> Vec<String> {
        let places = &level.requests.as_ref().unwrap().places;
        places.iter().filter(|place| place.kind == PlaceKind::Sleep).map(|place| place.name.clone()).collect()
    };
    assert_eq!(levels.len(), 3);
    assert!(levels.iter().all(|level| asleep(level) == ["asleep: clock_nanosleep"]), "{:?}", asleep(&levels[0]));
}

#[test]
fn a_full_thread_is_found_below_the_load_at_which_all_threads_compete_for_the_cpus() {
    let (found, because) = rules(|point, load, _| {
        let idle = if load < 2.0 { 0.3 } else { 0.0 };
        let waits = [(Sleep, "clock_nanosleep", "", 0.85 - idle), (Work, "futex", "0x9", idle)];
        let mut writer = group("writer", 0.1, 0.0, &waits);
        if load > 100.0 {
            writer.waits[0].ns = ns(0.3);
            writer.ready_own_ns = ns(0.55);
        }
        let serving = group("app", 0.3, 0.0, &[(Work, "futex", "0x8", load)]);
        keep(point, vec![serving, writer], Vec::new());
    });
    assert_eq!(found, ["worker-pool"], "{because}");
    assert!(because.contains("1 thread of app: writer had no idle time at 64 connections"), "{because}");
}

#[test]
fn threads_that_follow_the_requests_are_no_fixed_pool() {
    let pool = |most: f64| {
        let (found, _) = rules(|point, load, _| {
            let asleep = (WaitKind::Other, "ioctl", "", load.min(most) - 0.1);
            keep(point, vec![group("app", 0.1, 0.0, &[asleep, (Work, "futex", "0x8", 0.0)])], Vec::new());
        });
        found.contains(&"worker-pool".to_string())
    };
    assert!(pool(32.0), "32 threads at 64 and 128 connections, too");
    assert!(!pool(100.0), "fewer threads only at the highest load");
}

#[test]
fn a_full_pipe_is_named_even_without_answers_and_with_a_sleeping_reader() {
    let (found, because) = rules(|point, load, _| {
        let waits = [(WaitKind::Pipe, "write", "", 0.97), (Sleep, "clock_nanosleep", "", 0.98)];
        keep(point, vec![group("app", 0.05, 0.0, &waits)], Vec::new());
        if load > 2.0 {
            point.figures.0.remove(names::RESPONSE_MEAN);
        }
    });
    assert_eq!(found, ["slow-file"], "{because}");
    assert!(because.starts_with("The server waits for the reader of a pipe"), "{because}");
}

#[test]
fn the_reader_of_a_log_socket_and_the_lock_of_the_address_space_are_named() {
    let (found, because) = rules(|point, _, _| {
        let waits = [(WaitKind::Pipe, "sendto", "unix:/run/app/log.sock", 0.95)];
        keep(point, vec![group("app", 0.05, 0.0, &waits)], Vec::new());
    });
    assert_eq!(found, ["slow-file"], "{because}");
    assert!(because.starts_with("The server waits for the reader of unix:/run/app/log.sock: at"), "{because}");
    let (found, because) = rules(|point, load, _| {
        let waits = [(Lock, "mmap", ADDRESS_SPACE, (load - 1.0).max(0.1)), (WaitKind::Requests, "read", "", 0.5)];
        keep(point, vec![group("app", 1.0, 0.0, &waits)], Vec::new());
    });
    assert_eq!(found, ["lock"], "{because}");
    assert!(because.contains("(mmap its address space"), "{because}");
}

#[test]
fn a_connection_on_which_the_server_only_waits_for_news_is_no_backend_of_its_requests() {
    // One call a second is answered late on purpose (BLPOP, a watch, a long poll), while one thread of several CPUs is
    // full.
    let (found, because) = rules(|point, load, _| {
        let busy = (load / 8.0).min(0.98);
        let event_loop = group("app", busy, 0.0, &[(Events, "epoll_wait", "", 1.0 - busy)]);
        keep(point, vec![event_loop], vec![backend(1, 0.99, 1.0)]);
    });
    assert!(!found.iter().any(|rule| rule.starts_with("backend")), "{found:?} {because}");
}

#[test]
fn a_full_backend_an_exhausted_connection_pool_and_a_slow_backend_are_distinguished() {
    let event_loop = || group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
    let (found, because) = rules(|point, load, rate| {
        keep(point, vec![event_loop()], vec![backend(load as u64, load - 0.1, rate)]);
    });
    assert_eq!(found, ["backend"], "{because}");
    assert!(because.starts_with("The backend 10.0.0.9:5432 is full"), "{because}");
    let (found, because) = rules(|point, load, rate| {
        keep(point, vec![event_loop()], vec![backend(4, load.min(4.0) * 0.97, rate)]);
    });
    assert_eq!(found, ["backend-pool"], "{because}");
    assert!(because.contains("3.9 of its 4 connections had a call in progress"), "{because}");
    let (found, because) = rules(|point, load, rate| {
        let calls = if load > 16.0 { 2.0 } else { load };
        keep(point, vec![event_loop()], vec![backend(calls as u64, calls * 0.97, rate)]);
    });
    assert_eq!(found, ["own-limit"], "more connections were in use at a lower load: {because}");
    // One thread that opens a connection for each call.
    let (found, because) = rules(|point, _, rate| {
        let waits = [(Backend, "recvfrom", "10.0.0.9:5432", 0.88), (Events, "epoll_wait", "", 0.01)];
        keep(point, vec![group("app", 0.11, 0.0, &waits)], vec![backend(rate as u64, 0.9, rate)]);
    });
    assert_eq!(found[0], "backend", "{because}");
    assert!(because.contains("1 thread of app had no idle time and made one call after another"), "{because}");
    // Synchronous workers, each of which waits for its own connection.
    let (found, because) = rules(|point, load, rate| {
        let busy = load.min(8.0) * 0.97;
        let waits = [(Backend, "recvfrom", "10.0.0.9:5432", busy), (Work, "futex", "0x8", 8.0 - busy - 0.05)];
        keep(point, vec![group("app", 0.05, 0.0, &waits)], vec![backend(8, busy, rate)]);
    });
    assert_eq!(found, ["backend-pool"], "{because}");
}

#[test]
fn a_backend_is_measured_by_the_protocol_of_its_port() {
    for (address, command) in [
        ("10.0.0.9:5432", "ss -tnp dst 10.0.0.9:5432"),
        ("10.0.0.9:6432", "ss -tnp dst 10.0.0.9:6432"),
        ("[::1]:6379", "straingauge find redis://[::1]:6379/"),
        ("127.0.0.1:8080", "straingauge find http://127.0.0.1:8080/"),
    ] {
        let verdict = judged(waits(), fixture::record(), |point| {
            let (load, rate) = (point.connections, point.value(names::THROUGHPUT).unwrap_or(1.0));
            let event_loop = group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
            let backend = BackendUse { address: address.into(), ..backend(load, load as f64 - 0.1, rate) };
            keep(point, vec![event_loop], vec![backend]);
        });
        assert_eq!(verdict.causes[0].commands, [command]);
    }
}

#[test]
fn the_full_process_is_named_only_among_unequal_processes() {
    let workers = |busy: [f64; 4]| {
        rules(move |point, load, _| {
            let share = (load / 8.0).min(1.0);
            let idle: f64 = busy.iter().map(|busy| 1.0 - busy * share).sum();
            let mut of =
                group("app", 0.5, 0.0, &[(Sleep, "nanosleep", "", 3.5 - idle), (Events, "epoll_wait", "", idle)]);
            of.processes = (0..4)
                .map(|at| ProcessUse {
                    pid: 100 + at as u32,
                    running_ns: ns(busy[at] * share),
                    idle_ns: ns(1.0 - busy[at] * share),
                    ns: WINDOW_NS,
                })
                .collect();
            keep(point, vec![of], Vec::new());
        })
    };
    let (found, because) = workers([1.0, 0.2, 0.25, 0.2]);
    assert_eq!(found, ["unequal-workers"], "{because}");
    assert!(because.contains("process 100 of app was busy all the time, the other 3 20 % to 25 % of it"), "{because}");
    assert_ne!(workers([1.0, 0.98, 0.99, 0.97]).0, ["unequal-workers"]);
}

#[test]
fn a_slow_process_among_full_ones_is_named_with_its_time_per_request() {
    let workers = |slow: f64| {
        rules(move |point, load, rate| {
            let share = (load / 4.0).min(1.0) * 0.98;
            let waits = [(Sleep, "clock_nanosleep", "", 3.6 * share), (Events, "epoll_wait", "", 4.0 * (1.0 - share))];
            let mut of = group("app", 0.4 * share, 0.0, &waits);
            let process =
                |at: u32| ProcessUse { pid: at, running_ns: ns(0.1), idle_ns: ns(1.0 - share), ns: WINDOW_NS };
            of.processes = (1..=4).map(process).collect();
            let shares = [slow, 1.0, 1.0, 1.0].map(|part| part / (3.0 + slow) * rate);
            let processes = (1..=4).zip(shares).map(|(pid, per_sec)| WatchedProcess { pid, requests: 1000, per_sec });
            point.watched = Some(Watched { processes: processes.collect(), ..Watched::default() });
            keep(point, vec![of], Vec::new());
        })
    };
    let (found, because) = workers(0.2);
    assert_eq!(found, ["unequal-workers"], "{because}");
    assert!(because.contains("process 1 of app took") && because.contains("the other 3 "), "{because}");
    assert_eq!(workers(1.0).0, ["worker-pool"], "four equal ones that sleep are a pool");
}

#[test]
fn processes_that_try_a_lock_again_and_again_wait_for_each_other_however_unfair_it_is() {
    let (found, because) = rules(|point, load, rate| {
        let (waiting, idle) = ((load - 1.0).min(3.0), (4.0 - load).max(0.0));
        let waits = [
            (Sleep, "clock_nanosleep", "", waiting),
            (File, "fdatasync", "/db", 0.55),
            (Requests, "recvfrom", "", idle),
        ];
        let mut of = group("app", 0.45, 0.0, &waits);
        let process = |at: u32| ProcessUse { pid: at, running_ns: ns(0.1), idle_ns: ns(idle / 4.0), ns: WINDOW_NS };
        of.processes = (1..=4).map(process).collect();
        let shares = [0.1, 0.5, 0.2, 0.2].map(|part| part * rate);
        let processes = (1..=4).zip(shares).map(|(pid, per_sec)| WatchedProcess { pid, requests: 1000, per_sec });
        point.watched = Some(Watched { processes: processes.collect(), ..Watched::default() });
        keep(point, vec![of], Vec::new());
    });
    assert_eq!(found, ["lock"], "{because}");
    assert!(because.contains("3.0 of the 4 threads of app were asleep at any time (clock_nanosleep;"), "{because}");
    assert!(because.contains("Meanwhile 0.6 were in fdatasync /db: look there first."), "{because}");
}

#[test]
fn other_work_on_the_servers_cpu_is_always_named() {
    let (found, because) = rules(|point, load, _| {
        let idle = if load > 1.0 { 0.01 } else { 0.8 };
        keep(
            point,
            vec![group("app", 0.2 * (1.0 - idle), 0.8 * (1.0 - idle), &[(Events, "epoll_wait", "", idle)])],
            vec![],
        );
    });
    assert_eq!(found, ["neighbour"], "{because}");
    assert!(because.contains("for 80 % of it they were ready to run while something else had the CPU"), "{because}");
}

#[test]
fn a_server_whose_own_work_fills_its_cpu_has_no_cause_in_its_account() {
    let verdict = judged(healthy(), fixture::record(), |point| {
        let busy = point.value(names::SERVER_CPU_BUSY).unwrap_or(1.0).min(1.0);
        keep(point, vec![group("app", busy, 0.0, &[(Events, "epoll_wait", "", 1.0 - busy)])], Vec::new());
    });
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    let full: Vec<&str> = verdict.checked.iter().filter(|one| one.is_full).map(|one| one.stage.as_str()).collect();
    assert!(full.contains(&"1 thread of app"), "{:?}", verdict.checked);
}

#[test]
fn the_places_of_a_request_add_up_to_its_response_time() {
    let mut point = Point::new(Sweep::Connections, 0, 32, Pace::Closed);
    point.duration_ns = WINDOW_NS;
    set(&mut point, names::THROUGHPUT, 2000.0, 2000);
    set(&mut point, names::SERVER_UNREAD, 3.0, 50);
    set(&mut point, names::WATCH_ELAPSED, 10_000.0, 2000);
    let waits = [
        (Lock, "futex", "0x7f00", 12.0),
        (Sleep, "clock_nanosleep", "", 2.0),
        (Work, "futex", "0x8", 9.0),
        (Backend, "recvfrom", "10.0.0.9:5432", 1.5),
    ];
    keep(&mut point, vec![group("app", 0.5, 0.25, &waits)], vec![backend(4, 1.5, 2000.0)]);
    let account = level(32.0, &[&point]).expect("an account");
    let requests = account.requests.expect("the client's side is known");
    assert!((requests.open_ratio()).abs() < 1e-9 && (requests.in_flight - 32.0).abs() < 1e-9, "{requests:?}");
    let of = |kind: PlaceKind| -> f64 {
        requests.places.iter().filter(|place| place.kind == kind).map(|place| place.requests).sum()
    };
    // By its own clock, the server has 20 requests: 16.25 of them at threads and the other server, the rest in its
    // queues.
    assert_eq!((of(PlaceKind::Lock), of(PlaceKind::Backend), of(PlaceKind::Ready)), (12.0, 1.5, 0.25));
    assert!((of(PlaceKind::Queue) - 3.75).abs() < 1e-6 && (of(PlaceKind::Client) - 9.0).abs() < 1e-6, "{requests:?}");
    assert!(account.open_ratio.abs() < 1e-9);
    let sum: f64 = requests.places.iter().map(|place| place.us).sum();
    assert!((sum - requests.response_us).abs() < 1e-6);
}

#[test]
fn threads_that_sleep_without_a_request_and_requests_that_are_being_read_are_counted_once() {
    let of = |elapsed: f64, unread: f64, asleep: f64| {
        let mut point = Point::new(Sweep::Connections, 0, 8, Pace::Closed);
        point.duration_ns = WINDOW_NS;
        set(&mut point, names::THROUGHPUT, 1000.0, 1000);
        set(&mut point, names::SERVER_UNREAD, unread, 50);
        set(&mut point, names::WATCH_ELAPSED, elapsed * 1e3, 1000);
        keep(&mut point, vec![group("app", 0.5, 0.0, &[(Sleep, "clock_nanosleep", "", asleep)])], Vec::new());
        let requests = level(8.0, &[&point]).and_then(|account| account.requests).expect("the client's side is known");
        assert!(requests.open_ratio().abs() < 1e-9, "{requests:?}");
        let sum = |kind| -> f64 {
            requests.places.iter().filter(|place| place.kind == kind).map(|place| place.requests).sum()
        };
        (sum(PlaceKind::Sleep), sum(PlaceKind::Unread))
    };
    assert_eq!(of(6.0, 1.0, 5.0), (5.0, 1.0));
    assert_eq!(of(6.0, 0.0, 12.0), (7.5, 0.0), "the server has 8 requests at most");
    assert_eq!(of(8.0, 7.0, 6.0), (6.0, 0.0), "bytes of a request that is being read");
}

#[test]
fn requests_that_take_as_long_as_the_watch_counts_are_those_that_were_read_and_not_answered() {
    let of = |elapsed_us: f64, sampled: f64| {
        let mut point = Point::new(Sweep::Connections, 0, 16, Pace::Closed);
        point.duration_ns = WINDOW_NS;
        set(&mut point, names::THROUGHPUT, 16e6 / elapsed_us, 200);
        set(&mut point, names::WATCH_ELAPSED, elapsed_us / 4.0, 200);
        set(&mut point, names::WATCH_COUNTED, 0.5, 200);
        set(&mut point, names::WATCH_IN_FLIGHT, sampled, 1);
        keep(&mut point, vec![group("app", 0.5, 0.0, &[(Events, "epoll_wait", "", 0.5)])], Vec::new());
        let requests = level(16.0, &[&point]).and_then(|account| account.requests).expect("the client's side is known");
        assert!(requests.open_ratio().abs() < 1e-9, "{requests:?}");
        let client = requests.places.iter().find(|place| place.kind == PlaceKind::Client);
        client.map(|place| place.requests).expect("a place")
    };
    assert!((of(1000.0, 16.0) - 12.0).abs() < 1e-6, "short requests are timed well");
    assert!(
        (of(100_000.0, 15.0) - 1.0).abs() < 1e-6,
        "of long ones, those that end in the window are the shorter ones"
    );
}

/// Rules that apply if answers of this size wait in the server's kernel.
fn rules_of_unsent(waits: &'static [(WaitKind, &str, &str, f64)], body: f64, unacknowledged: f64) -> Vec<String> {
    let (found, _) = rules(|point, load, rate| {
        let waits: Vec<_> =
            waits.iter().map(|(kind, call, object, share)| (*kind, *call, *object, share * load)).collect();
        keep(point, vec![group("app", 0.01, 0.0, &waits)], Vec::new());
        set(point, names::WATCH_ELAPSED, load / rate * 1e6, 1000);
        set(point, names::BODY_BYTES, body * point.outcomes.completed() as f64, 1000);
        set(point, names::CONNECT_P50, 50.0, 10);
        set(point, names::SERVER_UNACKNOWLEDGED, unacknowledged * load + rate * 0.04, 20);
    });
    found
}

#[test]
fn answers_that_the_kernel_holds_back_are_distinguished_from_long_ones_and_from_slow_requests() {
    const IDLE: &[(WaitKind, &str, &str, f64)] = &[(Input, "read", "", 1.0)];
    assert!(rules_of_unsent(IDLE, 100.0, 0.9).contains(&"held-answers".into()));
    for other in [rules_of_unsent(IDLE, 1e6, 0.9), rules_of_unsent(IDLE, 100.0, 0.0)] {
        assert!(!other.contains(&"held-answers".into()), "{other:?}");
    }
}

#[test]
fn a_small_send_buffer_is_distinguished_from_a_client_that_does_not_read_and_from_a_long_path() {
    const SMALL: &[(WaitKind, &str, &str, f64)] = &[(Send, "write", SEND_BUFFER, 0.9)];
    const SLOW: &[(WaitKind, &str, &str, f64)] = &[(Send, "write", CLOSED_WINDOW, 0.9)];
    const FAR: &[(WaitKind, &str, &str, f64)] = &[(Send, "write", "", 0.9)];
    assert_eq!(rules_of_unsent(SMALL, 1e6, 1.0), ["send-buffer"]);
    assert_eq!(rules_of_unsent(SLOW, 1e6, 1.0), ["slow-readers"]);
    assert!(!rules_of_unsent(FAR, 1e6, 1.0).contains(&"send-buffer".into()));
}

#[test]
fn a_backend_that_takes_the_servers_cpus_is_named_and_one_beside_a_busy_server_is_not() {
    let of = |own: f64, others: f64| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            let rate = point.value(names::THROUGHPUT).unwrap_or(1.0);
            let busy = point.value(names::SERVER_CPU_BUSY).unwrap_or(0.0);
            set(point, names::SERVER_CPUS, 1.0, 10);
            keep(point, vec![group("app", own, 0.0, &[])], vec![backend(point.connections, 0.2, rate)]);
            set(point, names::SERVER_CPUS_USED, own * busy, 10);
            set(point, names::BACKEND_CPUS, others * busy, 10);
            set(point, names::SERVER_CPUS_TAKEN, 0.0, 10);
        });
        found(&verdict).iter().map(|rule| rule.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(0.2, 0.75), ["backend"]);
    assert_eq!(of(0.9, 0.05), [""; 0]);
}

#[test]
fn calls_that_wait_for_a_delayed_acknowledgement_are_possible_and_others_are_not() {
    let of = |call_us: fn(f64) -> f64| {
        let slow = crate::server::Server { path: 43e-3, noise: 0.02, drift: 0.0, ..crate::server::Server::default() };
        let verdict = judged(slow, fixture::record(), |point| {
            let (load, rate) = (point.connections as f64, point.value(names::THROUGHPUT).unwrap_or(1.0));
            let calls = backend(load as u64, rate * call_us(load) / 1e6, rate);
            keep(point, vec![group("app", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)])], vec![calls]);
        });
        verdict.causes.into_iter().find(|cause| cause.rule == "delayed-ack")
    };
    let found = of(|_| 41_500.0).expect("it is named");
    assert_eq!(found.certainty, Certainty::Possibility);
    assert!(found.because.starts_with("A call to 10.0.0.9:5432 took 41.5 ms"), "{}", found.because);
    assert!(of(|_| 30_000.0).is_none() && of(|_| 60_000.0).is_none());
    assert!(of(|load| 40_000.0 + 1000.0 * load).is_none(), "they grow with load");
}

#[test]
fn a_connection_for_each_call_is_distinguished_from_a_pool_with_slow_calls() {
    let of = |connections: fn(f64, f64) -> f64| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            let (load, rate) = (point.connections as f64, point.value(names::THROUGHPUT).unwrap_or(1.0));
            let calls = backend(connections(load, rate) as u64, 0.2, rate);
            keep(point, vec![group("app", 0.9, 0.0, &[])], vec![calls]);
        });
        verdict.causes.iter().any(|cause| cause.rule == "backend-connects" && cause.because.contains(" each)"))
    };
    assert!(of(|_, rate| rate));
    assert!(!of(|load, _| load), "as many as requests in progress");
    assert!(of(|load, rate| if load < 8.0 { 2.0 } else { rate / 2.0 }), "only two are kept");
    assert!(!of(|load, rate| if load < 8.0 { rate / 20.0 } else { 130.0 }), "a pool for the highest load");
    assert!(!of(|_, rate| rate / 20.0), "twenty calls each");
}

#[test]
fn an_event_loop_is_named_for_long_turns_and_not_for_being_full() {
    let working = |works: u64, response_us: f64, longest_ns: u64, others: &[ThreadGroup]| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            set(point, names::RESPONSE_MAX, response_us, 1000);
            let busy = point.value(names::SERVER_CPU_BUSY).unwrap_or(1.0).min(1.0);
            let mut thread = group("app", busy, 0.0, &[(Events, "epoll_wait", "", 1.0 - busy)]);
            (thread.works, thread.longest_work_ns) = (works, longest_ns);
            thread.processes =
                vec![ProcessUse { pid: 7, running_ns: ns(busy), idle_ns: ns(1.0 - busy), ns: WINDOW_NS }];
            keep(point, [&[thread], others].concat(), Vec::new());
        });
        found(&verdict).into_iter().map(String::from).collect::<Vec<_>>()
    };
    let responding_in =
        |response_us: f64, longest_ns: u64, others: &[ThreadGroup]| working(5000, response_us, longest_ns, others);
    let of = |longest_ns: u64, others: &[ThreadGroup]| responding_in(51e3, longest_ns, others);
    assert_eq!(of(50_000_000, &[]), ["blocked-loop"]);
    assert_eq!(working(20, 51e3, 50_000_000, &[]), ["blocked-loop"], "it seldom waits");
    assert_eq!(working(20, 15e3, 50_000_000, &[]), [""; 0], "it seldom waits, and its longest work was of several");
    assert_eq!(of(3_000_000, &[]), [""; 0]);
    assert_eq!(responding_in(60e3, 130_000_000, &[]), ["blocked-loop"], "others follow without a pause");
    assert_eq!(responding_in(12e3, 90_000_000, &[]), [""; 0], "it served several requests without a pause");
    let mut other = group("worker", 0.1, 0.0, &[(Events, "epoll_wait", "", 0.9)]);
    other.waits[0].times = 9000;
    assert_eq!(of(50_000_000, &[other]), [""; 0], "another thread serves what comes meanwhile");
    let timers = group("app", 0.01, 0.0, &[(Events, "epoll_pwait", "", 0.99)]);
    let timers = ThreadGroup { name: "app timers".into(), ..timers };
    assert_eq!(of(50_000_000, &[timers]), ["blocked-loop"], "one that hardly works serves nothing");
    let mut collectors =
        group("collectors", 0.3, 0.0, &[(Events, "epoll_pwait", "", 1.0), (Work, "futex", "0x8", 2.7)]);
    collectors.waits[0].times = 4;
    assert_eq!(of(50_000_000, &[collectors]), ["blocked-loop"], "one of them waits for a timer");
}

#[test]
fn processes_that_end_and_are_replaced_are_named_and_no_long_turns_of_an_event_loop() {
    let of = |per_load: u32, ends: bool, idle: f64| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            set(point, names::RESPONSE_MAX, 51e3, 1000);
            let mut worker = group("app", 0.5, 0.0, &[(Events, "epoll_wait", "", 0.5)]);
            (worker.works, worker.longest_work_ns) = (5000, 50_000_000);
            // Each load has worked with others.
            let first = point.connections as u32 * 10;
            let process = |pid: u32| ProcessUse { pid, running_ns: ns(0.5), idle_ns: ns(idle), ns: WINDOW_NS };
            worker.processes = (first..first + per_load).map(process).collect();
            let ended = ThreadGroup { program: ENDED.into(), ..group("app", 0.1, 0.0, &[]) };
            keep(point, [&[worker], &[ended][..usize::from(ends)]].concat(), Vec::new());
        });
        found(&verdict).into_iter().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(of(4, true, 0.5), ["restarts"]);
    assert_eq!(of(4, true, 0.0), [""; 0], "a child for each request never waits for the next");
    assert_eq!(of(4, false, 0.5), [""; 0], "other processes at other loads, but none ended");
    assert_eq!(of(1, true, 0.5), ["blocked-loop"], "the same number as are alive");
}
