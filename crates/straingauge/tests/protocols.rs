//! HTTP/2, Redis, memcached and raw TCP, with servers that straingauge starts.

use crate::rig::{free_port, is_root, member, program, run, run_record, skip_unless, skipped, straingauge};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;

fn count(json: &Value, name: &str) -> u64 {
    member(json, "outcomes")[name].as_u64().unwrap_or_else(|| panic!("no count '{name}' in {json:#}"))
}

const SHORT: [&str; 7] = ["--connections", "2", "--warmup", "0s", "--duration", "300ms", "--quiet"];

#[test]
fn redis_is_loaded_with_a_password_that_is_never_shown() {
    let Some(redis) = program("redis-server") else { return skipped("there is no redis-server") };
    let (port, kept) = (free_port().to_string(), tempfile::tempdir().expect("a folder"));
    let (url, out) = (format!("redis://:hush-hush@127.0.0.1:{port}/1"), kept.path().join("run"));
    let mut command = straingauge(["load", &url, "--in-flight", "4", "--keys", "100,reads=50%"]);
    command.args(SHORT).arg("--out").arg(&out).args(["--json", "--isolate", "never", "--"]).arg(redis);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--requirepass", "hush-hush"]);
    let said = run(&mut command).exits_with(0);
    let json = said.json();
    let (ok, replies) = (count(&json, "ok"), member(&json, "reply_counts"));
    assert!(ok > 0 && count(&json, "non_2xx") == 0, "{json:#}");
    assert_eq!(replies["answer"].as_u64().unwrap_or(0) + replies["null"].as_u64().unwrap_or(0), ok, "{json:#}");
    let record = run_record(&out);
    let scenario = &record["scenario"];
    assert_eq!(scenario["load"]["protocol"]["name"], "redis", "{record:#}");
    // straingauge must not change the server's own arguments.
    for place in [&scenario["url"], &scenario["load"]] {
        assert!(!place.to_string().contains("hush"), "{place:#}");
    }
    let repeat = scenario["repeat_command"].as_str().expect("a command");
    assert!(repeat.contains("redis://:***@127.0.0.1") && !said.err.contains("hush"), "{repeat}");
}

#[test]
fn redis_in_protected_mode_is_recognised() {
    let Some(redis) = program("redis-server") else { return skipped("there is no redis-server") };
    skip_unless!(is_root(), "needs root, to make network namespaces");
    let port = free_port().to_string();
    for command in ["load", "find"] {
        let mut asked = straingauge([command, &format!("redis://127.0.0.1:{port}"), "--duration", "100ms", "--"]);
        asked.arg(&redis).args(["--port", &port, "--save", ""]);
        run(&mut asked).exits_with(1).complains_of(&["--protected-mode no"]);
    }
}

#[test]
fn a_wrong_password_is_reported_before_any_load() {
    let Some(redis) = program("redis-server") else { return skipped("there is no redis-server") };
    let port = free_port().to_string();
    let mut command =
        straingauge(["load", &format!("redis://:not-it@127.0.0.1:{port}"), "--duration", "1h", "--isolate", "never"]);
    command.args(["--quiet", "--"]).arg(redis).args([
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--requirepass",
        "hush-hush",
    ]);
    let said = run(&mut command).exits_with(1).complains_of(&[
        "refused the opening",
        "WRONGPASS",
        "check the user, the password",
    ]);
    assert!(!said.err.contains("not-it"), "{}", said.err);
}

#[test]
fn memcached_shows_misses_and_counts_them_as_answers() {
    let Some(memcached) = program("memcached") else { return skipped("there is no memcached") };
    let port = free_port().to_string();
    let mut command = straingauge(["load", &format!("memcached://127.0.0.1:{port}"), "--keys", "reads=100%"]);
    command.args(SHORT).args(["--json", "--isolate", "never", "--"]).arg(memcached);
    command.args(["-p", &port, "-U", "0", "-l", "127.0.0.1", "-u", "nobody"]);
    let json = run(&mut command).exits_with(0).json();
    let ok = count(&json, "ok");
    assert!(ok > 0, "{json:#}");
    assert_eq!(member(&json, "reply_counts")["miss"].as_u64(), Some(ok), "{json:#}");
}

/// A server that answers each line with a line.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn typed_tcp_bytes_are_also_sent_through_workers() {
    let url = format!("tcp://127.0.0.1:{}", echo());
    let ours = straingauge::<&str>([]).get_program().to_string_lossy().into_owned();
    for client in [None, Some(format!("'{ours}' load --worker"))] {
        let mut command = straingauge(["load", &url, "--send", r"\x03ping\n", "--expect", "6", "--in-flight", "3"]);
        command.args(SHORT).arg("--json").args(client.iter().flat_map(|client| ["--client", client]));
        let json = run(&mut command).exits_with(0).json();
        let ok = count(&json, "ok");
        assert!(ok > 0, "{json:#}");
        assert_eq!(member(&json, "client.received_bytes")["value"].as_f64(), Some(6.0 * ok as f64), "{json:#}");
    }
}

#[test]
fn options_of_another_protocol_are_refused_in_one_sentence() {
    for (arguments, words) in [
        (&["redis://127.0.0.1:1", "--method", "PUT"][..], "--method is for HTTP, not for redis"),
        (&["memcached://127.0.0.1:1", "--mix", "webstone"], "--mix is for HTTP"),
        (&["tcp://127.0.0.1:1", "--send", "x", "--read-rate", "9"], "--read-rate is for HTTP"),
        (&["redis://127.0.0.1:1", "--tls", "insecure"], "rediss"),
        (&["http://127.0.0.1:1", "--in-flight", "2"], "--in-flight does not apply to HTTP/1.1"),
        (&["http://127.0.0.1:1", "--http2", "--in-flight", "0"], "--in-flight 0"),
        (&["redis://127.0.0.1:1", "--keys", "meta"], "for memcached:// URLs"),
        (
            &["http://127.0.0.1:1", "--http2", "--set", "clients.close-first=client"],
            "close-first of [clients] is for HTTP/1.1",
        ),
        (&["http://127.0.0.1:1", "--grpc", "a.B/C", "--mix", "surge"], "--mix does not apply to gRPC"),
        (&["http://127.0.0.1:1", "--grpc", "a.B"], "package.Service/Method"),
        (&["http://127.0.0.1:1", "--grpc", "a.B/C", "--method", "PUT"], "--method does not apply to gRPC"),
        (&["redis://127.0.0.1:1", "--http2"], "--http2 is for http:// and https://"),
        (&["tcp://127.0.0.1:1"], "--send"),
        (&["redis://127.0.0.1:1", "--keys", "zipf=-1"], "Zipf"),
    ] {
        let said = run(straingauge(["load"]).args(arguments)).exits_with(if words == "Zipf" { 1 } else { 2 });
        assert!(said.err.contains(words) && said.err.trim_end().lines().count() == 1, "{}", said.err);
    }
}

#[test]
fn http_2_with_several_streams_also_works_through_workers() {
    let Some(nginx) = program("nginx") else { return skipped("there is no nginx") };
    let ours = straingauge::<&str>([]).get_program().to_string_lossy().into_owned();
    for client in [None, Some(format!("'{ours}' load --worker"))] {
        let (port, kept) = (free_port(), tempfile::tempdir().expect("a folder"));
        let (path, out) = (kept.path().display(), kept.path().join("run"));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name};"))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error; events {{}} http {{ {temporary} \
             access_log off; keepalive_requests 100000; server {{ listen 127.0.0.1:{port} http2; location / {{ return \
             200 hello; }} }} }}"
        );
        let file = kept.path().join("nginx.conf");
        std::fs::write(&file, config).expect("our own folder");
        let mut command = straingauge(["load", &format!("http://127.0.0.1:{port}/"), "--http2", "--in-flight", "5"]);
        command.args(SHORT).arg("--out").arg(&out).args(["--json", "--isolate", "never"]);
        command.args(client.iter().flat_map(|client| ["--client", client])).arg("--").arg(&nginx);
        command.arg("-c").arg(&file).arg("-e").arg(kept.path().join("error"));
        let json = run(&mut command).exits_with(0).json();
        let ok = count(&json, "ok");
        assert!(ok > 0 && ok == count(&json, "sent"), "{json:#}");
        assert_eq!(member(&json, "status_counts")["200"].as_u64(), Some(ok), "{json:#}");
        let protocol = &run_record(&out)["scenario"]["load"]["protocol"];
        assert_eq!((&protocol["name"], &protocol["streams"]), (&"http2".into(), &5.into()), "{protocol:#}");
    }
}

#[test]
fn find_refuses_a_server_of_another_protocol_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    for (url, options) in [(format!("redis://{address}"), &[][..]), (format!("http://{address}"), &["--http2"])] {
        let kept = tempfile::tempdir().expect("a folder");
        let mut command = straingauge(["find", &url, "--budget", "5s", "--quiet"]);
        let said = run(command.args(options).arg("--out").arg(kept.path().join("run"))).exits_with(1);
        assert!(said.err.contains("answered HTTP"), "{}", said.err);
    }
}
