//! The workload crate from outside: logs in, plans, series, mixes and trees out.

mod suite {
    pub mod data;
    pub mod replay;
    pub mod trace;
}
