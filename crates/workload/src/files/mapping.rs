//! Maps request targets to safe file paths; the rules are in [the module](super).

use super::{FileEntry, SizeOrigin};
use crate::stable_hash;
use crate::trace::hex_byte;
use std::collections::{HashMap, HashSet};

/// Directory of the files that cannot be at their target's path.
pub const MAPPED: &str = "mapped-urls";
/// Maximum length of a part of a path. It leaves room for the suffix of an incomplete file.
const PART_BYTES: usize = 200;
const PATH_BYTES: usize = 1000;

/// Gives each target a file. Targets of one path share a file if they agree on its size.
pub fn place(mut wanted: Vec<(Vec<u8>, u64, SizeOrigin)>) -> Vec<FileEntry> {
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
pub fn plain_path(target: &[u8]) -> Option<String> {
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
