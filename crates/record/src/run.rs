//! The run directory: the only interface between measuring and analysis.
//!
//! ```text
//! runs/<time>-<name>/
//!   run.json            scenario, machine facts, status, doubts, server facts
//!   points/NNN/         point.json, latency.hlog, series.csv, stacks.json
//! ```
//!
//! A point becomes visible completely or not at all: it is written into a temporary folder, flushed, and renamed. So
//! a crash, `kill -9` or a full disk loses at most the point in progress, and [`RunDir::open`] reads the complete
//! points.

use crate::doubt::{Doubt, DoubtKind};
use crate::fault;
use crate::histogram::{self, Latency};
use crate::machine::MachineFacts;
use crate::owner::{Owner, OwnerState};
use crate::point::Point;
use crate::profile::Stacks;
use crate::scenario::Scenario;
use crate::unfinished;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::point::SCHEMA;

/// Maximum size of a JSON file; straingauge writes no larger ones.
const MAX_JSON_BYTES: u64 = 16 << 20;
const MAX_BYTES: u64 = 64 << 20;
const MAX_POINTS: usize = 100_000;

/// Whether a run reached its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The run is in progress, or its process was killed.
    Running,
    /// The run reached its end.
    Complete,
    /// The run was ended by Ctrl-C, a termination signal or an error; the results until then are kept.
    Interrupted,
}

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunRecord {
    /// Version of the form of `run.json`.
    pub schema: u32,
    /// Whether the run is running, complete or interrupted.
    pub status: Status,
    /// Start of the run, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Process that writes the run; with `status: running` a reader can check whether it still runs.
    pub writer_pid: u32,
    /// Process that writes the run: its id, start time and machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<Owner>,
    /// Options of the run, with every default filled in.
    pub scenario: Scenario,
    /// Facts about the machine on which the run was made.
    pub machine: MachineFacts,
    /// Facts about the server by name (program, version, CPUs, namespace). Untrusted text.
    #[serde(default)]
    pub server_facts: std::collections::BTreeMap<String, String>,
    /// Doubts about the run as a whole.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
    /// Reason why the run ended early; absent if it ended normally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// Number of points when the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u32>,
}

impl RunRecord {
    /// Reads `run.json` of a run directory; refuses an unknown version.
    pub fn read(folder: &Path) -> Result<RunRecord, RunError> {
        /// Only this field can be relied on in a later version.
        #[derive(Deserialize)]
        struct SchemaOnly {
            schema: u32,
        }
        let path = folder.join(RECORD);
        match read_json::<SchemaOnly>(&path)?.schema {
            0 => Err(RunError::Malformed { path, why: "it has schema 0, which no straingauge has written".into() }),
            found if found > SCHEMA => Err(RunError::Newer { path, found }),
            _ => read_json(&path),
        }
    }

    /// The record of a run that begins now, in this process.
    pub fn begin(scenario: Scenario) -> RunRecord {
        RunRecord {
            schema: SCHEMA,
            status: Status::Running,
            started_unix_ms: crate::time::unix_ms(),
            writer_pid: std::process::id(),
            writer: Some(Owner::of_this_process()),
            scenario,
            machine: MachineFacts::read(),
            server_facts: Default::default(),
            doubts: Vec::new(),
            ended_by: None,
            points: None,
        }
    }
}

/// The reason why a run directory could not be written or read. The message names the path and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Creating or writing failed.
    #[error("cannot write {path}: {source}; {remedy}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// Reading failed.
    #[error("cannot read {path}: {source}; is it a straingauge run directory?")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file exists but has other contents than a run's.
    #[error("{path} is not readable as a run: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
    /// The directory already contains a run.
    #[error("{path} already holds a run; choose another place with --out, nothing was overwritten")]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The directory was written by a later version.
    #[error("{path} was written with schema {found}, this straingauge reads up to {SCHEMA}; use a newer straingauge")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
    },
}

fn write_error(path: &Path, source: io::Error) -> RunError {
    let remedy = match source.raw_os_error() {
        Some(libc::ENOSPC) | Some(libc::EDQUOT) => {
            "the disk is full: free some space or choose another place with --out"
        }
        Some(libc::EFBIG) => "files may be no larger here: raise ulimit -f",
        Some(libc::EACCES) | Some(libc::EPERM) | Some(libc::EROFS) => "choose a writable place with --out",
        Some(libc::ENOTDIR) | Some(libc::EEXIST) => "a file of that name exists: choose another folder with --out",
        _ => "choose another place with --out",
    };
    RunError::Write { path: path.into(), source, remedy }
}

fn occupied(path: &Path) -> RunError {
    RunError::Occupied { path: path.into() }
}

/// A run directory being written.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    record: RunRecord,
    next_index: u32,
}

/// The file that identifies a run directory.
pub(crate) const RECORD: &str = "run.json";
const STACKS: &str = "stacks.json";
/// File name of the end of the server's output in a run directory.
pub const SERVER_LOG: &str = "server.log";

/// The contents of a point's folder other than `point.json`.
#[derive(Debug, Default)]
pub struct PointFiles<'a> {
    /// Tagged histograms for `latency.hlog`: `response`, `service`, `lag`, `first-byte`, `connect`.
    pub latencies: Vec<(&'a str, &'a Latency)>,
    /// `series.csv` with its header line; empty = not written.
    pub series_csv: String,
    /// The stacks of the window, if it was profiled.
    pub stacks: Option<&'a Stacks>,
}

impl RunWriter {
    /// Creates `parent/<time>-<name>/` (or `exact`, which must not contain a run yet) and writes `run.json`.
    pub fn create(parent: &Path, exact: Option<&Path>, record: RunRecord) -> Result<Self, RunError> {
        let Some(path) = exact else { return Self::create_in(parent, record) };
        create_dir_all(path)?;
        if path.join(RECORD).exists() {
            return Err(occupied(path));
        }
        let writer = RunWriter { path: path.to_path_buf(), record, next_index: 0 };
        if let Err(error) = writer.begin() {
            // A leftover would look like a killed run and block the directory.
            let _ = fs::remove_file(path.join(RECORD));
            return Err(error);
        }
        Ok(writer)
    }

    fn create_in(parent: &Path, record: RunRecord) -> Result<Self, RunError> {
        create_dir_all(parent)?;
        let base = format!("{}-{}", crate::time::utc_stamp(record.started_unix_ms), file_name(&record.scenario.name));
        let temporary = parent.join(unfinished::name_of(&base));
        let mut writer = RunWriter { path: temporary.clone(), record, next_index: 0 };
        let begun = writer.begin().and_then(|()| {
            writer.path = place(&temporary, parent, &base)?;
            sync_dir(parent)
        });
        if begun.is_err() {
            let _ = fs::remove_dir_all(&writer.path);
        }
        begun.map(|()| writer)
    }

    fn begin(&self) -> Result<(), RunError> {
        create_dir_all(&self.path.join("points"))?;
        self.save()
    }

    /// Checks whether [`create`](Self::create) could succeed, before a server is started and load is sent.
    pub fn check(parent: &Path, exact: Option<&Path>) -> Result<(), RunError> {
        let folder = exact.unwrap_or(parent);
        if folder.join(RECORD).exists() {
            return Err(occupied(folder));
        }
        let is_there = |folder: &&Path| folder.as_os_str().is_empty() || fs::symlink_metadata(folder).is_ok();
        let there = folder.ancestors().find(is_there).unwrap_or(folder);
        let probe = there.join(unfinished::name_of("writable"));
        let written = write_new(&probe, b"straingauge checks whether it can write here\n");
        let removed = fs::remove_file(&probe).map_err(|error| write_error(&probe, error));
        written.and(removed).map_err(|error| match error {
            RunError::Write { source, .. } => write_error(folder, source),
            other => other,
        })
    }

    /// The run's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record; change it and [`save`](Self::save).
    pub fn record_mut(&mut self) -> &mut RunRecord {
        &mut self.record
    }

    /// The record.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Replaces `run.json` atomically.
    pub fn save(&self) -> Result<(), RunError> {
        let text = serde_json::to_vec_pretty(&self.record).expect("a run record has only string keys");
        write_whole(&self.path.join(RECORD), &text)
    }

    /// Writes a point: all files into a temporary folder, flushed, then renamed. Sets the point's index; returns it.
    pub fn add_point(&mut self, point: &mut Point, files: &PointFiles<'_>) -> Result<u32, RunError> {
        point.index = self.next_index;
        point.schema = SCHEMA;
        let points = self.path.join("points");
        let name = format!("{:03}", self.next_index);
        let temporary = points.join(unfinished::name_of(&name));
        let _ = fs::remove_dir_all(&temporary);
        let written = self.fill(&temporary, point, files).and_then(|()| {
            let folder = points.join(&name);
            rename(&temporary, &folder)?;
            // From here on the point exists, whatever happens later.
            self.next_index += 1;
            sync_dir(&points)
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&temporary);
        }
        written.map(|()| point.index)
    }

    fn fill(&self, folder: &Path, point: &Point, files: &PointFiles<'_>) -> Result<(), RunError> {
        fault::step().and_then(|()| fs::create_dir(folder)).map_err(|error| write_error(folder, error))?;
        if !files.latencies.is_empty() {
            let path = folder.join("latency.hlog");
            let log =
                histogram::write_log(point.started_unix_ms, Duration::from_nanos(point.duration_ns), &files.latencies)
                    .map_err(|error| RunError::Malformed { path: path.clone(), why: error.to_string() })?;
            write_new(&path, &log)?;
        }
        if !files.series_csv.is_empty() {
            write_new(&folder.join("series.csv"), files.series_csv.as_bytes())?;
        }
        if let Some(stacks) = files.stacks {
            let json = serde_json::to_vec(stacks).expect("stacks have only string keys");
            write_new(&folder.join(STACKS), &json)?;
        }
        let json = serde_json::to_vec_pretty(point).expect("a point has only string keys");
        write_new(&folder.join("point.json"), &json)?;
        sync_dir(folder)
    }

    /// Marks the run as ended and writes `run.json`.
    pub fn finish(&mut self, status: Status, ended_by: Option<String>) -> Result<(), RunError> {
        self.record.status = status;
        self.record.ended_by = ended_by;
        self.record.points = Some(self.next_index);
        self.save()
    }
}

/// Renames a run to `base`, or `base-2`, `base-3`, ..., because two runs may begin in the same second.
fn place(temporary: &Path, parent: &Path, base: &str) -> Result<PathBuf, RunError> {
    for attempt in 1..1000 {
        let path = parent.join(if attempt == 1 { base.to_string() } else { format!("{base}-{attempt}") });
        // The kernel replaces only empty folders.
        match fault::step().and_then(|()| fs::rename(temporary, &path)) {
            Ok(()) => return Ok(path),
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => continue,
            Err(error) if error.kind() == ErrorKind::NotADirectory => continue,
            Err(error) => return Err(write_error(&path, error)),
        }
    }
    Err(write_error(&parent.join(base), io::Error::from(ErrorKind::AlreadyExists)))
}

/// Makes a text safe as a component of a path: letters, digits, `.`, `-`, `_`; never empty, hidden or longer than 60.
pub fn file_name(text: &str) -> String {
    let mut name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c } else { '-' })
        .take(60)
        .collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name = name.trim_matches(|c| c == '-' || c == '.');
    if name.is_empty() { "run".into() } else { name.into() }
}

fn create_dir_all(path: &Path) -> Result<(), RunError> {
    fault::step().and_then(|()| fs::create_dir_all(path)).map_err(|error| write_error(path, error))
}

fn rename(from: &Path, to: &Path) -> Result<(), RunError> {
    fault::step().and_then(|()| fs::rename(from, to)).map_err(|error| write_error(to, error))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let write = || {
        fault::step()?;
        let mut file = File::create(path)?;
        fault::step()?;
        file.write_all(bytes)?;
        fault::step()?;
        file.sync_all()
    };
    write().map_err(|error| write_error(path, error))
}

/// Replaces a file atomically: a reader sees either the old or the new content. A path that is not a file, e.g.
/// `/dev/null` or a pipe, is written to and stays unchanged ([`is_replaced`]).
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    if !is_replaced(path) {
        let write = || fs::OpenOptions::new().append(true).open(path)?.write_all(bytes);
        return write().map_err(|error| write_error(path, error));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(unfinished::name_of(&name));
    let written = write_new(&temporary, bytes)
        .and_then(|()| rename(&temporary, path))
        .and_then(|()| path.parent().map_or(Ok(()), sync_dir));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Whether [`write_whole`] replaces the file: not devices, pipes, or entries in the folders of devices and
/// descriptors. /dev/stderr may be a link to a regular file, and root could replace the link.
pub fn is_replaced(path: &Path) -> bool {
    let is_other = fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir());
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok()).unwrap_or_default();
    let is_memory = folder.starts_with("/dev/shm");
    !is_other && !folder.starts_with("/proc") && (is_memory || !folder.starts_with("/dev"))
}

/// Flushes a folder to the disk. Some file systems (vboxsf, 9p, old CIFS) cannot do that.
pub fn sync_dir(path: &Path) -> Result<(), RunError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let sync = || fault::step().and_then(|()| File::open(path)?.sync_all());
    match sync() {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => Ok(()),
        synced => synced.map_err(|error| write_error(path, error)),
    }
}

/// A run directory, read.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDir {
    /// Its path.
    pub path: PathBuf,
    /// `run.json`.
    pub record: RunRecord,
    /// The points that could be read, by index.
    pub points: Vec<Point>,
    /// Unreadable parts, as doubts; the rest of the run is still usable.
    pub reading_doubts: Vec<Doubt>,
}

impl RunDir {
    /// Reads a run directory. Only an unreadable `run.json` is an error; a point that cannot be read becomes a doubt.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let record = RunRecord::read(path)?;
        let mut run = RunDir { path: path.into(), record, points: Vec::new(), reading_doubts: Vec::new() };
        let folders = point_folders(path)?;
        let highest = folders.last().map_or(0, |last| last + 1);
        let all = run.record.points.unwrap_or(0).max(highest).min(MAX_POINTS as u32);
        let missing: Vec<u32> = (0..all).filter(|index| folders.binary_search(index).is_err()).collect();
        if let Some(first) = missing.first() {
            let folder = run.point_path(*first);
            run.doubt_reading(&folder, "the folder is missing", missing.len(), all);
        }
        let mut unreadable = Vec::new();
        for index in folders {
            let file = run.point_path(index).join("point.json");
            match read_json::<Point>(&file) {
                Ok(point) if (1..=SCHEMA).contains(&point.schema) && point.index == index => run.points.push(point),
                Ok(point) => {
                    unreadable.push((file, format!("it has schema {} and index {}", point.schema, point.index)));
                }
                Err(RunError::Malformed { why, .. }) => unreadable.push((file, why)),
                Err(error) => unreadable.push((file, error.to_string())),
            }
        }
        if let Some((file, why)) = unreadable.first() {
            run.doubt_reading(file, why, unreadable.len(), all);
        }
        Ok(run)
    }

    /// A doubt about `count` points that were left out for a reason like that of the first.
    fn doubt_reading(&mut self, first: &Path, why: &str, count: usize, all: u32) {
        let were = if count == 1 { "was" } else { "were" };
        let what = format!("{count} of {all} points {were} left out; {}: {why}", first.display());
        self.reading_doubts.push(DoubtKind::Unreadable.warning(what, "measure again"));
    }

    /// The end of the server's output, if it was kept.
    pub fn server_log(&self) -> Option<Vec<u8>> {
        read_bounded(&self.path.join(SERVER_LOG), MAX_BYTES).ok()
    }

    /// The folder of a point.
    pub fn point_path(&self, index: u32) -> PathBuf {
        self.path.join("points").join(format!("{index:03}"))
    }

    /// A point's latency histograms by tag; empty if it has none.
    pub fn latencies(&self, index: u32) -> Result<Vec<(String, Latency)>, RunError> {
        let path = self.point_path(index).join("latency.hlog");
        let Some(bytes) = read_optional(&path)? else { return Ok(Vec::new()) };
        histogram::read_log(&bytes).map_err(|error| RunError::Malformed { path, why: error.to_string() })
    }

    /// A point's `series.csv`; empty if it has none.
    pub fn series_csv(&self, index: u32) -> Result<String, RunError> {
        let path = self.point_path(index).join("series.csv");
        let bytes = read_optional(&path)?.unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| RunError::Malformed { path, why: "it is not text".into() })
    }

    /// A point's stacks, if it has any.
    pub fn stacks(&self, index: u32) -> Result<Option<Stacks>, RunError> {
        let path = self.point_path(index).join(STACKS);
        let Some(bytes) = read_optional(&path)? else { return Ok(None) };
        let read: Result<Stacks, String> = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        match read.and_then(|stacks| stacks.fault().map_or(Ok(stacks), |why| Err(why.into()))) {
            Ok(stacks) => Ok(Some(stacks)),
            Err(why) => Err(RunError::Malformed { path, why }),
        }
    }

    /// Whether the process that writes the run still runs.
    pub fn writer_life(&self) -> OwnerState {
        self.record.writer.as_ref().map_or(OwnerState::Ended, Owner::life)
    }

    /// Whether the run's writer was killed: the record has status "running", but the process has ended.
    pub fn is_abandoned(&self) -> bool {
        self.record.status == Status::Running && self.writer_life() == OwnerState::Ended
    }
}

/// The indices of the points' folders, ascending. Names that are not numbers (a partial point) are skipped.
fn point_folders(path: &Path) -> Result<Vec<u32>, RunError> {
    let points = path.join("points");
    let entries = match fs::read_dir(&points) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(RunError::Read { path: points, source }),
    };
    let mut indices: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let index: u32 = name.to_str()?.parse().ok()?;
            (format!("{index:03}") == name.to_str()?).then_some(index)
        })
        .take(MAX_POINTS)
        .collect();
    indices.sort_unstable();
    Ok(indices)
}

fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, RunError> {
    let read = || {
        // Opening a pipe would block until a writer opens it.
        let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|source| RunError::Read { path: path.into(), source })?;
    if bytes.len() as u64 > limit {
        return Err(RunError::Malformed { path: path.into(), why: format!("it has more than {limit} bytes") });
    }
    Ok(bytes)
}

fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, RunError> {
    match read_bounded(path, MAX_BYTES) {
        Err(RunError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, RunError> {
    let bytes = read_bounded(path, MAX_JSON_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|error| RunError::Malformed { path: path.into(), why: error.to_string() })
}
