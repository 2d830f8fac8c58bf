//! The slowest requests of a load: in JSON, in text, and with the ids that the server saw.

use crate::rig::{run, straingauge};
use crate::workers::{from, worker};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Answers every request, and keeps the values of `traceparent`. It lives as long as the tests.
fn traced() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let url = format!("http://{}/", listener.local_addr().expect("a bound listener has an address"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let (Ok(read), notes) = (connection.try_clone(), notes.clone()) else { continue };
            std::thread::spawn(move || {
                for line in BufReader::new(read).lines().map_while(Result::ok) {
                    if let Some(parent) = line.strip_prefix("traceparent: ") {
                        notes.lock().unwrap().push(parent.to_string());
                    }
                    if line.is_empty() && connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    (url, seen)
}

fn slowest(json: &Value) -> Vec<Value> {
    json["point"]["slowest"].as_array().cloned().unwrap_or_else(|| panic!("no slowest requests in {json:#}"))
}

#[test]
fn the_slowest_requests_of_two_clients_have_ids_that_the_server_saw() {
    let (url, seen) = traced();
    let worker = worker();
    let words = [&url, "--traceparent", "--connections", "4", "--duration", "300ms"];
    let json = run(&mut from(&[&worker, &worker], &words)).exits_with(0).json();
    let requests = slowest(&json);
    assert_eq!(requests.len(), 20, "{json:#}");
    let times: Vec<u64> = requests.iter().filter_map(|request| request["response_ns"].as_u64()).collect();
    assert!(times.len() == 20 && times.is_sorted_by(|one, next| one >= next), "{times:?}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len(), "an id came twice");
    for request in &requests {
        let id = request["trace_id"].as_str().expect("a trace id");
        assert!(seen.contains(&format!("00-{id}-{}-01", &id[16..])), "{request}");
        let client = request["client"].as_str().unwrap_or_default();
        assert!(["client 1 (", "client 2 ("].iter().any(|name| client.starts_with(name)), "{request}");
    }
}

#[test]
fn the_whole_text_lists_the_slowest_requests() {
    let (url, seen) = traced();
    let load = |more: &[&str]| {
        run(straingauge(["load", &url, "--warmup", "0s", "--duration", "200ms", "--full", "--quiet"]).args(more))
            .exits_with(0)
            .out
    };
    let (plain, ids) = (load(&[]), load(&["--traceparent", "--rate", "500"]));
    let is_listed = |id: &String| ids.contains(&id[3..35]);
    assert!(plain.contains("Slowest requests") && !plain.contains("trace id"), "{plain}");
    assert!(ids.contains("trace id") && seen.lock().unwrap().iter().any(is_listed), "{ids}");
}
