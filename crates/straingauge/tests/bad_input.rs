//! Bad input: one clear sentence with the remedy, the right exit code, and the results so far are kept.

use crate::broken_server::{BrokenServer, Fault};
use crate::rig::{
    Said, free_port, is_root, member, needs_server, open_dir, points, program, repository, run, skip_unless,
    straingauge, straingauge_in_shell,
};
use crate::server::{Kind, serve_words};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

const SHORT: [&str; 5] = ["--warmup", "0s", "--duration", "200ms", "--quiet"];

fn load(url: &str, more: &[&str]) -> Said {
    let mut command = straingauge(["load", url]);
    if !more.contains(&"--duration") {
        command.args(SHORT);
    }
    run(command.args(more))
}

fn find(url: &str, more: &[&str]) -> Said {
    let dir = tempfile::tempdir().expect("a temporary folder");
    run(straingauge(["find", url, "--budget", "5s", "--warmup", "50ms", "--quiet"]).args(more).current_dir(dir.path()))
}

#[test]
fn a_closed_port_is_reported() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    load(&url, &[]).exits_with(1).complains_of(&["refuse", "is the server running"]);
    find(&url, &[]).exits_with(1).complains_of(&["refuse", "is the server running"]);
}

#[test]
fn fleet_options_without_effect_are_refused_by_name() {
    let fleet = |options: &[&str]| run(straingauge(["fleet"]).args(options).args(["load", "http://127.0.0.1:1/"]));
    for (options, words) in [
        (["--worker-resource", "load"].as_slice(), ["--worker-resource", "a name and an amount"]),
        (&["--worker-resource", "load=none"], ["--worker-resource", "a number of at least 0.0001"]),
        (&["--worker-resource", "GPU=1"], ["--worker-resource", "a resource of Ray's own"]),
        (&["--worker-resource", "load=1", "--worker-resource", "load=2"], ["--worker-resource", "'load' twice"]),
        (&["--worker-label", "zone=!b"], ["--worker-label", "letters and digits"]),
        (&["--worker-label", "zone=a", "--worker-label", "zone=b"], ["--worker-label", "'zone' twice"]),
        (&["--workers", "3..20"], ["--workers 3..20 is for find", "name one number"]),
    ] {
        fleet(options).exits_with(2).complains_of(&words);
    }
}

#[test]
fn an_unresolvable_name_is_reported() {
    // RFC 6761: names under .invalid never resolve.
    load("http://no-such-server.invalid:8080/", &[]).exits_with(1).complains_of(&[
        "no-such-server.invalid",
        "does not resolve",
        "check the spelling",
    ]);
}

#[test]
fn the_output_of_a_server_that_exits_is_quoted() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let script = "echo 'cannot read the configuration' >&2; exit 7";
    find(&url, &["--isolate", "never", "--", "sh", "-c", script]).exits_with(1).complains_of(&[
        "sh",
        "code 7",
        "cannot read the configuration",
    ]);
}

#[test]
fn a_server_that_never_listens_is_reported() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    find(&url, &["--isolate", "never", "--server-timeout", "300ms", "--", "sleep", "600"])
        .exits_with(1)
        .complains_of(&["sleep", "does not listen on port", "--server-timeout"]);
}

#[test]
fn a_server_on_another_port_is_reported_with_that_port() {
    skip_unless!(is_root(), "needs root, to make network namespaces");
    let script = "import socket,time; s=socket.socket(); s.bind(('0.0.0.0',8099)); s.listen(); time.sleep(600)";
    find("http://127.0.0.1:8098/", &["--isolate", "always", "--server-timeout", "2s", "--", "python3", "-c", script])
        .exits_with(1)
        .complains_of(&["python3", "does not listen on port 8098 but on 8099"]);
}

#[test]
fn a_missing_server_program_is_reported() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    // An inaccessible folder in PATH would cause a different error.
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut command = straingauge(["find", &url, "--quiet", "--isolate", "never", "--", "no-such-server-program"]);
    run(command.env("PATH", "/usr/bin:/bin").current_dir(dir.path()))
        .exits_with(1)
        .complains_of(&["no-such-server-program", "installed"]);
}

#[test]
fn an_address_in_use_is_reported_before_the_server_is_started() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let port = taken.local_addr().expect("a bound listener has an address").port();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let witness = dir.path().join("started");
    let script = format!("touch {}; sleep 600", witness.display());
    let url = format!("http://127.0.0.1:{port}/");
    find(&url, &["--isolate", "never", "--", "sh", "-c", &script]).exits_with(1).complains_of(&[
        "port",
        &port.to_string(),
        "in use",
    ]);
    assert!(!witness.exists(), "the server was started all the same");
}

#[test]
fn an_answer_that_is_not_http_is_reported() {
    let server = BrokenServer::start(Fault::NotHttp);
    load(&server.url(), &[]).exits_with(1).complains_of(&["HTTP"]);
    find(&server.url(), &[]).exits_with(1).complains_of(&["HTTP"]);
}

#[test]
fn a_body_that_ends_early_is_counted_as_truncated() {
    let server = BrokenServer::start(Fault::BodyEndsEarly);
    let said = load(&server.url(), &["--json"]).exits_with(1).complains_of(&["ended in the middle of a response"]);
    let outcomes = member(&said.json(), "outcomes").clone();
    assert!(outcomes["truncated"].as_u64() > Some(0), "{outcomes:#}");
    assert_eq!(outcomes["ok"].as_u64(), Some(0), "{outcomes:#}");
}

#[test]
fn a_header_of_ten_megabytes_is_refused_without_keeping_it_in_memory() {
    let server = BrokenServer::start(Fault::HugeHeader);
    let said = load(&server.url(), &["--connections", "1", "--json"]).exits_with(1).complains_of(&["header"]);
    let outcomes = member(&said.json(), "outcomes").clone();
    assert!(outcomes["malformed"].as_u64() > Some(0), "{outcomes:#}");
    find(&server.url(), &[]).exits_with(1).complains_of(&["header"]);
}

#[test]
fn a_server_that_closes_without_an_answer_is_reported() {
    let server = BrokenServer::start(Fault::Closes);
    let said = load(&server.url(), &["--json"]).exits_with(1).complains_of(&["no request was answered"]);
    let outcomes = member(&said.json(), "outcomes").clone();
    assert!(
        outcomes["closed_early"].as_u64().unwrap_or(0) + outcomes["reset"].as_u64().unwrap_or(0) > 0,
        "{outcomes:#}"
    );
}

#[test]
fn a_silent_server_times_out_and_does_not_hang_the_run() {
    let server = BrokenServer::start(Fault::Silent);
    let said = load(&server.url(), &["--timeout", "100ms", "--connections", "2", "--json"]).exits_with(1);
    let outcomes = member(&said.json(), "outcomes").clone();
    assert!(outcomes["timed_out"].as_u64() > Some(0), "{outcomes:#}");
    find(&server.url(), &["--timeout", "100ms"]).exits_with(1).complains_of(&["100"]);
}

#[test]
fn a_redirect_is_reported_with_its_target() {
    let server = BrokenServer::start(Fault::Redirect);
    find(&server.url(), &[]).exits_with(1).complains_of(&[
        "redirect",
        "301",
        "http://127.0.0.1:1/there",
        "--any-status",
    ]);
    load(&server.url(), &[]).exits_with(1).complains_of(&["redirect", "--any-status"]);
    load(&server.url(), &["--any-status"]).exits_with(0);
}

#[test]
fn a_server_that_only_fails_is_reported() {
    let server = BrokenServer::start(Fault::ServerError);
    find(&server.url(), &[]).exits_with(1).complains_of(&["500", "--any-status"]);
    load(&server.url(), &[]).exits_with(1).complains_of(&["500", "--any-status"]);
}

#[test]
fn wrong_usage_is_reported_before_any_request() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let cases: &[(&[&str], &[&str])] = &[
        (&["--connections", "0"], &["--connections", "at least 1"]),
        (&["--connections", "-5"], &["--connections"]),
        (&["--rate", "-1"], &["--rate", "-1"]),
        (&["--rate", "0"], &["--rate"]),
        (&["--rate", "10kg"], &["--rate", "10kg"]),
        (&["--duration", "5parsecs"], &["--duration", "5parsecs"]),
        (&["--duration", "0s"], &["--duration"]),
        (&["--threads", "0"], &["--threads"]),
        (&["--no-such-flag"], &["--no-such-flag", "--help"]),
        (&["--header", "no colon here"], &["--header", "Name: value"]),
        (&["--header", "Content-Length: 5"], &["straingauge sets Content-Length itself"]),
        (&["--traceparent", "--header", "Traceparent: x"], &["--traceparent", "--header"]),
        (&["--traceparent", "--requests-per-connection", "0"], &["--traceparent", "sends none"]),
        (&["--cpus", "99999"], &["99999"]),
        (&["--fail-if", "p99 is bad"], &["--fail-if"]),
        (&["--arrival", "bursty", "--rate", "10"], &["bursty", "poisson"]),
    ];
    for (options, words) in cases {
        let said = load(&url, options);
        eprintln!("{options:?}: {}", said.err.trim());
        said.exits_with(2).complains_of(words);
    }
    // For these options, the file need not exist yet.
    for (option, value, file) in
        [("--body", "@no/such/body", "no/such/body"), ("--urls", "no/such/list", "no/such/list")]
    {
        load(&url, &[option, value]).exits_with(1).complains_of(&[option, file, "No such file"]);
    }
    for wrong in ["ftp://127.0.0.1/", "http://", "http://127.0.0.1:99999/", "http://127.0.0.1:0/"] {
        load(wrong, &[]).exits_with(2).complains_of(&[]);
    }
}

#[test]
fn wrong_usage_of_find_is_reported() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let cases: &[(&[&str], &[&str])] = &[
        (&["--max-connections", "0"], &["--max-connections"]),
        (&["--connections", "10"], &["--max-connections"]),
        (&["--repeats", "0"], &["--repeats"]),
        (&["--bracket", "1%"], &["--bracket", "--set find.bracket=", "bracket = ...", "[find]", "--scenario"]),
        (&["--isolate", "sometimes"], &["sometimes", "never"]),
        (&["--until-sure", "1%"], &["--until-sure", "5% to 50%"]),
        (&["--until-sure", "sure"], &["--until-sure", "share"]),
        (&["--until-sure", "-5%"], &["--until-sure"]),
        (&["--until-sure", "5%", "--repeats", "3"], &["--until-sure", "--repeats"]),
        (&["--until-sure", "5%", "--axis", "cold"], &["--until-sure", "--axis"]),
        (&["--unload", "--sweep", "rate"], &["--unload", "--sweep rate"]),
        (&["--unload", "--axis", "cold"], &["--unload", "--axis"]),
    ];
    for (options, words) in cases {
        let said = find(&url, options);
        eprintln!("{options:?}: {}", said.err.trim());
        said.exits_with(2).complains_of(words);
    }
    run(straingauge(["find", &url, "--budget", "1ms"]).args(["--quiet"])).exits_with(2).complains_of(&["--budget"]);
    run(&mut straingauge(["find"])).exits_with(2).complains_of(&["URL"]);
    run(&mut straingauge(["find", "http://192.0.2.1/"]))
        .exits_with(2)
        .complains_of(&["public", "--allow-target 192.0.2.1"]);
}

#[test]
fn a_crossed_limit_has_a_separate_exit_code() {
    needs_server!(Kind::Nginx);
    let server = crate::server::Server::start(Kind::Nginx);
    let url = server.url("1k.bin");
    load(&url, &["--fail-if", "p99 > 1ns"]).exits_with(3).complains_of(&["limit crossed", "p99", "1 ns"]);
    load(&url, &["--fail-if", "p99 > 1h"]).exits_with(0);
    load(&url, &["--fail-if", "peak < 1k"]).exits_with(2).complains_of(&["peak", "straingauge find"]);
}

#[test]
fn more_connections_than_descriptors_are_refused() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let url = format!("http://127.0.0.1:{}/", taken.local_addr().expect("an address").port());
    let limited = "ulimit -n 200; exec \"$@\"";
    let said = run(straingauge_in_shell(limited, &["load", &url, "--connections", "1000"]).args(SHORT));
    let code = said.code;
    assert!(matches!(code, Some(1 | 2)), "{code:?}: {}", said.err);
    said.complains_of(&["1000", "descriptors", "ulimit -n"]);
}

#[test]
fn a_directory_with_a_run_is_not_overwritten() {
    let server = BrokenServer::start(Fault::ServerError);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join("run");
    let out = out.to_str().expect("temporary paths are text");
    load(&server.url(), &["--any-status", "--out", out]).exits_with(0);
    let before = std::fs::read(dir.path().join("run/run.json")).expect("run.json is there");
    load(&server.url(), &["--any-status", "--out", out]).exits_with(1).complains_of(&["already holds a run", "--out"]);
    assert_eq!(before, std::fs::read(dir.path().join("run/run.json")).expect("run.json is still there"));
}

#[test]
fn a_path_that_is_not_utf_8_is_accepted() {
    let server = BrokenServer::start(Fault::ServerError);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let out = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    run(straingauge(["load", &server.url(), "--any-status", "--out"]).arg(&out).args(SHORT)).exits_with(0);
    let repeat = crate::rig::run_record(&out)["scenario"]["repeat_command"].to_string();
    assert!(!repeat.contains("--out"), "that directory holds a run now: {repeat}");
}

#[test]
fn an_unwritable_run_directory_is_reported() {
    let server = BrokenServer::start(Fault::ServerError);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let place = dir.path().to_str().expect("temporary paths are text");
    let out = format!("{place}/run");
    let arguments = ["load", &server.url(), "--any-status", "--out", &out];
    let said = if is_root() {
        skip_unless!(program("unshare").is_some(), "unshare is not installed (apt-get install util-linux)");
        // Only a read-only mount stops root; it exists in the shell's own mount namespace.
        let line = format!("mount -t tmpfs -o ro tmpfs {place} && exec \"$@\"");
        run(unshared(&line, &arguments).args(SHORT))
    } else {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o555)).expect("our own folder");
        run(straingauge(arguments).args(SHORT))
    };
    said.exits_with(1).complains_of(&[&out, "--out"]);
}

#[test]
fn a_full_disk_does_not_lose_measured_points() {
    skip_unless!(is_root(), "needs root, to mount a small tmpfs in a mount namespace of its own");
    skip_unless!(program("unshare").is_some(), "unshare is not installed (apt-get install util-linux)");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (full, kept, state) = (dir.path().join("full"), dir.path().join("kept"), dir.path().join("state"));
    for folder in [&full, &kept, &state] {
        std::fs::create_dir(folder).expect("a temporary folder");
    }
    let port = free_port();
    // There is room for run.json and a few points. The files are copied out of the mount namespace at the end.
    let line = format!(
        "mount -t tmpfs -o size=96k tmpfs {full} || exit 99; \"$@\"; code=$?; cp -r {full}/run {kept}/; exit $code",
        full = full.display(),
        kept = kept.display()
    );
    let out = full.join("run");
    let url = format!("http://127.0.0.1:{port}/128.bin");
    let mut command = unshared(
        &line,
        &[
            "find",
            &url,
            "--budget",
            "20s",
            "--duration",
            "50ms",
            "--max-connections",
            "64",
            "--sweep",
            "connections",
            "--isolate",
            "never",
            "--out",
            out.to_str().expect("temporary paths are text"),
            "--",
        ],
    );
    command.args(serve_words(Kind::Nginx, port, &state, "127.0.0.1"));
    let said = run(&mut command).exits_with(1).complains_of(&["disk is full", "--out"]);
    let whole = points(&kept.join("run"));
    assert!(!whole.is_empty(), "nothing was kept: {}\n{}", said.out, said.err);
    let kept_run = kept.join("run");
    let kept_run = kept_run.to_str().expect("temporary paths are text");
    run(&mut straingauge(["report", kept_run])).exits_with(0);
    assert!(kept.join("run/report.html").is_file());
}

/// Runs a shell line and straingauge in a separate mount namespace.
pub fn unshared(line: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", line, "sh", env!("CARGO_BIN_EXE_straingauge")]);
    command.args(arguments);
    command
}

#[test]
fn a_limit_on_an_unmeasured_figure_is_refused_before_the_search() {
    let url = "http://127.0.0.1:1/";
    for (more, word) in [
        (&["--fail-if", "p99 > 50ms"][..], "p99@20k"),
        (&["--axis", "cold", "--fail-if", "peak < 60k"], "--axis"),
        (&["--compare-with", "scale", "--fail-if", "breaks < 60k", "--", "sleep", "9"], "--compare-with"),
        (&["--sweep", "connections", "--fail-if", "plan < 60k"], "--sweep connections"),
        (&["--sweep", "rate", "--fail-if", "yield_connections < 4"], "--sweep rate"),
    ] {
        run(straingauge(["find", url]).args(more)).exits_with(2).complains_of(&["--fail-if", word]);
    }
}

#[test]
fn options_of_other_tools_get_a_hint() {
    for (typed, hint) in [
        (&["load", "http://127.0.0.1:1/", "-n", "100"][..], "-d 10s"),
        (&["load", "http://127.0.0.1:1/", "-R2000"], "-r"),
        (&["load", "http://127.0.0.1:1/", "--vus=5"], "-c"),
        (&["find", "--latency"], "always printed"),
        (&["load", "http://127.0.0.1:1/", "--users", "9"], "-c"),
        (&["load", "http://127.0.0.1:1/", "--cores", "2"], "--cpus"),
        (&["load", "http://127.0.0.1:1/", "--stages", "1m:9"], "find"),
        (&["load", "http://127.0.0.1:1/", "-o", "csv"], "--json"),
    ] {
        run(&mut straingauge(typed)).exits_with(2).complains_of(&["there is no -", hint]);
    }
    run(&mut straingauge(["load", "http://127.0.0.1:1/", "-q", "100"])).exits_with(2).complains_of(&["-q", "-r 100"]);
}

#[test]
fn a_server_command_without_dashes_gets_a_hint() {
    for command in ["load", "find"] {
        let typed = [command, "http://127.0.0.1:1/", "./server", "--port", "8080", "a b"];
        let line = format!("straingauge {command} http://127.0.0.1:1/ -- ./server --port 8080 'a b'");
        run(&mut straingauge(typed)).exits_with(2).complains_of(&["put -- before a command", &line]);
    }
}

#[test]
fn a_directory_without_a_run_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().to_str().expect("temporary paths are text");
    run(&mut straingauge(["report", path]))
        .exits_with(1)
        .complains_of(&["run.json", "is it a straingauge run directory?"]);
    std::fs::write(dir.path().join("run.json"), "{\"schema\": 1, \"status\"").expect("our own folder");
    run(&mut straingauge(["report", path])).exits_with(1).complains_of(&["run.json", "not readable"]);
    let sample = std::fs::read_to_string(repository().join("python/examples/find-nginx/run.json")).expect("it is kept");
    for (schema, word) in [("0", "schema 0"), ("99", "newer straingauge")] {
        let changed = sample.replacen("\"schema\": 1", &format!("\"schema\": {schema}"), 1);
        assert_ne!(changed, sample);
        std::fs::write(dir.path().join("run.json"), changed).expect("our own folder");
        run(&mut straingauge(["report", path])).exits_with(1).complains_of(&["run.json", word]);
    }
}

#[test]
fn impossible_profiling_is_refused_at_once() {
    let port = free_port().to_string();
    let cases: [(&[&str], i32, &[&str]); 5] = [
        (&[&port, "--duration", "50ms", "--accounting", "exact"], 2, &["--duration", "200ms"]),
        (&[&port, "--accounting", "exact", "--export", "folded=/dev/null"], 2, &["--export", "samples"]),
        (&["eighty"], 2, &["eighty"]),
        (&[&port, "--duration", "50ms"], 2, &["--duration", "200ms"]),
        (&[&port, "--duration", "300ms"], 1, &[&port]),
    ];
    for (arguments, code, words) in cases {
        run(straingauge(["profile"]).args(arguments)).exits_with(code).complains_of(words);
    }
}
