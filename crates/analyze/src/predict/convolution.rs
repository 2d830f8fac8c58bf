//! Exact solution of closed networks of one class with several servers and load-dependent stations: convolution of the
//! stations' factors (Buzen, 1973). All terms are positive and kept as logarithms, so that it stays stable where mean
//! value analysis with marginal probabilities loses its digits.

use super::network::{Class, NetworkError, Solution, Station, check_closed, solution};

/// Work that is accepted: stations squared times population squared.
const MOST_WORK: f64 = 4e8;

/// Solves a closed network of one class exactly, with any stations.
pub fn closed(stations: &[Station], class: Class) -> Result<Solution, NetworkError> {
    check_closed(stations, &[class])?;
    let n = class.population as usize;
    let work = (n as f64).powi(2) * (stations.len() as f64).powi(2);
    if work > MOST_WORK {
        let states = n as f64;
        let most = (MOST_WORK.sqrt() / stations.len() as f64) as u64;
        return Err(NetworkError::TooLarge { states, most });
    }
    if n == 0 {
        return Ok(solution(stations, vec![0.0], vec![vec![0.0; stations.len()]]));
    }
    let think = Station::delay("think", &[class.think_s]);
    let factors: Vec<Vec<f64>> = stations.iter().chain([&think]).map(|station| factors(station, n)).collect();
    let all = factors.iter().skip(1).fold(factors[0].clone(), |sum, next| convolve(&sum, next));
    let rate = (all[n - 1] - all[n]).exp();
    let residence = (0..stations.len()).map(|k| {
        let others = (0..factors.len()).filter(|other| *other != k).map(|other| &factors[other]);
        let rest = others
            .fold(None::<Vec<f64>>, |sum, next| Some(sum.map_or_else(|| next.clone(), |sum| convolve(&sum, next))));
        let rest = rest.expect("the think time is always another station");
        let queue: f64 = (1..=n).map(|j| j as f64 * (factors[k][j] + rest[n - j] - all[n]).exp()).sum();
        queue / rate
    });
    Ok(solution(stations, vec![rate], vec![residence.collect()]))
}

/// Logarithms of a station's factors for 0 to n customers: the product of demand over speed.
fn factors(station: &Station, n: usize) -> Vec<f64> {
    let demand = station.demands_s[0].ln();
    let mut sum = 0.0;
    let steps = (1..=n).map(|present| {
        sum += demand - station.speed(present).ln();
        sum
    });
    std::iter::once(0.0).chain(steps).collect()
}

/// Logarithms of the convolution of two sequences given by logarithms.
fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    (0..a.len())
        .map(|n| {
            let terms = || (0..=n).map(|j| a[j] + b[n - j]);
            let top = terms().fold(f64::NEG_INFINITY, f64::max);
            if top == f64::NEG_INFINITY { top } else { top + terms().map(|term| (term - top).exp()).sum::<f64>().ln() }
        })
        .collect()
}
