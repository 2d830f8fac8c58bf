//! gRPC, on servers of its two most used implementations: gRPC's C core (in Python), and grpc-js (Node).

use crate::rig::{Running, Said, free_port, member, node_package, program, repository, run, skipped, straingauge};
use std::net::TcpStream;
use std::process::Command;

/// A server's command without its port; why there is none.
fn servers() -> [Result<Command, &'static str>; 2] {
    let at = |name: &str| repository().join("testbed/grpc").join(name);
    let python = repository().join("target/python-tests/bin/python");
    let has_grpcio =
        || Command::new(&python).args(["-c", "import grpc"]).output().is_ok_and(|output| output.status.success());
    let by_python = if has_grpcio() {
        let mut command = Command::new(&python);
        command.arg(at("server.py"));
        Ok(command)
    } else {
        Err("Python's grpcio is not installed (make test installs it)")
    };
    let by_node = match (program("node"), node_package("@grpc/grpc-js")) {
        (Some(node), Some(package)) => {
            let mut command = Command::new(node);
            command.env("NODE_PATH", package.join("../..")).arg(at("server.js"));
            Ok(command)
        }
        _ => Err("node or npm's @grpc/grpc-js is not installed (make test installs them)"),
    };
    [by_python, by_node]
}

fn call(port: u16, method: &str) -> Said {
    let url = format!("http://127.0.0.1:{port}");
    let mut command = straingauge(["load", &url, "--grpc", method, "--parts", "--connections", "2", "--streams", "3"]);
    command.args(["--warmup", "0s", "--duration", "300ms", "--quiet", "--json"]);
    run(&mut command)
}

#[test]
fn calls_are_counted_as_real_servers_count_them_and_each_message_is_a_part() {
    for server in servers() {
        let mut server = match server {
            Ok(server) => server,
            Err(why) => {
                skipped(why);
                continue;
            }
        };
        let port = free_port();
        let mut running = Running::start(server.arg(port.to_string()));
        running.wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let (mut ok, mut sent) = (0, 0);
        for (method, gaps) in [("sg.Test/Unary", 0), ("sg.Test/Stream", 4)] {
            let json = call(port, method).exits_with(0).json();
            let count = |name: &str| member(&json, "outcomes")[name].as_u64().expect("a count");
            assert!(count("ok") > 0 && count("non_2xx") == 0, "{json:#}");
            (ok, sent) = (ok + count("ok"), sent + count("sent"));
            let mean = member(&json, "client.part_gap_mean_us");
            // Calls that the end of the run cuts off have had some of theirs.
            let timed = mean["n"].as_u64().unwrap_or(0);
            assert!(timed >= gaps * count("ok") && timed <= gaps * count("sent"), "{timed} gaps: {json:#}");
            if gaps > 0 {
                // A pause of 5 ms each, but for messages that a busy machine reads together.
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
        // Each load asks once before, to see whether the server answers.
        assert!((ok..=sent + 2).contains(&calls), "{calls} calls at the server, {ok} answered of {sent} here");
    }
}
