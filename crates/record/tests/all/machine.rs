//! The machine, owners of processes and files, and what ended ones leave behind.

use record::leftovers::{FoundLeftovers, Leftover, MARK, SearchScope, end_process, mark, parse_mark};
use record::machine::{cgroup_mount_in, cpu_list, cpus_of_list};
use record::owner::{Owner, OwnerState};
use record::unfinished::{KIND, name_of};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_unified_hierarchy_is_found_among_the_old_ones() {
    let text = "25 24 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                34 24 0:31 / /sys/fs/cgroup/unified rw,relatime shared:1 - cgroup2 cgroup2 rw\n";
    let of = |controller| cgroup_mount_in(text, controller).and_then(|path| Some(path.to_str()?.to_string()));
    assert_eq!(of(None).as_deref(), Some("/sys/fs/cgroup/unified"));
    assert_eq!(of(Some("cpu")).as_deref(), Some("/sys/fs/cgroup/cpu"));
    assert_eq!((of(Some("cp")), cgroup_mount_in("nonsense\n - cgroup2\n", None)), (None, None));
}

#[test]
fn a_cpu_list_is_read_as_the_kernel_writes_it() {
    assert_eq!(cpus_of_list("0-1,4"), vec![0, 1, 4]);
    assert!(cpus_of_list("").is_empty());
    assert!(cpus_of_list("x-y").is_empty());
    assert_eq!(cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    for cpus in [vec![], vec![7], (0..300).collect(), (0..300).step_by(2).collect::<Vec<_>>()] {
        assert_eq!(cpus_of_list(&cpu_list(&cpus)), cpus);
    }
}

#[test]
fn an_owners_text_is_read_back_and_other_text_is_refused() {
    let owner = Owner::of_this_process();
    assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
    for other in ["", "1", "1-2", "0-2-3", "1-2-3-4", "+1-2-3", "1--3", "1-2-g", "1-2-100000000", "x-2-3"] {
        assert_eq!(Owner::parse(other), None, "{other}");
    }
}

#[test]
fn an_owner_is_alive_only_with_its_start_time_and_on_this_machine() {
    let this = Owner::of_this_process();
    assert_eq!(this.life(), OwnerState::Alive);
    let later = Owner { start_ticks: this.start_ticks + 1, ..this };
    assert_eq!(later.life(), OwnerState::Ended, "the same number given to another process");
    assert_eq!(Owner { place: !this.place, ..this }.life(), OwnerState::Elsewhere);
}

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

fn ended() -> Owner {
    Owner { start_ticks: 1, ..Owner::of_this_process() }
}

#[test]
fn only_unfinished_files_of_ended_processes_are_found_and_removed() {
    let base = tempfile::tempdir().unwrap();
    let points = base.path().join("a-run/points");
    fs::create_dir_all(&points).unwrap();
    let elsewhere = Owner { place: !ended().place, ..ended() };
    let left = points.join(format!(".003.{}.partial", ended()));
    fs::create_dir(&left).unwrap();
    fs::write(left.join("point.json"), "{").unwrap();
    fs::write(base.path().join(format!("a-run/.run.json.{}.partial", ended())), "{").unwrap();
    let kept = [
        name_of("004"),
        format!(".005.{elsewhere}.partial"),
        ".006.partial".into(),
        format!("007.{}.partial", ended()),
        "000".into(),
    ];
    for name in &kept {
        fs::write(points.join(name), "").unwrap();
    }
    let scene = SearchScope::new(vec![base.path().into(), base.path().join("missing")]);
    let found = (KIND.find)(&scene);
    assert_eq!(found.not_seen, Vec::<String>::new());
    assert_eq!(found.left.len(), 2, "{found:?}");
    for left in &found.left {
        (KIND.remove)(left).unwrap();
        (KIND.remove)(left).expect("what is gone is no error");
    }
    assert_eq!((KIND.find)(&scene), FoundLeftovers::default());
    assert!(kept.iter().all(|name| points.join(name).exists()));
}

#[test]
fn directories_that_others_can_write_are_refused_and_links_are_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let (open, outside) = (base.path().join("runs/open"), base.path().join("outside"));
    fs::create_dir_all(&open).unwrap();
    fs::create_dir(&outside).unwrap();
    let name = format!(".x.{}.partial", ended());
    for folder in [&open, &outside] {
        fs::write(folder.join(&name), "").unwrap();
    }
    std::os::unix::fs::symlink(&outside, base.path().join("runs/link")).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let found = (KIND.find)(&SearchScope::new(vec![base.path().join("runs")]));
    assert_eq!(found.left, []);
    assert!(found.not_seen[0].contains("other users can write to it"), "{found:?}");
    let in_open = Leftover {
        kind: KIND.name,
        name: open.join(&name).to_str().unwrap().into(),
        detail: String::new(),
        owner: ended(),
    };
    assert!((KIND.remove)(&in_open).unwrap_err().contains("other users can write"));
    let not_ours = Leftover { name: "/etc/passwd".into(), ..in_open };
    assert!((KIND.remove)(&not_ours).unwrap_err().contains("not straingauge's"));
    assert!(open.join(&name).exists() && outside.join(&name).exists());
}
