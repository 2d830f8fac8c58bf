//! Makes every step of creating and removing a pair fail in turn, and kills the process at every step. The census
//! finds all remains, and they can be removed.

use super::{Leftover, left_over, plan, remove, root};
use record::fault::VARIABLE;
use record::{PathMechanism, PathPlan};
use std::process::{Child, Command, ExitStatus, Stdio};
use wan::{NamespacePair, PairPlan};

/// Name of the variable with the path that the child creates and the seconds that its server sleeps, which identify
/// the server.
const MAKES: &str = "STRAINGAUGE_TEST_MAKES_A_PAIR";
/// Exit code of a child whose pair could not be created or removed.
const REFUSED: i32 = 7;

/// Not a separate test, but the process whose steps fail.
#[test]
fn maker_of_a_pair() {
    let Ok(words) = std::env::var(MAKES) else { return };
    let (path, seconds) = words.split_once(' ').expect("two words");
    let path = match path {
        "line" => PathPlan {
            delay_ns: 1_000_000,
            mechanism: PathMechanism::TunDelayLine,
            quickack: true,
            ..PathPlan::default()
        },
        _ => PathPlan::default(),
    };
    let made = NamespacePair::create(&PairPlan { path, ..plan() }).and_then(|pair| {
        let mut server = Command::new("sh");
        server.args(["-c", &format!("setsid sleep {seconds} & exec sleep {seconds}")]).stdout(Stdio::null());
        pair.run_server(&mut server)?;
        let mut server = server.spawn().expect("a shell");
        let removed = pair.remove();
        let _ = server.wait();
        removed
    });
    if made.is_err() {
        std::process::exit(REFUSED);
    }
}

fn child(words: &str, fault: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("the test's own program"));
    command
        .args(["--exact", "faults::maker_of_a_pair", "--test-threads=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.env(MAKES, words).env(VARIABLE, fault).spawn().expect("the test's own program")
}

fn processes_with(words: &str) -> usize {
    let of = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let lines = std::fs::read_dir("/proc").expect("/proc is mounted").flatten().filter_map(of);
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").trim() == words).count()
}

/// Creates a pair whose step number `step` fails or is killed; returns how the process ended.
#[track_caller]
fn fault(path: &str, how: &str, step: usize) -> ExitStatus {
    // The number distinguishes this command line from those of other tests.
    let sleep = format!("sleep 71{}", std::process::id() * 1000 + step as u32);
    let mut child = child(&format!("{path} {}", &sleep[6..]), &format!("{how}:{step}"));
    let pid = child.id();
    let status = child.wait().expect("our own child");
    let ours = || left_over().into_iter().filter(|left| left.owner.pid == pid).collect::<Vec<Leftover>>();
    let left = ours();
    if how == "fail" {
        assert_eq!(left, [], "step {step} of {path} that fails leaves this");
    }
    remove(&left);
    assert_eq!(ours(), [], "step {step} of {path} ({how})");
    // The death signal of the parent may still be on its way.
    super::eventually("its processes end", || processes_with(&sleep) == 0);
    status
}

fn every_step(path: &str) {
    if !root() {
        return;
    }
    let is_long = std::env::var_os("STRAINGAUGE_LONG").is_some_and(|value| value == "1");
    let mut last = 0;
    for step in 1.. {
        assert!(step < 1000, "the steps do not end");
        let status = fault(path, "fail", step);
        assert!(status.success() || status.code() == Some(REFUSED), "step {step} of {path}: {status}");
        last = step;
        // Some steps may fail, and their settings are then noted as missing. Beyond the last step the run succeeds.
        if step > 20 && fault(path, "kill", step).success() {
            break;
        }
    }
    // The first steps, and in the short form some of the others.
    (1..=last.min(20)).filter(|step| is_long || step % 3 == 0).for_each(|step| {
        fault(path, "kill", step);
    });
    assert!(last > 20, "only {last} steps");
}

#[test]
fn a_failed_or_killed_step_of_a_veth_leaves_no_remains() {
    every_step("veth");
}

#[test]
fn a_failed_or_killed_step_of_a_delay_line_leaves_no_remains() {
    every_step("line");
}
