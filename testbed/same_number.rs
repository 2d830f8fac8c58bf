use std::process::{Child, Command};

/// Starts a process that gets the number of one that has ended; `None` where the kernel does not let us choose.
pub fn with_number(pid: u32, command: &mut Command) -> Option<Child> {
    // Other work may take the number first, and give it back.
    for _ in 0..5000 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = command.spawn().ok()?;
        if child.id() == pid {
            return Some(child);
        }
        child.kill().ok()?;
        child.wait().ok()?;
    }
    None
}
