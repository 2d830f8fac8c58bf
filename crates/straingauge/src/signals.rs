//! Ctrl-C and termination: the first signal ends the run and keeps its results, the second one ends the process at
//! once.

use crate::failure;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Message for a second signal; null without a run. Never freed.
static LAST_WORDS: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());
static KEPT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// `timeout` signals the process and then its group. A signal that comes this soon after another is not a second one.
const SAME_SIGNAL_NS: u64 = 200_000_000;
const NOTHING_KEPT: &str = "straingauge: ended by the second signal; nothing was kept\n";

/// Records that results were kept in a run directory, for the message at a second signal.
pub fn kept_in(path: &Path) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.iter().any(|known| known == path) {
        return;
    }
    kept.push(path.into());
    let paths: Vec<String> = kept.iter().map(|path| record::text::plain(&path.display().to_string(), 300)).collect();
    let words =
        format!("straingauge: ended by the second signal; complete points are kept in {}\n", paths.join(" and "));
    LAST_WORDS.store(Box::into_raw(Box::new(words)), Ordering::Release);
}

/// Makes a write beyond the file size limit an error (EFBIG) instead of a fatal signal. Children get the default
/// action.
pub fn survive_full_files() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop).context("cannot handle SIGXFSZ")
}

/// Whether a signal has asked the run to end.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn on_signals() -> Result<Self> {
        let (stop, signals) = (Stop::default(), Arc::new(AtomicU32::new(0)));
        for signal in heeded(&[SIGINT, SIGTERM, SIGHUP]) {
            let (signals, first_ns) = (signals.clone(), AtomicU64::new(u64::MAX));
            let end = move || {
                let now_ns = record::time::monotonic_ns();
                let first_ns = first_ns.fetch_min(now_ns, Ordering::SeqCst);
                let same = now_ns.checked_sub(first_ns).is_some_and(|gap_ns| gap_ns < SAME_SIGNAL_NS);
                if same || signals.fetch_add(1, Ordering::SeqCst) == 0 {
                    return;
                }
                let words = LAST_WORDS.load(Ordering::Acquire);
                // SAFETY: the pointer is null or a string that is never changed or freed.
                let words = unsafe { words.as_ref() }.map_or(NOTHING_KEPT, String::as_str);
                // SAFETY: the bytes belong to a string; write and _exit are async-signal-safe.
                unsafe {
                    libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len());
                    libc::_exit(i32::from(failure::INTERRUPTED));
                }
            };
            // SAFETY: `end` uses atomics and three async-signal-safe calls.
            unsafe { signal_hook::low_level::register(signal, end) }
                .and_then(|_| signal_hook::flag::register(signal, stop.0.clone()))
                .context("cannot handle Ctrl-C")?;
        }
        Ok(stop)
    }

    /// Whether the run should end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}

/// The signals that are not ignored. Ignored ones stay ignored: SIGHUP under nohup, SIGINT in the background of a
/// script.
pub fn heeded(signals: &[i32]) -> impl Iterator<Item = i32> {
    signals.iter().copied().filter(|signal| {
        // SAFETY: an all-zero action is valid, and with a null pointer for the new action the call only fills it in.
        let now = unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &mut now);
            now
        };
        now.sa_sigaction != libc::SIG_IGN
    })
}
