//! Cold connections: established, idle, and kept so while the hot ones are measured.
//!
//! Banga and Mogul ("Scalable kernel performance for Internet servers under realistic loads", 1998) call the client that
//! holds them the *load-adding* client: a server on a wide-area network has hundreds of idle connections for each active
//! one, and laboratory load has none. A herd is opened once and stays through many load points; connections that the
//! server drops are counted and opened again.

mod helper;
mod holder;
mod keeper;
mod room;

pub use helper::{LEFTOVERS, help};
pub use room::{ColdRoom, room};

use crate::check;
use crate::error::LoadError;
use helper::Helper;
use keeper::Keeper;
use record::time::monotonic_ns;
use record::{Figures, LoadPlan, Origin, names};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long no new cold connection may be established before a herd is given up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The herd's counts; all but `established` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ColdCounts {
    /// Connections established now, at the server's end, too.
    pub established: u64,
    /// Connections opened since the herd began.
    pub opened: u64,
    /// Connections that the server closed, spoke on, or did not have (its accept queue was full), and that were opened again.
    pub dropped: u64,
    /// Connection attempts that failed.
    pub failed: u64,
    /// CPU time of the herd's threads, nanoseconds.
    pub cpu_ns: u64,
    /// Memory that the herd allocated in its processes.
    pub user_bytes: u64,
}

/// What a thread or a helper reports of its part.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Told {
    #[serde(flatten)]
    counts: ColdCounts,
    /// Why it has ended, where it has by itself.
    trouble: Option<String>,
}

/// What a herd's thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    target: AtomicU64,
    is_ending: AtomicBool,
    told: Mutex<Told>,
}

impl Shared {
    fn report(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The place where established connections are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Tables of io_uring where the kernel has it, else descriptors.
    #[default]
    Best,
    /// Descriptors of this process, at most as many as its limit allows.
    Descriptors,
    /// Descriptors of several processes.
    Helpers,
}

impl Keep {
    /// What the environment demands with `STRAINGAUGE_COLD`: `descriptors` or `helpers`, for tests.
    pub fn of_environment() -> Keep {
        match std::env::var("STRAINGAUGE_COLD").unwrap_or_default().as_str() {
            "" => Keep::Best,
            "helpers" => Keep::Helpers,
            _ => Keep::Descriptors,
        }
    }
}

/// A part of a herd, and who keeps it.
#[derive(Debug)]
enum Part {
    Thread(Arc<Shared>, Option<JoinHandle<()>>),
    Helper(Helper),
}

/// A herd of cold connections on a separate thread, or in several helper processes. Dropping it closes them.
#[derive(Debug)]
pub struct ColdHerd {
    parts: Vec<Part>,
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
                if let Err(error) = keeper.keep(&theirs) {
                    theirs.report(|told| told.trouble = Some(error.io().to_string()));
                }
            })
            .map_err(|cause| LoadError::Machine { what: "start the thread of the cold connections", cause })?;
        Ok(ColdHerd::of(vec![Part::Thread(shared, Some(thread))], note))
    }

    /// Begins a herd of none that can grow to `most`: as [`begin`](Self::begin), or in several processes where one has too
    /// few descriptors or `keep` demands it. `program`: as in [`of_helpers`](Self::of_helpers).
    pub fn begin_anyhow(plan: &LoadPlan, most: u64, keep: Keep, program: &Path) -> Result<Self, LoadError> {
        let why = match keep {
            Keep::Helpers => "helpers are forced".into(),
            _ => match ColdHerd::begin(plan, most, keep) {
                Err(error @ LoadError::ColdDescriptors { .. }) => error.to_string(),
                begun => return begun,
            },
        };
        ColdHerd::of_helpers(plan, most, program, why)
    }

    /// Begins a herd of none in several processes, each of which holds no more connections than it may open descriptors. `program`
    /// calls [`help`] when it is started with the one argument `cold-helper`; `why` one process is not enough is part of every
    /// complaint.
    pub fn of_helpers(plan: &LoadPlan, most: u64, program: &Path, why: String) -> Result<Self, LoadError> {
        let helpers = helper::start(plan, most, program, &why)?;
        Ok(ColdHerd::of(helpers.into_iter().map(Part::Helper).collect(), Some(why)))
    }

    fn of(parts: Vec<Part>, note: Option<String>) -> Self {
        ColdHerd { parts, slab_before: kernel_memory(), slab_filled: None, note }
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
        self.aim(target)?;
        let (mut nearest, mut since_ns) = (u64::MAX, monotonic_ns());
        loop {
            let counts = self.counts();
            if counts.established == target {
                self.slab_filled = kernel_memory();
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let distance = counts.established.abs_diff(target);
            if distance < nearest {
                (nearest, since_ns) = (distance, monotonic_ns());
            } else if monotonic_ns() - since_ns > patience.as_nanos() as u64 || self.parts.iter().any(Part::has_ended) {
                return Err(LoadError::Plan(self.why_not(target, counts)));
            }
            progress(counts.established);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sets the target to `target` connections and does not wait for them.
    fn aim(&mut self, target: u64) -> Result<(), LoadError> {
        let mut left = target;
        for part in &mut self.parts {
            match part {
                Part::Thread(shared, _) => shared.target.store(std::mem::take(&mut left), Ordering::SeqCst),
                Part::Helper(helper) => {
                    let share = left.min(helper.most);
                    left -= share;
                    helper.aim(share)?;
                }
            }
        }
        match target - left {
            all if all == target => Ok(()),
            most => Err(LoadError::Plan(format!(
                "{target} cold connections are more than the {most} that were prepared for"
            ))),
        }
    }

    /// Whether each connection takes a descriptor, because io_uring is not available.
    pub fn keeps_descriptors(&self) -> bool {
        self.note.is_some()
    }

    fn why_not(&self, target: u64, counts: ColdCounts) -> String {
        let trouble = self.parts.iter().find_map(|part| part.shared().told().trouble);
        let cause = trouble.unwrap_or_else(|| match counts {
            ColdCounts { dropped, .. } if dropped > 0 => {
                format!(
                    "the server closed {dropped} of them again: raise its limit of connections, its backlog and its idle timeout"
                )
            }
            ColdCounts { failed, .. } if failed > 0 => format!(
                "{failed} attempts failed: raise the server's limits of connections, descriptors and its backlog"
            ),
            _ => "the server accepts no more: raise its limits of connections and descriptors".into(),
        });
        let note = self.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
        format!("only {} of {target} cold connections are established: {cause}{note}", counts.established)
    }

    /// The counts now, of all parts.
    pub fn counts(&self) -> ColdCounts {
        let mut sum = ColdCounts::default();
        for part in &self.parts {
            sum.add(&part.shared().told().counts);
        }
        sum
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

impl ColdCounts {
    /// Adds the counts of another herd.
    pub fn add(&mut self, other: &ColdCounts) {
        let ColdCounts { established, opened, dropped, failed, cpu_ns, user_bytes } = *other;
        for (mine, theirs) in [
            (&mut self.established, established),
            (&mut self.opened, opened),
            (&mut self.dropped, dropped),
            (&mut self.failed, failed),
            (&mut self.cpu_ns, cpu_ns),
            (&mut self.user_bytes, user_bytes),
        ] {
            *mine = mine.saturating_add(theirs);
        }
    }
}

/// Cold connections as figures of a point; `before` are the counts at the window's begin, `kernel_bytes` the kernel's
/// memory for each, where it is known.
pub fn figures(now: ColdCounts, before: ColdCounts, kernel_bytes: Option<f64>, window_ns: u64) -> Figures {
    let mut figures = Figures::default();
    let established = now.established;
    figures.measured(names::COLD, established as f64, 1, Origin::Counted);
    let dropped = now.dropped.saturating_sub(before.dropped);
    let per_sec = dropped as f64 * 1e9 / window_ns.max(1) as f64;
    figures.measured(names::COLD_DROPPED, per_sec, dropped, Origin::Counted);
    let user = now.user_bytes as f64 / established as f64;
    figures.measured(names::COLD_USER_MEMORY, user, established, Origin::Counted);
    let why_not = "the kernel's memory did not grow measurably with the herd";
    figures.found(names::COLD_KERNEL_MEMORY, kernel_bytes, (established, Origin::Sampled), why_not);
    figures
}

impl Part {
    fn shared(&self) -> &Shared {
        match self {
            Part::Thread(shared, _) => shared,
            Part::Helper(helper) => &helper.shared,
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Part::Thread(_, thread) => thread.as_ref().is_none_or(JoinHandle::is_finished),
            Part::Helper(helper) => helper.shared.told().trouble.is_some(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Part::Thread(shared, thread) = self {
            shared.is_ending.store(true, Ordering::SeqCst);
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// Slab and socket buffer memory of the machine in bytes.
fn kernel_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let slab = meminfo.lines().find_map(|line| line.strip_prefix("Slab:"))?;
    let kib: u64 = slab.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
