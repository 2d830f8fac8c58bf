//! Every step that asks the kernel for something fails in turn while observing a server. Observing continues without
//! it or reports why it cannot, and leaves no program, map or event in the kernel.

use crate::exact::load::Actor;
use observe::profile::{ProfileOptions, Profiler};
use observe::slow_down::SlowDown;
use observe::watch::{WatchOptions, Watcher};
use record::SlowPlace;
use record::fault::VARIABLE;
use record::watch::Mode;
use std::process::{Command, Output, Stdio};

/// Names the port of the server for a child that observes it.
const OBSERVES: &str = "STRAINGAUGE_TEST_OBSERVES";
/// The exit code of a child that could not observe and reported why.
const REFUSED: i32 = 7;

/// Not a test by itself: the process whose steps fail.
#[test]
fn observer_of_a_server() {
    let Ok(port) = std::env::var(OBSERVES) else { return };
    let port = port.parse().expect("a port");
    let observed: Result<(), Box<dyn std::error::Error>> = (|| {
        for mode in [Mode::Counts, Mode::Exact] {
            let mut watcher = Watcher::start(WatchOptions { mode, ..WatchOptions::of_port(port) })?;
            watcher.read();
            watcher.read();
            if let Some(why) = watcher.why_no_programs() {
                assert!(!why.to_string().is_empty(), "a reason");
            }
        }
        let mut profiler = Profiler::attach(ProfileOptions::new(port))?;
        profiler.begin()?;
        profiler.tick()?;
        let _ = profiler.end(None);
        let mut slow = SlowDown::attach(port, None, &crate::slow_places::places(), Some("straingauge_test_place"))?;
        slow.set(Some(SlowPlace::Receive), 1000)?;
        Ok(())
    })();
    let held = of_the_kernel();
    assert!(held.is_empty(), "kept: {held:?}");
    println!("@steps {}", record::fault::steps());
    if let Err(why) = observed {
        println!("@because {why}");
        std::process::exit(REFUSED);
    }
}

/// Programs, maps, links and events of the kernel that this process has open.
fn of_the_kernel() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").flatten();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let names = targets.map(|target| target.display().to_string());
    names.filter(|name| name.contains("bpf") || name.contains("perf_event") || name.contains("btf")).collect()
}

fn observed(port: u16, step: usize) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("the test's own program"));
    command.args(["--exact", "failing_steps::observer_of_a_server", "--nocapture", "--test-threads=1"]);
    command.env(OBSERVES, port.to_string()).env(VARIABLE, format!("fail:{step}")).stdin(Stdio::null());
    command.output().expect("the test's own program")
}

#[test]
fn a_failed_step_of_observing_leaves_a_reason_and_no_resources() {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("SKIPPED a_failed_step_of_observing_leaves_a_reason_and_no_resources: needs root");
    }
    let mut server = Actor::start("places");
    let port = server.port();
    let said = |output: &Output, key: &str| -> String {
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().find_map(|line| line.split_once(key)).map_or(String::new(), |(_, said)| said.to_string())
    };
    let whole = observed(port, 0);
    assert!(whole.status.success(), "{whole:?}");
    let steps: usize = said(&whole, "@steps ").parse().expect("a number");
    assert!(steps > 40, "only {steps} steps");
    let mut refused = 0;
    let mut fail = |step: usize| {
        let output = observed(port, step);
        match output.status.code() {
            Some(0) => {}
            Some(REFUSED) => {
                let why = said(&output, "@because ");
                assert!(why.len() > 10 && why.len() < 600, "step {step}: '{why}'");
                refused += 1;
            }
            _ => panic!("step {step} of {steps}: {output:#?}"),
        }
        (refused, said(&output, "@steps ").parse::<usize>().unwrap_or(step))
    };
    if std::env::var_os(crate::boot::LONG).is_some() {
        (1..=steps).for_each(|step| _ = fail(step));
    } else {
        fail(steps / 2);
        // The last nine steps have no alternative. On a busy machine one process takes more steps than another, so
        // that a step may never come.
        let mut step = steps - 4;
        while let (0, taken) = fail(step) {
            step = taken.min(step) - 4;
        }
    }
    println!("{refused} of the failing steps are needed, of {steps} in all");
    assert!(refused > 0);
}
