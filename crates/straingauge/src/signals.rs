//! Ctrl-C and termination: the first signal ends the run with what it has, the second ends the process at once.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once a signal asked the run to end.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs the handlers.
    pub fn on_signals() -> Result<Self> {
        let stop = Stop::default();
        for signal in heeded(&[SIGINT, SIGTERM, SIGHUP]) {
            // Order matters: the conditional exit looks at the flag before this signal sets it.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                i32::from(crate::failure::INTERRUPTED),
                stop.0.clone(),
            )
            .and_then(|_| signal_hook::flag::register(signal, stop.0.clone()))
            .context("cannot handle Ctrl-C")?;
        }
        Ok(stop)
    }

    /// Whether the run should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag that the engine checks.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}

/// Those of the signals that are not ignored. One that was ignored when this process began stays so: SIGHUP under
/// nohup, SIGINT in the background of a script.
pub fn heeded(signals: &[i32]) -> impl Iterator<Item = i32> {
    signals.iter().copied().filter(|signal| {
        // SAFETY: an all-zero action is valid, and with a null pointer for the new one the call only fills it in.
        let now = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &mut now);
            now
        };
        now.sa_sigaction != libc::SIG_IGN
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_was_ignored_stays_ignored() {
        // SAFETY: no handler of ours: the kernel drops the signal.
        unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
        let stop = Stop::on_signals().expect("handlers can be installed");
        signal_hook::low_level::raise(SIGHUP).expect("a signal to ourselves");
        assert!(!stop.is_set());
        signal_hook::low_level::raise(SIGTERM).expect("a signal to ourselves");
        assert!(stop.is_set());
    }
}
