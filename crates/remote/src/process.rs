//! Processes that carry workers: each leads a process group, so that Ctrl-C reaches only the driver.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts a process with three pipes in a process group of its own: Ctrl-C reaches only the driver, which then asks for
/// the results.
pub fn start(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
}

/// Waits at most `patience` for its end.
pub fn ends_within(child: &mut Child, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Kills its process group.
pub fn kill(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id())
        && matches!(child.try_wait(), Ok(None))
    {
        // SAFETY: kill takes numbers; the group is the child's own, and it is not reaped yet.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
}
