//! `--markdown` and `--junit` on a recorded run and on a server. python/tests/test_ci_jobs.py runs the jobs of
//! docs/ci.md.

use crate::broken_server::{BrokenServer, Fault};
use crate::recorded;
use crate::rig::{Said, needs_server, open_dir, run, straingauge, straingauge_in_shell};
use crate::server::{Kind, Server};
use std::path::Path;

fn compare(options: &[&str]) -> Said {
    let nginx = recorded::run("nginx");
    run(straingauge(["compare"]).args([nginx.path(), nginx.path()]).args(options))
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

#[test]
fn a_comparison_is_written_to_both_files_and_the_terminal() {
    let dir = open_dir();
    let (markdown, junit) = (dir.path().join("a.md"), dir.path().join("a.xml"));
    let paths = [markdown.to_str().expect("text"), junit.to_str().expect("text")];
    let said = compare(&["--markdown", paths[0], "--junit", paths[1]]);
    assert!(matches!(said.code, Some(0 | 4)), "{}", said.err);
    assert!(said.out.starts_with("A: ") && said.out.contains("B / A"), "{}", said.out);
    let (markdown, junit) = (text(&markdown), text(&junit));
    assert!(markdown.starts_with("### straingauge compare\n\n**") && markdown.contains("| B / A |"), "{markdown}");
    assert!(junit.contains("<testsuite name=\"comparison\"") && junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn a_reader_that_leaves_early_does_not_change_the_exit_code() {
    let (server, dir) = (BrokenServer::start(Fault::ServerError), open_dir());
    let load = ["load", &server.url(), "--warmup", "0s", "--duration", "200ms", "--any-status", "--quiet"];
    let limit = ["--fail-if", "p99 > 1ns", "--markdown", "summary.md"];
    let line = "{ \"$@\" 2>&1; echo $? >code; } | true";
    run(straingauge_in_shell(line, &[&load[..], &limit].concat()).current_dir(dir.path()));
    assert_eq!(text(&dir.path().join("code")), "3\n", "the limit was crossed");
    assert!(text(&dir.path().join("summary.md")).contains("p99"));
}

#[test]
fn standard_output_has_only_the_summary() {
    let said = compare(&["--markdown", "-"]);
    assert!(said.out.starts_with("### ") && !said.out.contains("\nA: "), "{}", said.out);
    let folder = open_dir();
    let page = folder.path().join("page.html");
    let nginx = recorded::run("nginx");
    let said = run(straingauge(["report", "--markdown", "/dev/stdout", "--page"]).arg(&page).arg(nginx.path()));
    let said = said.exits_with(0);
    assert!(said.out.starts_with("### straingauge find: http") && said.out.contains("| connections |"), "{}", said.out);
    assert!(page.is_file(), "the page is drawn as always");
    // Only Markdown was requested, so no page is written.
    let page = nginx.path().join("report.html");
    let _ = std::fs::remove_file(&page);
    run(straingauge(["report", "--markdown", "-"]).arg(nginx.path())).exits_with(0);
    assert!(!page.exists());
    // Standard output can also be used for the page.
    for command in [
        &mut straingauge(["compare"]).arg(nginx.path()).arg(nginx.path()),
        &mut straingauge(["report"]).arg(nginx.path()),
        &mut straingauge(["runs"]).arg(nginx.path().parent().expect("a folder of runs")),
    ] {
        let printed = run(command.args(["--page", "-"])).out;
        assert!(printed.starts_with("<!") && printed.trim_end().ends_with("</html>"), "{printed:.300}");
    }
}

#[test]
fn wrong_files_are_refused_before_measuring() {
    for (options, words) in [
        (&["--markdown", "x", "--junit", "x"][..], &["--markdown and --junit both name x"][..]),
        (&["--markdown", "/dev/stdout", "--junit", "/proc/self/fd/1"], &["both name /dev/stdout"]),
        (&["--junit", "/dev/stdout", "--json"], &["--junit and --json both write", "name a file"]),
        (&["--junit", "/tmp"], &["/tmp is a folder", "name a file"]),
    ] {
        compare(options).exits_with(2).complains_of(words);
        run(straingauge(["load", "http://127.0.0.1:9/"]).args(options)).exits_with(2).complains_of(words);
        run(straingauge(["find", "http://127.0.0.1:9/"]).args(options)).exits_with(2).complains_of(words);
    }
    compare(&["--page", "-", "--json"]).exits_with(2).complains_of(&["--page and --json both write", "name a file"]);
    compare(&["--page", "x", "--junit", "x"]).exits_with(2).complains_of(&["both name x"]);
    compare(&["--markdown", "/nonexistent/x"]).exits_with(1).complains_of(&["cannot write /nonexistent/x"]);
    let folder = open_dir();
    let log = folder.path().join("run.json");
    let record = serde_json::json!({
        "schema": 1, "status": "complete", "started_unix_ms": 1, "writer_pid": 1, "machine": {},
        "scenario": {"command": "watch", "name": "w", "port": 8080, "mode": "counts", "classes": [],
            "repeat_command": "", "overhead_limit_ratio": 0.01},
    });
    std::fs::write(log, record.to_string()).expect("our own folder");
    std::fs::create_dir(folder.path().join("points")).expect("our own folder");
    let said = run(straingauge(["report", "--markdown", "x.md"]).arg(folder.path()));
    said.exits_with(2).complains_of(&["--markdown is for runs of find and load; this is one of watch"]);
}

#[test]
fn a_load_reports_its_limits_in_both_files_and_keeps_its_exit_code() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let dir = open_dir();
    let (markdown, junit) = (dir.path().join("a.md"), dir.path().join("a.xml"));
    let url = format!("http://127.0.0.1:{}/1k.bin", server.port);
    let mut command = straingauge(["load", &url, "--duration", "100ms", "--warmup", "0s", "--connections", "2"]);
    command.args(["--fail-if", "p99 > 100s", "--fail-if", "throughput > 0", "--fail-if", "lag_p99 > 1s"]);
    let said = run(command.arg("--markdown").arg(&markdown).arg("--junit").arg(&junit)).exits_with(3);
    assert_eq!(said.err.matches("limit crossed").count(), 2, "{}", said.err);
    let junit = text(&junit);
    assert!(junit.contains("tests=\"4\" failures=\"2\" errors=\"0\""), "{junit}");
    assert!(junit.contains("client.lag_p99_us was not measured"), "{junit}");
    let markdown = text(&markdown);
    for wanted in ["### straingauge load: ", "| throughput | ", "client.throughput\\_per\\_sec &gt; 0/s | failed |"] {
        assert!(markdown.contains(wanted), "{wanted} is not in\n{markdown}");
    }
}

/// A job page without the failed run would hide the failure.
#[test]
fn a_run_that_fails_after_measuring_is_an_error_in_the_list() {
    let server = crate::broken_server::BrokenServer::start(crate::broken_server::Fault::HostileRedirect);
    let dir = open_dir();
    let junit = dir.path().join("a.xml");
    let mut command =
        straingauge(["load", &server.url(), "--duration", "100ms", "--warmup", "0s", "--connections", "1"]);
    run(command.arg("--junit").arg(&junit)).exits_with(1);
    let junit = text(&junit);
    assert!(junit.contains("errors=\"1\"") && junit.contains("<error message="), "{junit}");
}
