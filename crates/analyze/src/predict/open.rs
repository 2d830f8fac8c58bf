//! Open networks and single stations: several classes with Poisson arrivals, M/M/m, and M/G/1 by Pollaczek and Khinchine.

use super::network::{NetworkError, Service, Solution, Station, check, not_negative, solution};
use serde::Serialize;

/// Solves an open network: each class arrives as a Poisson process of its rate (Lazowska and others, 1984, section 7.3).
/// Several servers are solved as M/M/m, with the mean service time of the classes' mix.
pub fn open(stations: &[Station], rates_per_sec: &[f64]) -> Result<Solution, NetworkError> {
    check(stations, rates_per_sec.len())?;
    for (at, rate) in rates_per_sec.iter().enumerate() {
        not_negative(&format!("the arrival rate of class {at}"), *rate)?;
    }
    let mut residence = vec![vec![0.0; stations.len()]; rates_per_sec.len()];
    for (k, station) in stations.iter().enumerate() {
        let load: f64 = rates_per_sec.iter().zip(&station.demands_s).map(|(rate, demand)| rate * demand).sum();
        let stretch = match &station.service {
            Service::Delay => 1.0,
            Service::Queueing { servers } => {
                let utilisation = load / f64::from(*servers);
                if utilisation >= 1.0 {
                    return Err(NetworkError::Saturated { station: station.name.clone(), utilisation });
                }
                1.0 + waiting_probability(*servers, load) / (f64::from(*servers) * (1.0 - utilisation))
            }
            Service::LoadDependent { .. } => {
                let why = "load dependence is solved in closed networks of one class";
                return Err(NetworkError::Unsupported { station: station.name.clone(), why });
            }
        };
        for (times, demand) in residence.iter_mut().zip(&station.demands_s) {
            times[k] = demand * stretch;
        }
    }
    Ok(solution(stations, rates_per_sec.to_vec(), residence))
}

/// Erlang's C: the probability that an arrival to M/M/m must wait, with an offered load of `load` busy servers.
/// From Erlang's B by its recursion, which does not overflow.
pub fn waiting_probability(servers: u32, load: f64) -> f64 {
    if load <= 0.0 {
        return 0.0;
    }
    let blocked = (1..=servers).fold(1.0, |blocked, m| load * blocked / (f64::from(m) + load * blocked));
    let utilisation = load / f64::from(servers);
    if utilisation >= 1.0 { 1.0 } else { blocked / (1.0 - utilisation * (1.0 - blocked)) }
}

/// A single-queue station under Poisson arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Queue {
    /// Busy share of a server.
    pub utilisation: f64,
    /// Probability that an arrival waits.
    pub waits_ratio: f64,
    /// Mean time before service begins, seconds.
    pub wait_s: f64,
    /// Mean wait and service, seconds.
    pub response_s: f64,
}

impl Queue {
    /// The waiting time that the share `quantile` of arrivals does not exceed, seconds: those that wait at all do so for an
    /// exponential time. Exact for M/M/m; for general service it is the heavy-traffic form (Kingman, 1962).
    pub fn wait_quantile_s(&self, quantile: f64) -> f64 {
        let beyond = 1.0 - quantile;
        if self.waits_ratio <= beyond || self.wait_s <= 0.0 {
            return 0.0;
        }
        self.wait_s / self.waits_ratio * (self.waits_ratio / beyond).ln()
    }
}

/// M/G/m: M/M/m's wait times (1 + c^2) / 2, where c^2 is the squared coefficient of variation of the service time. With one
/// server this is Pollaczek and Khinchine's formula, exact; with more it is Lee and Longton's (1959).
///
/// # Errors
/// Negative or missing numbers; [`NetworkError::Saturated`] at a utilisation of 1 or more.
pub fn general_service(
    rate_per_sec: f64,
    service_s: f64,
    cv_squared: f64,
    servers: u32,
) -> Result<Queue, NetworkError> {
    not_negative("the arrival rate", rate_per_sec)?;
    not_negative("the service time", service_s)?;
    not_negative("the squared coefficient of variation", cv_squared)?;
    if servers == 0 {
        return Err(NetworkError::Empty("server"));
    }
    let load = rate_per_sec * service_s;
    let utilisation = load / f64::from(servers);
    if utilisation >= 1.0 {
        return Err(NetworkError::Saturated { station: "server".into(), utilisation });
    }
    let waits_ratio = waiting_probability(servers, load);
    let wait_s = waits_ratio * service_s / (f64::from(servers) * (1.0 - utilisation)) * (1.0 + cv_squared) / 2.0;
    Ok(Queue { utilisation, waits_ratio, wait_s, response_s: wait_s + service_s })
}
