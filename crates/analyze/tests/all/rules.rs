//! The rules: each applies to a run that shows its cause, and not to a similar run that does not.

use crate::server::{Bench, Server};
use crate::{account, fixture, recorded};
use analyze::zones;
use record::account::WaitKind;
use record::scenario::RunKind;
use record::{DoubtKind, Figure, Origin, Outcomes, Point, RunDir, RunRecord, names};
use std::cell::Cell;
use verdict::{self, Certainty, Verdict, rules::RULES};

pub fn set(point: &mut Point, name: &str, value: f64, n: u64) {
    let unit = names::ALL.iter().find(|(known, ..)| *known == name).map(|(_, unit, _)| *unit).expect("a known figure");
    point.figures.set(name, Figure::new(value, unit, n, Origin::Sampled));
}

/// The verdict on a closed loop of the server with changed points.
pub fn judged(server: Server, record: RunRecord, change: impl Fn(&mut Point)) -> Verdict {
    let mut bench = Bench::new(server, 5);
    for repeat in 0..4 {
        for load in [1, 2, 4, 8, 16, 32, 64, 128] {
            bench.closed(load, repeat, 1_000_000_000);
        }
    }
    bench.points.iter_mut().for_each(change);
    judged_points(record, &bench.points)
}

pub fn judged_points(record: RunRecord, points: &[Point]) -> Verdict {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), record, points);
    verdict::sentences(&run, &zones::of_run(&run))
}

pub fn found(verdict: &Verdict) -> Vec<&str> {
    verdict.causes.iter().map(|cause| cause.rule.as_str()).collect()
}

/// A server whose throughput ends at 10k/s with an idle CPU.
pub fn waits() -> Server {
    Server { path: 500e-6, hidden_limit: 10_000.0, noise: 0.02, drift: 0.05, ..Server::default() }
}

/// A sound server with a full CPU.
pub fn healthy() -> Server {
    Server { path: 120e-6, noise: 0.02, drift: 0.05, ..Server::default() }
}

#[test]
fn every_rule_is_listed_once_and_hides_only_existing_rules() {
    for rule in &RULES {
        assert_eq!(RULES.iter().filter(|other| other.id == rule.id).count(), 1, "{}", rule.id);
        for hidden_by in rule.hidden_by {
            assert!(RULES.iter().any(|other| other.id == *hidden_by), "{}: {hidden_by}", rule.id);
        }
        for text in [rule.cause, rule.evidence, rule.threshold, rule.refuted_by, rule.remedy, rule.source] {
            assert!(!text.is_empty(), "{}", rule.id);
        }
    }
}

#[test]
fn the_evidence_of_each_rule_names_figures_that_exist() {
    let room = |name: &str| name.split_once('.').map(|(room, _)| room.to_owned());
    let is_figure = |name: &str| names::ALL.iter().any(|(known, ..)| room(known) == room(name)) && name != "server.log";
    for rule in &RULES {
        for name in rule.evidence.split('`').skip(1).step_by(2).filter(|name| is_figure(name)) {
            assert!(names::ALL.iter().any(|(known, ..)| *known == name), "{}: there is no figure {name}", rule.id);
        }
    }
}

#[test]
fn a_server_that_is_simply_full_gets_no_advice() {
    let verdict = judged(healthy(), fixture::record(), |_| ());
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    assert!(verdict.sentences[0].contains("saturated first"), "{:?}", verdict.sentences);
}

#[test]
fn damaged_figures_do_not_count_as_evidence() {
    let verdict = judged(waits(), fixture::record(), |point| {
        for (name, unit, _) in
            names::ALL.iter().filter(|(name, ..)| name.starts_with("server.") || name.starts_with("tcp."))
        {
            point
                .figures
                .set(name, Figure { value: Some(f64::NAN), n: Some(0), ..Figure::new(0.0, unit, 1, Origin::Sampled) });
        }
    });
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
}

/// Adds threads that waited for another thread for this share of their time.
fn waiting(point: &mut Point, share: f64) {
    let waits = [(WaitKind::Work, "futex", "0x8", share)];
    account::keep(point, vec![account::group("app", 1.0 - share, 0.0, &waits)], Vec::new());
}

/// Makes the server a process whose threads run one at a time, on a machine with two CPUs.
fn held(point: &mut Point) {
    let load = point.connections as f64;
    set(point, names::SERVER_CPUS, 2.0, 1);
    set(point, names::SERVER_PROCESSES, 1.0, 1);
    set(point, names::SERVER_THREADS, load + 1.0, 1);
    set(point, names::SERVER_CPU_BUSY, f64::min(0.3 * load, 0.6), 2);
    set(point, names::SERVER_CPUS_TAKEN, 0.02, 2);
    set(point, names::SERVER_CPUS_USED, f64::min(0.5 * load, 0.98), 2);
    set(point, names::SERVER_BUSIEST_PROCESS, f64::min(0.5 * load, 0.98), 2);
    set(point, names::SERVER_BUSIEST_THREAD, f64::min(0.5 * load, 0.98) / load, 2);
    waiting(point, 1.0 - 1.0 / load);
}

#[test]
fn a_process_that_stays_at_one_cpu_is_named_with_its_lock() {
    let verdict = judged(waits(), fixture::record(), held);
    assert_eq!(found(&verdict), ["one-at-a-time"], "{:?}", verdict.sentences);
    let cause = &verdict.causes[0];
    assert_eq!(cause.certainty, Certainty::Cause, "waiting for the lock grew with load");
    assert!(cause.because.contains("its busiest process used 0.98 CPUs at every load from"), "{}", cause.because);
    assert!(
        cause.because.contains("its busiest thread 0.0") && cause.because.contains("of its CPUs"),
        "{}",
        cause.because
    );
    assert!(
        verdict.sentences[0].starts_with("The server's busiest process saturated first: it used 0.98 CPUs"),
        "{verdict:?}"
    );

    // The threads of a pool are parked at low loads, so the cause may be that lock or something else.
    let parked = |point: &mut Point| {
        held(point);
        waiting(point, 0.8);
    };
    let verdict = judged(waits(), fixture::record(), parked);
    assert_eq!(found(&verdict), ["one-at-a-time"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].certainty, Certainty::Possibility, "{:?}", verdict.causes);
    let crowded = |point: &mut Point| {
        held(point);
        set(point, names::SERVER_CPU_BUSY, 1.0, 2);
        set(point, names::SERVER_CPUS_TAKEN, 0.4, 2);
    };
    assert_eq!(found(&judged(waits(), fixture::record(), crowded)), ["one-at-a-time"], "other work filled the rest");
    let mut python = fixture::record();
    python.server_facts.insert("executable".into(), "/usr/bin/python3.11".into());
    let verdict = judged(waits(), python, parked);
    assert_eq!(found(&verdict), ["one-at-a-time"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].certainty, Certainty::Cause);
}

#[test]
fn a_process_at_one_cpu_for_another_reason_is_not_named() {
    let none = |what: &str, change: fn(&mut Point)| {
        let verdict = judged(waits(), fixture::record(), |point| {
            held(point);
            change(point);
        });
        assert!(!found(&verdict).contains(&"one-at-a-time"), "{what}: {:?}", verdict.causes);
    };
    none("one thread is full", |point| set(point, names::SERVER_BUSIEST_THREAD, 0.97, 2));
    none("its main thread does nearly all", |point| set(point, names::SERVER_BUSIEST_THREAD, 0.85, 2));
    none("it may use one CPU", |point| set(point, names::SERVER_CPUS, 1.0, 1));
    none("its CPU time limit is one CPU", |point| set(point, names::SERVER_QUOTA, 1.0, 1));
    none("all CPUs are full", |point| set(point, names::SERVER_CPU_BUSY, 0.98, 2));
    none("its threads wait for no other", |point| waiting(point, 0.1));
    none("at one load only", |point| {
        let cpus = if point.connections == 64 { 1.0 } else { 0.7 };
        set(point, names::SERVER_BUSIEST_PROCESS, cpus, 2);
    });
    none("two processes, each below one CPU", |point| set(point, names::SERVER_BUSIEST_PROCESS, 0.6, 2));
    none("it uses several CPUs", |point| set(point, names::SERVER_BUSIEST_PROCESS, 1.4, 2));
}

#[test]
fn a_cpu_limit_is_named_if_it_stops_the_server() {
    let limited = |stopped: f64| {
        move |point: &mut Point| {
            let is_full = point.connections > 4;
            set(point, names::SERVER_THREADS, 1.0, 1);
            set(point, names::SERVER_QUOTA, 0.5, 1);
            set(point, names::SERVER_QUOTA_USED, if is_full { 0.99 } else { 0.2 * point.connections as f64 }, 2);
            set(point, names::SERVER_THROTTLED, if is_full { stopped } else { 0.0 }, 10);
        }
    };
    let verdict = judged(waits(), fixture::record(), limited(0.95));
    assert_eq!(found(&verdict), ["cpu-quota"], "{:?}", verdict.sentences);
    let because = &verdict.causes[0].because;
    assert!(because.contains("may use 0.50 CPUs") && because.contains("95 % of its periods"), "{because}");
    let first = verdict.sentences.iter().find(|sentence| sentence.contains("saturated first"));
    assert!(first.is_some_and(|first| first.contains("CPU time limit saturated first")), "{first:?}");
    // A group that is never stopped is not limited, however times are rounded.
    assert!(!found(&judged(waits(), fixture::record(), limited(0.0))).contains(&"cpu-quota"));
}

#[test]
fn the_servers_share_is_relative_to_its_own_cpus() {
    // Two of the eight CPUs of the other machine are full of the server's own work, which is its limit.
    let verdict = judged(healthy(), fixture::record(), |point| {
        set(point, names::SERVER_CPUS, 2.0, 1);
        set(point, names::SERVER_BUSIEST_THREAD, 0.3, 2);
    });
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
}

#[test]
fn a_full_descriptor_table_is_named_if_connections_wait_for_it() {
    let full = |waiting: f64| {
        move |point: &mut Point| {
            let used = (point.connections + 8).min(48);
            set(point, names::SERVER_DESCRIPTORS, used as f64 / 48.0, used);
            set(point, names::ACCEPT_QUEUE_MAX, if used == 48 { waiting } else { 0.0 }, 10);
        }
    };
    let verdict = judged(healthy(), fixture::record(), full(17.0));
    assert_eq!(found(&verdict), ["descriptors"], "{:?}", verdict.sentences);
    let cause = &verdict.causes[0];
    assert!(cause.because.contains("48 descriptors open at 64 connections, 100 % of its limit"), "{}", cause.because);
    assert!(cause.commands[0].ends_with("exec \"$@\"' sh nginx -c nginx.conf"), "{}", cause.commands[0]);
    // The command that sets the limit must raise it; a higher limit around a command that sets its own has no effect.
    let mut record = fixture::record();
    record.server_facts.insert("descriptor_limit".into(), "48".into());
    record.server_facts.insert("descriptor_limit_inherited".into(), "1024".into());
    let lowered = &judged(healthy(), record.clone(), full(17.0)).causes[0];
    assert!(lowered.remedy.contains("limit of 1,024 and lowered it to 48"), "{}", lowered.remedy);
    assert!(lowered.commands.is_empty(), "{:?}", lowered.commands);
    let server = fixture::loaded(&mut record).server.as_mut().expect("it was started");
    server.argv = ["sh", "-c", "ulimit -n 48; exec nginx"].map(String::from).into();
    let at_once = &judged(healthy(), record.clone(), full(17.0)).causes[0];
    assert_eq!(at_once.commands, ["sh -c 'ulimit -n 65536; exec nginx'"]);
    fixture::loaded(&mut record).server = None;
    assert!(judged(healthy(), record, full(17.0)).causes[0].remedy.contains("in the shell that starts it"));
    assert!(judged(healthy(), fixture::record(), full(0.0)).causes.is_empty(), "nobody waits for more");
    let leaked = judged(healthy(), fixture::record(), |point| {
        full(17.0)(point);
        set(point, names::SERVER_DESCRIPTORS, 1.0, 15_000);
    });
    assert!(leaked.causes[0].because.contains("that it no longer uses"), "{:?}", leaked.causes);
    assert!(leaked.causes[0].commands[0].starts_with("ls -l /proc/"), "{:?}", leaked.causes);
}

#[test]
fn a_server_that_never_answers_again_is_named_and_a_busy_one_or_one_that_comes_back_is_not() {
    let silent = |from: u64, cpus: f64| {
        move |point: &mut Point| {
            set(point, names::SERVER_CPUS_USED, cpus, 10);
            if point.connections >= from && point.repeat == 3 {
                point.outcomes = Outcomes { sent: 20, unfinished: 20, ..Outcomes::default() };
            }
        }
    };
    let verdict = judged(healthy(), fixture::record(), silent(32, 0.0));
    let because = &verdict.causes.iter().find(|cause| cause.rule == "hangs").expect("it is named").because;
    assert!(because.contains("nothing since 32 connections"), "{because}");
    let hangs = |verdict: &Verdict| found(verdict).contains(&"hangs");
    assert!(!hangs(&judged(healthy(), fixture::record(), silent(32, 0.9))), "it works");
    let always = |from: u64| {
        move |point: &mut Point| {
            point.repeat = 3;
            silent(from, 0.0)(point);
        }
    };
    assert!(!hangs(&judged(healthy(), fixture::record(), always(1))), "it never answered");
    let mut record = fixture::record();
    record.server_facts.insert(record::machine::HUNG_IN_WARM_UP.into(), "9 requests".into());
    assert!(hangs(&judged(healthy(), record, always(1))), "it answered in the warm-up");
    assert!(!hangs(&judged(healthy(), fixture::record(), always(32))), "it came back at each lower load");
}

#[test]
fn a_limit_of_connections_is_named_if_as_many_are_answered_at_any_larger_number() {
    let with = |served: fn(u64) -> u64, more: fn(&mut Point)| {
        let verdict = judged(healthy(), fixture::record(), move |point| {
            point.outcomes.connections_used = point.connections;
            point.outcomes.connections_silent = point.connections - served(point.connections).min(point.connections);
            more(point);
        });
        verdict.causes.into_iter().find(|cause| cause.rule == "connection-limit")
    };
    let of = |served: fn(u64) -> u64| with(served, |_| ());
    let in_turns = |point: &mut Point| {
        set(point, names::RESPONSE_P50, 800.0, 1000);
        set(point, names::RESPONSE_P99, if point.connections >= 8 { 820e3 } else { 2e3 }, 1000);
    };
    assert!(with(|_| 16, in_turns).is_none(), "connections take turns");
    let because = of(|_| 16).expect("it is named").because;
    assert!(because.contains("At 32 connections and at 128 connections only 16 connections got answers"), "{because}");
    assert!(of(|all| all).is_none(), "all are answered");
    assert!(of(|all| all - all / 4).is_none(), "a part of them is not");
    assert!(of(|all| if all > 64 { 16 } else { all }).is_none(), "as many as 64 are answered");
    assert!(of(|all| if all > 64 { 64 } else { all }).is_some(), "all of 64, and as many of 128");
}

#[test]
fn answers_that_are_sent_slowly_are_distinguished_from_a_shared_rate_and_from_a_slow_path() {
    let of = |seconds: fn(u64) -> f64, connect_us: f64| {
        let slow = Server { path: 2.0, noise: 0.02, drift: 0.0, ..Server::default() };
        let verdict = judged(slow, fixture::record(), move |point| {
            set(point, names::FIRST_BYTE_P50, 800.0, 1000);
            set(point, names::RESPONSE_P50, seconds(point.connections) * 1e6 + 800.0, 1000);
            set(point, names::CONNECT_P50, connect_us, 1000);
            set(point, names::SERVER_CPU_BUSY, 0.1, 10);
        });
        verdict.causes.into_iter().find(|cause| cause.rule == "paced-answers")
    };
    let because = of(|_| 2.0, 100.0).expect("it is named").because;
    assert!(because.contains("from its first byte to its last it took 2.00 s at any load"), "{because}");
    assert!(of(|_| 2.0, 20e3).is_none(), "a window for each round trip");
    assert!(of(|connections| connections as f64, 100.0).is_none(), "they share a rate");
    assert!(of(|_| 5e-3, 100.0).is_none(), "that is quick");
}

#[test]
fn an_accept_queue_that_overflows_is_named_with_its_limit() {
    let overflow = |rate: f64| {
        move |point: &mut Point| {
            set(point, names::TCP_LISTEN_OVERFLOWS, if point.connections >= 16 { rate } else { 0.0 }, 10);
            set(point, names::ACCEPT_QUEUE_LIMIT, 8.0, 10);
        }
    };
    let verdict = judged(healthy(), fixture::record(), overflow(12.0));
    assert_eq!(found(&verdict), ["backlog"], "{:?}", verdict.sentences);
    assert!(judged(waits(), fixture::record(), overflow(12.0)).causes[0].is_limit);
    let at_many = |point: &mut Point| {
        set(point, names::TCP_LISTEN_OVERFLOWS, if point.connections > 64 { 12.0 } else { 0.0 }, 10);
    };
    let flat = judged(waits(), fixture::record(), at_many);
    let is_limit = |rule: &str| flat.causes.iter().any(|cause| cause.rule == rule && cause.is_limit);
    assert!(!is_limit("backlog"), "throughput is as high without it: {:?}", flat.causes);
    let late = judged(healthy(), fixture::record(), at_many);
    assert!(!late.causes[0].is_limit, "the CPU is full at lower loads: {:?}", late.causes);
    assert!(
        verdict.causes[0].because.contains("from 16 connections on (12/s): its limit is 8"),
        "{:?}",
        verdict.causes
    );
    assert!(verdict.causes[0].commands.is_empty(), "somaxconn is 4096 already: {:?}", verdict.causes[0].commands);
    let mut small = fixture::record();
    small.machine.sysctls.insert("net.core.somaxconn".into(), "128".into());
    let verdict = judged(healthy(), small, overflow(12.0));
    assert_eq!(verdict.causes[0].commands, ["sysctl -w net.core.somaxconn=1024"]);
    assert!(judged(healthy(), fixture::record(), overflow(0.2)).causes.is_empty(), "one in five seconds");
    // The SYNs were dropped before the window of a quarter of a second.
    let opening = |fails: bool| {
        move |point: &mut Point| {
            set(point, names::TCP_LISTEN_OVERFLOWS, 0.0, 0);
            set(point, names::TCP_LISTEN_OVERFLOWS_BEFORE, if point.connections >= 16 { 3.0 } else { 0.0 }, 3);
            if fails && point.connections >= 16 {
                point.outcomes.timed_out = point.outcomes.ok / 10;
            }
        }
    };
    let verdict = judged(healthy(), fixture::record(), opening(true));
    assert_eq!(found(&verdict), ["backlog"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("3 while connections were opened"), "{:?}", verdict.causes[0]);
    assert!(judged(healthy(), fixture::record(), opening(false)).causes.is_empty(), "they came back in time");
    // Beyond the limit, but without any response time of a second, after which a SYN is sent again; measured with
    // Node.js at 25.8k/s.
    let slow = |max_us: f64| {
        move |point: &mut Point| {
            opening(false)(point);
            set(point, names::RESPONSE_P99, if point.connections >= 16 { 243e3 } else { 1e3 }, 1000);
            set(point, names::RESPONSE_MAX, if point.connections >= 16 { max_us } else { 1e3 }, 1000);
        }
    };
    assert!(!found(&judged(healthy(), fixture::record(), slow(266e3))).contains(&"backlog"));
    assert!(found(&judged(healthy(), fixture::record(), slow(1.02e6))).contains(&"backlog"));
}

#[test]
fn one_cpu_for_interrupts_is_named_if_another_has_time() {
    let mut record = fixture::record();
    fixture::loaded(&mut record).server.as_mut().unwrap().cpus = vec![0, 1, 2];
    let busy_and_steered = |most: f64, idlest: f64, softirq: f64| {
        move |point: &mut Point| {
            let busy = if point.connections >= 4 { most } else { 0.5 };
            set(point, names::SERVER_SOFTIRQ_CPU_BUSY, busy, 2);
            set(point, names::SERVER_SOFTIRQ_CPU, softirq, 60);
            set(point, names::SERVER_SOFTIRQ_CONCENTRATION, 0.97, 60);
            set(point, names::SERVER_IDLEST_CPU_BUSY, idlest, 2);
        }
    };
    let steered = |idlest: f64, softirq: f64| busy_and_steered(0.99, idlest, softirq);
    let verdict = judged(healthy(), record.clone(), steered(0.1, 0.4));
    assert_eq!(found(&verdict), ["interrupts"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].commands, ["echo 7 > /sys/class/net/DEVICE/queues/rx-0/rps_cpus"]);
    assert!(judged(healthy(), record.clone(), steered(0.99, 0.4)).causes.is_empty(), "no CPU is idle");
    // A point of 250 ms has 25 ticks, and the CPU sometimes waits for other work.
    let nearly = judged(healthy(), record.clone(), busy_and_steered(0.88, 0.1, 0.4));
    assert_eq!(found(&nearly), ["interrupts"], "{:?}", nearly.sentences);
    assert!(judged(healthy(), record.clone(), busy_and_steered(0.8, 0.1, 0.4)).causes.is_empty(), "it has time");
    assert!(judged(healthy(), record, steered(0.1, 0.1)).causes.is_empty(), "it is the server's own work");
}

#[test]
fn state_that_outgrew_the_cache_is_named_if_user_time_grew_with_memory() {
    let grows = Server { doubles_at: 60.0, ..healthy() };
    let user = |share: f64, memory: f64| {
        move |point: &mut Point| {
            let cpu = point.value(names::SERVER_CPU).unwrap();
            set(point, names::SERVER_CPU_USER, 3.0 + share * (cpu - 12.0), 1000);
            set(point, names::SERVER_MEMORY, memory * point.connections as f64, 1);
        }
    };
    let verdict = judged(grows.clone(), fixture::record(), user(0.9, 65536.0));
    assert_eq!(found(&verdict), ["memory-bound"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].commands, ["memwalk -p BUILD --report"]);
    // User time made up 0.9 of the growth from 12 us; without it, a tenth of the growth remains.
    let because = &verdict.causes[0].because;
    let won = because.split("at most ").last().and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(won.is_some_and(|won| (1.5..12.0).contains(&won)), "{because}");
    let small = judged(grows.clone(), fixture::record(), user(0.9, 1024.0));
    assert!(small.causes.is_empty(), "it fits the cache: {:?}", small.causes);
    let kernel = judged(grows.clone(), fixture::record(), user(0.1, 65536.0));
    assert!(kernel.causes.is_empty(), "the kernel grew: {:?}", kernel.causes);
    let polls = judged(grows, fixture::record(), |point| {
        user(0.9, 65536.0)(point);
        set(point, names::SERVER_SELECT_WAITS, 1.0, 10);
        set(point, names::SERVER_SELECT_SET, 2000.0, 10);
    });
    assert_eq!(found(&polls), ["scalable-select"], "its loop over the set is user time, too");
}

#[test]
fn growth_of_another_function_is_not_blamed_on_the_cache() {
    let grows = Server { doubles_at: 60.0, ..healthy() };
    let searched = |at_low: f64| {
        move |point: &mut Point| {
            let cpu = point.value(names::SERVER_CPU).unwrap();
            set(point, names::SERVER_CPU_USER, 3.0 + 0.9 * (cpu - 12.0), 1000);
            set(point, names::SERVER_MEMORY, 65536.0 * point.connections as f64, 1);
            let grown = at_low + (cpu - 12.0).max(0.0) * f64::from(u8::from(point.connections > 8));
            let cost = |function: &str, us_per_request| record::point::FunctionCost {
                function: function.into(),
                module: None,
                layer: Some(record::layers::Layer::User),
                us_per_request,
                samples: 50,
            };
            point.functions = vec![cost("parse", 1.0)];
            point.functions.extend((grown > 0.0).then(|| cost("find_connection", grown)));
        }
    };
    assert!(judged(grows.clone(), fixture::record(), searched(0.0)).causes.is_empty(), "a list is searched");
    assert_eq!(found(&judged(grows, fixture::record(), searched(2.0))), ["memory-bound"]);
}

#[test]
fn a_client_without_ports_or_cpu_is_named_before_any_server_cause() {
    let overflow = |point: &mut Point| set(point, names::TCP_LISTEN_OVERFLOWS, 50.0, 50);
    let weak = Server { path: 500e-6, client_limit: 3000.0, noise: 0.02, ..Server::default() };
    let verdict = judged(weak.clone(), fixture::record(), overflow);
    assert_eq!(found(&verdict), ["client"], "{:?}", verdict.sentences);
    let verdict = judged(weak, fixture::record(), refuses(1, 0.5));
    assert!(!found(&verdict).contains(&"client"), "errors filled it: {:?}", verdict.sentences);
    let no_ports = |share: f64| {
        move |point: &mut Point| {
            point.outcomes.local_limit = (point.outcomes.sent as f64 * share) as u64;
            point.outcomes.ok -= point.outcomes.local_limit;
        }
    };
    let verdict = judged(healthy(), fixture::record(), no_ports(0.2));
    assert_eq!(found(&verdict), ["client-ports"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("(ports 32768 to 60999)"), "{}", verdict.causes[0].because);
    assert!(judged(healthy(), fixture::record(), no_ports(0.0001)).causes.is_empty());
}

#[test]
fn time_wait_is_named_if_the_kernel_cut_it_short() {
    let overflow = |rate: f64| {
        move |point: &mut Point| {
            set(point, names::TIME_WAIT_OVERFLOWS, rate, 10);
            point.connection_states.insert("time-wait".into(), Figure::new(8192.0, "connections", 3, Origin::Sampled));
        }
    };
    let verdict = judged(healthy(), fixture::record(), overflow(300.0));
    assert_eq!(found(&verdict), ["time-wait"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("its port had 8,192"), "{}", verdict.causes[0].because);
    assert!(judged(healthy(), fixture::record(), overflow(0.0)).causes.is_empty(), "many are no harm");
}

#[test]
fn a_full_path_is_named_if_no_cpu_is_full() {
    let mut record = fixture::record();
    fixture::loaded(&mut record).path =
        Some(record::PathPlan { bandwidth_bits_per_sec: 100_000_000, ..Default::default() });
    let received = |share: f64| move |point: &mut Point| set(point, names::RECEIVED, share * 1e8 / 8.0, 10);
    let verdict = judged(waits(), record.clone(), received(0.95));
    assert_eq!(found(&verdict), ["bandwidth"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("95 % of the path's 100Mbit/s"), "{}", verdict.causes[0].because);
    assert!(judged(waits(), record.clone(), received(0.5)).causes.is_empty());
    assert!(judged(healthy(), record, received(0.95)).causes.is_empty(), "the CPU is full first");
    let link = judged(waits(), fixture::record(), |point| set(point, names::NET_LINK_USED, 0.93, 1));
    assert_eq!(found(&link), ["bandwidth"]);
}

#[test]
fn cpus_filled_by_other_work_are_not_the_servers_limit() {
    let crowded = |point: &mut Point| {
        set(point, names::SERVER_CPU_BUSY, 1.0, 2);
        set(point, names::SERVER_BUSIEST_THREAD, 0.3, 2);
        set(point, names::SERVER_CPUS_USED, 0.3, 2);
    };
    let verdict = judged(waits(), fixture::record(), crowded);
    assert!(verdict.sentences[0].contains("its own work took only 3"), "{:?}", verdict.sentences);
}

#[test]
fn cache_misses_are_a_cause_only_if_they_were_counted() {
    let grows = Server { doubles_at: 60.0, ..healthy() };
    let counted = |misses: Option<(f64, f64)>| {
        move |point: &mut Point| {
            let cpu = point.value(names::SERVER_CPU).unwrap();
            set(point, names::SERVER_CPU_USER, 3.0 + 0.9 * (cpu - 12.0), 1000);
            set(point, names::SERVER_MEMORY, 65536.0 * point.connections as f64, 1);
            if let Some((few, many)) = misses {
                let value = if point.connections > 16 { many } else { few };
                let name = names::event_per_packet("user", "llc-load-misses");
                point.figures.set(&name, Figure::new(value, "count", 100, Origin::Sampled));
            }
        }
    };
    let without = judged(grows.clone(), fixture::record(), counted(None));
    assert_eq!(without.causes[0].certainty, Certainty::Possibility, "{:?}", without.causes);
    assert!(without.causes[0].sentence().starts_with("Possible, not proven"), "{:?}", without.causes);
    let more = judged(grows.clone(), fixture::record(), counted(Some((10.0, 90.0))));
    assert_eq!(more.causes[0].certainty, Certainty::Cause, "{:?}", more.causes);
    let same = judged(grows, fixture::record(), counted(Some((10.0, 11.0))));
    assert!(same.causes.is_empty(), "{:?}", same.causes);
}

#[test]
fn user_time_of_few_requests_or_on_idle_cpus_is_not_blamed_on_the_cache() {
    let grows = |point: &mut Point| {
        let load = point.connections as f64;
        set(point, names::SERVER_CPU, 12.0 + load, 1000);
        set(point, names::SERVER_CPU_USER, 3.0 + load, 1000);
        set(point, names::SERVER_MEMORY, 65536.0 * load, 1);
    };
    assert_eq!(found(&judged(healthy(), fixture::record(), grows)), ["memory-bound"], "what the others lack");
    let seldom = judged(healthy(), fixture::record(), |point| {
        grows(point);
        if point.connections > 16 {
            (point.outcomes.sent, point.outcomes.ok) = (7, 7);
        }
    });
    assert!(seldom.causes.is_empty(), "seven answers: {:?}", seldom.causes);
    let idle = judged(waits(), fixture::record(), grows);
    assert!(idle.causes.is_empty(), "its CPUs have time: {:?}", idle.causes);
    let held = judged(healthy(), fixture::record(), |point| {
        grows(point);
        set(point, names::SERVER_MEMORY, 8e6, 1);
    });
    assert!(held.causes.is_empty(), "memory that does not grow with connections: {:?}", held.causes);
}

#[test]
fn threads_that_yield_to_a_spin_lock_are_named() {
    let yields = |at_one: f64| {
        judged(Server { doubles_at: 4.0, ..healthy() }, fixture::record(), move |point| {
            let cpu = point.value(names::SERVER_CPU).unwrap();
            let share = if point.connections == 1 { at_one } else { 0.8 };
            let cost = |function: &str, share: f64| record::point::FunctionCost {
                function: function.into(),
                module: None,
                layer: None,
                us_per_request: share * cpu,
                samples: 100,
            };
            point.functions = vec![cost("finish_task_switch", 0.5 * share)];
            point.with_callees = vec![cost("__do_sys_sched_yield", share)];
        })
    };
    let verdict = yields(0.0);
    assert!(found(&verdict).contains(&"spin"), "{:?}", verdict.sentences);
    let spin = verdict.causes.iter().find(|cause| cause.rule == "spin").unwrap();
    assert!(spin.because.contains("80 % of the server's CPU time was in the system call sched_yield"), "{spin:?}");
    assert!(!found(&yields(0.7)).contains(&"spin"), "it also polls for work");
}

#[test]
fn a_spin_lock_is_named_by_its_function() {
    let spins = |function: &'static str, at_one: f64| {
        judged(Server { doubles_at: 4.0, ..healthy() }, fixture::record(), move |point| {
            let share = if point.connections == 1 { at_one } else { 0.6 };
            point.functions = vec![record::point::FunctionCost {
                function: function.into(),
                module: Some("libc.so.6".into()),
                layer: Some(record::layers::Layer::User),
                us_per_request: share * point.value(names::SERVER_CPU).unwrap(),
                samples: 100,
            }];
        })
    };
    for function in ["pthread_spin_lock", "absl::base_internal::SpinLock::SlowLock()"] {
        let verdict = spins(function, 0.01);
        let spin = verdict.causes.iter().find(|cause| cause.rule == "spin").expect(function);
        assert!(spin.because.contains(&format!("60 % of the server's CPU time was in {function} (1 %")), "{spin:?}");
        assert_eq!(spin.certainty, Certainty::Cause);
    }
    assert!(!found(&spins("pthread_spin_lock", 0.5)).contains(&"spin"), "also with one connection");
    assert!(!found(&spins("compress", 0.01)).contains(&"spin"), "work");
}

#[test]
fn spinning_threads_are_a_possible_cause_with_a_command_to_check() {
    let grows = Server { doubles_at: 30.0, ..healthy() };
    let spins = |waited: f64| {
        move |point: &mut Point| {
            let cpu = point.value(names::SERVER_CPU).unwrap();
            set(point, names::SERVER_CPU_USER, 3.0 + 0.95 * (cpu - 12.0), 1000);
            set(point, names::SERVER_THREADS, point.connections as f64 + 1.0, 1);
            set(point, names::SERVER_RUN_QUEUE, waited * cpu * point.connections as f64, 1000);
            set(point, names::SERVER_MEMORY, 65536.0 * point.connections as f64, 1);
        }
    };
    let verdict = judged(grows.clone(), fixture::record(), spins(0.5));
    assert_eq!(found(&verdict), ["spin"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].certainty, Certainty::Possibility);
    assert_eq!(verdict.causes[0].commands, ["perf top -p PID"]);
    assert_eq!(
        found(&judged(grows.clone(), fixture::record(), spins(0.0))),
        ["memory-bound"],
        "nobody waits for a CPU"
    );
    let forks = judged(grows.clone(), fixture::record(), |point| {
        spins(0.5)(point);
        set(point, names::SERVER_PROCESSES, 9.0 + point.connections as f64, 1);
    });
    assert!(found(&forks).is_empty(), "new processes cost user time, too (Apache's prefork): {:?}", forks.sentences);
    // At low loads there is too little CPU time for ticks to divide, so all of it is the upper bound of user time.
    let few = judged(Server { doubles_at: 8.0, ..healthy() }, fixture::record(), |point| {
        spins(0.5)(point);
        if point.connections <= 8 {
            set(point, names::SERVER_CPU, 0.1, 1000);
        }
    });
    assert_eq!(found(&few), ["spin"], "{:?}", few.sentences);
    assert!(few.causes[0].because.contains("from at most 0.1 us"), "{:?}", few.causes[0]);
    // One connection is the only cheap load, with too little CPU time for ticks alone to prove it.
    let spins = |point: &mut Point, cpu: f64, requests: u64| {
        point.outcomes = record::Outcomes { sent: requests, ok: requests, ..Default::default() };
        for rate in [names::THROUGHPUT, names::GOODPUT] {
            set(point, rate, requests as f64 * 4.0, requests);
        }
        set(point, names::SERVER_CPU, cpu, requests);
        set(point, names::SERVER_CPU_USER, cpu, requests);
        set(point, names::SERVER_CPU_BUSY, if point.connections == 1 { 0.1 } else { 1.0 }, 2);
        set(point, names::SERVER_THREADS, point.connections as f64 + 1.0, 1);
        set(point, names::SERVER_RUN_QUEUE, cpu * (point.connections - 1) as f64, requests);
    };
    let from_two = judged(healthy(), fixture::record(), |point| {
        let (cpu, requests) = if point.connections == 1 { (30.0, 500) } else { (4000.0, 60) };
        spins(point, cpu, requests);
    });
    assert_eq!(found(&from_two), ["spin"], "{:?}", from_two.sentences);
    let saturated = from_two.sentences.iter().find(|said| said.contains("saturated"));
    assert!(saturated.is_some_and(|said| said.contains("100 % busy at 2 connections")), "{:?}", from_two.sentences);
    // As measured with a ticket lock: in one window the threads hardly got in each other's way.
    let mut bench = Bench::new(healthy(), 5);
    (0..3).for_each(|repeat| [1, 2, 4, 8, 16].iter().for_each(|load| bench.closed(*load, repeat, 250_000_000)));
    for point in &mut bench.points {
        let (cpu, requests) = match (point.connections, point.repeat) {
            (1, _) => (197.0, 800),
            (2, _) => (3200.0, 70),
            (4, _) => (4700.0, 47),
            (8, _) => (15_000.0, 23),
            (_, 1) => (2600.0, 112),
            _ => (27_000.0, 25),
        };
        spins(point, cpu, requests);
    }
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &bench.points);
    let by_factors = verdict::sentences(&run, &zones::of_run(&run));
    assert_eq!(found(&by_factors), ["spin"], "{:?}", by_factors.sentences);
}

#[test]
fn an_answer_whose_end_waits_for_an_acknowledgement_is_named() {
    let waits = |first_ms: f64, at_many_ms: f64| {
        move |point: &mut Point| {
            let first_ms = if point.connections >= 4 { at_many_ms } else { first_ms };
            let response_us = point.value(names::RESPONSE_P50).unwrap();
            set(point, names::FIRST_BYTE_P50, response_us - first_ms * 1e3, 1000);
        }
    };
    let slow = || Server { path: 42e-3, noise: 0.02, drift: 0.0, ..Server::default() };
    let verdict = judged(slow(), fixture::record(), waits(40.5, 41.0));
    assert_eq!(found(&verdict), ["delayed-ack"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("40.5 ms to 41.0 ms after the first"), "{:?}", verdict.causes[0]);
    let disturbed = judged(slow(), fixture::record(), |point| {
        let is_one = point.connections == 8 && point.repeat == 0;
        waits(40.5, if is_one { 12.0 } else { 41.0 })(point);
    });
    assert_eq!(found(&disturbed), ["delayed-ack"], "one of a load's points: {:?}", disturbed.sentences);
    assert!(judged(slow(), fixture::record(), |_| ()).causes.is_empty(), "the first byte was not timed");
    let far = judged(slow(), fixture::record(), |point| {
        waits(40.5, 41.0)(point);
        set(point, names::CONNECT_P50, 40e3, 1000);
    });
    assert!(far.causes.is_empty(), "that may be a round trip");
    let over_a_path = |gap_ms: f64, answer: f64| {
        judged(Server { path: 85e-3, ..slow() }, fixture::record(), move |point| {
            waits(gap_ms, gap_ms)(point);
            set(point, names::RESPONSE_P99, 90e3, 1000);
            set(point, names::CONNECT_P50, 20e3, 1000);
            set(point, names::BODY_BYTES, answer * point.outcomes.completed() as f64, 1000);
        })
    };
    let verdict = over_a_path(63.5, 1000.0);
    assert_eq!(found(&verdict), ["delayed-ack"], "{:?}", verdict.sentences);
    assert!(
        verdict.causes[0].because.contains("40 ms and a round trip (20.0 ms to connect)"),
        "{:?}",
        verdict.causes[0]
    );
    assert!(over_a_path(63.5, 30e3).causes.is_empty(), "that may be three windows");
    assert!(over_a_path(40.5, 1000.0).causes.is_empty(), "that is one more round trip");
    for other in [waits(0.2, 0.2), waits(30.0, 30.0), waits(40.5, 20.0)] {
        assert!(judged(slow(), fixture::record(), other).causes.is_empty(), "that is the server's own time");
    }
}

#[test]
fn an_idle_server_always_gets_a_next_step() {
    let unseen = |point: &mut Point| {
        let why = "Operation not permitted";
        point.figures.set(names::SERVER_LOCK_WAITS, Figure::not_measured("ratio", why));
    };
    let verdict = judged(waits(), fixture::record(), unseen);
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    assert!(verdict.sentences[0].contains("`strace -f -c -p PID`"), "{:?}", verdict.sentences);
    let said = verdict.sentences.iter().filter(|said| said.contains("not seen")).collect::<Vec<_>>();
    assert!(
        said.len() == 1
            && said[0].contains("named: Operation not permitted. ")
            && said[0].contains("`straingauge doctor`"),
        "{:?}",
        verdict.sentences
    );
    let seen = judged(waits(), fixture::record(), |point| waiting(point, 0.9)).sentences;
    assert!(seen[0].contains("`--full` show what its threads were blocked in"), "{seen:?}");
    assert!(!seen.join(" ").contains("not seen") && !seen.join(" ").contains("strace"), "{seen:?}");
    let full = judged(healthy(), fixture::record(), unseen).sentences.join(" ");
    assert!(!full.contains("not seen"), "its threads wait for a CPU: {full}");
}

#[test]
fn errors_of_the_server_above_a_load_are_named() {
    let fails = |share: f64| {
        move |point: &mut Point| {
            if point.connections > 16 {
                point.outcomes.non_2xx = (point.outcomes.sent as f64 * share) as u64;
                point.outcomes.ok -= point.outcomes.non_2xx;
            }
        }
    };
    let verdict = judged(healthy(), fixture::record(), fails(0.3));
    assert_eq!(found(&verdict), ["server-errors"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("from 32 connections on"), "{:?}", verdict.causes[0]);
    assert!(verdict.causes[0].because.contains("none at the lowest load"), "{:?}", verdict.causes[0]);
    assert!(judged(healthy(), fixture::record(), fails(0.0001)).causes.is_empty());
}

/// Above this many connections, answers `share` of the requests with an error, three times as quickly.
pub fn refuses(above: u64, share: f64) -> impl Fn(&mut Point) {
    move |point: &mut Point| {
        if point.connections > above {
            let answered = 3 * point.outcomes.sent;
            let bad = (answered as f64 * share) as u64;
            point.outcomes =
                record::Outcomes { sent: answered, ok: answered - bad, non_2xx: bad, ..Default::default() };
            let rate = 3.0 * point.value(names::THROUGHPUT).unwrap();
            set(point, names::THROUGHPUT, rate, answered);
            set(point, names::GOODPUT, rate * (1.0 - share), answered - bad);
        }
    }
}

#[test]
fn fast_errors_do_not_count_as_throughput() {
    let whole = judged(healthy(), fixture::record(), |_| ());
    let refused = judged(healthy(), fixture::record(), refuses(16, 0.9));
    let peak = |verdict: &Verdict| -> f64 {
        verdict.answer.as_ref().and_then(|answer| answer.peak.as_ref()).expect("a peak").per_sec
    };
    assert!((0.9..=1.0).contains(&(peak(&refused) / peak(&whole))), "{} {}", whole.headline, refused.headline);
    let none_is_good = judged(healthy(), fixture::record(), refuses(0, 0.96));
    assert!(
        none_is_good
            .headline
            .starts_with("No load held: it already fails at 1 connection: 96 % of the requests failed"),
        "{}",
        none_is_good.headline
    );
    assert!(!none_is_good.headline.contains("lastic"), "{}", none_is_good.headline);
}

#[test]
fn a_resource_that_only_errors_fill_did_not_saturate_first() {
    let busy = |held: f64| {
        move |point: &mut Point| {
            refuses(16, 0.9)(point);
            let share = if point.connections > 16 { 0.97 } else { held };
            set(point, names::SERVER_CPU_BUSY, share, 100);
            set(point, names::SERVER_BUSIEST_THREAD, share, 100);
        }
    };
    let said = |held: f64| judged(healthy(), fixture::record(), busy(held)).sentences.join(" ");
    let sheds = said(0.2);
    assert!(sheds.contains("Errors came before any CPU of the server was saturated: at 16 connections"), "{sheds}");
    assert!(!sheds.contains("saturated first"), "{sheds}");
    let is_full = said(0.97);
    assert!(is_full.contains("saturated first") && !is_full.contains("Errors came before"), "{is_full}");
}

#[test]
fn slow_requests_are_reported_for_an_idle_server_but_not_for_a_busy_one_or_a_slow_client() {
    let said = |busy: f64, reap_us: f64, p99_us: fn(u64) -> f64| {
        let change = move |point: &mut Point| {
            for name in [names::SERVER_CPU_BUSY, names::SERVER_BUSIEST_THREAD] {
                set(point, name, if point.connections > 8 { 0.97 } else { busy }, 100);
            }
            set(point, names::RESPONSE_P99, p99_us(point.connections), point.outcomes.ok);
            set(point, names::REAP_P99, reap_us, 1000);
        };
        let verdict = judged(healthy(), fixture::record(), change);
        verdict.causes.into_iter().find(|cause| cause.rule == "slow-requests").map(|cause| cause.because)
    };
    let told = said(0.2, 0.0, |_| 80e3).expect("it is named");
    assert!(told.contains("from 1 connection to 4 connections p99 was 80.0 ms"), "{told}");
    assert!(said(0.8, 0.0, |_| 80e3).is_none(), "a busy CPU makes requests wait");
    assert!(said(0.2, 79e3, |_| 80e3).is_none(), "they waited in the client");
    assert!(said(0.2, 0.0, |_| 2e3).is_none(), "2 ms");
    assert!(said(0.2, 0.0, |load| 15e3 * load as f64).is_none(), "it grows with load");
}

#[test]
fn stalls_are_reported_except_those_of_one_request_or_of_other_work() {
    let said = |every: u32, stall_us: f64, more: fn(&mut Point)| {
        let change = move |point: &mut Point| {
            let is_stalled = point.index.is_multiple_of(every);
            set(point, names::STALL_MAX, if is_stalled { stall_us } else { 900.0 }, point.outcomes.ok);
            set(point, names::RESPONSE_P50, 200.0, point.outcomes.ok);
            more(point);
        };
        let verdict = judged(healthy(), fixture::record(), change);
        verdict.causes.into_iter().find(|cause| cause.rule == "stalls")
    };
    let cause = said(3, 150e3, |_| ()).expect("it is named");
    let because = &cause.because;
    assert!(because.contains("answered nothing for 150 ms, though 4 or more requests waited"), "{because}");
    assert_eq!(cause.certainty, Certainty::Cause);
    assert_eq!(said(3, 30e3, |_| ()).expect("it is named").certainty, Certainty::Possibility, "a short one");
    assert!(said(40, 150e3, |_| ()).is_none(), "once or twice");
    let has_slow_requests = |point: &mut Point| {
        set(point, names::SERVER_CPU_BUSY, 0.2, 100);
        set(point, names::SERVER_BUSIEST_THREAD, 0.2, 100);
        set(point, names::RESPONSE_P99, 150e3, point.outcomes.ok);
    };
    let because = said(3, 150e3, has_slow_requests).expect("it is named").because;
    assert!(because.contains("though 32 or more requests waited"), "{because}");
    assert!(said(3, 9e3, |_| ()).is_none(), "9 ms");
    assert!(said(3, 150e3, |point| set(point, names::RESPONSE_P50, 10e3, 1000)).is_none(), "less than 20 medians");
    assert!(said(3, 150e3, |point| point.connections = point.connections.min(3)).is_none(), "one request may be slow");
    assert!(said(3, 150e3, |point| set(point, names::REAP_MAX, 100e3, 1000)).is_none(), "it waited in the client");
    assert!(said(3, 150e3, |point| set(point, names::SERVER_THROTTLED, 0.2, 10)).is_none(), "it was stopped");
    let stolen =
        |point: &mut Point| point.doubts.push(DoubtKind::Steal.warning("the hypervisor took 12.0 % away", "repeat it"));
    assert!(said(3, 150e3, stolen).is_none(), "the machine stalled");
}

#[test]
fn a_server_that_closes_connections_early_is_reported_with_its_requests_per_connection() {
    let said = |each: u64, broken: u64| {
        let change = move |point: &mut Point| {
            point.outcomes.connections_used = point.connections;
            let in_warmup = point.outcomes.ok * point.warmup_ns / point.duration_ns;
            point.outcomes.connects = point.connections + (point.outcomes.ok + in_warmup) / each;
            point.outcomes.closed_early = point.outcomes.ok * broken / 100;
        };
        let verdict = judged(healthy(), fixture::record(), change);
        verdict.sentences.into_iter().find(|said| said.starts_with("The server closes each connection"))
    };
    let told = said(5, 0).expect("a sentence");
    assert!(told.contains("after about 5 requests ("), "{told}");
    assert!(said(1, 0).is_some_and(|told| told.contains("after about 1 request (")));
    assert!(said(100, 0).is_none(), "100 requests");
    assert!(said(5, 5).is_none(), "they broke");
}

#[test]
fn a_server_slower_than_the_limit_at_every_load_gets_a_hint_at_the_option() {
    let slow = Server { path: 150e-3, noise: 0.02, drift: 0.05, ..Server::default() };
    let verdict = judged(slow, fixture::record(), |_| ());
    assert!(
        verdict.headline.starts_with("No load held: it already fails at 1 connection: response time p99"),
        "{}",
        verdict.headline
    );
    assert!(verdict.sentences.iter().any(|said| said.contains("`--p99-limit`")), "{:?}", verdict.sentences);
    let verdict = judged(healthy(), fixture::record(), refuses(0, 0.96));
    assert!(!verdict.sentences.iter().any(|said| said.contains("--p99-limit")), "{:?}", verdict.sentences);
}

#[test]
fn slowing_with_each_request_is_distinguished_from_slowing_with_load() {
    let slows = |slope: f64, waits: bool| {
        move |point: &mut Point| {
            let slower = 1.0 + slope * f64::from(point.index);
            let cpu = point.value(names::SERVER_CPU).unwrap() * slower;
            let p50 = point.value(names::RESPONSE_P50).unwrap() * if waits { slower } else { 1.0 };
            set(point, names::SERVER_CPU, cpu, 1000);
            set(point, names::RESPONSE_P50, p50, 1000);
            set(point, names::SERVER_CPU_USER, cpu * 0.8, 1000);
        }
    };
    let by_time = |slope: f64| slows(slope, true);
    // On an idle CPU, the cost of a request depends on earlier work; no request waits for that.
    assert!(judged(healthy(), fixture::record(), slows(0.05, false)).causes.is_empty(), "nobody waits longer");
    let verdict = judged(healthy(), fixture::record(), by_time(0.05));
    assert_eq!(found(&verdict), ["slows-with-time"], "{:?}", verdict.sentences);
    assert_ne!(verdict.causes[0].certainty, Certainty::Possibility);
    let little = judged(healthy(), fixture::record(), by_time(0.02));
    assert_eq!(found(&little), ["slows-with-time"], "{:?}", little.sentences);
    assert_eq!(little.causes[0].certainty, Certainty::Possibility, "a machine may become slower by so much");
    assert!(judged(healthy(), fixture::record(), by_time(0.0)).causes.is_empty());
    let by_load = Server { doubles_at: 30.0, ..healthy() };
    assert!(!found(&judged(by_load, fixture::record(), |_| ())).contains(&"slows-with-time"));
    // On a busy machine, only growth that other work cannot cause counts.
    let beside = |slope: f64| {
        move |point: &mut Point| {
            by_time(slope)(point);
            let what = "the hypervisor took 12.0 % of the CPU time";
            point.doubts.push(DoubtKind::Steal.warning(what, "repeat it"));
        }
    };
    let steps = |point: &mut Point| {
        beside(0.0)(point);
        if point.repeat > 1 {
            by_time(2.0 / f64::from(point.index))(point);
        }
    };
    assert!(judged(healthy(), fixture::record(), steps).causes.is_empty(), "other work that came while it ran");
    let verdict = judged(healthy(), fixture::record(), beside(0.5));
    assert_eq!(found(&verdict), ["slows-with-time"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].certainty, Certainty::Possibility);
}

#[test]
fn memory_that_grows_with_requests_is_a_leak_and_memory_of_connections_is_not() {
    let served = Cell::new(0u64);
    let verdict = judged(healthy(), fixture::record(), |point| {
        served.set(served.get() + point.outcomes.ok);
        set(point, names::SERVER_MEMORY, 4e6 + 256.0 * served.get() as f64, 1);
    });
    assert_eq!(found(&verdict), ["leak"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("256 B each"), "{:?}", verdict.causes[0]);
    assert_eq!(verdict.causes[0].certainty, Certainty::Possibility, "a heap before its collection looks the same");
    let mut of_java = fixture::record();
    of_java.server_facts.insert("executable".into(), "/usr/lib/jvm/bin/java".into());
    let served = Cell::new(0u64);
    let of_a_heap = judged(healthy(), of_java, |point| {
        served.set(served.get() + point.outcomes.ok);
        set(point, names::SERVER_MEMORY, 4e6 + 256.0 * served.get() as f64, 1);
    });
    assert!(of_a_heap.causes.is_empty(), "a heap that is not collected yet: {:?}", of_a_heap.causes);
    let served = Cell::new(0u64);
    let of_a_file = judged(healthy(), fixture::record(), |point| {
        served.set(served.get() + point.outcomes.ok);
        set(point, names::SERVER_MEMORY, 4e6 + 256.0 * served.get() as f64, 1);
        set(point, names::SERVER_ANONYMOUS_MEMORY, 3e6, 1);
    });
    assert!(of_a_file.causes.is_empty(), "a log in shared memory: {:?}", of_a_file.causes);
    let most = Cell::new(0u64);
    let of_connections = judged(healthy(), fixture::record(), |point| {
        most.set(most.get().max(point.connections));
        set(point, names::SERVER_MEMORY, 4e6 + 1e6 * most.get() as f64, 1);
    });
    assert!(of_connections.causes.is_empty(), "{:?}", of_connections.causes);
}

#[test]
fn disturbed_points_alone_prove_no_cause() {
    let disturb = |point: &mut Point| {
        let what = "the hypervisor took 12.0 % of the CPU time (12.0 % of the server's CPUs)";
        point.doubts.push(DoubtKind::Steal.warning(what, "repeat it"));
    };
    let locks = |point: &mut Point| account::waits_for_a_lock(point, point.connections as f64);
    let all = judged(waits(), fixture::record(), |point| {
        locks(point);
        disturb(point);
    });
    assert_eq!(all.causes[0].certainty, Certainty::Possibility, "{:?}", all.causes);
    assert!(all.sentences.iter().any(|said| said.contains("not quiet enough") && said.contains("12.0 %")), "{all:?}");
    let nothing_known = judged(waits(), fixture::record(), disturb);
    assert!(!nothing_known.sentences.iter().any(|said| said.contains("it waits for")), "{nothing_known:?}");
    let some = judged(waits(), fixture::record(), |point| {
        locks(point);
        if point.repeat % 2 == 0 {
            disturb(point);
        }
    });
    assert_eq!(some.causes[0].certainty, Certainty::Cause, "{:?}", some.causes);
    let counted = judged(healthy(), fixture::record(), |point| {
        disturb(point);
        let used = (point.connections + 8).min(48);
        set(point, names::SERVER_DESCRIPTORS, used as f64 / 48.0, used);
        set(point, names::ACCEPT_QUEUE_MAX, if used == 48 { 9.0 } else { 0.0 }, 10);
    });
    assert_eq!(
        counted.causes[0].certainty,
        Certainty::Cause,
        "a full table is full on any machine: {:?}",
        counted.causes
    );
}

/// Recorded by `bench/planted-faults/run --keep`, 10 s each on a busy machine. The points have only figures that
/// rules use.
#[test]
fn planted_faults_are_named_in_recorded_runs_and_a_healthy_server_gets_no_advice() {
    let mut seen = 0;
    for name in recorded::names().into_iter().filter(|name| !name.starts_with("haproxy-")) {
        let run = RunDir::open(&recorded::run(&name).path()).expect("a recorded run");
        assert!(run.points.len() > 5 && run.reading_doubts.is_empty(), "{name}: {:?}", run.reading_doubts);
        let verdict = verdict::sentences(&run, &zones::of_run(&run));
        let wanted: &[&str] = match name.as_str() {
            "memory" => &["memory-bound"],
            "poll" => &["scalable-select"],
            "backlog" => &["backlog"],
            "descriptors" => &["descriptors"],
            "none" | "nginx" => &[],
            other => panic!("{other} is not a planted fault"),
        };
        assert_eq!(found(&verdict), wanted, "{name}: {:?}", verdict.sentences);
        seen += 1;
    }
    assert_eq!(seen, 6);
}

#[test]
fn errors_are_named_by_their_status_and_its_meaning() {
    let of_run = |record: RunRecord, statuses: &'static [(u16, u64)]| {
        let verdict = judged(healthy(), record, move |point| {
            if point.connections > 16 {
                refuses(16, 0.5)(point);
                let bad = point.outcomes.non_2xx;
                point.error_statuses = statuses.iter().map(|(status, part)| (*status, bad * part / 100)).collect();
            }
        });
        assert_eq!(found(&verdict), ["server-errors"], "{:?}", verdict.sentences);
        verdict.causes[0].clone()
    };
    let of = |statuses: &'static [(u16, u64)]| of_run(fixture::record(), statuses);
    let limited = of(&[(429, 100)]);
    assert!(limited.because.contains("(status 429: a request limit refuses them)"), "{limited:?}");
    let dead = of(&[(500, 20), (502, 80)]);
    assert!(dead.because.contains("(80 % of these status 502: a backend was down"), "{dead:?}");
    assert!(dead.remedy.contains("`ss -ltn`"), "{dead:?}");
    let own = of(&[(500, 100)]);
    assert!(own.because.contains("(status 500), none at the lowest load"), "{own:?}");
    // The command sends the same requests, as they were typed.
    let command = "straingauge load http://127.0.0.1:8080/1k.bin --connections 32 -- nginx -c nginx.conf";
    assert_eq!(own.commands, [command]);
    let mut record = fixture::record();
    let RunKind::Find(find) = &mut record.scenario.kind else { panic!("a search") };
    find.base.load.protocol =
        serde_json::from_value(serde_json::json!({"name": "grpc", "method": "h.G/Say", "streams": 1})).unwrap();
    record.scenario.repeat_command =
        "straingauge find --json -c 4 http://127.0.0.1:8080 --budget=9s --grpc 'h.G/Say@a \
                                      b.pb' --max-connections 64 --prove --cold 7 -- nginx --json"
            .into();
    let full = of_run(record.clone(), &[(508, 100)]);
    assert!(full.because.contains("(RESOURCE_EXHAUSTED: a limit on calls"), "{full:?}");
    let words = "--grpc 'h.G/Say@a b.pb' --cold 7 --connections 32 -- nginx -c nginx.conf";
    assert_eq!(full.commands, [format!("straingauge load http://127.0.0.1:8080 {words}")]);
    record.scenario.repeat_command = "straingauge find --scenario a.toml".into();
    let command = "straingauge load http://127.0.0.1:8080/1k.bin --connections 32 -- nginx -c nginx.conf";
    assert_eq!(of_run(record, &[(508, 100)]).commands, [command], "the options are in a file");
}

/// The verdict on points together with the server's output.
fn judged_with_log(points: &[Point], log: &str) -> Verdict {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), points);
    std::fs::write(run.path.join(record::run::SERVER_LOG), log).unwrap();
    verdict::sentences(&run, &zones::of_run(&run))
}

#[test]
fn a_line_of_the_servers_log_is_quoted_as_a_cause_or_with_the_cause_that_it_supports() {
    let points = |change: &dyn Fn(&mut Point)| {
        let mut bench = Bench::new(healthy(), 5);
        (0..4).for_each(|repeat| [1, 4, 16, 64].iter().for_each(|load| bench.closed(*load, repeat, 1_000_000_000)));
        bench.points.iter_mut().for_each(change);
        bench.points
    };
    let closes = points(&|point: &mut Point| {
        if point.connections > 16 {
            point.outcomes.closed_early = point.outcomes.ok / 2;
            point.outcomes.ok -= point.outcomes.closed_early;
        }
    });
    let log = "started\n[alert] 512 worker_connections are not enough \u{1b}[31m\nbye\n";
    let verdict = judged_with_log(&closes, log);
    assert_eq!(found(&verdict), ["server-log"], "{:?}", verdict.sentences);
    let because = &verdict.causes[0].because;
    assert!(because.contains("\"[alert] 512 worker_connections are not enough ?[31m\" (1 of its last"), "{because}");
    assert!(because.ends_with("Requests fail from 64 connections on."), "{because}");
    assert_eq!(verdict.causes[0].certainty, Certainty::Cause);
    let silent = judged_with_log(&closes, "GET / 200 128\n");
    assert_eq!(found(&silent), ["connection-limit"], "no line that says anything: {:?}", silent.sentences);
    assert_eq!(silent.causes[0].certainty, Certainty::Possibility);
    assert!(silent.causes[0].because.starts_with("From 64 connections on it closed connections"), "{silent:?}");
    let few = points(&|point: &mut Point| {
        if point.connections > 16 {
            point.outcomes.reset = point.outcomes.ok / 200;
        }
    });
    assert!(judged_with_log(&few, "").causes.is_empty(), "that may be a few while all workers are busy");
    let whole = judged_with_log(&points(&|_: &mut Point| ()), "fatal error: terminated");
    assert_eq!(whole.causes[0].certainty, Certainty::Possibility, "no request failed");
    let refused = judged_with_log(&points(&refuses(16, 0.9)), "a\njava.lang.OutOfMemoryError: heap\n");
    assert_eq!(found(&refused), ["server-errors"], "{:?}", refused.sentences);
    let because = &refused.causes[0].because;
    assert!(because.contains("The server printed \"java.lang.OutOfMemoryError: heap\""), "{because}");
    let no_port = judged_with_log(&points(&refuses(16, 0.9)), "connect: Cannot assign requested address\n");
    assert!(no_port.causes[0].remedy.contains("ip_local_port_range"), "{:?}", no_port.causes);
    // Other words of a failure explain errors if they are repeated, and are no cause by themselves.
    let often = "W7 connection refused by 10.0.0.3\n".repeat(5);
    let other = judged_with_log(&points(&refuses(16, 0.9)), &often);
    assert!(other.causes[0].because.contains("\"W7 connection refused by 10.0.0.3\" (5 of its"), "{other:?}");
    let once = judged_with_log(&points(&refuses(16, 0.9)), "W7 connection refused by 10.0.0.3\n");
    assert!(!once.causes[0].because.contains("printed"), "{once:?}");
    assert!(judged_with_log(&points(&|_: &mut Point| ()), &often).causes.is_empty());
}
