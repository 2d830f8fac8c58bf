//! Runs straingauge as a person would and reads what it says.

#[path = "../../../testbed/free_port.rs"]
mod free_port;
#[path = "../../../testbed/said.rs"]
mod said;

use crate::schemas::keep_outputs;
pub use free_port::free_port;
pub use said::Said;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A run that takes longer than this hangs. Nothing is judged by speed: the longest one here takes well under a minute.
const HANGS_AFTER: Duration = Duration::from_secs(240);

/// Writes why the calling test does not run, where libtest does not capture it.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a-test").to_string();
    let _ = std::io::stderr().write_all(format!("SKIPPED {name}: {why}\n").as_bytes());
}

/// Ends the test with a printed reason.
macro_rules! skip_unless {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            $crate::rig::skipped(&format!($($why)+));
            return;
        }
    };
}
pub(crate) use skip_unless;

/// Ends the test with a printed reason where a server's program is not installed.
macro_rules! needs_server {
    ($kind:expr) => {
        if let Some(why) = $kind.missing() {
            $crate::rig::skipped(&why);
            return;
        }
    };
}
pub(crate) use needs_server;

/// Whether the tests run as root: what needs it is skipped otherwise.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether what is long by nature runs at its full length (`make test-long`).
pub fn long_run() -> bool {
    std::env::var_os("STRAINGAUGE_LONG").is_some_and(|value| value == "1")
}

/// Where a program lies, searched as a root shell would.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("crates/straingauge lies two deep")
}

/// A package of npm that `.ci/packages` installs for the tests.
pub fn node_package(name: &str) -> Option<PathBuf> {
    Some(repository().join("target/node-tests/node_modules").join(name)).filter(|folder| folder.is_dir())
}

/// A folder that servers which have become `nobody` can reach.
pub fn open_dir() -> TempDir {
    let everybody = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("straingauge-e2e-").permissions(everybody).tempdir().expect("a temporary folder")
}

impl Said {
    /// Standard output as one line: a sentence breaks where the figures before it end.
    pub fn flat(&self) -> String {
        self.out.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The command under test.
pub fn straingauge<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straingauge"));
    command.args(arguments);
    command
}

/// `straingauge` after a shell line that prepares limits or mounts and ends in `exec "$@"` or `"$@"`.
pub fn straingauge_in_shell(line: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh", env!("CARGO_BIN_EXE_straingauge")]).args(arguments);
    command
}

/// Runs to the end, or fails the test when it hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    Running::start(command).wait()
}

/// A run that is going on, its output kept in files, so that no pipe fills up.
pub struct Running {
    child: Child,
    kept: TempDir,
    words: Vec<String>,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let kept = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| std::fs::File::create(kept.path().join(name)).expect("a file in a temporary folder");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        // A separate session: a Ctrl-C for the tests is not one for the command, and the other way round.
        command.process_group(0);
        let child = command.spawn().unwrap_or_else(|why| panic!("cannot start {command:?}: {why}"));
        // Those of straingauge itself, if another program starts it; none of a program that has nothing to do with it.
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        let words = all.skip_while(|word| *word != env!("CARGO_BIN_EXE_straingauge")).skip(1);
        let words = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Running { child, kept, words }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a signal to the command alone.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes no pointers; the child is ours and not yet waited for, so its number is not another's.
        unsafe { libc::kill(self.pid(), signal) };
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until the condition holds; fails the test when the command ends before, or hangs.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            if self.has_ended() {
                let said = self.read(None);
                panic!("ended before {what}:\n{}\n{}", said.out, said.err);
            }
            assert!(started.elapsed() < HANGS_AFTER, "hangs before {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it has printed so far.
    pub fn printed(&self) -> String {
        self.read(None).out
    }

    /// What it has said on standard error so far.
    pub fn complained(&self) -> String {
        self.read(None).err
    }

    #[track_caller]
    pub fn wait(mut self) -> Said {
        let started = Instant::now();
        loop {
            match self.child.try_wait().expect("waiting for our own child") {
                Some(status) => {
                    let said = self.read(status.code());
                    let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
                    keep_outputs(&words, &said);
                    return said;
                }
                None if started.elapsed() > HANGS_AFTER => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    let said = self.read(None);
                    panic!("hangs; until then it said:\n{}\n{}", said.out, said.err);
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn read(&self, code: Option<i32>) -> Said {
        let text = |name: &str| {
            let bytes = std::fs::read(self.kept.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Said { code, out: text("out"), err: text("err") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Finds a member by name anywhere in a document, so that tests depend on words, not on nesting.
#[track_caller]
pub fn member<'a>(value: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    fn search<'a>(value: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
        match value {
            serde_json::Value::Object(members) => {
                members.get(name).or_else(|| members.values().find_map(|inner| search(inner, name)))
            }
            serde_json::Value::Array(items) => items.iter().find_map(|inner| search(inner, name)),
            _ => None,
        }
    }
    search(value, name).unwrap_or_else(|| panic!("no '{name}' in {value:#}"))
}

/// The whole points of a run directory, as `find` left them.
pub fn points(run: &Path) -> Vec<serde_json::Value> {
    let Ok(entries) = std::fs::read_dir(run.join("points")) else { return Vec::new() };
    let is_whole = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    let mut folders: Vec<PathBuf> = entries.flatten().filter(is_whole).map(|entry| entry.path()).collect();
    folders.sort();
    let read = |folder: &PathBuf| serde_json::from_slice(&std::fs::read(folder.join("point.json")).ok()?).ok();
    folders.iter().filter_map(read).collect()
}

/// `run.json` of a run directory.
#[track_caller]
pub fn run_record(run: &Path) -> serde_json::Value {
    let bytes = std::fs::read(run.join("run.json")).expect("run.json is there");
    serde_json::from_slice(&bytes).expect("run.json is JSON")
}

/// Processes that belong to a server with this state folder: it stands in their command line, or they work in it.
pub fn processes_of(state: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let text = state.to_str().expect("temporary paths are text");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let works_in = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text) || works_in == state
        })
        .collect()
}
