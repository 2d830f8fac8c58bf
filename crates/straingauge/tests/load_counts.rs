//! straingauge's counts of requests and bytes equal those of the servers' access logs.
//!
//! Without a warm-up, both sides count every request of the run. The server may have answered requests that the run
//! gave up at its end (`unfinished`). These are the only tolerance: without them, both must agree to the byte.

use crate::rig::{member, needs_server, run, skip_unless, straingauge};
use crate::server::{Kind, Logged, Server};

/// The kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Closed,
    ClosedWithoutKeepAlive,
    Open,
    OpenWithoutKeepAlive,
}

impl Load {
    fn options(self) -> &'static [&'static str] {
        match self {
            Load::Closed => &["--connections", "8"],
            Load::ClosedWithoutKeepAlive => &["--connections", "8", "--requests-per-connection", "1"],
            Load::Open => &["--rate", "1k", "--connections", "32", "--arrival", "poisson"],
            Load::OpenWithoutKeepAlive => {
                &["--rate", "400", "--connections", "32", "--arrival", "constant", "--requests-per-connection", "1"]
            }
        }
    }

    /// Maximum requests in flight at the end: one per connection.
    fn most_unfinished(self) -> u64 {
        match self {
            Load::Closed | Load::ClosedWithoutKeepAlive => 8,
            Load::Open | Load::OpenWithoutKeepAlive => 32,
        }
    }
}

/// The client's counts.
#[derive(Debug)]
struct Counted {
    sent: u64,
    ok: u64,
    unfinished: u64,
    errors: u64,
    connects: u64,
    received_bytes: u64,
}

fn put_load(url: &str, load: Load, more: &[&str]) -> Counted {
    let mut command =
        straingauge(["load", url, "--warmup", "0s", "--duration", "600ms", "--threads", "1", "--json", "--quiet"]);
    command.args(load.options()).args(more);
    let json = run(&mut command).exits_with(0).json();
    let outcomes = member(&json, "outcomes");
    let count = |name: &str| outcomes[name].as_u64().unwrap_or_else(|| panic!("no count '{name}' in {outcomes:#}"));
    let names = [
        "refused",
        "reset",
        "timed_out",
        "connect_timed_out",
        "truncated",
        "closed_early",
        "malformed",
        "local_limit",
        "tls_failed",
        "other_error",
        "non_2xx",
    ];
    let counted = Counted {
        sent: count("sent"),
        ok: count("ok"),
        unfinished: count("unfinished"),
        errors: names.iter().map(|name| count(name)).sum(),
        connects: count("connects"),
        received_bytes: member(&json, "client.received_bytes")["value"].as_f64().expect("bytes were counted") as u64,
    };
    assert_eq!(counted.sent, counted.ok + counted.errors + counted.unfinished, "every request ends in one count");
    assert_eq!(counted.errors, 0, "{outcomes:#}");
    assert!(counted.ok > 0, "{outcomes:#}");
    assert!(counted.unfinished <= load.most_unfinished(), "{counted:?}");
    counted
}

/// Asserts that the log has the client's requests and bytes; `log_bytes` overrides the sum of the log's lines.
fn assert_agree(case: &str, counted: &Counted, log: &[Logged], log_bytes: Option<u64>) {
    let answered: Vec<&Logged> = log.iter().filter(|line| line.status == 200).collect();
    let lines = answered.len() as u64;
    let bytes = log_bytes.unwrap_or_else(|| answered.iter().map(|line| line.sent_bytes).sum());
    if counted.unfinished == 0 {
        assert_eq!(counted.ok, lines, "{case}: requests, {counted:?}");
        assert_eq!(counted.received_bytes, bytes, "{case}: bytes, {counted:?}");
    } else {
        assert!((counted.ok..=counted.ok + counted.unfinished).contains(&lines), "{case}: {lines} logged, {counted:?}");
        let largest = answered.iter().map(|line| line.sent_bytes).max().unwrap_or(0);
        let allowance = counted.unfinished * largest;
        assert!(counted.received_bytes <= bytes, "{case}: {bytes} bytes logged, {counted:?}");
        assert!(bytes <= counted.received_bytes + allowance, "{case}: {bytes} bytes logged, {counted:?}");
    }
}

fn compare(kind: Kind, load: Load) {
    needs_server!(kind);
    let server = Server::start(kind);
    let counted = put_load(&server.url("1k.bin"), load, &[]);
    if matches!(load, Load::ClosedWithoutKeepAlive | Load::OpenWithoutKeepAlive) {
        assert!(counted.connects >= counted.ok, "a connection a request: {counted:?}");
    } else {
        assert!(counted.connects <= load.most_unfinished(), "connections are kept: {counted:?}");
    }
    let log_bytes = (kind == Kind::Haproxy).then(|| server.haproxy_bytes_out());
    let log = server.end_and_read_log();
    assert_agree(&format!("{kind:?} {load:?}"), &counted, &log, log_bytes);
}

macro_rules! agree {
    ($($name:ident: $kind:ident, $load:ident;)+) => { $(#[test] fn $name() { compare(Kind::$kind, Load::$load); })+ };
}

agree! {
    nginx_counts_what_a_closed_loop_counts: Nginx, Closed;
    nginx_counts_what_a_closed_loop_without_keep_alive_counts: Nginx, ClosedWithoutKeepAlive;
    nginx_counts_what_an_open_loop_counts: Nginx, Open;
    nginx_counts_what_an_open_loop_without_keep_alive_counts: Nginx, OpenWithoutKeepAlive;
    lighttpd_counts_what_a_closed_loop_counts: Lighttpd, Closed;
    lighttpd_counts_what_a_closed_loop_without_keep_alive_counts: Lighttpd, ClosedWithoutKeepAlive;
    lighttpd_counts_what_an_open_loop_counts: Lighttpd, Open;
    apache_counts_what_a_closed_loop_counts: Apache, Closed;
    apache_counts_what_a_closed_loop_without_keep_alive_counts: Apache, ClosedWithoutKeepAlive;
    apache_counts_what_an_open_loop_counts: Apache, Open;
    haproxy_counts_what_a_closed_loop_counts: Haproxy, Closed;
    haproxy_counts_what_a_closed_loop_without_keep_alive_counts: Haproxy, ClosedWithoutKeepAlive;
    haproxy_counts_what_an_open_loop_counts: Haproxy, Open;
    python_counts_what_a_closed_loop_counts: Python, Closed;
    python_counts_what_a_closed_loop_without_keep_alive_counts: Python, ClosedWithoutKeepAlive;
    python_counts_what_an_open_loop_counts: Python, Open;
}

#[test]
fn counts_also_agree_over_ipv6() {
    needs_server!(Kind::Nginx);
    skip_unless!(std::net::TcpListener::bind(("::1", 0)).is_ok(), "this machine has no IPv6 loopback");
    let server = Server::start_on(Kind::Nginx, std::net::Ipv6Addr::LOCALHOST.into());
    let counted = put_load(&server.url("1k.bin"), Load::Open, &[]);
    let log = server.end_and_read_log();
    assert_agree("nginx over IPv6", &counted, &log, None);
}

#[test]
fn a_list_of_documents_is_counted_to_the_byte() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let list = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(list.path(), "# sizes\n/128.bin\n/1k.bin\n\n/10k.bin\n/100k.bin\n").expect("a temporary file");
    let path = list.path().to_str().expect("temporary paths are text");
    let counted = put_load(&server.url("1k.bin"), Load::Open, &["--urls", path]);
    let log = server.end_and_read_log();
    assert_agree("nginx, four documents", &counted, &log, None);
    let sizes: std::collections::BTreeSet<u64> = log.iter().map(|line| line.sent_bytes).collect();
    assert_eq!(sizes.len(), 4, "each document has its size: {sizes:?}");
}

#[test]
fn an_error_status_is_counted_separately_and_agrees_with_the_log() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let url = server.url("missing.bin");
    let mut command = straingauge([
        "load",
        &url,
        "--warmup",
        "0s",
        "--duration",
        "300ms",
        "--rate",
        "200",
        "--json",
        "--quiet",
        "--any-status",
    ]);
    let json = run(&mut command).exits_with(0).json();
    let outcomes = member(&json, "outcomes");
    let log = server.end_and_read_log();
    let not_found = log.iter().filter(|line| line.status == 404).count() as u64;
    let (non_2xx, unfinished) = (outcomes["non_2xx"].as_u64().unwrap(), outcomes["unfinished"].as_u64().unwrap());
    assert!((non_2xx..=non_2xx + unfinished).contains(&not_found), "{not_found} logged, {outcomes:#}");
    assert_eq!(outcomes["ok"].as_u64(), Some(0));
}
