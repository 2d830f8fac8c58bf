//! Finds a pack's functions in the running server: symbols (even of a stripped program, which exports those that
//! modules need) become offsets in the file, where uprobes are attached.

use super::pack::{BoundaryFunction, Pack, matches};
use crate::maps;
use crate::processes::living_thread;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::path::PathBuf;

const MOST_BYTES: u64 = 512 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackPlace {
    /// Path of the file, as this process can open it.
    pub path: PathBuf,
    /// Offset of the function in the file.
    pub offset: u64,
    /// [`super::pack::PhaseEnd`] as a number.
    pub boundary: u64,
    pub at_return: bool,
    /// Its first instruction is single-stepped, which is expensive.
    pub is_stepped: bool,
}

/// Finds the pack's functions in the first process of the server that matches. The error is a sentence.
pub fn find(pack: &Pack, pids: &[u32]) -> Result<Vec<PackPlace>, String> {
    let mut names = Vec::new();
    for pid in pids {
        let pid = living_thread(*pid);
        let link = match std::fs::read_link(format!("/proc/{pid}/exe")) {
            Ok(link) => link,
            Err(error) => return Err(format!("the program of process {pid} cannot be read: {error}")),
        };
        let name = link.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // The kernel appends this to the name of a replaced file.
        let name = name.trim_end_matches(" (deleted)").to_string();
        if pack.fits(&name) {
            return places(pack, pid, &name);
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(5);
    Err(match names.as_slice() {
        [] => "the server's processes are not known".to_string(),
        names => {
            let (names, binaries) = (names.join(", "), pack.binaries.join(", "));
            format!("the server's program is {names}, but the pack is for {binaries}")
        }
    })
}

fn places(pack: &Pack, pid: u32, name: &str) -> Result<Vec<PackPlace>, String> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for mark in &pack.marks {
        let (path, file) = match &mark.library {
            None => (PathBuf::from(format!("/proc/{pid}/exe")), name.to_string()),
            Some(pattern) => match mapped_library(pid, pattern) {
                Some(found) => found,
                None => {
                    missing.push(format!("no library {pattern} is mapped (line {})", mark.line));
                    continue;
                }
            },
        };
        match offset_of(&path, mark) {
            Ok((offset, is_stepped)) => {
                let (boundary, at_return) = (mark.boundary as u64, mark.at_return);
                found.push(PackPlace { path, offset, boundary, at_return, is_stepped });
            }
            Err(why) => missing.push(format!("{file} {why} (line {})", mark.line)),
        }
    }
    // If a boundary has two functions, one of them is enough.
    let has = |boundary: u64| found.iter().any(|place| place.boundary == boundary);
    if (1..=3).all(has) {
        return Ok(found);
    }
    Err(format!("{}: install its debug symbols, or use a build that is not stripped", missing.join("; ")))
}

/// A mapped file with a matching name, by a path through the process's root directory.
pub fn mapped_library(pid: u32, pattern: &str) -> Option<(PathBuf, String)> {
    let mut files = maps::of_process(pid).ok()?.into_iter().filter(|mapping| mapping.path.starts_with('/'));
    let found = files.find(|mapping| matches(pattern, mapping.file_name()))?;
    Some((PathBuf::from(format!("/proc/{pid}/root{}", found.path)), found.file_name().to_string()))
}

/// The function's offset in the file, and whether a probe there is single-stepped.
pub fn offset_of(path: &std::path::Path, mark: &BoundaryFunction) -> Result<(u64, bool), String> {
    let unreadable = |why: String| format!("cannot be read ({why})");
    let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if length > MOST_BYTES {
        return Err(format!("has {length} bytes, too many to search"));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let file = object::File::parse(bytes.as_slice()).map_err(|error| unreadable(error.to_string()))?;
    let name = mark.function.as_str();
    let address = file
        .dynamic_symbols()
        .chain(file.symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .find(|symbol| symbol.name() == Ok(name))
        .map(|symbol| symbol.address())
        .ok_or_else(|| format!("has no symbol {name}"))?;
    let offset = file
        .segments()
        .find_map(|segment| {
            let into = address.checked_sub(segment.address()).filter(|into| *into < segment.size())?;
            let (start, size) = segment.file_range();
            (into < size).then(|| start + into)
        })
        .ok_or_else(|| format!("has {name} outside of its file"))?;
    let first_bytes = bytes.get(offset as usize..).unwrap_or_default();
    Ok((offset, is_stepped(first_bytes)))
}

/// Whether the kernel single-steps the first instruction of a function, judged by its bytes.
pub fn is_stepped(first_bytes: &[u8]) -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        // Other architectures have other rules; one kind of function represents all.
        return false;
    }
    !matches!(
        first_bytes,
        [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x41, 0x50..=0x57, ..] | [0x0f, 0x80..=0x8f, ..]
    )
}
