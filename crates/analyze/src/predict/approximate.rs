//! Approximate mean value analysis for populations of any size: Schweitzer's proportional estimate (1979; Bard, 1979) and
//! Linearizer (Chandy and Neuse, 1982), which corrects its shares by how they change when one customer leaves.
//!
//! Several servers are replaced by one that is as many times as fast, followed by a delay that makes up for the
//! difference when no request waits (Seidmann, Schweitzer and Shalev-Oren, 1987).

use super::network::{Class, NetworkError, Service, Solution, Station, check_closed, solution};

const ROUNDS: usize = 20_000;
/// Largest relative change of a queue length that counts as settled.
const SETTLED: f64 = 1e-12;
/// Rounds of Linearizer's outer loop; Chandy and Neuse found three enough.
const CORRECTIONS: usize = 6;

/// Schweitzer's approximation. Its throughput is usually within 5 % of the exact one, and exact for very large populations.
pub fn schweitzer(stations: &[Station], classes: &[Class]) -> Result<Solution, NetworkError> {
    let core = Core::new(stations, classes)?;
    let populations: Vec<f64> = classes.iter().map(|class| class.population as f64).collect();
    let shares = core.settle(&populations, core.even_shares(), None)?;
    Ok(core.finish(&populations, &shares, None))
}

/// Linearizer: usually within 0.5 % of the exact solution, at about `classes` squared times the work.
pub fn linearizer(stations: &[Station], classes: &[Class]) -> Result<Solution, NetworkError> {
    let core = Core::new(stations, classes)?;
    let count = classes.len();
    let full: Vec<f64> = classes.iter().map(|class| class.population as f64).collect();
    let less: Vec<Vec<f64>> = (0..count)
        .map(|left| full.iter().enumerate().map(|(c, n)| if c == left { (n - 1.0).max(0.0) } else { *n }).collect())
        .collect();
    let mut changes = vec![vec![vec![0.0; stations.len()]; count]; count];
    let mut shares = core.even_shares();
    let mut shares_less = vec![core.even_shares(); count];
    for _ in 0..CORRECTIONS {
        shares = core.settle(&full, shares, Some(&changes))?;
        for left in 0..count {
            let start = std::mem::take(&mut shares_less[left]);
            shares_less[left] = core.settle(&less[left], start, Some(&changes))?;
        }
        for left in (0..count).filter(|left| full[*left] >= 1.0) {
            for (c, change) in changes[left].iter_mut().enumerate() {
                let stays = less[left][c] > 0.0;
                for (k, change) in change.iter_mut().enumerate() {
                    *change = if stays { shares_less[left][c][k] - shares[c][k] } else { 0.0 };
                }
            }
        }
    }
    shares = core.settle(&full, shares, Some(&changes))?;
    Ok(core.finish(&full, &shares, Some(&changes)))
}

/// `[class][station]`: which share of the class's customers is there.
type Shares = Vec<Vec<f64>>;
/// `[class that lost a customer]`: how the shares change.
type Changes = Vec<Shares>;

struct Core<'a> {
    stations: &'a [Station],
    thinks: Vec<f64>,
    /// Demand before a queue, and without one, `[class][station]`.
    queued: Vec<Vec<f64>>,
    unqueued: Vec<Vec<f64>>,
}

impl<'a> Core<'a> {
    fn new(stations: &'a [Station], classes: &[Class]) -> Result<Self, NetworkError> {
        check_closed(stations, classes)?;
        let mut queued = vec![vec![0.0; stations.len()]; classes.len()];
        let mut unqueued = queued.clone();
        for (k, station) in stations.iter().enumerate() {
            for c in 0..classes.len() {
                let demand = station.demands_s[c];
                (queued[c][k], unqueued[c][k]) = match &station.service {
                    Service::Delay => (0.0, demand),
                    Service::Queueing { servers } => {
                        let servers = f64::from(*servers);
                        (demand / servers, demand * (servers - 1.0) / servers)
                    }
                    Service::LoadDependent { .. } => {
                        let why = "the approximation covers queues and delays; load dependence needs the exact solution of one class";
                        return Err(NetworkError::Unsupported { station: station.name.clone(), why });
                    }
                };
            }
        }
        Ok(Core { stations, thinks: classes.iter().map(|class| class.think_s).collect(), queued, unqueued })
    }

    fn even_shares(&self) -> Shares {
        vec![vec![1.0 / self.stations.len() as f64; self.stations.len()]; self.thinks.len()]
    }

    /// Residence times when `populations` are spread by `shares`: an arriving customer of a class sees the others, and its
    /// own class without itself.
    fn residence(&self, populations: &[f64], shares: &Shares, changes: Option<&Changes>, class: usize) -> Vec<f64> {
        (0..self.stations.len())
            .map(|k| {
                let seen: f64 = (0..populations.len())
                    .map(|other| {
                        let present =
                            if other == class { (populations[other] - 1.0).max(0.0) } else { populations[other] };
                        let change = changes.map_or(0.0, |changes| changes[class][other][k]);
                        present * (shares[other][k] + change)
                    })
                    .sum();
                self.queued[class][k] * (1.0 + seen.max(0.0)) + self.unqueued[class][k]
            })
            .collect()
    }

    fn settle(
        &self,
        populations: &[f64],
        mut shares: Shares,
        changes: Option<&Changes>,
    ) -> Result<Shares, NetworkError> {
        for _ in 0..ROUNDS {
            let mut moved: f64 = 0.0;
            let mut next = shares.clone();
            for class in (0..populations.len()).filter(|class| populations[*class] > 0.0) {
                let residence = self.residence(populations, &shares, changes, class);
                let cycle = self.thinks[class] + residence.iter().sum::<f64>();
                for (k, time) in residence.iter().enumerate() {
                    next[class][k] = time / cycle;
                    moved = moved.max((next[class][k] - shares[class][k]).abs());
                }
            }
            shares = next;
            if moved < SETTLED {
                return Ok(shares);
            }
        }
        Err(NetworkError::NotSettled(ROUNDS))
    }

    fn finish(&self, populations: &[f64], shares: &Shares, changes: Option<&Changes>) -> Solution {
        let mut rates = vec![0.0; populations.len()];
        let mut residence = vec![vec![0.0; self.stations.len()]; populations.len()];
        for class in (0..populations.len()).filter(|class| populations[*class] > 0.0) {
            residence[class] = self.residence(populations, shares, changes, class);
            rates[class] = populations[class] / (self.thinks[class] + residence[class].iter().sum::<f64>());
        }
        solution(self.stations, rates, residence)
    }
}
