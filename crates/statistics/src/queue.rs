//! A queue with Poisson arrivals: M/M/m, and M/G/1 by Pollaczek and Khinchine.

use serde::Serialize;

/// Erlang's C: the probability that an arrival to M/M/m must wait at an offered load of `load` busy servers. Computed
/// by the recursion for Erlang's B, which does not overflow.
fn waiting_probability(servers: u32, load: f64) -> f64 {
    if load <= 0.0 {
        return 0.0;
    }
    let blocked = (1..=servers).fold(1.0, |blocked, m| load * blocked / (f64::from(m) + load * blocked));
    let utilisation = load / f64::from(servers);
    if utilisation >= 1.0 { 1.0 } else { blocked / (1.0 - utilisation * (1.0 - blocked)) }
}

/// A station with one queue and Poisson arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Queue {
    /// Busy share of each server.
    pub utilisation: f64,
    /// Probability that an arrival waits.
    pub waits_ratio: f64,
    /// Mean time before service begins, seconds.
    pub wait_s: f64,
    /// Mean wait and service, seconds.
    pub response_s: f64,
}

impl Queue {
    /// The waiting time, in seconds, that the share `quantile` of the arrivals does not exceed. Arrivals that wait do
    /// so for an exponential time. Exact for M/M/m; for general service it is the heavy-traffic approximation
    /// (Kingman, 1962).
    pub fn wait_quantile_s(&self, quantile: f64) -> f64 {
        let beyond = 1.0 - quantile;
        if self.waits_ratio <= beyond || self.wait_s <= 0.0 {
            return 0.0;
        }
        self.wait_s / self.waits_ratio * (self.waits_ratio / beyond).ln()
    }
}

/// M/G/m: the wait of M/M/m times (1 + c^2) / 2, where c^2 is the squared coefficient of variation of the service
/// time. With one server this is Pollaczek and Khinchine's formula, exact; with more it is Lee and Longton's (1959).
///
/// `None` for negative or missing numbers, and without a steady state (utilisation of 1 or more).
pub fn general_service(rate_per_sec: f64, service_s: f64, cv_squared: f64, servers: u32) -> Option<Queue> {
    let are_numbers = [rate_per_sec, service_s, cv_squared].iter().all(|value| value.is_finite() && *value >= 0.0);
    let load = rate_per_sec * service_s;
    let utilisation = load / f64::from(servers);
    // Without servers the utilisation is NaN.
    let is_steady = are_numbers && utilisation < 1.0;
    if !is_steady {
        return None;
    }
    let waits_ratio = waiting_probability(servers, load);
    let wait_s = waits_ratio * service_s / (f64::from(servers) * (1.0 - utilisation)) * (1.0 + cv_squared) / 2.0;
    Some(Queue { utilisation, waits_ratio, wait_s, response_s: wait_s + service_s })
}
