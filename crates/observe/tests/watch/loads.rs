//! The watch of a load's points: the work that is charged to a load, to the exact request at its two ends.

use crate::client::keep_alive;
use crate::rig::{Server, counting};
use observe::watch::PointWatch;
use observe::watch::point_watch::PointReadings;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// A watch that counts; `None`, with a message, if that is not permitted.
fn point_watch(test: &str, port: u16) -> Option<PointWatch> {
    let watch = PointWatch::start(counting(port), Vec::new()).expect("the unprivileged part works");
    if let Some(why) = watch.why_not() {
        // SAFETY: no memory is passed.
        assert!(unsafe { libc::geteuid() } != 0, "the programs were refused: {why}");
        eprintln!("SKIPPED {test}: {why}");
        return None;
    }
    Some(watch)
}

fn whole(readings: &PointReadings) -> u64 {
    readings.after.all().requests - readings.before.all().requests
}

#[test]
fn a_load_is_counted_to_the_request_while_its_connections_close() {
    let test = "a_load_is_counted_to_the_request_while_its_connections_close";
    let Some(server) = Server::start(test, "nginx") else { return };
    let Some(mut watch) = point_watch(test, server.port) else { return };
    let rounds = if std::env::var_os(crate::boot::LONG).is_some() { 200 } else { 15 };
    for round in 0..rounds {
        watch.load_begins();
        let (open, count) = keep_alive(server.port, 200, 2, &["/1k.bin"]);
        // The server's ends of 200 connections close while the watch reads.
        drop(open);
        let readings = watch.load_ended().expect("the watch's thread lives");
        assert_eq!(whole(&readings), count.requests, "round {round}");
    }
}

#[test]
fn a_late_answer_belongs_to_the_load_of_its_request() {
    let test = "a_late_answer_belongs_to_the_load_of_its_request";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let Some(mut watch) = point_watch(test, port) else { return };
    let server = std::thread::spawn(move || {
        for answers_after in [Duration::from_millis(150), Duration::ZERO] {
            let (mut connection, _) = listener.accept().expect("a client");
            let mut request = [0; 1024];
            assert!(connection.read(&mut request).expect("a request") > 0);
            std::thread::sleep(answers_after);
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let ask = || {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server accepts");
        connection.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").expect("sent");
        connection
    };
    watch.load_begins();
    drop(ask());
    watch.load_ended().expect("the watch's thread lives");
    watch.load_begins();
    let mut answer = Vec::new();
    ask().read_to_end(&mut answer).expect("answered");
    let readings = watch.load_ended().expect("the watch's thread lives");
    server.join().expect("the server ends by itself");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(whole(&readings), 1, "the request that was given up is not this load's");
}
