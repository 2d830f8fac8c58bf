//! Without privileges, visible figures are shown, and the others are reported as not measured.

use crate::client::Connection;
use crate::rig::Server;
use observe::watch::{WatchOptions, Watcher};
use std::sync::mpsc;

/// Runs `work` in a thread without any capability; other threads keep theirs.
fn without_capabilities<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let header = [0x2008_0522_u32, 0];
        let none = [0_u32; 6];
        // SAFETY: header and data are live and laid out as struct __user_cap_header_struct and two
        // __user_cap_data_struct; version 3 reads that many.
        let dropped = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
        assert_eq!(dropped, 0, "capabilities can be given up");
        let _ = send.send(work());
    });
    receive.recv().expect("the thread answers")
}

#[test]
fn without_privileges_connections_are_scanned_and_the_reason_is_given() {
    let test = "without_privileges_connections_are_scanned_and_the_reason_is_given";
    let Some(server) = Server::start(test, "nginx") else { return };
    let mut connections: Vec<Connection> = (0..3).map(|_| Connection::open(server.port)).collect();
    connections.iter_mut().for_each(|connection| connection.get("/1k.bin", false));
    let port = server.port;
    let (why, reading, doubts) = without_capabilities(move || {
        let mut watcher = Watcher::start(WatchOptions::of_port(port)).expect("scans need no right");
        let why = watcher.why_no_programs().map(ToString::to_string);
        (why, watcher.read(), watcher.doubts())
    });
    let why = why.expect("no programs without rights");
    assert!(why.contains("not permitted") && why.contains("cap_bpf"), "{why}");
    assert!(reading.classes.is_empty(), "requests are not counted, and not 0 either");
    assert_eq!(reading.connections.states.get("established"), Some(&3));
    assert_eq!(reading.connections.states.get("listen"), Some(&1));
    assert!(doubts.iter().any(|doubt| doubt.what.contains("requests are not counted")), "{doubts:?}");
}
