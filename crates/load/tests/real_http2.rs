//! HTTP/2 with installed nginx, Apache and Node servers: our counts equal those of the server's log.

use crate::real_servers::started;
use crate::servers::*;
use record::protocol::{Http2Plan, Protocol};
use record::scenario::RequestTarget;
use record::{Arrival, LoadPlan, Pace, TlsPlan};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn http2(streams: u32, address: SocketAddr) -> LoadPlan {
    let protocol = Protocol::Http2(Http2Plan { streams });
    LoadPlan { protocol, threads: 2, connections: 4, ..plan(address) }
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("straingauge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("tmp")).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until a log has `least` lines and does not grow; returns their number.
fn lines(log: &Path, least: u64) -> u64 {
    let count = || std::fs::read_to_string(log).map_or(0, |text| text.lines().count() as u64);
    let begun = Instant::now();
    let mut before = count();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = count();
        if (now == before && now >= least) || begun.elapsed() > Duration::from_secs(10) {
            return now;
        }
        before = now;
    }
}

/// Runs closed and open loops; each request must have a line in the log and a response.
fn counts_equal(log: &Path, plans: &[LoadPlan]) {
    for plan in plans {
        let before = lines(log, 0);
        let result = run(plan);
        let outcomes = result.counts.outcomes;
        assert!(outcomes.ok == outcomes.sent && outcomes.sent > 0, "{outcomes:?} {:?}", result.first_errors);
        assert_eq!(lines(log, before + outcomes.sent) - before, outcomes.sent, "lines in the log; {:?}", plan.protocol);
    }
}

fn plans(address: SocketAddr, path: &str) -> Vec<LoadPlan> {
    let targets = vec![RequestTarget { path: path.into() }, RequestTarget { path: format!("{path}?again") }];
    let open = Pace::Open { rate_per_sec: 1_000.0, arrival: Arrival::Poisson };
    let headers = vec![("X-Long".into(), "x".repeat(3_000)), ("Accept".into(), "*/*".into())];
    vec![
        LoadPlan { targets: vec![RequestTarget { path: path.into() }], ..http2(1, address) },
        LoadPlan { targets, headers, ..http2(20, address) },
        LoadPlan { pace: open, targets: vec![RequestTarget { path: path.into() }], ..http2(10, address) },
    ]
}

fn nginx(test: &str, folder: &Folder, listen: &str) -> Option<crate::real_servers::Program> {
    let path = folder.0.display();
    started(test, "nginx", |port| {
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/tmp/{name};"))
            .concat();
        let config = folder.write(
            "nginx.conf",
            &format!(
                "daemon off; master_process off; pid {path}/pid; error_log {path}/error; events {{}} http {{ {temporary}
                 access_log {path}/log; keepalive_requests 100000; client_max_body_size 10m; root {path};
                 server {{ listen 127.0.0.1:{port} {listen}; location = /post {{ proxy_pass \
                 http://127.0.0.1:{port}/up; }} }} }}"
            ),
        );
        vec!["-c".into(), config, "-e".into(), format!("{path}/error")]
    })
}

#[test]
fn nginx_logs_the_same_requests_in_http_2() {
    let folder = Folder::new("nginx-h2");
    folder.write("page", &"x".repeat(100_000));
    let Some(server) = nginx("nginx_logs_the_same_requests_in_http_2", &folder, "http2") else { return };
    counts_equal(&folder.0.join("log"), &plans(server.address, "/page"));
    let mut plan = http2(3, server.address);
    plan.targets[0].path = "/none".into();
    let found = load::probe(&plan, Duration::from_secs(5)).unwrap();
    assert_eq!(found.status, 404);
    plan.protocol = Protocol::Http;
    let why = load::probe(&plan, Duration::from_secs(5)).unwrap_err().to_string();
    assert!(why.contains("--http2"), "{why}");
}

/// After a limit of requests, nginx ends a connection and refuses the requests in flight beyond it.
#[test]
fn nginx_with_a_request_limit_per_connection_refuses_some() {
    let test = "nginx_with_a_request_limit_per_connection_refuses_some";
    let folder = Folder::new("nginx-goaway");
    folder.write("page", "x");
    let Some(server) = nginx(test, &folder, "http2; keepalive_requests 50") else { return };
    let plan = LoadPlan { targets: vec![RequestTarget { path: "/page".into() }], ..http2(8, server.address) };
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert_eq!(outcomes.ok + outcomes.refused + outcomes.unfinished, outcomes.sent, "{outcomes:?}");
    assert!(outcomes.connects > 4 && outcomes.refused > 0, "{outcomes:?}");
    assert_eq!(lines(&folder.0.join("log"), outcomes.ok), outcomes.ok, "{:?}", result.first_errors);
}

/// A certificate for localhost, made by openssl; `None` if that is missing, with a message.
fn certificate(test: &str, folder: &Folder) -> Option<(String, String)> {
    let (key, certificate) = (folder.write("key", ""), folder.write("certificate", ""));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output();
    if made.is_ok_and(|made| made.status.success()) {
        return Some((key, certificate));
    }
    eprintln!("SKIPPED {test}: openssl makes no certificate");
    None
}

#[test]
fn h2_is_negotiated_over_tls_and_a_server_without_it_is_an_error() {
    let test = "h2_is_negotiated_over_tls_and_a_server_without_it_is_an_error";
    let folder = Folder::new("nginx-tls");
    folder.write("page", &"x".repeat(1_000));
    let Some((key, certificate)) = certificate(test, &folder) else { return };
    let of_tls = format!("ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}");
    let Some(server) = nginx(test, &folder, &of_tls) else { return };
    let secured = |plan: LoadPlan| {
        let tls = TlsPlan {
            server_name: "localhost".into(),
            ca_file: Some(certificate.clone()),
            ca_pem: std::fs::read(&certificate).expect("the certificate that was just made"),
            has_resumption: false,
            is_insecure: false,
        };
        LoadPlan { clients: record::ClientPlan { tls: Some(tls), ..plan.clients.clone() }, ..plan }
    };
    let plans: Vec<LoadPlan> = plans(server.address, "/page").into_iter().map(secured).collect();
    counts_equal(&folder.0.join("log"), &plans);
    drop(server);
    let without = Folder::new("nginx-tls-1");
    let Some(server) = nginx(test, &without, &of_tls.replace(" http2", "")) else { return };
    let plan = secured(http2(1, server.address));
    let why = load::connect_once(&plan, Duration::from_secs(5))
        .and_then(|()| load::probe(&plan, Duration::from_secs(5)).map(drop));
    let why = why.unwrap_err().to_string();
    assert!(why.contains("--http2") && !why.contains('\n'), "{why}");
}

#[test]
fn apache_logs_the_same_requests_in_http_2() {
    let test = "apache_logs_the_same_requests_in_http_2";
    let folder = Folder::new("apache-h2");
    folder.write("page", &"x".repeat(30_000));
    let path = folder.0.display();
    let server = started(test, "apache2", |port| {
        let modules: String = ["mpm_event", "authz_core", "http2"]
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
            .concat();
        let config = folder.write(
            "apache.conf",
            &format!(
                "{modules}Listen 127.0.0.1:{port}\nServerName localhost\nPidFile {path}/pid\nErrorLog {path}/error\n\
                 Protocols h2c\nH2Direct on\nMaxKeepAliveRequests 0\nDocumentRoot {path}\nLogFormat %r line\n\
                 CustomLog {path}/log line\nUser nobody\nGroup nogroup\n<Directory {path}>\nRequire all \
                 granted\n</Directory>\n"
            ),
        );
        // Runs as one process, so that none survives.
        vec!["-f".into(), config, "-X".into()]
    });
    let Some(server) = server else { return };
    counts_equal(&folder.0.join("log"), &plans(server.address, "/page"));
}

const NODE: &str = "
const http2 = require('http2'), fs = require('fs');
const log = fs.openSync(process.argv[3], 'a');
http2.createServer().on('stream', (stream, headers) => {
  let length = 0;
  stream.on('data', (chunk) => length += chunk.length).on('end', () => {
    fs.writeSync(log, length + '\\n');
    stream.respond({ ':status': 201, 'x-length': String(length) }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-checked': 'yes' }));
    stream.end('x'.repeat(20000));
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
";

/// The request bodies exceed a window; the responses have bodies and trailers.
#[test]
fn node_gets_the_bodies_that_were_sent() {
    let test = "node_gets_the_bodies_that_were_sent";
    let folder = Folder::new("node-h2");
    let (script, log) = (folder.write("server.js", NODE), folder.write("log", ""));
    let Some(server) = started(test, "node", |port| vec![script.clone(), port.to_string(), log.clone()]) else {
        return;
    };
    let posting = |plan: LoadPlan| LoadPlan { method: "POST".into(), body: vec![b'b'; 200_000], ..plan };
    let mut plans: Vec<LoadPlan> = vec![http2(1, server.address), posting(http2(5, server.address))];
    plans[1].duration_ns = 600 * MS;
    for plan in &plans {
        let before = lines(log.as_ref(), 0);
        let result = run(plan);
        let outcomes = result.counts.outcomes;
        assert!(outcomes.ok == outcomes.sent && outcomes.sent > 0, "{outcomes:?} {:?}", result.first_errors);
        assert_eq!(result.counts.status_counts, [(201, outcomes.ok)].into());
        assert_eq!(result.counts.body_bytes, 20_000 * outcomes.ok);
        assert_eq!(lines(log.as_ref(), before + outcomes.ok) - before, outcomes.ok, "lines in the log");
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.lines().all(|line| line == "0" || line == "200000"), "every byte of every body");
}
