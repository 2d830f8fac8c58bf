use record::leftovers::{FoundLeftovers, Leftover, SearchScope};
use record::owner::Owner;
use record::unfinished::{KIND, name_of};
use std::fs;
use std::os::unix::fs::PermissionsExt;

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
