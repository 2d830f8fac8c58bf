//! Service demands: the time that a request of a class spends being served at a resource, waiting excluded.

use super::Estimate;
use serde::Serialize;

/// Demands of one class. Per request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Demand {
    /// Requests that it rests on.
    pub requests: u64,
    /// CPU microseconds: the mean is exact; the interval is of its variation between readings.
    pub cpu_us: Option<Estimate>,
    /// User part, by the kernel's division of the whole group's time.
    pub cpu_user_us: Option<f64>,
    /// System part.
    pub cpu_system_us: Option<f64>,
    /// Bytes read from disks by the thread, from windows.
    pub disk_bytes: Option<Estimate>,
    /// Bytes sent; by the link's rate they are the network's demand.
    pub network_bytes: Option<f64>,
}

/// The law on the server's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UtilisationCheck {
    /// Sum of throughput times demand, in CPUs.
    pub predicted_cpus: f64,
    /// The scheduler's account, in CPUs.
    pub measured_cpus: f64,
    /// Part of the measured that no request explains.
    pub unexplained_ratio: f64,
}
