//! `kill -9` at any moment: the leftovers of the killed process are found and removed, other things are not, and
//! complete points stay readable. A seed determines the moments.

use crate::rig::{
    Running, free_port, is_root, long_run, needs_server, open_dir, points, processes_of, run, straingauge,
};
use crate::server::{Kind, Server, serve_words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Pseudo-random numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A server that leaves its session: a shell starts a daemon in another session, then becomes the server. Both have
/// the state folder as an argument or as working folder.
fn with_daemon(state: &Path, server: &[String]) -> Vec<String> {
    let words: Vec<&str> = server.iter().map(String::as_str).collect();
    let script = r#"mkdir -p "$0" && (cd "$0" && exec setsid sleep 600) & exec "$@""#;
    let mut all = vec!["sh".into(), "-c".into(), script.into(), state.to_str().expect("a temporary path").into()];
    all.extend(words.into_iter().map(String::from));
    all
}

/// The command that is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Load,
    LoadBesideServer,
    Find,
    FindOverPath,
    Cold,
    Watch,
    Profile,
    Wan,
}

impl Victim {
    /// The commands that can run here.
    fn all() -> Vec<Victim> {
        use Victim::*;
        let mut all = vec![Load, LoadBesideServer, Find, Cold, Watch];
        if is_root() {
            all.extend([FindOverPath, Wan, Profile]);
        }
        all
    }

    /// The command line. `running`: a server that is not part of it.
    fn command(self, dir: &Path, running: &Server) -> Command {
        let (state, out) = (dir.join("state"), dir.join("runs/one"));
        let port = free_port();
        let own = format!("http://127.0.0.1:{port}/1k.bin");
        let other = running.url("1k.bin");
        let watched = format!(":{}", running.port);
        let mut words: Vec<&str> = match self {
            Victim::Load | Victim::LoadBesideServer => vec!["load", &own, "-d", "60s", "--isolate"],
            Victim::Find | Victim::FindOverPath => vec!["find", &own, "--duration", "50ms", "--budget", "60s"],
            Victim::Cold => vec!["load", &other, "-d", "60s", "--cold", "200"],
            Victim::Watch => vec!["watch", &watched, "--interval", "100ms"],
            Victim::Profile => vec!["profile", &watched, "--duration", "60s"],
            Victim::Wan => vec!["wan", "--delay", "1ms", "--"],
        };
        words.extend(match self {
            Victim::Load => vec!["auto"],
            Victim::LoadBesideServer => vec!["never"],
            Victim::FindOverPath => vec!["--delay", "1ms"],
            _ => vec![],
        });
        let mut command = straingauge(words);
        if matches!(self, Victim::Load | Victim::LoadBesideServer | Victim::Find | Victim::FindOverPath) {
            let address = if is_root() && self != Victim::LoadBesideServer { "0.0.0.0" } else { "127.0.0.1" };
            let server = with_daemon(&state, &serve_words(Kind::Nginx, port, &state.join("nginx"), address));
            command.arg("--out").arg(&out).arg("--").args(server);
        }
        match self {
            Victim::Cold | Victim::Watch => drop(command.arg("--out").arg(&out)),
            Victim::Wan => drop(command.args(with_daemon(&state, &["sleep".into(), "600".into()]))),
            _ => {}
        }
        command
    }
}

/// The leftovers of one process, as `doctor` shows them.
#[track_caller]
fn left_of(pid: i32, runs: &Path) -> Vec<Value> {
    let mut doctor = straingauge(["doctor", "--leftovers", "--json", "--runs"]);
    // Leftovers of other tests may also cause exit code 1.
    let said = run(doctor.arg(runs));
    assert!(matches!(said.code, Some(0 | 1)), "{:?}: {}", said.code, said.err);
    let all = said.json()["leftovers"].as_array().expect("a list").clone();
    all.into_iter().filter(|left| left["owner"]["pid"] == pid).collect()
}

/// Waits for an asynchronous event, e.g. a signal. The limit only keeps a broken build from hanging.
#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills one command at a random moment, and asserts that nothing remains and no complete point is lost.
#[track_caller]
fn kill_one(number: u64, victim: Victim, draws: &mut Draws, running: &Server) {
    let dir = open_dir();
    let runs = dir.path().join("runs");
    std::fs::create_dir(&runs).expect("a temporary folder");
    let mut command = victim.command(dir.path(), running);
    // Either before a step that changes something, or after a time.
    let (step, delay_ms) = (draws.below(60) + 1, draws.below(if long_run() { 2500 } else { 1200 }));
    let by_step = draws.below(3) == 0;
    if by_step {
        command.env("STRAINGAUGE_FAULT", format!("kill:{step}"));
    }
    let what = format!("kill {number}: {victim:?} at step {step} ({by_step}) or after {delay_ms} ms");
    let mut killed = Running::start(&mut command);
    let pid = killed.pid();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(delay_ms) && !killed.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let whole = points(&runs.join("one")).len();
    let is_guarded = !guardians_of(pid).is_empty();
    killed.signal(libc::SIGKILL);
    let said = killed.wait();
    assert_eq!(said.code, None, "{what} ended by itself: {}{}", said.out, said.err);
    if is_guarded {
        // The guardian acts before anything else cleans up.
        eventually(&format!("{what}: the guardian ends its processes: {:?}", processes_of(dir.path())), || {
            processes_of(dir.path()).is_empty()
        });
    }
    let is_next_run = draws.below(2) == 0;
    if is_next_run {
        run(straingauge(["load", "http://127.0.0.1:1/"]).current_dir(dir.path())).exits_with(1);
        let left = left_of(pid, &runs);
        // A run does not search for unfinished files, because they are harmless.
        let is_other = left.iter().any(|left| left["kind"] != "unfinished file");
        assert!(!is_other, "{what}, after the next run: {left:#?}");
    }
    // Leftovers of other tests may also cause exit code 1.
    let cleaned = run(straingauge(["doctor", "--clean", "--json", "--runs"]).arg(&runs));
    let left = left_of(pid, &runs);
    assert!(left.is_empty(), "{what}, after doctor --clean: {left:#?}\n{}{}", cleaned.out, cleaned.err);
    eventually(&format!("{what}: its processes end: {:?}", processes_of(dir.path())), || {
        processes_of(dir.path()).is_empty()
    });
    readable(&runs.join("one"), whole, &what);
}

/// Asserts that a run can be read up to its last complete point.
#[track_caller]
fn readable(out: &Path, whole: usize, what: &str) {
    if !out.exists() {
        return assert_eq!(whole, 0, "{what}");
    }
    let said = run(straingauge(["report"]).arg(out));
    assert!(said.code.is_some_and(|code| code <= 2), "{what}: {:?}\n{}{}", said.code, said.out, said.err);
    assert!(!said.err.contains("panicked"), "{what}: {}", said.err);
    let kept = points(out);
    assert!(kept.len() >= whole, "{what}: {whole} points were whole, {} are left", kept.len());
    let folders = std::fs::read_dir(out.join("points")).into_iter().flatten().flatten().count();
    assert_eq!(folders, kept.len(), "{what}: every folder is a whole point");
}

#[test]
fn a_kill_at_any_moment_leaves_no_remains_and_loses_no_points() {
    needs_server!(Kind::Nginx);
    let running = Server::start(Kind::Nginx);
    let victims = Victim::all();
    let kills = if long_run() { 1000 } else { victims.len() as u64 };
    let mut draws = Draws(20_261_124);
    for number in 0..kills {
        let victim = victims[number as usize % victims.len()];
        kill_one(number, victim, &mut draws, &running);
        if (number + 1) % 50 == 0 {
            eprintln!("{} kills", number + 1);
        }
    }
}

#[test]
fn doctor_finds_and_ends_a_server_without_session_and_guardian() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (runs, state) = (dir.path().join("runs"), dir.path().join("state"));
    std::fs::create_dir(&runs).expect("a temporary folder");
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = straingauge(["load", &url, "-d", "60s", "--isolate", "never", "--out"]);
    command.arg(runs.join("one")).arg("--");
    command.args(with_daemon(&state, &serve_words(Kind::Nginx, port, &state.join("nginx"), "127.0.0.1")));
    let mut running = Running::start(&mut command);
    running.wait_until("the run", || runs.join("one/run.json").is_file());
    let pid = running.pid();
    assert!(left_of(pid, &runs).is_empty(), "what belongs to a living run is not left over");
    run(straingauge(["doctor", "--clean", "--runs"]).arg(&runs));
    assert!(!running.has_ended() && processes_of(&state).len() > 2, "nor is it removed");
    for guardian in guardians_of(pid) {
        // SAFETY: kill takes no pointers; the process guards our own child.
        unsafe { libc::kill(guardian, libc::SIGKILL) };
    }
    eventually("the guardian ends", || guardians_of(pid).is_empty());
    running.signal(libc::SIGKILL);
    let _ = running.wait();
    run(straingauge(["doctor", "--clean", "--runs"]).arg(&runs));
    assert_eq!(left_of(pid, &runs), Vec::<Value>::new());
    eventually("its processes end", || processes_of(dir.path()).is_empty());
}

/// The living guardians of what a process started.
pub fn guardians_of(pid: i32) -> Vec<i32> {
    let marked = "\0guard-session\0";
    let owner = format!("\0{pid}-");
    let of = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains(marked) && line.contains(&owner)).then(|| entry.file_name().to_str()?.parse().ok())?
    };
    std::fs::read_dir("/proc").expect("/proc is mounted").flatten().filter_map(of).collect()
}

#[test]
fn without_privileges_doctor_names_the_unsearched_places() {
    let dir = open_dir();
    std::fs::create_dir(dir.path().join("runs")).expect("a temporary folder");
    let others = dir.path().join("runs/open");
    std::fs::create_dir(&others).expect("a temporary folder");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&others, everybody).expect("our own folder");
    // Leftovers of other tests may also cause exit code 1.
    let said = run(straingauge(["doctor", "--leftovers"]).current_dir(dir.path()));
    assert!(said.out.contains("runs/open: other users can write to it"), "{}", said.out);
    run(&mut straingauge(["doctor", "--runs", "x"])).exits_with(2).complains_of(&["--leftovers"]);
    run(&mut straingauge(["doctor", "--clean", "--runs", "/nowhere"])).exits_with(2).complains_of(&["/nowhere"]);
}
