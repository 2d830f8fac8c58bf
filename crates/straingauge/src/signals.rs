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
        for signal in [SIGINT, SIGTERM, SIGHUP] {
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
