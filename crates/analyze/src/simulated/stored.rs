//! Reads `simulation.json` of a run directory: untrusted, perhaps of a run that was interrupted.

use serde::Deserialize;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// The file's name.
pub const FILE: &str = "simulation.json";
const MOST_BYTES: u64 = 256 << 20;
/// More than a run has.
const MOST_POINTS: usize = 2000;
const MOST_LEVELS: usize = 8;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// No such file.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not what a simulation writes.
    #[error("{path} is no simulation: {why}")]
    Malformed {
        /// Which file.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// All of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Simulation {
    /// Must be `simulated`.
    pub origin: String,
    /// The emulator.
    pub qemu: String,
    /// The guest's kernel.
    pub kernel: String,
    /// The caches.
    pub caches: Option<Caches>,
    /// Costs of which cycles are modelled.
    pub cost: Option<Cost>,
    /// In the order of the plan.
    pub points: Vec<Point>,
    /// As it was read, for JSON.
    #[serde(skip)]
    pub value: Value,
}

/// Geometries, as `bytes/ways/line bytes/replacement`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Caches {
    /// First level, data.
    pub l1d: String,
    /// Second level, each.
    pub l2: Vec<String>,
    /// Third level, if there is one.
    pub l3: Option<String>,
}

/// Cycles of events.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Cost {
    /// Of an instruction.
    pub instruction: f64,
    /// Of a miss of L1, instructions or data.
    pub l1_miss: f64,
    /// Of a miss of L2, on top.
    pub l2_miss: f64,
}

/// A point.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Point {
    /// Open connections.
    pub connections: u64,
    /// Packets or requests a second; 0: a closed loop.
    pub rate_per_sec: u64,
    /// One-way delay.
    pub delay_us: u64,
    /// By seed.
    pub samples: Vec<Sample>,
}

/// Counts of one run of a point.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Seed of its boot.
    pub seed: u64,
    /// Packets sent.
    pub sent: f64,
    /// The window in the guest's time.
    pub window_ns: f64,
    /// By layer and part.
    pub rows: Vec<Counts>,
    /// Nobody's.
    pub unattributed: Counts,
    /// The network stack.
    pub stack: Counts,
    /// Everything.
    pub all: Counts,
    /// By kind of memory.
    pub objects: Option<Vec<Object>>,
    /// Why that is not known.
    pub objects_not_known: Option<String>,
    /// Other layouts.
    pub packed: Vec<Packed>,
    /// The stack with these.
    pub stack_packed: Option<Counts>,
    /// What the load engine counted in the guest, where a server ran.
    pub load: Option<Load>,
}

/// The load engine's own account.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Its point.
    pub point: LoadPoint,
}

/// What is read of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LoadPoint {
    /// What became of the requests.
    pub outcomes: record::Outcomes,
    /// Rates and bytes.
    pub figures: record::Figures,
}

/// Counts of a row.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// The layer's word.
    pub layer: String,
    /// Instructions.
    pub instructions: f64,
    /// Misses of L1I.
    pub l1i_misses: f64,
    /// Misses of L1D.
    pub l1d_misses: f64,
    /// Misses of the TLBs.
    pub itlb_misses: f64,
    /// See above.
    pub dtlb_misses: f64,
    /// By L2 geometry.
    pub l2: Vec<Level>,
}

/// Counts of a level.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Level {
    /// Fetches that missed.
    pub fetch_misses: f64,
    /// Reads and writes that missed.
    pub data_misses: f64,
}

/// A kind of memory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    /// Slab cache or kind.
    pub name: String,
    /// The structure, if known.
    pub structure: Option<String>,
    /// Bytes from one object to the next.
    pub stride_bytes: u64,
    /// Loads.
    pub reads: f64,
    /// Stores.
    pub writes: f64,
    /// Misses of L1D.
    pub l1d_misses: f64,
    /// Misses by L2 geometry.
    pub l2_misses: Vec<f64>,
    /// What a prefetch could hide.
    pub misses_by_instructions_since_visit: Distances,
    /// Lines of it.
    pub lines: Vec<Line>,
}

/// Misses by distance from a visit's begin.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Distances {
    /// Upper ends of the classes.
    pub below: Vec<f64>,
    /// Misses of each class, and one more beyond the last.
    pub counts: Vec<f64>,
}

/// A line of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Line {
    /// Bytes from the object's begin.
    pub offset: u64,
    /// Loads and stores.
    pub accesses: f64,
    /// Misses of the first L2.
    pub l2_misses: f64,
    /// Fields, most accessed first.
    pub fields: Vec<String>,
}

/// Another layout.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Packed {
    /// Structure.
    pub object: String,
    /// Misses by L2 geometry, as it is.
    pub l2_misses_before: Vec<f64>,
    /// The same when packed.
    pub l2_misses_after: Vec<f64>,
    /// Lines in use.
    pub lines_before: u64,
    /// The same when packed.
    pub lines_after: u64,
}

impl Packed {
    /// Misses as it is.
    pub fn before(&self, level: usize) -> f64 {
        self.l2_misses_before.get(level).copied().unwrap_or(0.0)
    }

    /// Misses when packed.
    pub fn after(&self, level: usize) -> f64 {
        self.l2_misses_after.get(level).copied().unwrap_or(0.0)
    }
}

impl Object {
    /// Misses of an L2.
    pub fn l2_misses(&self, level: usize) -> f64 {
        self.l2_misses.get(level).copied().unwrap_or(0.0)
    }

    /// Structure, else cache, made safe.
    pub fn title(&self) -> String {
        crate::text::plain(self.structure.as_deref().unwrap_or(&self.name), 60)
    }
}

impl Counts {
    /// Misses of an L2, of code and data.
    pub fn l2_misses(&self, level: usize) -> f64 {
        self.l2.get(level).map_or(0.0, |level| level.fetch_misses + level.data_misses)
    }
}

impl Sample {
    /// Sum over the parts of a layer.
    pub fn layer(&self, word: &str, count: impl Fn(&Counts) -> f64) -> f64 {
        self.rows.iter().filter(|row| row.layer == word).map(count).sum()
    }
}

impl Point {
    /// `128 connections, 20 ms one way`.
    pub fn words(&self) -> String {
        let mut words = format!("{} connections", self.connections);
        if self.delay_us > 0 {
            words.push_str(&format!(", {} ms one way", self.delay_us as f64 / 1000.0));
        }
        words
    }
}

impl Simulation {
    /// Whether a run directory holds one.
    pub fn is_in(run: &Path) -> bool {
        run.join(FILE).is_file()
    }

    /// Reads it.
    pub fn open(run: &Path) -> Result<Simulation, SimulationError> {
        let file = run.join(FILE);
        let path = || file.display().to_string();
        let unreadable = |source| SimulationError::Unreadable { path: path(), source };
        let mut bytes = Vec::new();
        std::fs::File::open(&file).map_err(unreadable)?.take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
        Simulation::parse(&bytes).map_err(|why| SimulationError::Malformed { path: path(), why })
    }

    /// Reads its bytes.
    pub fn parse(bytes: &[u8]) -> Result<Simulation, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
        let mut simulation: Simulation = serde_json::from_value(value.clone()).map_err(|why| why.to_string())?;
        if simulation.origin != "simulated" {
            return Err("its numbers do not say that they are simulated".into());
        }
        simulation.points.truncate(MOST_POINTS);
        simulation.value = value;
        Ok(simulation)
    }

    /// L2 geometries.
    pub fn levels(&self) -> usize {
        self.caches.as_ref().map_or(0, |caches| caches.l2.len()).min(MOST_LEVELS)
    }

    /// Size of an L2.
    pub fn l2_bytes(&self, level: usize) -> Option<f64> {
        let geometry = self.caches.as_ref()?.l2.get(level)?;
        geometry.split('/').next()?.parse().ok()
    }

    /// Groups of points that differ in one quantity alone, by rising value of it; two points or more, the largest first.
    pub fn along(&self, quantity: impl Fn(&Point) -> u64) -> Vec<Vec<&Point>> {
        let fixed = |point: &Point| {
            let own = quantity(point);
            let of = |value: u64, is_own: bool| if is_own { 0 } else { value };
            let all = [point.connections, point.rate_per_sec, point.delay_us];
            // The quantity is one of the three, told by what changes when a point differs in it alone.
            let probe = |index: usize| {
                let mut other =
                    Point { connections: all[0], rate_per_sec: all[1], delay_us: all[2], ..Point::default() };
                match index {
                    0 => other.connections ^= 1,
                    1 => other.rate_per_sec ^= 1,
                    _ => other.delay_us ^= 1,
                }
                quantity(&other) != own
            };
            [of(all[0], probe(0)), of(all[1], probe(1)), of(all[2], probe(2))]
        };
        let mut groups: std::collections::BTreeMap<[u64; 3], Vec<&Point>> = std::collections::BTreeMap::new();
        for point in self.points.iter().filter(|point| !point.samples.is_empty()) {
            groups.entry(fixed(point)).or_default().push(point);
        }
        let mut groups: Vec<Vec<&Point>> = groups.into_values().collect();
        for group in &mut groups {
            group.sort_by_key(|point| quantity(point));
            group.dedup_by_key(|point| quantity(point));
        }
        groups.retain(|group| group.len() > 1);
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        groups
    }
}
