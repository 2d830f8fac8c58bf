//! Injected faults, for tests: each step that changes something outside this process calls this module first. Without
//! the feature `faults`, the step is always allowed, at no cost.
//!
//! With it, the environment variable [`VARIABLE`] has the form `fail:N` or `kill:N`: the Nth step fails with
//! [`ERROR`], or the process kills itself before it as `kill -9` would.

use std::io;

/// The environment variable that requests a fault.
pub const VARIABLE: &str = "STRAINGAUGE_FAULT";
/// The error of a step that fails on purpose; no caller handles it specially.
pub const ERROR: i32 = libc::EIO;

#[cfg(feature = "faults")]
static STEPS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Number of steps so far, if a fault was requested.
#[cfg(feature = "faults")]
pub fn steps() -> u64 {
    STEPS.load(std::sync::atomic::Ordering::Relaxed)
}

/// Called before a step. On an error, the step must not be made, as if the kernel had refused it.
#[cfg(feature = "faults")]
pub fn step() -> io::Result<()> {
    use std::sync::LazyLock;
    use std::sync::atomic::Ordering;
    static WANTED: LazyLock<Option<(bool, u64)>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).ok()?;
        let (how, number) = text.split_once(':')?;
        Some((how == "kill", number.parse().ok()?))
    });
    let Some((is_kill, wanted)) = *WANTED else { return Ok(()) };
    if STEPS.fetch_add(1, Ordering::Relaxed) + 1 != wanted {
        return Ok(());
    }
    if is_kill {
        // SAFETY: kill takes no pointers; the process signals itself.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    Err(io::Error::from_raw_os_error(ERROR))
}

/// Called before a step; does nothing.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn step() -> io::Result<()> {
    Ok(())
}
