//! A small run directory from the synthetic server, equal on every machine.

use crate::server::{Bench, Server, plan};
use proptest::prelude::*;
use record::run::PointFiles;
use record::scenario::{FindRun, RequestTarget, ServerCommand};
use record::{
    Arrival, Axis, AxisPlace, AxisPlan, DoubtKind, Figure, Latency, LoadPlan, LoadRun, Origin, Outcomes, Pace, Point,
    RunDir, RunKind, RunRecord, RunWriter, Scenario, Status, Sweep, names,
};
use std::collections::BTreeMap;
use std::path::Path;

pub const LOADS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096];
pub const RATES: &[f64] = &[16_000.0, 32_000.0, 48_000.0, 64_000.0, 76_000.0, 80_000.0, 84_000.0, 92_000.0];

/// The points of a whole run, with both sweeps and yardsticks.
pub fn points() -> Vec<Point> {
    let server = Server { path: 120e-6, doubles_at: 5000.0, noise: 0.02, drift: 0.08, ..Server::default() };
    let mut bench = Bench::new(server, 11);
    for repeat in 0..3 {
        for load in LOADS {
            bench.closed(*load, repeat, 1_000_000_000);
        }
        bench.yardstick(repeat);
    }
    for repeat in 0..2 {
        for rate in RATES {
            bench.open(*rate, repeat, 1_000_000_000);
        }
        bench.yardstick(repeat);
    }
    for point in &mut bench.points {
        let held = point.connections as f64;
        let states = [("established", held), ("time-wait", held / 3.0), ("close-wait", held / 40.0), ("listen", 1.0)];
        for (state, count) in states.into_iter().filter(|(_, count)| *count >= 0.5) {
            point.connection_states.insert(state.into(), Figure::new(count, "connections", 10, Origin::Sampled));
        }
        point.figures.set(names::MACHINE_STEAL, Figure::not_measured("ratio", "not a virtual machine"));
    }
    bench.points[17].doubts.push(DoubtKind::NoisyNeighbour.warning(
        "other processes used 0.31 CPUs of those under test",
        "stop them, or give the server CPUs of its own with --server-cpus",
    ));
    bench.points
}

/// The record of a complete `find`.
pub fn record() -> RunRecord {
    let load = LoadPlan {
        addresses: vec!["127.0.0.1:8080".parse().unwrap()],
        host: "127.0.0.1:8080".into(),
        method: "GET".into(),
        targets: vec![RequestTarget { path: "/1k.bin".into() }],
        headers: vec![("Accept".into(), "*/*".into())],
        traceparent: false,
        body: Vec::new(),
        pace: Pace::Closed,
        connections: 1,
        requests_per_connection: 0,
        threads: 1,
        cpus: vec![0],
        warmup_ns: 200_000_000,
        duration_ns: 1_000_000_000,
        timeout_ns: 10_000_000_000,
        connect_timeout_ns: 5_000_000_000,
        connect_rate_per_sec: 0.0,
        source_addresses: vec![],
        seed: 1,
        precise: false,
        workload: Default::default(),
        clients: Default::default(),
        protocol: Default::default(),
        share: Default::default(),
    };
    let machine = record::machine::MachineFacts {
        kernel: "6.12.0-example".into(),
        distribution: "Debian GNU/Linux 12 (bookworm)".into(),
        cpu_model: "Example CPU at 2.6 GHz".into(),
        cpus: 2,
        memory_bytes: 8 << 30,
        l2_cache_bytes: Some(2 << 20),
        virtual_machine: true,
        governor: None,
        descriptor_limit: 20_000,
        sysctls: BTreeMap::from([
            ("net.core.somaxconn".to_string(), "4096".to_string()),
            ("net.ipv4.ip_local_port_range".to_string(), "32768 60999".to_string()),
        ]),
        straingauge: "0.1.0".into(),
    };
    RunRecord {
        schema: record::run::SCHEMA,
        status: Status::Complete,
        started_unix_ms: 1_763_757_412_000,
        writer_pid: 0,
        writer: None,
        scenario: Scenario {
            name: "nginx-1k".into(),
            repeat_command:
                "straingauge find http://127.0.0.1:8080/1k.bin --max-connections 4096 -- nginx -c nginx.conf".into(),
            kind: RunKind::Find(FindRun {
                base: LoadRun {
                    url: "http://127.0.0.1:8080/1k.bin".into(),
                    load,
                    server: Some(ServerCommand {
                        argv: ["nginx", "-c", "nginx.conf"].map(String::from).to_vec(),
                        cpus: vec![1],
                        isolated: true,
                    }),
                    path: None,
                },
                sweep: plan(90),
                what_ifs: Vec::new(),
                beside: Vec::new(),
                shift: None,
            }),
        },
        machine,
        server_facts: BTreeMap::from([("version".to_string(), "nginx/1.22.1".to_string())]),
        doubts: vec![DoubtKind::NotWatched.note(
            "hardware counters were not read: this machine has none",
            "run on a machine with a PMU to see cycles",
        )],
        ended_by: None,
        points: None,
    }
}

/// The load of a record.
pub fn loaded(record: &mut RunRecord) -> &mut LoadRun {
    match &mut record.scenario.kind {
        RunKind::Load(run) | RunKind::Find(FindRun { base: run, .. }) => run,
        other => panic!("{other:?} loads no server"),
    }
}

/// The `find` part of a record.
pub fn found(record: &mut RunRecord) -> &mut FindRun {
    match &mut record.scenario.kind {
        RunKind::Find(run) => run,
        other => panic!("{other:?}"),
    }
}

/// Log-normal response times, determined by the point.
fn latency(point: &Point) -> Latency {
    let p50_us = point.value(names::RESPONSE_P50).unwrap_or(100.0);
    let p99_us = point.value(names::RESPONSE_P99).unwrap_or(300.0).max(p50_us * 1.1);
    let sigma = (p99_us / p50_us).ln() / 2.326;
    let mut latency = Latency::new();
    let mut state = u64::from(point.index) + 1;
    for _ in 0..20_000 {
        let mut normal = -6.0;
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            normal += (state >> 11) as f64 / (1u64 << 53) as f64;
        }
        latency.record_ns((p50_us * 1e3 * (sigma * normal).exp()) as u64);
    }
    latency
}

/// A point with arbitrary numbers.
pub fn any_point() -> impl Strategy<Value = Point> {
    let sweep = prop_oneof![Just(Sweep::Connections), Just(Sweep::Rate), Just(Sweep::Yardstick), Just(Sweep::Single)];
    let value = prop_oneof![4 => 0.0f64..1e6, 1 => any::<f64>()];
    let figures = prop::collection::btree_map(prop::sample::select(names::ALL.to_vec()), value, 0..14);
    let outcomes = prop_oneof![Just(u64::MAX), 0u64..1000, any::<u64>()];
    (
        sweep,
        0u32..6,
        prop_oneof![1u64..5000, any::<u64>()],
        any::<f64>(),
        any::<u64>(),
        figures,
        prop::array::uniform4(outcomes),
    )
        .prop_map(|(sweep, repeat, connections, rate_per_sec, duration_ns, figures, counts)| {
            let pace = match sweep {
                Sweep::Rate => Pace::Open { rate_per_sec, arrival: Arrival::Poisson },
                _ => Pace::Closed,
            };
            let mut point = Point {
                duration_ns,
                outcomes: Outcomes {
                    sent: counts[0],
                    ok: counts[1],
                    refused: counts[2],
                    non_2xx: counts[3],
                    ..Default::default()
                },
                doubts: vec![],
                ..Point::new(sweep, repeat, connections, pace)
            };
            for ((name, unit, _), value) in figures {
                point.figures.set(name, Figure { value: Some(value), ..Figure::new(0.0, unit, 1, Origin::Counted) });
            }
            point
        })
}

/// A sweep along an axis.
pub fn axis_plan(axis: Axis, values: &[f64]) -> AxisPlan {
    AxisPlan {
        axis,
        values: values.to_vec(),
        overload_ratio: 3.0,
        conforming_ratio: 1.0,
        slowed: Vec::new(),
        function: None,
    }
}

/// A point of a server whose CPU time per request grows by 10 % per 100 cold connections, and whose speed drifts
/// between repeats.
pub fn axis_point(axis: Axis, value: f64, repeat: u32, index: u32) -> Point {
    let drift = 1.0 + 0.1 * f64::from(repeat);
    let jitter = 1.0 + 0.004 * (f64::from(index * 7 % 5) - 2.0);
    let cpu_us = 10.0 * (1.0 + value / 1000.0) * drift * jitter;
    let mut point = Point {
        index,
        axis: Some(AxisPlace { axis, value, slowed: None }),
        started_unix_ms: 1_763_757_412_000,
        warmup_ns: 200_000_000,
        duration_ns: 1_000_000_000,
        ..Point::new(Sweep::Axis, repeat, 20, Pace::Closed)
    };
    point.outcomes.sent = 50_000;
    point.outcomes.ok = 50_000;
    let conforming = if value <= 137.0 { 1.0 } else { 137.0 / value };
    for (name, value, unit) in [
        (names::THROUGHPUT, 1e6 / cpu_us, "1/s"),
        (names::GOODPUT, 1e6 / cpu_us, "1/s"),
        (names::RESPONSE_P50, 20.0 * cpu_us, "us"),
        (names::RESPONSE_P99, 50.0 * cpu_us, "us"),
        (names::SERVER_CPU, cpu_us, "us"),
        (names::COLD, value, "connections"),
        (names::CONFORMING, conforming, "ratio"),
    ] {
        point.figures.set(name, Figure::new(value, unit, 50_000, Origin::Counted));
    }
    point
}

/// A point of one second with these figures, each from 100 requests or samples.
pub fn point(sweep: Sweep, repeat: u32, connections: u64, figures: &[(&str, f64)]) -> Point {
    let mut point = Point::new(sweep, repeat, connections, Pace::Closed);
    (point.index, point.duration_ns) = (repeat, 1_000_000_000);
    figures.iter().for_each(|(name, value)| point.figures.measured(name, *value, 100, Origin::Counted));
    point
}

/// Writes a run with these points, but without histograms, below `parent` and opens it.
pub fn write(parent: &Path, record: RunRecord, points: &[Point]) -> RunDir {
    written(parent, record, points, false)
}

/// Like [`write`], with the points' histograms, which take most of the time.
pub fn write_whole(parent: &Path, record: RunRecord, points: &[Point]) -> RunDir {
    written(parent, record, points, true)
}

fn written(parent: &Path, record: RunRecord, points: &[Point], is_whole: bool) -> RunDir {
    let mut writer = RunWriter::create(parent, None, record).unwrap();
    for point in points {
        let latency = is_whole.then(|| latency(point));
        let mut files = PointFiles::default();
        if let Some(latency) = latency.as_ref().filter(|_| point.sweep != Sweep::Yardstick) {
            files.latencies = vec![("response", latency), ("service", latency)];
        }
        writer.add_point(&mut point.clone(), &files).unwrap();
    }
    RunDir::open(writer.path()).unwrap()
}

#[test]
#[ignore = "writes the valid files of fuzz/; run it by hand when the schema changes"]
fn valid_files_for_fuzzing() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_whole(folder.path(), record(), &points()[..3]);
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    std::fs::create_dir_all(fuzz.join("valid")).unwrap();
    let files =
        [run.path.join("run.json"), run.point_path(0).join("point.json"), run.point_path(0).join("latency.hlog")];
    for file in files {
        std::fs::copy(&file, fuzz.join("valid").join(file.file_name().unwrap())).unwrap();
    }
}
