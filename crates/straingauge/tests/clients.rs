//! Kinds of clients on real servers: slow ones, closing order, TLS.

use crate::rig::{Said, free_port, member, needs_server, open_dir, program, run, skip_unless, straingauge};
use crate::server::{Kind, Server};
use crate::workers::worker;
use serde_json::Value;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn count(json: &Value, name: &str) -> u64 {
    member(json, "outcomes")[name].as_u64().unwrap_or_else(|| panic!("no count '{name}' in {json:#}"))
}

fn figure(json: &Value, name: &str) -> f64 {
    member(json, name)["value"].as_f64().unwrap_or_else(|| panic!("no '{name}' in {json:#}"))
}

#[test]
fn a_slow_client_holds_the_server_as_a_slow_link_does() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let mut command = straingauge(["load", &server.url("100k.bin"), "--connections", "3", "--read-rate", "100k"]);
    command.args(["--warmup", "0s", "--duration", "2s", "--threads", "1", "--json", "--quiet"]);
    let json = run(&mut command).exits_with(0).json();
    assert!(count(&json, "ok") >= 3, "{json:#}");
    // 100 kB at 100 kB/s: even a slow machine does not take longer for the rest.
    assert!(figure(&json, "client.response_p50_us") > 750_000.0, "{json:#}");
    assert!(figure(&json, "client.connection_bits_per_sec") <= 900_000.0, "{json:#}");
    // The engine's thread rests between reads.
    assert!(figure(&json, "client.cpu_utilisation_ratio") < 0.5, "{json:#}");
}

/// Sockets in TIME_WAIT on this local port (the server's side), and on this remote port (the client's).
fn time_wait(port: u16) -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/net/tcp").expect("the kernel lists its sockets");
    let suffix = format!(":{port:04X}");
    let waiting = |column: usize| {
        text.lines()
            .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
            .filter(|words| words.len() > 3 && words[3] == "06" && words[column].ends_with(&suffix))
            .count()
    };
    (waiting(1), waiting(2))
}

#[test]
fn the_side_that_closes_first_keeps_the_time_wait() {
    needs_server!(Kind::Nginx);
    for (who, on_server) in [("server", true), ("client", false)] {
        let server = Server::start(Kind::Nginx);
        let mut command = straingauge(["load", &server.url("128.bin"), "--connections", "2"]);
        command.args(["--set", &format!("clients.close-first={who}")]);
        command.args(["--requests-per-connection", "1", "--warmup", "0s", "--duration", "300ms", "--json", "--quiet"]);
        let json = run(&mut command).exits_with(0).json();
        let ok = count(&json, "ok");
        assert!(ok > 0, "{json:#}");
        let (servers, clients) = time_wait(server.port);
        let (kept, other) = if on_server { (servers, clients) } else { (clients, servers) };
        // The kernel may reuse a client's port after a second, so some sockets on that side are gone.
        assert!(kept > other, "{who} first, {ok} requests: {servers} on the server's side, {clients} on the client's");
    }
}

/// Number of the machine's CPUs.
fn cpus() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

#[test]
fn an_overloaded_client_abandons_attempts_and_keeps_its_schedule() {
    use std::os::fd::AsRawFd;
    // No thread accepts, and the queue holds one connection, so the kernel drops nearly every attempt.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    // SAFETY: no pointers; listening again only changes the queue's length.
    unsafe { libc::listen(listener.as_raw_fd(), 1) };
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let mut command = straingauge(["load", &url, "--rate", "500", "--arrival", "constant", "--connections", "400"]);
    command.args(["--requests-per-connection", "1", "--set", "load.connect-timeout=100ms", "--timeout", "300ms"]);
    command.args(["--warmup", "0s", "--duration", "1s", "--threads", "1", "--json", "--quiet"]);
    let said: Said = run(&mut command);
    let json = said.json();
    assert_eq!(count(&json, "sent"), 500, "the schedule holds: {json:#}");
    // On a busy machine the client checks the clock late, so some attempts are unfinished instead of given up.
    let given_up = count(&json, "connect_timed_out");
    let accounted: u64 = ["connect_timed_out", "timed_out", "unfinished"].iter().map(|what| count(&json, what)).sum();
    let others = figure(&json, "machine.other_cpus_used") + cpus() * figure(&json, "machine.cpu_steal_ratio");
    let at_least = if others < cpus() / 2.0 { 450 } else { 1 };
    assert!(given_up >= at_least && accounted == 500, "other work has {others} CPUs: {json:#}");
    assert_eq!(count(&json, "local_limit"), 0, "no port or descriptor ran out: {json:#}");
}

/// nginx with TLS, and a certificate of the test's own authority.
pub struct SecureServer {
    child: Child,
    port: u16,
    state: TempDir,
}

fn in_dir(dir: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(dir).output().expect("openssl starts");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl SecureServer {
    pub fn start(name: &str) -> SecureServer {
        let state = open_dir();
        let dir = state.path();
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let ca = ["req", "-x509", "-days", "2", "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem"];
        in_dir(dir, &[&ca[..], &key[..]].concat());
        let subject = format!("/CN={name}");
        let request = ["req", "-subj", &subject, "-keyout", "key.pem", "-out", "request.pem"];
        in_dir(dir, &[&request[..], &key[..]].concat());
        let alternative = if name.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
        std::fs::write(dir.join("names"), format!("subjectAltName={alternative}:{name}\n")).expect("our own folder");
        let sign = ["x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        in_dir(dir, &[&sign[..], &["-days", "2", "-extfile", "names", "-out", "cert.pem"]].concat());
        std::fs::write(dir.join("1k.bin"), vec![b'x'; 1000]).expect("our own folder");
        let port = free_port();
        let at = dir.display();
        let text = format!(
            "daemon off; master_process off; worker_processes 1; error_log {at}/error.log; pid {at}/pid;\n\
             events {{ worker_connections 512; }}\n\
             http {{ log_format counts '$status $bytes_sent'; access_log {at}/access.log counts; root {at};\n\
             client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; \
             scgi_temp_path {at}/s;\nkeepalive_requests 100000; ssl_session_cache shared:s:1m;\n\
             server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {at}/cert.pem; ssl_certificate_key \
             {at}/key.pem; }} }}\n"
        );
        std::fs::write(dir.join("nginx.conf"), text).expect("our own folder");
        let mut command = Command::new(program("nginx").expect("looked for before"));
        command.arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("error.log"));
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().expect("nginx starts");
        let server = SecureServer { child, port, state };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let said = std::fs::read_to_string(server.state.path().join("error.log")).unwrap_or_default();
            assert!(started.elapsed() < Duration::from_secs(60), "nginx does not accept: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    pub fn ca(&self) -> PathBuf {
        self.state.path().join("ca.pem")
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/1k.bin", self.port)
    }

    /// Ends nginx; returns the number of responses in its log, and their bytes with headers.
    pub fn end_and_count(mut self) -> (u64, u64) {
        // SAFETY: kill takes no pointers; the child is ours and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGQUIT) };
        let _ = self.child.wait();
        let text = std::fs::read_to_string(self.state.path().join("access.log")).expect("the access log is there");
        let bytes = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum();
        (text.lines().filter(|line| line.starts_with("200 ")).count() as u64, bytes)
    }
}

impl Drop for SecureServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

macro_rules! needs_tls {
    () => {
        needs_server!(Kind::Nginx);
        skip_unless!(program("openssl").is_some(), "openssl is not installed (apt-get install openssl)");
    };
}

/// The value of `--tls` that trusts a file.
fn trusting(authority: &Path) -> String {
    format!("ca={}", authority.display())
}

fn put_tls_load(server: &SecureServer, more: &[&str]) -> Value {
    let mut command = straingauge(["load", &server.url(), "--tls", &trusting(&server.ca())]);
    command.args(["--warmup", "0s", "--duration", "500ms", "--threads", "1", "--json", "--quiet"]);
    run(command.args(more)).exits_with(0).json()
}

#[test]
fn requests_over_tls_are_counted_as_the_server_counts_them() {
    needs_tls!();
    for more in
        [&["--connections", "5"][..], &["--connections", "5", "--requests-per-connection", "3"], &["--rate", "300"]]
    {
        let server = SecureServer::start("127.0.0.1");
        let json = put_tls_load(&server, more);
        let (logged, logged_bytes) = server.end_and_count();
        let (ok, sent, unfinished) = (count(&json, "ok"), count(&json, "sent"), count(&json, "unfinished"));
        assert!(ok > 0, "{more:?}: {json:#}");
        assert_eq!(ok + unfinished, sent, "nothing failed: {more:?} {json:#}");
        assert!(logged >= ok && logged <= sent, "{more:?}: {logged} logged, {ok} ok, {sent} sent");
        if unfinished == 0 {
            assert_eq!(figure(&json, "client.received_bytes"), logged_bytes as f64, "{more:?}");
        }
        assert!(figure(&json, "client.tls_handshake_p50_us") > 0.0);
        if ok > 200 {
            let reap = &json["point"]["figures"]["client.reap_p99_us"];
            assert!(reap["n"].as_u64() >= Some(1) && reap["origin"] == "sampled", "{more:?}: {reap}");
        }
    }
}

#[test]
fn sessions_are_resumed_on_request_only() {
    needs_tls!();
    let each = ["--connections", "2", "--requests-per-connection", "1"];
    let server = SecureServer::start("127.0.0.1");
    let on = put_tls_load(&server, &each);
    assert!(figure(&on, "client.tls_resumed_ratio") > 0.5, "{on:#}");
    assert!(figure(&on, "client.tls_handshakes_per_sec") > 0.0, "{on:#}");
    let off = put_tls_load(&server, &[&each[..], &["--tls", "no-resumption"]].concat());
    assert_eq!(figure(&off, "client.tls_resumed_ratio"), 0.0, "{off:#}");
}

/// Handshakes are the requests: nginx counts connections and sees no requests except those for its counts.
#[test]
fn mere_handshakes_are_counted_as_the_server_counts_them() {
    needs_tls!();
    let server = SecureServer::start("127.0.0.1");
    let json =
        put_tls_load(&server, &["--connections", "4", "--requests-per-connection", "0", "--tls", "no-resumption"]);
    let (ok, sent) = (count(&json, "ok"), count(&json, "sent"));
    assert!(ok > 0 && ok == sent && count(&json, "connects") >= ok, "{json:#}");
    assert_eq!(json["reply_counts"]["connected"].as_u64(), Some(ok), "{json:#}");
    assert_eq!(figure(&json, "client.tls_resumed_ratio"), 0.0, "{json:#}");
    assert_eq!(server.end_and_count().0, 0, "no request was logged");
    let wrong = ["load", "https://127.0.0.1:1/", "--requests-per-connection", "0", "--method", "PUT"];
    let refused = run(&mut straingauge(wrong)).exits_with(2);
    refused.complains_of(&["--method needs requests, but --requests-per-connection 0 sends none"]);
}

#[test]
fn a_slow_client_reads_over_tls_at_its_pace() {
    needs_tls!();
    let server = SecureServer::start("127.0.0.1");
    std::fs::write(server.state.path().join("20k.bin"), vec![b'x'; 20_000]).expect("our own folder");
    // Two streams share the pace of their connection.
    for more in [&["--read-rate", "40k"][..], &["--read-rate", "80k", "--http2", "--in-flight", "2"]] {
        let mut command =
            straingauge(["load", &server.url().replace("1k.bin", "20k.bin"), "--tls", &trusting(&server.ca())]);
        command.args(["--connections", "3", "--threads", "1"]).args(more);
        command.args(["--warmup", "0s", "--duration", "1500ms", "--json", "--quiet"]);
        let json = run(&mut command).exits_with(0).json();
        let (ok, sent, unfinished) = (count(&json, "ok"), count(&json, "sent"), count(&json, "unfinished"));
        assert!(ok >= 3, "{json:#}");
        assert_eq!(ok + unfinished, sent, "nothing failed: {json:#}");
        // 20 kB at 40 kB/s, of which a tenth of a second comes at once: a lower bound on any machine.
        assert!(figure(&json, "client.response_p50_us") > 300_000.0, "{json:#}");
    }
}

#[test]
fn a_log_is_replayed_over_tls() {
    needs_tls!();
    let server = SecureServer::start("127.0.0.1");
    let log = server.state.path().join("asked.log");
    let lines: String = (0..200)
        .map(|number| {
            let (client, second, name) =
                (number % 20, number / 100, if number % 4 == 3 { "gone.bin" } else { "1k.bin" });
            let status = if number % 4 == 3 { 404 } else { 200 };
            format!(
                "10.0.0.{client} - - [01/Jan/2026:00:00:{second:02} +0000] \"GET /{name} HTTP/1.1\" {status} 1000\n"
            )
        })
        .collect();
    std::fs::write(&log, lines).expect("our own folder");
    for http_2 in [None, Some("--http2")] {
        let url = server.url();
        let url = url.trim_end_matches("/1k.bin");
        let mut command = straingauge(["load", url, "--tls", &trusting(&server.ca())]);
        command.arg("--trace").arg(&log).args(["--speed", "max", "--connections", "8"]);
        let json = run(command.args(["--json", "--quiet"]).args(http_2)).exits_with(0).json();
        assert_eq!((count(&json, "sent"), count(&json, "ok"), count(&json, "non_2xx")), (200, 200, 0), "{json:#}");
        assert!(figure(&json, "client.tls_handshake_p50_us") > 0.0);
    }
    let (logged, _) = server.end_and_count();
    assert_eq!(logged, 2 * 150, "as nginx counts them");
}

/// A proxy for a TLS server. It passes on the first connection that sends anything (the check before the load); on
/// all others it does not speak TLS.
#[test]
fn failed_tls_handshakes_under_load_are_counted() {
    use std::io::{Read, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    needs_tls!();
    let server = SecureServer::start("127.0.0.1");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("https://127.0.0.1:{}/1k.bin", listener.local_addr().expect("bound").port());
    let behind = server.port;
    let was_first = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut client), was_first) = (stream, was_first.clone()) else { return };
            std::thread::spawn(move || {
                let mut hello = [0; 4096];
                let Ok(length @ 1..) = client.read(&mut hello) else { return };
                if was_first.swap(true, Ordering::SeqCst) {
                    let _ = client.write_all(b"this is not TLS, and never will be");
                    return;
                }
                let mut server = TcpStream::connect(("127.0.0.1", behind)).expect("nginx accepts");
                server.write_all(&hello[..length]).expect("nginx reads");
                let (mut from, mut to) = (client.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
                let _ = std::io::copy(&mut server, &mut client);
            });
        }
    });
    let mut command = straingauge(["load", &url, "--tls", &trusting(&server.ca())]);
    command.args(["--warmup", "0s", "--duration", "300ms", "--connections", "2", "--json", "--quiet"]);
    let json = run(&mut command).json();
    assert!(count(&json, "tls_failed") > 0, "{json:#}");
    assert_eq!(count(&json, "sent"), count(&json, "tls_failed") + count(&json, "unfinished"), "{json:#}");
}

#[test]
fn an_untrusted_certificate_is_reported_in_one_clear_sentence() {
    needs_tls!();
    let server = SecureServer::start("127.0.0.1");
    let other = SecureServer::start("example.test");
    let load =
        |url: &str, more: &[&str]| run(straingauge(["load", url, "--duration", "50ms", "--warmup", "0s"]).args(more));
    let path = |path: PathBuf| trusting(&path);
    load(&server.url(), &["--tls", &path(other.ca())]).exits_with(1).complains_of(&["certificate", "--tls ca="]);
    load(&other.url(), &["--tls", &path(other.ca())]).exits_with(1).complains_of(&["another name"]);
    load(&other.url(), &["--tls", "insecure", "--quiet"]).exits_with(0);
    // The server's own certificate as `ca=`: it needs no signature, but the right name.
    let own = |server: &SecureServer| path(server.state.path().join("cert.pem"));
    load(&server.url(), &["--tls", &own(&server), "--quiet"]).exits_with(0);
    load(&server.url(), &["--tls", &own(&other)]).exits_with(1).complains_of(&["not signed by", "--tls ca="]);
    load(&other.url(), &["--tls", &own(&other)]).exits_with(1).complains_of(&["another name"]);
    let key = server.state.path().join("key.pem");
    load(&server.url(), &["--tls", &path(key)]).complains_of(&["--tls ca=", "certificate"]);
    load(&server.url().replace("https", "http"), &["--tls", "insecure"])
        .exits_with(2)
        .complains_of(&["--tls", "https"]);
    let plain = Server::start(Kind::Nginx);
    load(&plain.url("128.bin").replace("http", "https"), &["--tls", "insecure"])
        .exits_with(1)
        .complains_of(&["TLS", "plain http"]);
}

#[test]
fn a_worker_reports_why_tls_with_the_server_fails() {
    needs_tls!();
    let (server, other) = (SecureServer::start("127.0.0.1"), SecureServer::start("example.test"));
    let from_worker = |url: &str, more: &[&str]| {
        let client = worker();
        run(straingauge(["load", url, "--client", &client, "--duration", "50ms", "--warmup", "0s", "--quiet"])
            .args(more))
    };
    let strange = trusting(&other.ca());
    from_worker(&server.url(), &["--tls", &strange]).exits_with(1).complains_of(&[
        "client 1",
        "certificate",
        "--tls ca=",
    ]);
    // With TLS 1.3, the client has finished the handshake before the server refuses it.
    let (port, dir) = (free_port(), server.state.path());
    let mut wants = Command::new("openssl");
    wants.args(["s_server", "-accept", &port.to_string(), "-cert", "cert.pem", "-key", "key.pem", "-tls1_3", "-quiet"]);
    wants.args(["-Verify", "1", "-verify_return_error"]).current_dir(dir).stdin(Stdio::null());
    let mut child = wants.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("openssl starts");
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let said =
        from_worker(&format!("https://127.0.0.1:{port}"), &["--requests-per-connection", "0", "--tls", "insecure"]);
    let _ = child.kill();
    let _ = child.wait();
    said.exits_with(1).complains_of(&["client 1", "it requires a client certificate"]);
}

#[test]
fn impossible_paces_are_refused() {
    for (arguments, words) in [
        (&["--read-rate", "0"][..], &["--read-rate"][..]),
        (&["--set", "clients.demanded-bandwidth=1k"], &["--asked-bandwidth"]),
        (&["--asked-bandwidth", "1k", "--set", "clients.demanded-bandwidth=2k"], &["demanded-bandwidth"]),
        (&["--asked-bandwidth", "0"], &["--asked-bandwidth"]),
        (&["--set", "clients.close-first=client"], &["--requests-per-connection"]),
    ] {
        run(straingauge(["load", "http://127.0.0.1:1/"]).args(arguments)).exits_with(2).complains_of(words);
    }
}
