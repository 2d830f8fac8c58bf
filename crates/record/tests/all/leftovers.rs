use record::leftovers::{Leftover, MARK, SearchScope, end_process, mark, parse_mark};
use record::owner::Owner;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn sleeper(mark: &str) -> std::process::Child {
    Command::new("sleep").arg("60").env(MARK, mark).stdin(Stdio::null()).spawn().expect("coreutils")
}

#[test]
fn a_written_mark_is_read_back() {
    let (owner, role) = (Owner::of_this_process(), "server");
    assert_eq!(parse_mark(&mark(role, 7)), Some((owner, role)));
    for other in ["", "1-2-3", "1-2-3.server", "1-2-3.server.x", "x.server.1"] {
        assert_eq!(parse_mark(other), None, "{other}");
    }
}

#[test]
fn only_processes_of_ended_owners_are_found_and_ended() {
    let ended = Owner { start_ticks: 1, ..Owner::of_this_process() };
    let elsewhere = Owner { place: !ended.place, ..ended };
    let mut orphan = sleeper(&format!("{ended}.test.0"));
    let mut others = [
        sleeper(&mark("test", 1)),
        sleeper(&format!("{elsewhere}.test.0")),
        sleeper("nonsense"),
        sleeper(&format!("{ended}.another-role.0")),
    ];
    // Between fork and exec, a child still has this process's environment.
    let begun = Instant::now();
    let found = loop {
        let found = SearchScope::default().processes("process", "test");
        if !found.left.is_empty() || begun.elapsed() > Duration::from_secs(10) {
            break found;
        }
    };
    let names: Vec<&str> = found.left.iter().map(|left| left.name.as_str()).collect();
    assert_eq!(names, [orphan.id().to_string()]);
    assert_eq!((found.left[0].owner, found.left[0].detail.as_str()), (ended, "sleep 60"));
    // A process that reuses the id without the mark is not touched.
    let reused = Leftover { name: others[2].id().to_string(), ..found.left[0].clone() };
    end_process(&reused).unwrap();
    end_process(&found.left[0]).unwrap();
    orphan.wait().unwrap();
    for other in &mut others {
        assert!(other.try_wait().unwrap().is_none(), "it still runs");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
