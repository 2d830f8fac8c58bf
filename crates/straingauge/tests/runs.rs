//! `runs` on a folder with real runs and other things.

use crate::find::SMALL;
use crate::rig::{Said, needs_server, open_dir, run, straingauge};
use crate::server::{Kind, Server};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Adds things to a folder of runs that should not be there, but may be.
fn spoil(folder: &Path) {
    let made = |name: &OsStr| {
        let place = folder.join(name);
        std::fs::create_dir(&place).expect("a temporary folder");
        place.join("run.json")
    };
    std::fs::write(made("broken".as_ref()), "{ half").expect("our own folder");
    std::fs::write(made("newer".as_ref()), r#"{"schema":99}"#).expect("our own folder");
    std::fs::write(made(OsStr::from_bytes(b"\x1b[31mred\xff")), "[]").expect("our own folder");
    let huge = std::fs::File::create(made("huge".as_ref())).expect("our own folder");
    huge.set_len(40 << 20).expect("a hole takes no room");
    let pipe = made("pipe".as_ref());
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs").success());
    symlink("/", folder.join("out")).expect("a link");
}

fn runs(folder: &Path, options: &[&str]) -> Said {
    run(straingauge(["runs"]).arg(folder).args(options))
}

#[test]
fn real_runs_are_listed_filtered_and_linked_and_other_directories_are_named() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let folder = dir.path().join("runs");
    let server = Server::start(Kind::Nginx);
    let mut find = straingauge(["find", &server.url("1k.bin"), "--budget", "5s", "--sweep", "connections", "--out"]);
    run(find.arg(folder.join("found")).args(SMALL)).exits_with(0);
    for name in ["a", "b"] {
        let mut load = straingauge(["load", &server.url("1k.bin"), "--duration", "100ms", "--warmup", "0s", "--out"]);
        run(load.arg(folder.join("below").join(name))).exits_with(0);
    }
    spoil(&folder);

    let said = runs(&folder, &[]).exits_with(0);
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'), "an escape code of a name was printed");
    let flat = said.flat();
    assert!(flat.starts_with("3 runs of 2 scenarios in "), "{}", said.out);
    for part in ["1 nginx /", "schema 99", "not a regular file", "more than 16777216 bytes", "?[31mred"] {
        assert!(flat.contains(part), "'{part}' is not in:\n{}", said.out);
    }

    let json = runs(&folder, &["--json"]).exits_with(0).json();
    let of = |at: usize| &json["runs"][at];
    assert_eq!([of(0), of(1), of(2)].map(|row| row["kind"].as_str().unwrap_or_default()), ["load", "load", "find"]);
    assert_eq!(of(0)["scenario"], of(1)["scenario"]);
    assert_eq!(of(0)["before"]["path"], of(1)["path"], "{json:#}");
    assert!(of(2)["answer"].is_object() && of(2)["peak"]["per_sec"].as_f64() > Some(0.0), "{json:#}");
    assert_eq!(json["unreadable"].as_array().map(Vec::len), Some(5), "{json:#}");

    let only = runs(&folder, &["--only", "FIND", "--only", "nginx", "--json"]).exits_with(0).json();
    assert_eq!((only["runs"].as_array().map(Vec::len), &only["filtered_out"]), (Some(1), &2.into()));
    let none = runs(&folder, &["--since", "2999-01-01"]).exits_with(0);
    assert!(none.out.starts_with("No run in "), "{}", none.out);

    let page = dir.path().join("index page.html");
    let said = runs(&folder, &["--page", page.to_str().expect("text")]).exits_with(0);
    assert!(said.err.contains("index page.html"), "{}", said.err);
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(html.contains("href=\"./runs/found/report.html\""), "{html}");
    assert!(html.contains("none yet"), "load writes no report");
}

#[test]
fn invalid_directories_and_dates_are_refused() {
    let dir = open_dir();
    let said = run(straingauge(["runs"]).current_dir(dir.path())).exits_with(2);
    said.complains_of(&["folder runs does not exist", "name the folder"]);
    std::fs::write(dir.path().join("file"), "").expect("our own folder");
    runs(&dir.path().join("file"), &[]).exits_with(2).complains_of(&["is not a folder"]);
    runs(dir.path(), &["--since", "yesterday"]).exits_with(2).complains_of(&["--since", "2026-11-01"]);
    runs(dir.path(), &["--page", "/nonexistent/x.html"]).exits_with(1).complains_of(&["/nonexistent/x.html"]);
    let said = runs(dir.path(), &[]).exits_with(0);
    assert!(said.out.starts_with("No run in "), "{}", said.out);
}
