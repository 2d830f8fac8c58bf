//! Ends a server's processes and removes their traces if straingauge itself is killed.
//!
//! The parent death signal ends only the server's first process; its children, e.g. nginx's workers, would continue.
//! The guardian is this program in a separate session that reads a pipe from straingauge. A byte means that the
//! server was stopped; end of file means that straingauge was killed. The command of `find --beside` has a guardian,
//! too.

use record::leftovers::{self, FoundLeftovers, LeftoverKind, MARK, SearchScope};
use record::owner::{Owner, OwnerState, start_ticks};
use rustix::process::{Pid, Signal, kill_process, setsid};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Role in the mark of a server's processes.
pub const SERVER: &str = "server";
/// Role in the mark of the command of `find --beside`.
pub const BESIDE: &str = "beside";
/// Role in the mark of the command of `wan`.
pub const COMMAND_ON_PATH: &str = "command";

/// The kinds of processes that straingauge starts for users.
pub const LEFTOVERS: [LeftoverKind; 3] = [
    processes("server's process", "STRAINGAUGE_MARK=OWNER.server.NUMBER in its environment", |scene| {
        scene.processes("server's process", SERVER)
    }),
    processes("process next to a server", "STRAINGAUGE_MARK=OWNER.beside.NUMBER in its environment", |scene| {
        scene.processes("process next to a server", BESIDE)
    }),
    processes("process on a path", "STRAINGAUGE_MARK=OWNER.command.NUMBER in its environment", |scene| {
        scene.processes("process on a path", COMMAND_ON_PATH)
    }),
];

const fn processes(name: &'static str, named: &'static str, find: fn(&SearchScope) -> FoundLeftovers) -> LeftoverKind {
    LeftoverKind { name, named, find, remove: leftovers::end_process }
}

pub const COMMAND: &str = "guard-session";
/// Maximum rounds. Processes that fork in one round are found in the next.
const ROUNDS: u32 = 100;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);
/// Message: the server was stopped, so there is nothing to do.
pub const STOPPED: u8 = b'.';
const END: u8 = b'e';
/// Maximum wait for a killed process to end after it closed its pipes; a large one takes long.
const OWNER_ENDS_WITHIN: Duration = Duration::from_secs(30);

pub fn next_mark(role: &str) -> String {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    leftovers::mark(role, STARTED.fetch_add(1, Ordering::Relaxed))
}

/// A running guardian. Dropping it without [`Guardian::dismiss`] ends the session.
pub struct Guardian {
    process: Child,
    lifeline: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian for the session of `leader` and for processes with this [`MARK`].
    pub fn over(leader: u32, mark: &str) -> io::Result<Guardian> {
        Guardian::with(&[COMMAND, &leader.to_string(), mark])
    }

    /// Starts this program with hidden arguments, as a guardian that outlives this process.
    pub fn with(arguments: &[&str]) -> io::Result<Guardian> {
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments).env_remove(MARK);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: setsid is async-signal-safe.
        unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
        let mut process = command.spawn()?;
        let lifeline = process.stdin.take();
        Ok(Guardian { process, lifeline })
    }

    /// Ends the guardian, because the server was stopped.
    pub fn dismiss(mut self) {
        if let Some(mut lifeline) = self.lifeline.take() {
            let _ = lifeline.write_all(&[STOPPED]);
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if let Some(mut lifeline) = self.lifeline.take() {
            let _ = lifeline.write_all(&[END]);
        }
        let _ = self.process.wait();
    }
}

/// Waits for the order of the process that started this guardian; `None` if that process was killed.
pub fn order() -> Option<u8> {
    let mut byte = [0u8; 1];
    loop {
        match io::stdin().read(&mut byte) {
            Ok(count) => return (count > 0).then_some(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Runs as the guardian. `clean_up_after` removes the leftovers of a killed process.
pub fn run_guardian(session: u32, mark: &str, clean_up_after: impl FnOnce(Owner)) -> ExitCode {
    let order = order();
    if order == Some(STOPPED) {
        return ExitCode::SUCCESS;
    }
    for _ in 0..ROUNDS {
        let members = members_of(session, mark);
        if members.is_empty() {
            break;
        }
        for pid in members {
            // The session id stays the server's until its last member has exited.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(BETWEEN_ROUNDS);
    }
    let owner = leftovers::parse_mark(mark).map(|(owner, _)| owner).filter(|_| order.is_none());
    if let Some(owner) = owner.filter(has_ended) {
        clean_up_after(owner);
    }
    ExitCode::SUCCESS
}

/// Returns whether it has ended.
fn has_ended(owner: &Owner) -> bool {
    let begun = Instant::now();
    while owner.life() == OwnerState::Alive && begun.elapsed() < OWNER_ENDS_WITHIN {
        std::thread::sleep(BETWEEN_ROUNDS);
    }
    owner.life() == OwnerState::Ended
}

/// The living processes of a session, and those with this value of [`MARK`].
pub fn members_of(session: u32, mark: &str) -> Vec<Pid> {
    let is_member = |pid: Pid| {
        let number = pid.as_raw_pid() as u32;
        // SAFETY: getsid takes and returns numbers. (rustix's getsid rejects 0, a session outside this namespace.)
        let its_session = unsafe { libc::getsid(pid.as_raw_pid()) };
        start_ticks(number).is_some()
            && (its_session == session as i32 || leftovers::mark_of(number).as_deref() == Some(mark))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_member(*pid)).collect()
}
