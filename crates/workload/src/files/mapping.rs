//! Maps request targets to safe file paths; the rules are in [the module](super).

use super::{FileEntry, SizeOrigin};
use crate::stable_hash;
use crate::trace::hex_byte;
use std::collections::{HashMap, HashSet};

/// Directory of the files that cannot be at their target's path.
pub(super) const MAPPED: &str = "mapped-urls";
/// Maximum length of a part of a path. It leaves room for the suffix of an incomplete file.
const PART_BYTES: usize = 200;
const PATH_BYTES: usize = 1000;

pub(super) fn place(mut wanted: Vec<(Vec<u8>, u64, SizeOrigin)>) -> Vec<FileEntry> {
    wanted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    wanted.dedup_by(|a, b| a.0 == b.0);
    let plain: Vec<Option<String>> = wanted.iter().map(|(target, _, _)| plain_path(target)).collect();
    let mut directories: HashSet<&str> = HashSet::new();
    for path in plain.iter().flatten() {
        directories.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    let mut taken: HashMap<String, u64> = HashMap::new();
    let mut entries = Vec::with_capacity(wanted.len());
    for ((target, bytes, origin), path) in wanted.into_iter().zip(&plain) {
        let free = path.as_ref().filter(|path| {
            !directories.contains(path.as_str()) && taken.get(path.as_str()).is_none_or(|size| *size == bytes)
        });
        let file = match free {
            Some(path) => path.clone(),
            None => mapped_path(&target, |path| taken.contains_key(path)),
        };
        taken.insert(file.clone(), bytes);
        entries.push(FileEntry { target, file, bytes, origin });
    }
    entries
}

pub(super) fn is_plain(entry: &FileEntry) -> bool {
    plain_path(&entry.target).as_deref() == Some(&entry.file)
}

/// The path below the root that a target names; `None` if the target must be mapped.
pub(super) fn plain_path(target: &[u8]) -> Option<String> {
    let decoded = percent_decoded(target.strip_prefix(b"/")?)?;
    let mut text = String::from_utf8(decoded).ok()?;
    if text.is_empty() || text.ends_with('/') {
        text.push_str("index.html");
    }
    if text.len() > PATH_BYTES || text.chars().any(|char| char.is_control() || char == '\\') {
        return None;
    }
    let is_safe = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= PART_BYTES && !part.starts_with(".ht");
    let mut parts = text.split('/');
    let is_reserved = parts.clone().next() == Some(MAPPED);
    (!is_reserved && parts.all(is_safe)).then_some(text)
}

/// The decoded path; `None` for a path with a query, a fragment, or an invalid escape.
fn percent_decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len() + 10);
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match first {
            b'?' | b'#' => return None,
            b'%' => {
                let [high, low] = *after.first_chunk::<2>()?;
                // A decoded slash would be part of a file name, which is impossible.
                out.push(hex_byte(high, low).filter(|byte| *byte != b'/')?);
                rest = &after[2..];
            }
            byte => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    Some(out)
}

/// `mapped-urls/HH/HASH.ext`, with a number after the hash in the unlikely case of a collision.
fn mapped_path(target: &[u8], is_taken: impl Fn(&str) -> bool) -> String {
    let hash = stable_hash(target);
    let extension = extension(target);
    for number in 1u64.. {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = format!("{MAPPED}/{:02x}/{hash:016x}{suffix}{extension}", hash >> 56);
        if !is_taken(&path) {
            return path;
        }
    }
    unreachable!("fewer targets than numbers")
}

/// The extension of a target's path with its dot, if it is plain. Servers choose the content type by it.
fn extension(target: &[u8]) -> String {
    let path = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot)
            if (1..=8).contains(&(name.len() - dot - 1)) && name[dot + 1..].iter().all(u8::is_ascii_alphanumeric) =>
        {
            String::from_utf8_lossy(&name[dot..]).to_ascii_lowercase()
        }
        _ if name.is_empty() => ".html".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
