//! Tests that document trees are complete, repeatable, and never outside their directory.

use super::data;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use workload::files::{SizeOrigin, Tree, TreeLimits, make};
use workload::mix::Mix;
use workload::trace::{LogFormat, TraceReader};

fn reader_of(lines: &[&str]) -> TraceReader {
    let log: String = lines.iter().map(|line| format!("h - - [17/May/2015:10:05:03 +0000] {line}\n")).collect();
    TraceReader::from_reader("test.log".into(), Box::new(Cursor::new(log)), &LogFormat::Common).unwrap()
}

fn tree_of(lines: &[&str]) -> Tree {
    Tree::of_trace(&mut reader_of(lines), &TreeLimits::default()).unwrap()
}

/// Every regular file below a directory with its content. Fails on any other kind of file.
fn listing(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(top: &Path, at: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(at).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            assert!(kind.is_dir() || kind.is_file(), "{:?}", entry.path());
            if kind.is_dir() {
                walk(top, &entry.path(), into);
            } else {
                let name = entry.path().strip_prefix(top).unwrap().to_str().unwrap().to_string();
                into.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    let mut into = BTreeMap::new();
    walk(directory, directory, &mut into);
    into
}

#[test]
fn the_tree_of_a_mix_has_its_sizes_in_real_blocks() {
    let scratch = tempfile::tempdir().unwrap();
    let mix = Mix::webstone();
    let tree = Tree::of_mix(&mix, &TreeLimits::default()).unwrap();
    let made = make(&tree, &scratch.path().join("a/b"), &TreeLimits::default(), |_, _| {}).unwrap();
    assert_eq!((made.written, made.kept, made.total_bytes), (77, 0, 13_361 * 1024));
    for document in &mix.documents {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(made.root.join(&document.url[1..])).unwrap();
        assert_eq!(found.len(), document.bytes);
        assert!(found.blocks() * 512 >= found.len() || found.blocks() == 0, "sparse");
    }
}

#[test]
fn hostile_targets_stay_below_the_root_and_get_their_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let long = format!("\"GET /{} HTTP/1.1\" 200 14", "n".repeat(300));
    let tree = tree_of(&[
        "\"GET /../../etc/passwd HTTP/1.1\" 200 11",
        "\"GET /%2e%2e/%2e%2e/escaped HTTP/1.1\" 200 12",
        "\"GET /nul%00byte HTTP/1.1\" 200 13",
        &long,
        "\"GET /both HTTP/1.1\" 200 15",
        "\"GET /both/child HTTP/1.1\" 200 16",
        "\"GET /page?id=1 HTTP/1.1\" 200 17",
        "\"GET /page?id=2 HTTP/1.1\" 200 18",
        "\"GET /page HTTP/1.1\" 200 19",
        "\"GET //double HTTP/1.1\" 200 20",
        "\"GET / HTTP/1.1\" 200 21",
        "\"GET /\\xff HTTP/1.1\" 200 22",
    ]);
    make(&tree, &out, &TreeLimits::default(), |_, _| {}).unwrap();
    assert_eq!(listing(scratch.path()).keys().filter(|name| !name.starts_with("out/")).count(), 0);
    let files = listing(&out.join("root"));
    assert_eq!(files.len(), 12);
    let mut sizes: Vec<usize> = files.values().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, (11..=22).collect::<Vec<_>>());
    let manifest = std::fs::read(out.join("manifest.tsv")).unwrap();
    for row in manifest.split(|byte| *byte == b'\n').skip(2).filter(|row| !row.is_empty()) {
        let columns: Vec<&[u8]> = row.split(|byte| *byte == b'\t').collect();
        let file = std::str::from_utf8(columns[1]).unwrap();
        assert_eq!(files[file].len().to_string().as_bytes(), columns[2]);
    }
}

#[test]
fn each_file_has_the_size_that_the_log_answered_most_often() {
    let tree = tree_of(&[
        "\"GET /a HTTP/1.1\" 200 10",
        "\"GET /a HTTP/1.1\" 200 20",
        "\"GET /a HTTP/1.1\" 200 20",
        "\"HEAD /a HTTP/1.1\" 200 -",
        "\"GET /part HTTP/1.1\" 206 5",
        "\"GET /part HTTP/1.1\" 206 7",
        "\"GET /cached HTTP/1.1\" 304 -",
        "\"GET /gone HTTP/1.1\" 404 9",
        "\"POST /form HTTP/1.1\" 200 9",
        "\"GET /moved HTTP/1.1\" 301 9",
    ]);
    let found: Vec<(&[u8], u64, SizeOrigin)> =
        tree.entries.iter().map(|entry| (entry.target.as_slice(), entry.bytes, entry.origin)).collect();
    assert_eq!(
        found,
        [
            (&b"/a"[..], 20, SizeOrigin::Log),
            (b"/cached", 1024, SizeOrigin::Assumed),
            (b"/part", 7, SizeOrigin::Partial),
        ]
    );
    assert_eq!((tree.requests, tree.requests_of_other_size, tree.without_file), (3, 1, 2));
}

/// Sizes and counts of one target, by the file made for it and by a full count.
fn size_and_others(sizes: &[u64]) -> ((u64, u64), (u64, u64)) {
    let lines: Vec<String> = sizes.iter().map(|size| format!("\"GET /a HTTP/1.1\" 200 {size}")).collect();
    let tree = tree_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut counts = std::collections::BTreeMap::new();
    sizes.iter().for_each(|size| *counts.entry(*size).or_insert(0u64) += 1);
    let (size, count) = counts.into_iter().max_by_key(|(size, count)| (*count, *size)).unwrap();
    ((tree.entries[0].bytes, tree.requests_of_other_size), (size, sizes.len() as u64 - count))
}

#[test]
fn the_size_answered_most_often_is_found_among_many() {
    let (found, counted) = size_and_others(&[10, 20, 20, 30, 40, 50, 60]);
    assert_eq!((found, counted), ((20, 5), (20, 5)));
}

proptest::proptest! {
    #[test]
    fn the_file_has_the_most_frequent_size_and_the_others_are_counted(
        sizes in proptest::collection::vec(1u64..12, 1..40)
    ) {
        let (found, counted) = size_and_others(&sizes);
        proptest::prop_assert_eq!(found, counted);
    }
}

#[test]
fn targets_with_too_many_sizes_are_reported() {
    let lines: Vec<String> = (1..=70_000).map(|size| format!("\"GET /a HTTP/1.1\" 200 {size}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut reader = reader_of(&lines);
    let few = TreeLimits { files: 3, ..TreeLimits::default() };
    let tree = Tree::of_trace(&mut reader, &few).unwrap();
    assert_eq!((tree.requests_of_other_size, tree.of_uncertain_size), (69_999, 1));
}

#[test]
fn an_interrupted_run_continues_to_the_same_result() {
    let scratch = tempfile::tempdir().unwrap();
    let tree =
        tree_of(&["\"GET /a HTTP/1.1\" 200 100000", "\"GET /b/c HTTP/1.1\" 200 70000", "\"GET /d?e HTTP/1.1\" 200 5"]);
    let (whole, cut) = (scratch.path().join("whole"), scratch.path().join("cut"));
    let limits = TreeLimits::default();
    make(&tree, &whole, &limits, |_, _| {}).unwrap();
    make(&tree, &cut, &limits, |_, _| {}).unwrap();
    // The state after a kill: one file is missing, one is incomplete, and one has its temporary name.
    std::fs::remove_file(cut.join("root/a")).unwrap();
    std::fs::write(cut.join("root/a.partial"), b"half").unwrap();
    std::fs::write(cut.join("root/b/c"), b"short").unwrap();
    let made = make(&tree, &cut, &limits, |_, _| {}).unwrap();
    assert_eq!((made.written, made.kept, made.written_bytes), (2, 1, 170_000));
    assert_eq!(listing(&cut), listing(&whole));
}

#[test]
fn foreign_directories_are_refused_and_left_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let limits = TreeLimits::default();
    let tree = tree_of(&["\"GET /a HTTP/1.1\" 200 10"]);
    let other = tree_of(&["\"GET /a HTTP/1.1\" 200 11"]);
    let foreign = scratch.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.txt"), b"precious").unwrap();
    let refused = |at: &Path| make(&tree, at, &limits, |_, _| {}).unwrap_err().to_string();
    assert!(refused(&foreign).contains("was not written by this command"));
    assert_eq!(listing(&foreign).len(), 1);
    let used = scratch.path().join("used");
    make(&other, &used, &limits, |_, _| {}).unwrap();
    let before = listing(&used);
    assert!(refused(&used).contains("another workload"));
    assert_eq!(listing(&used), before);
    let file = scratch.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    assert!(refused(&file).contains("cannot be created"));
}

#[test]
fn a_symbolic_link_in_the_tree_is_not_followed() {
    let scratch = tempfile::tempdir().unwrap();
    let outside = scratch.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let tree = tree_of(&["\"GET /dir/a HTTP/1.1\" 200 10", "\"GET /b HTTP/1.1\" 200 10"]);
    let out = scratch.path().join("out");
    make(&tree, &out, &TreeLimits::default(), |_, _| {}).unwrap();
    std::fs::remove_dir_all(out.join("root/dir")).unwrap();
    std::os::unix::fs::symlink(&outside, out.join("root/dir")).unwrap();
    let why = make(&tree, &out, &TreeLimits::default(), |_, _| {}).unwrap_err().to_string();
    assert!(why.contains("dir/a cannot be "), "{why}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    // A symbolic link at the place of a file is replaced, and its target stays unchanged.
    std::fs::remove_file(out.join("root/dir")).unwrap();
    std::fs::write(outside.join("target"), b"keep").unwrap();
    std::fs::remove_file(out.join("root/b")).unwrap();
    std::os::unix::fs::symlink(outside.join("target"), out.join("root/b")).unwrap();
    make(&tree, &out, &TreeLimits::default(), |_, _| {}).unwrap();
    assert_eq!(std::fs::read(outside.join("target")).unwrap(), b"keep");
    assert!(out.join("root/b").symlink_metadata().unwrap().is_file());
}

#[test]
fn limits_are_checked_before_writing() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    let tree = tree_of(&["\"GET /a HTTP/1.1\" 200 1000", "\"GET /b HTTP/1.1\" 200 999999999999999999"]);
    let message = make(&tree, &out, &TreeLimits::default(), |_, _| {}).unwrap_err().to_string();
    assert!(message.contains("the limit is 10737418240"), "{message}");
    assert!(!out.exists());
    let wide = TreeLimits { bytes: u64::MAX, ..TreeLimits::default() };
    assert!(make(&tree, &out, &wide, |_, _| {}).unwrap_err().to_string().contains("the file system of"));
    assert!(!out.join("root/a").exists());
    let mut reader = TraceReader::open(&data::own("sample.log"), &LogFormat::Auto).unwrap();
    let few = TreeLimits { files: 3, ..TreeLimits::default() };
    assert!(Tree::of_trace(&mut reader, &few).unwrap_err().to_string().contains("more than 3 different targets"));
}

#[test]
fn the_tree_of_the_real_log_answers_nearly_every_request_with_its_bytes() {
    let Some(log) = data::public("apache_access_2015.log") else { return };
    let mut reader = TraceReader::open(&log, &LogFormat::Auto).unwrap();
    let tree = Tree::of_trace(&mut reader, &TreeLimits::default()).unwrap();
    assert_eq!((tree.requests, tree.requests_of_other_size), (9091, 20));
    assert!(tree.total_bytes() < 1 << 30);
}
