//! Times of a worker that are not the driver's: it stands still for a while, or its wall clock is set. The load goes on, its
//! counts are those of the server, and what is wrong with its figures is said.

use crate::rig::{needs_server, open_dir, points, run, straingauge};
use crate::server::{Kind, Server};
use crate::workers::{count, from, worker};
use serde_json::Value;
use std::path::Path;

/// A worker that is stopped for 3 s, soon after its first load began. Its number is kept in the folder.
fn stalled(folder: &Path) -> String {
    let (pid, worker) = (folder.join("pid").display().to_string(), worker());
    format!(
        r#"stalls=yes
        while IFS= read -r line; do
          printf '%s\n' "$line"
          case $stalls$line in
            yes*'"type":"start"'*) stalls=; (sleep 0.3; read -r pid; kill -STOP $pid; sleep 3; kill -CONT $pid) > /dev/null < {pid} & ;;
          esac
        done | sh -c 'echo $$ > {pid}; {worker}'"#
    )
}

/// The doubt that a client stood still, in words.
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
fn a_worker_that_stands_still_for_3_s_is_kept_and_its_part_is_doubted() {
    needs_server!(Kind::Nginx);
    for load in [["--connections", "2"], ["--rate", "100"]] {
        let (server, folder) = (Server::start(Kind::Nginx), open_dir());
        let command = &mut from(&[&worker(), &stalled(folder.path())], &[&server.url("1k.bin"), "--duration", "4s"]);
        let json = run(command.args(load)).exits_with(0).json();
        let said = standing(&json["point"]["doubts"]).unwrap_or_else(|| panic!("{json:#}"));
        assert!(said.contains("client 2") && said.contains("the client stood still for"), "{said}");
        agrees_with_the_log(&json, server);
    }
}

#[test]
fn a_point_in_which_a_worker_stands_still_is_marked_and_the_sweep_goes_on() {
    needs_server!(Kind::Nginx);
    let (server, folder) = (Server::start(Kind::Nginx), open_dir());
    let out = folder.path().join("run");
    let mut find = straingauge(["find", &server.url("1k.bin"), "--axis", "rate", "--axis-values", "100,110,120"]);
    find.args([
        "--connections",
        "4",
        "--duration",
        "700ms",
        "--warmup",
        "50ms",
        "--repeats",
        "1",
        "--profile",
        "never",
    ]);
    find.args(["--quiet", "--client", &worker(), "--client", &stalled(folder.path()), "--out"]).arg(&out);
    run(&mut find).exits_with(0);
    let points = points(&out);
    assert!(points.len() >= 3, "{}", points.len());
    let marked = points.iter().filter_map(|point| standing(&point["doubts"]));
    assert!(marked.into_iter().any(|what| what.contains("client 2")), "{points:#?}");
}
