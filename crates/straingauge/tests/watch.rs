//! `straingauge watch` on a real nginx: lines, recording, report, and all ways of ending.

use crate::rig::{
    Running, Said, free_port, is_root, member, needs_server, open_dir, processes_of, program, run, run_record,
    skip_unless, skipped, straingauge, straingauge_in_shell,
};
use crate::server::{Kind, Server, serve};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The readings of a recording so far.
fn readings(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("watch.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().skip(1).map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn requests(reading: &Value) -> u64 {
    let classes = reading["totals"]["classes"].as_array().expect("classes are a list");
    classes.iter().map(|class| class["requests"].as_u64().expect("a count")).sum()
}

/// Starts a recording watch; `None`, with a message, if requests cannot be counted.
#[track_caller]
fn watch(port: u16, out: &Path, more: &[&str]) -> Option<Running> {
    let mut command = straingauge(["watch", &format!(":{port}"), "--system-interval", "200ms", "--out"]);
    command.arg(out).args(more);
    if !more.contains(&"--interval") {
        command.args(["--interval", "200ms"]);
    }
    let mut running = Running::start(&mut command);
    running.wait_until("a reading", || !readings(out).is_empty());
    let first = &readings(out)[0];
    if first["totals"]["classes"].as_array().is_none_or(Vec::is_empty) {
        skipped(&format!("requests are not counted here: {}", first["doubts"]));
        return None;
    }
    Some(running)
}

fn load(url: &str) -> Value {
    let mut command = straingauge(["load", url, "--warmup", "0s", "--duration", "700ms", "--connections", "4"]);
    run(command.args(["--json", "--quiet"])).exits_with(0).json()
}

fn report(out: &Path, more: &[&str]) -> Said {
    run(straingauge(["report"]).arg(out).args(more))
}

#[test]
fn a_watched_load_is_counted_kept_and_reported() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "counting requests needs root");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let out = dir.path().join("run");
    let Some(mut running) = watch(server.port, &out, &["--detail", "counts", "--account"]) else { return };
    let counted = load(&server.url("1k.bin"));
    let (ok, sent) = (member(&counted, "ok").as_u64().unwrap(), member(&counted, "sent").as_u64().unwrap());
    // The last responses are complete when the client closes.
    running.wait_until("all requests", || readings(&out).last().is_some_and(|reading| requests(reading) >= ok));
    running.signal(libc::SIGINT);
    running.wait().exits_with(0);
    let all = readings(&out);
    let last = all.last().unwrap();
    assert!((ok..=sent).contains(&requests(last)), "{} counted, {ok} answered, {sent} sent", requests(last));
    let system = &last["totals"]["system"];
    for name in ["cpu", "paging", "memory", "context_switches", "started", "interrupts"] {
        assert!(!system[name].is_null(), "{name} is read: {system:#}");
    }
    assert!(last["totals"]["io"]["writes"].as_u64().unwrap() >= ok, "nginx writes each response");
    // The account of the threads' time in part of each interval: the rows add up to the threads' lifetime.
    let kept: Vec<&Value> =
        all.iter().map(|reading| &reading["totals"]["account"]).filter(|one| !one.is_null()).collect();
    assert!(kept.len() + 2 >= all.len(), "{} of {} readings have an account", kept.len(), all.len());
    let of = |group: &Value, name: &str| group[name].as_u64().unwrap_or_default();
    for account in &kept {
        for group in account["groups"].as_array().expect("groups") {
            let waits: u64 = group["waits"].as_array().expect("waits").iter().map(|wait| of(wait, "ns")).sum();
            let ready: u64 =
                ["own", "others", "stopped", "moved"].map(|why| of(group, &format!("ready_{why}_ns"))).iter().sum();
            let lives: u64 = group["processes"].as_array().expect("processes").iter().map(|one| of(one, "ns")).sum();
            let sum = of(group, "running_ns") + ready + waits;
            assert!(sum.abs_diff(lives) <= lives / 50, "{sum} of {lives}: {group:#}");
        }
    }
    let waits_for_requests = |account: &&Value| account.to_string().contains("epoll_wait");
    assert!(kept.iter().any(waits_for_requests), "{kept:#?}");
    assert_eq!(run_record(&out)["status"], "complete");
    let said = report(&out, &[]).exits_with(0).out;
    let titles =
        ["Requests by size class", "Service demands", "Machine", "Connections by state", "Comparison of sources"];
    for words in titles {
        assert!(said.contains(words), "'{words}' is not in:\n{said}");
    }
    let tables = &report(&out, &["--json"]).exits_with(0).json()["tables"]["tables"];
    assert_eq!(tables[0]["title"], "Requests by size class", "{tables:#}");
    let rows = tables[0]["rows"].as_array().expect("rows");
    let reported: f64 = rows.iter().filter_map(|row| row[1][0]["value"].as_f64()).sum();
    assert_eq!(reported as u64, requests(last), "the report loses nothing of the recording");
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page is written");
    assert!(page.contains("Requests per second") || page.contains("Stalls: not measured"), "{page}");
    assert_eq!(page.matches("<script").count(), 1, "the page's own script alone");
}

#[test]
fn a_killed_watch_loses_no_line_and_is_reported() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "counting requests needs root");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let out = dir.path().join("run");
    let Some(mut running) = watch(server.port, &out, &["--detail", "counts"]) else { return };
    let counted = load(&server.url("1k.bin"));
    let ok = member(&counted, "ok").as_u64().unwrap();
    running.wait_until("all requests", || readings(&out).last().is_some_and(|reading| requests(reading) >= ok));
    running.signal(libc::SIGKILL);
    assert_eq!(running.wait().code, None, "ended by the signal");
    assert_eq!(run_record(&out)["status"], "running", "nobody could write that it ended");
    let said = report(&out, &["--json"]).exits_with(0).json();
    assert!(said["readings"].as_u64().unwrap() >= 2, "{said:#}");
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page is written");
    assert!(page.contains("its process was killed"), "the page says so");
    // The kernel has detached all programs: the server answers, and a new watch begins with empty counts.
    let again = dir.path().join("again");
    let Some(running) = watch(server.port, &again, &[]) else { return };
    assert_eq!(requests(&readings(&again)[0]), 0);
    running.signal(libc::SIGTERM);
    running.wait().exits_with(0);
}

#[test]
fn an_interrupted_watch_of_fixed_length_reports_the_interruption() {
    needs_server!(Kind::Nginx);
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let out = dir.path().join("run");
    let mut command = straingauge(["watch", &format!(":{}", server.port), "--duration", "10m", "--out"]);
    let mut running = Running::start(command.arg(&out));
    running.wait_until("a recording", || out.join("watch.jsonl").exists());
    running.signal(libc::SIGINT);
    running.wait().exits_with(130);
    assert_eq!(run_record(&out)["status"], "interrupted");
}

fn capabilities(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).expect("capabilities are listed");
    u64::from_str_radix(line.trim(), 16).expect("in hexadecimal")
}

#[test]
fn privileges_are_dropped_after_all_programs_are_attached() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "it has privileges to give up as root only");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    // CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF.
    let kept: u64 = 1 << 2 | 1 << 19 | 1 << 38 | 1 << 39;
    for (name, more, is_all) in [("less", &[][..], false), ("all", &["--keep-privileges"], true)] {
        let out = dir.path().join(name);
        let Some(running) = watch(server.port, &out, more) else { return };
        let held = capabilities(running.pid());
        assert_eq!(held & !kept != 0, is_all, "{name}: {held:x}");
        running.signal(libc::SIGTERM);
        running.wait().exits_with(0);
    }
}

/// Options for a watch of this port that counts no requests, so it starts at once.
fn cheap(port: u16, out: &Path) -> Vec<String> {
    let out = out.to_str().expect("temporary paths are text");
    let words = ["watch", &format!(":{port}"), "--detail", "zero", "--interval", "100ms", "--out", out];
    words.map(String::from).to_vec()
}

#[test]
fn a_recording_in_another_users_directory_is_completed() {
    skip_unless!(is_root(), "only root may write there");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let dir = open_dir();
    std::os::unix::fs::chown(dir.path(), Some(65_534), Some(65_534)).expect("root gives its folder away");
    let words = cheap(listener.local_addr().expect("bound").port(), dir.path());
    run(straingauge(words).args(["--duration", "300ms"])).exits_with(0);
    assert_eq!(run_record(dir.path())["status"], "complete");
}

#[test]
fn a_recording_whose_reader_leaves_is_completed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let dir = open_dir();
    let words = cheap(listener.local_addr().expect("bound").port(), dir.path());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run(&mut straingauge_in_shell("\"$@\" | head -1", &words)).exits_with(0);
    let record = run_record(dir.path());
    assert_eq!(record["status"], "interrupted");
    assert!(record["ended_by"].as_str().is_some_and(|why| why.contains("standard output")), "{record:#}");
}

/// Stops or continues all processes of a server.
fn signal_all(state: &Path, signal: libc::c_int) {
    for pid in processes_of(state) {
        // SAFETY: kill takes no pointers; these are processes of the test's own server.
        unsafe { libc::kill(pid, signal) };
    }
}

#[test]
fn a_server_that_stalls_periodically_is_found() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "counting requests needs root");
    let dir = open_dir();
    let (state, out, port) = (dir.path().join("state"), dir.path().join("run"), free_port());
    let mut server = serve(Kind::Nginx, port, &state);
    let mut server = Running::start(&mut server);
    server.wait_until("nginx accepts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut load = straingauge(["load", &url, "--rate", "2000", "--warmup", "0s", "--duration", "60s"]);
    let load = Running::start(load.args(["--connections", "50", "--timeout", "10s", "--quiet"]));
    // The start of the load would be another gap.
    let Some(running) = watch(port, &out, &["--interval", "100ms", "--detail", "counts"]) else {
        load.signal(libc::SIGINT);
        server.signal(libc::SIGTERM);
        return;
    };
    let began = Instant::now();
    // Eight readings on time are enough, and ten if two were late. Each late reading on a busy machine requires four
    // more.
    let (mut number, mut wanted) = (0, 10);
    while number < wanted {
        // Times are relative to a common start, so that delays do not add up.
        let at = Duration::from_millis(700 + number * 1000);
        number += 1;
        std::thread::sleep(at.saturating_sub(began.elapsed()));
        if began.elapsed() > at + Duration::from_millis(50) {
            wanted += 4;
        }
        signal_all(&state, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(400));
        signal_all(&state, libc::SIGCONT);
    }
    load.signal(libc::SIGINT);
    load.wait().exits_with(130);
    running.signal(libc::SIGINT);
    running.wait().exits_with(0);
    server.signal(libc::SIGTERM);
    let _ = server.wait();
    let found = report(&out, &["--json"]).exits_with(0).json();
    let stalls = &found["stalls"]["Ok"];
    let period = stalls["period"]["period_s"]["value"].as_f64().unwrap_or_else(|| panic!("no period: {stalls:#}"));
    assert!((period - 1.0).abs() < 0.1, "found {period} s, made every second: {stalls:#}");
    let said = report(&out, &[]).exits_with(0).out;
    assert!(said.contains("They come every"), "{said}");
}

/// Runs a watch on a terminal of this size; returns its screens. `keys` are typed after a while.
fn screens(port: u16, rows: usize, columns: usize, more: &str, keys: &[u8]) -> Vec<String> {
    let line = format!(
        "stty rows {rows} cols {columns}; exec {} watch :{port} --interval 200ms --system-interval 200ms {more}",
        env!("CARGO_BIN_EXE_straingauge"),
    );
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TERM", "xterm");
    let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
    let mut typed = script.stdin.take().expect("piped");
    let mut shown = Vec::new();
    let mut out = script.stdout.take().expect("piped");
    let mut chunk = [0; 4096];
    loop {
        let count = out.read(&mut chunk).expect("it is read");
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&chunk[..count]);
        // The keys are typed once there are three screens.
        if !keys.is_empty() && shown.windows(3).filter(|part| part == b"\x1b[H").count() == 3 {
            let _ = typed.write_all(keys);
        }
    }
    assert!(script.wait().expect("it ends").success());
    let shown = String::from_utf8(shown).expect("text");
    shown.split("\x1b[H").skip(1).map(str::to_string).collect()
}

#[test]
fn a_screen_fits_the_terminal_and_q_ends_it() {
    needs_server!(Kind::Nginx);
    skip_unless!(program("script").is_some(), "script is not installed (apt-get install bsdutils)");
    let server = Server::start(Kind::Nginx);
    let url = server.url("1k.bin");
    let mut load = straingauge(["load", &url, "--warmup", "0s", "--duration", "2s", "--connections", "4", "--quiet"]);
    let load = Running::start(load.args(["--rate", "500"]));
    // Without --duration, only the key can end the watch.
    let shown = screens(server.port, 24, 80, "", b"xq");
    load.wait().exits_with(0);
    assert!(shown.len() >= 3, "several screens: {shown:?}");
    for screen in &shown {
        let plain = screen.replace("\x1b[K", "").replace("\x1b[J", "");
        let lines: Vec<&str> = plain.trim_end_matches("\r\n").split("\r\n").collect();
        assert!(lines.len() <= 24, "{} lines: {plain}", lines.len());
        for line in &lines {
            assert!(line.chars().count() <= 80 && !line.contains('\n'), "{line:?}");
        }
        assert!(lines[0].starts_with(&format!(":{}", server.port)), "the head is in sight: {plain}");
        for words in ["requests  ", "connections  ", "server  ", "headroom  "] {
            assert!(lines.iter().any(|line| line.starts_with(words)), "'{words}' is not in {plain}");
        }
    }
    let wide = screens(server.port, 60, 200, "--duration 500ms", b"");
    let last = wide.last().expect("a screen");
    for words in ["Machine", "cost of watching"] {
        assert!(last.contains(words), "'{words}' is not in {last:?}");
    }
}

#[test]
fn impossible_watches_are_refused_in_one_clear_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("bound").to_string();
    let dir = open_dir();
    std::fs::write(dir.path().join("run.json"), "{}").expect("our own folder");
    let there = dir.path().to_str().expect("temporary paths are text").to_string();
    let port = free_port().to_string();
    let cases: [(&[&str], i32, &[&str]); 9] = [
        (&[":0"], 2, &[":0", "port"]),
        (&[&port, "--duration", "0"], 2, &["--duration", "100ms"]),
        (&["eighty"], 2, &["eighty", "port"]),
        (&[&port, "--interval", "10ms"], 2, &["--interval", "100ms"]),
        (&[&port, "--response-classes", "50KiB,10KiB"], 2, &["--response-classes", "ascend"]),
        (&[&port, "--overhead", "0%"], 2, &["--overhead"]),
        (&[&port, "--cgroup", "/sys/fs/cgroup/no-such-group"], 1, &["no-such-group", "cgroup.procs"]),
        (&[&port, "--out", &there, "--duration", "1s"], 1, &[&there]),
        (&[&port, "--metrics", &taken, "--duration", "1s"], 1, &[&taken]),
    ];
    for (arguments, code, words) in cases {
        run(straingauge(["watch"]).args(arguments)).exits_with(code).complains_of(words);
    }
    let not_a_run = dir.path().join("not");
    std::fs::create_dir(&not_a_run).expect("our own folder");
    std::fs::write(not_a_run.join("watch.jsonl"), "\u{1b}[31mnonsense\n").expect("our own folder");
    report(&not_a_run, &[]).exits_with(1).complains_of(&["not"]);
}
