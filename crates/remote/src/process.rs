//! Processes that carry workers. Each leads a process group, so that Ctrl-C reaches only the driver.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub fn start(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn()
}

pub fn ends_within(child: &mut Child, timeout: Duration) -> bool {
    let until = Instant::now() + timeout;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

pub fn kill(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // The group belongs to the child, which is not reaped yet.
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    let _ = child.wait();
}
