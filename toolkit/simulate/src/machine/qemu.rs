//! Finds and starts QEMU.

use super::memory_file::MemoryFile;
use super::qmp::Qmp;
use crate::SimulateError;
use record::PlainText;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The oldest version with the required plugin interface, and the first version that is too new.
const VERSIONS: std::ops::Range<(u32, u32)> = (6, 0)..(11, 0);
/// The plugin interface's number, by the first version that requires it.
const INTERFACES: [((u32, u32), Interface); 3] =
    [((9, 1), Interface(3)), ((9, 0), Interface(2)), ((6, 0), Interface(1))];
const NAME: &str = "qemu-system-x86_64";
/// Number of characters of QEMU's or the guest kernel's output in an error.
const LAST_WORDS: usize = 300;

/// A version of QEMU's plugin interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interface(pub i32);

/// A usable emulator.
#[derive(Debug, Clone)]
pub struct Qemu {
    program: PathBuf,
    /// The interface that its plugins must declare.
    pub(super) interface: Interface,
    /// Its version as it prints it.
    pub version: String,
}

/// The limits of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The guest's memory.
    pub memory_mib: u64,
    /// Time limit on this machine for a boot or a point.
    pub timeout: Duration,
}

impl Qemu {
    /// The emulator at `named`, the one that `STRAINGAUGE_QEMU` names, or the one in PATH.
    pub fn find(named: Option<&Path>) -> Result<Qemu, SimulateError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(SimulateError::OtherProcessor);
        }
        let from_environment = std::env::var_os("STRAINGAUGE_QEMU").map(PathBuf::from);
        let program = match named.map(Path::to_path_buf).or(from_environment) {
            Some(path) => path,
            None => record::shell::find_program(NAME).ok_or(SimulateError::NoQemu)?,
        };
        let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output().map_err(|why| {
            SimulateError::System { what: format!("{} does not start", program.display()), source: why }
        })?;
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = words.lines().next().unwrap_or_default().to_string();
        match version_of(&version).map(|number| (number, interface_of(number))) {
            Some((_, Some(interface))) => Ok(Qemu { program, interface, version }),
            Some(((major, minor), None)) => Err(SimulateError::OtherQemu { version: format!("{major}.{minor}") }),
            None => Err(SimulateError::File { path: program, why: "does not print a QEMU version".into() }),
        }
    }
}

/// "QEMU emulator version 7.2.22 (Debian ...)".
fn version_of(words: &str) -> Option<(u32, u32)> {
    let number = words.strip_prefix("QEMU emulator version ")?;
    let mut parts = number.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn interface_of(version: (u32, u32)) -> Option<Interface> {
    let known = INTERFACES.iter().filter(|_| VERSIONS.contains(&version));
    known.filter(|(from, _)| *from <= version).map(|(_, interface)| *interface).next()
}

/// A running machine.
pub(super) struct Running {
    child: Child,
    pub control: Option<Qmp>,
    /// The output of the guest's first process.
    pub words: MemoryFile,
    console: MemoryFile,
    complaints: MemoryFile,
    end: Instant,
    timeout: Duration,
}

/// A machine that is the same for all QEMU versions. Without fast string instructions the kernel copies in words (it
/// takes FSRM, which QEMU 10 has, as a sign of ERMS), and LA57 would move its map of memory. The kernel also chooses
/// how to copy by the CPU model, so all use that of QEMU 7.2.
const MACHINE: [&str; 14] = [
    "-seed",
    "1",
    "-cpu",
    "max,-erms,-fsrm,-la57,family=15,model=107,stepping=1",
    "-machine",
    "pc",
    "-display",
    "none",
    "-nodefaults",
    "-no-reboot",
    "-device",
    "pvpanic",
    "-action",
    "panic=pause",
];
/// A slab cache for each kind of object, so that an address determines the kind. This machine's timer works.
const KERNEL_OPTIONS: &str =
    "console=ttyS0 quiet nokaslr slab_nomerge no_timer_check panic=-1 mitigations=off rdinit=/init";

/// The parts that differ between machines.
pub(super) struct Start<'s> {
    pub kernel: &'s Path,
    pub image: &'s MemoryFile,
    pub seed: u64,
    pub limits: Limits,
    pub job: &'s MemoryFile,
    /// The saved state in which the machine begins instead of booting.
    pub state: Option<&'s MemoryFile>,
    /// The plugin with its order and the file for its answer.
    pub plugin: Option<[&'s MemoryFile; 3]>,
    /// A socket on which a debugger speaks gdb's remote protocol.
    pub debugger: Option<BorrowedFd<'s>>,
}

impl Qemu {
    /// Inputs of a boot besides the kernel, the image, the seed and the memory.
    pub(super) fn identity(&self) -> String {
        format!("{} {MACHINE:?} {KERNEL_OPTIONS}", self.version)
    }

    pub(super) fn start(&self, start: &Start<'_>) -> Result<Running, SimulateError> {
        let (ours, theirs) = UnixStream::pair().map_err(SimulateError::system("cannot make a socket"))?;
        let theirs = OwnedFd::from(theirs);
        let control_number = theirs.as_raw_fd();
        let (words, console) = (MemoryFile::new("guest-words")?, MemoryFile::new("guest-console")?);
        let complaints = MemoryFile::new("qemu-complaints")?;
        let mut passed =
            vec![start.image.number(), start.job.number(), words.number(), console.number(), control_number];

        let mut command = Command::new(&self.program);
        // One thread for all virtual CPUs, a clock that counts instructions and skips idle time, a fixed date and a
        // fixed seed make two runs equal, independent of this machine's load.
        command.args(["-accel", "tcg,thread=single"]);
        // A resumed machine is recorded, and the record is discarded. Only then does the thread that advances the
        // clock over idle time wait for the CPU's thread. Otherwise it may read the count of instructions when the
        // CPU has halted and its thread has not yet updated the count, and the clock jumps too far
        // (`icount_start_warp_timer` against `icount_process_data`). A recorded machine cannot be saved or stepped
        // through.
        let is_recorded = start.state.is_some() && start.debugger.is_none();
        let recorded = if is_recorded { ",rr=record,rrfile=/dev/null" } else { "" };
        command.arg("-icount").arg(format!("shift=0,sleep=off{recorded}"));
        // A machine whose only CPU a debugger stopped counts as idle, so its clock jumps to the next timer. The
        // real-time clock has one a day ahead, so it must use another clock.
        let clock = if start.debugger.is_some() { "rt" } else { "vm" };
        command.args(["-rtc", &format!("base=2020-01-01,clock={clock}")]);
        command.args(["-m", &start.limits.memory_mib.to_string()]);
        command.args(MACHINE);
        command.arg("-kernel").arg(start.kernel).arg("-initrd").arg(start.image.path());
        command.arg("-append").arg(format!("{KERNEL_OPTIONS} straingauge.seed={}", start.seed));
        command.arg("-chardev").arg(format!("file,id=words,path={}", words.path()));
        command.args(["-device", "isa-debugcon,iobase=0xe9,chardev=words"]);
        command.arg("-serial").arg(format!("file:{}", console.path()));
        command.arg("-fw_cfg").arg(format!("name=opt/straingauge/job,file={}", start.job.path()));
        command.arg("-chardev").arg(format!("socket,id=control,fd={control_number}"));
        command.args(["-mon", "chardev=control,mode=control"]);
        if let Some([plugin, order, answer]) = start.plugin {
            let files = (plugin.path(), order.path(), answer.path());
            command.arg("-plugin").arg(format!("{},order={},answer={}", files.0, files.1, files.2));
            passed.extend([plugin.number(), order.number(), answer.number()]);
        }
        if let Some(debugger) = start.debugger {
            let number = debugger.as_raw_fd();
            command.arg("-chardev").arg(format!("socket,id=debugger,fd={number}"));
            command.args(["-gdb", "chardev:debugger"]);
            passed.push(number);
        }
        if let Some(state) = start.state {
            command.arg("-incoming").arg("defer");
            passed.push(state.number());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output(&complaints)?);
        // SAFETY: the closure calls only async-signal-safe system calls on numbers that it owns.
        unsafe { command.pre_exec(move || prepare_child(&passed)) };
        let child = command.spawn().map_err(SimulateError::system("QEMU does not start"))?;
        drop(theirs);
        let timeout = start.limits.timeout;
        let end = Instant::now() + timeout;
        let mut running = Running { child, control: None, words, console, complaints, end, timeout };
        running.control = Some(Qmp::new(ours, &mut || running.is_alive(&|| false))?);
        Ok(running)
    }
}

fn output(file: &MemoryFile) -> Result<Stdio, SimulateError> {
    let opened = std::fs::OpenOptions::new().write(true).open(file.path());
    opened.map(Stdio::from).map_err(SimulateError::system("cannot open a file in memory"))
}

/// Runs in the child: keeps the files open, makes the child end with its parent, and leaves the terminal's Ctrl-C to
/// the parent.
fn prepare_child(passed: &[RawFd]) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    rustix::process::setpgid(None, None)?;
    for number in passed {
        // SAFETY: open files of the parent that the child inherited; the borrow ends with the call.
        let file = unsafe { BorrowedFd::borrow_raw(*number) };
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
    }
    Ok(())
}

impl Running {
    /// Checks that QEMU still works. Returns an error if it ended, is late, or `stop` is set.
    pub fn is_alive(&mut self, stop: &dyn Fn() -> bool) -> Result<(), SimulateError> {
        if stop() {
            return Err(SimulateError::Interrupted);
        }
        if Instant::now() > self.end {
            return Err(SimulateError::Late { seconds: self.timeout.as_secs(), words: self.last_words() });
        }
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(SimulateError::Qemu { words: self.last_words() }),
        }
    }

    /// Waits until QEMU has ended.
    pub fn wait(&mut self, stop: &dyn Fn() -> bool) -> Result<(), SimulateError> {
        loop {
            match self.is_alive(stop) {
                Ok(()) => std::thread::sleep(Duration::from_millis(10)),
                Err(SimulateError::Qemu { .. }) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
    }

    /// QEMU's errors, and the last output of the guest's kernel.
    pub fn last_words(&self) -> String {
        let ends = [self.complaints.text(), self.console.text()].map(|text| {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let from = words.char_indices().rev().nth(LAST_WORDS).map_or(0, |(at, _)| at);
            PlainText::new(&words[from..], LAST_WORDS + 1)
        });
        let said: Vec<String> = ends.into_iter().map(String::from).filter(|words| !words.is_empty()).collect();
        if said.is_empty() { "no output".into() } else { said.join("; ") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_first_line() {
        assert_eq!(version_of("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some((7, 2)));
        assert_eq!(version_of("QEMU emulator version 10.0.2"), Some((10, 0)));
        assert_eq!(version_of("something else"), None);
        let interface = |version| interface_of(version).map(|interface| interface.0);
        let numbers = [(5, 2), (6, 0), (8, 2), (9, 0), (9, 1), (10, 2), (11, 0)].map(interface);
        assert_eq!(numbers, [None, Some(1), Some(1), Some(2), Some(3), Some(3), None]);
    }

    #[test]
    fn a_program_that_is_no_qemu_is_refused() {
        let refused = Qemu::find(Some(Path::new("/bin/true"))).unwrap_err().to_string();
        assert!(refused.contains("/bin/true"), "{refused}");
        let refused = Qemu::find(Some(Path::new("/does/not/exist"))).unwrap_err().to_string();
        assert!(refused.contains("does not start"), "{refused}");
    }
}
