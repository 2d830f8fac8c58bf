//! `find --axis` on real servers: each value is in effect when its point is measured, and all outputs show it.

use crate::rig::{
    free_port, long_run, member, needs_server, open_dir, points, run, run_record, skip_unless, straingauge,
};
use crate::server::{Kind, Server, serve_words};
use serde_json::Value;

/// Two repeats of short points.
const SMALL: [&str; 6] = ["--duration", "100ms", "--warmup", "30ms", "--repeats", "2"];

fn values(points: &[Value], axis: &str) -> Vec<f64> {
    let place = |point: &Value| {
        (point["axis"]["axis"] == axis && point["sweep"] == "axis").then(|| point["axis"]["value"].as_f64()).flatten()
    };
    points.iter().filter_map(place).collect()
}

fn figure(point: &Value, name: &str) -> Option<f64> {
    point["figures"][name]["value"].as_f64()
}

#[test]
fn cold_connections_are_varied_while_the_hot_ones_stay_constant() {
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let (state, out) = (dir.path().join("state"), dir.path().join("run"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/128.bin");
    let mut command = straingauge(["find", &url, "--axis", "cold", "--axis-values", "0,50,400", "--connections", "7"]);
    command.args(["--isolate", "never", "--out"]).arg(&out).args(SMALL).arg("--");
    let said = run(command.args(serve_words(Kind::Nginx, port, &state, "127.0.0.1"))).exits_with(0);
    let measured = points(&out);
    let mut found = values(&measured, "cold");
    // At least six points, because a disturbed point is measured again.
    assert!(found.len() >= 6, "three values, two repeats: {found:?}");
    found.sort_by(f64::total_cmp);
    found.dedup();
    assert_eq!(found, [0.0, 50.0, 400.0]);
    for point in measured.iter().filter(|point| point["sweep"] == "axis") {
        let value = point["axis"]["value"].as_f64().unwrap();
        assert_eq!(point["connections"], 7, "the hot ones");
        assert_eq!(figure(point, "client.cold_connections").unwrap_or(0.0), value, "established when the window ended");
        let open = point["connection_states"]["established"]["value"].as_f64().unwrap_or(0.0);
        assert!(open >= value, "the server's side has {open} established of {value} cold and 7 hot");
    }
    assert_eq!(run_record(&out)["scenario"]["sweep"]["axis"]["axis"], "cold");
    assert!(said.flat().contains("400 cold connections"), "{}", said.out);
    let page = std::fs::read_to_string(out.join("report.html")).expect("report.html is there");
    assert!(page.contains("Axis: cold connections") && page.contains("<svg"), "the report draws it");
}

#[test]
fn rates_beyond_the_capacity_are_offered_in_full_and_goodput_is_shown() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let mut command =
        straingauge(["find", &server.url("128.bin"), "--axis", "rate", "--axis-values", "500,1k", "--json"]);
    let json = run(command.args(["--quiet", "--out"]).arg(&out).args(SMALL)).exits_with(0).json();
    let axis = &member(&json, "axes")[0];
    assert_eq!(axis["axis"], "rate");
    assert_eq!(axis["levels"].as_array().map(Vec::len), Some(2));
    assert!(axis["levels"][1]["goodput_per_sec"]["value"].as_f64().is_some_and(|rate| rate > 0.0), "{axis:#}");
    assert!(member(&json, "headline").as_str().is_some_and(|words| words.contains("oodput")), "{json:#}");
}

#[test]
fn time_wait_sockets_exist_while_the_load_runs() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let watcher = format!("'{}' watch --worker :{}", env!("CARGO_BIN_EXE_straingauge"), server.port);
    // Requests are counted by this process, then by a watcher as on another machine.
    let all = [&["--watch-with", &watcher][..], &[]];
    for watched in all.into_iter().take(if long_run() { 2 } else { 1 }) {
        let mut command = straingauge(["find", &server.url("128.bin"), "--axis", "time-wait"]);
        command.args(["--axis-values", "0,1500", "--quiet", "--out"]).arg(&out).args(SMALL).args(watched);
        run(&mut command).exits_with(0);
        let measured = points(&out);
        assert_eq!(values(&measured, "time-wait").len(), 4);
        for point in measured.iter().filter(|point| point["sweep"] == "axis") {
            let asked = point["axis"]["value"].as_f64().unwrap();
            let there = figure(point, "client.time_wait_sockets").expect("counted");
            assert!(there >= 0.98 * asked && there <= asked + 200.0, "{there} of {asked}: {watched:?}");
        }
        std::fs::remove_dir_all(&out).expect("our own folder");
    }
}

#[test]
fn connections_that_conform_are_counted_and_searched() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let mut command = straingauge(["find", &server.url("10k.bin"), "--axis", "conforming", "--max-connections", "4"]);
    let scenario = dir.path().join("half.toml");
    std::fs::write(&scenario, "[find]\nconforming-share = '50%'\n").expect("our own folder");
    command
        .args(["--asked-bandwidth", "800k", "--set", "clients.demanded-bandwidth=400k", "--scenario"])
        .arg(&scenario);
    command.args(["--duration", "500ms", "--warmup", "50ms", "--repeats", "1", "--json", "--quiet", "--out"]).arg(&out);
    let json = run(&mut command).exits_with(0).json();
    let conforming = member(&json, "conforming");
    assert_eq!(conforming["held"].as_f64(), Some(4.0), "{json:#}");
    assert_eq!(values(&points(&out), "conforming")[..3], [1.0, 2.0, 4.0]);
    for point in points(&out).iter().filter(|point| point["sweep"] == "axis") {
        let bits = figure(point, "client.connection_bits_per_sec").expect("counted");
        // Reading missed before the window is made up for in it. Reading without a limit would be a thousand times
        // faster.
        assert!(bits <= 1_600_000.0, "more than the fixed bandwidth: {bits} bit/s");
    }
}

#[test]
fn the_server_is_restarted_for_each_number_of_cpus() {
    needs_server!(Kind::Nginx);
    let allowed = record::machine::allowed_cpus();
    skip_unless!(allowed.len() >= 2, "needs two CPUs");
    let dir = open_dir();
    let (state, out, said) = (dir.path().join("state"), dir.path().join("run"), dir.path().join("started"));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/128.bin");
    let cpus = record::machine::cpu_list(&allowed[..2]);
    let start = format!("echo {{cpus}} >> {}; exec \"$@\"", said.display());
    let mut command = straingauge(["find", &url, "--axis", "cpus", "--server-cpus", &cpus, "--isolate", "never"]);
    command.args(["--profile", "never", "--out"]).arg(&out).args(SMALL).args(["--", "sh", "-c", &start, "sh"]);
    let text = run(command.args(serve_words(Kind::Nginx, port, &state, "127.0.0.1"))).exits_with(0).flat();
    let started = std::fs::read_to_string(&said).expect("the server was started");
    assert!(started.lines().any(|line| line == "1") && started.lines().any(|line| line == "2"), "{started}");
    let measured = points(&out);
    for point in measured.iter().filter(|point| point["sweep"] == "axis") {
        assert_eq!(figure(point, "server.cpus"), point["axis"]["value"].as_f64(), "{point:#}");
    }
    let mut found = values(&measured, "cpus");
    found.sort_by(f64::total_cmp);
    found.dedup();
    assert_eq!(found, [1.0, 2.0]);
    let server = &run_record(&out)["scenario"]["server"];
    assert!(server["argv"][2].as_str().is_some_and(|word| word.contains("{cpus}")), "{server:#}");
    assert_eq!(server["cpus"].as_array().map(Vec::len), Some(2), "{server:#}");
    for words in ["contention", "cannot distinguish contention from coherency", "with 1 CPU ", "with 2 CPUs "] {
        assert!(text.contains(words), "'{words}' is not in {text}");
    }
}

#[test]
fn impossible_axes_are_refused_before_the_load() {
    for (arguments, words) in [
        (&["--axis", "cold", "--sweep", "rate"][..], &["--sweep"][..]),
        (&["--axis", "cold", "--cold", "10"], &["--cold"]),
        (&["--axis", "rate", "--rate", "10"], &["--rate"]),
        (&["--axis", "cold", "--axis-values", "1,x"], &["--axis-values", "'x'"]),
        (&["--axis-values", "1"], &["--axis"]),
        (&["--axis", "rate", "--axis-values", "0x"], &["--axis-values", "3x"]),
        (&["--axis", "conforming", "--read-rate", "10k"], &["--asked-bandwidth"]),
        (&["--axis", "cpus"], &["-- SERVER", "{cpus}"]),
        (&["--axis", "cpus", "--server-cpus", "0", "--", "true"], &["CPU 0", "--server-cpus"]),
        (&["--axis", "cpus", "--axis-values", "1,9999", "--", "true"], &["no 9999 CPUs"]),
    ] {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", server.local_addr().expect("it is bound"));
        run(straingauge(["find", &url]).args(arguments)).exits_with(2).complains_of(words);
    }
}
