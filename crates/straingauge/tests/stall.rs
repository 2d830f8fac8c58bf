//! A server that stalls: its response times are known, and service times would hide them.

use crate::rig::{free_port, member, program, repository, run, skip_unless, straingauge};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The testbed's stalling server, which ends on drop.
struct Stalling(Child);

impl Drop for Stalling {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(port: u16) -> Stalling {
    let mut command = Command::new(program("python3").expect("looked for before"));
    command.arg(repository().join("testbed/python/stalling.py"));
    // A request in the second half of each second waits for the end of that second.
    command.args(["--port", &port.to_string(), "--every", "0.5", "--stall", "0.5"]);
    let server = Stalling(command.stdin(Stdio::null()).spawn().expect("python3 starts"));
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "the stalling server does not accept");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

#[test]
fn response_times_show_a_stall_that_service_times_hide() {
    skip_unless!(program("python3").is_some(), "python3 is not installed (apt-get install python3)");
    let port = free_port();
    let _server = start(port);
    let url = format!("http://127.0.0.1:{port}/");
    // With four connections, four requests are in flight during a stall and a hundred wait.
    let mut command = straingauge(["load", &url, "--rate", "200", "--arrival", "constant", "--connections", "4"]);
    command.args(["--warmup", "0s", "--duration", "2s", "--threads", "1", "--json", "--quiet"]);
    let json = run(&mut command).exits_with(0).json();
    let value = |name: &str| member(&json, name)["value"].as_f64().unwrap_or_else(|| panic!("{name}: {json:#}"));
    // These lower bounds hold on slow machines, too. Nearly half of the requests came during a stall of half a
    // second.
    assert!(value("client.response_p90_us") > 150_000.0, "the stall is hidden: {json:#}");
    assert!(value("client.lag_p99_us") > 150_000.0, "late sends are not shown: {json:#}");
    assert!(value("client.response_p90_us") > 2.0 * value("client.service_p50_us"), "{json:#}");
    // The whole schedule was sent: 200 requests/s for 2 s.
    let outcomes = member(&json, "outcomes");
    assert_eq!(outcomes["sent"].as_u64(), Some(400), "late requests were dropped: {outcomes:#}");
}

#[test]
fn a_stall_that_began_in_the_warm_up_counts_in_the_window() {
    skip_unless!(program("python3").is_some(), "python3 is not installed (apt-get install python3)");
    let port = free_port();
    let _server = start(port);
    let url = format!("http://127.0.0.1:{port}/");
    // The server repeats its stall every second, so one of half a second overlaps the window.
    let mut command = straingauge(["load", &url, "--connections", "4", "--threads", "1", "--json", "--quiet"]);
    let json = run(command.args(["--warmup", "250ms", "--duration", "950ms"])).exits_with(0).json();
    let outcomes = member(&json, "outcomes");
    let of = |name: &str| outcomes[name].as_u64().unwrap_or_else(|| panic!("{name}: {outcomes:#}"));
    assert_eq!(of("carried_in"), 4, "one a connection: {outcomes:#}");
    assert_eq!(of("sent") + of("carried_in"), of("ok") + of("unfinished"), "{outcomes:#}");
    let longest_us = member(&json, "client.response_max_us")["value"].as_f64().expect("it is measured");
    assert!(longest_us > 400_000.0, "the stall is hidden: {json:#}");
}
