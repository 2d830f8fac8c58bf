//! The fuzz targets with their seeds, whole and cut off, so that each compiles and holds without a fuzzer.

#![cfg(not(feature = "fuzz"))]

#[allow(unused_attributes)]
#[path = "../fuzz_targets/exports.rs"]
mod exports;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/framing.rs"]
mod framing;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/http2.rs"]
mod http2;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/pack.rs"]
mod pack;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/replies.rs"]
mod replies;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/run_directory.rs"]
mod run_directory;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/scenario.rs"]
mod scenario;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/series.rs"]
mod series;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/trace.rs"]
mod trace;
#[allow(unused_attributes)]
#[path = "../fuzz_targets/worker_protocol.rs"]
mod worker_protocol;

use std::path::{Path, PathBuf};

/// The seeds of `.ci/fuzz`: its files, and bytes that the target expects before them.
fn seeds(target: &str) -> Vec<(Vec<u8>, PathBuf)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let valid = |names: &[&str]| names.iter().map(|name| here.join("valid").join(name)).collect();
    let files: Vec<PathBuf> = match target {
        "exports" => valid(&["stacks.json"]),
        "run_directory" => valid(&["run.json", "point.json", "latency.hlog", "stacks.json"]),
        _ => {
            let folder =
                if target == "pack" { here.join("../crates/observe/packs") } else { here.join("seeds").join(target) };
            let listed = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            listed.map(|entry| entry.expect("a folder of the repository").path()).collect()
        }
    };
    let first = |at: usize| if target == "run_directory" { vec![at as u8] } else { Vec::new() };
    files.into_iter().enumerate().map(|(at, file)| (first(at), file)).collect()
}

#[test]
fn every_target_accepts_its_seeds_and_their_beginnings() {
    const PIECES: usize = 40;
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 10] = [
        ("exports", exports::target),
        ("framing", framing::target),
        ("http2", http2::target),
        ("pack", pack::target),
        ("replies", replies::target),
        ("run_directory", run_directory::target),
        ("scenario", scenario::target),
        ("series", series::target),
        ("trace", trace::target),
        ("worker_protocol", worker_protocol::target),
    ];
    for (name, target) in targets {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}");
        for (mut bytes, file) in seeds {
            bytes.extend(std::fs::read(&file).expect("a file of the repository"));
            (0..=PIECES).for_each(|piece| target(&bytes[..bytes.len() * piece / PIECES]));
        }
    }
}
