//! Starts and ends other programs: explains why one cannot be started, and ends it with all its children.

use anyhow::anyhow;
use record::owner::start_ticks;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How long a program may take to end politely.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Why a program cannot be started, in words. `what`: `the server 'nginx'`.
pub fn cannot_start(what: &str, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("{what} was not found: is it installed, and spelt right?"),
        ErrorKind::PermissionDenied => anyhow!("{what} may not be executed: check its permissions"),
        _ => anyhow!("{what} cannot be started: {error}"),
    }
}

/// How a child ended; `None` while it runs. The child is not waited for: so nobody else gets its number, or that of its
/// group.
pub fn ended(child: u32) -> Option<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_raw(child as i32)?), options).ok().flatten()?;
    let code = status.exit_status().map(|code| code << 8);
    code.or(status.terminating_signal()).map(ExitStatus::from_raw)
}

/// Ends a child that leads its process group, and was not waited for, with the whole group, politely first, and the
/// daemons that it left behind. Returns how the child ended.
pub fn end(child: &mut Child, daemons: &[u32]) -> Option<ExitStatus> {
    signal(child, daemons, libc::SIGTERM);
    let deadline = Instant::now() + STOP_GRACE;
    let is_running = || ended(child.id()).is_none() || daemons.iter().any(|daemon| start_ticks(*daemon).is_some());
    while is_running() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(child, daemons, libc::SIGKILL);
    child.wait().ok()
}

fn signal(child: &Child, daemons: &[u32], signal: libc::c_int) {
    // SAFETY: kill takes no pointers; the group is that of a child that we started as its leader.
    unsafe { libc::kill(-(child.id() as libc::pid_t), signal) };
    for daemon in daemons {
        // SAFETY: as above.
        unsafe { libc::kill(*daemon as libc::pid_t, signal) };
    }
}
