//! Queueing networks as data: stations, classes, and the solution.
//!
//! Times are in seconds, rates per second. A **service demand** is a class's visits to a station times its service time
//! there. All solvers assume what product-form networks do: service at a queueing station is shared (PS) or in order of
//! arrival (FCFS, then with the same exponential service for all classes), and classes do not turn into each other.

use serde::Serialize;

/// How a station serves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Service {
    /// One queue before this many equal servers.
    Queueing {
        /// Servers, at least one.
        servers: u32,
    },
    /// No queue: every request is served at once (a path, a pause).
    Delay,
    /// One queue; with n customers present the station works `rates[n - 1]` times as fast as with one. The last value
    /// holds for more.
    LoadDependent {
        /// Relative speeds, positive.
        rates: Vec<f64>,
    },
}

/// A place where requests spend time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Station {
    /// Its name in tables.
    pub name: String,
    /// How it serves.
    pub service: Service,
    /// Service demand of each class, seconds.
    pub demands_s: Vec<f64>,
}

impl Station {
    /// A single server with a queue.
    pub fn queue(name: &str, demands_s: &[f64]) -> Self {
        Station::servers(name, 1, demands_s)
    }

    /// Equal servers with one queue.
    pub fn servers(name: &str, servers: u32, demands_s: &[f64]) -> Self {
        Station { name: name.into(), service: Service::Queueing { servers }, demands_s: demands_s.to_vec() }
    }

    /// A delay without a queue.
    pub fn delay(name: &str, demands_s: &[f64]) -> Self {
        Station { name: name.into(), service: Service::Delay, demands_s: demands_s.to_vec() }
    }

    /// Whether it is a single server with a queue.
    pub fn is_single(&self) -> bool {
        self.service == Service::Queueing { servers: 1 }
    }

    /// The relative speed with `n` customers present.
    pub fn speed(&self, n: usize) -> f64 {
        match &self.service {
            Service::Delay => n as f64,
            Service::Queueing { servers } => n.min(*servers as usize) as f64,
            Service::LoadDependent { rates } => rates[n.clamp(1, rates.len()) - 1],
        }
    }
}

/// Customers of a closed network: a fixed number that come back after thinking.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Class {
    /// How many.
    pub population: u64,
    /// Time between a response and the next request, seconds.
    pub think_s: f64,
}

/// The solution of a network. `[class][station]`, in the order given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solution {
    /// Requests per second of each class.
    pub throughput_per_sec: Vec<f64>,
    /// Response time of each class without think time, seconds.
    pub response_s: Vec<f64>,
    /// Time that a request spends at a station in all visits, seconds.
    pub residence_s: Vec<Vec<f64>>,
    /// Mean number of the class's requests at a station.
    pub queue: Vec<Vec<f64>>,
    /// Busy share of one server (queueing), or mean number in service (delay).
    pub utilisation: Vec<Vec<f64>>,
}

/// Why a network cannot be solved; each message says what to change.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// A number is missing, negative or not finite.
    #[error("{what} is {value}: a time or rate must be a number of at least 0")]
    Negative {
        /// The number's name.
        what: String,
        /// Its value.
        value: f64,
    },
    /// No stations or no classes.
    #[error("the network has no {0}")]
    Empty(&'static str),
    /// Classes and demands do not match.
    #[error("station '{station}' has demands of {found} classes, the network has {expected}")]
    Shape {
        /// Which station.
        station: String,
        /// Demands given.
        found: usize,
        /// Classes of the network.
        expected: usize,
    },
    /// A class without any demand and think time would run infinitely fast.
    #[error("class {0} has neither a demand nor a think time, so its throughput has no bound")]
    Unbounded(usize),
    /// The exact solution would not fit.
    #[error("{states} states are too many for the exact solution (at most {most}): use the approximate one")]
    TooLarge {
        /// Population vectors to visit.
        states: f64,
        /// The most that are accepted.
        most: u64,
    },
    /// The algorithm does not cover this kind of station.
    #[error("station '{station}': {why}")]
    Unsupported {
        /// Which station.
        station: String,
        /// What is not covered, and what is.
        why: &'static str,
    },
    /// More arrives than can be served.
    #[error("station '{station}' would be {utilisation:.3} busy: an open network has no steady state at 1 or more")]
    Saturated {
        /// Which station.
        station: String,
        /// Its utilisation.
        utilisation: f64,
    },
    /// An iteration did not settle.
    #[error("the approximation did not settle within {0} rounds")]
    NotSettled(usize),
}

/// Checks every number of a network once, so that solvers need not.
pub(super) fn check(stations: &[Station], classes: usize) -> Result<(), NetworkError> {
    if stations.is_empty() {
        return Err(NetworkError::Empty("station"));
    }
    if classes == 0 {
        return Err(NetworkError::Empty("class"));
    }
    for station in stations {
        if station.demands_s.len() != classes {
            let found = station.demands_s.len();
            return Err(NetworkError::Shape { station: station.name.clone(), found, expected: classes });
        }
        for demand in &station.demands_s {
            not_negative(&format!("a demand of station '{}'", station.name), *demand)?;
        }
        match &station.service {
            Service::Queueing { servers: 0 } => {
                let why = "it has no server; give it at least one";
                return Err(NetworkError::Unsupported { station: station.name.clone(), why });
            }
            Service::LoadDependent { rates }
                if rates.is_empty() || rates.iter().any(|r| !(r.is_finite() && *r > 0.0)) =>
            {
                let why = "its speeds must be positive numbers, one at least";
                return Err(NetworkError::Unsupported { station: station.name.clone(), why });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses negative, infinite and missing (NaN) numbers.
pub(super) fn not_negative(what: &str, value: f64) -> Result<(), NetworkError> {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(NetworkError::Negative { what: what.into(), value }) }
}

/// [`check`] with the classes of a closed network.
pub(super) fn check_closed(stations: &[Station], classes: &[Class]) -> Result<(), NetworkError> {
    check(stations, classes.len())?;
    for (at, class) in classes.iter().enumerate() {
        not_negative(&format!("the think time of class {at}"), class.think_s)?;
        let demand: f64 = stations.iter().map(|station| station.demands_s[at]).sum();
        if class.population > 0 && demand + class.think_s <= 0.0 {
            return Err(NetworkError::Unbounded(at));
        }
    }
    Ok(())
}

/// Little's law and the utilisation law fill in what throughput and residence times determine.
pub(super) fn solution(stations: &[Station], throughput: Vec<f64>, residence: Vec<Vec<f64>>) -> Solution {
    let each = |value: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        (0..throughput.len()).map(|c| (0..stations.len()).map(|k| value(c, k)).collect()).collect()
    };
    let queue = each(&|c, k| throughput[c] * residence[c][k]);
    let utilisation = each(&|c, k| {
        let servers = match stations[k].service {
            Service::Queueing { servers } => f64::from(servers),
            _ => 1.0,
        };
        throughput[c] * stations[k].demands_s[c] / servers
    });
    Solution {
        response_s: residence.iter().map(|times| times.iter().sum()).collect(),
        throughput_per_sec: throughput,
        residence_s: residence,
        queue,
        utilisation,
    }
}
