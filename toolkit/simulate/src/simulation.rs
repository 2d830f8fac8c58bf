//! The result of a simulation. The program counts it, prints it as JSON and keeps it as `simulation.json`. Every
//! number is simulated: exact for the model, but not for a real processor. Counts are whole numbers over the window.

use model::geometry::Geometry;
pub use objects::{Distances, Field, Line, Object, Packed};
mod objects;

use record::layers::Layer;
use record::{Origin, adds_up};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// The file's name in a run directory.
pub const FILE: &str = "simulation.json";
const MAX_BYTES: u64 = 256 << 20;
/// Maximum number of points; no run has more.
const MAX_POINTS: usize = 2000;
const MAX_LEVELS: usize = 8;

/// Why a simulation cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The file does not exist.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file was not written by a simulation.
    #[error("{path} is not a simulation: {why}")]
    Malformed {
        /// The file.
        path: String,
        /// The error.
        why: String,
    },
}

/// All points.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Simulation {
    /// The origin of the numbers: [`Origin::Simulated`].
    pub origin: Origin,
    /// Text on the meaning of a count.
    #[serde(default)]
    pub unit: String,
    /// The emulator's description of itself.
    #[serde(default)]
    pub qemu: String,
    /// The guest's kernel.
    #[serde(default)]
    pub kernel: String,
    /// The caches, if they were simulated.
    pub caches: Option<Caches>,
    /// Prices for the estimate of cycles.
    pub cost: Option<Cost>,
    /// The points, in the order of the plan.
    #[serde(default)]
    pub points: Vec<Point>,
}

/// The simulated caches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Caches {
    /// The format of a geometry.
    #[serde(default)]
    pub format: String,
    /// First level for instructions.
    pub l1i: Geometry,
    /// First level for data.
    pub l1d: Geometry,
    /// Second level. All see the same misses of L1, and none affects another.
    pub l2: Vec<Geometry>,
    /// Third level after the first L2.
    pub l3: Option<Geometry>,
    /// TLB of instructions. Its lines are pages.
    pub itlb: Option<Geometry>,
    /// TLB of data. Its lines are pages.
    pub dtlb: Option<Geometry>,
    /// Whether each L2 loads the next line when it misses.
    #[serde(default)]
    pub next_line_prefetch: bool,
}

/// Cycles of events in a model without overlap, which is an upper bound for an out-of-order processor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cost {
    /// Cycles of an instruction.
    pub instruction: f64,
    /// Cycles of a miss of L1I or L1D.
    pub l1_miss: f64,
    /// Additional cycles of a miss of the first L2.
    pub l2_miss: f64,
}

/// A load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PointPlan {
    /// Open connections.
    pub connections: u64,
    /// Packets (of the microbenchmark) or requests per second over all connections. For a server, 0 means a closed
    /// loop.
    pub rate_per_sec: u64,
    /// One-way delay of the path.
    pub delay_us: u64,
}

/// A load, and a sample of it for each seed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Point {
    /// Open connections.
    pub connections: u64,
    /// Packets (of the microbenchmark) or requests per second over all connections. For a server, 0 means a closed
    /// loop.
    pub rate_per_sec: u64,
    /// One-way delay of the path.
    pub delay_us: u64,
    /// Number of samples.
    pub n: u64,
    /// The samples of all seeds.
    pub samples: Vec<Sample>,
}

/// The counts of one run of a point on the server's CPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Sample {
    /// The seed of its boot.
    pub seed: u64,
    /// Packets that the server's link sent in the window, by which figures per packet are divided.
    pub sent: u64,
    /// Packets that it received.
    pub received: u64,
    /// Length of the window in guest time, in which an instruction takes 1 ns.
    pub window_ns: u64,
    /// Instructions of the client's end in the window, which were executed but not counted.
    pub client_instructions: u64,
    /// Counts by row of the layer table, and user code.
    pub rows: Vec<Row>,
    /// Counts of helpers whose caller is unknown.
    pub unattributed: Counts,
    /// Counts of the network stack: all rows but User, Other, Idle and the unattributed (the paper's "Overall
    /// Stack").
    pub stack: Counts,
    /// Sum of all counts.
    pub all: Counts,
    /// Instructions of functions that the layer table does not list, which were charged like helpers.
    pub unclassified_instructions: u64,
    /// The functions with most misses of the first L2, and those with most instructions.
    pub functions: Vec<Function>,
    /// Misses by size, if they were requested.
    pub curve: Option<Curve>,
    /// Accesses and misses by kind of memory, sorted by misses of the first L2, if requested and known.
    pub objects: Option<Vec<Object>>,
    /// Why counts by kind of memory are unknown.
    pub objects_not_known: Option<String>,
    /// Misses of the L2 geometries for instruction fetches.
    pub code_l2_misses: CodeMisses,
    /// The effect of other layouts of objects.
    pub packed: Vec<Packed>,
    /// Counts of the stack with these layouts.
    pub stack_packed: Option<Counts>,
    /// The load engine's own JSON from the guest, if a server ran.
    pub load: Option<serde_json::Value>,
}

/// Counts of a layer, or of a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Row {
    /// The layer and its part.
    #[serde(flatten)]
    pub row: record::layers::Row,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Counts of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// Instructions; a repeated string instruction counts once.
    pub instructions: u64,
    /// Further elements of repeated string instructions.
    pub repeats: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Cache counts; absent if no caches were simulated.
    #[serde(flatten)]
    pub caches: Option<CacheCounts>,
}

/// Misses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CacheCounts {
    /// Instruction fetches that missed L1I, one per line.
    #[serde(default)]
    pub l1i_misses: u64,
    /// Reads and writes that missed L1D, one per line. Absent if no caches were simulated.
    pub l1d_misses: u64,
    /// Dirty lines that left L1D.
    #[serde(default)]
    pub l1d_write_backs: u64,
    /// Instruction pages that missed the ITLB.
    #[serde(default)]
    pub itlb_misses: u64,
    /// Data pages that missed the DTLB.
    #[serde(default)]
    pub dtlb_misses: u64,
    /// The L2 geometries.
    #[serde(default)]
    pub l2: Vec<Level>,
    /// The L3 after the first L2.
    #[serde(default)]
    pub l3: Level,
}

/// Counts of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Level {
    /// Instruction fetches that missed.
    pub fetch_misses: u64,
    /// Reads and writes that missed.
    pub data_misses: u64,
    /// Dirty lines that were replaced.
    pub write_backs: u64,
    /// Lines that the prefetcher loaded.
    pub prefetches: u64,
    /// Prefetched lines that were used before they were replaced.
    pub useful_prefetches: u64,
}

/// Counts of a function that works for a layer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Function {
    /// Its name.
    pub function: String,
    /// The layer that it worked for.
    pub layer: Option<Layer>,
    /// Instructions.
    pub instructions: u64,
    /// Misses.
    #[serde(flatten)]
    pub caches: Option<CacheCounts>,
}

/// Misses of fully associative caches of all sizes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Curve {
    /// Accesses that reached L2.
    pub accesses: u64,
    /// Size in bytes, and the share of the accesses that miss a cache of this size.
    pub miss_ratio_by_bytes: Vec<(u64, f64)>,
}

/// Misses of instruction fetches, by L2 geometry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct CodeMisses {
    /// Misses in the kernel.
    pub kernel: Vec<u64>,
    /// Misses in programs.
    pub user: Vec<u64>,
}

impl Cost {
    /// The cycles of these counts.
    pub fn of(&self, counts: &Counts) -> f64 {
        self.instruction * counts.instructions as f64
            + self.l1_miss * counts.l1i_misses().saturating_add(counts.l1d_misses()) as f64
            + self.l2_miss * counts.l2_misses(0) as f64
    }
}

adds_up!(Level { fetch_misses, data_misses, write_backs, prefetches, useful_prefetches });
adds_up!(CacheCounts { l1i_misses, l1d_misses, l1d_write_backs, itlb_misses, dtlb_misses, l2, l3 });
adds_up!(Counts { instructions, repeats, reads, writes, caches });

impl Level {
    /// All misses.
    pub fn misses(&self) -> u64 {
        self.fetch_misses.saturating_add(self.data_misses)
    }
}

impl CacheCounts {
    /// Misses of an L2 for code and data.
    pub fn l2_misses(&self, level: usize) -> u64 {
        self.l2.get(level).map_or(0, Level::misses)
    }
}

impl Counts {
    /// Misses of L1I; 0 without caches, like all that follow.
    pub fn l1i_misses(&self) -> u64 {
        self.caches.as_ref().map_or(0, |caches| caches.l1i_misses)
    }

    /// Misses of L1D.
    pub fn l1d_misses(&self) -> u64 {
        self.caches.as_ref().map_or(0, |caches| caches.l1d_misses)
    }

    /// Misses of the ITLB.
    pub fn itlb_misses(&self) -> u64 {
        self.caches.as_ref().map_or(0, |caches| caches.itlb_misses)
    }

    /// Misses of the DTLB.
    pub fn dtlb_misses(&self) -> u64 {
        self.caches.as_ref().map_or(0, |caches| caches.dtlb_misses)
    }

    /// Misses of an L2 for code and data.
    pub fn l2_misses(&self, level: usize) -> u64 {
        self.caches.as_ref().map_or(0, |caches| caches.l2_misses(level))
    }

    /// Counts of an L2.
    pub fn l2(&self, level: usize) -> Level {
        self.caches.as_ref().and_then(|caches| caches.l2.get(level)).copied().unwrap_or_default()
    }

    /// Counts of the L3.
    pub fn l3(&self) -> Level {
        self.caches.as_ref().map_or(Level::default(), |caches| caches.l3)
    }
}

impl Sample {
    /// Counts of a layer with all its parts.
    pub fn layer(&self, layer: Layer) -> Counts {
        self.sum(|row| row.layer == layer)
    }

    /// Computes [`Sample::stack`] and [`Sample::all`] from the rows and the unattributed.
    pub fn add_up(&mut self) {
        self.stack = self.sum(|row| row.layer.is_stack());
        self.all = self.sum(|_| true);
        self.all.add(&self.unattributed);
    }

    /// Counts of the load engine in the guest, in a window that ends a little after the count; `None` without one.
    pub fn load_point(&self) -> Option<record::Point> {
        record::Point::deserialize(self.load.as_ref()?.get("point")?).ok()
    }

    /// Packets that the server sent for each response. The two windows differ a little, so rates are compared.
    pub fn packets_per_answer(&self, load: &record::Point) -> Option<f64> {
        let answers_per_sec = load.value(record::names::THROUGHPUT)?;
        Some(self.sent as f64 * 1e9 / self.window_ns as f64 / answers_per_sec)
    }

    fn sum(&self, is_meant: impl Fn(&record::layers::Row) -> bool) -> Counts {
        let mut sum = Counts::default();
        self.rows.iter().filter(|row| is_meant(&row.row)).for_each(|row| sum.add(&row.counts));
        sum
    }
}

impl Point {
    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
        self.n = self.samples.len() as u64;
    }
}

impl Simulation {
    /// Whether a run directory holds a simulation.
    pub fn is_in(run: &Path) -> bool {
        run.join(FILE).is_file()
    }

    /// Reads the simulation of a run directory, which is untrusted and may come from an interrupted run.
    pub fn open(run: &Path) -> Result<Simulation, SimulationError> {
        let file = run.join(FILE);
        let path = || file.display().to_string();
        let unreadable = |source| SimulationError::Unreadable { path: path(), source };
        let mut bytes = Vec::new();
        std::fs::File::open(&file).map_err(unreadable)?.take(MAX_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        Simulation::parse(&bytes).map_err(|why| SimulationError::Malformed { path: path(), why })
    }

    /// Parses the file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Simulation, String> {
        let mut simulation: Simulation = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
        if simulation.origin != Origin::Simulated {
            return Err("its numbers are not marked as simulated".into());
        }
        simulation.points.truncate(MAX_POINTS);
        Ok(simulation)
    }

    /// Writes JSON with the members sorted by name.
    pub fn to_json(&self) -> String {
        let value = serde_json::to_value(self).expect("a simulation has only string keys");
        serde_json::to_string_pretty(&value).expect("a value is text")
    }

    /// Number of L2 geometries.
    pub fn levels(&self) -> usize {
        self.caches.as_ref().map_or(0, |caches| caches.l2.len()).min(MAX_LEVELS)
    }

    /// Size of an L2.
    pub fn l2_bytes(&self, level: usize) -> Option<u64> {
        self.caches.as_ref()?.l2.get(level).map(Geometry::size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_kept_simulation_is_written_as_it_was_read() {
        let kept = include_bytes!("../tests/simulation.json");
        let read = Simulation::parse(kept).unwrap();
        let before: Value = serde_json::from_slice(kept).unwrap();
        let after: Value = serde_json::from_str(&read.to_json()).unwrap();
        assert!(before == after, "a member was lost, added or changed");
        for sample in read.points.iter().flat_map(|point| &point.samples) {
            let mut summed = sample.clone();
            summed.add_up();
            assert_eq!((&summed.stack, &summed.all), (&sample.stack, &sample.all));
        }
    }

    #[test]
    fn counts_without_caches_have_no_misses() {
        let counts: Counts = serde_json::from_value(json!({ "instructions": 3 })).unwrap();
        assert_eq!((counts.caches.as_ref(), counts.l1d_misses()), (None, 0));
        assert_eq!(
            serde_json::to_value(&counts).unwrap(),
            json!({ "instructions": 3, "repeats": 0, "reads": 0, "writes": 0 })
        );
    }

    #[test]
    fn measured_and_damaged_runs_are_refused() {
        let refused = |text: &str| Simulation::parse(text.as_bytes()).unwrap_err();
        assert!(refused("{\"origin\": \"timed\"}").contains("simulated"));
        for text in ["{}", "[", "{\"origin\": \"simulated\", \"points\": 3}"] {
            refused(text);
        }
        let caches = json!({ "l1i": "1/2/3", "l1d": "65536/2/64/lru", "l2": [] });
        assert!(refused(&json!({ "origin": "simulated", "caches": caches }).to_string()).contains("'1/2/3'"));
        let nothing = Simulation::parse(b"{\"origin\": \"simulated\"}").unwrap();
        assert_eq!((nothing.levels(), nothing.points.len()), (0, 0));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,100}") {
            let _ = Simulation::parse(text.as_bytes());
        }
    }
}
