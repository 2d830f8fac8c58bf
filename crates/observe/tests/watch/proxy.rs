//! A proxy and its server, watched at the same time.

use crate::client::{close_each, keep_alive};
use crate::rig::{Server, check_states, counted, counting, free_port, settle, watch};
use record::watch::Counter;
use std::process::Command;

#[test]
fn haproxy_and_the_nginx_behind_it_are_watched_at_once() {
    let test = "haproxy_and_the_nginx_behind_it_are_watched_at_once";
    let Some(back) = Server::start(test, "nginx") else { return };
    let behind = back.port.to_string();
    let Some(front) = Server::start_with(test, "haproxy", free_port(), &["--backend", &behind]) else { return };
    let Some(mut at_back) = watch(test, counting(back.port)) else { return };
    let Some(mut at_front) = watch(test, counting(front.port)) else { return };
    let (open, mut count) = keep_alive(front.port, 6, 200, &["/1k.bin", "/100k.bin"]);
    drop(open);
    count.add(close_each(front.port, 50, "/10k.bin"));
    settle(&mut at_front);
    settle(&mut at_back);
    let (front_reading, back_reading) = (at_front.read(), at_back.read());
    assert_eq!(counted(&front_reading), count, "at the front port");
    let back_count = counted(&back_reading);
    assert_eq!(back_count.requests, count.requests, "each is passed on once");
    // HAProxy removes `Connection: close` and writes names in lower case: the documents' bytes and heads pass.
    let bodies = 6 * 100 * (1024 + 102_400) + 50 * 10_240;
    assert!(
        back_count.bytes_received > bodies && back_count.bytes_received < count.bytes_received + count.requests * 64
    );
    assert_eq!(front_reading.count(Counter::Accepted).unwrap(), 6 + 50);
    assert!(
        back_reading.count(Counter::Accepted).unwrap() < 50,
        "connections to nginx are shared: {:?}",
        back_reading.connections
    );
    let front_pids: Vec<u32> =
        front_reading.processes.iter().map(|process| process.pid).filter(|pid| *pid != 0).collect();
    assert!(back_reading.processes.iter().all(|process| !front_pids.contains(&process.pid)), "two servers, not one");
    for reading in [&front_reading, &back_reading] {
        let cpu = reading.cpu.unwrap();
        assert!(
            cpu.charged.unwrap().elsewhere_ns as f64 > -0.01 * cpu.group_ns as f64,
            "more is charged than there is: {cpu:?}"
        );
    }
    check_states(&mut at_front);
    check_states(&mut at_back);
}

#[test]
fn a_splicing_proxy_is_reported_as_not_reading() {
    let test = "a_splicing_proxy_is_reported_as_not_reading";
    let Some(back) = Server::start(test, "nginx") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("haproxy.cfg");
    let port = free_port();
    for (options, splices) in [("option splice-request\n option splice-response\n", true), ("", false)] {
        let times = "timeout client 30s\n timeout server 30s\n timeout connect 5s\n";
        let text = format!(
            "defaults\n mode tcp\n {times} {options}listen all\n bind 127.0.0.1:{port}\n server one 127.0.0.1:{}\n",
            back.port
        );
        std::fs::write(&config, text).expect("our own folder");
        let Some(_front) = Server::run(test, "haproxy", port, Command::new("haproxy").arg("-f").arg(&config)) else {
            return;
        };
        let Some(mut watcher) = watch(test, counting(port)) else { return };
        let (open, count) = keep_alive(port, 4, 100, &["/100k.bin"]);
        let mut open = Some(open);
        for when in ["open", "closed"] {
            settle(&mut watcher);
            // Requests that a reading finds on open connections are in the counts of the next one.
            watcher.read();
            let reading = watcher.read();
            let (read, unread) = (reading.all().bytes_in, reading.count(Counter::UnreadBytes).expect("a count"));
            println!("{when}: {read} bytes read, {unread} not, of {}", count.bytes_sent);
            let doubts = watcher.doubts();
            let is_said = doubts.iter().any(|doubt| doubt.what.contains("without reading it (splice;"));
            assert_eq!(is_said, splices, "{when}: {doubts:?}");
            if !splices {
                assert_eq!((unread, counted(&reading)), (0, count));
            }
            drop(open.take());
        }
    }
}
