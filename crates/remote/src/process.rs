//! Processes that carry workers: each leads a separate process group, so that Ctrl-C reaches the driver alone.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Starts it with pipes to all three of its streams, in a separate process group: Ctrl-C is for the driver, which then
/// asks for the results.
pub fn start(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
}

/// Waits until it has ended, at most this long.
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

/// Kills it with its group at once.
pub fn kill(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id())
        && matches!(child.try_wait(), Ok(None))
    {
        // SAFETY: kill takes numbers; the group is the child's own, and it is not reaped yet.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
}
