//! Cold connections: established, idle, and kept so while the hot ones are measured.
//!
//! Banga and Mogul ("Scalable kernel performance for Internet servers under realistic loads", 1998) call the client that
//! holds them the *load-adding* client: a server on a wide-area network has hundreds of idle connections for each active
//! one, and laboratory load has none. A herd is opened once and stays through many load points; connections that the
//! server drops are counted and opened again.

mod holder;
mod keeper;

use crate::check;
use crate::error::LoadError;
use keeper::Keeper;
use record::time::monotonic_ns;
use record::{Figure, Figures, LoadPlan, Origin, names};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the herd's thread and its owner share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    target: AtomicU64,
    established: AtomicU64,
    is_in_doubt: AtomicBool,
    opened: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    cpu_ns: AtomicU64,
    user_bytes: AtomicU64,
    is_ending: AtomicBool,
    trouble: Mutex<Option<String>>,
}

/// The herd's counts; all but `established` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColdCounts {
    /// Connections established now.
    pub established: u64,
    /// Handshakes hung, so the server is being probed for which connections it has.
    pub is_in_doubt: bool,
    /// Connections opened since the herd began.
    pub opened: u64,
    /// Connections that the server closed or spoke on, and that were opened again.
    pub dropped: u64,
    /// Connection attempts that failed.
    pub failed: u64,
    /// CPU time of the herd's thread, nanoseconds.
    pub cpu_ns: u64,
    /// Memory that the herd allocated in this process.
    pub user_bytes: u64,
}

/// The place where established connections are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Tables of io_uring where the kernel has it, else descriptors.
    #[default]
    Best,
    /// Descriptors of this process, at most as many as its limit allows.
    Descriptors,
}

/// A herd of cold connections on a separate thread. Dropping it closes them.
#[derive(Debug)]
pub struct ColdHerd {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    slab_before: Option<u64>,
    slab_filled: Option<u64>,
    note: Option<String>,
}

impl ColdHerd {
    /// Begins an empty herd; [`resize`](Self::resize) opens connections. Addresses, source addresses, connect timeout,
    /// connect rate and CPUs are the plan's; the herd's thread shares the network namespace of the calling thread.
    pub fn begin(plan: &LoadPlan, most: u64, keep: Keep) -> Result<Self, LoadError> {
        let plan = LoadPlan { connections: most.max(1), threads: 1, ..plan.clone() };
        check::check_ports(&plan)?;
        let shared = Arc::new(Shared::default());
        let machine =
            |what: &'static str| move |cause: crate::socket::Errno| LoadError::Machine { what, cause: cause.io() };
        let (mut keeper, note) = Keeper::new(&plan, most, keep).map_err(machine("prepare to hold cold connections"))?;
        if let Some(why) = &note {
            check::check_descriptors(&plan)
                .map_err(|error| LoadError::ColdDescriptors { why: why.clone(), limit: Box::new(error) })?;
        }
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("cold".into())
            .spawn(move || {
                if let Err(error) = keeper.keep(&theirs)
                    && let Ok(mut trouble) = theirs.trouble.lock()
                {
                    *trouble = Some(error.io().to_string());
                }
            })
            .map_err(|cause| LoadError::Machine { what: "start the thread of the cold connections", cause })?;
        Ok(ColdHerd { shared, thread: Some(thread), slab_before: kernel_memory(), slab_filled: None, note })
    }

    /// Opens or closes connections until `target` are established, at the server's end, too. Returns early when `stop`
    /// is set. Fails when the number does not grow for `patience`: the server refuses, or a limit was reached.
    pub fn resize(
        &mut self,
        target: u64,
        patience: Duration,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> Result<(), LoadError> {
        self.shared.target.store(target, Ordering::SeqCst);
        let (mut nearest, mut since_ns) = (u64::MAX, monotonic_ns());
        loop {
            let counts = self.counts();
            if counts.established == target && !counts.is_in_doubt {
                self.slab_filled = kernel_memory();
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let distance = counts.established.abs_diff(target);
            if distance < nearest {
                (nearest, since_ns) = (distance, monotonic_ns());
            } else if monotonic_ns() - since_ns > patience.as_nanos() as u64 || self.has_ended() {
                return Err(LoadError::Plan(self.why_not(target, counts)));
            }
            progress(counts.established);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sets the target to `target` connections and does not wait for them.
    pub fn aim(&self, target: u64) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// Why the herd's thread has ended, if it has.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().ok().and_then(|trouble| trouble.clone())
    }

    /// Whether each connection takes a descriptor of this process, because io_uring is not available.
    pub fn keeps_descriptors(&self) -> bool {
        self.note.is_some()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn why_not(&self, target: u64, counts: ColdCounts) -> String {
        let trouble = self.shared.trouble.lock().ok().and_then(|trouble| trouble.clone());
        let cause = match (trouble, counts) {
            (Some(trouble), _) => trouble,
            (None, counts) => why_not(counts),
        };
        let note = self.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("only {} of {target} cold connections are established: {cause}{note}", counts.established)
    }

    /// The counts now.
    pub fn counts(&self) -> ColdCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ColdCounts {
            // In this order: the herd's thread writes them in the reverse order.
            established: self.shared.established.load(Ordering::SeqCst),
            is_in_doubt: self.shared.is_in_doubt.load(Ordering::SeqCst),
            opened: read(&self.shared.opened),
            dropped: read(&self.shared.dropped),
            failed: read(&self.shared.failed),
            cpu_ns: read(&self.shared.cpu_ns),
            user_bytes: read(&self.shared.user_bytes),
        }
    }

    /// Kernel memory for each connection, from the growth of slab and socket memory while the herd was filled; both
    /// ends if the server is on this machine. `None` without connections, or if other work shrank that memory.
    pub fn kernel_bytes_per_connection(&self) -> Option<f64> {
        let grown = self.slab_filled?.checked_sub(self.slab_before?)?;
        let established = self.counts().established;
        (established > 0).then(|| grown as f64 / established as f64)
    }

    /// The herd as figures of a point; `before` are the counts at the window's begin.
    pub fn figures(&self, before: ColdCounts, window_ns: u64) -> Figures {
        figures(self.counts(), before, self.kernel_bytes_per_connection(), window_ns)
    }
}

/// Why a herd does not grow, from its counts.
pub fn why_not(counts: ColdCounts) -> String {
    match counts {
        ColdCounts { dropped, .. } if dropped > 0 => {
            format!("the server closed {dropped} of them again: raise its limit of connections and its idle timeout")
        }
        ColdCounts { failed, .. } if failed > 0 => {
            format!("{failed} attempts failed: raise the server's limits of connections, descriptors and its backlog")
        }
        _ => "the server accepts no more: raise its limits of connections and descriptors".into(),
    }
}

/// A herd as figures of a point: its counts now and at the window's begin, and the kernel memory of each connection.
pub fn figures(now: ColdCounts, before: ColdCounts, kernel_bytes_each: Option<f64>, window_ns: u64) -> Figures {
    {
        let mut figures = Figures::default();
        let established = now.established;
        figures.set(names::COLD, Figure::new(established as f64, "connections", 1, Origin::Counted));
        let dropped = now.dropped.saturating_sub(before.dropped);
        let per_sec = dropped as f64 * 1e9 / window_ns.max(1) as f64;
        figures.set(names::COLD_DROPPED, Figure::new(per_sec, "1/s", dropped, Origin::Counted));
        let user = now.user_bytes as f64 / established as f64;
        figures.set(names::COLD_USER_MEMORY, Figure::new(user, "bytes", established, Origin::Counted));
        let kernel = match kernel_bytes_each {
            Some(bytes) => Figure::new(bytes, "bytes", established, Origin::Sampled),
            None => Figure::not_measured("bytes", "the kernel's memory did not grow measurably with the herd"),
        };
        figures.set(names::COLD_KERNEL_MEMORY, kernel);
        figures
    }
}

impl Drop for ColdHerd {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Slab and socket buffer memory of the machine in bytes.
pub fn kernel_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let slab = meminfo.lines().find_map(|line| line.strip_prefix("Slab:"))?;
    let kib: u64 = slab.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
