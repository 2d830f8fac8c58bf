//! Injected faults, for tests: each step that changes something outside this process asks here first. Without the
//! feature `faults` the answer is always yes, at no cost.
//!
//! With it, the environment variable [`VARIABLE`] holds `fail:N` or `kill:N`: the Nth step fails with [`ERROR`], or the
//! process kills itself before it as `kill -9` would.

use std::io;

/// The environment variable that asks for a fault.
pub const VARIABLE: &str = "STRAINGAUGE_FAULT";
/// The error of a step that fails on purpose; no caller treats it specially.
pub const ERROR: i32 = libc::EIO;

/// Steps so far, where a fault was asked for.
#[cfg(any(test, feature = "faults"))]
static STEPS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Steps so far, where a fault was asked for.
#[cfg(any(test, feature = "faults"))]
pub fn steps() -> u64 {
    STEPS.load(std::sync::atomic::Ordering::Relaxed)
}

/// Called before a step. On an error the step must not be made, as if the kernel had refused it.
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
