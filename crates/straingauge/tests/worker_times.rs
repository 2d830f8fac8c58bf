//! Worker times that differ from the driver's: the worker is stopped for a while, or its wall clock is set. The load
//! continues, its counts equal the server's, and the doubts name the fault.

use crate::rig::{needs_server, open_dir, points, program, run, skip_unless, straingauge};
use crate::server::{Kind, Server};
use crate::workers::{count, from, worker};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The worker of this command, stopped for 3 s soon after its first load or window of at least a second began. Its
/// process id is kept in the folder.
fn stalled(folder: &Path, command: &str) -> String {
    let pid = folder.join("pid").display().to_string();
    let digits = "[0-9]".repeat(10);
    format!(
        r#"stalls=
        while IFS= read -r line; do
          printf '%s\n' "$line"
          case $stalls$line in
            *'"duration_ns":'{digits}* | *'"planned_ns":'{digits}*) stalls=${{stalls:-yes}} ;;
          esac
          case $stalls$line in
            yes*'"type":"start"'* | yes*'"type":"begin"'*)
              stalls=no; (sleep 0.3; read -r pid; kill -STOP $pid; sleep 3; kill -CONT $pid) > /dev/null < {pid} & ;;
          esac
        done | sh -c 'echo $$ > {pid}; {command}'"#
    )
}

/// The doubt that a client was stopped, in words.
fn standing(doubts: &Value) -> Option<&str> {
    let doubts = doubts.as_array().into_iter().flatten();
    doubts.filter(|doubt| doubt["kind"] == "steal").filter_map(|doubt| doubt["what"].as_str()).next()
}

#[track_caller]
fn agrees_with_the_log(json: &Value, server: Server) {
    let (ok, unfinished) = (count(json, "ok"), count(json, "unfinished"));
    let logged = server.end_and_read_log().iter().filter(|line| line.status == 200).count() as u64;
    assert!(ok > 0 && (ok..=ok + unfinished).contains(&logged), "{logged} logged, {ok} ok, {unfinished} unfinished");
}

#[test]
fn a_worker_that_stops_for_3_s_is_kept_and_its_share_raises_a_doubt() {
    needs_server!(Kind::Nginx);
    for load in [["--connections", "2"], ["--rate", "100"]] {
        let (server, folder) = (Server::start(Kind::Nginx), open_dir());
        let command =
            &mut from(&[&worker(), &stalled(folder.path(), &worker())], &[&server.url("1k.bin"), "--duration", "4s"]);
        let json = run(command.args(load)).exits_with(0).json();
        let said = standing(&json["point"]["doubts"]).unwrap_or_else(|| panic!("{json:#}"));
        assert!(said.contains("client 2") && said.contains("the client or its machine was stopped for"), "{said}");
        agrees_with_the_log(&json, server);
    }
}

#[test]
fn a_point_with_a_stopped_worker_is_marked_and_the_sweep_continues() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let out = folder.path().join("run");
    let mut find = straingauge(["find", &server.url("1k.bin"), "--axis", "rate", "--axis-values", "100,110,120"]);
    find.args(["--connections", "4", "--duration", "2s", "--warmup", "50ms", "--repeats", "1", "--profile", "never"]);
    find.args(["--quiet", "--client", &worker(), "--client", &stalled(folder.path(), &worker()), "--out"]).arg(&out);
    run(&mut find).exits_with(0);
    let points = points(&out);
    assert!(points.len() >= 3, "{}", points.len());
    let marked = points.iter().filter_map(|point| standing(&point["doubts"]));
    let doubts: Vec<_> = points.iter().map(|point| point["doubts"].to_string()).collect();
    assert!(marked.into_iter().any(|what| what.contains("client 2")), "{doubts:#?}");
}

#[test]
fn a_watcher_that_stops_at_the_end_of_a_window_raises_a_doubt() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let watcher = format!("exec {} watch --worker :{}", env!("CARGO_BIN_EXE_straingauge"), server.port);
    let mut load = from(&[], &[&server.url("1k.bin"), "--rate", "100", "--duration", "2s", "--detail", "off"]);
    let json = run(load.args(["--watch-with", &stalled(folder.path(), &watcher)])).exits_with(0).json();
    let doubts = json["point"]["doubts"].as_array().into_iter().flatten();
    let mut said = doubts.filter(|doubt| doubt["kind"] == "sources-disagree").map(|doubt| doubt["what"].to_string());
    assert!(said.any(|what| what.contains("the watcher's window began")), "{json:#}");
}

/// A library that sets a process's wall clock every 0.3 s: by a second, back, by an hour, and in both directions. The
/// kernel's packet stamps use the same clock.
const SET_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <time.h>

static long ahead_s(void) {
    static const long steps_s[] = {0, 1, 0, -1, 0, 3600, 0, -3600};
    struct timespec now;
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    real(CLOCK_MONOTONIC, &now);
    return steps_s[(now.tv_sec * 10 + now.tv_nsec / 100000000) / 3 % 8];
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += ahead_s();
    return failed;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    ssize_t done = real(fd, message, flags);
    if (done >= 0) {
        struct cmsghdr *header = CMSG_FIRSTHDR(message);
        if (header && header->cmsg_type == SO_TIMESTAMPING) ((struct timespec *)CMSG_DATA(header))->tv_sec += ahead_s();
    }
    return done;
}
"#;

#[test]
fn setting_the_wall_clock_changes_no_count_and_no_time() {
    needs_server!(Kind::Nginx);
    skip_unless!(program("cc").is_some(), "needs a C compiler");
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
    std::fs::write(&source, SET_CLOCK).expect("a file in a temporary folder");
    let built = Command::new("cc").args(["-w", "-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.expect("cc runs").success());
    let preloaded = format!("LD_PRELOAD={} {}", library.display(), worker());
    // First driver and one worker, then a worker without driver.
    for (here, clients) in
        [(Some(&library), [format!("unset LD_PRELOAD; {}", worker()), worker()]), (None, [worker(), preloaded])]
    {
        let mut load = from(&clients.each_ref().map(String::as_str), &[&server.url("1k.bin"), "--rate", "200"]);
        load.args(["--arrival", "constant", "--connections", "8", "--duration", "2500ms"]);
        load.envs(here.map(|library| ("LD_PRELOAD", library)));
        let json = run(&mut load).exits_with(0).json();
        // The last request falls on the end of the window.
        assert!((500..=501).contains(&count(&json, "sent")), "{json:#}");
        assert_eq!(json["point"]["duration_ns"].as_u64(), Some(2_500_000_000), "{json:#}");
        let figure =
            |name: &str| json["point"]["figures"][name]["value"].as_f64().unwrap_or_else(|| panic!("{name}: {json:#}"));
        for name in ["client.response_max_us", "client.lag_p99_us", "client.reap_p99_us"] {
            assert!((0.0..60e6).contains(&figure(name)), "{name}: {json:#}");
        }
        for number in 1..=2 {
            let of = |what: &str| figure(&format!("worker.{number}.clock_{what}_us"));
            assert!(of("offset").abs() <= of("uncertainty") + 1.0, "{json:#}");
        }
    }
}
