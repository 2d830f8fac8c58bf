//! Loads from several workers: totals equal the server's log, and a worker that is lost, hung or invalid is reported
//! in one sentence. The workers are local commands, as if started by ssh.

use crate::rig::{Running, Said, member, needs_server, open_dir, run, skip_unless, skipped, straingauge};
use crate::server::{Kind, Server};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

pub fn worker() -> String {
    format!("exec {} load --worker", env!("CARGO_BIN_EXE_straingauge"))
}

pub fn from(clients: &[&str], more: &[&str]) -> Command {
    let mut command = straingauge(["load", "--threads", "1", "--warmup", "0s", "--json", "--quiet"]);
    for client in clients {
        command.args(["--client", client]);
    }
    command.args(more);
    command
}

pub fn count(json: &Value, name: &str) -> u64 {
    member(json, "outcomes")[name].as_u64().unwrap_or_else(|| panic!("no count '{name}' in {json:#}"))
}

pub fn doubt_kinds(json: &Value) -> Vec<String> {
    let doubts = member(json, "doubts").as_array().cloned().unwrap_or_default();
    doubts.iter().filter_map(|doubt| doubt["kind"].as_str().map(str::to_string)).collect()
}

fn agrees_with_the_log(options: &[&str]) {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let (url, worker) = (server.url("1k.bin"), worker());
    let clients = [worker.as_str(); 3];
    let said = run(from(&clients, &[&url, "--duration", "600ms"]).args(options)).exits_with(0);
    let json = said.json();
    let (ok, unfinished) = (count(&json, "ok"), count(&json, "unfinished"));
    assert!(ok > 0 && count(&json, "sent") + count(&json, "carried_in") == ok + unfinished, "{json:#}");
    let logged = server.end_and_read_log().iter().filter(|line| line.status == 200).count() as u64;
    assert!((ok..=ok + unfinished).contains(&logged), "{logged} logged, {ok} counted, {unfinished} unfinished");
    // All three workers record arrivals throughout a short load. The kernel may turn stamps on late on a busy
    // machine, so the first responses may have none.
    let reap = |what: &str| json["point"]["figures"][format!("client.reap_{what}")].clone();
    assert!((1..=ok).contains(&reap("p50_us")["n"].as_u64().unwrap_or(0)), "{ok} ok, {}", reap("p50_us"));
    assert!(reap("dated_ratio")["value"].as_f64().is_some_and(|share| share > 0.5 && share <= 1.0), "{json:#}");
    for number in 1..=3 {
        let figure = |what: &str| json["point"]["figures"][format!("worker.{number}.{what}")].clone();
        assert!(figure("throughput_per_sec")["value"].as_f64().unwrap() > 0.0, "{json:#}");
        // One machine has one monotonic clock, so the offset is within the estimate's uncertainty.
        let (offset, uncertain) =
            (figure("clock_offset_us")["value"].as_f64().unwrap(), figure("clock_uncertainty_us"));
        assert!(offset.abs() <= uncertain["value"].as_f64().unwrap() + 1.0, "{json:#}");
    }
}

#[test]
fn totals_of_three_workers_equal_those_of_the_servers_log() {
    agrees_with_the_log(&["--connections", "7"]);
}

#[test]
fn an_open_loop_is_split_over_the_workers() {
    agrees_with_the_log(&["--rate", "900", "--connections", "30"]);
}

/// Two workers, with one CPU and with two CPUs.
fn unequal() -> [String; 2] {
    [format!("{} --cpus 0", worker()), worker()]
}

#[test]
fn shares_follow_the_machines_and_add_up_to_the_schedule() {
    needs_server!(Kind::Nginx);
    if std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) != 2 {
        return skipped("this machine has not two CPUs");
    }
    let server = Server::start(Kind::Nginx);
    let clients = unequal();
    let more =
        [&server.url("1k.bin"), "--rate", "900", "--arrival", "constant", "--connections", "30", "--duration", "1s"];
    let json = run(&mut from(&clients.each_ref().map(String::as_str), &more)).exits_with(0).json();
    let figure = |name: String| json["point"]["figures"][name]["value"].as_f64().unwrap();
    assert_eq!([1, 2].map(|number| figure(format!("worker.{number}.share"))), [1.0 / 3.0, 2.0 / 3.0]);
    // The last request falls on the end of the window.
    assert!((900..=901).contains(&count(&json, "sent")), "{json:#}");
}

fn loses(bad: &str, more: &[&str]) -> Option<Said> {
    if let Some(why) = Kind::Nginx.missing() {
        skipped(&why);
        return None;
    }
    let server = Server::start(Kind::Nginx);
    let (url, worker) = (server.url("1k.bin"), worker());
    let said = run(from(&[&worker, bad], &[&url, "--connections", "4"]).args(more));
    drop(server);
    Some(said)
}

/// A worker that is killed half a second after its load began.
pub fn killed() -> String {
    let worker = env!("CARGO_BIN_EXE_straingauge");
    format!("(sleep 1; kill -9 $$) & exec {worker} load --worker")
}

/// Uncounted requests must not be in any figure, neither in rates of the load nor as a divisor of the server's cost.
fn has_no_figure_of_uncounted_requests(json: &Value) {
    let figures = json["point"]["figures"].as_object().unwrap();
    for (name, figure) in figures {
        let is_cost = name.starts_with("server.") && name.ends_with("_per_request");
        let is_rate = name.starts_with("client.") && name.ends_with("_per_sec") && !name.contains("cold");
        if is_cost || is_rate {
            let why = figure["not_measured"].as_str().unwrap_or_else(|| panic!("{name} is claimed: {figure}"));
            assert!(why.contains("client 2 was lost") || why.contains("closed loop"), "{name}: {why}");
        }
    }
    assert!(figures["server.cpus_used"]["value"].is_number(), "{json:#}");
    assert!(figures["server.cpu_us_per_request"]["not_measured"].is_string(), "{json:#}");
}

#[test]
fn a_worker_killed_in_the_middle_ends_the_run_with_its_name() {
    // The load ends long before, even if the kill is late on a busy machine.
    let Some(said) = loses(&killed(), &["--duration", "60s"]) else { return };
    let said = said.exits_with(1).complains_of(&["client 2", "was lost", "signal: 9"]);
    assert!(doubt_kinds(&said.json()).contains(&"worker-lost".to_string()), "{}", said.out);
    has_no_figure_of_uncounted_requests(&said.json());
}

#[test]
fn with_go_on_the_other_workers_measure_to_the_end() {
    let Some(said) =
        loses(&killed(), &["--set", "fleet.on-worker-loss=go-on", "--rate", "800", "--duration", "1500ms"])
    else {
        return;
    };
    let json = said.exits_with(0).json();
    assert!(doubt_kinds(&json).contains(&"worker-lost".to_string()));
    assert!(json["point"]["duration_ns"].as_u64().unwrap() >= 1_400_000_000, "{json:#}");
    assert!(json["point"]["figures"]["worker.2.throughput_per_sec"]["not_measured"].is_string(), "{json:#}");
    assert!(json["point"]["figures"]["worker.1.throughput_per_sec"]["value"].is_number(), "{json:#}");
    has_no_figure_of_uncounted_requests(&json);
}

#[test]
fn a_command_that_is_no_worker_is_refused_in_one_sentence() {
    for (bad, words) in [
        ("echo hello", "not a message of the worker protocol"),
        ("exit 7", "exit status: 7"),
        ("yes | tr -d '\\n'", "more than"),
        (
            &format!("echo '{}'; sleep 9", hello("0.0.9")),
            concat!(
                "its straingauge is 0.0.9, this one is ",
                env!("CARGO_PKG_VERSION"),
                ": install the same version on all machines"
            ),
        ),
        ("printf '{\"type\":'", "middle of a message"),
    ] {
        let said = run(&mut from(&[bad], &["http://127.0.0.1:9/", "--connections", "4"]));
        let said = said.exits_with(1).complains_of(&["client 1", words]);
        assert!(said.out.is_empty(), "{}", said.out);
    }
}

#[test]
fn clients_are_refused_where_they_make_no_sense() {
    let worker = worker();
    for (clients, more, words) in [
        (2, vec!["http://192.0.2.1/"], "--allow-target 192.0.2.1"),
        (2, vec!["http://127.0.0.1:9/", "--connections", "1"], "cannot be split"),
        (2, vec!["http://127.0.0.1:9/", "--connections", "2000001"], "too many for 2 clients"),
        (1, vec!["http://127.0.0.1:9/", "--cpus", "0"], "--cpus"),
        (1, vec!["http://127.0.0.1:9/", "--isolate", "always", "--", "true"], "--isolate always"),
        (1, vec!["http://127.0.0.1:9/", "--delay", "9ms", "--", "true"], "a wide-area path"),
        (1, vec!["http://192.0.2.1:9/", "--", "true"], "192.0.2.1 is not an address"),
        (0, vec!["http://192.0.2.1:9/", "--isolate", "never", "--", "true"], "192.0.2.1 is not an address"),
        (0, vec!["http://127.0.0.1:9/", "--set", "fleet.on-worker-loss=end"], "--client"),
        // Nothing is sent to a public address that was not allowed.
        (0, vec!["http://192.0.2.1/"], "--allow-target 192.0.2.1"),
        (1, vec!["http://192.0.2.1/"], "--allow-target 192.0.2.1"),
        (0, vec!["http://192.0.2.1/", "--allow-target", "192.0.2.2"], "--allow-target 192.0.2.1"),
        (0, vec!["http://[2001:db8::1]/"], "--allow-target 2001:db8::1"),
        (0, vec!["--worker", "http://127.0.0.1:9/"], "--worker"),
        (0, vec!["--worker", "--rate", "5"], "--worker"),
    ] {
        let clients = vec![worker.as_str(); clients];
        run(&mut from(&clients, &more)).exits_with(2).complains_of(&[words]);
    }
}

/// The first line of a worker of this version.
pub fn hello(version: &str) -> String {
    format!(r#"{{"type":"hello","version":"{version}","host":"fake","pid":1}}"#)
}

/// A worker that the test drives by hand.
pub struct Spoken {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Spoken {
    fn start() -> Spoken {
        Spoken::start_with(&["load", "--worker"])
    }

    pub fn start_with(arguments: &[&str]) -> Spoken {
        let mut child = straingauge(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("straingauge starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        let mut spoken = Spoken { child, input, output };
        assert_eq!(spoken.hear()["type"], "hello");
        spoken
    }

    pub fn say(&mut self, text: &str) {
        writeln!(self.input.as_mut().unwrap(), "{text}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut text = String::new();
        self.output.read_line(&mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }

    pub fn hear_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.hear();
            if message["type"] == kind {
                return message;
            }
        }
    }

    fn plan(&mut self, address: &str, duration_ns: u64) {
        let plan = serde_json::json!({ "type": "plan", "plan": {
            "addresses": [address], "host": "test", "method": "GET", "targets": [{ "path": "/1k.bin" }], "headers": [],
            "pace": { "loop": "closed" }, "connections": 2, "requests_per_connection": 0, "threads": 0, "cpus": [],
            "warmup_ns": 0, "duration_ns": duration_ns, "timeout_ns": 1_000_000_000u64,
            "connect_timeout_ns": 1_000_000_000u64, "connect_rate_per_sec": 0.0, "source_addresses": [], "seed": 1,
            "precise": false } });
        self.say(&plan.to_string());
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers; the worker is this test's own, and was not reaped.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Closes the worker's input, like a driver that ends.
    pub fn leave(mut self) {
        self.input = None;
        self.ends();
    }

    pub fn ends(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the worker lives on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPUs of each of a process's threads.
fn cpus_of_threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    status
        .filter_map(|text| Some(text.split_once("Cpus_allowed_list:")?.1.lines().next()?.trim().to_string()))
        .collect()
}

#[test]
fn a_worker_runs_its_threads_on_the_cpus_that_it_was_given() {
    skip_unless!(
        std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
        "this machine has one CPU, on which all threads are"
    );
    // The worker opens connections to it, and sends nothing before the start.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (options, pinned) in [(&[][..], 0), (&["--cpus", "0"], 1), (&["--cpus", "0", "--threads", "2"], 2)] {
        let mut worker = Spoken::start_with(&[&["load", "--worker"], options].concat());
        worker.plan(&server.local_addr().unwrap().to_string(), 100_000_000);
        worker.hear_of("ready");
        let cpus = cpus_of_threads(worker.child.id());
        assert_eq!(cpus.iter().filter(|cpus| *cpus == "0").count(), pinned, "{options:?}: {cpus:?}");
    }
}

#[test]
fn a_worker_stops_by_itself_when_its_driver_is_silent() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_string();
    let mut spoken = Spoken::start();
    spoken.plan(&address, 600_000_000_000);
    spoken.hear_of("ready");
    spoken.say(r#"{"type":"start","at_ns":0}"#);
    // No further message comes: the load of ten minutes ends with the lease, and the process soon after.
    let result = spoken.hear_of("result");
    assert_eq!(result["interrupted"], true);
    assert!(result["outcomes"]["ok"].as_u64().unwrap() > 0, "{result}");
    spoken.ends();
}

/// The driver may first wait for slower machines. The lease, which would end the process after 8 s, has not begun.
#[test]
fn a_worker_waits_for_the_first_message_of_its_driver() {
    let mut spoken = Spoken::start();
    std::thread::sleep(Duration::from_secs(9));
    spoken.say(r#"{"type":"ping","sent_ns":7}"#);
    assert_eq!(spoken.hear_of("pong")["sent_ns"], 7);
    spoken.leave();
}

#[test]
fn a_worker_whose_driver_is_gone_ends() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let address = server.url("").trim_start_matches("http://").trim_end_matches('/').to_string();
    let mut spoken = Spoken::start();
    spoken.plan(&address, 600_000_000_000);
    spoken.hear_of("ready");
    spoken.say(r#"{"type":"start","at_ns":0}"#);
    spoken.input = None;
    spoken.hear_of("result");
    spoken.ends();
}

#[test]
fn a_worker_refuses_invalid_input_in_one_sentence() {
    for (text, words) in [
        ("GET / HTTP/1.1", "not a message of the worker protocol"),
        (r#"{"type":"plan"}"#, "not a message of the worker protocol"),
        (r#"{"type":"dance"}"#, "not a message of the worker protocol"),
    ] {
        let mut spoken = Spoken::start();
        spoken.say(text);
        let why = spoken.hear_of("refused")["why"].as_str().unwrap().to_string();
        assert!(why.contains(words), "{why}");
        spoken.ends();
    }
}

#[test]
fn a_worker_refuses_an_endless_line() {
    let mut spoken = Spoken::start();
    let mut input = spoken.input.take().unwrap();
    let writer = std::thread::spawn(move || {
        let block = vec![b'x'; 1 << 20];
        // Sends until the worker hangs up.
        (0..1024).take_while(|_| input.write_all(&block).is_ok()).count()
    });
    let why = spoken.hear_of("refused")["why"].as_str().unwrap().to_string();
    assert!(why.contains("more than 16777216 bytes"), "{why}");
    spoken.ends();
    assert!(writer.join().unwrap() < 40, "it went on reading");
}

#[test]
fn a_driver_killed_outright_leaves_no_worker() {
    needs_server!(Kind::Nginx);
    let folder = open_dir();
    let server = Server::start(Kind::Nginx);
    let (url, pid_file) = (server.url("1k.bin"), folder.path().join("pid"));
    let client = format!("echo $$ > {}; {}", pid_file.display(), worker());
    let mut driver = Running::start(&mut from(&[&client], &[&url, "--connections", "2", "--duration", "600s"]));
    let mut pid = String::new();
    driver
        .wait_until("the worker started", || std::fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n')));
    std::fs::File::open(&pid_file).unwrap().read_to_string(&mut pid).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    driver.signal(libc::SIGKILL);
    driver.wait();
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_gone = || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
    let until = Instant::now() + Duration::from_secs(60);
    while !is_gone() {
        assert!(Instant::now() < until, "worker {pid} lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
}
