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

mod content {
    use workload::files::content::write;

    fn made(path: &str, bytes: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(path, bytes, &mut out).unwrap();
        out
    }

    #[test]
    fn content_is_exact_repeatable_and_different_by_file() {
        for bytes in [0, 1, 79, 80, 65_535, 65_536, 65_537, 200_000] {
            assert_eq!(made("a.html", bytes).len() as u64, bytes);
        }
        assert_eq!(made("a.bin", 100_000), made("a.bin", 100_000));
        assert_ne!(made("a.bin", 1000), made("b.bin", 1000));
        assert_eq!(made("a.html", 70_000)[..100], made("a.html", 100)[..]);
    }

    #[test]
    fn text_files_have_lines_and_other_files_have_random_bytes() {
        let text = made("x/a.css", 100_000);
        assert!(text.split(|byte| *byte == b'\n').all(|line| line.len() < 80));
        assert!(text.iter().all(|byte| byte.is_ascii_alphanumeric() || b" .\n".contains(byte)));
        let mut counts = [0u32; 256];
        made("a.gif", 1 << 20).iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|count| (3500..4700).contains(count)), "no byte is rare: it is not sparse");
    }
}

mod manifest {
    use workload::files::Tree;
    use workload::files::manifest::{nginx_map, tsv};
    use workload::files::{FileEntry, SizeOrigin};

    #[test]
    fn rows_are_complete_and_quoted() {
        let entry = |target: &str, file: &str| FileEntry {
            target: target.into(),
            file: file.into(),
            bytes: 7,
            origin: SizeOrigin::Log,
        };
        let tree = Tree {
            entries: vec![entry("/a", "a"), entry("/b/", "b/index.html"), entry("/\"x\\?", "mapped-urls/00/ff")],
            ..Tree::default()
        };
        let manifest = String::from_utf8(tsv(&tree)).unwrap();
        assert_eq!(manifest.lines().count(), 5);
        assert!(manifest.ends_with("/\"x\\?\tmapped-urls/00/ff\t7\tlog\n"));
        let map = String::from_utf8(nginx_map(&tree)).unwrap();
        assert!(!map.contains("\"/a\""), "a plain target needs no row");
        assert!(map.contains("\"/b/\" \"/b/index.html\";"));
        assert!(map.contains(r#""/\"x\\?" "/mapped-urls/00/ff";"#), "{map}");
    }
}

mod mapping {
    use proptest::prelude::*;
    use std::collections::HashMap;
    use workload::files::SizeOrigin;
    use workload::files::mapping::{MAPPED, place, plain_path};

    fn placed(targets: &[(&str, u64)]) -> Vec<(String, String)> {
        let wanted = targets.iter().map(|(target, bytes)| (target.as_bytes().to_vec(), *bytes, SizeOrigin::Log));
        place(wanted.collect())
            .into_iter()
            .map(|entry| (String::from_utf8(entry.target).unwrap(), entry.file))
            .collect()
    }

    #[test]
    fn plain_paths_are_where_a_server_looks_for_them() {
        for (target, path) in [
            ("/", "index.html"),
            ("/a/b.html", "a/b.html"),
            ("/a/", "a/index.html"),
            ("/a%20b", "a b"),
            ("/%C3%A4", "\u{e4}"),
            ("/.well-known/x", ".well-known/x"),
        ] {
            assert_eq!(plain_path(target.as_bytes()).as_deref(), Some(path), "{target}");
        }
    }

    #[test]
    fn unsafe_and_ambiguous_targets_are_mapped() {
        let long = format!("/{}", "x".repeat(201));
        let deep = "/ab".repeat(400);
        for target in [
            "/../../etc/passwd",
            "/a/../b",
            "/%2e%2e/etc/passwd",
            "/a//b",
            "/./a",
            "/a%00b",
            "/a%2fb",
            "/a\\b",
            "/a%5cb",
            "/x?y=1",
            "/x#y",
            "/%zz",
            "/%4",
            "/%ff",
            "*",
            "relative",
            "/.htaccess",
            "/mapped-urls/x",
            "/a%0ab",
            &long,
            &deep,
        ] {
            assert_eq!(plain_path(target.as_bytes()), None, "{target}");
        }
        let files = placed(&[("/../../etc/passwd.TXT?x", 1)]);
        assert!(files[0].1.starts_with("mapped-urls/") && files[0].1.ends_with(".txt"), "{files:?}");
    }

    #[test]
    fn a_file_that_is_also_a_directory_is_mapped_and_its_children_are_not() {
        let files = placed(&[("/a", 1), ("/a/b", 2), ("/a/b/c", 3), ("/a/", 4)]);
        let mapped: Vec<bool> = files.iter().map(|(_, file)| file.starts_with(MAPPED)).collect();
        assert_eq!(mapped, [true, false, true, false], "{files:?}");
    }

    #[test]
    fn targets_of_one_path_share_a_file_only_if_they_agree_on_its_size() {
        let files = placed(&[("/a", 1), ("/%61", 1), ("/b", 1), ("/%62", 2)]);
        assert_eq!(files[0].1, "a");
        assert_eq!(files[2].1, "a");
        assert_ne!(files[1].1, files[3].1);
    }

    proptest! {
        #[test]
        fn every_file_is_below_the_root_and_no_file_is_a_directory(
            targets in proptest::collection::vec(
                (r"(/(a|b|\.\.|\.|%2e|%2F|%00||index\.html|[ -~]{0,6})){0,4}[?/]?", 0u64..3),
                0..40,
            )
        ) {
            let sized = |(target, bytes): &(String, u64)| (target.as_bytes().to_vec(), *bytes, SizeOrigin::Log);
            let wanted = targets.iter().map(sized).collect();
            let entries = place(wanted);
            let files: HashMap<&str, u64> = entries.iter().map(|entry| (entry.file.as_str(), entry.bytes)).collect();
            for entry in &entries {
                prop_assert!(!entry.file.starts_with('/') && !entry.file.ends_with('/'));
                prop_assert!(entry.file.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= 255));
                prop_assert!(!entry.file.contains('\0'));
                prop_assert_eq!(files[entry.file.as_str()], entry.bytes, "two sizes for {}", &entry.file);
                for (at, _) in entry.file.match_indices('/') {
                    prop_assert!(!files.contains_key(&entry.file[..at]), "{} is also a file", &entry.file[..at]);
                }
            }
        }

        #[test]
        fn no_target_panics(target in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = place(vec![(target, 1, SizeOrigin::Log)]);
        }
    }
}
