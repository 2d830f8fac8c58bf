//! Run directories. No bytes in any of their files may make the reader, the findings, the text or the report panic,
//! or reach the page as markup.
//!
//! The first byte chooses which file the others become (run.json, point.json, latency.hlog, stacks.json); the rest of
//! the run is valid, so that every file is reached in depth. `valid/` comes from the ignored test
//! `valid_files_for_fuzzing` of crates/analyze, except for stacks.json, which is written by hand.

#![no_main]

use record::RunDir;
use std::fs;
use straingauge_fuzz::fuzz_target;

const RUN: &[u8] = include_bytes!("../valid/run.json");
const POINT: &[u8] = include_bytes!("../valid/point.json");
const LOG: &[u8] = include_bytes!("../valid/latency.hlog");
const STACKS: &[u8] = include_bytes!("../valid/stacks.json");

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let chosen = usize::from(choice % 4);
    let mut files = [RUN, POINT, LOG, STACKS];
    files[chosen] = bytes;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let point = folder.path().join("points/000");
    fs::create_dir_all(&point).expect("folders can be made");
    let beside = ["point.json", "latency.hlog", "stacks.json"].map(|name| point.join(name));
    for (path, content) in [folder.path().join("run.json")].into_iter().chain(beside).zip(files) {
        fs::write(path, content).expect("files can be written");
    }
    let Ok(run) = RunDir::open(folder.path()) else { return };
    let findings = analyze::zones::of_run(&run);
    let verdict = verdict::sentences(&run, &findings);
    let text = report::run::text(&run, &findings, &verdict);
    assert!(!text.contains('\u{1b}'), "an escape sequence reached the terminal");
    for point in &run.points {
        let latencies = run.latencies(point.index).unwrap_or_default();
        let _ = report::run::point(point, &latencies);
    }
    if let Ok(recording) = report::export::StackRecording::of_run(&run) {
        for format in report::export::ExportFormat::ALL {
            let Ok(exported) = recording.export(format) else { continue };
            let is_text = format != report::export::ExportFormat::Pprof;
            assert!(!is_text || !exported.contains(&0x1b), "an escape sequence reached a profile");
        }
    }
    let shown = report::json::Content::Run(Box::new(report::json::Run::new(&run, findings, verdict)));
    let _ = report::json::Output::from(shown).value();
    let page = report::page::html(&run);
    assert!(page.matches("<script").count() == 1, "a script that is not the page's own reached the page");
});
