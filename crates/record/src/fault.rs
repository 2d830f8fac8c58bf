//! Faults on purpose, for tests: each step that changes something outside this process asks here first. In the program
//! that is built for use the answer is always yes, and costs nothing.
//!
//! With the feature `faults`, the environment variable [`VARIABLE`] holds `fail:N` or `kill:N`: the Nth step of the
//! process fails with [`ERROR`], or the process kills itself in front of it as `kill -9` would.

use std::io;

/// The environment variable that asks for a fault.
pub const VARIABLE: &str = "STRAINGAUGE_FAULT";
/// The error of a step that fails on purpose: one that no room treats in a particular way.
pub const ERROR: i32 = libc::EIO;

/// Steps so far, where a fault was asked for.
#[cfg(any(test, feature = "faults"))]
static STEPS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// How many steps were made so far, where a fault was asked for: number 0 is none.
#[cfg(any(test, feature = "faults"))]
pub fn steps() -> u64 {
    STEPS.load(std::sync::atomic::Ordering::Relaxed)
}

/// A step is about to be made. An error means that it is not to be made, as if the kernel had refused it.
#[cfg(any(test, feature = "faults"))]
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
        // SAFETY: kill takes no pointers; this process is its own.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    Err(io::Error::from_raw_os_error(ERROR))
}

/// A step is about to be made.
#[cfg(not(any(test, feature = "faults")))]
#[inline(always)]
pub fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
