//! gRPC with a server on gRPC's C core (in Python).

use crate::rig::{Running, Said, free_port, member, repository, run, skipped, straingauge};
use std::net::TcpStream;
use std::process::Command;

fn call(port: u16, method: &str) -> Said {
    let url = format!("http://127.0.0.1:{port}");
    let mut command =
        straingauge(["load", &url, "--grpc", method, "--parts", "--connections", "2", "--in-flight", "3"]);
    command.args(["--warmup", "0s", "--duration", "300ms", "--quiet", "--json"]);
    run(&mut command)
}

#[test]
fn grpc_calls_and_messages_are_counted_as_real_servers_count_them() {
    let python = repository().join("target/python-tests/bin/python");
    let has_grpcio = Command::new(&python).args(["-c", "import grpc"]).output();
    if !has_grpcio.is_ok_and(|output| output.status.success()) {
        return skipped("Python's grpcio is not installed (make test installs it)");
    }
    let port = free_port();
    let mut running =
        Running::start(Command::new(python).arg(repository().join("testbed/grpc/server.py")).arg(port.to_string()));
    running.wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let (mut ok, mut sent) = (0, 0);
    for (method, gaps) in [("sg.Test/Unary", 0), ("sg.Test/Stream", 4)] {
        let json = call(port, method).exits_with(0).json();
        let count = |name: &str| member(&json, "outcomes")[name].as_u64().expect("a count");
        assert!(count("ok") > 0 && count("non_2xx") == 0, "{json:#}");
        (ok, sent) = (ok + count("ok"), sent + count("sent"));
        let mean = member(&json, "client.part_gap_mean_us");
        // Calls that the end of the run cuts off have received some messages.
        let timed = mean["n"].as_u64().unwrap_or(0);
        assert!(timed >= gaps * count("ok") && timed <= gaps * count("sent"), "{timed} gaps: {json:#}");
        if gaps > 0 {
            // Each pause is 5 ms, except between messages that a busy machine reads together.
            let longest = member(&json, "client.part_gap_max_us");
            assert!(longest["value"].as_f64() > Some(4_000.0), "{longest}");
        }
    }
    let unknown = call(port, "sg.Test/Missing").json();
    assert_eq!(member(&unknown, "outcomes")["ok"], 0, "{unknown:#}");
    assert!(member(&unknown, "reply_counts")["UNIMPLEMENTED"].as_u64() > Some(0), "{unknown:#}");
    running.signal(libc::SIGTERM);
    let said = running.wait().exits_with(0);
    let calls = said.out.lines().find_map(|line| line.strip_prefix("calls ")?.parse::<u64>().ok());
    let calls = calls.unwrap_or_else(|| panic!("no count: {}{}", said.out, said.err));
    // Each load sends one call beforehand, to check that the server answers.
    assert!((ok..=sent + 2).contains(&calls), "{calls} calls at the server, {ok} answered of {sent} here");
}
