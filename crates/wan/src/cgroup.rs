//! A control group (v2) for the server. All its processes stay in it, even after forks, daemonising and re-parenting,
//! so that they can be counted and ended together. No controller is enabled, so scheduling and limits do not change.

use crate::error::{DuringStep, WanError};
use record::fault;
use record::machine::cgroup_mount;
use record::owner::Owner;
use rustix::fd::AsFd;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PREFIX: &str = "straingauge-";
/// Killed processes leave the group within milliseconds; uninterruptible ones may never leave it.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

/// Maximum number of searched directories of the hierarchy.
const MOST_FOLDERS: usize = 50_000;
/// Maximum number of groups inside the server's.
const MOST_INNER: usize = 1_000;

/// A server's control group. Its creator removes it with [`remove`](Self::remove).
#[derive(Debug, Clone)]
pub struct ServerCgroup {
    path: PathBuf,
}

impl ServerCgroup {
    /// Creates the group below this process's group, or else below the root of the hierarchy.
    pub fn create() -> Result<Self, WanError> {
        Self::with_token(&new_token()?)
    }

    pub(crate) fn with_token(token: &str) -> Result<Self, WanError> {
        let root = cgroup_mount(None).ok_or_else(|| WanError::Unsupported {
            what: "group the server's processes",
            remedy: "mount the cgroup2 file system",
            source: io::Error::from(io::ErrorKind::NotFound),
        })?;
        let own = own_path().map(|below| root.join(below));
        let mut last = None;
        for parent in own.into_iter().chain([root]) {
            let path = parent.join(owned_name(token));
            match fault::step().and_then(|()| fs::create_dir(&path)) {
                Ok(()) if path.join("cgroup.procs").exists() => return Ok(ServerCgroup { path }),
                Ok(()) => {
                    let _ = fs::remove_dir(&path);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::Unsupported))).during("make a control group")
    }

    pub(crate) fn all() -> Vec<(Self, Owner)> {
        let folders = cgroup_mount(None).map(|root| folders_of(root, MOST_FOLDERS)).unwrap_or_default();
        let owned = |path: PathBuf| {
            let owner = owner_in(path.file_name()?.to_str()?)?;
            Some((ServerCgroup { path }, owner))
        };
        // Inner groups come first, because only an empty directory can be removed.
        folders.into_iter().rev().filter_map(owned).collect()
    }

    /// Path of the control group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Prepares `command` to run in the group, or outside it if the kernel refuses.
    pub fn run_in(&self, command: &mut Command) -> Result<(), WanError> {
        let joining = self.joining_file()?;
        let join = move || {
            let _ = rustix::io::write(joining.as_fd(), b"0");
            Ok(())
        };
        // SAFETY: the closure makes one system call on a descriptor that was opened before the fork.
        unsafe { command.pre_exec(join) };
        Ok(())
    }

    /// A process that writes `0` to this file joins the group.
    pub(crate) fn joining_file(&self) -> Result<File, WanError> {
        OpenOptions::new().write(true).open(self.path.join("cgroup.procs")).during("open the server's control group")
    }

    /// The processes in the group and in its inner groups.
    pub fn processes(&self) -> Vec<u32> {
        let of = |folder: PathBuf| fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let numbers = |text: String| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>();
        self.folders().into_iter().flat_map(|folder| numbers(of(folder))).collect()
    }

    fn folders(&self) -> Vec<PathBuf> {
        folders_of(self.path.clone(), MOST_INNER)
    }

    /// Kills every process in the group, waits until they are gone, and removes the group with its inner groups.
    /// Returns the number of processes.
    pub fn remove(&self) -> Result<usize, WanError> {
        let before = self.processes().len();
        let deadline = Instant::now() + EMPTY_WITHIN;
        loop {
            self.kill();
            for inner in self.folders().iter().skip(1).rev() {
                let _ = fs::remove_dir(inner);
            }
            match fault::step().and_then(|()| fs::remove_dir(&self.path)) {
                Ok(()) => return Ok(before),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(before),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).during(format!("remove the control group {}", self.path.display()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn kill(&self) {
        let file = OpenOptions::new().write(true).open(self.path.join("cgroup.kill"));
        let _ = file.and_then(|mut file| file.write_all(b"1"));
    }
}

/// A folder and about as many of those inside it, the outer ones first.
fn folders_of(outermost: PathBuf, most: usize) -> Vec<PathBuf> {
    let (mut folders, mut looked_at) = (vec![outermost], 0);
    while looked_at < folders.len() && folders.len() < most {
        let entries = fs::read_dir(&folders[looked_at]).into_iter().flatten().flatten();
        let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(inner.map(|entry| entry.path()));
        looked_at += 1;
    }
    folders
}

/// A part of the names of a pair's links and of [`owned_name`] that no other pair has.
pub(crate) fn new_token() -> Result<String, WanError> {
    let mut bytes = [0u8; 5];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).during("read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The name `straingauge-TOKEN-OWNER`, by which a later run finds the remains of a killed one.
pub(crate) fn owned_name(token: &str) -> String {
    format!("{PREFIX}{token}-{}", Owner::of_this_process())
}

pub(crate) fn owner_in(name: &str) -> Option<Owner> {
    let (token, owner) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_token = token.len() == 10 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_token.then(|| Owner::parse(owner)).flatten()
}

/// Sends SIGKILL. A process that has already ended is not an error.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn own_path() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.is_empty() && !path.contains("..")).then(|| PathBuf::from(path))
}
