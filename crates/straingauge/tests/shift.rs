//! `find --shift`: live traffic is moved to a server in steps, measured there, and always moved back.

use crate::rig::{Running, Said, is_root, open_dir, points, run, run_record, skip_unless, straingauge};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const USUAL: f64 = 20.0;
const MOST: f64 = 200.0;
/// Time per request of the server, which serves one at a time: 200 requests/s.
const WORK: Duration = Duration::from_millis(5);
const CLIENTS: u32 = 100;

/// A server, users who send requests by the share in a file, and the command that writes it.
struct Site {
    port: u16,
    folder: TempDir,
    is_over: Arc<AtomicBool>,
}

impl Site {
    /// Users send `per_share` requests per second for each unit of the share.
    fn open(per_share: f64) -> Site {
        Site::with(per_share, Worker::default())
    }

    fn with(per_share: f64, worker: Worker) -> Site {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let site = Site { port, folder: open_dir(), is_over: Arc::default() };
        let worker = Arc::new(worker);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let worker = worker.clone();
                std::thread::spawn(move || serve(connection, &worker));
            }
        });
        for user in 0..CLIENTS {
            let (shares, is_over) = (site.shares(), site.is_over.clone());
            // Users take turns.
            let turn = Duration::from_secs_f64(f64::from(user) / (per_share * USUAL));
            std::thread::spawn(move || {
                std::thread::sleep(turn);
                use_site(port, &shares, per_share / f64::from(CLIENTS), &is_over);
            });
        }
        site
    }

    fn shares(&self) -> PathBuf {
        self.folder.path().join("shares")
    }

    /// Every share that was set.
    fn set(&self) -> Vec<f64> {
        let text = std::fs::read_to_string(self.shares()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// `find` with a command that writes each share, followed by more of the shell.
    fn find(&self, more: &str, options: &[&str]) -> std::process::Command {
        let command = format!("echo {{share}} >> '{}'{more}", self.shares().display());
        let url = format!("http://127.0.0.1:{}/", self.port);
        let mut find = straingauge(["find", &url, "--shift", &command, "--p99-limit", "200ms"]);
        find.args(["--shares", &format!("{USUAL}..{MOST}"), "--out"]).arg(self.run()).args(options);
        find
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn answer(reader: &mut impl BufRead) -> Option<()> {
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 0 {
        if line == "\r\n" {
            return Some(());
        }
        line.clear();
    }
    None
}

/// Serves one request at a time, or answers that it is overloaded.
#[derive(Default)]
struct Worker {
    free_at: Mutex<Option<Instant>>,
    sheds: bool,
}

impl Worker {
    fn status(&self) -> &'static str {
        let mut free_at = self.free_at.lock().unwrap();
        if !self.sheds {
            std::thread::sleep(WORK);
            return "200 OK";
        }
        let now = Instant::now();
        let begins = free_at.map_or(now, |at| at.max(now));
        if begins > now + 4 * WORK {
            return "503 Service Unavailable";
        }
        *free_at = Some(begins + WORK);
        "200 OK"
    }
}

fn serve(mut connection: TcpStream, worker: &Worker) {
    let Ok(read) = connection.try_clone() else { return };
    let mut reader = BufReader::new(read);
    while answer(&mut reader).is_some() {
        let answer = format!("HTTP/1.1 {}\r\nContent-Length: 0\r\n\r\n", worker.status());
        if connection.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// One user: a request whenever one is due by the current share, and at once if late.
fn use_site(port: u16, shares: &Path, per_share: f64, is_over: &AtomicBool) -> Option<()> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let text = std::fs::read_to_string(shares).unwrap_or_default();
        let share = text.lines().last().and_then(|line| line.parse().ok()).unwrap_or(USUAL);
        connection.write_all(b"GET / HTTP/1.1\r\nHost: site\r\n\r\n").ok()?;
        answer(&mut reader)?;
        due = (due + Duration::from_secs_f64(1.0 / (per_share * share))).max(Instant::now() - Duration::from_secs(1));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Some(())
}

fn figure(point: &Value, name: &str) -> Option<f64> {
    point["figures"].get(name)?["value"].as_f64()
}

#[test]
fn live_traffic_is_raised_until_a_guard_steps_back_and_the_usual_share_is_restored() {
    skip_unless!(is_root(), "counting requests needs root");
    // 40 requests/s at the usual share of 20; the server is full at a share of 100.
    let site = Site::open(2.0);
    let said = run(&mut site.find("", &["--budget", "28s"])).exits_with(0);
    let set = site.set();
    assert_eq!((set.first(), set.last()), (Some(&USUAL), Some(&USUAL)), "{set:?}");
    assert!(set.iter().all(|share| (USUAL..=MOST).contains(share)), "{set:?}");
    let points = points(&site.run());
    let stepped_back = |point: &&Value| figure(point, "live.stepped_back_after_s").is_some();
    for point in points.iter().filter(stepped_back) {
        let share = figure(point, "live.share").expect("each point has its share");
        let at = set.iter().position(|one| *one == share).expect("it was set");
        assert_eq!(set.get(at + 1), Some(&USUAL), "{set:?}");
    }
    let rates: Vec<f64> = points.iter().filter_map(|point| figure(point, "client.throughput_per_sec")).collect();
    assert!(rates.len() >= 4 && rates.iter().all(|rate| (20.0..=230.0).contains(rate)), "{rates:?}");
    let record = run_record(&site.run());
    let shift = &record["scenario"]["shift"];
    assert_eq!((shift["usual"].as_f64(), shift["most"].as_f64()), (Some(USUAL), Some(MOST)), "{shift}");
    assert!(said.out.contains("Plan for") || said.out.contains("No rate held"), "{}", said.out);
    assert!(said.err.contains("times are those of the server's machine"), "{}", said.err);
}

#[test]
fn a_server_that_answers_errors_in_time_is_stepped_back_from() {
    skip_unless!(is_root(), "counting requests needs root");
    // It answers 503 beyond a share of 50, in less than a millisecond. The budget reaches that on a busy machine, too.
    let site = Site::with(4.0, Worker { sheds: true, ..Worker::default() });
    run(&mut site.find("", &["--budget", "28s"])).exits_with(0);
    let points = points(&site.run());
    let errors = |point: &Value| point["outcomes"]["non_2xx"].as_u64().unwrap_or(0);
    let failed: Vec<_> = points.iter().filter(|point| figure(point, "live.stepped_back_after_s").is_some()).collect();
    assert!(!failed.is_empty() && failed.iter().all(|point| errors(point) > 0), "{points:#?}");
    let held: Vec<f64> =
        points.iter().filter(|point| errors(point) == 0).filter_map(|point| figure(point, "live.share")).collect();
    assert!(held.iter().any(|share| *share > USUAL) && held.iter().all(|share| *share < 1.5 * 50.0), "{held:?}");
}

#[test]
fn the_usual_share_is_restored_after_kill_and_after_a_signal() {
    skip_unless!(is_root(), "counting requests needs root");
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let site = Site::open(1.0);
        let mut find = Running::start(&mut site.find("", &["--budget", "28s"]));
        find.wait_until("a larger share", || site.set().last().is_some_and(|share| *share > USUAL));
        find.signal(signal);
        let said = find.wait();
        let started = Instant::now();
        while site.set().last() != Some(&USUAL) {
            assert!(started.elapsed() < Duration::from_secs(60), "signal {signal}: {:?}", site.set());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(said.code, (signal == libc::SIGTERM).then_some(130), "{}", said.err);
    }
}

/// A run that must fail; returns what it printed to standard error.
#[track_caller]
fn refused(site: &Site, more: &str) -> String {
    let Said { err, .. } = run(&mut site.find(more, &["--budget", "28s"])).exits_with(1);
    assert_eq!(site.set().last(), Some(&USUAL), "{err}");
    err
}

#[test]
fn a_command_that_fails_or_moves_nothing_ends_the_run_with_the_usual_share() {
    skip_unless!(is_root(), "counting requests needs root");
    let said = refused(&Site::open(1.0), "; test {share} -lt 21 || { echo no such backend >&2; false; }");
    for part in ["no such backend", "the usual share 20 is restored", "the points measured so far are kept in"] {
        assert!(said.contains(part), "{said}");
    }
    // The users' shares stay at 20, whatever the command writes.
    let site = Site::open(1.0);
    let command = format!("echo {{share}} >> '{}.not-theirs'", site.shares().display());
    let url = format!("http://127.0.0.1:{}/", site.port);
    let words = ["find", &url, "--quiet", "--shift", &command, "--shares", "20..100", "--budget", "28s", "--out"];
    let said = run(straingauge(words).arg(site.run())).exits_with(1).err;
    assert!(said.contains("check that the command moves traffic to this server"), "{said}");
}

#[test]
fn wrong_shift_options_are_refused_before_anything_is_moved() {
    for (options, part) in [
        (&["--shift", "move it", "--shares", "1..2"][..], "{share}"),
        (&["--shift", "move {share}"], "--shares"),
        (&["--shares", "1..2"], "--shift"),
        (&["--shift", "move {share}", "--shares", "5"], "25..80"),
        (&["--shift", "move {share}", "--shares", "5..5"], "25..80"),
        (&["--shift", "move {share}", "--shares", "5..x"], "25..80"),
        (&["--shift", "move {share}", "--shares", "1..2", "--axis", "cold"], "--axis"),
        (&["--shift", "move {share}", "--shares", "1..2", "--", "nginx"], "SERVER"),
        (&["--shift", "move {share}", "--shares", "1..2", "--client", "a"], "--client"),
    ] {
        let url = "http://127.0.0.1:9/";
        let said = run(&mut straingauge(["find", url].iter().chain(options))).exits_with(2);
        assert!(said.err.contains(part), "{options:?}: {}", said.err);
    }
    let said = run(&mut straingauge(["find", "http://127.0.0.1:9/", "--shift", "exit 7; {share}", "--shares", "1..2"]));
    assert_eq!(said.code, Some(1), "nothing listens: {}", said.err);
}
