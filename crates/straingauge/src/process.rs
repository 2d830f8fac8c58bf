use anyhow::anyhow;
use record::owner::start_ticks;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, waitid};
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time for a program to end after the polite signal.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Explains why a program cannot be started. `what`: `the server 'nginx'`.
pub fn cannot_start(what: &str, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("{what} was not found: is it installed and spelled correctly?"),
        ErrorKind::PermissionDenied => anyhow!("{what} may not be executed: check its permissions"),
        _ => anyhow!("{what} cannot be started: {error}"),
    }
}

/// How a child ended; `None` while it runs. It stays unreaped, so its process id and group are not reused.
pub fn ended(child: u32) -> Option<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_raw(child as i32)?), options).ok().flatten()?;
    let code = status.exit_status().map(|code| code << 8);
    code.or(status.terminating_signal()).map(ExitStatus::from_raw)
}

/// Ends a child with its process group and daemons, politely first; returns how the child ended. The child leads the
/// group and was not reaped.
pub fn end(child: &mut Child, daemons: &[u32]) -> Option<ExitStatus> {
    signal(child, daemons, Signal::TERM);
    let deadline = Instant::now() + STOP_GRACE;
    let is_running = || ended(child.id()).is_none() || daemons.iter().any(|daemon| start_ticks(*daemon).is_some());
    while is_running() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(child, daemons, Signal::KILL);
    child.wait().ok()
}

fn signal(child: &Child, daemons: &[u32], signal: Signal) {
    let group = Pid::from_child(child);
    // A second signal may make a program end at once, so the group's members get only one.
    let left = left_the_group(group, daemons);
    let _ = kill_process_group(group, signal);
    for daemon in left {
        let _ = kill_process(daemon, signal);
    }
}

/// The processes outside this group, which a signal to the group does not reach.
pub fn left_the_group(group: Pid, processes: &[u32]) -> Vec<Pid> {
    let pids = processes.iter().filter_map(|pid| Pid::from_raw(*pid as i32));
    pids.filter(|pid| getpgid(Some(*pid)) != Ok(group)).collect()
}
