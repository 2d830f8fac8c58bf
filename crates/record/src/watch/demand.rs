//! Service demands: the time that a request of a class spends being served at a resource, waiting excluded.

use super::Mean;
use serde::Serialize;

/// Demands of one class, per request.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Demand {
    /// Requests measured.
    pub requests: u64,
    /// CPU microseconds. The mean is exact; the interval shows its variation between readings.
    pub cpu_us: Option<Mean>,
    /// User part of the CPU time, microseconds, by the kernel's division of the whole group's time.
    pub cpu_user_us: Option<f64>,
    /// System part of the CPU time, microseconds.
    pub cpu_system_us: Option<f64>,
    /// Bytes that the thread read from disks, measured in windows.
    pub disk_bytes: Option<Mean>,
    /// Bytes sent; divided by the link's rate they are the demand on the network.
    pub network_bytes: Option<f64>,
}

/// The utilisation law for the server's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct UtilisationCheck {
    /// Sum of throughput times demand, in CPUs.
    pub predicted_cpus: f64,
    /// The scheduler's account, in CPUs.
    pub measured_cpus: f64,
    /// The part of the measured CPU time that no request explains.
    pub unexplained_ratio: f64,
}
