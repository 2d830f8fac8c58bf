//! A server that stalls: the truth about its response times is known, and service times alone would hide it.

use crate::rig::{free_port, member, program, repository, run, skip_unless, straingauge};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The testbed's stalling server, ended when dropped.
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
    // Whoever comes during the second half of each second waits for its end.
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
fn a_stall_shows_in_response_times_where_service_times_hide_it() {
    skip_unless!(program("python3").is_some(), "python3 is not installed (apt-get install python3)");
    let port = free_port();
    let _server = start(port);
    let url = format!("http://127.0.0.1:{port}/");
    // Four connections: during a stall four requests are under way, and a hundred want to be.
    let mut command = straingauge(["load", &url, "--rate", "200", "--arrival", "constant", "--connections", "4"]);
    command.args(["--warmup", "0s", "--duration", "2s", "--threads", "1", "--json", "--quiet"]);
    let json = run(&mut command).exits_with(0).json();
    let value = |name: &str| member(&json, name)["value"].as_f64().unwrap_or_else(|| panic!("{name}: {json:#}"));
    // Lower bounds: they hold on a slow machine all the more. Nearly half of the requests came during a stall of half a
    // second.
    assert!(value("client.response_p90_us") > 150_000.0, "the stall is hidden: {json:#}");
    assert!(value("client.lag_p99_us") > 150_000.0, "late sends are not shown: {json:#}");
    assert!(value("client.response_p90_us") > 2.0 * value("client.service_p50_us"), "{json:#}");
    // The whole schedule was sent: 200 requests/s for 2 s.
    let outcomes = member(&json, "outcomes");
    assert_eq!(outcomes["sent"].as_u64(), Some(400), "late requests were dropped: {outcomes:#}");
}

#[test]
fn a_stall_that_began_in_the_warm_up_is_in_the_window() {
    skip_unless!(program("python3").is_some(), "python3 is not installed (apt-get install python3)");
    let port = free_port();
    let _server = start(port);
    let url = format!("http://127.0.0.1:{port}/");
    // The server repeats itself every second, so a stall of half a second lies in the window, or reaches into it from
    // before.
    let mut command = straingauge(["load", &url, "--connections", "4", "--threads", "1", "--json", "--quiet"]);
    let json = run(command.args(["--warmup", "250ms", "--duration", "950ms"])).exits_with(0).json();
    let outcomes = member(&json, "outcomes");
    let of = |name: &str| outcomes[name].as_u64().unwrap_or_else(|| panic!("{name}: {outcomes:#}"));
    assert_eq!(of("carried_in"), 4, "one a connection: {outcomes:#}");
    assert_eq!(of("sent") + of("carried_in"), of("ok") + of("unfinished"), "{outcomes:#}");
    let longest_us = member(&json, "client.response_max_us")["value"].as_f64().expect("it is measured");
    assert!(longest_us > 400_000.0, "the stall is hidden: {json:#}");
}
