//! What a cache-aware layout could win: bounds that hold for all times, and the answer for runs of known servers.

use crate::fixture;
use crate::server::{Bench, Server};
use analyze::stingy::{self, Check, Memwalk, NotChecked, Remedy, Won, remedy};
use proptest::prelude::*;
use record::{Figure, Origin, Point, names};

/// A server whose CPU time of a request grows by `user` of it in user space, with this memory for each connection.
fn checked(user: f64, memory: f64, report: Option<&Memwalk>) -> Result<Check, NotChecked> {
    let grows = Server { path: 120e-6, doubles_at: 60.0, noise: 0.02, drift: 0.05, ..Server::default() };
    let mut bench = Bench::new(grows, 5);
    for repeat in 0..4 {
        for load in [1, 2, 4, 8, 16, 32, 64, 128] {
            bench.closed(load, repeat, 1_000_000_000);
        }
    }
    let set = |point: &mut Point, name: &str, value: f64, unit: &str| {
        point.figures.set(name, Figure::new(value, unit, 1000, Origin::Sampled));
    };
    for point in &mut bench.points {
        let cpu = point.value(names::SERVER_CPU).expect("the server is watched");
        set(point, names::SERVER_CPU_USER, 1.5 + user * (cpu - 12.0).max(0.0), "us");
        set(point, names::SERVER_MEMORY, memory * point.connections as f64, "bytes");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    stingy::of_run(&fixture::write(folder.path(), fixture::record(), &bench.points), report)
}

fn memwalk(lines: u64) -> Memwalk {
    let state = format!(r#"{{"bytes": {}, "lines": {lines}, "is_bound": true}}"#, lines * 60);
    let report =
        format!(r#"{{"program": {{"cache_line_bytes": 64}}, "stages": [{{"name": "SEND", "state": {state}}}]}}"#);
    Memwalk::parse(report.as_bytes()).expect("a report")
}

proptest! {
    #[test]
    fn a_bound_is_never_below_1_nor_above_amdahls(
        cpu in 0.01..1e6_f64, user in 0.0..1.0_f64, least in -1e6..1e6_f64, most in -1e6..1e6_f64,
    ) {
        let won = Won::of(cpu, user * cpu, (least, most)).expect("times are possible");
        prop_assert!(1.0 <= won.at_least && won.at_least <= won.at_most && won.at_most <= won.amdahl, "{won:?}");
    }
}

#[test]
fn a_server_with_13_percent_user_time_wins_at_most_1_15_times() {
    let won = Won::of(10.0, 1.3, (0.0, 1.3)).expect("a bound");
    assert!((won.amdahl - 1.149).abs() < 0.001 && won.at_most == won.amdahl && won.at_least == 1.0, "{won:?}");
    assert_eq!(Won::of(10.0, 10.0, (0.0, 1.0)), None, "all is user time: no bound");
    assert_eq!(Won::of(10.0, f64::NAN, (0.0, 1.0)), None);
}

#[test]
fn loop_slab_or_neither_follows_from_where_the_memory_fits() {
    let won = Won { at_least: 1.1, at_most: 1.3, amdahl: 1.5 };
    let of = |grown: f64, lines: Option<f64>| remedy(won, Some(grown), lines, Some(1000));
    assert_eq!(of(5000.0, None), Some(Remedy::Loop));
    assert_eq!(of(5000.0, Some(2000.0)), Some(Remedy::Loop));
    assert_eq!(of(5000.0, Some(400.0)), Some(Remedy::Slab));
    assert_eq!(of(500.0, Some(400.0)), Some(Remedy::Neither), "all of it fits as it is");
    assert_eq!(of(0.0, Some(2000.0)), Some(Remedy::Loop), "memory of the start does not grow");
    assert_eq!(remedy(won, None, None, Some(1000)), None);
    let little = Won { at_most: 1.04, ..won };
    assert_eq!(remedy(little, Some(5000.0), Some(2000.0), Some(1000)), Some(Remedy::Neither));
}

#[test]
fn runs_of_known_servers_are_answered() {
    let outgrown = checked(0.9, 65536.0, None).expect("a check");
    assert_eq!(outgrown.remedy, Some(Remedy::Loop), "{outgrown:?}");
    assert!(outgrown.won.at_least > 1.05 && outgrown.won.at_most <= outgrown.won.amdahl, "{outgrown:?}");
    assert!(outgrown.not_measured.iter().any(|what| what.contains("--memwalk")));
    let per_connection = outgrown.memory_per_connection.expect("memory is known");
    assert!((per_connection / 65536.0 - 1.0).abs() < 0.5, "{per_connection}");
    let kernel = checked(0.0, 65536.0, None).expect("a check");
    assert_eq!((kernel.remedy, kernel.won.at_least), (Some(Remedy::Neither), 1.0), "{kernel:?}");
    let dense = checked(0.9, 65536.0, Some(&memwalk(4))).expect("a check");
    assert_eq!(dense.remedy, Some(Remedy::Slab), "{dense:?}");
    let large = checked(0.9, 65536.0, Some(&memwalk(1000))).expect("a check");
    assert_eq!((large.remedy, large.largest.map(|largest| largest.fit)), (Some(Remedy::Loop), Some(16.0)));
}
