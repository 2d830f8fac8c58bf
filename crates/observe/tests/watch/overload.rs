//! More than there is room for: losses are counted, and all other counts are exact.

use crate::client::{Connection, Count, close_each};
use crate::rig::{Server, check_states, counted, counting, settle, watch};
use observe::watch::WatchOptions;
use record::DoubtKind;
use record::watch::{Counter, ProcessTotals};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

#[test]
fn ten_thousand_connections_of_nginx_at_once_are_counted() {
    let test = "ten_thousand_connections_of_nginx_at_once_are_counted";
    const CONNECTIONS: usize = 10_000;
    record::machine::raise_descriptor_limit();
    // nginx has the same limit as this process.
    if record::machine::descriptor_limit() < CONNECTIONS as u64 + 500 {
        eprintln!("SKIPPED {test}: too few descriptors may be open (ulimit -n)");
        return;
    }
    let Some(server) = Server::start(test, "nginx") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let mut open: Vec<Connection> = (0..CONNECTIONS).map(|_| Connection::open(server.port)).collect();
    for _ in 0..2 {
        open.iter_mut().for_each(|connection| connection.get("/1k.bin", false));
    }
    settle(&mut watcher);
    let mut count = Count::default();
    open.iter().for_each(|connection| count.add(connection.count));
    let reading = watcher.read();
    println!("{test}: {:?}", reading.losses);
    assert_eq!(reading.count(Counter::DisplacedOpen).unwrap(), 0, "a record is displaced after its response");
    assert_eq!(counted(&reading), count);
    assert_eq!(reading.connections.states.get("established"), Some(&(CONNECTIONS as u64)));
    check_states(&mut watcher);
    drop(open);
    // Ten thousand ends take nginx a while if it has no CPU for itself.
    let mut reading = watcher.read();
    for _ in 0..100 {
        if reading.count(Counter::Closed).unwrap() == CONNECTIONS as u64 {
            break;
        }
        settle(&mut watcher);
        reading = watcher.read();
    }
    assert_eq!(reading.count(Counter::Closed).unwrap(), CONNECTIONS as u64);
    assert_eq!(counted(&reading), count);
    check_states(&mut watcher);
}

#[test]
fn a_full_table_reports_the_number_of_lost_requests() {
    let test = "a_full_table_reports_the_number_of_lost_requests";
    const CONNECTIONS: usize = 200;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let Some(mut watcher) = watch(test, WatchOptions { room: Some(4), ..counting(port) }) else { return };
    let mut pairs: Vec<(Connection, TcpStream)> = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = Connection::open(port);
        pairs.push((client, listener.accept().expect("a connection").0));
    }
    // All wait for an answer at the same time: sixteen places for two hundred requests.
    for (client, server) in &mut pairs {
        client.send(b"question");
        server.read_exact(&mut [0; 8]).expect("a request");
    }
    settle(&mut watcher);
    let reading = watcher.read();
    let (lost, waiting) = (reading.count(Counter::DisplacedOpen).unwrap(), reading.open.as_ref().unwrap().waiting);
    println!("{test}: {lost} lost, {waiting} waiting");
    assert!(waiting <= 16, "{waiting} in sixteen places");
    assert_eq!(lost + waiting, CONNECTIONS as u64, "each is in progress or lost");
    let doubts = watcher.doubts();
    let said = doubts.iter().find(|doubt| doubt.kind == DoubtKind::LostEvents).expect("it is said");
    assert!(said.what.contains(&lost.to_string()) && said.what.contains("16 connections"), "{said:?}");
    assert!(said.remedy.contains("--table-size"), "{said:?}");
    // States are counted separately from the table and stay exact.
    assert_eq!(reading.connections.states.get("established"), Some(&(CONNECTIONS as u64)));
    for (_, server) in &mut pairs {
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("an answer");
    }
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(reading.all().requests + reading.count(Counter::DisplacedOpen).unwrap(), CONNECTIONS as u64);
    check_states(&mut watcher);
}

#[test]
fn a_large_enough_table_loses_no_requests() {
    let test = "a_large_enough_table_loses_no_requests";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let Some(mut watcher) = watch(test, WatchOptions { room: Some(2000), ..counting(port) }) else { return };
    let mut pairs: Vec<(Connection, TcpStream)> = Vec::new();
    for number in 0..400 {
        let mut client = Connection::open(port);
        let (mut server, _) = listener.accept().expect("a connection");
        // The length identifies the first request.
        let question = if number == 0 { &b"the very first question"[..] } else { b"question" };
        client.send(question);
        server.read_exact(&mut vec![0; question.len()]).expect("a request");
        pairs.push((client, server));
    }
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!((reading.count(Counter::DisplacedOpen).unwrap(), reading.open.as_ref().unwrap().waiting), (0, 400));
    // More requests are in progress than are listed, but the oldest one is listed.
    let longest = &reading.open.as_ref().unwrap().longest;
    assert!(longest.is_sorted_by(|one, next| one.age_ns >= next.age_ns), "{longest:?}");
    assert_eq!(longest[0].bytes_in, 23, "{longest:?}");
    let (client, server) = &mut pairs[0];
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("an answer");
    client.receive();
    settle(&mut watcher);
    let longest = watcher.read().open.unwrap().longest;
    assert!(longest.iter().all(|request| request.bytes_in == 8), "the first is answered: {longest:?}");
}

#[test]
fn threads_beyond_the_table_size_are_counted_together() {
    let test = "threads_beyond_the_table_size_are_counted_together";
    // The table has 4,096 places, chosen by the low bits of the thread's id.
    const THREADS: u64 = 4500;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let Some(mut watcher) = watch(test, counting(port)) else { return };
    for _ in 0..THREADS {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        client.write_all(b"question").expect("it leaves");
        let (mut server, _) = listener.accept().expect("a connection");
        let serving = std::thread::spawn(move || {
            server.read_exact(&mut [0; 8]).expect("a request");
            server.write_all(b"answer").expect("an answer");
        });
        serving.join().expect("it answers");
    }
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(counted(&reading), Count { requests: THREADS, bytes_sent: THREADS * 8, bytes_received: THREADS * 6 });
    let of = |pid: u32| reading.processes.iter().filter(move |process| process.pid == pid).filter_map(requests_of);
    let (told_apart, together): (u64, u64) = (of(std::process::id()).sum(), of(0).sum());
    println!("{test}: {told_apart} of threads in the table, {together} of others");
    assert_eq!(told_apart + together, THREADS, "{:?}", reading.processes);
    assert!(together > 0, "no place was wanted twice");
    assert_eq!(reading.count(Counter::DisplacedOpen).unwrap(), 0);
}

/// Answers each request after this much CPU time.
fn serve(mut connection: TcpStream, burn_ns: u64) {
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    while connection.read_exact(&mut [0; 8]).is_ok() {
        let until = clock() + burn_ns;
        while clock() < until {}
        connection.write_all(b"answer").expect("an answer");
    }
}

#[test]
fn threads_that_share_a_table_place_are_distinguished() {
    let test = "threads_that_share_a_table_place_are_distinguished";
    const BURN_NS: u64 = 2_000_000;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let Some(mut watcher) = watch(test, counting(port)) else { return };
    let (mut clients, mut threads, mut first) = (Vec::new(), Vec::new(), None);
    for round in 1..5000 {
        if let Some(first) = first {
            let next: u32 = first + 4096 * (1 + round % 7);
            if std::fs::write("/proc/sys/kernel/ns_last_pid", (next - 1).to_string()).is_err() {
                return eprintln!("SKIPPED {test}: the number of a new thread cannot be chosen here");
            }
        }
        let (tell, number) = std::sync::mpsc::channel();
        let (give, given) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            given.into_iter().for_each(|connection| serve(connection, BURN_NS));
        });
        let number = number.recv().expect("a number");
        // Other work may take the id first.
        if *first.get_or_insert(number) % 4096 == number % 4096 {
            clients.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens"));
            give.send(listener.accept().expect("a connection").0).expect("the thread waits");
        }
        drop(give);
        threads.push(thread);
        if clients.len() == 4 {
            break;
        }
    }
    for _ in 0..25 {
        for client in &mut clients {
            client.write_all(b"question").expect("it leaves");
            client.read_exact(&mut [0; 6]).expect("an answer");
        }
    }
    settle(&mut watcher);
    let reading = watcher.read();
    drop(clients);
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    let (charged_ns, burnt_ns) = (reading.charged().expect("charged").requests_ns, 4 * 25 * BURN_NS as i64);
    // The two clocks may notice time taken by the hypervisor at different moments.
    assert!(charged_ns >= burnt_ns * 9 / 10, "{charged_ns} ns charged of {burnt_ns}");
    assert_eq!(reading.count(Counter::DisplacedThreads), Some(0));
}

#[test]
fn a_server_that_forks_for_each_connection_is_counted() {
    let test = "a_server_that_forks_for_each_connection_is_counted";
    let Some(server) = Server::start(test, "python-fork") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let count = close_each(server.port, 150, "/1k.bin");
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(counted(&reading), count);
    assert_eq!((reading.count(Counter::Accepted).unwrap(), reading.count(Counter::Closed).unwrap()), (150, 150));
    // Each process that served a connection is a row of its own, though all have ended. The first process, which
    // serves none, and 63 others are listed, and one row has the rest. All their CPU time is included, though the
    // scheduler no longer knows them.
    let (listed, others) = reading.processes.split_at(64);
    let served = listed.iter().filter_map(requests_of);
    assert!(served.clone().all(|requests| requests <= 1) && served.sum::<u64>() == 63, "{:?}", reading.processes);
    assert_eq!(
        (others.len(), others[0].pid, requests_of(&others[0])),
        (1, 0, Some(150 - 63)),
        "{:?}",
        reading.processes
    );
    let cpu = reading.cpu.unwrap();
    assert_eq!(reading.processes.iter().filter_map(|process| process.cpu_ns).sum::<u64>(), cpu.group_ns);
    println!("{test}: {cpu:?}");
    assert!(cpu.group_ns > 0 && cpu.charged.unwrap().elsewhere_ns as f64 > -0.01 * cpu.group_ns as f64, "{cpu:?}");
    assert_eq!(reading.count(Counter::DisplacedOpen).unwrap(), 0);
    check_states(&mut watcher);
}

fn requests_of(process: &ProcessTotals) -> Option<u64> {
    process.counted.map(|counts| counts.requests)
}
