//! Cold connections: established, idle, and kept so while the hot ones are measured.
//!
//! Banga and Mogul ("Scalable kernel performance for Internet servers under realistic loads", 1998) call the client
//! that holds them the *load-adding* client: a server on a wide-area network has hundreds of idle connections for each
//! active one, and laboratory load has none.

mod keeper;
mod room;

pub use room::{ColdRoom, room};

use crate::check;
use crate::error::{LoadError, machine, wrong};
use crate::socket::Errno;
use keeper::Keeper;
use record::machine::meminfo_bytes;
use record::time::monotonic_ns;
use record::{Figures, LoadPlan, Origin, lock, names};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A pool gives up after this time without a new connection.
pub const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// A pool's counts; all but `established` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ColdCounts {
    /// Connections established now at both ends.
    pub established: u64,
    /// Connections opened since the pool began.
    pub opened: u64,
    /// Connections that the server closed, sent data on, or had dropped from its full accept queue; they were
    /// reopened.
    pub dropped: u64,
    /// Connection attempts that failed.
    pub failed: u64,
    /// CPU time of the pool's threads, nanoseconds.
    pub cpu_ns: u64,
    /// Memory that the pool allocated.
    pub user_bytes: u64,
}

#[derive(Debug, Default)]
struct PoolState {
    target: AtomicU64,
    is_ending: AtomicBool,
    counts: Mutex<ColdCounts>,
}

/// A thread that holds cold connections, one file descriptor each. Dropping it closes them.
#[derive(Debug)]
pub struct ColdPool {
    shared: Arc<PoolState>,
    thread: Option<JoinHandle<Result<(), Errno>>>,
    most: u64,
    slab_before: Option<u64>,
    slab_filled: Option<u64>,
}

impl ColdPool {
    /// Begins an empty pool; [`resize`](Self::resize) opens at most `most` connections. Addresses, source addresses,
    /// connect timeout, connect rate and CPUs are the plan's; the pool's thread shares the network namespace of the
    /// calling thread.
    pub fn begin(plan: &LoadPlan, most: u64) -> Result<Self, LoadError> {
        let plan = LoadPlan { connections: most.max(1), threads: 1, ..plan.clone() };
        check::check_ports(&plan)?;
        check::check_descriptors(&plan)?;
        let shared = Arc::new(PoolState::default());
        let mut keeper = Keeper::new(&plan).map_err(machine("prepare to hold cold connections"))?;
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("cold".into())
            .spawn(move || keeper.keep(&theirs))
            .map_err(machine("start the thread of the cold connections"))?;
        Ok(ColdPool { shared, thread: Some(thread), most, slab_before: meminfo_bytes("Slab:"), slab_filled: None })
    }

    /// Opens or closes connections until `target` are established at both ends, or `stop` is set. Fails after
    /// `timeout` without progress.
    pub fn resize(
        &mut self,
        target: u64,
        timeout: Duration,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> Result<(), LoadError> {
        if target > self.most {
            let most = self.most;
            return Err(wrong(format!("{target} cold connections are more than the planned maximum of {most}")));
        }
        self.shared.target.store(target, Ordering::SeqCst);
        let (mut nearest, mut since_ns) = (u64::MAX, monotonic_ns());
        loop {
            let counts = self.counts();
            if counts.established == target {
                self.slab_filled = meminfo_bytes("Slab:");
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let distance = counts.established.abs_diff(target);
            if distance < nearest {
                (nearest, since_ns) = (distance, monotonic_ns());
            } else if monotonic_ns() - since_ns > timeout.as_nanos() as u64 || self.has_ended() {
                return Err(wrong(self.why_not(target, counts)));
            }
            progress(counts.established);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn why_not(&mut self, target: u64, counts: ColdCounts) -> String {
        let ended = self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join);
        let failure = ended.and_then(|how| how.ok()?.err());
        let cause = failure.map(|error| error.to_string()).unwrap_or_else(|| match counts {
            ColdCounts { dropped, .. } if dropped > 0 => {
                format!(
                    "the server closed {dropped} of them again: raise its connection limit, backlog and idle timeout"
                )
            }
            ColdCounts { failed, .. } if failed > 0 => {
                format!("{failed} attempts failed: raise the server's connection limit, descriptor limit and backlog")
            }
            _ => "the server accepts no more: raise its connection and descriptor limits".into(),
        });
        format!("only {} of {target} cold connections are established: {cause}", counts.established)
    }

    /// The current counts.
    pub fn counts(&self) -> ColdCounts {
        *lock(&self.shared.counts)
    }

    /// Kernel memory per connection, from the growth of slab memory while the pool was filled. Includes the server's
    /// end if it is on this machine. `None` without connections, or if other work shrank that memory.
    pub fn kernel_bytes_per_connection(&self) -> Option<f64> {
        let grown = self.slab_filled?.checked_sub(self.slab_before?)?;
        let established = self.counts().established;
        (established > 0).then(|| grown as f64 / established as f64)
    }

    /// The pool's figures for a point; `before` are the counts at the window's begin.
    pub fn figures(&self, before: ColdCounts, window_ns: u64) -> Figures {
        figures(self.counts(), before, self.kernel_bytes_per_connection(), window_ns)
    }
}

record::adds_up!(ColdCounts { established, opened, dropped, failed, cpu_ns, user_bytes });

/// The figures of several pools together, as [`ColdPool::figures`]. `kernel_bytes`: kernel memory per connection, if
/// known.
pub fn figures(now: ColdCounts, before: ColdCounts, kernel_bytes: Option<f64>, window_ns: u64) -> Figures {
    let mut figures = Figures::default();
    let established = now.established;
    figures.measured(names::COLD, established as f64, 1, Origin::Counted);
    let dropped = now.dropped.saturating_sub(before.dropped);
    let per_sec = dropped as f64 * 1e9 / window_ns.max(1) as f64;
    figures.measured(names::COLD_DROPPED, per_sec, dropped, Origin::Counted);
    let user = now.user_bytes as f64 / established as f64;
    figures.measured(names::COLD_USER_MEMORY, user, established, Origin::Counted);
    let why_not = "the kernel's memory did not grow measurably with the pool";
    figures.found(names::COLD_KERNEL_MEMORY, kernel_bytes, (established, Origin::Sampled), why_not);
    figures
}

impl Drop for ColdPool {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
