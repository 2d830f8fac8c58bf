//! Accesses and misses by kind of memory, down to the fields of kernel objects, and the effects of other layouts.

use serde::{Deserialize, Serialize};

/// A kind of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Object {
    /// Name of the slab cache, or of the kind.
    pub name: String,
    /// The structure of its objects, if known.
    pub structure: Option<String>,
    /// Distance from one object to the next in bytes; 0 without objects.
    pub stride_bytes: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Misses of L1D.
    pub l1d_misses: u64,
    /// Misses of the L2 geometries.
    pub l2_misses: Vec<u64>,
    /// Number of times that another object than the last one was touched.
    pub visits: u64,
    /// Misses of the first L2 by instructions since the visit began, which a prefetch could hide.
    pub misses_by_instructions_since_visit: Distances,
    /// Fields that were touched, by offset.
    pub fields: Vec<Field>,
    /// Lines of 64 bytes of the object that were touched.
    pub lines: Vec<Line>,
    /// Misses of the first L2 by variable, sorted.
    pub variables: Vec<(String, u64)>,
}

/// Misses by distance from the start of a visit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Distances {
    /// Upper ends of the classes.
    pub below: Vec<u64>,
    /// Misses of each class, and of one more class beyond the last.
    pub counts: Vec<u64>,
}

/// A field, or several that share four bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Offset in bytes from the object's beginning.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Misses of the first L2.
    pub l2_misses: u64,
}

/// A line of 64 bytes of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Line {
    /// Offset in bytes from the object's beginning.
    pub offset: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Misses of the first L2.
    pub l2_misses: u64,
    /// Its fields with most accesses, sorted.
    pub fields: Vec<String>,
}

/// The effect of another layout of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Packed {
    /// The structure, or the slab cache.
    pub object: String,
    /// Its misses at the L2 geometries with the original layout.
    pub l2_misses_before: Vec<u64>,
    /// Its misses with the fields in the order of their accesses.
    pub l2_misses_after: Vec<u64>,
    /// Lines that at least a tenth of the visits touch, with the original layout.
    pub lines_before: u64,
    /// The same lines when packed.
    pub lines_after: u64,
}

impl Object {
    /// The structure's name, or else the cache's.
    pub fn title(&self) -> &str {
        self.structure.as_deref().unwrap_or(&self.name)
    }

    /// Loads and stores.
    pub fn accesses(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// Misses of the second-level cache of this index.
    pub fn l2_misses(&self, level: usize) -> u64 {
        self.l2_misses.get(level).copied().unwrap_or(0)
    }

    /// Lines that at least a tenth of the visits touch.
    pub fn lines_in_use(&self) -> u64 {
        self.lines.iter().filter(|line| line.accesses.saturating_mul(10) >= self.visits).count() as u64
    }
}

impl Packed {
    /// Misses of an L2 with the original layout.
    pub fn before(&self, level: usize) -> u64 {
        self.l2_misses_before.get(level).copied().unwrap_or(0)
    }

    /// Misses of an L2 when packed.
    pub fn after(&self, level: usize) -> u64 {
        self.l2_misses_after.get(level).copied().unwrap_or(0)
    }
}
