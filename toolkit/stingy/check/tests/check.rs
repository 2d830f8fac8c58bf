//! Checks a recorded run of nginx, and inputs that are not runs.

#[allow(dead_code)]
#[path = "../../../../crates/analyze/tests/all/recorded.rs"]
mod recorded;

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the exit code and the output of the command.
fn check(run: &Path, options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straingauge-stingy-check"));
    let done = command.arg(run).args(options).output().expect("our own program");
    (done.status.code(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[track_caller]
fn refused(run: &Path, options: &[&str], why: &str) {
    let (code, said) = check(run, options);
    assert!(code == Some(1) && said.lines().count() == 1 && said.contains(why), "{code:?}: {said}");
}

#[test]
fn a_recorded_run_of_nginx_is_not_worth_it() {
    let nginx = recorded::run("nginx");
    let (code, said) = check(&nginx.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    for word in ["times as many requests: neither", "within its error", "not measured", "--memwalk"] {
        assert!(said.contains(word), "'{word}' is missing:\n{said}");
    }
    let example = repository().join("toolkit/stingy/schema/example.json");
    let (_, said) = check(&nginx.path(), &["--memwalk", example.to_str().expect("text")]);
    assert!(said.contains("memwalk: most at stage SEND_BODY: 4,872 bytes, 77 lines"), "{said}");
}

#[test]
fn uncheckable_runs_are_refused_in_one_sentence() {
    refused(&repository().join("docs"), &[], "run.json");
    let page = repository().join("README.md");
    let memwalk = ["--memwalk", page.to_str().expect("text")];
    let nginx = recorded::run("nginx");
    refused(&nginx.path(), &memwalk, "is not a report of memwalk");
    let changed = |from: &str, to: &str| {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let points = nginx.path().join("points");
        let text = std::fs::read_to_string(nginx.path().join("run.json")).expect("a record");
        std::fs::write(dir.path().join("run.json"), text.replace(from, to)).expect("our own folder");
        for point in std::fs::read_dir(points).expect("points") {
            let point = point.expect("a point");
            let folder = dir.path().join("points").join(point.file_name());
            std::fs::create_dir_all(&folder).expect("our own folder");
            let text = std::fs::read_to_string(point.path().join("point.json")).expect("a point");
            std::fs::write(folder.join("point.json"), text.replace(from, to)).expect("our own folder");
        }
        dir
    };
    let unwatched = changed("server.cpu_us_per_request", "server.unknown");
    refused(unwatched.path(), &[], "does not have the server's CPU time");
    refused(changed("\"command\":\"find\"", "\"command\":\"load\"").path(), &[], "a run of load, not of find");
}
