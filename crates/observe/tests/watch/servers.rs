//! Servers of every kind: event loops, threads, processes, proxies.

use crate::client::{close_each, keep_alive};
use crate::rig::{Server, check_states, counted, counting, free_port, settle, watch};
use observe::watch::WatchOptions;
use record::watch::{Counter, CpuTotals, Mode, ProcessCounts};
use std::process::Command;

/// Asserts that counts and bytes equal the client's, and that the charged CPU time is within the scheduler's account.
fn check(test: &str, name: &str, paths: &'static [&'static str], least_cpu_share: f64) {
    let Some(server) = Server::start(test, name) else { return };
    check_server(test, &server, paths, least_cpu_share);
}

/// Asserts that all CPU time of a single-threaded server is explained, except 1 % and 3 ms for timers and signals,
/// which are more frequent on a slow machine.
fn check_one_thread(test: &str, name: &str, paths: &'static [&'static str]) {
    let Some(server) = Server::start(test, name) else { return };
    let Some(cpu) = check_server(test, &server, paths, 0.5) else { return };
    let elsewhere_ns = cpu.charged.unwrap().elsewhere_ns as f64;
    assert!(elsewhere_ns < 0.01 * cpu.group_ns as f64 + 3e6, "CPU time is missing: {cpu:?}");
}

fn check_server(
    test: &str,
    server: &Server,
    paths: &'static [&'static str],
    least_cpu_share: f64,
) -> Option<CpuTotals> {
    let mut watcher = watch(test, counting(server.port))?;
    let (open, count) = keep_alive(server.port, 6, 500, paths);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(counted(&reading), count);
    assert_eq!(reading.count(Counter::DisplacedOpen).unwrap(), 0);
    let cpu = reading.cpu.unwrap();
    let of_requests = cpu.charged.unwrap().requests_ns as f64 / cpu.group_ns as f64;
    println!("{test}: {cpu:?}: {of_requests:.3} of the CPU time is of requests");
    assert!(of_requests > least_cpu_share, "only {of_requests:.2} of the CPU time is explained: {cpu:?}");
    assert!(of_requests < 1.02, "more CPU time is charged than the scheduler knows: {of_requests:.3} {cpu:?}");
    let by_process = reading.processes.iter().filter_map(|process| process.counted);
    assert_eq!(by_process.map(|counts| counts.requests).sum::<u64>(), count.requests, "{:?}", reading.processes);
    let by_process = reading.processes.iter().filter_map(|process| process.cpu_ns);
    assert_eq!(by_process.sum::<u64>(), cpu.group_ns, "{:?}", reading.processes);
    check_states(&mut watcher);
    drop(open);
    let mut count = count;
    count.add(close_each(server.port, 50, paths[0]));
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(counted(&reading), count, "with a connection each");
    check_states(&mut watcher);
    check_account(test, &reading.cpu.unwrap());
    reading.cpu
}

/// Asserts that the charges exceed the scheduler's account by at most 1 %.
fn check_account(test: &str, cpu: &CpuTotals) {
    let charged_ns =
        cpu.charged.unwrap().requests_ns + cpu.charged.unwrap().connect_ns + cpu.charged.unwrap().between_ns;
    println!("{test}: charged {:.4} of the scheduler's account: {cpu:?}", charged_ns as f64 / cpu.group_ns as f64);
    assert_eq!(charged_ns + cpu.charged.unwrap().elsewhere_ns, cpu.group_ns as i64);
    assert!(
        cpu.charged.unwrap().elsewhere_ns as f64 > -0.01 * cpu.group_ns as f64,
        "more is charged than there is: {cpu:?}"
    );
}

#[test]
fn lighttpd_requests_and_bytes_equal_the_clients() {
    check_one_thread("lighttpd_requests_and_bytes_equal_the_clients", "lighttpd", &["/1k.bin", "/10k.bin"]);
}

#[test]
fn apache_event_requests_and_bytes_equal_the_clients() {
    check("apache_event_requests_and_bytes_equal_the_clients", "apache", &["/1k.bin", "/100k.bin"], 0.3);
}

#[test]
fn apache_prefork_requests_and_bytes_equal_the_clients() {
    check("apache_prefork_requests_and_bytes_equal_the_clients", "apache-prefork", &["/1k.bin", "/100k.bin"], 0.3);
}

#[test]
fn each_process_of_a_prefork_server_has_its_own_work_cpu_time_and_phases() {
    let test = "each_process_of_a_prefork_server_has_its_own_work_cpu_time_and_phases";
    let Some(server) = Server::start(test, "apache-prefork") else { return };
    let options = WatchOptions { mode: Mode::Exact, splits: false, ..counting(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    // A process serves a connection to its end, so four connections at once need at least four processes.
    let (open, count) = keep_alive(server.port, 4, 100, &["/1k.bin", "/100k.bin"]);
    settle(&mut watcher);
    let reading = watcher.read();
    println!("{:#?}", reading.processes);
    let (others, listed): (Vec<_>, Vec<_>) = reading.processes.iter().partition(|process| process.pid == 0);
    let served: Vec<_> =
        listed.iter().filter_map(|process| process.counted.filter(|counts| counts.requests > 0)).collect();
    assert!(served.len() >= 4, "{} processes served four connections at once", served.len());
    assert!(listed.iter().all(|process| process.name.starts_with("apache2") && process.cpu_ns.is_some()));
    for counts in &served {
        // The last request of each connection has not been ended by an event of its process yet.
        assert!(counts.timed + 1 >= counts.requests && counts.timed <= counts.requests, "{counts:?}");
        let sum: f64 = counts.phase_cpu_ns.iter().map(|mean| mean.expect("timed")).sum();
        assert!(sum > 0.0 && counts.elapsed_ns.iter().all(|mean| *mean >= Some(0.0)), "{counts:?}");
    }
    let sum = |of: fn(&ProcessCounts) -> u64| -> u64 {
        let counted = reading.processes.iter().filter_map(|process| process.counted.as_ref());
        counted.map(of).sum()
    };
    assert_eq!((sum(|counts| counts.requests), sum(|counts| counts.bytes_out)), (count.requests, count.bytes_received));
    assert_eq!(
        reading.processes.iter().filter_map(|process| process.cpu_ns).sum::<u64>(),
        reading.cpu.unwrap().group_ns
    );
    assert!(others.len() <= 1, "{others:?}");
    drop(open);
}

#[test]
fn io_uring_requests_and_bytes_equal_the_clients() {
    let test = "io_uring_requests_and_bytes_equal_the_clients";
    check_one_thread(test, "uring", &["/1k.bin", "/100k.bin", "/10k.bin"]);
}

#[test]
fn io_uring_with_a_kernel_thread_requests_and_bytes_equal_the_clients() {
    let test = "io_uring_with_a_kernel_thread_requests_and_bytes_equal_the_clients";
    // The kernel's thread polls while it waits, so little of its time belongs to requests.
    check(test, "uring-sqpoll", &["/1k.bin", "/100k.bin"], 0.0);
}

#[test]
fn python_threads_requests_and_bytes_equal_the_clients() {
    check("python_threads_requests_and_bytes_equal_the_clients", "python", &["/1k.bin"], 0.3);
}

#[test]
fn haproxy_requests_and_bytes_equal_the_clients() {
    check_one_thread("haproxy_requests_and_bytes_equal_the_clients", "haproxy", &["/1k.bin", "/128.bin"]);
}

#[test]
fn node_requests_and_bytes_equal_the_clients() {
    let test = "node_requests_and_bytes_equal_the_clients";
    if Command::new("node").arg("--version").output().is_err() {
        eprintln!("SKIPPED {test}: node is not installed");
        return;
    }
    let port = free_port();
    let script = format!(
        "require('http').createServer((q, r) => {{ const b = 'x'.repeat(1000); \
         r.writeHead(200, {{'Content-Length': b.length}}); r.end(b); }}).listen({port}, '127.0.0.1')"
    );
    let Some(server) = Server::run(test, "node", port, Command::new("node").args(["-e", &script])) else { return };
    check_server(test, &server, &["/"], 0.2);
}

#[test]
fn a_response_of_many_sends_is_one_request() {
    let test = "a_response_of_many_sends_is_one_request";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options = WatchOptions { mode: Mode::Exact, ..WatchOptions::of_port(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let (open, count) = keep_alive(server.port, 2, 100, &["/100k.bin"]);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(counted(&reading), count);
    let class = reading.classes.iter().position(|class| class.requests > 0).expect("a class with requests");
    let phases = &reading.phases[class];
    println!("{phases:?}");
    // The last request of each connection ends with the connection.
    assert_eq!(phases.requests, count.requests - 2);
    assert!(phases.sends.expect("sends were seen").mean >= 2.0, "head and body are sent apart");
    drop(open);
}

#[test]
fn phases_of_every_request_add_up_to_its_cpu_time() {
    let test = "phases_of_every_request_add_up_to_its_cpu_time";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options = WatchOptions { mode: Mode::Exact, ..WatchOptions::of_port(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let (open, _) = keep_alive(server.port, 4, 300, &["/1k.bin"]);
    drop(open);
    settle(&mut watcher);
    let reading = watcher.read();
    let (class, phases) = (&reading.classes[0], &reading.phases[0]);
    assert_eq!(phases.requests, class.requests);
    let parts: f64 = phases.cpu_ns.iter().map(|part| part.expect("a phase").mean).sum();
    let whole = class.cpu_ns as f64 / class.requests as f64;
    assert!((parts / whole - 1.0).abs() < 1e-6, "{parts} against {whole}");
}

#[test]
fn the_parse_phase_ends_where_the_file_is_looked_up() {
    let test = "the_parse_phase_ends_where_the_file_is_looked_up";
    // Apache looks up every file anew.
    let Some(server) = Server::start(test, "apache") else { return };
    for splits in [true, false] {
        let options = WatchOptions { mode: Mode::Exact, splits, ..WatchOptions::of_port(server.port) };
        let Some(mut watcher) = watch(test, options) else { return };
        let (open, _) = keep_alive(server.port, 2, 100, &["/1k.bin"]);
        drop(open);
        settle(&mut watcher);
        let phases = &watcher.read().phases[0];
        println!("{test}: {phases:?}");
        let split = if splits { phases.requests } else { 0 };
        assert_eq!((phases.requests, phases.split), (200, split));
    }
}
