//! Reading run directories: no bytes in any of their files may panic the reader, the findings, the text or the report,
//! nor reach the page as markup.
//!
//! The first byte chooses which file the others become (run.json, point.json, latency.hlog); the rest of the run is valid,
//! so that every file is reached in depth. `valid/` and `seeds/` come from the ignored test `valid_files_for_fuzzing` of
//! crates/analyze.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::RunDir;
use std::fs;

const RUN: &[u8] = include_bytes!("../valid/run.json");
const POINT: &[u8] = include_bytes!("../valid/point.json");
const LOG: &[u8] = include_bytes!("../valid/latency.hlog");

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let chosen = usize::from(choice % 3);
    let mut files = [RUN, POINT, LOG];
    files[chosen] = bytes;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let point = folder.path().join("points/000");
    fs::create_dir_all(&point).expect("folders can be made");
    for (path, content) in
        [folder.path().join("run.json"), point.join("point.json"), point.join("latency.hlog")].into_iter().zip(files)
    {
        fs::write(path, content).expect("files can be written");
    }
    let Ok(run) = RunDir::open(folder.path()) else { return };
    let findings = analyze::zones::of_run(&run);
    let verdict = analyze::verdict::sentences(&run, &findings);
    let text = report::text::run(&run, &findings, &verdict);
    assert!(!text.contains('\u{1b}'), "an escape sequence reached the terminal");
    let _ = report::json::run(&run, &findings, &verdict);
    for point in &run.points {
        let latencies = run.latencies(point.index).unwrap_or_default();
        let _ = report::text::point(point, &latencies);
    }
    let page = report::page::html(&run);
    assert!(!page.contains("<script"), "script reached the page");
});
