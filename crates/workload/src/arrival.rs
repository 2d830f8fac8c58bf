//! Turns a measured rate series into the arrivals of an open loop, to repeat a real surge on any server.
//!
//! The series gives the shape; the caller gives the mean rate and the total duration. Within each interval of the
//! series the arrivals are a Poisson process of constant rate, so the whole is a nonhomogeneous Poisson process whose
//! rate is a step function (Lewis & Shedler, Simulation of Nonhomogeneous Poisson Processes, 1979; here by inversion
//! of the cumulative rate, which for steps is exact and takes O(1) time and memory for each arrival).

mod process;
mod series;

pub use process::{ArrivalTimes, SeriesPlan};
pub use series::RateSeries;
