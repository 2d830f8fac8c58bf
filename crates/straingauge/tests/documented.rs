//! The commands in README and docs work as written, in a folder with only the files that the page names. Times and
//! counts are smaller here, and ports are free ones; otherwise the commands are unchanged.
//!
//! A test in `command_line_parts` checks that the command line accepts all of them.

pub mod commands;

use crate::document_server::DocumentServer;
use crate::rig::{Said, free_port, open_dir, program, repository, run, skip_unless};
use crate::server::Kind;
use commands::Documented;
use std::path::Path;
use std::process::Command;

/// Runs a line as a shell would in this folder.
fn typed(line: &str, folder: &Path) -> Said {
    let binary = Path::new(env!("CARGO_BIN_EXE_straingauge")).parent().expect("it lies in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    run(Command::new("sh").args(["-c", line]).current_dir(folder).env("PATH", path).env("TMPDIR", folder))
}

fn replaced(line: &str, pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(line.to_string(), |line, (from, to)| line.replace(from, to))
}

/// Inserts these options before the server's command, or at the end.
fn with_options(line: &str, options: &str) -> String {
    match line.split_once(" -- ") {
        Some((before, server)) => format!("{before} {options} -- {server}"),
        None => format!("{line} {options}"),
    }
}

#[track_caller]
fn works(command: &Documented, line: &str, folder: &Path) -> Said {
    let said = typed(line, folder);
    assert_eq!(said.code, Some(0), "{}:{}: {line}\n{}\n{}", command.file, command.line, said.out, said.err);
    said
}

#[test]
fn the_first_commands_of_the_readme_work_as_written() {
    skip_unless!(Kind::Nginx.missing().is_none(), "{}", Kind::Nginx.missing().unwrap_or_default());
    let folder = open_dir();
    std::os::unix::fs::symlink(repository().join("testbed"), folder.path().join("testbed")).expect("a link");
    let commands: Vec<_> = commands::all().into_iter().filter(|command| command.file == "README.md").collect();
    let is = |word: &str| commands.iter().filter(|one| one.text.starts_with(&format!("straingauge {word} "))).count();
    assert_eq!((is("find"), is("load")), (1, 2), "{commands:?}");
    let server = crate::server::Server::start(Kind::Nginx);
    for command in &commands {
        let own = free_port();
        // `find` starts the server; `load` uses the running one.
        let is_find = command.text.starts_with("straingauge find");
        let port = if is_find { own } else { server.port }.to_string();
        let line = replaced(
            &command.text,
            &[("8080", &port), ("--cold 10k", "--cold 100"), ("--rate 20k", "--rate 500"), ("50ms'", "50s'")],
        );
        let options = if is_find {
            "--duration 100ms --warmup 50ms --budget 5s --repeats 1 --sweep connections --max-connections 2 --profile \
             never"
        } else {
            "--duration 200ms --warmup 50ms"
        };
        let said = works(command, &with_options(&line, options), folder.path());
        assert!(said.out.contains("throughput") || said.out.contains("connections"), "{}", said.out);
    }
}

/// Why this test does not run a command of docs/. Another test runs it, or it needs special hardware.
fn is_not_run_here(line: &str) -> Option<&'static str> {
    let rules = [
        ("straingauge fleet", "needs a Ray cluster: python/tests"),
        ("straingauge profile", "needs BPF: tests/profile_sweep.rs"),
        ("straingauge watch", "needs BPF: tests/watch.rs"),
        ("straingauge report", "of runs of other commands: tests/report_page.rs"),
        ("straingauge scale", "a tool: toolkit/scalable-select"),
        ("straingauge wan", "needs root and other programs: tests/wan.rs"),
        ("straingauge find", "a sweep takes long: tests/find.rs, axis.rs, wan.rs"),
        ("straingauge predict", "needs runs of its own: tests/predict.rs"),
        ("straingauge stingy-check", "a tool: toolkit/stingy"),
        ("straingauge compare", "needs runs of its own: tests/predict.rs"),
        ("straingauge runs", "needs runs of its own: tests/runs.rs"),
        ("https:", "needs a server with a certificate: tests/clients.rs"),
        ("redis:", "needs a Redis server: tests/protocols.rs"),
        ("--grpc", "needs a gRPC server: tests/grpc.rs"),
        ("--delay 20ms --loss", "needs root: tests/wan.rs"),
    ];
    rules.iter().find(|(part, _)| line.contains(part)).map(|(_, why)| *why)
}

/// Creates the files that the pages name: a log and its documents, lists of targets, a rate series.
fn laid_out(folder: &Path) -> DocumentServer {
    // The log has enough documents of different sizes to fit a mix.
    let line = |at: usize| {
        let (client, second, bytes) = (at % 9, at / 60, 500 + at * at % 9000);
        let time = format!("22/Nov/2026:10:00:0{second} +0000");
        format!("10.1.0.{client} - - [{time}] \"GET /page{at} HTTP/1.1\" 200 {bytes}\n")
    };
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    put("access.log", &(0..120).map(line).collect::<String>());
    put("static.txt", "/page1\n/page2\n");
    put("dynamic.txt", "/page3\n");
    put("worldcup.csv", "1998-04-30 21:30:00,10\n1998-04-30 21:30:01,30\n");
    let packed = Command::new("gzip").args(["-k", "access.log"]).current_dir(folder).status().expect("gzip");
    assert!(packed.success());
    DocumentServer::start(&["--trace", folder.join("access.log").to_str().expect("text")])
}

#[test]
fn commands_of_the_pages_work_as_written() {
    let missing = DocumentServer::missing();
    skip_unless!(missing.is_none(), "{}", missing.unwrap_or_default());
    skip_unless!(program("gzip").is_some(), "gzip is not installed");
    let folder = open_dir();
    let server = laid_out(folder.path());
    let at = format!("http://127.0.0.1:{}/", server.port);
    let mut run = 0;
    for command in commands::all().iter().filter(|command| command.file != "README.md") {
        if is_not_run_here(&command.text).is_some() {
            continue;
        }
        let out = format!("made-{}", command.line);
        let line = replaced(
            &command.text,
            &[
                ("http://127.0.0.1:8080/", &at),
                ("http://server:8080/", &at),
                ("ssh c1 ", ""),
                ("ssh c2 ", ""),
                ("--allow-target server", "--allow-target 127.0.0.1"),
                (" URL ", &format!(" {at} ")),
                (" DIR", &format!(" {out}")),
                ("--rate 200k", "--rate 200"),
                ("--rate 2k", "--rate 200"),
                ("--connections 5000 --read-rate", "--connections 5 --read-rate"),
                ("--duration 60s", "--duration 200ms"),
            ],
        );
        let is_load = line.starts_with("straingauge load");
        let mut options = String::new();
        if is_load {
            // The documents of a log differ from those of a mix.
            options += "--warmup 0s --any-status";
            if !line.contains("--trace") && !line.contains("--duration") {
                options += " --duration 200ms";
            }
        }
        works(command, with_options(&line, &options).trim_end(), folder.path());
        run += 1;
    }
    assert!(run >= 10, "only {run} commands were found to run");
}
