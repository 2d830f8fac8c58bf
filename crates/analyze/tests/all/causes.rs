//! Causes from the account of threads and from counts of the kernel, each compared with a server without the cause.

use crate::account::{group, keep};
use crate::fixture;
use crate::rules::{found, healthy, judged, judged_points, set, waits};
use crate::server::{Bench, Server};
use record::account::{BackendUse, CLOSED_WINDOW, ENDED, ThreadGroup, WaitKind};
use record::point::FunctionCost;
use record::scenario::RunKind;
use record::{DoubtKind, Figure, Origin, Point, names};
use verdict::{Certainty, Verdict};

fn of_waiting(change: impl Fn(&mut Point)) -> Verdict {
    judged(waits(), fixture::record(), change)
}

fn because(verdict: &Verdict) -> String {
    verdict.causes.first().map_or(String::new(), |cause| cause.because.clone())
}

#[test]
fn bursts_at_a_cpu_limit_are_distinguished_from_an_exhausted_limit() {
    let limited = |used: f64, stopped: f64| {
        of_waiting(move |point| {
            set(point, names::SERVER_QUOTA, 0.5, 1);
            set(point, names::SERVER_QUOTA_USED, used, 2);
            set(point, names::SERVER_THROTTLED, stopped, 10);
        })
    };
    let verdict = limited(0.35, 0.5);
    assert_eq!(found(&verdict), ["cpu-bursts"], "{:?}", verdict.sentences);
    assert!(because(&verdict).contains("used 35 % of its 0.50 CPUs"), "{}", because(&verdict));
    assert_eq!(found(&limited(0.98, 0.9)), ["cpu-quota"]);
    assert!(limited(0.35, 0.05).causes.is_empty(), "one stop now and then");
}

#[test]
fn processes_started_for_each_request_are_compared_with_the_throughput() {
    let starts = |each: f64, beside: f64| {
        judged(healthy(), fixture::record(), move |point| {
            let rate = point.value(names::THROUGHPUT).unwrap();
            set(point, names::MACHINE_STARTED, each * rate + beside, 1000);
        })
    };
    let verdict = starts(1.0, 300.0);
    assert_eq!(found(&verdict), ["forks"], "{:?}", verdict.sentences);
    assert!(because(&verdict).starts_with("Each request starts 1.0 processes or threads"), "{}", because(&verdict));
    assert!(starts(0.0, 5000.0).causes.is_empty(), "another program starts many");
    // The server is full from the first load on, so there is no line; the account shows which program the processes
    // belong to.
    let at_one_rate = |program: &'static str| {
        judged(healthy(), fixture::record(), move |point| {
            set(point, names::THROUGHPUT, 6000.0, 6000);
            set(point, names::MACHINE_STARTED, 6300.0, 1000);
            let serving = group("app", 0.5, 0.0, &[(WaitKind::Child, "wait4", "", 0.5)]);
            keep(point, vec![serving, ThreadGroup { program: program.into(), ..group("app", 0.2, 0.0, &[]) }], vec![]);
        })
    };
    assert_eq!(found(&at_one_rate(ENDED)), ["forks"]);
    assert!(!found(&at_one_rate("helper")).contains(&"forks"), "none of the server's processes ended");
    assert!(starts(0.01, 0.0).causes.is_empty(), "a worker in a hundred requests");
}

#[test]
fn a_program_function_that_fills_a_cpu_is_named_with_an_experiment() {
    let filled_by = |module: &str, share: f64| {
        let mut record = fixture::record();
        record.server_facts.insert("executable".into(), "/usr/sbin/nginx".into());
        let verdict = judged(healthy(), record, |point| {
            let us_per_request = share * point.value(names::SERVER_CPU).unwrap_or(0.0);
            let (function, module) = ("compute".to_string(), Some(module.to_string()));
            point.functions = vec![FunctionCost { function, module, layer: None, us_per_request, samples: 400 }];
        });
        assert!(verdict.causes.is_empty(), "{:?}", verdict.sentences);
        (verdict.saturated, verdict.answer.expect("a sweep").settings.pop())
    };
    let is_experiment = |setting: &Option<String>| setting.as_ref().is_some_and(|one| one.contains("--axis slow-down"));
    let (because, setting) = filled_by("nginx", 0.7);
    assert!(because.is_some_and(|because| because.starts_with("Of its CPU time 70 % was in compute")));
    assert!(is_experiment(&setting), "{setting:?}");
    let experiment = setting.expect("just checked");
    assert!(experiment.contains("--places function=compute --connections "), "{experiment}");
    assert!(experiment.contains(" -- nginx -c nginx.conf"), "{experiment}");
    let (because, setting) = filled_by("libc.so.6", 0.7);
    assert!(because.is_some() && !is_experiment(&setting), "not one of the program: {setting:?}");
    assert_eq!(filled_by("nginx", 0.1).0, None, "no function takes much");
    let in_calls = |share: f64| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            let us = point.value(names::SERVER_CPU).unwrap_or(0.0);
            set(point, names::LAYER_USER, (1.0 - share) * us, 5);
            set(point, names::LAYER_SYSTEM_CALL, share * us, 95);
        });
        verdict.saturated
    };
    let because = in_calls(0.94);
    assert!(because.is_some_and(|because| because.starts_with("Of its CPU time 94 % was in system calls")));
    assert_eq!(in_calls(0.4), None);
}

#[test]
fn a_limit_that_a_lone_request_does_not_keep_gets_a_command_with_another() {
    let of = |path: f64| judged(Server { path, ..healthy() }, fixture::record(), |_| {}).answer.expect("a sweep");
    let slow = of(0.15);
    let [setting] = &slow.settings[..] else { panic!("{slow:?}") };
    assert!(setting.starts_with("a request took 147 ms (p50) at the lowest load, with a limit of 100 ms"), "{setting}");
    assert!(setting.contains("straingauge find http://") && setting.contains("--p99-limit 500ms"), "{setting}");
    assert!(of(0.001).settings.iter().all(|setting| !setting.contains("--p99-limit")));
}

#[test]
fn a_server_pinned_to_few_cpus_is_distinguished_from_one_that_was_given_few() {
    let of = |given: &[usize], cpus: f64| {
        let mut record = fixture::record();
        record.machine.cpus = 4;
        let RunKind::Find(find) = &mut record.scenario.kind else { panic!("a find") };
        find.base.server.as_mut().unwrap().cpus = given.to_vec();
        record.server_facts.insert("allowed_cpus".into(), if cpus == 1.0 { "1" } else { "0-3" }.into());
        judged(healthy(), record, move |point| {
            set(point, names::SERVER_CPUS, if given.is_empty() { cpus } else { given.len() as f64 }, 1);
            set(point, names::SERVER_CPUS_USED, 0.97, 10);
            set(point, names::MACHINE_IDLE, 0.5, 10);
        })
    };
    let named = |verdict: &Verdict| found(verdict).contains(&"affinity");
    let kept = of(&[], 1.0);
    assert!(named(&kept), "{:?}", kept.sentences);
    assert!(because(&kept).contains("on only 1 of 4 CPUs of the machine"), "{}", because(&kept));
    assert!(named(&of(&[0, 1, 2, 3], 1.0)), "it keeps itself to fewer than it was given");
    assert!(!named(&of(&[1], 1.0)), "it was given one, and the client has the others");
}

#[test]
fn background_work_is_distinguished_from_work_that_grows_with_requests() {
    let of = |name: &'static str, server: Server, (at_rest, with_load, per_request): (f64, f64, f64)| {
        judged(server, fixture::record(), move |point| {
            let rate = point.value(names::THROUGHPUT).unwrap();
            let used = 8e-6 * rate;
            let more = with_load * used;
            let serving = group("app", used, 0.0, &[(WaitKind::Events, "epoll_wait", "", 1.0 - used)]);
            let idle = (1.0 - at_rest - more).max(0.0);
            let mut other = group(name, at_rest + more, 0.0, &[(WaitKind::Work, "futex", "", idle)]);
            other.waits[0].times += (per_request * rate) as u64;
            if name == "pool" && point.connections > 1 {
                other.waits[0].times = 1000;
            }
            set(point, names::SERVER_CPUS_USED, used + at_rest + more, 10);
            keep(point, vec![serving, other], Vec::new());
        })
    };
    let works = |at_rest: f64, with_load: f64| of("compactor", healthy(), (at_rest, with_load, 0.0));
    let verdict = works(0.3, 0.0);
    assert_eq!(found(&verdict), ["background"], "{:?}", verdict.sentences);
    let fast_alone = || Server { path: 20e-6, demand: 20e-6, ..healthy() };
    let verdict = of("compactor", fast_alone(), (0.3, 0.0, 0.0));
    assert_eq!(found(&verdict), ["background"], "throughput doubles only: {:?}", verdict.sentences);
    assert!(of("compactor", fast_alone(), (0.1, 1.5, 0.0)).causes.is_empty(), "it grows, but less than throughput");
    assert_eq!(found(&of("G1 Conc#0", healthy(), (0.3, 0.0, 0.0))), ["garbage-collection"]);
    assert!(
        of("compactor", healthy(), (0.3, 0.0, 1.0)).causes.is_empty(),
        "each request wakes it, and a compiler makes requests cheaper"
    );
    assert!(
        because(&verdict).contains("the threads of app: compactor used 0.30 to 0.30 CPUs"),
        "{}",
        because(&verdict)
    );
    assert!(works(0.0, 0.3).causes.is_empty(), "a helper of the requests");
    assert!(works(0.02, 0.0).causes.is_empty(), "too little to matter");
}

#[test]
fn slow_clients_are_distinguished_from_a_slow_path_and_a_full_client() {
    let sends = |to: &'static str, client: f64| {
        of_waiting(move |point| {
            let busy = (point.connections as f64).min(8.0) - 0.1;
            let waits = [(WaitKind::Send, "sendto", to, busy), (WaitKind::Work, "futex", "0x8", 8.0 - busy)];
            keep(point, vec![group("app", 0.05, 0.0, &waits)], Vec::new());
            set(point, names::CLIENT_UTILISATION, client, 10);
        })
    };
    let verdict = sends(CLOSED_WINDOW, 0.2);
    assert_eq!(found(&verdict), ["slow-readers"], "{:?}", verdict.sentences);
    let said = because(&verdict);
    assert!(said.contains("7.9 of 8 threads of app were blocked in sendto to a client that does not read"), "{said}");
    assert_eq!(found(&sends("", 0.2)), ["worker-pool"], "the path, or a small send buffer");
    assert!(!found(&sends(CLOSED_WINDOW, 0.99)).contains(&"slow-readers"), "the load generator reads slowly");
}

#[test]
fn a_thread_with_a_timer_is_not_a_worker_pool() {
    let verdict = of_waiting(|point| {
        let busy = (point.connections as f64).min(2.0) - 0.1;
        let worker = [(WaitKind::Other, "ioctl", "", busy), (WaitKind::Work, "futex", "", 2.0 - busy)];
        let timer = group("timer", 0.02, 0.0, &[(WaitKind::Sleep, "clock_nanosleep", "", 2.98)]);
        keep(point, vec![timer, group("worker", 0.05, 0.0, &worker)], Vec::new());
    });
    assert_eq!(found(&verdict), ["worker-pool"], "{:?}", verdict.sentences);
    assert!(because(&verdict).contains("2 threads of app: worker had no idle time"), "{}", because(&verdict));
    // A thread whose timer ended each of its few waits in the windows under strain, and in no other.
    let verdict = of_waiting(|point| {
        let kind = if point.connections < 16 { WaitKind::Work } else { WaitKind::Sleep };
        let mut ticks = group("ticks", 0.01, 0.0, &[(kind, "futex", "with a timeout", 0.99)]);
        ticks.waits[0].times = 4;
        keep(point, vec![ticks], Vec::new());
    });
    assert!(!found(&verdict).contains(&"worker-pool"), "{:?}", verdict.causes);
    assert!(!verdict.checked.iter().any(|one| one.stage.contains("ticks")), "{:?}", verdict.checked);
    // Threads of a large pool look for work every few milliseconds, also at the lowest load.
    let verdict = of_waiting(|point| {
        let waits = [(WaitKind::Sleep, "futex", "with a timeout", 39.0), (WaitKind::Work, "futex", "0x8", 0.5)];
        keep(point, vec![group("app", 0.1, 0.0, &waits)], Vec::new());
    });
    assert!(!found(&verdict).contains(&"worker-pool"), "{:?}", verdict.causes);
}

#[test]
fn an_expensive_garbage_collector_is_named_by_its_threads() {
    let collects = |share: f64| {
        judged(healthy(), fixture::record(), move |point| {
            let serving = group("worker", 0.9 - share, 0.0, &[(WaitKind::Work, "futex", "", 0.1)]);
            keep(
                point,
                vec![serving, group("GC Thread", share, 0.0, &[(WaitKind::Work, "futex", "", 0.2)])],
                Vec::new(),
            );
        })
    };
    let verdict = collects(0.4);
    assert_eq!(found(&verdict), ["garbage-collection"], "{:?}", verdict.sentences);
    assert!(because(&verdict).contains("used 0.40 of 0.90 CPUs (44 %)"), "{}", because(&verdict));
    assert!(collects(0.05).causes.is_empty());
    let go = judged(healthy(), fixture::record(), |point| {
        let share = if point.connections < 16 { 0.02 } else { 0.4 };
        set(point, names::SERVER_CPU, 12.0, 1000);
        point.functions = vec![sampled("runtime.scanobject", share, 40), sampled("main.serve", 0.5, 60)];
    });
    assert_eq!(found(&go), ["garbage-collection"], "{:?}", go.sentences);
    assert!(because(&go).contains("under strain 40 % of it was in the collector's functions"), "{}", because(&go));
}

/// A function's share of 12 us of CPU time.
fn sampled(function: &str, share: f64, samples: u64) -> FunctionCost {
    let (function, us_per_request) = (function.into(), share * 12.0);
    FunctionCost { function, module: None, layer: None, us_per_request, samples }
}

#[test]
fn threads_that_wait_for_pages_are_named_with_the_number_of_read_pages() {
    let waits_for_pages = |faults: f64| {
        of_waiting(move |point| {
            let load = point.connections as f64;
            let blocked = load.min(8.0) - 0.1;
            let idle = 8.0 - blocked - 0.1;
            let blocks = [(WaitKind::Memory, "", "", blocked), (WaitKind::Work, "futex", "0x8", idle)];
            keep(point, vec![group("app", 0.1, 0.0, &blocks)], Vec::new());
            set(point, names::SERVER_MAJOR_FAULTS, faults, 500);
        })
    };
    let verdict = waits_for_pages(9000.0);
    assert_eq!(found(&verdict), ["paging"], "{:?}", verdict.sentences);
    assert!(because(&verdict).contains("pages per request were read from disk (9000/s)"), "{}", because(&verdict));
    let none_read = waits_for_pages(0.0);
    assert_eq!(none_read.causes[0].certainty, Certainty::Possibility, "a mapping that another thread changes");
}

#[test]
fn dropped_packets_are_named_with_the_load_from_which_they_occur() {
    let drops = |name: &'static str, from: u64| {
        judged(healthy(), fixture::record(), move |point| {
            set(point, name, if point.connections >= from { 40.0 } else { 0.0 }, 10);
        })
    };
    let queue = drops(names::NET_BACKLOG_DROPS, 32);
    assert!(because(&queue).starts_with("A CPU's queue of received packets is full from 32 connections on"));
    assert!(drops(names::NET_BACKLOG_DROPS, 1000).causes.is_empty());
    let full = drops(names::TCP_LISTEN_DROPS, 32);
    assert!(because(&full).starts_with("The listener drops SYNs from 32 connections on (40/s)"), "{}", because(&full));
}

#[test]
fn a_full_connection_table_is_distinguished_from_one_that_drops_packets_with_room() {
    let tracks = |drops: f64, used: f64| {
        judged(healthy(), fixture::record(), move |point| {
            set(point, names::NET_CONNTRACK_DROPS, if point.connections >= 32 { drops } else { 0.0 }, 10);
            set(point, names::NET_CONNTRACK_USED, used, 1000);
        })
    };
    let verdict = tracks(40.0, 1.0);
    assert_eq!(found(&verdict), ["conntrack"], "{:?}", verdict.sentences);
    let said = because(&verdict);
    assert!(said.contains("is full from 32 connections on: 40/s packets dropped, 100 % of its entries"), "{said}");
    assert!(verdict.checked.iter().any(|one| one.stage == "the table of tracked connections" && one.is_full));
    let opening = judged(healthy(), fixture::record(), |point| {
        let is_full = point.connections >= 32;
        set(point, names::NET_CONNTRACK_DROPS, 0.0, 0);
        set(point, names::NET_CONNTRACK_DROPS_BEFORE, if is_full { 3.0 } else { 0.0 }, 3);
        set(point, names::NET_CONNTRACK_USED, if is_full { 1.0 } else { 0.3 }, 1000);
        point.outcomes.connections_silent = u64::from(is_full);
    });
    assert_eq!(found(&opening), ["conntrack"], "{:?}", opening.sentences);
    assert!(because(&opening).contains("on: 3 packets dropped while connections were opened"), "{:?}", opening.causes);
    let with_room = tracks(40.0, 0.1);
    assert_eq!(with_room.causes[0].certainty, Certainty::Possibility, "{:?}", with_room.causes);
    assert!(tracks(0.0, 0.97).causes.is_empty(), "nearly full, and no packet was dropped");
}

#[test]
fn interrupted_receive_processing_is_a_possible_cause() {
    let cut_short = |at_rest: f64, under_strain: f64| {
        judged(healthy(), fixture::record(), move |point| {
            set(point, names::NET_SQUEEZES, if point.connections >= 16 { under_strain } else { at_rest }, 10);
        })
    };
    let verdict = cut_short(2.0, 900.0);
    assert_eq!(found(&verdict), ["receive-budget"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].certainty, Certainty::Possibility);
    assert!(
        because(&verdict).contains("ended with packets left 900/s beyond the yield point (2/s at"),
        "{}",
        because(&verdict)
    );
    assert!(cut_short(400.0, 900.0).causes.is_empty(), "other traffic of the machine does that");
    assert!(cut_short(0.0, 20.0).causes.is_empty(), "now and then");
}

#[test]
fn a_memory_limit_is_distinguished_from_rereading_pages() {
    let mut limited = fixture::record();
    for (name, value) in [("memory_limit", "25165824"), ("memory_limit_file", "/sys/fs/cgroup/app/memory.high")] {
        limited.server_facts.insert(name.into(), value.into());
    }
    let of = |stalled: f64, hits: f64, faults: f64| {
        judged(healthy(), limited.clone(), move |point| {
            set(point, names::SERVER_MEMORY_STALLED, stalled, 1);
            set(point, names::SERVER_MEMORY_LIMIT_HITS, hits, 100);
            set(point, names::SERVER_MAJOR_FAULTS, faults, 100);
        })
    };
    let verdict = of(0.4, 210.0, 3.0);
    assert_eq!(found(&verdict), ["memory-limit"], "{:?}", verdict.sentences);
    let cause = &verdict.causes[0];
    assert!(cause.because.contains("of 24.0 MiB (/sys/fs/cgroup/app/memory.high) 210 times a second"), "{cause:?}");
    assert_eq!(cause.commands, ["echo 50331648 > /sys/fs/cgroup/app/memory.high"]);
    assert!(of(0.4, 0.0, 3.0).causes.is_empty(), "the machine's memory is short, not the server's limit");
    assert!(of(0.05, 210.0, 3.0).causes.is_empty(), "a cache of files at its limit costs little");
    assert!(of(0.4, 210.0, 90_000.0).causes.is_empty(), "it waits for its disk");
    let killed = judged(healthy(), limited.clone(), |point| {
        set(point, names::SERVER_KILLED, if point.connections == 16 { 1.0 } else { 0.0 }, 1);
    });
    assert_eq!(found(&killed), ["memory-limit"], "{:?}", killed.sentences);
    assert!(because(&killed).contains("(the first with 16 connections)"), "{}", because(&killed));
}

#[test]
fn lost_segments_are_a_share_of_the_sent_ones() {
    let loses = |share: f64| {
        judged(healthy(), fixture::record(), move |point| {
            set(point, names::TCP_OUT, 20_000.0, 20_000);
            let share = if point.connections < 16 { 0.0 } else { share };
            set(point, names::TCP_RETRANSMITS, share * 20_000.0, (share * 20_000.0) as u64);
        })
    };
    let verdict = loses(0.03);
    assert_eq!(found(&verdict), ["loss"], "{:?}", verdict.sentences);
    assert!(because(&verdict).contains("from 16 connections on 3 % of the server's segments"), "{}", because(&verdict));
    assert!(because(&verdict).contains("(600/s, 0 % at the lowest load)"), "{}", because(&verdict));
    assert!(loses(0.002).causes.is_empty());
    let mut bench = Bench::new(healthy(), 5);
    [1, 4, 16, 64].iter().for_each(|load| bench.closed(*load, 0, 1_000_000_000));
    for point in &mut bench.points {
        set(point, names::TCP_OUT, 20_000.0, 20_000);
        let again = if point.connections == 64 { 600.0 } else { 0.0 };
        set(point, names::TCP_RETRANSMITS, again, again as u64);
    }
    assert!(judged_points(fixture::record(), &bench.points).causes.is_empty(), "once: the machine stood still");
    let starved = judged(healthy(), fixture::record(), |point| {
        point.doubts.push(DoubtKind::Steal.warning("the hypervisor took 12.0 % away", "repeat it"));
        set(point, names::TCP_OUT, 20_000.0, 20_000);
        set(point, names::TCP_RETRANSMITS, 600.0, 600);
    });
    assert_eq!(starved.causes[0].certainty, Certainty::Possibility, "acknowledgements were late: {:?}", starved.causes);
}

#[test]
fn tls_handshakes_are_named_if_requests_pay_for_them_and_a_cpu_is_full() {
    let shakes = |each: f64, resumed: f64| {
        judged(healthy(), fixture::record(), move |point| {
            let rate = point.value(names::THROUGHPUT).unwrap();
            set(point, names::TLS_HANDSHAKES, each * rate, 1000);
            set(point, names::TLS_RESUMED, resumed, 1000);
            set(point, names::TLS_HANDSHAKE_P50, 900.0, 1000);
        })
    };
    let verdict = shakes(1.0, 0.0);
    assert_eq!(found(&verdict), ["tls-handshakes"], "{:?}", verdict.sentences);
    let said = because(&verdict);
    assert!(said.contains("1.0 per request, 0 % of them resumed; one takes 900 us"), "{said}");
    assert!(shakes(1.0, 0.9).causes.is_empty(), "most are resumed");
    assert!(shakes(0.01, 0.0).causes.is_empty(), "connections stay");
}

#[test]
fn memory_that_each_request_takes_anew_is_named_with_its_page_faults() {
    let faults = |share: f64, each: f64| {
        judged(healthy(), fixture::record(), move |point| {
            let (rate, cpu_us) = (point.value(names::THROUGHPUT).unwrap(), point.value(names::SERVER_CPU).unwrap());
            set(point, names::LAYER_MEMORY, share * cpu_us, (share * 100.0) as u64);
            set(point, names::SERVER_MINOR_FAULTS, each * rate, 1000);
        })
    };
    let verdict = faults(0.8, 257.0);
    assert_eq!(found(&verdict), ["page-faults"], "{:?}", verdict.sentences);
    let said = because(&verdict);
    assert!(said.contains("80 % was in the kernel's memory management") && said.contains("257 new pages"), "{said}");
    assert!(faults(0.8, 0.1).causes.is_empty(), "its own memory stays");
    assert!(faults(0.2, 20.0).causes.is_empty(), "most time is spent elsewhere");
}

#[test]
fn connections_that_no_process_accepts_are_named_with_the_number_of_listening_sockets() {
    let queued = |at_lowest: f64| {
        of_waiting(move |point| {
            let silent = if point.connections >= 4 { 1.0 } else { 0.0 };
            set(point, names::SERVER_CPU_BUSY, 0.4, 10);
            set(point, names::SILENT, silent, 1);
            set(point, names::ACCEPT_QUEUE_MAX, at_lowest + 4.0 * silent, 10);
            point.connection_states.insert("listen".into(), Figure::new(4.0, "sockets", 1, Origin::Counted));
        })
    };
    let verdict = queued(2.0);
    assert_eq!(found(&verdict).first(), Some(&"not-accepted"), "{:?}", verdict.sentences);
    assert!(because(&verdict).contains("The port has 4 listening sockets"), "{}", because(&verdict));
    assert!(!found(&queued(0.0)).contains(&"not-accepted"), "it accepts at low loads");
}

#[test]
fn a_slow_name_server_is_not_suggested_for_measuring() {
    let verdict = of_waiting(|point| {
        let (load, rate) = (point.connections as f64, point.value(names::THROUGHPUT).unwrap_or(1.0));
        let busy = load.min(8.0) - 0.1;
        let asked = BackendUse {
            address: "udp:10.0.0.2:53".into(),
            is_own: false,
            connections: 8,
            busy_ns: (busy * 1e9) as u64,
            calls: rate as u64,
            longest_ns: 9_000_000,
        };
        let blocks = [(WaitKind::Backend, "recvfrom", "10.0.0.2:53", busy), (WaitKind::Work, "futex", "", 8.0 - busy)];
        keep(point, vec![group("app", 0.1, 0.0, &blocks)], vec![asked]);
    });
    let cause = &verdict.causes[0];
    assert!(cause.because.contains("udp:10.0.0.2:53"), "{cause:?}");
    assert!(!cause.remedy.contains("find http"), "{cause:?}");
}

#[test]
fn a_full_cpu_names_the_function_that_fills_it() {
    let profiled_as = |function: &'static str, program: &str, share: f64, samples: u64| {
        let mut record = fixture::record();
        record.server_facts.insert("executable".into(), program.into());
        judged(healthy(), record, move |point| {
            set(point, names::SERVER_CPU, 12.0, 1000);
            let share = if point.connections == 1 { 0.05 } else { share };
            point.functions = vec![sampled(function, share, samples), sampled("others", 0.1, samples / 4)];
        })
        .sentences
        .join(" ")
    };
    let profiled = |share: f64, samples: u64| profiled_as("compress", "/app", share, samples);
    let said = profiled(0.6, 100);
    assert!(said.contains("Of its CPU time 60 % was in compress, without its callees (n ="), "{said}");
    assert!(said.contains("samples, 5 % at the lowest load)"), "{said}");
    assert!(!profiled(0.6, 0).contains("in compress"), "too few samples");
    assert!(!profiled(0.15, 400).contains("in compress"), "none takes much");
    let compiled = profiled_as(record::profile::COMPILED, "/usr/lib/erlang/erts/bin/beam.smp", 0.6, 100);
    assert!(compiled.contains("in [compiled at run time], without its callees"), "{compiled}");
    assert!(compiled.contains("lowest load). Names: `erl +JPperf true`."), "{compiled}");
}

#[test]
fn a_full_cpu_names_the_innermost_function_or_call_that_takes_most_with_its_callees() {
    let profiled = |shares: &[(&str, f64)]| {
        let listed: Vec<FunctionCost> = shares.iter().map(|(name, share)| sampled(name, *share, 100)).collect();
        judged(healthy(), fixture::record(), move |point| {
            set(point, names::SERVER_CPU, 12.0, 1000);
            point.functions = (0..10).map(|i| sampled(&format!("part {i}"), 0.1, 100)).collect();
            point.with_callees = listed.clone();
        })
        .sentences
        .join(" ")
    };
    let said =
        profiled(&[("quote", 0.3), ("stringify", 0.6), ("serve", 0.85), ("cut", 0.55), ("__x64_sys_writev", 0.55)]);
    assert!(said.contains("Of its CPU time 60 % was in stringify, with its callees (n ="), "{said}");
    let said = profiled(&[("parse<char>(int)", 0.6), ("a::(anonymous namespace)::Parse(char*)", 0.62), ("run", 0.7)]);
    assert!(said.contains("62 % was in a::(anonymous namespace)::Parse, with its callees"), "{said}");
    let said = profiled(&[("quote", 0.3), ("__x64_sys_openat", 0.7)]);
    assert!(said.contains("Of its CPU time 70 % was in the system call openat, with its callees"), "{said}");
    assert!(!profiled(&[("quote", 0.3)]).contains("with its callees"));
}

#[test]
fn a_futex_with_waiters_at_every_load_is_not_a_full_lock() {
    // Go's threads without known functions: one handles timers, the others are parked or work.
    let verdict = of_waiting(|point| {
        let parked = group("app", 0.5, 0.0, &[(WaitKind::Lock, "futex", "0x9a5ef8", 0.99)]);
        let busy = (point.connections as f64 / 40.0).min(1.0);
        let waits = [(WaitKind::Events, "epoll_pwait", "", 1.0 - busy), (WaitKind::Lock, "futex", "0x10", 0.1)];
        keep(point, vec![parked, group("serve", busy, 0.0, &waits)], Vec::new());
    });
    assert!(!found(&verdict).contains(&"lock"), "{:?}", verdict.causes);
    // Another thread is parked only under strain, a few times per second.
    let verdict = of_waiting(|point| {
        let parked = if point.connections < 16 { 0.1 } else { 0.98 };
        let idle = (WaitKind::Events, "epoll_pwait", "", 0.99 - parked);
        let mut waiting = group("app", 0.01, 0.0, &[(WaitKind::Lock, "futex", "0x9a5ef8", parked), idle]);
        waiting.waits[0].times = 4;
        keep(point, vec![waiting], Vec::new());
    });
    assert!(!found(&verdict).contains(&"lock"), "{:?}", verdict.causes);
}
