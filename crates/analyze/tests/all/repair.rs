//! The repair that a verdict names, runs in which it must not name one, and the server's command in remedies.

use crate::{fixture, recorded};
use analyze::zones;
use record::{Figure, Origin, Point, RunDir, RunRecord, names};
use verdict::command::{server_pid, set_limit};

/// The verdict of a find on a server whose cost per request doubles at 5,000 connections, with the given sleeps.
fn said(record: RunRecord, change: impl Fn(&mut Point)) -> Option<String> {
    let mut points = fixture::points();
    points.iter_mut().for_each(change);
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), record, &points);
    let findings = zones::of_run(&run);
    verdict::sentences(&run, &findings).sentences.into_iter().find(|sentence| sentence.contains("straingauge scale"))
}

fn sleeps(point: &mut Point, select_ratio: f64, n: u64, set: f64) {
    point.figures.set(names::SERVER_SELECT_WAITS, Figure::new(select_ratio, "ratio", n, Origin::Sampled));
    point.figures.set(names::SERVER_SELECT_SET, Figure::new(set, "descriptors", n, Origin::Sampled));
}

#[test]
fn scale_is_suggested_for_a_poll_server_whose_cost_grows_with_connections() {
    let mut record = fixture::record();
    fixture::loaded(&mut record).server.as_mut().unwrap().argv =
        ["haproxy", "-de", "-f", "it's.cfg"].map(String::from).to_vec();
    let sentence = said(record, |point| sleeps(point, 1.0, 4, 12.0 + point.connections as f64)).expect("a repair");
    assert!(sentence.contains("over up to 4,108 descriptors"), "{sentence}");
    assert!(sentence.contains("`straingauge scale -- haproxy -de -f \"it's.cfg\"`"), "{sentence}");
    assert!(
        sentence.contains("straingauge find http://127.0.0.1:8080/1k.bin --compare-with scale --cold 4096 -- haproxy"),
        "{sentence}"
    );
}

#[test]
fn scale_is_suggested_if_only_cold_connections_are_in_the_set() {
    let cold = |point: &mut Point| {
        point.connections = point.connections.min(4);
        sleeps(point, 1.0, 4, 2010.0);
        point.figures.set(names::COLD, Figure::new(2000.0, "connections", 1, Origin::Counted));
    };
    let sentence = said(fixture::record(), cold).expect("a repair");
    assert!(sentence.contains("2,000 of them belonged to cold connections"), "{sentence}");
    assert!(sentence.contains("--cold 2000"), "{sentence}");
}

#[test]
fn scale_is_not_suggested_for_servers_that_it_cannot_help() {
    let not_measured = |point: &mut Point| {
        point.figures.set(names::SERVER_SELECT_WAITS, Figure::not_measured("ratio", "no thread was seen waiting"));
    };
    assert_eq!(said(fixture::record(), |_| ()), None, "nothing is known of its sleeps");
    assert_eq!(said(fixture::record(), not_measured), None, "its sleeps could not be seen");
    assert_eq!(said(fixture::record(), |point| sleeps(point, 0.0, 40, 4000.0)), None, "it sleeps in epoll");
    assert_eq!(said(fixture::record(), |point| sleeps(point, 0.5, 40, 4000.0)), None, "as much in epoll");
    assert_eq!(said(fixture::record(), |point| sleeps(point, 1.0, 40, 9.0)), None, "its sets are small");
    assert_eq!(said(fixture::record(), |point| sleeps(point, f64::NAN, 40, 4000.0)), None, "damaged");
    let mut scaled = fixture::record();
    scaled.server_facts.insert("scalable_select".into(), "preloaded".into());
    assert_eq!(said(scaled, |point| sleeps(point, 1.0, 40, 4000.0)), None, "it has it already");
}

#[test]
fn scale_is_not_suggested_if_the_cost_does_not_grow() {
    let even = |point: &mut Point| {
        sleeps(point, 1.0, 40, 4000.0);
        point.figures.set(names::SERVER_CPU, Figure::new(10.0, "us", 100_000, Origin::Timed));
    };
    assert_eq!(said(fixture::record(), even), None);
    let only_at_first = |point: &mut Point| {
        sleeps(point, 1.0, 40, 2.0 + point.connections as f64);
        let cpu_us = match point.connections {
            0..=1 => 10.0,
            2..=16 => 14.0,
            _ => 12.0,
        };
        point.figures.set(names::SERVER_CPU, Figure::new(cpu_us, "us", 100_000, Origin::Timed));
        point.figures.set(names::SERVER_SOFTIRQ, Figure::new(0.0, "us", 100_000, Origin::Timed));
    };
    assert_eq!(said(fixture::record(), only_at_first), None);
}

/// Recorded with `find --sweep connections --max-connections 8 --cold 1500` on HAProxy 2.6: with poll (`-de`), with
/// epoll, and with poll under `straingauge scale`. The points have only figures that a verdict uses.
#[test]
fn scale_is_suggested_only_for_the_recorded_run_with_stock_poll() {
    for (name, is_told) in [("haproxy-poll", true), ("haproxy-epoll", false), ("haproxy-scaled", false)] {
        let run = record::RunDir::open(&recorded::run(name).path()).expect("a recorded run");
        assert!(run.points.len() > 10, "{name}: {:?}", run.reading_doubts);
        let verdict = verdict::sentences(&run, &zones::of_run(&run));
        let told = verdict.sentences.iter().any(|sentence| sentence.contains("`straingauge scale -- haproxy -de -db"));
        assert_eq!(told, is_told, "{name}: {:?}", verdict.sentences);
    }
}

#[test]
fn debuggers_are_not_pointed_at_the_first_of_several_processes() {
    let mut record = fixture::record();
    fixture::loaded(&mut record).server = None;
    let mut pid = |processes: &str| {
        for (name, value) in [("pid", "41"), ("processes", processes)] {
            record.server_facts.insert(name.into(), value.into());
        }
        let record = record.clone();
        server_pid(&RunDir { path: Default::default(), record, points: Vec::new(), reading_doubts: Vec::new() })
    };
    assert_eq!((pid("1"), pid("3")), ("41".to_string(), "PID".to_string()));
}

#[test]
fn a_limit_is_found_where_a_command_sets_it() {
    for (word, limit) in [
        ("ulimit -n 64; exec server", Some("64")),
        ("cd /srv && ulimit  -S -n 1024 && exec server", Some("1024")),
        ("ulimit -c 0; ulimit -Hn 200; server", Some("200")),
        ("--nofile=64:64", Some("64")),
        ("LimitNOFILE=64", Some("64")),
        ("ulimit -c 0; exec server", None),
        ("ulimit -n unlimited; server", None),
        ("ulimit", None),
        ("server -n 64", None),
    ] {
        assert_eq!(set_limit(word).map(|at| &word[at]), limit, "{word}");
    }
}
