//! Runs straingauge as a user would, and reads its output.

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

/// A run that takes longer hangs. The longest run takes well under a minute, so this does not judge speed.
const HANGS_AFTER: Duration = Duration::from_secs(240);

/// Prints why the calling test does not run, where libtest does not capture it.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a-test").to_string();
    let _ = std::io::stderr().write_all(format!("SKIPPED {name}: {why}\n").as_bytes());
}

/// Ends the test with a printed reason unless the condition holds.
macro_rules! skip_unless {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            $crate::rig::skipped(&format!($($why)+));
            return;
        }
    };
}
pub(crate) use skip_unless;

/// Ends the test with a printed reason if a server's program is not installed.
macro_rules! needs_server {
    ($kind:expr) => {
        if let Some(why) = $kind.missing() {
            $crate::rig::skipped(&why);
            return;
        }
    };
}
pub(crate) use needs_server;

/// Whether the tests run as root; those that need root are skipped otherwise.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether slow tests run at full length (`make test-long`).
pub fn long_run() -> bool {
    std::env::var_os("STRAINGAUGE_LONG").is_some_and(|value| value == "1")
}

/// Path of a program, searched as a root shell would.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("crates/straingauge lies two deep")
}

/// An npm package that `.ci/packages` installs for the tests.
pub fn node_package(name: &str) -> Option<PathBuf> {
    Some(repository().join("target/node-tests/node_modules").join(name)).filter(|folder| folder.is_dir())
}

/// A folder that servers running as `nobody` can reach.
pub fn open_dir() -> TempDir {
    let everybody = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("straingauge-e2e-").permissions(everybody).tempdir().expect("a temporary folder")
}

impl Said {
    /// Standard output as one line, because lines break at different places.
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

/// `straingauge` after a shell line that sets limits or mounts and ends in `exec "$@"` or `"$@"`.
pub fn straingauge_in_shell(line: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh", env!("CARGO_BIN_EXE_straingauge")]).args(arguments);
    command
}

/// Runs to the end; fails the test if the command hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    Running::start(command).wait()
}

/// A running command. Its output goes to files, so no pipe fills up.
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
        // A separate process group, so that Ctrl-C for the tests does not reach the command, and vice versa.
        command.process_group(0);
        let child = command.spawn().unwrap_or_else(|why| panic!("cannot start {command:?}: {why}"));
        // The arguments of straingauge itself, if another program starts it; none for an unrelated program.
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        let words = all.skip_while(|word| *word != env!("CARGO_BIN_EXE_straingauge")).skip(1);
        let words = words.map(|word| word.to_string_lossy().into_owned()).collect();
        Running { child, kept, words }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends a signal only to the command.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes no pointers; the child is ours and was not waited for, so its process id is not reused.
        unsafe { libc::kill(self.pid(), signal) };
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until the condition holds; fails the test if the command ends before, or hangs.
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

    /// The standard output so far.
    pub fn printed(&self) -> String {
        self.read(None).out
    }

    /// The standard error output so far.
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

/// Finds a member by name anywhere in a document, so that tests do not depend on nesting.
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

/// The complete points of a run directory, as `find` left them.
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

/// Processes of the server with this state folder: it is in their arguments, or it is their working folder.
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
