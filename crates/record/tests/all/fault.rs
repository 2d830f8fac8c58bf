//! Every step of the run writer fails in turn, and is killed in turn: complete points stay readable, and everything
//! left behind is found as a leftover.

use record::fault::VARIABLE;
use record::leftovers::{FoundLeftovers, SearchScope};
use record::run::{PointFiles, RunDir, RunWriter, Status};
use record::scenario::Pace;
use record::{Latency, Point, RunError, RunRecord, Sweep, unfinished};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The folder in which the child writes its run, and whether it names the run's folder.
const PLACE: &str = "STRAINGAUGE_TEST_PLACE";
const POINTS: usize = 3;
/// The exit code of a child whose run could not be written.
const REFUSED: i32 = 7;

/// Not a test by itself: the process whose steps fail.
#[test]
fn writer_of_a_run() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let place = PathBuf::from(place);
    if write(&place).is_err() {
        std::process::exit(REFUSED);
    }
}

fn write(place: &Path) -> Result<(), RunError> {
    let record: RunRecord =
        serde_json::from_slice(include_bytes!("../../../../fuzz/valid/run.json")).expect("a record");
    let begun = RunRecord { status: Status::Running, ..RunRecord::begin(record.scenario) };
    let exact = place.ends_with("exact").then_some(place);
    RunWriter::check(place, exact)?;
    let mut writer = RunWriter::create(place, exact, begun)?;
    let mut is_whole = Ok(());
    for number in 0..POINTS {
        let mut point = Point::new(Sweep::Connections, 0, number as u64 + 1, Pace::Closed);
        let latency = Latency::default();
        let files = PointFiles { latencies: vec![("response", &latency)], series_csv: "a\n".into(), stacks: None };
        // A run continues after a point that could not be written.
        is_whole = is_whole.and(writer.add_point(&mut point, &files).map(drop));
    }
    is_whole.and(writer.finish(Status::Complete, None))
}

fn child(place: &Path, fault: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().expect("the test's own program"));
    command.args(["--exact", "fault::writer_of_a_run", "--test-threads=1"]);
    command.env(PLACE, place).env(VARIABLE, fault).output().expect("the test's own program").status
}

fn runs(place: &Path) -> Vec<RunDir> {
    let found = record::runs::find(place).map(|found| found.runs).unwrap_or_default();
    found.iter().map(|path| RunDir::open(path).expect("a run that is there can be read")).collect()
}

#[test]
fn a_failed_or_killed_step_of_a_run_leaves_complete_points_and_no_remains() {
    if !cfg!(feature = "faults") {
        return println!("not run: only tests of the whole workspace have the feature faults; add --features faults");
    }
    for name in ["exact", "runs"] {
        for how in ["fail", "kill"] {
            let base = tempfile::tempdir().unwrap();
            let mut most = 0;
            let mut step = 0;
            loop {
                step += 1;
                assert!(step < 1000, "the steps do not end");
                let place = base.path().join(format!("{step}/{name}"));
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                let status = child(&place, &format!("{how}:{step}"));
                let scene = SearchScope::new(vec![place.clone()]);
                let found = (unfinished::KIND.find)(&scene);
                if how == "fail" {
                    assert_eq!(found, FoundLeftovers::default(), "step {step} that failed in {name}");
                }
                for left in &found.left {
                    (unfinished::KIND.remove)(left).unwrap();
                }
                assert_eq!((unfinished::KIND.find)(&scene), FoundLeftovers::default());
                let runs = runs(&place);
                assert!(runs.len() <= 1);
                for run in &runs {
                    assert_eq!(
                        run.reading_doubts,
                        [],
                        "step {step} of {name} ({how}) leaves something that cannot be read"
                    );
                    let hidden = |folder: &Path| {
                        let names = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
                        names.filter(|name| name.to_string_lossy().starts_with('.')).collect::<Vec<_>>()
                    };
                    assert!(hidden(&run.path).is_empty() && hidden(&run.path.join("points")).is_empty());
                    most = most.max(run.points.len());
                    let is_done = status.success();
                    assert!(!is_done || run.record.status == Status::Complete, "it says that it is done");
                    assert_eq!(run.is_abandoned(), run.record.status == Status::Running);
                    assert!(how == "kill" || run.points.len() + 1 >= POINTS, "a failure costs one point at most");
                }
                if status.success() {
                    break;
                }
                assert_eq!(status.code(), (how == "fail").then_some(REFUSED), "step {step} of {name}");
            }
            assert_eq!(most, POINTS);
            assert!(step > 30, "only {step} steps");
        }
    }
}
