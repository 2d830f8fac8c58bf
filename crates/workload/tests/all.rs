//! Tests of the workload crate's public interface: logs, plans, series, mixes and trees.

mod suite {
    pub mod arrival;
    pub mod data;
    pub mod files;
    pub mod mix;
    pub mod nginx;
    pub mod replay;
    pub mod trace;
}
