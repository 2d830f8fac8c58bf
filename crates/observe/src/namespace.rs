//! Opens files and sockets in another process's network namespace, and checks whether process ids are those of the
//! host.

use crate::error::ObserveError;
use crate::processes::living_thread;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Returns an error if processes have other ids here than in the initial namespace, whose ids BPF programs see.
pub fn needs_hosts_process_ids() -> Result<(), ObserveError> {
    // PROC_PID_INIT_INO of include/linux/proc_ns.h.
    const INITIAL: u64 = 0xefff_fffc;
    let number = fs::metadata("/proc/self/ns/pid").map_or(INITIAL, |file| file.ino());
    if number == INITIAL { Ok(()) } else { Err(ObserveError::ForeignProcessIds) }
}

/// The inode number of the network namespace of a process, or of this thread, which the programs compare; 0 = unknown.
pub fn namespace_number(pid: Option<u32>) -> u32 {
    let thread = pid.map_or_else(|| "thread-self".to_string(), |pid| living_thread(pid).to_string());
    fs::metadata(format!("/proc/{thread}/ns/net")).map_or(0, |file| file.ino() as u32)
}

/// Runs `open` in the network namespace of `pid`, or of the calling thread for `None`. Sockets and /proc/net files
/// that it opens stay in that namespace, whichever thread uses them later.
pub fn in_namespace_of<T: Send>(pid: Option<u32>, open: impl FnOnce() -> T + Send) -> Result<T, ObserveError> {
    let Some(pid) = pid else { return Ok(open()) };
    let refused = |source| ObserveError::Namespace { pid, source };
    let path = format!("/proc/{}/ns/net", living_thread(pid));
    // Entering our own namespace needs privilege, so skip it.
    if let (Ok(theirs), Ok(ours)) = (fs::read_link(&path), fs::read_link("/proc/thread-self/ns/net"))
        && theirs == ours
    {
        return Ok(open());
    }
    record::fault::step().map_err(refused)?;
    let namespace = File::open(path).map_err(refused)?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|error| refused(error.into()))?;
                Ok(open())
            })
            .map_err(ObserveError::Thread)?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
