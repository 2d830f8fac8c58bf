//! Tests of the server on loopback, and Kim and Rixner's sweeps of it with `straingauge profile --axis`.

#[path = "../../../testbed/free_port.rs"]
mod free_port;

use free_port::free_port;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_straingauge-microbenchmark");
const SEGMENT_BYTES: usize = 1448;

struct Server(Child);

impl Server {
    fn start(port: u16, more: &[&str]) -> Server {
        let child = Command::new(PROGRAM).args(more).arg(port.to_string()).spawn().expect("it was built");
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn connect(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

#[test]
fn each_request_is_answered_with_one_segment_however_it_arrives() {
    let port = free_port();
    let _server = Server::start(port, &[]);
    let mut stream = connect(port);
    let mut segment = vec![0; SEGMENT_BYTES];
    // The request comes in two pieces that break the end of its header.
    for piece in ["GET / HTTP/1.1\r\nHost: x\r\n\r", "\n"] {
        stream.write_all(piece.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    stream.read_exact(&mut segment).unwrap();
    assert!(segment.starts_with(b"HTTP/1.1 200 OK\r\n"));
    // Three requests at once get exactly three answers.
    stream.write_all("GET / HTTP/1.1\r\n\r\n".repeat(3).as_bytes()).unwrap();
    (0..3).for_each(|_| stream.read_exact(&mut segment).unwrap());
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut segment).unwrap(), 0);
}

#[test]
fn a_client_that_reads_late_gets_all_its_answers() {
    let port = free_port();
    let _server = Server::start(port, &["--bytes", "1000000"]);
    let mut stream = connect(port);
    stream.write_all("GET / HTTP/1.1\r\n\r\n".repeat(20).as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let mut answers = vec![0; 20_000_000];
    stream.read_exact(&mut answers).unwrap();
    assert!(answers[19_000_000..].starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[test]
fn wrong_arguments_are_refused() {
    for (words, said) in [(&["--bytes", "10"][..], "--bytes"), (&["--bytes"], "number"), (&["port"], "usage")] {
        let output = Command::new(PROGRAM).args(words).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(said), "{text}");
    }
}

/// The product's program, which cargo puts next to this one. Where the sweeps cannot run, prints the reason and
/// returns `None`.
fn straingauge() -> Option<PathBuf> {
    let skipped = |why: &str| {
        let thread = std::thread::current();
        let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a-test"));
        None
    };
    let program =
        std::env::var_os("STRAINGAUGE").map_or(Path::new(PROGRAM).with_file_name("straingauge"), PathBuf::from);
    if !program.is_file() {
        return skipped("straingauge is not built beside it: cargo build");
    }
    match std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)) {
        Ok(0) => Some(program),
        _ => skipped("needs root, for namespaces and to sample stacks with BPF"),
    }
}

/// The points on an axis; `None` if this machine does not permit a profile.
fn sweep(axis: &str, values: &str, more: &[&str]) -> Option<Vec<Value>> {
    let program = straingauge()?;
    let folder = tempfile::tempdir().unwrap();
    let (out, port) = (folder.path().join("run"), free_port().to_string());
    let mut command = Command::new(program);
    command.args(["profile", &format!("http://127.0.0.1:{port}/"), "--axis", axis, "--axis-values", values]);
    command.args(["--repeats", "1", "--duration", "600ms", "--budget", "100s", "-q", "--out"]).arg(&out).args(more);
    let output = command.args(["--", PROGRAM, &port]).output().expect("straingauge runs");
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(1) && said.contains("cannot be profiled") {
        let _ = writeln!(std::io::stderr(), "SKIPPED {axis}: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let points = std::fs::read_dir(out.join("points")).unwrap().map(|entry| entry.unwrap().path().join("point.json"));
    let points = points.map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap());
    let mut points: Vec<Value> = points.filter(|point| point["sweep"] == "axis").collect();
    points.sort_by(|a, b| a["axis"]["value"].as_f64().partial_cmp(&b["axis"]["value"].as_f64()).unwrap());
    Some(points)
}

fn value(point: &Value, name: &str) -> f64 {
    point["figures"][name]["value"].as_f64().unwrap_or_else(|| panic!("{name}: {}", point["figures"][name]))
}

fn axis_values(points: &[Value]) -> Vec<f64> {
    points.iter().filter_map(|point| point["axis"]["value"].as_f64()).collect()
}

/// Other work may leave a server too few samples in a short point. Such a point reports it and is left out here.
fn is_sampled(point: &Value) -> bool {
    let Some(why) = point["figures"]["layer.tcp_us_per_packet_sent"]["not_measured"].as_str() else { return true };
    assert!(why.contains("sample"), "{why}");
    false
}

/// Each layer has a cost, and nearly every sent packet is a full segment.
fn is_profiled_by_segments(points: &[Value]) {
    for point in points.iter().filter(|point| is_sampled(point)) {
        let layers = ["user", "system_call", "tcp", "ip", "ethernet", "driver", "other"];
        let cost = |layer: &&str| value(point, &format!("layer.{layer}_us_per_packet_sent"));
        assert!(layers.iter().map(cost).sum::<f64>() > 0.0);
        let sent = value(point, "layer.packets_sent");
        assert_eq!(value(point, "layer.segments_sent"), sent, "a packet is a segment");
        let payload = value(point, "layer.payload_sent_bytes");
        assert!((payload / sent / SEGMENT_BYTES as f64 - 1.0).abs() < 0.2, "{payload} bytes in {sent} packets");
        // A request carries the acknowledgement of the segment before it, or the acknowledgement comes alone.
        let received = value(point, "layer.packets_received") / sent;
        assert!((0.9..2.2).contains(&received), "{received} packets received for each sent");
    }
}

#[test]
fn connections_are_varied_at_a_constant_packet_rate() {
    let Some(points) = sweep("connections", "2,64", &["--rate", "2k"]) else { return };
    assert_eq!(axis_values(&points), [2.0, 64.0]);
    for point in &points {
        assert_eq!(point["connections"].as_f64(), point["axis"]["value"].as_f64());
        assert_eq!(point["pace"]["rate_per_sec"].as_f64(), Some(2000.0), "{}", point["pace"]);
    }
    is_profiled_by_segments(&points);
}

#[test]
fn the_packet_rate_is_varied_over_several_connections() {
    let Some(points) = sweep("rate", "1k,3k", &["--connections", "16"]) else { return };
    assert_eq!(axis_values(&points), [1e3, 3e3]);
    assert!(points.iter().all(|point| point["connections"] == 16));
    is_profiled_by_segments(&points);
}

#[test]
fn the_delay_is_varied_at_a_constant_packet_rate() {
    let Some(points) = sweep("delay", "0ms,5ms", &["--connections", "64", "--rate", "1k"]) else { return };
    assert_eq!(axis_values(&points), [0.0, 5e6]);
    is_profiled_by_segments(&points);
    // No answer comes sooner than a round trip, even on a busy machine.
    assert!(value(&points[1], "client.response_p50_us") > 9_500.0, "a round trip of 10 ms");
}
