//! Service demands: the time that a request of a class spends being served at a resource, waiting excluded. They are
//! what queueing models of the server start from (Almeida, Almeida and Yates, 1996, section 2.2).
//!
//! By the utilisation law, a resource's utilisation is the sum over classes of throughput times demand. This is checked
//! against the scheduler's account, which does not depend on requests: the difference is CPU time that belongs to no
//! request.

use super::estimate::RatioEstimator;
use record::watch::{Demand, Reading, UtilisationCheck};

/// Collects readings.
#[derive(Debug, Default)]
pub struct DemandTracker {
    cpu: Vec<RatioEstimator>,
    earlier: Option<Vec<(u64, i64)>>,
}

impl DemandTracker {
    /// Takes in a reading.
    pub fn add(&mut self, reading: &Reading) {
        let now: Vec<(u64, i64)> = reading.classes.iter().map(|class| (class.requests, class.cpu_ns)).collect();
        self.cpu.resize(now.len(), RatioEstimator::default());
        if let Some(earlier) = &self.earlier {
            for ((estimator, (requests, cpu_ns)), (requests0, cpu0_ns)) in self.cpu.iter_mut().zip(&now).zip(earlier) {
                estimator.add(requests.saturating_sub(*requests0), (cpu_ns - cpu0_ns) as f64 / 1e3);
            }
        }
        self.earlier = Some(now);
    }

    /// Demands by class as of a reading.
    pub fn demands(&self, reading: &Reading) -> Vec<Demand> {
        let user = reading.cpu.and_then(|cpu| cpu.user_ratio);
        reading
            .classes
            .iter()
            .enumerate()
            .map(|(index, class)| {
                let cpu_us = self.cpu.get(index).and_then(|estimator| estimator.estimate(0.0));
                let mean = cpu_us.map(|cpu| cpu.mean);
                Demand {
                    requests: class.requests,
                    cpu_us,
                    cpu_user_us: user.and_then(|user| Some(mean? * user)),
                    cpu_system_us: user.and_then(|user| Some(mean? * (1.0 - user))),
                    disk_bytes: reading.phases.get(index).and_then(|phases| phases.disk_bytes),
                    network_bytes: (class.requests > 0).then(|| class.bytes_out as f64 / class.requests as f64),
                }
            })
            .collect()
    }
}

/// Checks the law over the time between two readings; `None` if the server did not run.
pub fn utilisation(earlier: &Reading, now: &Reading) -> Option<UtilisationCheck> {
    let elapsed_ns = now.at_ns.checked_sub(earlier.at_ns).filter(|elapsed| *elapsed > 0)? as f64;
    let counted_ns = match (earlier.counted_ns, now.counted_ns) {
        (None, None) => elapsed_ns,
        _ => now.counted_time_ns().saturating_sub(earlier.counted_time_ns()) as f64,
    };
    if counted_ns <= 0.0 {
        return None;
    }
    let measured_ns = now.group_ns()?.checked_sub(earlier.group_ns()?).filter(|measured| *measured > 0)? as f64;
    let predicted_ns: f64 = now
        .classes
        .iter()
        .zip(&earlier.classes)
        .map(|(later, before)| {
            let requests = later.requests.saturating_sub(before.requests) as f64;
            let throughput = requests / counted_ns;
            let demand_ns = if requests > 0.0 { (later.cpu_ns - before.cpu_ns) as f64 / requests } else { 0.0 };
            throughput * demand_ns * elapsed_ns
        })
        .sum();
    Some(UtilisationCheck {
        predicted_cpus: predicted_ns / elapsed_ns,
        measured_cpus: measured_ns / elapsed_ns,
        unexplained_ratio: (measured_ns - predicted_ns) / measured_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watch::{ClassTotals, CpuTotals};

    fn reading(at_ns: u64, requests: u64, cpu_ns: i64, group_ns: u64) -> Reading {
        let mut reading = Reading {
            at_ns,
            classes: vec![ClassTotals { requests, cpu_ns, bytes_out: requests * 100, ..ClassTotals::default() }],
            ..Reading::default()
        };
        reading.cpu = Some(CpuTotals { group_ns, user_ratio: Some(0.25), ..CpuTotals::default() });
        reading
    }

    #[test]
    fn utilisation_is_throughput_times_demand() {
        let check = utilisation(&reading(0, 0, 0, 0), &reading(1_000_000_000, 100, 400_000_000, 500_000_000)).unwrap();
        assert!((check.predicted_cpus - 0.4).abs() < 1e-9);
        assert!((check.measured_cpus - 0.5).abs() < 1e-9);
        assert!((check.unexplained_ratio - 0.2).abs() < 1e-9);
        assert_eq!(utilisation(&reading(0, 0, 0, 0), &reading(1, 0, 0, 0)), None);
    }

    #[test]
    fn demands_divide_into_user_and_system() {
        let mut tracker = DemandTracker::default();
        for step in 0..7 {
            tracker.add(&reading(step, step * 10, step as i64 * 40_000, 0));
        }
        let demands = tracker.demands(&reading(7, 60, 240_000, 0));
        let cpu = demands[0].cpu_us.unwrap();
        assert_eq!((cpu.mean, cpu.requests, cpu.windows), (4.0, 60, 6));
        assert_eq!((demands[0].cpu_user_us, demands[0].cpu_system_us), (Some(1.0), Some(3.0)));
        assert_eq!(demands[0].network_bytes, Some(100.0));
    }
}
