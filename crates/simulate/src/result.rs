//! What was counted. Every number here is simulated: exact for the model, whatever a real processor would have done.

use crate::cache::{Counts, MOST_L2, Setup};
use crate::objects_found::{ObjectRow, PackedRow};
use record::layers::{Layer, Row};

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointPlan {
    /// Open connections.
    pub connections: u64,
    /// Packets (of the microbenchmark) or requests a second, over all connections; for a server 0 is a closed loop.
    pub rate_per_sec: u64,
    /// One-way delay of the path.
    pub delay_us: u64,
}

/// All points.
#[derive(Debug, Clone)]
pub struct Report {
    /// How the numbers came about.
    pub origin: record::Origin,
    /// The emulator, in its own words.
    pub qemu: String,
    /// The guest's kernel.
    pub kernel: String,
    /// The caches, if they were simulated.
    pub caches: Option<Setup>,
    /// Costs by which cycles are estimated.
    pub cost: Option<Cost>,
    /// The points in the order of the plan.
    pub points: Vec<PointReport>,
}

/// Cycles of events: a model that lets nothing overlap, so an upper bound where a processor works out of order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Of an instruction.
    pub instruction: f64,
    /// Of a miss of L1I or L1D.
    pub l1_miss: f64,
    /// Of a miss of the first L2, on top.
    pub l2_miss: f64,
}

impl Cost {
    /// Cycles of these events.
    pub fn of(&self, counts: &RowCounts) -> f64 {
        self.instruction * counts.instructions as f64
            + self.l1_miss * (counts.caches.l1i_misses + counts.caches.l1d_misses) as f64
            + self.l2_miss * counts.caches.l2[0].misses() as f64
    }
}

/// A load, and a sample of it for each seed.
#[derive(Debug, Clone)]
pub struct PointReport {
    /// What was asked.
    pub plan: PointPlan,
    /// By seed.
    pub samples: Vec<Sample>,
}

/// What one run of a point counted on the server's CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The seed of its boot.
    pub seed: u64,
    /// Packets that the server's link sent in the window; what is said per packet is divided by this.
    pub sent: u64,
    /// Packets that it received.
    pub received: u64,
    /// The window in the guest's time, in which an instruction takes 1 ns.
    pub window_ns: u64,
    /// Instructions of the client's end in the window, which was executed and not accounted for.
    pub client_instructions: u64,
    /// Counts by row of the layer table, and user code.
    pub rows: Vec<(Row, RowCounts)>,
    /// Counts of helpers whose caller is not known.
    pub unattributed: RowCounts,
    /// Instructions of functions that the layer table does not know; they were charged like helpers.
    pub unclassified_instructions: u64,
    /// The functions with most misses of the first L2 and with most instructions.
    pub functions: Vec<FunctionCounts>,
    /// Accesses that L2 saw, and the share of them that a fully associative one of each size in bytes would miss.
    pub curve: Option<(u64, Vec<(u64, f64)>)>,
    /// Accesses and misses by kind of memory, most misses of the first L2 first; empty if that was not asked for, and why it
    /// is not known where it was.
    pub objects: Result<Vec<ObjectRow>, String>,
    /// Misses of the L2 geometries by fetches of the kernel's code, and of the user's.
    pub code: [[u64; MOST_L2]; 2],
    /// What other layouts of objects do.
    pub packed: Vec<PackedRow>,
    /// Counts of the stack with these layouts.
    pub stack_packed: Option<RowCounts>,
    /// What the load engine said in the guest (its own JSON).
    pub load: Option<String>,
}

/// Counts of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowCounts {
    /// Instructions; a repeated string instruction counts once.
    pub instructions: u64,
    /// Further elements of repeated string instructions.
    pub repeats: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// What the caches made of them.
    pub caches: Counts,
}

/// Counts of a function on behalf of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionCounts {
    /// Its name.
    pub function: String,
    /// The layer that it worked for.
    pub layer: Option<Layer>,
    /// Instructions.
    pub instructions: u64,
    /// Misses.
    pub caches: Counts,
}

/// What the load engine counted in the guest, in a window of its own that ends a little after the count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadAccount {
    /// Complete responses.
    pub answers: u64,
    /// Requests without one, and responses with an error's status.
    pub failed: u64,
    /// Connections that were opened, those before the window among them.
    pub connects: u64,
    /// Bytes of the bodies.
    pub body_bytes: f64,
    /// Responses per second of the guest's time.
    pub answers_per_sec: f64,
}

impl RowCounts {
    fn add(&mut self, other: &RowCounts) {
        self.instructions += other.instructions;
        self.repeats += other.repeats;
        self.reads += other.reads;
        self.writes += other.writes;
        self.caches += &other.caches;
    }
}

impl Sample {
    /// Counts of a layer with all its parts.
    pub fn layer(&self, layer: Layer) -> RowCounts {
        self.sum(|row| row.layer == layer)
    }

    /// Counts of the network stack: all but User, Other, Idle and what is unattributed (the paper's "Overall Stack").
    pub fn stack(&self) -> RowCounts {
        self.sum(|row| row.layer.is_stack())
    }

    /// Everything.
    pub fn all(&self) -> RowCounts {
        let mut all = self.sum(|_| true);
        all.add(&self.unattributed);
        all
    }

    /// What the load engine counted, if there was one and it said so.
    pub fn load_account(&self) -> Option<LoadAccount> {
        let said: serde_json::Value = serde_json::from_str(self.load.as_deref()?).ok()?;
        let point: record::Point = serde_json::from_value(said.get("point")?.clone()).ok()?;
        Some(LoadAccount {
            answers: point.outcomes.completed(),
            failed: point.outcomes.failed(),
            connects: point.outcomes.connects,
            body_bytes: point.figures.value(record::names::BODY_BYTES)?,
            answers_per_sec: point.figures.value(record::names::THROUGHPUT)?,
        })
    }

    /// Packets that the server sent for each response.
    pub fn packets_per_answer(&self, load: &LoadAccount) -> f64 {
        self.sent as f64 * 1e9 / self.window_ns as f64 / load.answers_per_sec
    }

    fn sum(&self, is_meant: impl Fn(&Row) -> bool) -> RowCounts {
        let mut sum = RowCounts::default();
        self.rows.iter().filter(|(row, _)| is_meant(row)).for_each(|(_, counts)| sum.add(counts));
        sum
    }
}
