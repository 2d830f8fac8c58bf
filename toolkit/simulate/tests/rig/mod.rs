//! Runs the program like a user and reads its output.

#[path = "../../../../testbed/said.rs"]
mod said;

pub use said::Said;
use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum processor time of a command and its guests. The longest need a quarter of it.
const MOST_CPU: Duration = Duration::from_secs(240);
/// A command that uses no processor time for this long hangs.
const IDLE: Duration = Duration::from_secs(60);

/// Prints why the calling test does not run, where libtest does not capture it.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a-test").to_string();
    let _ = std::io::stderr().write_all(format!("SKIPPED {name}: {why}\n").as_bytes());
}

/// Ends the test with a printed reason.
#[macro_export]
macro_rules! skip_if {
    ($why:expr) => {
        if let Some(why) = $why {
            $crate::rig::skipped(&why);
            return;
        }
    };
}

/// Why no guest can run here.
pub fn missing() -> Option<String> {
    let qemu = simulate::machine::Qemu::find(None).err().map(|why| why.to_string());
    let kernel = || simulate::guest::Kernel::find(None).err().map(|why| why.to_string());
    let tools = || ["ip", "tc"].iter().find_map(|name| not_installed(name));
    qemu.or_else(kernel).or_else(tools)
}

/// Why a program cannot be used.
pub fn not_installed(name: &str) -> Option<String> {
    record::shell::find_program(name).is_none().then(|| format!("{name} is not installed"))
}

/// Path of a program.
pub fn program(name: &str) -> PathBuf {
    record::shell::find_program(name).unwrap_or_else(|| panic!("{name} was looked for before"))
}

/// A directory that servers which have become `nobody` can read.
pub fn open_dir() -> TempDir {
    let everybody = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix("straingauge-simulate-").permissions(everybody).tempdir().expect("a folder")
}

/// The program with these arguments.
pub fn simulate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straingauge-simulate"));
    command.args(arguments);
    command
}

/// Runs to the end, or fails the test when it hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    Running::start(command).wait()
}

/// A run in progress. Its output is kept in files, so that no pipe fills up.
pub struct Running {
    child: Child,
    kept: TempDir,
    used: Duration,
    progressed: Instant,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let kept = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| std::fs::File::create(kept.path().join(name)).expect("a file in a temporary folder");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).process_group(0);
        let child = command.spawn().unwrap_or_else(|why| panic!("cannot start {command:?}: {why}"));
        Running { child, kept, used: Duration::ZERO, progressed: Instant::now() }
    }

    /// Sends a signal only to the command.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes no pointers. The child is not yet waited for, so its number is not reused.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until the condition holds. Fails the test if the command ends before, or hangs.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, condition: impl Fn() -> bool) {
        while !condition() {
            if self.child.try_wait().expect("our own child").is_some() {
                let said = self.said(None);
                panic!("ended before {what}:\n{}\n{}", said.out, said.err);
            }
            self.look();
        }
    }

    #[track_caller]
    pub fn wait(mut self) -> Said {
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return self.said(status.code());
            }
            self.look();
        }
    }

    /// Waits a moment. Fails the test if the command hangs.
    #[track_caller]
    fn look(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
        let used = cpu_of(self.child.id());
        if used > self.used {
            (self.used, self.progressed) = (used, Instant::now());
        }
        if self.used > MOST_CPU || self.progressed.elapsed() > IDLE {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let said = self.said(None);
            panic!("hangs after {:?} of processor time; until then it said:\n{}\n{}", self.used, said.out, said.err);
        }
    }

    fn said(&self, code: Option<i32>) -> Said {
        let read = |name: &str| String::from_utf8_lossy(&std::fs::read(self.kept.path().join(name)).unwrap()).into();
        Said { code, out: read("out"), err: read("err") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of a process, of its children, and of those of them that have ended.
fn cpu_of(pid: u32) -> Duration {
    let mut parents: HashMap<u32, (u32, u64)> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        parents.insert(number, (field(1) as u32, (11..15).map(field).sum()));
    }
    let is_below = |mut number: u32| loop {
        match parents.get(&number) {
            _ if number == pid => return true,
            Some((parent, _)) if *parent > 1 => number = *parent,
            _ => return false,
        }
    };
    let ticks: u64 = parents.iter().filter(|(number, _)| is_below(**number)).map(|(_, (_, ticks))| ticks).sum();
    Duration::from_millis(10 * ticks)
}

/// Guests whose command line contains this.
pub fn guests(mark: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let lines = entries.flatten().filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains("qemu") && line.contains(mark)).count()
}

/// A file that is a program.
pub fn put_program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its rights");
}
