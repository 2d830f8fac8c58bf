use crate::check;
use crate::error::LoadError;
use record::LoadPlan;
use serde::{Deserialize, Serialize};

/// Descriptors reserved for other uses.
const SPARE: u64 = 128;

/// Capacity of a machine for cold connections to one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdRoom {
    /// Local ports of each source address.
    pub ports: u64,
    /// Source addresses.
    pub addresses: u64,
    /// File descriptors that the process may still open.
    pub descriptors: u64,
    /// Available memory.
    pub memory_bytes: u64,
}

/// This machine's capacity for cold connections of this plan.
pub fn room(plan: &LoadPlan) -> Result<ColdRoom, LoadError> {
    // With this many connections the plan uses all source addresses.
    let plan = LoadPlan { connections: u64::from(u32::MAX), threads: 1, ..plan.clone() };
    let rules = check::port_rules(&plan);
    check::check_sources(&plan)?;
    let addresses = plan.addresses.iter().map(|target| check::sources(&plan, *target, &rules).len()).min();
    Ok(ColdRoom {
        ports: rules.range(),
        addresses: addresses.unwrap_or(0) as u64,
        descriptors: record::machine::raise_descriptor_limit().saturating_sub(SPARE),
        memory_bytes: record::machine::meminfo_bytes("MemAvailable:").unwrap_or(0),
    })
}
