//! Compares requests and bytes with the client's own count, and CPU time with the scheduler's.

use crate::client::{close_each, keep_alive};
use crate::rig::{Server, check_states, counted, counting, free_port, settle, watch};
use observe::watch::WatchOptions;
use record::watch::{Counter, Mode};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};

fn check_keep_alive(test: &str, name: &str, paths: &'static [&'static str]) {
    let Some(server) = Server::start(test, name) else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let (open, count) = keep_alive(server.port, 8, 300, paths);
    settle(&mut watcher);
    let while_open = watcher.read();
    assert_eq!(counted(&while_open), count, "with connections open");
    assert_eq!(while_open.connections.states.get("established"), Some(&8));
    drop(open);
    settle(&mut watcher);
    let reading = watcher.read();
    println!("{name}: {reading:#?}");
    assert_eq!(counted(&reading), count, "after the connections closed");
    assert_eq!(
        [Counter::DisplacedOpen, Counter::UnreadBytes].map(|counter| reading.count(counter)),
        [Some(0), Some(0)]
    );
    assert_eq!(reading.count(Counter::Accepted).unwrap(), 8);
    assert_eq!(reading.count(Counter::Closed).unwrap(), 8);
    assert_eq!(
        reading.count(Counter::ClosedBytesReceived).unwrap(),
        count.bytes_sent + 8,
        "each end of stream counts one"
    );
    let elsewhere = reading.charged().unwrap().elsewhere_ns as f64 / reading.cpu.unwrap().group_ns as f64;
    println!("{name}: CPU of no request {:.1} %", elsewhere * 100.0);
    check_states(&mut watcher);
}

#[test]
fn nginx_requests_and_bytes_equal_the_clients() {
    check_keep_alive("nginx_requests_and_bytes_equal_the_clients", "nginx", &["/1k.bin", "/100k.bin", "/10k.bin"]);
}

#[test]
fn requests_on_closing_connections_are_all_counted() {
    let test = "requests_on_closing_connections_are_all_counted";
    let Some(server) = Server::start(test, "nginx") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let count = close_each(server.port, 500, "/1k.bin");
    settle(&mut watcher);
    let reading = watcher.read();
    println!("{reading:#?}");
    assert_eq!(counted(&reading), count);
    assert_eq!((reading.count(Counter::Accepted).unwrap(), reading.count(Counter::Closed).unwrap()), (500, 500));
}

#[test]
fn connections_that_nginx_closes_before_its_client_are_counted() {
    let test = "connections_that_nginx_closes_before_its_client_are_counted";
    let Some(server) = Server::start(test, "nginx") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let (open, _) = keep_alive(server.port, 5, 10, &["/1k.bin"]);
    drop(open);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!([Counter::Closed, Counter::ClosedByServer].map(|counter| reading.count(counter)), [Some(5), Some(0)]);
    close_each(server.port, 30, "/1k.bin");
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!([Counter::Closed, Counter::ClosedByServer].map(|counter| reading.count(counter)), [Some(35), Some(30)]);
}

#[test]
fn the_hook_for_older_kernels_gives_the_same_counts() {
    let test = "the_hook_for_older_kernels_gives_the_same_counts";
    for name in ["nginx", "apache"] {
        let Some(server) = Server::start(test, name) else { return };
        let options = observe::watch::WatchOptions { reads_by_position: true, ..counting(server.port) };
        let Some(mut watcher) = watch(test, options) else { return };
        let (open, mut count) = keep_alive(server.port, 4, 100, &["/1k.bin", "/100k.bin"]);
        drop(open);
        count.add(close_each(server.port, 50, "/1k.bin"));
        settle(&mut watcher);
        let reading = watcher.read();
        assert_eq!(counted(&reading), count, "{name}");
        let of_requests = reading.charged().unwrap().requests_ns as f64 / reading.cpu.unwrap().group_ns as f64;
        assert!(of_requests < 1.02, "{name}: more CPU time is charged than there is: {of_requests:.3}");
    }
}

/// Calibration and loading use this process's CPU time. A watch of this process must not count it, because it is from
/// before the hooks were attached.
#[test]
fn cpu_time_before_the_watch_is_charged_to_no_request() {
    let test = "cpu_time_before_the_watch_is_charged_to_no_request";
    let own_cpu_ns = || {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64
    };
    let options =
        observe::watch::WatchOptions { group: observe::Group::Tree(std::process::id()), ..counting(free_port()) };
    let before_ns = own_cpu_ns();
    let Some(mut watcher) = watch(test, options) else { return };
    let start_ns = own_cpu_ns() - before_ns;
    let reading = watcher.read();
    assert!(
        reading.cpu.unwrap().group_ns < start_ns / 2,
        "{} ns of {start_ns} ns for the start",
        reading.cpu.unwrap().group_ns
    );
}

#[test]
fn a_refused_upload_that_is_read_to_its_end_counts_as_answered() {
    use std::io::{Read, Write};
    let test = "a_refused_upload_that_is_read_to_its_end_counts_as_answered";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    let Some(mut watcher) = watch(test, counting(address.port())) else { return };
    let answer = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for _ in 0..3 {
        let mut client = std::net::TcpStream::connect(address).expect("it accepts");
        let (mut server, _) = listener.accept().expect("a connection");
        client.write_all(&[b'h'; 100]).expect("the head leaves");
        server.read_exact(&mut [0; 100]).expect("it comes");
        server.write_all(answer).expect("the answer leaves");
        client.write_all(&[b'u'; 5000]).expect("the body leaves");
        // As in nginx, the data is read without ending the response stream.
        server.read_exact(&mut [0; 5000]).expect("it comes");
        drop(server);
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("the end");
        assert_eq!(got, answer);
    }
    // A request without any answer is a different case.
    let mut client = std::net::TcpStream::connect(address).expect("it accepts");
    let (mut server, _) = listener.accept().expect("a connection");
    client.write_all(&[b'h'; 100]).expect("the head leaves");
    server.read_exact(&mut [0; 100]).expect("it comes");
    drop(server);
    settle(&mut watcher);
    let reading = watcher.read();
    let answered = crate::client::Count { requests: 3, bytes_sent: 3 * 5100, bytes_received: 3 * answer.len() as u64 };
    assert_eq!(counted(&reading), answered);
    assert_eq!(reading.count(Counter::Unanswered), Some(1));
}

#[test]
fn beyond_the_limit_requests_are_counted_completely_in_windows() {
    let test = "beyond_the_limit_requests_are_counted_completely_in_windows";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options =
        observe::watch::WatchOptions { overhead_ratio: 0.004, ..observe::watch::WatchOptions::of_port(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let (stop, port) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), server.port);
    let is_over = std::sync::Arc::clone(&stop);
    let client = std::thread::spawn(move || {
        let mut connection = crate::client::Connection::open(port);
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            connection.get("/1k.bin", false);
        }
        connection.count
    });
    // Until a window was counted after the time in which everything was counted.
    let mut windows = 0;
    let mut before = watcher.read();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    while windows < 2 && std::time::Instant::now() < deadline {
        settle(&mut watcher);
        let now = watcher.read();
        windows += usize::from(now.counted_ns > before.counted_ns && now.counted_ns.is_some());
        before = now;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let count = client.join().expect("the client lives");
    settle(&mut watcher);
    let (reading, doubts) = (watcher.read(), watcher.doubts());
    let seen = counted(&reading);
    println!(
        "{test}: {seen:?} of {count:?}, {:?} of {} ns, {:?} {:?}",
        reading.counted_ns, reading.elapsed_ns, reading.cost, reading.cpu
    );
    assert!(reading.counted_ns.is_some_and(|counted_ns| counted_ns < reading.elapsed_ns), "{:?}", reading.cost);
    assert!(seen.requests > 0 && seen.requests < count.requests, "{seen:?} of {count:?}");
    assert_eq!(seen.bytes_sent, seen.requests * (count.bytes_sent / count.requests), "whole requests");
    let answer = count.bytes_received / count.requests;
    // Some requests may not be answered within their drain time.
    assert!(seen.bytes_received.is_multiple_of(answer) && seen.bytes_received <= seen.requests * answer, "{seen:?}");
    assert!(reading.charged().is_none(), "the whole server's CPU time is of more time");
    assert_eq!(reading.count(Counter::UnreadBytes), Some(0));
    assert!(doubts.iter().any(|doubt| doubt.what.contains("requests are counted")), "{doubts:?}");
}

/// The first bytes of an answer are in a buffer of the server that each system call names in another way.
#[test]
fn the_status_of_answers_is_counted_however_the_server_writes() {
    use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
    let test = "the_status_of_answers_is_counted_however_the_server_writes";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let group = observe::Group::Tree(std::process::id());
    let Some(mut watcher) = watch(test, WatchOptions { mode: Mode::Exact, group, ..counting(port) }) else { return };
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let statuses = [
        "200 OK",
        "304 Not Modified",
        "404 Not Found",
        "429 Too Many Requests",
        "500 Error",
        "503 Busy",
        "100 Continue",
    ];
    for status in statuses {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(b"")];
        for way in 0..4 {
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(server.read(&mut [0; 64]).unwrap(), 18);
            let sent = match way {
                0 => rustix::io::write(&server, head.as_bytes()).unwrap(),
                1 => server.write_vectored(&pieces).unwrap(),
                2 => send(&server, head.as_bytes(), SendFlags::empty()).unwrap(),
                _ => sendmsg(&server, &pieces, &mut SendAncillaryBuffer::default(), SendFlags::empty()).unwrap(),
            };
            assert_eq!(sent, head.len());
            client.read_exact(&mut vec![0; sent]).unwrap();
        }
    }
    // What does not begin like an answer is not one.
    server.write_all(b"It says HTTP/1.1 503 in the middle").unwrap();
    server.write_all(b"HTTP").unwrap();
    settle(&mut watcher);
    let reading = watcher.read();
    let counted = [Counter::StatusLines, Counter::ServerErrors, Counter::ClientErrors].map(|one| reading.count(one));
    assert_eq!(counted, [Some(4 * 6), Some(4 * 3), Some(4)]);
}
