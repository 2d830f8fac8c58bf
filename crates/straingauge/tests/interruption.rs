//! Ctrl-C and kill -9 during a sweep: the measured points are kept, and nothing else is left.

use crate::find::SMALL;
use crate::rig::{
    Running, free_port, is_root, needs_server, open_dir, points, processes_of, run, run_record, skip_unless,
    straingauge,
};
use crate::server::{Kind, serve_words};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Network namespaces other than our own, held open so that the kernel does not reuse their numbers.
#[derive(Default)]
pub struct Namespaces {
    names: BTreeSet<PathBuf>,
    _held: Vec<File>,
}

impl Namespaces {
    /// The namespaces of these processes.
    pub fn of_processes(pids: impl IntoIterator<Item = i32>) -> Namespaces {
        let own = std::fs::read_link("/proc/self/ns/net").expect("/proc is mounted");
        let mut found = Namespaces::default();
        for held in pids.into_iter().filter_map(|pid| File::open(format!("/proc/{pid}/ns/net")).ok()) {
            let name = std::fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).expect("it is open");
            if name != own && found.names.insert(name) {
                found._held.push(held);
            }
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Asserts that neither the server nor its namespaces remain: no process in them and no mount of them.
#[track_caller]
pub fn assert_nothing_is_left(pid: i32, state: &Path, namespaces: &Namespaces) {
    let servers = processes_of(state);
    assert!(servers.is_empty(), "the server is still there: {servers:?}");
    let inhabited: Vec<i32> = processes_in(namespaces);
    assert!(inhabited.is_empty(), "processes live on in the namespaces: {inhabited:?}");
    let named = names_of(namespaces);
    assert!(named.is_empty(), "names are left of the namespaces: {named:?}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "straingauge itself is still there");
}

fn processes_in(namespaces: &Namespaces) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| namespaces.names.contains(&ns)))
        .collect()
}

/// Mounts that keep one of the namespaces alive without a process, like those of `ip netns`.
fn names_of(namespaces: &Namespaces) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_one = |line: &&str| namespaces.names.iter().any(|ns| line.contains(&*ns.to_string_lossy()));
    mounts.lines().filter(is_one).map(String::from).collect()
}

/// A sweep on a server that straingauge starts (as root in namespaces), and its files.
struct Sweep {
    _dir: tempfile::TempDir,
    state: PathBuf,
    out: PathBuf,
    running: Running,
    namespaces: Namespaces,
}

/// Starts a long sweep, and returns when two points are complete.
#[track_caller]
fn sweep_under_way(isolate: &str) -> Sweep {
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let mut command = find(&state, &out, isolate);
    let mut running = Running::start(&mut command);
    running.wait_until("two points", || points(&out).len() >= 2);
    let namespaces = Namespaces::of_processes(processes_of(&state));
    assert_eq!(namespaces.is_empty(), isolate == "never" || !is_root(), "root's server has a namespace of its own");
    Sweep { _dir: dir, state, out, running, namespaces }
}

fn find(state: &Path, out: &Path, isolate: &str) -> Command {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command =
        straingauge(["find", &url, "--budget", "60s", "-d", "100ms", "--warmup", "50ms", "--max-connections", "64"]);
    command.args(["--isolate", isolate, "--out"]).arg(out);
    let address = if is_root() && isolate != "never" { "0.0.0.0" } else { "127.0.0.1" };
    command.arg("--").args(serve_words(Kind::Nginx, port, state, address));
    command
}

#[test]
fn ctrl_c_keeps_the_points_and_ends_the_server() {
    needs_server!(Kind::Nginx);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let sweep = sweep_under_way("auto");
        let pid = sweep.running.pid();
        sweep.running.signal(signal);
        let said = sweep.running.wait().exits_with(130);
        assert!(!said.err.contains("panicked"), "{}", said.err);
        assert_nothing_is_left(pid, &sweep.state, &sweep.namespaces);
        let record = run_record(&sweep.out);
        assert_eq!(record["status"], "interrupted");
        assert!(points(&sweep.out).len() >= 2);
        assert!(sweep.out.join("report.html").is_file(), "what was measured is drawn");
        assert!(
            said.flat().contains("interrupt") || said.err.contains("interrupt") || said.flat().contains("ended early"),
            "{}",
            said.out
        );
    }
}

#[test]
fn ctrl_c_while_the_server_starts_is_an_interruption() {
    for command in ["load", "find"] {
        let url = format!("http://127.0.0.1:{}/", free_port());
        let mut words = straingauge([command, &url, "--isolate", "never", "--", "sh", "-c"]);
        let dir = tempfile::tempdir().expect("a temporary folder");
        let started = dir.path().join("started");
        words.arg(format!("touch {}; exec sleep 60", started.display())).current_dir(dir.path());
        let mut running = Running::start(&mut words);
        running.wait_until("the server", || started.is_file());
        running.signal(libc::SIGINT);
        let said = running.wait().exits_with(130);
        assert!(said.err.contains("interrupted while the server was starting"), "{}", said.err);
    }
}

#[test]
fn ctrl_c_during_a_single_load_reports_the_results_so_far() {
    needs_server!(Kind::Nginx);
    let server = crate::server::Server::start(Kind::Nginx);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("run");
    let mut command =
        straingauge(["load", &server.url("1k.bin"), "--duration", "600s", "--warmup", "0s", "--json", "--out"]);
    let mut running = Running::start(command.arg(&out));
    running.wait_until("the run directory", || out.join("run.json").is_file());
    std::thread::sleep(Duration::from_millis(300));
    running.signal(libc::SIGINT);
    let said = running.wait().exits_with(130);
    let outcomes = crate::rig::member(&said.json(), "outcomes").clone();
    assert!(outcomes["ok"].as_u64() > Some(0), "{outcomes:#}");
    assert_eq!(points(&out).len(), 1);
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_names_its_directory() {
    needs_server!(Kind::Nginx);
    let sweep = sweep_under_way("never");
    // Both signals are pending when the process continues.
    for signal in [libc::SIGSTOP, libc::SIGINT, libc::SIGTERM, libc::SIGCONT] {
        sweep.running.signal(signal);
    }
    let said = sweep.running.wait().exits_with(130);
    assert!(said.err.contains(&format!("complete points are kept in {}", sweep.out.display())), "{}", said.err);
    assert!(points(&sweep.out).len() >= 2);
}

#[test]
fn a_load_is_shown_even_if_its_run_directory_cannot_be_written() {
    use std::os::unix::process::CommandExt;
    needs_server!(Kind::Nginx);
    let server = crate::server::Server::start(Kind::Nginx);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("run");
    let mut command = straingauge(["load", &server.url("1k.bin"), "--duration", "200ms", "--warmup", "0s", "--out"]);
    command.arg(&out);
    // There is room for run.json, but not for a point.
    let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
    // SAFETY: the call reads the limits, and is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            (libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0).then_some(()).ok_or_else(std::io::Error::last_os_error)
        })
    };
    let said = run(&mut command).exits_with(1).complains_of(&["cannot write", "ulimit -f"]);
    assert!(said.out.contains("throughput") && said.out.contains("response time"), "{}", said.out);
    assert_eq!(run_record(&out)["status"], "interrupted");
}

#[test]
fn a_refused_input_leaves_no_directory() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for command in ["load", "find"] {
        let mut words = straingauge([command, "http://127.0.0.1:1/", "--out"]);
        run(words.arg(dir.path().join("a/b")).current_dir(dir.path())).exits_with(1);
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("it is there").collect();
        assert!(left.is_empty(), "{command}: {left:?}");
    }
}

#[test]
fn kill_9_loses_at_most_the_point_in_progress_and_the_next_run_cleans_up() {
    needs_server!(Kind::Nginx);
    let sweep = sweep_under_way("auto");
    let pid = sweep.running.pid();
    let before = points(&sweep.out).len();
    sweep.running.signal(libc::SIGKILL);
    assert_eq!(sweep.running.wait().code, None);
    // The kept points can be read and drawn.
    assert!(points(&sweep.out).len() >= before);
    assert_eq!(run_record(&sweep.out)["status"], "running");
    let said = run(straingauge(["report"]).arg(&sweep.out)).exits_with(0);
    assert!(sweep.out.join("report.html").is_file());
    assert!(said.flat().contains("was killed after"), "{}", said.out);
    if !is_root() {
        // Without a namespace, a guardian has ended the server and its children.
        return assert_ends(pid, &sweep.state, &sweep.namespaces);
    }
    // The next run removes the leftovers of the killed one.
    let dir = open_dir();
    let mut next = straingauge(["load", "http://127.0.0.1:1/"]);
    run(next.current_dir(dir.path())).exits_with(1);
    assert_ends(pid, &sweep.state, &sweep.namespaces);
}

/// Asserts that all processes of a sweep end.
#[track_caller]
fn assert_ends(pid: i32, state: &Path, namespaces: &Namespaces) {
    let started = Instant::now();
    while !(processes_in(namespaces).is_empty() && processes_of(state).is_empty())
        && started.elapsed() < Duration::from_secs(10)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_nothing_is_left(pid, state, namespaces);
}

#[test]
fn kill_9_of_the_run_also_ends_the_servers_children() {
    needs_server!(Kind::Nginx);
    let sweep = sweep_under_way("never");
    let pid = sweep.running.pid();
    assert!(processes_of(&sweep.state).len() > 2, "nginx has a master and a worker, and straingauge names them");
    sweep.running.signal(libc::SIGKILL);
    assert_eq!(sweep.running.wait().code, None);
    assert_ends(pid, &sweep.state, &sweep.namespaces);
}

#[test]
fn a_server_that_dies_during_a_sweep_ends_it_and_is_reported() {
    needs_server!(Kind::Nginx);
    let sweep = sweep_under_way("auto");
    let pid = sweep.running.pid();
    // Not straingauge, whose arguments also have the state folder, but nginx's processes.
    for server in processes_of(&sweep.state).into_iter().filter(|server| *server != pid) {
        // SAFETY: kill takes no pointers; only processes of this test know the state folder.
        unsafe { libc::kill(server, libc::SIGKILL) };
    }
    let said = sweep.running.wait().exits_with(1).complains_of(&["the server"]);
    assert_nothing_is_left(pid, &sweep.state, &sweep.namespaces);
    assert_eq!(run_record(&sweep.out)["status"], "interrupted", "{}", said.err);
    assert!(points(&sweep.out).len() >= 2);
}

#[test]
fn two_finds_at_once_do_not_disturb_each_other() {
    skip_unless!(is_root(), "needs root, to make network namespaces");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let [one, two] = ["one", "two"].map(|name| {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).expect("a temporary folder");
        Running::start(&mut small_find(&place))
    });
    one.wait().exits_with(0);
    two.wait().exits_with(0);
}

fn small_find(dir: &Path) -> Command {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command =
        straingauge(["find", &url, "--sweep", "connections", "--isolate", "always", "--budget", "5s", "--out"]);
    command.arg(dir.join("run")).args(SMALL);
    command.arg("--").args(serve_words(Kind::Nginx, port, &dir.join("state"), "0.0.0.0"));
    command
}
