//! Where the threads of a Java server wait. A thread that waits for a monitor and one that waits for work look alike to
//! the kernel. HotSpot prints the stacks of all threads on request, at a safepoint of some milliseconds: the interface
//! of `jcmd PID Thread.print` (jdk.attach, attachListener_posix.cpp).

use crate::maps;
use crate::parked::{ParkedCounts, Place, Program, Stack};
use crate::proc_text::{is_caught, status_field};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time for the machine to open its socket, and to send the stacks.
const PATIENCE: Duration = Duration::from_millis(500);
/// Most bytes of stacks that are read: about ten thousand threads.
const MOST_BYTES: u64 = 16 << 20;
const MOST_FRAMES: usize = 32;
/// A thread with one of these functions on its stack waits for work.
const IDLE: [&str; 7] = [
    "ThreadPoolExecutor.getTask",
    "ForkJoinPool.awaitWork",
    "QueuedThreadPool$Runner.idleJobPoll",
    "ReservedThreadExecutor$ReservedThread.reservedWait",
    "SingleThreadEventExecutor.takeTask",
    "DelayQueue.take",
    "ReferenceQueue.remove",
];

/// A waiting thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaThread {
    /// `synchronized`, `wait`, `park`, or the class whose object it waits for.
    pub reason: String,
    /// Functions, innermost first: `com/shop/Store.get`.
    pub functions: Vec<String>,
}

/// A virtual machine that answers requests.
#[derive(Debug)]
pub struct JavaMachine {
    socket: PathBuf,
}

impl Program for JavaMachine {
    /// Finds the machine of a process and lets it open its socket; none if it is not HotSpot's, or if its options
    /// forbid it.
    fn open(pid: u32) -> Option<JavaMachine> {
        maps::of_process(pid).ok()?.iter().find(|mapping| mapping.file_name() == "libjvm.so")?;
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let is_refused = [&arguments, &environment].iter().any(|text| contains(text, b"+DisableAttachMechanism"));
        // The signal ends a machine that does not catch it (-Xrs).
        if is_refused || !is_caught(&status, rustix::process::Signal::QUIT.as_raw()) {
            return None;
        }
        // Its number in its own namespace, and its effective user.
        let number: u32 = status_field(&status, "NSpid")?.last()?.parse().ok()?;
        let user: u32 = status_field(&status, "Uid")?.nth(1)?.parse().ok()?;
        let folder = PathBuf::from(format!("/proc/{pid}/root/tmp"));
        let socket = folder.join(format!(".java_pid{number}"));
        // A link would lead out of the process's files.
        folder.symlink_metadata().ok().filter(fs::Metadata::is_dir)?;
        if !socket.exists() {
            let asks = folder.join(format!(".attach_pid{number}"));
            File::options().write(true).create_new(true).open(&asks).ok()?;
            let process = rustix::process::Pid::from_raw(pid.cast_signed())?;
            let sent = rustix::process::kill_process(process, rustix::process::Signal::QUIT);
            let deadline = Instant::now() + PATIENCE;
            while sent.is_ok() && !socket.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = fs::remove_file(&asks);
        }
        let opened = socket.symlink_metadata().ok()?;
        (opened.file_type().is_socket() && opened.uid() == user).then_some(JavaMachine { socket })
    }

    /// Counts the threads that wait, without those that wait for work.
    fn read(&self, pid: u32, all: &mut ParkedCounts) -> Option<()> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"1\0threaddump\0\0\0\0").ok()?;
        let mut text = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        for thread in waiting(String::from_utf8_lossy(&text).strip_prefix("0\n")?) {
            all.count(Place { pid, reason: thread.reason, stack: Stack::Names(thread.functions) });
        }
        Some(())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|some| some == part)
}

/// The waiting threads in a print of all stacks.
pub fn waiting(text: &str) -> Vec<JavaThread> {
    // The text of a thread begins with its name in quotes.
    let starts = std::iter::once(0).chain(text.match_indices("\n\"").map(|(at, _)| at + 1));
    let starts: Vec<usize> = starts.chain([text.len()]).collect();
    starts.windows(2).filter_map(|ends| thread(text.get(ends[0]..ends[1])?)).collect()
}

fn thread(text: &str) -> Option<JavaThread> {
    let mut lines = text.lines().skip(1).map(str::trim);
    let state = lines.next()?.strip_prefix("java.lang.Thread.State: ")?;
    let mut reason = match state {
        "BLOCKED (on object monitor)" => "synchronized",
        "WAITING (on object monitor)" | "TIMED_WAITING (on object monitor)" => "wait",
        "WAITING (parking)" | "TIMED_WAITING (parking)" => "park",
        // The kernel sees who sleeps.
        _ => return None,
    }
    .to_string();
    let mut functions = Vec::new();
    for line in lines {
        if let Some(function) = line.strip_prefix("at ") {
            let name = function.split(['(', ' ']).next().unwrap_or_default();
            if IDLE.iter().any(|idle| name.ends_with(idle)) {
                return None;
            }
            // Classes made at run time have an address in their names: `Api$$Lambda/0x7f.handle`.
            if functions.len() < MOST_FRAMES && !name.contains("/0x") {
                functions.push(internal(name));
            }
        } else if reason == "park"
            && let Some(class) = line.strip_prefix("- parking to wait for").and_then(class_of)
        {
            // `java.util.concurrent.locks.ReentrantLock$NonfairSync`
            let outer = class.split('$').next().unwrap_or_default();
            let name = outer.rsplit('.').next().filter(|name| !name.is_empty());
            reason = name.map_or(reason, str::to_string);
        }
    }
    Some(JavaThread { reason, functions })
}

/// `<0x01> (a java.lang.Object)`: the class.
fn class_of(text: &str) -> Option<&str> {
    text.split_once("(a ")?.1.strip_suffix(')')
}

/// `com/shop/Store.get` of `com.shop.Store.get`: as class files write it.
fn internal(name: &str) -> String {
    // Modules and class loaders precede the name: `app//com.shop.Store.get`.
    let name = name.rsplit('/').next().unwrap_or_default();
    match name.rsplit_once('.') {
        Some((class, function)) => format!("{}.{function}", class.replace('.', "/")),
        None => name.to_string(),
    }
}
