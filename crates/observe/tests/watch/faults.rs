//! Faults during a watch: servers that end, restart or never start, and more connections than room.

use crate::client::{Connection, keep_alive};
use crate::rig::{Server, counting, free_port, settle, watch};
use observe::watch::{WatchOptions, Watcher};
use record::watch::{Counter, Mode};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

#[test]
fn a_port_with_no_server_is_watched_until_one_comes() {
    let test = "a_port_with_no_server_is_watched_until_one_comes";
    let port = free_port();
    let Some(mut watcher) = watch(test, counting(port)) else { return };
    let reading = watcher.read();
    assert_eq!((reading.all().requests, reading.cpu), (0, None));
    assert!(watcher.doubts().iter().any(|doubt| doubt.what.contains("nothing listens")), "{:?}", watcher.doubts());
    let Some(server) = Server::start_on(test, "nginx", port) else { return };
    let (open, count) = keep_alive(server.port, 2, 20, &["/1k.bin"]);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(reading.all().requests, count.requests);
    assert!(reading.cpu.unwrap().processes >= 2 && reading.cpu.unwrap().group_ns > 0, "{:?}", reading.cpu);
    assert!(watcher.doubts().is_empty(), "{:?}", watcher.doubts());
    drop(open);
}

#[test]
fn a_restarted_server_is_followed() {
    let test = "a_restarted_server_is_followed";
    let Some(mut server) = Server::start(test, "nginx") else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let (open, first) = keep_alive(server.port, 4, 20, &["/1k.bin"]);
    server.kill();
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(reading.all().requests, first.requests);
    assert_eq!(reading.connections.states.get("established"), None, "{:?}", reading.connections.states);
    assert_eq!(reading.connections.states.get("listen"), None, "{:?}", reading.connections.states);
    let cpu_before = reading.cpu.unwrap().group_ns;
    drop(open);
    let Some(again) = Server::start_on(test, "nginx", server.port) else { return };
    let (open, second) = keep_alive(again.port, 4, 20, &["/1k.bin"]);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(reading.all().requests, first.requests + second.requests);
    assert_eq!(reading.connections.states.get("established"), Some(&4));
    assert_eq!(reading.connections.states.get("listen"), Some(&1));
    assert!(reading.cpu.unwrap().group_ns > cpu_before, "the new server's CPU time counts");
    drop(open);
}

#[test]
fn thousands_of_simultaneous_connections_are_counted_and_losses_are_reported() {
    let test = "thousands_of_simultaneous_connections_are_counted_and_losses_are_reported";
    const CONNECTIONS: usize = 8000;
    record::machine::raise_descriptor_limit();
    if record::machine::descriptor_limit() < 2 * CONNECTIONS as u64 + 500 {
        eprintln!("SKIPPED {test}: too few descriptors may be open (ulimit -n)");
        return;
    }
    // Both ends are in this process; the server's end answers by hand.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let Some(mut watcher) = watch(test, counting(port)) else { return };
    let mut pairs: Vec<(Connection, TcpStream)> = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = Connection::open(port);
        pairs.push((client, listener.accept().expect("a connection").0));
    }
    let established = |watcher: &mut Watcher| watcher.read().connections.states.get("established").copied();
    assert_eq!(established(&mut watcher), Some(CONNECTIONS as u64));
    for _ in 0..2 {
        for (client, server) in &mut pairs {
            use std::io::{Read, Write};
            client.send(b"question");
            let mut buffer = [0; 8];
            server.read_exact(&mut buffer).expect("a request");
            server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").expect("an answer");
            client.receive();
        }
    }
    let reading = watcher.read();
    let lost = reading.count(Counter::DisplacedOpen).unwrap();
    println!("table: {:?}", reading.losses);
    assert_eq!(reading.all().requests + lost, 2 * CONNECTIONS as u64);
    assert_eq!(lost, 0, "every response was written when its record was displaced");
    watcher.reconcile();
    assert_eq!(watcher.read().connections.reconciliation.unwrap().last_difference, 0, "a scan shows the same states");
    drop(pairs);
    settle(&mut watcher);
    assert_eq!(established(&mut watcher), None);
}

#[test]
fn two_listeners_on_one_port_count_as_one_server() {
    let test = "two_listeners_on_one_port_count_as_one_server";
    let Some(server) = Server::reuseport_pair(test) else { return };
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    let (open, count) = keep_alive(server.port, 16, 30, &["/1k.bin"]);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(reading.all().requests, count.requests);
    assert_eq!(reading.connections.states.get("listen"), Some(&2));
    let served = reading.processes.iter().filter(|process| process.pid != 0);
    let served = served.filter(|process| process.counted.is_some_and(|counts| counts.requests > 0)).count();
    assert_eq!(served, 2, "both processes served: {:?}", reading.processes);
    drop(open);
}

#[test]
fn connections_older_than_the_watch_are_counted_from_their_next_request() {
    let test = "connections_older_than_the_watch_are_counted_from_their_next_request";
    let Some(server) = Server::start(test, "nginx") else { return };
    let mut connection = Connection::open(server.port);
    connection.get("/1k.bin", false);
    let before = connection.count;
    let Some(mut watcher) = watch(test, counting(server.port)) else { return };
    assert_eq!(watcher.read().connections.states.get("established"), Some(&1));
    for _ in 0..10 {
        connection.get("/1k.bin", false);
    }
    settle(&mut watcher);
    let all = watcher.read().all();
    assert_eq!(all.requests, 10);
    assert_eq!(all.bytes_out, connection.count.bytes_received - before.bytes_received);
}

#[test]
fn an_unanswered_request_is_first_in_progress_and_then_unanswered() {
    let test = "an_unanswered_request_is_first_in_progress_and_then_unanswered";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    let Some(mut watcher) = watch(test, counting(port)) else { return };
    let mut client = Connection::open(port);
    let (mut server, _) = listener.accept().expect("a connection");
    client.send(b"question");
    std::io::Read::read_exact(&mut server, &mut [0; 8]).expect("a request");
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!((reading.open.as_ref().unwrap().waiting, reading.all().requests), (1, 0));
    assert!(reading.open.as_ref().unwrap().longest[0].age_ns >= 250_000_000, "{:?}", reading.open);
    drop(server);
    drop(client);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!((reading.open.as_ref().unwrap().waiting, reading.count(Counter::Unanswered).unwrap()), (0, 1));
}

#[test]
fn zero_mode_counts_only_connections_and_their_bytes() {
    let test = "zero_mode_counts_only_connections_and_their_bytes";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options = WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let (open, count) = keep_alive(server.port, 3, 20, &["/1k.bin"]);
    drop(open);
    settle(&mut watcher);
    let reading = watcher.read();
    assert!(reading.classes.is_empty());
    let connections = &reading.connections;
    assert_eq!(
        (connections.counted.get(Counter::Accepted).unwrap(), connections.counted.get(Counter::Closed).unwrap()),
        (3, 3)
    );
    assert_eq!(
        connections.counted.get(Counter::ClosedDataSegmentsIn).unwrap(),
        count.requests,
        "a request is a segment"
    );
    assert_eq!(
        connections.counted.get(Counter::ClosedBytesReceived).unwrap(),
        count.bytes_sent + 3,
        "each end of stream counts one"
    );
}

#[test]
fn a_full_accept_queue_is_shown_for_its_port() {
    let test = "a_full_accept_queue_is_shown_for_its_port";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its number");
    // SAFETY: no memory is passed; the descriptor is open. A second call shortens the queue.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 1) }, 0);
    let Some(mut watcher) = watch(test, counting(address.port())) else { return };
    assert_eq!(watcher.read().connections.port_drops, Some(0));
    // No thread accepts: two connections have room, and the others are dropped until their client gives up.
    let patience = std::time::Duration::from_millis(300);
    let tried: Vec<_> = (0..5).map(|_| TcpStream::connect_timeout(&address, patience)).collect();
    assert!(tried.iter().any(Result::is_err), "the queue is not full");
    settle(&mut watcher);
    let connections = watcher.read().connections;
    println!("{test}: {connections:?}");
    assert_eq!((connections.accept_queue, connections.accept_queue_limit), (Some(2), Some(1)));
    assert!(connections.port_drops > Some(0), "{connections:?}");
    assert!(connections.listen_overflows.is_none_or(|overflows| overflows > 0), "{connections:?}");
    // Drops at another port do not count for this one.
    let Some(mut beside) = watch(test, counting(free_port())) else { return };
    assert_eq!(beside.read().connections.port_drops, Some(0));
}
