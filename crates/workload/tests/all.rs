//! The workload crate from outside: logs in, plans, series, mixes and trees out.

mod suite {
    pub mod arrival;
    pub mod data;
    pub mod files;
    pub mod mix;
    pub mod nginx;
    pub mod replay;
    pub mod trace;
}
