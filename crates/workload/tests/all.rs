//! Tests of the workload crate: logs, plans, series, mixes and trees.

mod suite {
    pub mod arrival;
    pub mod data;
    pub mod files;
    pub mod mix;
    pub mod nginx;
    pub mod replay;
    pub mod trace;
    pub mod trace_parts;
}
