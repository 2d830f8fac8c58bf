//! Exports with any names. The sums of the other formats are tested with the programs that read them.

use analyze::zones::Zone;
use proptest::prelude::*;
use prost::Message;
use record::account::Account;
use record::layers::Layer;
use record::profile::{CpuMode, Folded, Frame, Profile, Ran, SampledProcess, Stack, Stacks};
use record::{Doubt, DoubtKind, PlainText, RunDir, Sweep};
use report::export::{Accounted, ExportFormat, ExportedLoad, ExportedWindow, StackRecording};
use std::collections::BTreeMap;
use std::io::Read;

type Sums = BTreeMap<String, u64>;

/// What the tests read of pprof's profile.proto.
#[derive(Clone, PartialEq, Message)]
struct Pprof {
    #[prost(bytes = "vec", repeated, tag = "1")]
    sample_type: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<PprofSample>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    location: Vec<Vec<u8>>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct PprofSample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<PprofLabel>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PprofLabel {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

/// Names of real programs, and unreasonable ones.
const NAMES: [&str; 10] = [
    "tcp_sendmsg",
    "kmem_cache_alloc",
    "main",
    "std::vector<a, b>::push_back(int const&)",
    "Ljava/lang/String;::hashCode",
    "a\nb 7",
    " ",
    "\u{1b}[31mred",
    "\"quoted\" \\ </script>",
    "世界",
];

fn a_stack() -> impl Strategy<Value = Stack> {
    let frames = prop::collection::vec(0u32..NAMES.len() as u32, 0..6);
    let layer = prop::option::of(prop::sample::select(&Layer::ALL[..]));
    (frames, 0u32..3, layer, 0u64..1000, 0u64..5_000_000).prop_map(|(functions, place, layer, samples, cpu_ns)| Stack {
        functions,
        process: (place < 2).then_some(place),
        ran: if place < 2 { Ran::Server } else { Ran::Idle },
        mode: CpuMode::Kernel,
        layer,
        part: if samples % 2 == 0 { "a part".into() } else { PlainText::default() },
        samples,
        cpu_ns,
        events: vec![samples * 3],
    })
}

fn a_recording() -> impl Strategy<Value = StackRecording> {
    let stacks = prop::collection::vec(prop::collection::vec(a_stack(), 0..12), 1..4);
    (stacks, any::<bool>()).prop_map(|(all, is_run)| {
        let windows = all.into_iter().enumerate().map(|(index, stacks)| ExportedWindow {
            stacks: Stacks {
                started_unix_ms: 1_000_000 + index as u64 * 5000,
                duration_ns: 2_000_000_000,
                clock: "cpu-clock".into(),
                period_ns: 1_003_009,
                events: vec!["cycles".into()],
                processes: vec![
                    SampledProcess { pid: 7, name: "nginx".into() },
                    SampledProcess { pid: 8, name: "my;server".into() },
                ],
                functions: NAMES
                    .iter()
                    .enumerate()
                    .map(|(place, name)| Frame {
                        function: (*name).into(),
                        module: (place == 2).then(|| "libc.so.6".into()),
                        is_kernel: place < 2,
                    })
                    .collect(),
                stacks,
            },
            // The first load has two windows.
            load: is_run.then(|| ExportedLoad {
                sweep: Sweep::Connections,
                value: (index / 2) as f64,
                words: format!("{} connections", index / 2),
                zone: Some(Zone::Elastic),
                point: index as u32,
            }),
        });
        StackRecording { title: "nginx".into(), windows: windows.collect(), accounts: Vec::new(), doubts: Vec::new() }
    })
}

fn sums(recording: &StackRecording, of: impl Fn(&Stack) -> u64) -> Sums {
    let mut sums = Sums::new();
    for stack in recording.windows.iter().flat_map(|window| &window.stacks.stacks).filter(|stack| of(stack) > 0) {
        *sums.entry(stack.layer_word().to_string()).or_default() += of(stack);
    }
    sums
}

fn add(sums: &mut Sums, word: &str, value: u64) {
    if value > 0 {
        *sums.entry(word.to_string()).or_default() += value;
    }
}

fn in_pprof(recording: &StackRecording, column: usize, key: &str) -> Sums {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&*recording.export(ExportFormat::Pprof).expect("samples"))
        .read_to_end(&mut bytes)
        .expect("gzip");
    let profile = Pprof::decode(&*bytes).expect("a profile");
    let text = |place: i64| profile.string_table[place as usize].as_str();
    assert_eq!(text(0), "");
    let mut sums = Sums::new();
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(!sample.location_id.is_empty());
        assert!(sample.location_id.iter().all(|id| (1..=profile.location.len() as u64).contains(id)));
        for label in sample.label.iter().filter(|label| text(label.key) == key) {
            add(&mut sums, text(label.str), sample.value[column] as u64);
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sums_by_layer_equal_those_of_the_stacks(recording in a_recording()) {
        let samples = sums(&recording, |stack| stack.samples);
        let cpu = sums(&recording, |stack| stack.cpu_ns);
        prop_assert_eq!(&in_pprof(&recording, 0, "layer"), &samples);
        prop_assert_eq!(&in_pprof(&recording, 1, "layer"), &cpu);
        prop_assert_eq!(&in_pprof(&recording, 2, "layer"), &sums(&recording, |stack| stack.events[0]));
    }

    #[test]
    fn no_name_breaks_the_syntax_of_a_file(recording in a_recording()) {
        use ExportFormat::{Firefox, Folded, FoldedLayers, Speedscope};
        for format in [Firefox, Speedscope, Folded, FoldedLayers] {
            prop_assert!(recording.export(format).is_ok_and(|bytes| !bytes.contains(&0x1b)));
        }
        let folded = String::from_utf8(recording.export(Folded).expect("samples")).expect("text");
        for line in folded.lines() {
            let (stack, count) = line.rsplit_once(' ').expect("a count");
            prop_assert!(count.parse::<u64>().is_ok(), "{}", line);
            prop_assert!(stack.split(';').all(|frame| !frame.is_empty() && frame.trim() == frame), "{}", line);
        }
    }
}

fn a_run(with_stacks: bool) -> (tempfile::TempDir, RunDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/examples/find-nginx");
    std::fs::copy(format!("{example}/run.json"), folder.path().join("run.json")).expect("it is kept");
    for index in 0..2 {
        let name = format!("points/{index:03}");
        std::fs::create_dir_all(folder.path().join(&name)).expect("our own folder");
        let point = format!("{name}/point.json");
        std::fs::copy(format!("{example}/{point}"), folder.path().join(&point)).expect("it is kept");
        let stacks = Stacks {
            functions: vec![Frame { function: "tcp_ack".into(), module: None, is_kernel: true }],
            stacks: vec![Stack {
                functions: vec![0],
                process: None,
                ran: Ran::Server,
                mode: CpuMode::Kernel,
                layer: Some(Layer::Tcp),
                part: PlainText::default(),
                samples: 1 + index,
                cpu_ns: 1000 + index,
                events: Vec::new(),
            }],
            ..Stacks::default()
        };
        if with_stacks {
            let text = serde_json::to_vec(&stacks).expect("it has string keys");
            std::fs::write(folder.path().join(&name).join("stacks.json"), text).expect("our own folder");
        }
    }
    let run = RunDir::open(folder.path()).expect("a run");
    (folder, run)
}

#[test]
fn the_points_of_a_run_have_their_loads_and_zones() {
    let (_folder, run) = a_run(true);
    let recording = StackRecording::of_run(&run).expect("it has stacks");
    let loads = in_pprof(&recording, 1, "load");
    assert_eq!(loads.values().sum::<u64>(), 2001);
    let zones = in_pprof(&recording, 1, "zone");
    assert!(
        zones.keys().all(|zone| ["elastic", "plastic", "failure", "unknown"].contains(&zone.as_str())),
        "{zones:?}"
    );
    assert_eq!(in_pprof(&recording, 0, "point"), BTreeMap::from([("000".into(), 1), ("001".into(), 2)]));
    let folded = String::from_utf8(recording.export(ExportFormat::Folded).expect("samples")).expect("text");
    assert!(loads.keys().all(|load| folded.contains(load.as_str())), "{folded}");
}

#[test]
fn unsampled_points_give_the_reason() {
    let (_folder, mut run) = a_run(false);
    let why = |run: &RunDir| StackRecording::of_run(run).expect_err("no stacks").to_string();
    assert!(why(&run).starts_with("not measured: "), "{}", why(&run));
    for point in &mut run.points {
        for figure in [record::names::LAYER_TCP, record::names::PACKET_TCP] {
            point.figures.0.remove(figure);
        }
    }
    assert!(why(&run).contains("profile --axis"), "{}", why(&run));
    let refused = format!("{}: sampling the kernel is not permitted", record::profile::NOT_SAMPLED);
    run.record.doubts.push(Doubt::new(DoubtKind::NotWatched, record::Severity::Note, refused, "root"));
    assert_eq!(why(&run), "not measured: sampling the kernel is not permitted");
    run.points.clear();
    assert_eq!(why(&run), "not measured: the run has no points");
    let error = StackRecording::of_profile(&Profile::default()).expect_err("no samples").to_string();
    assert!(error.contains("load it while"), "{error}");
}

#[test]
fn damaged_stacks_are_left_out_and_named() {
    let (folder, run) = a_run(true);
    std::fs::write(folder.path().join("points/000/stacks.json"), "{").expect("our own folder");
    let recording = StackRecording::of_run(&run).expect("the other point has stacks");
    assert_eq!(in_pprof(&recording, 0, "point"), BTreeMap::from([("001".into(), 2)]));
    assert!(recording.doubts[0].what.contains("000/stacks.json"), "{:?}", recording.doubts);
    std::fs::write(folder.path().join("points/001/stacks.json"), "{").expect("our own folder");
    let why = StackRecording::of_run(&run).expect_err("no stacks").to_string();
    assert!(why.contains("stacks.json"), "{why}");
}

#[test]
fn folded_stacks_contain_the_whole_time_of_the_threads() {
    let wait = |kind, call: &str, ns, stacks| record::account::Wait {
        kind,
        call: call.into(),
        object: PlainText::default(),
        ns,
        times: 3,
        longest_ns: ns,
        stacks,
    };
    let stack = |name: &str, ns| record::account::WaitStack {
        frames: vec![Frame { function: name.into(), module: None, is_kernel: true }],
        woken_by: Vec::new(),
        ns,
        samples: 1,
    };
    let group = record::account::ThreadGroup {
        program: "app".into(),
        name: "worker".into(),
        running_ns: 5_000,
        ready_others_ns: 2_000,
        waits: vec![
            wait(record::account::WaitKind::Lock, "futex", 9_000, vec![stack("slow", 200), stack("slower", 100)]),
            wait(record::account::WaitKind::Events, "epoll_wait", 4_000, Vec::new()),
        ],
        ..record::account::ThreadGroup::default()
    };
    let account = Account { window_ns: 20_000, threads_ns: 20_000, groups: vec![group], ..Account::default() };
    let of = |load: Option<ExportedLoad>, requests: f64, account: Account| Accounted { load, requests, account };
    let mut recording = StackRecording {
        title: "app".into(),
        windows: Vec::new(),
        accounts: vec![of(None, 0.0, account.clone())],
        doubts: Vec::new(),
    };
    let text = String::from_utf8(recording.export(ExportFormat::FoldedWaits).expect("an account")).expect("text");
    assert_eq!(Folded::parse(text.as_bytes()).expect("folded").total(), 20, "{text}");
    assert!(text.contains("app;worker;blocked: a lock futex;slow_[k] 6\n"), "{text}");
    assert!(text.contains("app;worker;idle: events epoll_wait 4\n"), "{text}");
    let why = recording.export(ExportFormat::Pprof).expect_err("nothing was sampled").to_string();
    assert!(why.contains("no stack was sampled"), "{why}");
    let why = recording.export(ExportFormat::FoldedWaitsChange).expect_err("one load").to_string();
    assert!(why.contains("two loads"), "{why}");
    // Twice as many requests in the same time, and twice the wait for the lock.
    let load = |value: f64| {
        let words = format!("{value} connections");
        Some(ExportedLoad { sweep: Sweep::Connections, value, words, zone: None, point: 0 })
    };
    let mut loaded = account.clone();
    loaded.groups[0].waits[0].ns *= 2;
    recording.accounts = vec![of(load(4.0), 4.0, loaded), of(load(1.0), 2.0, account)];
    let text = String::from_utf8(recording.export(ExportFormat::FoldedWaitsChange).expect("two loads")).expect("text");
    assert!(text.contains("4 connections;app;worker;running 2500 1250\n"), "{text}");
    assert!(text.contains("4 connections;app;worker;blocked: a lock futex;slow_[k] 3000 3000\n"), "{text}");
    assert!(!text.contains("1 connections"), "{text}");
}
