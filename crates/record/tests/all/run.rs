//! Run directories, and folders of them.

use record::owner::{Owner, OwnerState};
use record::run::{PointFiles, file_name, is_replaced, sync_dir, write_whole};
use record::runs::{FoundRuns, find};
use record::{Point, RunDir, RunError, RunRecord, RunWriter, Status};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

#[test]
fn names_become_harmless_path_components() {
    assert_eq!(file_name("127.0.0.1-8080-1k.bin"), "127.0.0.1-8080-1k.bin");
    assert_eq!(file_name("../../etc/passwd"), "etc-passwd");
    assert_eq!(file_name("\u{1b}[31m"), "31m");
    assert_eq!(file_name(""), "run");
    assert!(file_name(&"x".repeat(500)).len() <= 60);
}

#[test]
fn an_unwritable_directory_is_refused_before_measuring() {
    let folder = tempfile::tempdir().unwrap();
    assert!(RunWriter::check(folder.path(), None).is_ok());
    assert!(RunWriter::check(folder.path(), Some(&folder.path().join("a/b"))).is_ok());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the check left something behind");
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = RunWriter::check(folder.path(), Some(&file.join("run"))).unwrap_err().to_string();
    assert!(error.contains("--out"), "{error}");
    fs::write(folder.path().join("run.json"), "{}").unwrap();
    assert!(matches!(RunWriter::check(folder.path(), Some(folder.path())), Err(RunError::Occupied { .. })));
}

#[test]
fn runs_can_be_stored_on_a_file_system_that_cannot_flush_directories() {
    // /proc returns EINVAL, like vboxsf and 9p.
    assert_eq!(File::open("/proc").unwrap().sync_all().unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert!(sync_dir(Path::new("/proc")).is_ok());
    assert!(sync_dir(Path::new("/no/such/folder")).is_err());
}

#[test]
fn special_files_are_written_to_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe)
    });
    write_whole(&pipe, b"page").unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), b"page");
    assert!(!fs::metadata(&pipe).unwrap().is_file(), "the pipe was replaced");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something was left beside it");
}

#[test]
fn a_removed_directory_of_a_point_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let record: RunRecord = serde_json::from_slice(include_bytes!("../../../../fuzz/valid/run.json")).unwrap();
    let mut writer = RunWriter::create(folder.path(), Some(&folder.path().join("run")), record).unwrap();
    for repeat in 0..4 {
        let mut point = Point::new(record::Sweep::Single, repeat, 1, record::Pace::Closed);
        writer.add_point(&mut point, &PointFiles::default()).unwrap();
    }
    let said = |path: &Path| RunDir::open(path).unwrap().reading_doubts.into_iter().map(|doubt| doubt.what).collect();
    fs::remove_dir_all(writer.path().join("points/001")).unwrap();
    let doubts: Vec<String> = said(writer.path());
    assert!(matches!(&doubts[..], [one] if one.contains("points/001") && one.contains("1 of 4 points")), "{doubts:?}");
    writer.finish(Status::Complete, None).unwrap();
    fs::remove_dir_all(writer.path().join("points/003")).unwrap();
    let doubts: Vec<String> = said(writer.path());
    assert!(matches!(&doubts[..], [one] if one.contains("2 of 4 points")), "{doubts:?}");
    for index in ["000", "002"] {
        fs::write(writer.path().join("points").join(index).join("point.json"), "{").unwrap();
    }
    let doubts: Vec<String> = said(writer.path());
    assert_eq!(doubts.len(), 2, "{doubts:?}");
    let unreadable = format!("2 of 4 points were left out; {}/points/000/point.json: EOF", writer.path().display());
    assert!(doubts[1].starts_with(&unreadable), "{doubts:?}");
}

#[test]
fn a_run_of_a_later_schema_is_recognised_with_any_contents() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.json"), r#"{"schema":99,"status":["new"]}"#).unwrap();
    assert!(matches!(RunDir::open(folder.path()), Err(RunError::Newer { found: 99, .. })));
}

#[test]
fn a_copied_unfinished_run_is_neither_abandoned_nor_running() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.json"), include_bytes!("../../../../fuzz/valid/run.json")).unwrap();
    let mut run = RunDir::open(folder.path()).unwrap();
    run.record.status = Status::Running;
    let own = Owner::of_this_process();
    for (writer, life) in [
        (own, OwnerState::Alive),
        (Owner { start_ticks: own.start_ticks + 1, ..own }, OwnerState::Ended),
        (Owner { place: own.place ^ 1, ..own }, OwnerState::Elsewhere),
    ] {
        run.record.writer = Some(writer);
        assert_eq!((run.writer_life(), run.is_abandoned()), (life, life == OwnerState::Ended));
    }
}

#[test]
fn a_pipe_in_a_run_directory_is_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("run.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (send, read) = std::sync::mpsc::channel();
    let place = folder.path().to_path_buf();
    std::thread::spawn(move || {
        let opened = RunDir::open(&place).map_err(|error| error.to_string());
        send.send(opened.map(drop)).expect("the test waits");
    });
    let error = read.recv_timeout(Duration::from_secs(60)).expect("the pipe was waited for").unwrap_err();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn output_is_appended_to_descriptors_and_devices_are_not_replaced() {
    use std::os::fd::AsRawFd;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"first ").unwrap();
    let path = format!("/dev/fd/{}", file.as_file().as_raw_fd());
    write_whole(Path::new(&path), b"second").unwrap();
    assert_eq!(fs::read(file.path()).unwrap(), b"first second");
    for (path, expected) in [
        ("/dev/stderr", false),
        ("/dev/none", false),
        ("/dev/null", false),
        ("/proc/self/fd/2", false),
        ("/dev/shm/page", true),
        ("page", true),
    ] {
        assert_eq!(is_replaced(Path::new(path)), expected, "{path}");
    }
}

#[test]
fn stacks_are_kept_with_their_point_and_damaged_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.json"), include_bytes!("../../../../fuzz/valid/run.json")).unwrap();
    let run = RunDir::open(folder.path()).unwrap();
    assert_eq!(run.stacks(0).unwrap(), None);
    let text = |functions: &str, samples: &str| {
        format!(
            r#"{{"started_unix_ms":1,"duration_ns":2,"clock":"cpu-clock","period_ns":3,"processes":[],
            "functions":[{{"function":"a\u001b[2Jb;c","is_kernel":true}}],
            "stacks":[{{"functions":{functions},"ran":"idle","mode":"softirq","layer":"tcp",
            "samples":{samples},"cpu_ns":5}}]}}"#
        )
    };
    fs::create_dir_all(run.point_path(0)).unwrap();
    let read = |text: String| {
        fs::write(run.point_path(0).join("stacks.json"), text).unwrap();
        run.stacks(0).map(|stacks| stacks.expect("there is a file")).map_err(|error| error.to_string())
    };
    let stacks = read(text("[0]", "4")).unwrap();
    assert_eq!(stacks.samples(), 4);
    assert_eq!(stacks.folded().to_text(), "[packets on idle CPUs];a?[2Jb:c_[k] 4\n");
    for (functions, samples, why) in [
        ("[1]".to_string(), "4", "not there"),
        ("[0]".into(), "9223372036854775808", "too large"),
        ("[0]".into(), "-1", "stacks.json"),
        (format!("{:?}", vec![0; 1025]), "1", "1024"),
    ] {
        let sentence = read(text(&functions, samples)).unwrap_err();
        assert!(sentence.contains(why), "{sentence}");
    }
}

fn names(found: &FoundRuns, parent: &Path) -> Vec<String> {
    found.runs.iter().map(|path| path.strip_prefix(parent).unwrap().display().to_string()).collect()
}

#[test]
fn runs_are_found_below_folders_and_no_link_is_followed() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = folder.path();
    for run in ["a", "b/nginx/c", "b/nginx/c/with", ".hidden/d", "1/2/3/4/5/6", "1/2/3/4/5/6x/7/8"] {
        fs::create_dir_all(place.join(run)).unwrap();
        fs::write(place.join(run).join("run.json"), "{ not even JSON").unwrap();
    }
    fs::write(elsewhere.path().join("run.json"), "{}").unwrap();
    symlink(elsewhere.path(), place.join("link")).unwrap();
    symlink(place, place.join("b/round")).unwrap();
    fs::create_dir(place.join("e")).unwrap();
    symlink(elsewhere.path().join("run.json"), place.join("e").join("run.json")).unwrap();
    let found = find(place).unwrap();
    assert_eq!(names(&found, place), ["b/nginx/c", "a", "1/2/3/4/5/6"], "{found:?}");
    let why: Vec<&str> = found.left_out.iter().map(|(_, why)| why.as_str()).collect();
    assert_eq!(why.len(), 2, "{found:?}");
    assert!(why[0].contains("a link") && why[1].contains("folders deep"), "{found:?}");
    assert_eq!(names(&find(&place.join("a")).unwrap(), place), ["a"], "the folder may be a run");
    assert!(find(&place.join("none")).unwrap_err().to_string().contains("none"));
}

#[test]
fn only_the_stated_number_of_newest_runs_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..2005 {
        let run = folder.path().join(format!("{number:04}"));
        fs::create_dir(&run).unwrap();
        fs::write(run.join("run.json"), "").unwrap();
    }
    let found = find(folder.path()).unwrap();
    let listed = names(&found, folder.path());
    assert_eq!((listed.len(), listed[0].as_str(), listed[1999].as_str()), (2000, "2004", "0005"));
    assert!(found.left_out.len() == 1 && found.left_out[0].0.ends_with("0004"), "{:?}", found.left_out);
}
