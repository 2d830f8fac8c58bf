//! `straingauge stingy-check` on a recorded run of nginx and on what is no such run.

use crate::rig::{Said, repository, run, straingauge};

fn check(run_directory: &str, options: &[&str]) -> Said {
    run(straingauge(["stingy-check"]).arg(repository().join(run_directory)).args(options))
}

const NGINX: &str = "crates/analyze/tests/recorded/planted/nginx";

#[test]
fn a_recorded_run_of_nginx_is_not_worth_it() {
    let said = check(NGINX, &[]).exits_with(0).out;
    for word in ["times the requests: neither", "within its errors", "not measured", "--memwalk"] {
        assert!(said.contains(word), "'{word}' is missing:\n{said}");
    }
    let example = repository().join("toolkit/stingy/schema/example.json");
    let said = check(NGINX, &["--memwalk", example.to_str().expect("text")]).exits_with(0).out;
    assert!(said.contains("memwalk: most at stage SEND_BODY: 4872 bytes, 77 lines"), "{said}");
}

#[test]
fn what_cannot_be_checked_is_refused_in_one_sentence() {
    check("docs", &[]).exits_with(1).complains_of(&["run.json"]);
    let page = repository().join("README.md");
    check(NGINX, &["--memwalk", page.to_str().expect("text")]).exits_with(2).complains_of(&["is no report of memwalk"]);
    let changed = |from: &str, to: &str| {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let points = repository().join(NGINX).join("points");
        let text = std::fs::read_to_string(repository().join(NGINX).join("run.json")).expect("a record");
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
    let of = |dir: tempfile::TempDir, words: &[&str]| {
        run(straingauge(["stingy-check"]).arg(dir.path())).exits_with(1).complains_of(words);
    };
    of(changed("server.cpu_us_per_request", "server.unknown"), &["does not have the server's CPU time"]);
    of(changed("\"command\":\"find\"", "\"command\":\"load\""), &["a run of load, not of find"]);
}
