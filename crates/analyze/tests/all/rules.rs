//! The table of rules: each holds on a run that shows its cause, and not on the one beside it that does not.

use crate::fixture;
use crate::server::{Bench, Server};
use analyze::verdict::{self, Verdict, rules::RULES};
use analyze::zones;
use record::{Figure, Origin, Point, RunDir, RunRecord, names};

fn set(point: &mut Point, name: &str, value: f64, n: u64) {
    let unit = names::ALL.iter().find(|(known, ..)| *known == name).map(|(_, unit, _)| *unit).expect("a known figure");
    point.figures.set(name, Figure::new(value, unit, n, Origin::Sampled));
}

/// A closed loop over the server, each point changed; what the verdict says of it.
fn judged(server: Server, record: RunRecord, change: impl Fn(&mut Point)) -> Verdict {
    let mut bench = Bench::new(server, 5);
    for repeat in 0..4 {
        for load in [1, 2, 4, 8, 16, 32, 64, 128] {
            bench.closed(load, repeat, 1_000_000_000);
        }
    }
    bench.points.iter_mut().for_each(change);
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), record, &bench.points);
    verdict::sentences(&run, &zones::of_run(&run))
}

fn found(verdict: &Verdict) -> Vec<&str> {
    verdict.causes.iter().map(|cause| cause.rule.as_str()).collect()
}

/// Throughput ends at 10k/s with an idle CPU.
fn waits() -> Server {
    Server { path: 500e-6, hidden_limit: 10_000.0, noise: 0.02, drift: 0.05, ..Server::default() }
}

/// Full CPU, nothing wrong.
fn healthy() -> Server {
    Server { path: 120e-6, noise: 0.02, drift: 0.05, ..Server::default() }
}

#[test]
fn every_rule_is_told_once_and_hides_only_rules_that_exist() {
    for rule in &RULES {
        assert_eq!(RULES.iter().filter(|other| other.id == rule.id).count(), 1, "{}", rule.id);
        for hidden_by in rule.hidden_by {
            assert!(RULES.iter().any(|other| other.id == *hidden_by), "{}: {hidden_by}", rule.id);
        }
        for text in [rule.cause, rule.evidence, rule.threshold, rule.remedy, rule.source] {
            assert!(!text.is_empty(), "{}", rule.id);
        }
    }
}

#[test]
fn the_page_for_readers_has_the_table_as_it_is() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verdict.md")).expect("the page");
    for rule in &RULES {
        let row = format!(
            "| `{}` | {} | {} | {} | {} | {} |",
            rule.id, rule.cause, rule.evidence, rule.threshold, rule.remedy, rule.source
        );
        assert!(page.contains(&row), "docs/verdict.md lacks this row:\n{row}");
    }
}

#[test]
fn a_server_that_is_simply_full_gets_no_advice() {
    let verdict = judged(healthy(), fixture::record(), |_| ());
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    assert!(verdict.sentences[0].contains("saturated first"), "{:?}", verdict.sentences);
}

#[test]
fn damaged_figures_are_no_evidence() {
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

#[test]
fn a_lock_is_named_where_waiting_for_it_grows_with_load_on_idle_cpus() {
    let threads = |point: &mut Point, share: f64| {
        set(point, names::SERVER_LOCK_WAITS, share, 100);
        set(point, names::SERVER_FILE_WAITS, 0.0, 100);
        set(point, names::SERVER_THREADS, point.connections as f64 + 1.0, 1);
        set(point, names::SERVER_SWITCHES, 2.0 + share, 1000);
    };
    let grows = |point: &mut Point| threads(point, 1.0 - 1.0 / point.connections as f64);
    let verdict = judged(waits(), fixture::record(), grows);
    assert_eq!(found(&verdict), ["lock"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].commands[0].starts_with("gdb -p PID "), "{:?}", verdict.causes[0]);
    assert!(verdict.causes[0].because.contains("context switches for a request grew"), "{:?}", verdict.causes[0]);
    let idle_pool = judged(waits(), fixture::record(), |point| threads(point, 0.9));
    assert!(idle_pool.causes.is_empty(), "workers that wait for work at every load: {:?}", idle_pool.causes);
    let full = judged(healthy(), fixture::record(), grows);
    assert!(full.causes.is_empty(), "its CPUs are full: {:?}", full.causes);
}

#[test]
fn a_slow_log_is_named_with_its_file_and_hides_the_lock_before_it() {
    let mut record = fixture::record();
    record.server_facts.insert("waited_for".into(), "sync of /var/log/acc 'ess.log".into());
    let sleeps = |point: &mut Point| {
        let waiting = 1.0 - 1.0 / point.connections as f64;
        set(point, names::SERVER_THREADS, 32.0, 1);
        set(point, names::SERVER_FILE_WAITS, 1.0 / 32.0, 400);
        set(point, names::SERVER_LOCK_WAITS, waiting, 400);
        set(point, names::TCP_LISTEN_OVERFLOWS, 20.0, 20);
    };
    let verdict = judged(waits(), record, sleeps);
    assert_eq!(found(&verdict), ["slow-file"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].commands, [r"findmnt -T '/var/log/acc '\''ess.log'"]);
    assert!(verdict.causes[0].because.contains("1.0 of its 32 threads"), "{}", verdict.causes[0].because);
    let seldom = judged(waits(), fixture::record(), |point| {
        set(point, names::SERVER_THREADS, 1.0, 1);
        set(point, names::SERVER_FILE_WAITS, 0.1, 100);
    });
    assert!(seldom.causes.is_empty(), "{:?}", seldom.causes);
}

#[test]
fn a_full_table_of_descriptors_is_named_where_connections_wait_for_it() {
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
    // Who sets the limit must raise it: a higher one around a command that sets its own is of no use.
    let mut record = fixture::record();
    record.server_facts.insert("descriptor_limit".into(), "48".into());
    record.server_facts.insert("descriptor_limit_inherited".into(), "1024".into());
    let lowered = &judged(healthy(), record.clone(), full(17.0)).causes[0];
    assert!(lowered.remedy.contains("limit of 1,024 and lowered it to 48 itself"), "{}", lowered.remedy);
    assert!(lowered.commands.is_empty(), "{:?}", lowered.commands);
    let server = record.scenario.server.as_mut().expect("it was started");
    server.argv = ["sh", "-c", "ulimit -n 48; exec nginx"].map(String::from).into();
    let set = &judged(healthy(), record.clone(), full(17.0)).causes[0];
    assert_eq!(set.commands, ["sh -c 'ulimit -n 65536; exec nginx'"]);
    record.scenario.server = None;
    assert!(judged(healthy(), record, full(17.0)).causes[0].remedy.contains("in the shell that starts it"));
    assert!(judged(healthy(), fixture::record(), full(0.0)).causes.is_empty(), "nobody waits for more");
}

#[test]
fn an_accept_queue_that_overflows_is_named_with_its_limit() {
    let overflow = |rate: f64| {
        move |point: &mut Point| {
            set(point, names::TCP_LISTEN_OVERFLOWS, if point.connections >= 16 { rate } else { 0.0 }, 10);
            set(point, names::ACCEPT_QUEUE_LIMIT, 128.0, 10);
        }
    };
    let verdict = judged(healthy(), fixture::record(), overflow(12.0));
    assert_eq!(found(&verdict), ["backlog"], "{:?}", verdict.sentences);
    assert!(
        verdict.causes[0].because.contains("from 16 connections on (12/s): its limit is 128"),
        "{:?}",
        verdict.causes
    );
    assert!(verdict.causes[0].commands.is_empty(), "somaxconn is 4096 already: {:?}", verdict.causes[0].commands);
    let mut small = fixture::record();
    small.machine.sysctls.insert("net.core.somaxconn".into(), "128".into());
    let verdict = judged(healthy(), small, overflow(12.0));
    assert_eq!(verdict.causes[0].commands, ["sysctl -w net.core.somaxconn=1024"]);
    assert!(judged(healthy(), fixture::record(), overflow(0.2)).causes.is_empty(), "one in five seconds");
}

#[test]
fn one_cpu_for_interrupts_is_named_where_another_has_time() {
    let mut record = fixture::record();
    record.scenario.server.as_mut().unwrap().cpus = vec![0, 1, 2];
    let steered = |idlest: f64, softirq: f64| {
        move |point: &mut Point| {
            let busy = if point.connections >= 4 { 0.99 } else { 0.5 };
            set(point, names::SERVER_SOFTIRQ_CPU_BUSY, busy, 2);
            set(point, names::SERVER_SOFTIRQ_CPU, softirq, 60);
            set(point, names::SERVER_SOFTIRQ_CONCENTRATION, 0.97, 60);
            set(point, names::SERVER_IDLEST_CPU_BUSY, idlest, 2);
        }
    };
    let verdict = judged(healthy(), record.clone(), steered(0.1, 0.4));
    assert_eq!(found(&verdict), ["interrupts"], "{:?}", verdict.sentences);
    assert_eq!(verdict.causes[0].commands, ["echo 7 > /sys/class/net/DEVICE/queues/rx-0/rps_cpus"]);
    assert!(judged(healthy(), record.clone(), steered(0.99, 0.4)).causes.is_empty(), "no CPU is idle");
    assert!(judged(healthy(), record, steered(0.1, 0.1)).causes.is_empty(), "it is the server's own work");
}

#[test]
fn state_that_outgrew_the_cache_is_named_where_user_time_grew_with_memory() {
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
fn another_function_that_grew_is_no_matter_of_the_cache() {
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
fn a_client_without_ports_or_cpu_is_named_before_anything_of_the_server() {
    let overflow = |point: &mut Point| set(point, names::TCP_LISTEN_OVERFLOWS, 50.0, 50);
    let weak = Server { path: 500e-6, client_limit: 3000.0, noise: 0.02, ..Server::default() };
    let verdict = judged(weak, fixture::record(), overflow);
    assert_eq!(found(&verdict), ["client"], "{:?}", verdict.sentences);
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
fn time_wait_is_named_where_the_kernel_cut_it_short() {
    let overflow = |rate: f64| {
        move |point: &mut Point| {
            set(point, names::TIME_WAIT_OVERFLOWS, rate, 10);
            point.connection_states.insert("time-wait".into(), Figure::new(8192.0, "connections", 3, Origin::Sampled));
        }
    };
    let verdict = judged(healthy(), fixture::record(), overflow(300.0));
    assert_eq!(found(&verdict), ["time-wait"], "{:?}", verdict.sentences);
    assert!(verdict.causes[0].because.contains("8,192 of its port"), "{}", verdict.causes[0].because);
    assert!(judged(healthy(), fixture::record(), overflow(0.0)).causes.is_empty(), "many are no harm");
}

#[test]
fn a_full_path_is_named_where_no_cpu_is() {
    let mut record = fixture::record();
    record.scenario.path = Some(record::PathPlan { bandwidth_bits_per_sec: 100_000_000, ..Default::default() });
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
fn cpus_that_other_work_filled_are_not_the_servers_limit() {
    let crowded = |point: &mut Point| {
        set(point, names::SERVER_CPU_BUSY, 1.0, 2);
        set(point, names::SERVER_BUSIEST_THREAD, 0.3, 2);
        set(point, names::SERVER_CPUS_USED, 0.3, 2);
    };
    let verdict = judged(waits(), fixture::record(), crowded);
    assert!(verdict.sentences[0].contains("its own work took only 3"), "{:?}", verdict.sentences);
}

/// Recorded by `bench/planted-faults/run --keep`, 10 s each on a busy machine; of the points' figures those that rules read.
#[test]
fn planted_faults_are_named_in_recorded_runs_and_a_healthy_server_gets_no_advice() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/planted");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).expect("recorded runs") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let run = RunDir::open(&path).expect("a recorded run");
        assert!(run.points.len() > 5 && run.reading_doubts.is_empty(), "{name}: {:?}", run.reading_doubts);
        let verdict = verdict::sentences(&run, &zones::of_run(&run));
        let wanted: &[&str] = match name.as_str() {
            "lock" => &["lock"],
            "pipe-log" => &["slow-file"],
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
    assert_eq!(seen, 8);
}
