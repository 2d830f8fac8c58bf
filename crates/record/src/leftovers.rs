//! Leftovers of a killed run. All names contain the word of their [`Owner`], so that those of a running run are never
//! touched.

use crate::owner::{Owner, OwnerState, stat_fields};
use crate::text::plain;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::cell::OnceCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Environment variable of every process that straingauge starts, which child processes inherit: `OWNER.ROLE.NUMBER`.
pub const MARK: &str = "STRAINGAUGE_MARK";

/// A kind of thing that may outlive its process.
#[derive(Clone, Copy)]
pub struct LeftoverKind {
    /// Name of the kind, as printed.
    pub name: &'static str,
    /// Form of the thing's name, for the documentation: `straingauge-TOKEN-OWNER below the mount of cgroup2`.
    pub named: &'static str,
    /// Finds the things whose owner has ended.
    pub find: fn(&SearchScope) -> FoundLeftovers,
    /// Removes one; it is not an error if it is gone. The error is a sentence.
    pub remove: fn(&Leftover) -> Result<(), String>,
}

/// A leftover of a killed run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct Leftover {
    /// Kind of the leftover ([`LeftoverKind::name`]).
    pub kind: &'static str,
    /// Path of the file or folder, or id of the process.
    pub name: String,
    /// Details, e.g. the command line; untrusted text made safe.
    pub detail: String,
    /// Ended process that made the leftover.
    pub owner: Owner,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundLeftovers {
    /// Leftovers that were found.
    pub left: Vec<Leftover>,
    /// Things that could not be checked, one sentence each with the reason.
    pub not_seen: Vec<String>,
}

impl FoundLeftovers {
    /// Adds the result of another search; a thing that neither could check is kept once.
    pub fn add(&mut self, other: FoundLeftovers) {
        self.left.extend(other.left);
        for sentence in other.not_seen {
            if !self.not_seen.contains(&sentence) {
                self.not_seen.push(sentence);
            }
        }
    }
}

/// The places to search. Processes are read once for all kinds.
#[derive(Debug, Default)]
pub struct SearchScope {
    /// Folders of runs, to be searched for unfinished files.
    pub folders: Vec<PathBuf>,
    processes: OnceCell<(Vec<MarkedProcess>, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct MarkedProcess {
    pid: u32,
    owner: Owner,
    role: String,
}

impl SearchScope {
    /// A scene with these folders of runs.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        SearchScope { folders, processes: OnceCell::new() }
    }

    /// The living processes that were started in this role by a process that has ended.
    pub fn processes(&self, kind: &'static str, role: &str) -> FoundLeftovers {
        let (marked, hidden) = self.processes.get_or_init(marked_processes);
        let mut found = FoundLeftovers::default();
        if *hidden > 0 {
            let who = if *hidden == 1 { "1 process".to_string() } else { format!("{hidden} processes") };
            found.not_seen.push(format!("{who} whose environment this user may not read"));
        }
        for process in marked.iter().filter(|process| process.role == role && process.owner.life() == OwnerState::Ended)
        {
            found.left.push(Leftover {
                kind,
                name: process.pid.to_string(),
                detail: command_line(process.pid),
                owner: process.owner,
            });
        }
        found
    }
}

/// The value of [`MARK`] for a process that this one starts. `number` distinguishes those of one role.
pub fn mark(role: &str, number: u32) -> String {
    format!("{}.{role}.{number}", Owner::of_this_process())
}

/// The owner and the role in a [`mark`].
pub fn parse_mark(mark: &str) -> Option<(Owner, &str)> {
    let (owner, rest) = mark.split_once('.')?;
    let (role, number) = rest.split_once('.')?;
    number.parse::<u32>().ok()?;
    Some((Owner::parse(owner)?, role))
}

/// The value of [`MARK`] in a process's environment.
pub fn mark_of(pid: u32) -> Option<String> {
    marked_in(&fs::read(format!("/proc/{pid}/environ")).ok()?)
}

fn marked_in(environment: &[u8]) -> Option<String> {
    let value = environment.split(|byte| *byte == 0).find_map(|one| {
        let rest = one.strip_prefix(MARK.as_bytes())?;
        rest.strip_prefix(b"=")
    })?;
    String::from_utf8(value.to_vec()).ok()
}

/// The marked processes, and the number of unreadable ones. This process and its ancestors are excluded, because a
/// shell may have been started with a mark.
fn marked_processes() -> (Vec<MarkedProcess>, usize) {
    let spared = ancestry(std::process::id());
    let Ok(entries) = fs::read_dir("/proc") else { return (Vec::new(), 0) };
    let (mut found, mut hidden) = (Vec::new(), 0);
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) => {
                let Some(mark) = marked_in(&environment) else { continue };
                if let Some((owner, role)) = parse_mark(&mark).filter(|_| !spared.contains(&pid)) {
                    found.push(MarkedProcess { pid, owner, role: role.into() });
                }
            }
            // Kernel threads have no command line.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                hidden += usize::from(fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()));
            }
            Err(_) => {}
        }
    }
    (found, hidden)
}

/// Whether a process is a descendant of this one.
pub fn is_descendant(pid: u32) -> bool {
    ancestry(pid).contains(&std::process::id())
}

fn ancestry(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(parent) = line.last().and_then(|pid| parent_of(*pid)).filter(|parent| *parent > 0) {
        if line.contains(&parent) {
            break;
        }
        line.push(parent);
    }
    line
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&bytes).replace('\0', " ");
    plain(words.trim(), 80)
}

/// Ends a marked process that [`SearchScope::processes`] found, if the id is still that of the process.
pub fn end_process(left: &Leftover) -> Result<(), String> {
    let number = left.name.parse::<i32>().ok().filter(|pid| *pid > 0);
    let Some(process) = number.and_then(Pid::from_raw) else { return Err(format!("'{}' is not a process", left.name)) };
    let pid = process.as_raw_nonzero().get() as u32;
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        // The mark is read before every signal, because the id may belong to another process by now.
        let is_still = crate::owner::start_ticks(pid).is_some()
            && mark_of(pid).and_then(|mark| parse_mark(&mark).map(|(owner, _)| owner)) == Some(left.owner);
        if !is_still {
            return Ok(());
        }
        match kill_process(process, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(format!("process {pid} cannot be ended: {}", std::io::Error::from(error))),
        }
        if Instant::now() >= deadline {
            return Err(format!("process {pid} does not end"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The reason why files in a folder must not be removed, if any. Links are not followed.
pub fn refusal(folder: &Path) -> Option<String> {
    let facts = match fs::symlink_metadata(folder) {
        Ok(facts) => facts,
        Err(error) => return Some(error.to_string()),
    };
    let own = rustix::process::geteuid().as_raw();
    let why = if !facts.is_dir() {
        "it is not a folder"
    } else if facts.uid() != own {
        "it belongs to another user"
    } else if facts.mode() & 0o022 != 0 {
        "other users can write to it"
    } else {
        return None;
    };
    Some(why.into())
}
