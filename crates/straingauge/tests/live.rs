//! `find --live`: a browser with the URL gets the page during a run, and no other client does.

use crate::person::{DESK, Person};
use crate::rig::{Running, free_port, needs_server, open_dir, points, run, run_record, skip_unless, straingauge};
use crate::server::{Kind, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// A run with a live page, and its address.
struct Shown {
    running: Running,
    /// `127.0.0.1:PORT`.
    address: String,
    token: String,
}

/// Starts a short sweep, or a long one that the test ends.
fn begin(server: &Server, out: &Path, budget: &str) -> Shown {
    let mut command = straingauge(["find", &server.url("1k.bin"), "--sweep", "connections", "--live", "127.0.0.1:0"]);
    command.args(["--duration", "200ms", "--warmup", "50ms", "--max-connections", "4"]);
    command.args(["--repeats", "100", "--budget", budget, "--out"]);
    let mut running = Running::start(command.arg(out));
    let url = loop {
        let said = running.complained();
        // Only complete lines: one may still be written.
        let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        if let Some(url) = lines.find_map(|line| line.strip_prefix("live page: http://")) {
            break url.to_string();
        }
        assert!(!running.has_ended(), "{said}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let (address, token) = url.trim_end_matches('/').split_once('/').expect("a token");
    Shown { address: address.into(), token: token.into(), running }
}

impl Shown {
    fn connect(&self, target: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it reads");
        stream
    }

    fn get(&self, target: &str, host: &str) -> String {
        let mut text = String::new();
        self.connect(target, host).read_to_string(&mut text).expect("text");
        text
    }

    fn page(&self, place: &str) -> String {
        self.get(&format!("/{}/{place}", self.token), &self.address)
    }

    fn events(&self) -> Events {
        let stream = self.connect(&format!("/{}/events", self.token), &self.address);
        let mut events = Events(BufReader::new(stream));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(events.0.read_line(&mut line).expect("a head") > 0, "no head");
        }
        events
    }
}

struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event's name and data.
    fn next(&mut self) -> (String, serde_json::Value) {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).expect("an event in time") > 0, "the stream ended");
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().into();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

#[test]
fn a_follower_gets_every_point_and_the_end_and_clients_without_the_token_get_none() {
    needs_server!(Kind::Nginx);
    let (dir, server) = (open_dir(), Server::start(Kind::Nginx));
    let out = dir.path().join("run");
    let shown = begin(&server, &out, "5s");
    assert_eq!(shown.token.len(), 32, "{}", shown.token);
    let mut events = shown.events();
    let around = shown.page("");
    assert!(around.starts_with("HTTP/1.1 200 OK") && around.contains("script-src 'sha256-"), "{around}");
    assert!(around.contains("frame-ancestors 'none'") && around.contains("no-store"), "{around}");

    let wrong = "0".repeat(32);
    for target in [
        "/",
        "/report.html",
        &format!("/{wrong}/"),
        &format!("/{}", &shown.token),
        "//",
        &format!("/{}x/", shown.token),
    ] {
        assert!(shown.get(target, &shown.address).starts_with("HTTP/1.1 404 "), "{target}");
    }
    let target = format!("/{}/report.html", shown.token);
    for host in ["example.org", "127.0.0.1.example.org", "", "a\r\nHost: 127.0.0.1"] {
        assert!(shown.get(&target, host).starts_with("HTTP/1.1 403 "), "{host}");
    }
    assert!(shown.get(&target, "localhost:9").starts_with("HTTP/1.1 200 "), "its port may be forwarded");
    assert!(shown.get(&format!("{target}/x"), &shown.address).starts_with("HTTP/1.1 404 "));
    // More idle connections than the server keeps.
    let idle: Vec<TcpStream> = (0..40).filter_map(|_| TcpStream::connect(&shown.address).ok()).collect();
    let unread = shown.events();

    let (mut seen, mut has_drawn) = (Vec::new(), false);
    let last = loop {
        let (name, data) = events.next();
        if name == "end" {
            break data;
        }
        seen.push(data["points"].as_u64().expect("a count"));
        if data["report"].as_u64() > Some(0) && !has_drawn {
            has_drawn = true;
            let page = shown.page("report.html");
            assert!(page.contains("still running") && page.contains("<svg"), "the report of the run so far");
        }
    };
    assert!(has_drawn && seen.len() >= 2 && seen.is_sorted(), "{seen:?}");
    let page = shown.page("report.html");
    assert!(page.contains("complete, "), "the report of the whole run");
    drop((events, idle, unread));
    let said = shown.running.wait().exits_with(0);
    assert!(!said.err.contains("panicked"), "{}", said.err);
    let measured = points(&out).len() as u64;
    assert_eq!((last["points"].as_u64(), last["folder"].as_str()), (Some(measured), out.to_str()));
    let kept = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.ends_with(&kept), "the last page is the report that is kept");
}

#[test]
fn ctrl_c_ends_the_page_with_the_run_and_keeps_the_measured_points() {
    needs_server!(Kind::Nginx);
    let (dir, server) = (open_dir(), Server::start(Kind::Nginx));
    let out = dir.path().join("run");
    let shown = begin(&server, &out, "60s");
    let mut events = shown.events();
    while events.next().1["points"].as_u64() < Some(2) {}
    shown.running.signal(libc::SIGINT);
    while events.next().0 != "end" {}
    drop(events);
    shown.running.wait().exits_with(130);
    assert_eq!(run_record(&out)["status"], "interrupted");
    assert!(points(&out).len() >= 2);
}

#[test]
fn an_address_that_others_reach_or_that_is_taken_is_refused() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let dir = open_dir();
    let find = |address: &str| run(straingauge(["find", &url, "--live", address]).current_dir(dir.path()));
    find("0.0.0.0:8000").exits_with(2).complains_of(&["--live", "other machines", "127.0.0.1:8000"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    find(&address).exits_with(1).complains_of(&["cannot serve the live page", &address]);
}

#[test]
fn a_browser_follows_the_run_and_keeps_opened_sections_open() {
    skip_unless!(crate::report_page::browser().is_some(), "no Chromium here (apt-get install chromium-headless-shell)");
    needs_server!(Kind::Nginx);
    let (dir, server) = (open_dir(), Server::start(Kind::Nginx));
    let out = dir.path().join("run");
    let shown = begin(&server, &out, "20s");
    let url = format!("http://{}/{}/", shown.address, shown.token);
    let browser = crate::report_page::browser().expect("looked for before");
    let blank = dir.path().join("blank.html");
    std::fs::write(&blank, "<!doctype html>").expect("our own folder");
    let mut person = Person::opens(&browser, &blank, &DESK);
    person.call("Page.navigate", serde_json::json!({ "url": url }));
    let of_report = |what: &str| format!("document.getElementById('report')?.contentDocument?.{what}");
    person.waits_for(&of_report("querySelectorAll('svg').length > 0"));
    let points = "[...document.getElementById('report').contentDocument.querySelectorAll('details')]\
                  .find((one) => one.querySelector('summary')?.textContent.startsWith('All '))";
    // In one expression, because the report may be reloaded between two.
    person.waits_for(&format!(
        "(() => {{ const one = {points}; if (!one) return false; one.open = true; \
         one.ownerDocument.body.setAttribute('data-seen', ''); return true; }})()"
    ));
    // The report is reloaded with the next points, so the mark on the old one is gone.
    person.waits_for(&of_report("body?.hasAttribute('data-seen') === false"));
    person.waits_for(&format!("{points}?.open"));
    person.waits_for("(document.getElementById('end')?.textContent ?? '') !== ''");
    assert!(person.reads("document.getElementById('end').textContent").contains(out.to_str().expect("text")));
    assert!(person.reads(&of_report("querySelector('.status').textContent")).starts_with("complete"));
    let artefacts = crate::rig::repository().join("artefacts");
    std::fs::create_dir_all(&artefacts).expect("artefacts/ is ours");
    person.keeps(&artefacts.join("live.png"), 2000.0);
    assert_eq!(person.complaints(), Vec::<String>::new());
    shown.running.wait().exits_with(0);
}
