//! Metrics of watch, load and find during the run, read by Prometheus' own programs, and sent to an OpenTelemetry
//! collector in OTLP's JSON form.

use crate::rig::{Running, free_port, needs_server, open_dir, run, skipped, straingauge};
use crate::server::{Kind, Server};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

/// Head and body of the answer to a request line with this `Accept`; empty if nothing listens yet.
fn get(address: &str, line: &str, accept: &str) -> (String, String) {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = stream.write_all(format!("{line}\r\nHost: x\r\nAccept: {accept}\r\n\r\n").as_bytes());
        let _ = stream.read_to_string(&mut text);
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_string(), body.to_string())
}

fn body(address: &str, accept: &str) -> String {
    get(address, "GET /metrics HTTP/1.1", accept).1
}

/// The value of the first sample whose name and labels begin like this.
fn value(body: &str, begin: &str) -> Option<f64> {
    body.lines().find(|line| line.starts_with(begin))?.rsplit_once(' ')?.1.parse().ok()
}

/// Runs a program that reads a page and must accept it.
fn is_read_by(command: &mut Command, page: &str) {
    let mut reader =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    reader.stdin.take().expect("piped").write_all(page.as_bytes()).expect("it reads");
    let output = reader.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}\ncomplains of:\n{page}", String::from_utf8_lossy(&output.stderr));
}

/// Checks both formats of an endpoint with the parsers of Prometheus' Python library.
fn check_formats(address: &str) {
    let (head, text) = get(address, "GET /metrics HTTP/1.1", "*/*");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    let (head, open) = get(address, "GET /metrics HTTP/1.1", OPEN_METRICS);
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    let parser = |module: &str| {
        format!(
            "import sys; from {module} import text_string_to_metric_families as read; assert \
             list(read(sys.stdin.read()))"
        )
    };
    let has_library = |python: &&str| {
        let tried = Command::new(python).args(["-c", "import prometheus_client"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    match ["python3", "/usr/bin/python3"].into_iter().find(has_library) {
        Some(python) => {
            is_read_by(Command::new(python).args(["-c", &parser("prometheus_client.parser")]), &text);
            is_read_by(Command::new(python).args(["-c", &parser("prometheus_client.openmetrics.parser")]), &open);
        }
        None => {
            skipped("python3-prometheus-client is not installed (setup/install test): it does not read the formats")
        }
    }
}

#[test]
fn a_watch_serves_its_metrics_in_both_formats() {
    needs_server!(Kind::Nginx);
    let (server, address) = (Server::start(Kind::Nginx), format!("127.0.0.1:{}", free_port()));
    let mut command =
        straingauge(["watch", &format!(":{}", server.port), "--metrics", &address, "--interval", "100ms"]);
    let mut running = Running::start(&mut command);
    running.wait_until("a page", || body(&address, "*/*").contains("straingauge_connections"));
    let page = body(&address, "*/*");
    let listening =
        format!("straingauge_connections{{server_port=\"{}\",network_connection_state=\"listen\"}}", server.port);
    assert!(value(&page, &listening).is_some_and(|count| count >= 1.0), "{page}");
    check_formats(&address);
    assert!(get(&address, "GET /other HTTP/1.1", "*/*").0.starts_with("HTTP/1.1 404"));
    assert!(!body(&address, "\u{0}nonsense;q=;,").is_empty());
    assert!(!get(&address, "\u{0}nonsense", "*/*").1.contains("straingauge_"));
    running.signal(libc::SIGINT);
    running.wait().exits_with(0);
}

#[test]
fn a_load_serves_its_metrics_while_it_runs() {
    needs_server!(Kind::Nginx);
    let (server, address) = (Server::start(Kind::Nginx), format!("127.0.0.1:{}", free_port()));
    let url = server.url("128.bin");
    let words = ["load", &url, "-c", "2", "--warmup", "10ms", "-d", "200s", "--detail", "off", "--metrics", &address];
    let mut running = Running::start(&mut straingauge(words));
    let labels = format!("{{server_address=\"127.0.0.1\",server_port=\"{}\"}}", server.port);
    let now = |name: &str| value(&body(&address, "*/*"), &format!("{name}{labels}")).unwrap_or(0.0);
    running.wait_until("responses", || now("straingauge_load_responses_total") > 0.0);
    assert_eq!((now("straingauge_load_connections"), now("http_client_open_connections")), (2.0, 2.0));
    let before = now("straingauge_load_responses_total");
    running.wait_until("more responses", || now("straingauge_load_responses_total") > before);
    check_formats(&address);
    running.signal(libc::SIGINT);
    running.wait().exits_with(130);
}

#[test]
fn a_find_serves_the_figures_of_its_last_point() {
    needs_server!(Kind::Nginx);
    let (server, address, dir) = (Server::start(Kind::Nginx), format!("127.0.0.1:{}", free_port()), open_dir());
    let (url, out) = (server.url("128.bin"), dir.path().join("run"));
    let out = out.to_str().expect("temporary paths are text");
    let words =
        ["find", &url, "--budget", "200s", "--max-connections", "4", "-d", "200ms", "--detail", "off", "--out", out];
    let mut running = Running::start(straingauge(words).args(["--metrics", &address]));
    let page = || body(&address, "*/*");
    running.wait_until("two points", || value(&page(), "straingauge_load_points_total{").is_some_and(|n| n >= 2.0));
    let page = page();
    check_formats(&address);
    running.signal(libc::SIGINT);
    running.wait().exits_with(130);
    for name in ["straingauge_figure{", "http_client_request_duration_seconds_count{", "straingauge_doubts{"] {
        assert!(value(&page, name).is_some(), "{name} is not in {page}");
    }
    assert!(page.contains("name=\"client.response_p99_us\",unit=\"us\"}"), "{page}");
}

/// A collector that keeps the metrics of each request.
fn collector() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Arc::clone(&kept);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let (mut head, mut line) = (String::new(), String::new());
            while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                head.push_str(&std::mem::take(&mut line).to_ascii_lowercase());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            let Some(length) = length else { continue };
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            assert!(head.starts_with("post /v1/metrics http/1.1"), "{head}");
            assert!(head.contains("content-type: application/json"), "{head}");
            let request: Value = serde_json::from_slice(&body).expect("a request of OTLP");
            let resource = &request["resourceMetrics"][0];
            assert_eq!(resource["resource"]["attributes"][0]["key"], "service.name");
            keeper.lock().expect("no panic").push(resource["scopeMetrics"][0]["metrics"].clone());
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            reader.get_mut().write_all(answer).expect("an answer");
        }
    });
    (endpoint, kept)
}

/// The data of a metric of this kind.
fn of<'a>(metrics: &'a Value, name: &str, kind: &str) -> &'a Value {
    let metric = metrics.as_array().expect("a list").iter().find(|metric| metric["name"] == name);
    let data = metric.and_then(|metric| metric.get(kind));
    data.unwrap_or_else(|| panic!("no {kind} {name} in {metrics:#}"))
}

/// A 64-bit integer, which is a string in the JSON form.
fn integer(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is no integer of 64 bits"))
}

#[test]
fn a_collector_gets_the_metrics_of_a_load_and_its_end() {
    needs_server!(Kind::Nginx);
    let (server, (endpoint, kept)) = (Server::start(Kind::Nginx), collector());
    let url = server.url("128.bin");
    let words = ["load", &url, "-c", "2", "--warmup", "10ms", "-d", "300ms", "--detail", "off", "--json"];
    let said = run(straingauge(words).args(["--metrics", &endpoint])).exits_with(0).json();
    let last = kept.lock().expect("no panic").pop().expect("it has sent metrics");
    let points = of(&last, "straingauge.load.points", "sum");
    assert!(points["isMonotonic"] == true && points["aggregationTemporality"] == 2, "{points:#}");
    let point = &points["dataPoints"][0];
    assert_eq!(point["asDouble"], 1.0);
    let (start, end) = (integer(&point["startTimeUnixNano"]), integer(&point["timeUnixNano"]));
    assert!(start > 0 && start <= end, "{point:#}");
    let attributes = point["attributes"].as_array().expect("a list");
    let port = attributes.iter().find(|attribute| attribute["key"] == "server.port").expect("the port");
    assert_eq!(integer(&port["value"]["intValue"]), u64::from(server.port));
    let times = &of(&last, "http.client.request.duration", "histogram")["dataPoints"][0];
    let counts = times["bucketCounts"].as_array().expect("a list");
    assert_eq!(counts.len(), times["explicitBounds"].as_array().expect("a list").len() + 1);
    assert_eq!(counts.iter().map(integer).sum::<u64>(), integer(&times["count"]));
    let responses = &said["point"]["outcomes"];
    let complete = responses["ok"].as_u64().expect("a count") + responses["non_2xx"].as_u64().expect("a count");
    assert_eq!(integer(&times["count"]), complete, "every complete response of the window is in a bucket");
    let figures = of(&last, "straingauge.figure", "gauge")["dataPoints"].as_array().expect("a list");
    assert!(figures.len() > 20, "{figures:#?}");
}

#[test]
fn a_collector_gets_the_metrics_of_a_watch() {
    needs_server!(Kind::Nginx);
    let (server, (endpoint, kept)) = (Server::start(Kind::Nginx), collector());
    let port = format!(":{}", server.port);
    run(&mut straingauge(["watch", &port, "-d", "300ms", "--interval", "100ms", "--metrics", &endpoint])).exits_with(0);
    let last = kept.lock().expect("no panic").pop().expect("it has sent metrics");
    let states = of(&last, "straingauge.connections", "sum");
    assert!(states["isMonotonic"] == false && states["dataPoints"][0].is_object(), "{states:#}");
}

#[test]
fn an_unreachable_collector_is_reported_in_one_sentence_and_measuring_continues() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let url = server.url("128.bin");
    let load = |endpoint: &str| {
        let words =
            ["load", &url, "-c", "1", "--warmup", "10ms", "-d", "100ms", "--detail", "off", "--metrics", endpoint];
        run(&mut straingauge(words))
    };
    let nobody = format!("http://127.0.0.1:{}", free_port());
    load(&nobody).exits_with(0).complains_of(&[&nobody, "/v1/metrics", "measuring continues"]);
    for (endpoint, word) in [("https://127.0.0.1:4318", "TLS"), ("http://", "--metrics")] {
        load(endpoint).exits_with(2).complains_of(&["--metrics", word]);
    }
    let words = ["find", &url, "--compare-with", "scale", "--metrics", &nobody, "--", "true"];
    let said = run(&mut straingauge(words)).exits_with(2);
    assert!(said.err.contains("--metrics") && said.err.contains("--compare-with"), "{}", said.err);
}
