//! In a process id namespace, e.g. of a container, the programs see other ids than /proc shows.

use crate::client::Connection;
use observe::profile::exact::{BurstOptions, ExactProfiler};
use observe::profile::{ProfileOptions, Profiler};
use observe::slow_down::SlowDown;
use observe::watch::{WatchOptions, Watcher};
use record::SlowPlace;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

const INSIDE: &str = "STRAINGAUGE_TEST_INSIDE_NAMESPACE";
const REASON: &str = "this process id namespace is not the host's";

/// Not a test by itself: it runs in the namespace.
#[test]
fn observers_in_the_namespace() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("its number").port();
    std::thread::spawn(move || {
        let (connection, _) = listener.accept().expect("a connection");
        let lines = BufReader::new(connection.try_clone().expect("a copy")).lines();
        for _ in lines.map_while(Result::ok).filter(String::is_empty) {
            let _ = (&connection).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut watcher = Watcher::start(WatchOptions { limits: true, ..WatchOptions::of_port(port) }).expect("a watch");
    let mut connection = Connection::open(port);
    (0..5).for_each(|_| connection.get("/", false));
    let reading = watcher.read();
    println!("{:?} {:?} {:?}", watcher.why_no_programs(), reading.processes, reading.limits);
    assert_eq!(reading.all().requests, 5);
    assert_eq!(reading.processes.iter().map(|row| row.pid).collect::<Vec<_>>(), [std::process::id()]);
    assert!(reading.processes[0].cpu_ns > Some(0) && reading.processes[0].counted.is_none());
    assert_eq!(reading.limits.expect("limits").reading_threads, None);
    let doubts = watcher.doubts();
    assert!(doubts.iter().any(|doubt| doubt.what.contains(REASON)), "{doubts:?}");
    drop(watcher);
    let burst = BurstOptions { port, netns_pid: None, burst: Duration::from_millis(20) };
    let refusals = [
        Profiler::attach(ProfileOptions::new(port)).expect_err("other ids").to_string(),
        ExactProfiler::attach(burst).expect_err("other ids").to_string(),
        SlowDown::attach(port, None, &SlowPlace::ALL, None).expect_err("other ids").to_string(),
    ];
    assert!(refusals.iter().all(|refusal| refusal.contains(REASON)), "{refusals:?}");
}

#[test]
fn figures_that_need_process_ids_are_unmeasured_in_a_pid_namespace() {
    let test = "figures_that_need_process_ids_are_unmeasured_in_a_pid_namespace";
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("SKIPPED {test}: needs root");
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().expect("the test's own program"));
    command.args(["--exact", "process_ids::observers_in_the_namespace", "--nocapture", "--test-threads=1"]);
    let Ok(output) = command.env(INSIDE, "1").output() else {
        return eprintln!("SKIPPED {test}: unshare is not installed");
    };
    assert!(output.status.success(), "{output:?}");
}
